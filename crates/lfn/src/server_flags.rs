//! Flags of all commands that dial a server: authentication, the queue, and servers started over ssh.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use lfn_api::emulator_env::EmulatorEnvironment;
use lfn_api::resolve::ServerResolver;
use lfn_api::resolve_event::ResolveEvent;
use lfn_api::ssh::PortRange;
use lfn_base::units::{parse_unit_duration, show_duration};
use lfn_session::limits::QueuePosition;
use lfn_session::queue::QueueOptions;

use crate::{print, typed};

/// Flags that control authentication of the server, shared by all commands that dial.
#[derive(clap::Args, Debug, Default, Clone)]
pub struct TrustArgs {
    /// Do not authenticate the server and send no token; only on loopback or an emulated path
    #[arg(long)]
    pub insecure: bool,
    /// Allow --insecure on a real network
    #[arg(long, requires = "insecure")]
    pub insecure_anywhere: bool,
}

/// Flags for the queue of a full server, shared by all commands that dial.
#[derive(clap::Args, Debug, Clone)]
pub struct QueueArgs {
    /// Wait in the queue of a full server for at most this long
    #[arg(long, value_name = "DURATION", default_value = "10min", value_parser = parse_unit_duration)]
    pub wait: Duration,
    /// Fail at once if the server is full
    #[arg(long, conflicts_with = "wait")]
    pub no_wait: bool,
}

const SSH_HEADING: &str = "Over ssh";

/// Flags for servers started over ssh.
#[derive(clap::Args, Debug)]
pub struct SshFlags {
    /// Use this command to reach USER@HOST [default: ssh]
    #[arg(long, value_name = "COMMAND", help_heading = SSH_HEADING)]
    ssh: Option<String>,
    /// Specify the lfn to run on the remote host, if it is not in the PATH
    ///
    /// The remote shell parses the value.
    #[arg(long, value_name = "PATH", default_value = "lfn", help_heading = SSH_HEADING)]
    remote_lfn: String,
    /// Listen on the first free port of this range on the remote host, if a firewall blocks other ports
    #[arg(long, value_name = "FIRST-LAST", help_heading = SSH_HEADING)]
    ssh_ports: Option<PortRange>,
}

/// Server of a command that measures a path, with the flags to reach it. The command decides when HOST is needed.
#[derive(clap::Args, Debug)]
pub struct ServerArgs {
    /// Server: a name saved with `lfn hosts add`, a ticket (lfn://…), USER@HOST for ssh, or far inside `lfn emulate`
    ///
    /// A name without a saved ticket is a host for ssh, which starts lfn on that host for this command. With - the ticket
    /// is read from standard input, with @FILE from a file. Other users see arguments in `ps`.
    #[arg(value_name = "HOST")]
    host: Option<String>,
    #[command(flatten)]
    pub trust: TrustArgs,
    #[command(flatten)]
    waiting: QueueArgs,
    #[command(flatten)]
    ssh: SshFlags,
}

impl ServerArgs {
    /// Returns the server as typed.
    pub fn host(&self) -> Option<&str> {
        self.host.as_deref()
    }

    /// Returns the options for finding the server.
    pub fn resolver(&self) -> ServerResolver {
        resolver(&self.trust, &self.waiting, &self.ssh)
    }
}

/// Returns the options for finding servers, from the flags and the environment of the emulator.
pub fn resolver(trust: &TrustArgs, waiting: &QueueArgs, ssh: &SshFlags) -> ServerResolver {
    let program = ServerResolver::default();
    ServerResolver {
        insecure: trust.insecure,
        insecure_anywhere: trust.insecure_anywhere,
        queue: QueueOptions {
            max_wait: if waiting.no_wait { Duration::ZERO } else { waiting.wait },
            on_change: print_queue_position,
        },
        ssh: ssh.ssh.clone().unwrap_or(program.ssh),
        remote_lfn: ssh.remote_lfn.clone(),
        ssh_ports: ssh.ssh_ports,
        environment: emulator().clone(),
        program: program.program,
        on_event: Arc::new(print_event),
    }
}

/// Returns the options for finding a partner, which listens already.
pub fn resolver_without_ssh(trust: &TrustArgs) -> ServerResolver {
    ServerResolver {
        insecure: trust.insecure,
        insecure_anywhere: trust.insecure_anywhere,
        environment: emulator().clone(),
        on_event: Arc::new(print_event),
        ..ServerResolver::default()
    }
}

/// Returns the variables of the emulated path for the hosts of the command line.
pub fn emulator() -> &'static EmulatorEnvironment {
    static ENVIRONMENT: OnceLock<EmulatorEnvironment> = OnceLock::new();
    ENVIRONMENT.get_or_init(|| EmulatorEnvironment::read(typed::words()))
}

/// Prints one line on standard error for each change of the queue position.
fn print_queue_position(place: &QueuePosition) {
    let wait = place.expected_wait().map_or("for an unknown time".into(), |wait| {
        format!("about {}", show_duration(Duration::from_secs(wait.as_secs() + 1)))
    });
    print::message(format_args!("lfn: {}, waiting {wait} ({} ahead)\n", place.reason(), place.ahead));
}

fn print_event(event: &ResolveEvent<'_>) {
    match event {
        ResolveEvent::TicketAwaited => print::message("ticket: "),
        ResolveEvent::DataThroughSsh { host, port, error } => print::message(format_args!(
            "lfn: cannot reach port {port} of {host} ({error}); the data go through ssh, which is slower\n"
        )),
    }
}
