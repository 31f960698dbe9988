//! A malicious client with a valid ticket: the server refuses everything false and continues to serve.

mod blocks;
mod quotas;
mod requests;

use std::io::Write;
use std::time::{Duration, Instant};
use std::{fs, thread};

use lfn_api::service;
use lfn_base::units::Bytes;
use lfn_session::dial::{self, Target};
use lfn_session::limits::{ResourceLimits, ServerLimits};
use lfn_session::server::ServerConfig;
use lfn_session::wire::RefusalCode;
use lfn_session::wire::copy::digest::Digest;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::preserve::Preserve;
use lfn_session::wire::copy::{
    BlockHeader, CopyJob, CopyTally, EntryFailure, ReceiverMessage, RemoteDestination, SenderMessage,
};
use lfn_session::{Control, DataStream, Protection, SessionError, SessionId};
use serde_json::{Value, json};

use crate::support::{self, TestServer, list};

const BLOCK: u64 = 1024;
const TIMEOUT: Duration = Duration::from_secs(60);

/// A server for copies, with its root directory.
struct CopyServer {
    target: Target,
    root: tempfile::TempDir,
    served: TestServer,
}

impl CopyServer {
    fn new() -> Self {
        CopyServer::with_quota(tempfile::tempdir().unwrap(), None)
    }

    /// Starts a server with this byte quota for each client.
    fn with_quota(root: tempfile::TempDir, bytes: Option<u64>) -> Self {
        let client = ResourceLimits { bytes: bytes.map(Bytes), ..ServerLimits::default().client };
        let limits = ServerLimits { client, ..ServerLimits::default() };
        let config = ServerConfig { root: Some(root.path().to_owned()), limits, ..support::config() };
        let served = TestServer::start(config, service::new());
        CopyServer { target: served.target(), root, served }
    }

    /// Restarts the server with the same files and another quota.
    fn restarted(self, bytes: Option<u64>) -> Self {
        let CopyServer { root, served, .. } = self;
        drop(served);
        CopyServer::with_quota(root, bytes)
    }

    fn names(&self) -> Vec<String> {
        let names = fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        let mut names: Vec<_> = names.map(|name| name.into_string().unwrap()).collect();
        names.sort();
        names
    }

    fn open_copy(&self, job: CopyJob, streams: u16, block: u64) -> (Control, Vec<DataStream>) {
        let (session, control) = self.open_control(job, streams, block);
        let open = |n| self.stream(session, n, Protection::Tls);
        (control, (0..streams.min(4)).map(open).collect())
    }

    fn stream(&self, session: SessionId, number: u16, protection: Protection) -> DataStream {
        dial::open_data(&self.target, session, number, protection, None, |_| Ok(())).unwrap()
    }

    fn open_control(&self, job: CopyJob, streams: u16, block: u64) -> (SessionId, Control) {
        let session = dial::new_session_id().unwrap();
        let request = support::copy_request(job, streams, block);
        (session, dial::open_control(&self.target, session, request).unwrap())
    }

    /// Requests a copy of one file, and lists it with this length.
    fn put(&self, bytes: u64) -> (Control, Vec<DataStream>) {
        let (mut control, streams) = self.open_copy(to("a"), 2, BLOCK);
        list(&mut control, &[file("x", bytes)]);
        (control, streams)
    }

    /// Asserts that nothing was published, and that the server still accepts an ordinary copy.
    #[track_caller]
    fn assert_unharmed(&self) {
        let deadline = Instant::now() + TIMEOUT;
        // Valid blocks before the violation are kept for the next copy, without a final name.
        let names = || fs::read_dir(self.root.path()).unwrap().map(|entry| entry.unwrap().file_name());
        while names().any(|name| name != ".a.lfn-partial" && name != ".a.lfn-journal") {
            assert!(Instant::now() < deadline, "{:?}", names().collect::<Vec<_>>());
            thread::sleep(Duration::from_millis(5));
        }
        let data = vec![7; 3000];
        let (mut control, mut streams) = self.put(3000);
        for index in 0..3 {
            let (header, payload) = block(&data, index);
            streams[0].write_all(&header.encode()).unwrap();
            streams[0].write_all(&payload).unwrap();
        }
        let digest = Digest(*blake3::hash(&data).as_bytes());
        control.send(&SenderMessage::Sent { file: 0, digest }).unwrap();
        let (tally, failures) = finish(&mut control).unwrap();
        assert_eq!((tally.files, failures.as_slice()), (1, &[][..]));
        assert_eq!(fs::read(self.root.path().join("a")).unwrap(), data);
        fs::remove_file(self.root.path().join("a")).unwrap();
    }
}

/// Returns the header and the payload of a block of file 0.
fn block(data: &[u8], index: u64) -> (BlockHeader, Vec<u8>) {
    support::block(data, index, BLOCK)
}

fn to(path: &str) -> CopyJob {
    let allowed = OverwritePolicy { force: true, ..OverwritePolicy::default() };
    CopyJob::Put {
        to: RemoteDestination::File { path: path.into(), allowed, single: true, preserve: Preserve::default() },
    }
}

fn into(sparse: bool) -> CopyJob {
    let preserve = Preserve { sparse, ..Preserve::default() };
    CopyJob::Put {
        to: RemoteDestination::File { path: "".into(), allowed: OverwritePolicy::default(), single: false, preserve },
    }
}

/// Returns an entry, which need not be valid.
fn file(name: &str, length: u64) -> Value {
    json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 0o644, "modified": [0, 0] })
}

/// Sends a block of a file; a hole is sent without its payload.
fn send(stream: &mut DataStream, number: u32, data: &[u8], index: u64, hole: bool) {
    let (header, payload) = block(data, index);
    stream.write_all(&BlockHeader { file: number, hole: hole.then_some(0), ..header }.encode()).unwrap();
    if !hole {
        stream.write_all(&payload).unwrap();
    }
}

/// Sends all blocks, and returns the tally and the failures.
fn send_all(control: &mut Control, stream: &mut DataStream, data: &[u8], hole: bool) -> (CopyTally, Vec<EntryFailure>) {
    (0..(data.len() as u64).div_ceil(BLOCK)).for_each(|index| send(stream, 0, data, index, hole));
    control.send(&SenderMessage::Sent { file: 0, digest: Digest(*blake3::hash(data).as_bytes()) }).unwrap();
    finish(control).unwrap()
}

/// Returns the tally of `Done` with the failures before it, or the error.
fn finish(control: &mut Control) -> Result<(CopyTally, Vec<EntryFailure>), SessionError> {
    let mut failures = Vec::new();
    loop {
        match control.recv(TIMEOUT, "in a test")? {
            ReceiverMessage::Done { tally, .. } => return Ok((tally, failures)),
            ReceiverMessage::Failed(failure) => failures.push(failure),
            _ => {}
        }
    }
}

#[track_caller]
fn refusal(control: &mut Control) -> RefusalCode {
    match finish(control) {
        Err(SessionError::Refused(refusal)) => refusal.code,
        other => panic!("{other:?}"),
    }
}
