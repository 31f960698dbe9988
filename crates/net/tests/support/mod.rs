//! A server on loopback that ends with its test.

#![allow(dead_code, reason = "every test binary compiles this and none uses all of it")]

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_core::session::{Rights, Ticket};
use lfn_core::transfer::keep::Keep;
use lfn_core::units::Bytes;
use lfn_core::wire::Request;
use lfn_core::wire::copy::{CopyRequest, Job, Pick};
use lfn_net::server::access::Access;
use lfn_net::server::admission::{Admission, Quotas};
use lfn_net::server::{Config, Connections, Server, Service};
use lfn_net::session::dial::Target;
use lfn_net::session::identity::{Identity, new_token};
use lfn_net::transfer::{Options, Watch};

/// What it is reached by, what it holds, and what it logged.
pub struct Served {
    pub ticket: Ticket,
    pub admission: Admission,
    pub log: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Of a server that asks for its token and limits as any does; nothing is waited for at its end.
pub fn config() -> Config {
    Config {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        identity: Identity::ephemeral().unwrap(),
        token: Some(new_token().unwrap()),
        token_expires: None,
        tokens: None,
        rights: Rights::ALL,
        audit: None,
        root: None,
        everywhere: false,
        third_party: false,
        quotas: Quotas::default(),
        connections: Connections::default(),
        access: Access::default(),
        drain: Duration::ZERO,
    }
}

/// What a client asks in a copy of which nothing else matters.
pub fn copy_request(job: Job, streams: u16, block: u64) -> Request {
    Request::Copy(CopyRequest {
        job,
        streams,
        block: Bytes(block),
        congestion: None,
        pace: None,
        stream_secret: None,
        copy: None,
        manner: Default::default(),
    })
}

/// Waits for something that must become so.
#[track_caller]
pub fn wait_until(what: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !what() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
}

/// A copy by one stream, symbolic links as what they are.
pub fn one_stream_with_links() -> Options {
    let keep = Keep { links: true, ..Keep::default() };
    Options { streams: 1, pick: Pick { keep, ..Pick::default() }, ..Options::default() }
}

/// Looks at nothing, and ends nothing before its time.
pub fn watch() -> Watch<'static> {
    until(&NEVER)
}

/// The same, until it is interrupted.
pub fn until(interrupted: &AtomicBool) -> Watch<'_> {
    Watch {
        observer: Box::leak(Box::new(|_: &_, _: &_| {})),
        change: Box::leak(Box::new(|_: &_| {})),
        connection: Box::leak(Box::new(|_: &_| {})),
        interrupted,
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl Served {
    pub fn start(config: Config, service: Service) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let seen = log.clone();
        let server = Server::bind(config, service, move |event| seen.lock().unwrap().push(format!("{event:?}")));
        let server = server.unwrap();
        let (ticket, admission) = (server.ticket("127.0.0.1").unwrap(), server.admission());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = Some(thread::spawn(move || server.run(&stopped, &AtomicBool::new(false))));
        Served { ticket, admission, log, stop, thread }
    }

    pub fn target(&self) -> Target {
        Target::new(self.ticket.clone()).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the server's thread panicked");
    }
}
