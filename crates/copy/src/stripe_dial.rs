//! Opens the control connection of a copy with stripes, over the first stripe that connects.

use std::sync::mpsc::channel;
use std::thread;

use lfn_session::dial::{ServerConnection, Target};
use lfn_session::wire::Request;
use lfn_session::{Control, SessionError, SessionId};

use super::TransferError;
use super::stream_pool::thread_error;
use super::stripe_error::short_text;
use super::stripe_set::StripeSet;

/// Dials all stripes at once, and opens the control connection over the first one that connects. If its handshake
/// fails, the next stripe is used.
///
/// # Errors
/// [`TransferError::NoStripe`] with the error of each stripe if none works.
pub(crate) fn open_control(
    stripes: &StripeSet,
    target: &Target,
    session: SessionId,
    request: &Request,
) -> Result<Control, TransferError> {
    let (sender, connections) = channel();
    for (number, stripe) in stripes.stripes().iter().enumerate() {
        let (target, sender) = (stripe.target(target), sender.clone());
        let dial = move || {
            // The other connections are closed after the first one that works.
            let _ = sender.send((number, ServerConnection::connect(&target)));
        };
        thread::Builder::new().name("control".into()).spawn(dial).map_err(thread_error)?;
    }
    drop(sender);
    let mut errors = vec![String::new(); stripes.stripes().len()];
    for (number, connected) in connections {
        let stripe = &stripes.stripes()[number];
        let target = stripe.target(target);
        match connected.and_then(|connection| connection.open_control(&target, session, request.clone())) {
            Ok(control) => return Ok(control),
            Err(error @ SessionError::WrongFingerprint { .. }) => return Err(error.into()),
            Err(error) => errors[number] = format!("{}: {}", stripe.name, short_text(&error)),
        }
    }
    Err(TransferError::NoStripe(errors))
}
