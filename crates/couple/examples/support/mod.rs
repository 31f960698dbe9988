//! Opens the channel of an example, and writes its result.

use std::path::Path;
use std::time::{Duration, SystemTime};

use lfn_base::units::Bytes;
use lfn_couple::channel::{DEFAULT_PATIENCE, ListenOptions};
use lfn_couple::{Channel, ChannelEvent, ChannelOptions, Coupling, Rendezvous};
use lfn_session::Ticket;
use lfn_session::dial::Target;

/// Time between two looks for the ticket of the partner.
const TICKET_POLL: Duration = Duration::from_millis(20);

/// An open channel, and the start of its connection.
pub struct Opened {
    pub channel: Channel,
    /// Start of the connection, in seconds since 1970. Both ends have the same clock.
    pub connecting: f64,
}

/// Opens the channel. `role` is `listen` or `dial`. The end that listens writes the file `ticket`, the other end waits for the
/// file. The environment variable `LFN_FAR` is the address that listens; without it, the loopback address. `STREAMS` is the number of
/// streams for large fields in each direction; without it, the channel selects the number.
pub fn open(role: &str, ticket: &Path, coupling: Coupling, component: &str) -> Opened {
    let rendezvous = match role {
        "listen" => Rendezvous::Listen(ListenOptions {
            bind: None,
            port: 0,
            ticket_host: std::env::var("LFN_FAR").unwrap_or_else(|_| "127.0.0.1".into()),
            state: None,
            insecure: false,
        }),
        "dial" => Rendezvous::Dial(Box::new(wait_for_ticket(ticket))),
        other => panic!("{other}: expected listen or dial"),
    };
    let options = ChannelOptions {
        coupling,
        component: component.into(),
        rendezvous,
        patience: DEFAULT_PATIENCE,
        resume: false,
        declared: Default::default(),
        history: Bytes(1 << 30),
        streams: std::env::var("STREAMS").ok().map(|streams| streams.parse().unwrap()),
    };
    let ticket = ticket.to_owned();
    let on_event = move |event: &ChannelEvent| match event {
        ChannelEvent::Listening { ticket: text } => write(&ticket, text),
        other => eprintln!("{other:?}"),
    };
    let connecting = unix_time();
    let channel = Channel::open(options, on_event, || false).unwrap();
    Opened { channel, connecting }
}

/// Returns the seconds since 1970.
pub fn unix_time() -> f64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_secs_f64()
}

/// Reads a coupling file.
pub fn coupling(file: &str) -> Coupling {
    Coupling::parse(&std::fs::read_to_string(file).unwrap()).unwrap()
}

/// Writes a file in one step, so that its reader never sees a part of the text.
pub fn write(file: &Path, text: &str) {
    let new = file.with_extension("new");
    std::fs::write(&new, text).unwrap();
    std::fs::rename(new, file).unwrap();
}

fn wait_for_ticket(file: &Path) -> Target {
    while !file.exists() {
        std::thread::sleep(TICKET_POLL);
    }
    let ticket: Ticket = std::fs::read_to_string(file).unwrap().parse().unwrap();
    Target::new(ticket).unwrap()
}
