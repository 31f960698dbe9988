//! Errors of a channel.

use std::time::Duration;

use lfn_base::units::show_duration;
use lfn_session::SessionError;
use lfn_session::identity::IdentityError;
use lfn_session::server::ServeError;
use lfn_session::wire::RefusalCode;

use crate::coupling::Difference;

/// Maximum number of differences in a message.
const MAX_LISTED: usize = 20;

/// Reason why a channel could not be opened, or a run cannot go on.
#[derive(Debug, thiserror::Error)]
pub enum ChannelError {
    #[error("the coupling file has no component {name}; it has {known}")]
    NoSuchComponent { name: String, known: String },
    #[error("{component} does not {direction} {variable}; it {direction}s {known}")]
    NoSuchVariable { component: String, variable: String, direction: &'static str, known: String },
    #[error("{variable}: the model has {key} {model}, the coupling file has {file}")]
    ModelDiffers { variable: String, key: &'static str, model: String, file: String },
    #[error("{variable}: {found} bytes; a field has {expected} bytes")]
    FieldSize { variable: String, found: usize, expected: u64 },
    #[error("{variable} was put twice in step {step}")]
    PutTwice { variable: String, step: u64 },
    #[error("step {step} ended without a put of {variable}")]
    NotPut { variable: String, step: u64 },
    #[error("{variable} was got twice in step {step}")]
    GotTwice { variable: String, step: u64 },
    #[error("no step has begun")]
    NoStep,
    /// The files of the two sites differ.
    #[error("the coupling files of {own} and {partner} differ: {}", list(.differences))]
    FilesDiffer { own: String, partner: String, differences: Vec<Difference> },
    /// The versions of lfn do not understand each other.
    #[error("{partner} has lfn {partner_version}, and this host has lfn {own_version}: they cannot be coupled")]
    OtherVersion { partner: String, partner_version: String, own_version: &'static str },
    #[error("both sites run the component {component}")]
    SameComponent { component: String },
    #[error("{partner} did not connect within {}{}", show_duration(*.patience), because(.reason))]
    NoPartner {
        partner: String,
        patience: Duration,
        reason: Option<String>,
        /// This process is to resume a run.
        resume: bool,
    },
    #[error("lost {partner} at step {step}, and it did not return within {}: {reason}", show_duration(*.patience))]
    PartnerLost {
        partner: String,
        step: u64,
        patience: Duration,
        reason: String,
        /// Last checkpoint that this component has reported.
        checkpoint: Option<u64>,
    },
    #[error("{variable} of step {step} did not arrive within {}: {partner} is at step {partner_step}", show_duration(*.patience))]
    NoField { variable: String, step: u64, partner: String, partner_step: u64, patience: Duration },
    #[error("{partner} ended after {steps} steps; {variable} of step {step} does not exist")]
    PartnerEnded { partner: String, variable: String, step: u64, steps: u64 },
    /// The partner stopped the run, with its reason.
    #[error("{partner} stopped the run: {reason}")]
    StoppedByPartner { partner: String, reason: String },
    #[error(
        "{partner} no longer has {variable} of step {step}, which {component} needs to begin with step {first_step}"
    )]
    HistoryGone {
        partner: String,
        component: String,
        variable: String,
        step: u64,
        first_step: u64,
        /// The coupling file permits checkpoints of the component.
        checkpoints: bool,
    },
    #[error(
        "{component} cannot resume: the process of {partner} does not know the run, because it was started again, too"
    )]
    NothingToResume { component: String, partner: String },
    /// The partner's messages break the protocol.
    #[error("{partner} sent an invalid message: {problem}")]
    Protocol { partner: String, problem: String },
    #[error(transparent)]
    Session(#[from] SessionError),
    #[error(transparent)]
    Serve(#[from] ServeError),
    #[error(transparent)]
    Identity(#[from] IdentityError),
    #[error("interrupted")]
    Interrupted,
}

impl ChannelError {
    /// Returns an action that fixes the cause.
    pub fn hint(&self) -> Option<String> {
        match self {
            ChannelError::FilesDiffer { .. } => Some("use the same coupling file at both sites".into()),
            ChannelError::OtherVersion { .. } => Some("install the same version of lfn at both sites".into()),
            ChannelError::SameComponent { .. } => Some("start the other component at one of the sites".into()),
            ChannelError::ModelDiffers { variable, .. } => {
                Some(format!("change [variable.{variable}] at both sites, or convert the field in the model"))
            }
            ChannelError::HistoryGone { component, checkpoints: false, .. } => {
                Some(format!("set checkpoints = true in [component.{component}], and start both components again"))
            }
            ChannelError::HistoryGone { first_step: 0, .. } => {
                Some("resume from the last checkpoint: --resume, or resume=True in Python".into())
            }
            ChannelError::HistoryGone { partner, .. } => Some(format!(
                "use a larger --history at {partner}, or write checkpoints more often; then start both components again"
            )),
            ChannelError::NothingToResume { .. } => Some(
                "start both components without --resume, or resume=True in Python: the run begins with step 0".into(),
            ),
            ChannelError::NoPartner { .. } => {
                Some("start the partner, or wait longer: --patience 1h, or patience=3600 in Python".into())
            }
            ChannelError::PartnerLost { partner, checkpoint: Some(step), .. } => Some(format!(
                "if the process of {partner} still runs, resume from step {step} with --resume, or resume=True in Python; \
                 otherwise start both components again"
            )),
            ChannelError::PartnerLost { .. } => Some(
                "start both components again; a longer outage needs --patience 1h, or patience=3600 in Python".into(),
            ),
            ChannelError::Session(SessionError::Refused(refusal)) if refusal.code == RefusalCode::WrongToken => {
                Some("use the ticket that the partner prints now".into())
            }
            ChannelError::Session(SessionError::WrongFingerprint { .. }) => {
                Some("use the ticket that the partner prints now; if it is this one, another host answers".into())
            }
            ChannelError::Session(error) => error.hint(),
            _ => None,
        }
    }

    /// Reports whether a new process of this component can resume the run, if the process of the partner still waits.
    pub fn is_resumable(&self) -> bool {
        matches!(
            self,
            ChannelError::NoPartner { resume: true, .. } | ChannelError::PartnerLost { checkpoint: Some(_), .. }
        )
    }
}

fn because(reason: &Option<String>) -> String {
    reason.as_ref().map_or_else(String::new, |reason| format!(": {reason}"))
}

fn list(differences: &[Difference]) -> String {
    let shown: Vec<String> = differences.iter().take(MAX_LISTED).map(ToString::to_string).collect();
    let more = differences.len().saturating_sub(MAX_LISTED);
    let rest = if more > 0 { format!("; and {more} more") } else { String::new() };
    shown.join("; ") + &rest
}
