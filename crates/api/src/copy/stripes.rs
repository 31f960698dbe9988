//! Stripes of a copy as typed: `LOCAL=REMOTE` pairs, checked and resolved before the copy.

use std::io;
use std::net::{IpAddr, SocketAddr};

use lfn_copy::proto::streams::StreamPlan;
use lfn_copy::{FoundStripes, Stripe, StripeSet, find_stripes};
use lfn_session::dial::{BindAddress, Target};
use lfn_session::{SessionError, split_host_port};
use lfn_sys::names::lookup;

use super::places::Direction;
use crate::error_kind::ErrorKind;

/// Maximum streams of all stripes that are chosen without a request, as a server allows by default.
const MAX_CHOSEN_STREAMS: u16 = 256;

/// Reasons why the stripes of a copy are refused.
#[derive(Debug, thiserror::Error)]
pub enum StripeError {
    #[error("stripe '{0}' is not LOCAL=REMOTE")]
    Malformed(String),
    #[error("stripe {0} is given twice")]
    Duplicate(String),
    #[error("stripe {0} joins addresses of different IP versions")]
    Family(String),
    #[error("stripes join this host and one server, and this copy is {0}")]
    NoServer(&'static str),
    #[error("--stripe auto finds all stripes, and cannot be combined with other stripes")]
    AutoWithOthers,
    /// No pair of addresses works.
    #[error("--stripe auto found no stripe{}", list_failed(.0))]
    NotFound(Vec<String>),
    #[error("--stripe auto cannot find stripes: {0}")]
    Search(SessionError),
    #[error("stripe {stripe}: unknown host '{host}': {source}")]
    UnknownHost { stripe: String, host: String, source: io::Error },
    /// The address is not one of this host, or the interface does not exist.
    #[error("stripe {stripe}: cannot connect from {place}: {source}")]
    Local { stripe: String, place: String, source: io::Error },
}

impl StripeError {
    /// Returns one action that may fix the error.
    pub fn hint(&self) -> Option<String> {
        let hint = match self {
            StripeError::Malformed(_) => "--stripe 10.0.1.1=10.0.1.2 or --stripe eth1=10.0.1.2:7323",
            StripeError::Duplicate(_) => "give each stripe once; --streams N opens more streams on each stripe",
            StripeError::Family(_) => "use two IPv4 addresses or two IPv6 addresses",
            StripeError::NoServer(_) => "omit --stripe",
            StripeError::AutoWithOthers => "use either --stripe auto or --stripe LOCAL=REMOTE",
            StripeError::NotFound(_) => "give the stripes: --stripe LOCAL=REMOTE",
            StripeError::Search(SessionError::Refused(refusal)) if refusal.hint.is_none() => {
                "install the same version of lfn on the server, or give the stripes: --stripe LOCAL=REMOTE"
            }
            StripeError::Search(error) => return error.hint(),
            StripeError::UnknownHost { .. } => "use an address of the server: --stripe 10.0.1.1=10.0.1.2",
            StripeError::Local { .. } => "`ip address` lists the interfaces here and their addresses",
        };
        Some(hint.to_owned())
    }

    /// Returns the kind of the error, which decides the exit code.
    pub fn kind(&self) -> ErrorKind {
        match self {
            StripeError::Malformed(_)
            | StripeError::Duplicate(_)
            | StripeError::Family(_)
            | StripeError::AutoWithOthers
            | StripeError::NoServer(_) => ErrorKind::Usage,
            StripeError::NotFound(_)
            | StripeError::Search(_)
            | StripeError::UnknownHost { .. }
            | StripeError::Local { .. } => ErrorKind::Failed,
        }
    }
}

/// A stripe as typed, not resolved.
#[derive(Clone, Debug, PartialEq, Eq)]
struct TypedStripe {
    name: String,
    from: BindAddress,
    host: String,
    port: Option<u16>,
}

impl TypedStripe {
    fn parse(text: &str) -> Result<Self, StripeError> {
        let malformed = || StripeError::Malformed(text.to_owned());
        let (local, remote) = text.split_once('=').ok_or_else(malformed)?;
        let from = BindAddress::parse(local).ok_or_else(malformed)?;
        let (host, port) = split_host_port(remote).map_err(|_| malformed())?;
        Ok(TypedStripe { name: text.to_owned(), from, host, port })
    }

