//! `lfn couple run`: couples a model that reads and writes files.

use std::ffi::OsString;
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use lfn_api::couple::read_coupling;
use lfn_api::couple::run::{CoupleRunEvent, CoupleRunOptions, Exchange, listen_options, run as run_component};
use lfn_api::hosts::{FAR, SavedHosts};
use lfn_api::pictures::of_couple_run;
use lfn_api::resolve::is_ticket;
use lfn_base::units::{Bytes, parse_unit_duration};
use lfn_couple::Coupling;
use lfn_couple::channel::{COUPLE_PORT, ChannelOptions, Rendezvous};
use lfn_couple::document::run_document;
use lfn_session::{join_host_port, split_host_port};

use super::events::{TicketFile, print_event};
use crate::cli::output::{OutputArgs, PlotArgs, TextOrJson};
use crate::cmd::interrupt::Interrupt;
use crate::exit::{Exit, Failure};
use crate::print;
use crate::print::couple::run::page;
use crate::server_flags::{TrustArgs, resolver_without_ssh};

const RENDEZVOUS: &str = "Partner";
const MODEL: &str = "Model";

/// Couple a model that reads and writes files with the model of the partner
///
/// In step N the model writes out/VARIABLE.N.nc for each of its variables, and waits for in/VARIABLE.N.nc of the partner, in the
/// directory LFN_COUPLE_DIR. Files are NetCDF. The model must rename complete files to these names, as lfn does. A model without
/// variables of its own creates out/step.N instead.
#[derive(clap::Args, Debug)]
#[command(after_help = EXAMPLES)]
#[command(group(clap::ArgGroup::new("rendezvous").args(["listen", "dial"]).required(true)))]
pub struct CoupleRunArgs {
    /// Coupling file (TOML), the same at both sites
    file: PathBuf,
    /// Component of the coupling file that this host runs
    component: String,
    /// Wait for the partner on this address, and print the ticket that the partner dials [default: all, port 7327]
    #[arg(long, value_name = "ADDRESS:PORT", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    #[arg(value_parser = listen_address, help_heading = RENDEZVOUS)]
    listen: Option<ListenAddress>,
    /// Dial the partner: a ticket (lfn://…), a name saved with `lfn hosts add`, @FILE or - for a ticket
    #[arg(long, value_name = "TICKET", help_heading = RENDEZVOUS)]
    dial: Option<String>,
    /// Write this name or address of the host into the ticket [default: an address of this host, or that of --listen]
    #[arg(long, value_name = "NAME", requires = "listen", help_heading = RENDEZVOUS)]
    ticket_host: Option<String>,
    /// Write the ticket to a file that only this user can read, too
    #[arg(long, value_name = "FILE", requires = "listen", help_heading = RENDEZVOUS)]
    ticket_file: Option<PathBuf>,
    #[command(flatten)]
    trust: TrustArgs,
    /// Resume from the last checkpoint that the model reported before it ended
    #[arg(long, help_heading = RENDEZVOUS)]
    resume: bool,
    /// Wait for a lost or late partner for at most this long
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    #[arg(help_heading = RENDEZVOUS)]
    patience: Duration,
    /// Use N data streams for fields above 64 KiB in each direction [default: from the path]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=64), help_heading = RENDEZVOUS)]
    #[arg(conflicts_with = "listen")]
    streams: Option<u16>,
    /// Keep at most this much of the fields since the last checkpoint of the partner, besides the fields on the path
    #[arg(long, value_name = "SIZE", default_value = "1GiB", help_heading = RENDEZVOUS)]
    history: Bytes,
    /// Start the model for each step, not once for all steps
    ///
    /// The model is started once with LFN_COUPLE_STEP=start, and writes the fields of step LFN_COUPLE_FIRST_STEP. Then the model
    /// is started for each step N with LFN_COUPLE_STEP=N, reads in/VARIABLE.N.nc and writes the fields of LFN_COUPLE_NEXT_STEP.
    #[arg(long, help_heading = MODEL)]
    each_step: bool,
    /// Exchange the files in this directory [default: a new one, which is deleted at the end]
    #[arg(long, value_name = "DIR", help_heading = MODEL)]
    directory: Option<PathBuf>,
    /// Keep the files of past steps
    #[arg(long, requires = "directory", help_heading = MODEL)]
    keep: bool,
    /// Program of the model, with its arguments
    #[arg(required = true, last = true, value_name = "CMD")]
    command: Vec<OsString>,
    #[command(flatten)]
    output: OutputArgs<TextOrJson>,
    #[command(flatten)]
    plot: PlotArgs,
}

const EXAMPLES: &str = "\
Variables for CMD: LFN_COUPLE_DIR, LFN_COUPLE_COMPONENT, LFN_COUPLE_STEPS, LFN_COUPLE_FIRST_STEP; with --each-step also \
LFN_COUPLE_STEP and LFN_COUPLE_NEXT_STEP. The file out/checkpoint.N reports that the state at the start of step N is on disk; \
create it before the fields of step N. The output of CMD goes to standard error.

Examples:
  lfn couple run coupling.toml lake --listen -- ./lake
  lfn couple run coupling.toml atmosphere --dial @ticket -- python3 atmosphere.py
  lfn couple run coupling.toml lake --listen=192.0.2.1:7327 --resume --patience 1h -- ./lake --restart

