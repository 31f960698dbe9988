//! Arguments of Python as options of the channel.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_couple::channel::{DeclaredVariable, ListenOptions};
use lfn_couple::{ChannelError, ChannelOptions, Coupling, Rendezvous};
use lfn_session::dial::Target;
use lfn_session::{Ticket, TicketHost};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::error;

/// Units, shape and element type of a variable in the model.
type Declared = (Option<String>, Option<Vec<u64>>, Option<String>);

/// Arguments of `open`, as the Python sources pass them.
#[derive(FromPyObject)]
pub(crate) struct Arguments {
    /// Text of the coupling file.
    text: String,
    component: String,
    /// Ticket of the partner; none listens.
    ticket: Option<String>,
    address: Option<String>,
    port: u16,
    host: Option<String>,
    state: Option<PathBuf>,
    /// Maximum time without the partner, seconds.
    patience: f64,
    resume: bool,
    streams: Option<u16>,
    /// Maximum memory for sent fields, bytes.
    history: u64,
    declared: BTreeMap<String, Declared>,
}

/// Parses a coupling file. The exception lists every problem, and has the hint of the first problem with a hint.
pub(crate) fn coupling(py: Python<'_>, text: &str) -> PyResult<Coupling> {
    Coupling::parse(text).map_err(|errors| {
        let hint = errors.0.iter().find_map(|problem| problem.hint());
        error::new(py, "CouplingFileError", &errors.to_string(), hint)
    })
}

impl Arguments {
    /// Converts the arguments. Resolves the host of a ticket, which can take seconds.
    pub(crate) fn channel_options(self, py: Python<'_>) -> PyResult<ChannelOptions> {
        let coupling = coupling(py, &self.text)?;
        let patience = Duration::try_from_secs_f64(self.patience)
            .map_err(|problem| PyValueError::new_err(format!("patience = {}: {problem}", self.patience)))?;
        let rendezvous = match &self.ticket {
            Some(ticket) => dial(py, ticket)?,
            None => self.listen(py)?,
        };
        let declared = self
            .declared
            .into_iter()
            .map(|(variable, (units, shape, element))| (variable, DeclaredVariable { units, shape, element }));
        Ok(ChannelOptions {
            coupling,
            component: self.component,
            rendezvous,
            patience,
            resume: self.resume,
            declared: declared.collect(),
            history: Bytes(self.history),
            streams: self.streams,
        })
    }

    fn listen(&self, py: Python<'_>) -> PyResult<Rendezvous> {
        let parse = |address: &String| {
            let parsed: Result<IpAddr, _> = address.parse();
            parsed.map_err(|_| {
                PyValueError::new_err(format!("address = '{address}': expected an IP address of this host"))
            })
        };
        let bind = self.address.as_ref().map(parse).transpose()?;
        let ticket_host = match &self.host {
            Some(host) => host.clone(),
            None => py.detach(|| TicketHost::find(bind).host),
        };
        let options = ListenOptions { bind, port: self.port, ticket_host, state: self.state.clone(), insecure: false };
        Ok(Rendezvous::Listen(options))
    }
}

fn dial(py: Python<'_>, ticket: &str) -> PyResult<Rendezvous> {
    let ticket: Ticket = ticket.trim().parse().map_err(|problem: lfn_session::TicketError| {
        let hint = "copy the whole ticket that the other component printed".to_owned();
        error::new(py, "CoupleError", &problem.to_string(), Some(hint))
    })?;
    let target = py.detach(|| Target::new(ticket));
    let target = target.map_err(|problem| error::of_channel(py, &ChannelError::Session(problem)))?;
    Ok(Rendezvous::Dial(Box::new(target)))
}