    /// Finds the addresses of the server, and checks that this host can connect from the source.
    fn resolve(self, default_port: u16) -> Result<Stripe, StripeError> {
        let TypedStripe { name, from, host, port } = self;
        let number = port.unwrap_or(default_port);
        let found = lookup(&host, number).map_err(|source| StripeError::UnknownHost {
            stripe: name.clone(),
            host: host.clone(),
            source,
        })?;
        let reached: Vec<SocketAddr> = found.into_iter().filter(|address| from.reaches(address)).collect();
        let Some(first) = reached.first() else { return Err(StripeError::Family(name)) };
        // Another error of the kernel returns when the stripe is dialled.
        if let Err(SessionError::Bind { place, source }) = from.check(*first) {
            return Err(StripeError::Local { stripe: name, place, source });
        }
        let addresses = reached.iter().map(SocketAddr::ip).collect();
        Ok(Stripe { name, from, host, addresses, port })
    }
}

/// Value of `--stripe` that finds the stripes.
const AUTO: &str = "auto";

/// Checks the text of the stripes.
pub(super) fn check_stripes(typed: &[String], direction: &Direction) -> Result<(), StripeError> {
    if typed.is_empty() {
        return Ok(());
    }
    if is_auto(typed) {
        return check_direction(direction);
    }
    if typed.iter().any(|text| text == AUTO) {
        return Err(StripeError::AutoWithOthers);
    }
    check_direction(direction)?;
    parse_all(typed).map(drop)
}

/// Returns whether the stripes are to be found.
pub(super) fn is_auto(typed: &[String]) -> bool {
    typed == [AUTO]
}

fn check_direction(direction: &Direction) -> Result<(), StripeError> {
    if direction.is_local() {
        return Err(StripeError::NoServer("on this host"));
    }
    if direction.other_host().is_some() {
        return Err(StripeError::NoServer("between two servers"));
    }
    Ok(())
}

fn parse_all(typed: &[String]) -> Result<Vec<TypedStripe>, StripeError> {
    let mut stripes: Vec<TypedStripe> = Vec::new();
    for text in typed {
        let stripe = TypedStripe::parse(text)?;
        let is_same =
            |other: &TypedStripe| (&other.from, &other.host, other.port) == (&stripe.from, &stripe.host, stripe.port);
        if stripes.iter().any(is_same) {
            return Err(StripeError::Duplicate(stripe.name));
        }
        stripes.push(stripe);
    }
    Ok(stripes)
}

/// Returns the pairs that failed, as the end of a sentence.
fn list_failed(failed: &[String]) -> String {
    if failed.is_empty() { String::new() } else { format!(": {}", failed.join("; ")) }
}

/// Finds or resolves the stripes of a copy. Returns them with the pairs of `auto` that failed.
pub(super) fn resolve_stripes(typed: &[String], target: &Target) -> Result<(StripeSet, Vec<String>), StripeError> {
    if is_auto(typed) {
        let FoundStripes { stripes, failed } = find_stripes(target).map_err(StripeError::Search)?;
        if stripes.is_empty() {
            return Err(StripeError::NotFound(failed));
        }
        return Ok((StripeSet::new(stripes), failed));
    }
    let mut stripes: Vec<Stripe> = Vec::new();
    for stripe in parse_all(typed)? {
        let stripe = stripe.resolve(target.port())?;
        // Two names of one address are one path.
        let key = |stripe: &Stripe| -> (BindAddress, Option<IpAddr>, Option<u16>) {
            (stripe.from.clone(), stripe.addresses.first().copied(), Some(stripe.port.unwrap_or(target.port())))
        };
        if stripes.iter().any(|other| key(other) == key(&stripe)) {
            return Err(StripeError::Duplicate(stripe.name));
        }
        stripes.push(stripe);
    }
    Ok((StripeSet::new(stripes), Vec::new()))
}

/// Multiplies the streams of a plan: the plan has those of one stripe. `is_requested` if the user gave their number.
pub(super) fn plan_for_stripes(plan: StreamPlan, stripes: usize, is_requested: bool) -> StreamPlan {
    let count = u16::try_from(stripes.max(1)).unwrap_or(u16::MAX);
    let (streams, max_streams) = (plan.streams.saturating_mul(count), plan.max_streams.saturating_mul(count));
    let most = if is_requested { u16::MAX } else { (MAX_CHOSEN_STREAMS / count).max(1).saturating_mul(count) };
    StreamPlan { streams: streams.min(most), max_streams: max_streams.min(most), ..plan }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use super::*;

    fn parsed(text: &str) -> (Option<IpAddr>, Option<String>, String, Option<u16>) {
        let TypedStripe { from, host, port, .. } = TypedStripe::parse(text).unwrap();
        (from.address, from.interface, host, port)
    }

    #[test]
    fn stripe_is_a_source_and_an_address_of_the_server() {
        let address = |text: &str| Some(text.parse().unwrap());
        assert_eq!(parsed("10.0.1.1=10.0.1.2"), (address("10.0.1.1"), None, "10.0.1.2".into(), None));
        assert_eq!(parsed("eth1=far:7000"), (None, Some("eth1".into()), "far".into(), Some(7000)));
        assert_eq!(parsed("eth1=far:7323").3, Some(7323));
        assert_eq!(parsed("fd00::1=fd00::2"), (address("fd00::1"), None, "fd00::2".into(), None));
        assert_eq!(parsed("fd00::1=[fd00::2]:80").3, Some(80));
        assert_eq!(parsed("fd00::1=[fd00::2]").3, None);
    }

    #[test]
    fn malformed_stripes_are_refused() {
        for text in ["", "=", "10.0.1.1", "=10.0.1.2", "10.0.1.1=", "an interface=far", "eth1=far:0", "eth1=far:x"] {
            let error = TypedStripe::parse(text).unwrap_err();
            assert!(matches!(error, StripeError::Malformed(_)) && error.to_string().contains(text), "{error}");
        }
    }

    #[test]
    fn stripe_given_twice_is_refused() {
        let typed = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>();
        let error = parse_all(&typed(&["eth1=far", "eth2=far", "eth1=far"])).unwrap_err();
        assert_eq!(error.to_string(), "stripe eth1=far is given twice");
        assert_eq!(parse_all(&typed(&["eth1=far", "eth1=far:80"])).unwrap().len(), 2);
    }

    #[test]
    fn chosen_streams_of_stripes_fit_a_server() {
        let plan = lfn_copy::proto::streams::plan_streams(None, None, &Default::default());
        let streams = |stripes, requested| {
            let plan = plan_for_stripes(plan.clone(), stripes, requested);
            (plan.streams, plan.max_streams)
        };
        assert_eq!(streams(4, false), (16, 128));
        assert_eq!(streams(16, false), (64, 256));
        assert_eq!(streams(100, false), (200, 200));
        assert_eq!(streams(100, true), (400, 3200));
    }
}