Exit codes: 0 all steps done; 1 the model, the partner or the coupling failed; 2 usage; 3 the partner did not return in time, \
or the model failed after a checkpoint: the same command with --resume resumes; 130 interrupted.";

/// Address and port of `--listen`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ListenAddress {
    bind: Option<IpAddr>,
    port: u16,
}

/// Parses `ADDRESS:PORT`, `ADDRESS`, `:PORT` or nothing.
fn listen_address(typed: &str) -> Result<ListenAddress, String> {
    let port = |text: &str| text.parse().map_err(|_| format!("'{text}' is not a port"));
    if typed.is_empty() {
        return Ok(ListenAddress { bind: None, port: COUPLE_PORT });
    }
    if let Ok(address) = typed.parse::<SocketAddr>() {
        return Ok(ListenAddress { bind: Some(address.ip()), port: address.port() });
    }
    if let Some(number) = typed.strip_prefix(':') {
        return Ok(ListenAddress { bind: None, port: port(number)? });
    }
    let bare = typed.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')).unwrap_or(typed);
    let bind = bare.parse().map_err(|_| "write ADDRESS:PORT, ADDRESS or :PORT".to_owned())?;
    Ok(ListenAddress { bind: Some(bind), port: COUPLE_PORT })
}

/// Adds the default port of a coupling to a host without a port and without a saved ticket.
fn with_port(name: &str) -> Result<String, Failure> {
    if is_ticket(name) || name == FAR || SavedHosts::load()?.get(name)?.is_some() {
        return Ok(name.to_owned());
    }
    Ok(match split_host_port(name) {
        Ok((host, None)) => join_host_port(&host, COUPLE_PORT),
        _ => name.to_owned(),
    })
}

/// Runs `lfn couple run` and returns its exit code.
pub fn run(args: CoupleRunArgs) -> Result<Exit, Failure> {
    let mut output = args.output.open()?;
    let pictures = args.plot.create()?;
    let coupling = read_coupling(&args.file)?;
    let interrupt = Interrupt::listen()?;
    let ticket_file = args.ticket_file.as_deref().map(TicketFile::create).transpose()?;
    let rendezvous = args.rendezvous(&coupling, &interrupt)?;
    let component = args.component.clone();
    let options = CoupleRunOptions {
        channel: ChannelOptions {
            coupling: coupling.clone(),
            component: args.component,
            rendezvous,
            patience: args.patience,
            resume: args.resume,
            declared: Default::default(),
            history: args.history,
            streams: args.streams,
        },
        exchange: if args.each_step { Exchange::EachStep } else { Exchange::Files },
        command: args.command,
        directory: args.directory,
        keep: args.keep,
    };
    lfn_sys::process::raise_open_file_limit();
    interrupt.begin_load();
    let on_event = Arc::new(move |event: &CoupleRunEvent<'_>| print_event(&component, event, ticket_file.as_ref()));
    let report = run_component(options, on_event, interrupt.stop.clone())?;
    let document = run_document(&coupling, &report);
    output.set_album(|| of_couple_run(&document));
    output.finish(&document, || print::result(&page(&document)))?;
    if let Some(pictures) = pictures {
        pictures.write_one(of_couple_run(&document), "the run has no steps")?;
    }
    Ok(Exit::Ok)
}

impl CoupleRunArgs {
    fn rendezvous(&self, coupling: &Coupling, interrupt: &Interrupt) -> Result<Rendezvous, Failure> {
        if let Some(listen) = self.listen {
            let insecure = self.trust.insecure;
            let host = self.ticket_host.as_deref();
            let (name, component) = (&coupling.name, &self.component);
            let options = listen_options(
                listen.bind,
                listen.port,
                host,
                name,
                component,
                insecure,
                self.trust.insecure_anywhere,
            )?;
            return Ok(Rendezvous::Listen(options));
        }
        let typed = self.dial.as_deref().unwrap_or_default();
        let name = if self.trust.insecure { with_port(typed)? } else { typed.to_owned() };
        let resolver = resolver_without_ssh(&self.trust);
        if resolver.is_over_ssh(&name)? {
            // No program listens there without a ticket.
            let unknown = |error| {
                Failure::new(error).hint("use the ticket that the partner prints: --dial TICKET or --dial @FILE")
            };
            resolver.resolve(&name).map_err(unknown)?;
        }
        let target = resolver.find_or_start(&name, false, &interrupt.stop)?.target;
        Ok(Rendezvous::Dial(Box::new(target)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_takes_an_address_a_port_or_both() {
        let of = |typed: &str| listen_address(typed).map(|it| (it.bind.map(|bind| bind.to_string()), it.port));
        assert_eq!(of(""), Ok((None, 7327)));
        assert_eq!(of(":0"), Ok((None, 0)));
        assert_eq!(of("192.0.2.1"), Ok((Some("192.0.2.1".into()), 7327)));
        assert_eq!(of("192.0.2.1:99"), Ok((Some("192.0.2.1".into()), 99)));
        assert_eq!(of("[2001:db8::1]:99"), Ok((Some("2001:db8::1".into()), 99)));
        assert_eq!(of("[2001:db8::1]"), Ok((Some("2001:db8::1".into()), 7327)));
        assert!(of("far").is_err() && of(":x").is_err() && of("192.0.2.1:x").is_err());
    }
}
