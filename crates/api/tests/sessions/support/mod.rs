//! A server on loopback that ends with its test, and messages of copies.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_copy::{CopyObserver, CopyOptions};
use lfn_session::dial::Target;
use lfn_session::identity::{ServerIdentity, new_token};
use lfn_session::limits::ServerLimits;
use lfn_session::limits::access::Access;
use lfn_session::limits::admission::Admission;
use lfn_session::limits::connection_table::ConnectionLimits;
use lfn_session::server::{Server, ServerConfig, Service};
use lfn_session::wire::Request;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::digest::hash_block;
use lfn_session::wire::copy::options::Verify;
use lfn_session::wire::copy::preserve::{Preserve, SkippedEntries};
use lfn_session::wire::copy::{BlockHeader, CopyJob, CopyRequest, Selection, SenderMessage};
use lfn_session::{Control, Rights, Ticket};
use parking_lot::Mutex;
use serde_json::{Value, json};

/// A running server, with its ticket, its sessions and its log.
pub struct TestServer {
    pub ticket: Ticket,
    pub admission: Admission,
    pub log: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

/// Returns the configuration of an ordinary server with a token, which does not wait for sessions when it stops.
pub fn config() -> ServerConfig {
    ServerConfig {
        listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 0)),
        identity: ServerIdentity::ephemeral().unwrap(),
        token: Some(new_token().unwrap()),
        token_expires: None,
        token_file: None,
        rights: Rights::ALL,
        audit: None,
        root: None,
        unconfined: false,
        allow_third_party: false,
        limits: ServerLimits::default(),
        connection_limits: ConnectionLimits::default(),
        congestion: None,
        access: Access::default(),
        drain: Duration::ZERO,
    }
}

/// Returns the request of a copy with default options.
pub fn copy_request(job: CopyJob, streams: u16, block: u64) -> Request {
    Request::Copy(CopyRequest {
        job,
        streams,
        block: Bytes(block),
        congestion: None,
        pace: None,
        stream_secret: None,
        stripes: 0,
        copy: None,
        rank: None,
        transfer_options: Default::default(),
    })
}

/// Lists entries, which need not be valid, and marks the list as complete. The server may have closed the connection.
pub fn list(control: &mut Control, entries: &[Value]) {
    let _ = control.send(&json!({ "sender": "list", "first": 0, "entries": entries }));
    let _ = control.send(&SenderMessage::Listed {
        entries: entries.len() as u32,
        bytes: Bytes(0),
        skipped: SkippedEntries::default(),
    });
}

/// Returns the header and the payload of a block of file 0, which has this data in blocks of `block_size` bytes.
pub fn block(data: &[u8], index: u64, block_size: u64) -> (BlockHeader, Vec<u8>) {
    let layout = Layout::new(Bytes(data.len() as u64), Bytes(block_size)).unwrap();
    let block = layout.block(index).unwrap();
    let payload = data[block.offset as usize..][..block.length as usize].to_vec();
    let hash = hash_block(&layout, block, &payload);
    let (offset, length) = (block.offset, block.length);
    (BlockHeader { file: 0, offset, length, hash, hole: None, verify: Verify::Blake3 }, payload)
}

/// Waits, for at most 60 seconds, until the condition is true.
#[track_caller]
pub fn wait_until(condition: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Returns the options of a copy with one stream that preserves symbolic links.
pub fn one_stream_with_links() -> CopyOptions {
    let preserve = Preserve { links: true, ..Preserve::default() };
    CopyOptions { streams: 1, selection: Selection { preserve, ..Selection::default() }, ..CopyOptions::default() }
}

/// Returns an observer that ignores all events and never interrupts.
pub fn observer() -> CopyObserver<'static> {
    interruptible_observer(&NEVER)
}

/// Returns an observer that ignores all events and stops when `interrupted` is set.
pub fn interruptible_observer(interrupted: &AtomicBool) -> CopyObserver<'_> {
    CopyObserver {
        observer: Box::leak(Box::new(|_: &_, _: &_| {})),
        change: Box::leak(Box::new(|_: &_| {})),
        connection: Box::leak(Box::new(|_: &_| {})),
        interrupted,
    }
}

static NEVER: AtomicBool = AtomicBool::new(false);

impl TestServer {
    pub fn start(config: ServerConfig, service: impl Service) -> Self {
        let log = Arc::new(Mutex::new(Vec::new()));
        let entries = log.clone();
        let server = Server::bind(config, service, move |event| entries.lock().push(format!("{event:?}")));
        let server = server.unwrap();
        let (ticket, admission) = (server.ticket("127.0.0.1").unwrap(), server.admission());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = stop.clone();
        let thread = Some(thread::spawn(move || server.run(&stopped, &AtomicBool::new(false))));
        TestServer { ticket, admission, log, stop, thread }
    }

    pub fn target(&self) -> Target {
        Target::new(self.ticket.clone()).unwrap()
    }
}

impl Drop for TestServer {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        let ended = self.thread.take().map(JoinHandle::join);
        assert!(thread::panicking() || ended.is_some_and(|ended| ended.is_ok()), "the server's thread panicked");
    }
}
