//! Many connections, many sessions, and hostile clients.

use std::io::Write;
use std::net::TcpStream;
use std::process::Command;
use std::thread;
use std::time::{Duration, Instant};

use lfn_base::units::Bytes;
use lfn_results::measure::{TestLoad, TestRequest};
use lfn_session::dial::{self, Target};
use lfn_session::wire::Request;
use lfn_session::wire::copy::entry::{Entry, EntryKind, Modified, Name};
use lfn_session::wire::copy::{CopyJob, CopyRequest, RemoteDestination, SenderMessage};
use lfn_session::{Control, DataStream, Protection};

use super::served::Served;
use crate::support::{self, eventually};

#[test]
fn unauthenticated_crowd_has_bounded_cost() {
    let many = connections_possible().min(10_000);
    let server = Served::start(&["--quiet", "--metrics", "127.0.0.1:0"]);
    let open: Vec<TcpStream> = (0..many).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
    assert!(open.len() * 10 > many * 9, "{} of {many}", open.len());
    // Some of them send a few bytes from time to time.
    for mut socket in open.iter().rev().take(500) {
        let _ = socket.write_all(&[22, 3, 1, 2, 0, 1]);
    }
    assert!(server.test(&["--count", "10"]).status.success());
    let samples = server.scrape();
    assert!(
        samples["lfn_connections_open"] <= 4096.0 && samples["lfn_connections_unauthenticated"] <= 1024.0,
        "{samples:?}"
    );
    assert!(server.status("Threads:") <= 4096, "{}", server.status("Threads:"));
    assert!(server.status("VmHWM:") < 256 * 1024, "{} KiB", server.status("VmHWM:"));
    assert!(server.test(&["--count", "10", "--reverse"]).status.success());
}

/// Returns the number of connections that the descriptor limit of this process allows, after raising it.
fn connections_possible() -> usize {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    let _ = setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, ..limit });
    getrlimit(Resource::Nofile).current.unwrap_or(1 << 20).saturating_sub(200) as usize
}

#[test]
fn server_with_few_descriptors_survives() {
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -n 88; exec \"$0\" \"$@\""]).arg(support::lfn_path());
    let server = Served::run(command, &["--quiet"]);
    let crowd: Vec<TcpStream> = (0..300).filter_map(|_| TcpStream::connect(server.address).ok()).collect();
    thread::sleep(Duration::from_millis(300));
    let before = processor_time(server.child.id());
    thread::sleep(Duration::from_secs(1));
    let spent = processor_time(server.child.id()) - before;
    assert!(spent < Duration::from_millis(500), "{spent:?} in a second of nothing to do");
    drop(crowd);
    assert!(server.test(&["--count", "10"]).status.success());
}

/// Data streams of sessions without a control connection, from a client with the ticket.
#[test]
fn waiting_streams_count_and_are_evicted() {
    let server = Served::start(&["--quiet", "--max-connections", "64", "--metrics", "127.0.0.1:0"]);
    let target = server.target();
    let parked: Vec<DataStream> = (0..200u16)
        .filter_map(|_| {
            let session = dial::new_session_id().unwrap();
            dial::open_data(&target, session, 0, Protection::Clear, None, |_| Ok(())).ok()
        })
        .collect();
    assert!(parked.len() > 150, "{} of 200", parked.len());
    let held = || server.scrape()["lfn_connections_open"];
    // One client can have a quarter of all connections.
    assert!(eventually(|| held() <= 20.0), "{} are held", held());
    assert!(server.test(&["--count", "10", "--streams", "4"]).status.success());
    assert!(server.scrape()["process_open_fds"] < 64.0);
}

/// Returns the user and system CPU time of a process.
fn processor_time(pid: u32) -> Duration {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    // utime and stime, proc_pid_stat(5), in ticks of 10 ms.
    Duration::from_millis(10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap()))
}

#[test]
fn hostile_clients_cost_only_their_session() {
    let server = Served::start(&["--metrics", "127.0.0.1:0"]);
    let target = server.target();
    // Never reads: the server fills the buffers of a reverse test and of its control connection, and continues.
    let request = TestRequest {
        direction: lfn_results::measure::TestDirection::Reverse,
        interval: Duration::from_millis(10),
        ..TestRequest::default()
    };
    let deaf = hold(&target, Request::Test(Box::new(request)));
    // Announces a file of 4 EiB and a message of 4 GiB, and sends neither.
    let request = CopyRequest {
        job: CopyJob::Put { to: RemoteDestination::Null },
        streams: 1,
        block: Bytes(1 << 20),
        congestion: None,
        pace: None,
        stream_secret: None,
        stripes: 0,
        rank: None,
        copy: None,
        transfer_options: Default::default(),
    };
    let mut liar = hold(&target, Request::Copy(request));
    let kind = EntryKind::File { length: Bytes(1 << 62) };
    let entry = Entry::new(Name::new("x").unwrap(), kind, 0o644, Modified::default()).unwrap();
    liar.0.send(&SenderMessage::List { first: 0, entries: vec![entry] }).unwrap();
    let mut raw = TcpStream::connect(server.address).unwrap();
    raw.write_all(&[22, 3, 3, 0xff, 0xff, 1, 0xff, 0xff, 0xff]).unwrap();
    for _ in 0..3 {
        assert!(server.test(&["--count", "10"]).status.success());
    }
    assert!(server.status("VmHWM:") < 128 * 1024, "{} KiB", server.status("VmHWM:"));
    drop((deaf, liar, raw));
    assert!(eventually(|| server.scrape()["lfn_sessions_running"] == 0.0), "the sessions end");
}

/// Opens a session with one data stream. Both ends are silent afterwards.
fn hold(target: &Target, request: Request) -> (Control, DataStream) {
    let session = dial::new_session_id().unwrap();
    let control = dial::open_control(target, session, request).unwrap();
    (control, dial::open_data(target, session, 0, Protection::Clear, None, |_| Ok(())).unwrap())
}

#[test]
fn flooding_client_is_limited_by_its_window() {
    let server = Served::start(&["--max-rate", "8mbit"]);
    let request = TestRequest { load: TestLoad::TimeSeconds(Duration::from_secs(3)), ..TestRequest::default() };
    let (control, mut data) = hold(&server.target(), Request::Test(Box::new(request)));
    data.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let (began, record, mut sent) = (Instant::now(), vec![0; 1 << 18], 0);
    while began.elapsed() < Duration::from_secs(2) {
        sent += data.write(&record).unwrap_or(0);
    }
    // 1 MB per second, and the socket buffers of both ends. Without a limit it would be gigabytes.
    assert!((1 << 20..100 << 20).contains(&sent), "{sent} bytes");
    drop((control, data));
}

/// `TEST_LFN_SESSIONS` sets the number. `bench/serve-idle` uses a thousand with a release build.
#[test]
fn idle_sessions_use_little_memory() {
    let many: usize = std::env::var("TEST_LFN_SESSIONS").map_or(200, |many| many.parse().unwrap());
    connections_possible();
    let limits = ["--max-sessions", "100000", "--client-sessions", "100000", "--max-clients", "100000"];
    let more = ["--max-streams", "100000", "--client-streams", "100000", "--quiet", "--client-queue", "100000"];
    for (kind, flags) in [("running", &limits[..]), ("queued", &["--max-sessions", "1", "--max-queue", "100000"])] {
        let server = Served::start(&[flags, &more, &["--metrics", "127.0.0.1:0"]].concat());
        let target = server.target();
        let empty = server.status("RssAnon:");
        let request = || {
            let load = TestLoad::TimeSeconds(Duration::from_secs(3600));
            Request::Test(Box::new(TestRequest { load, interval: Duration::from_secs(3600), ..TestRequest::default() }))
        };
        let sessions: Vec<_> = (0..many).map(|_| hold(&target, request())).collect();
        let has_all_sessions = || {
            let samples = server.scrape();
            samples["lfn_sessions_running"] + samples["lfn_sessions_queued"] == many as f64
        };
        assert!(eventually(has_all_sessions), "{many} sessions arrive");
        thread::sleep(Duration::from_millis(500));
        let (used, resident, threads) = (server.status("RssAnon:"), server.status("VmRSS:"), server.status("Threads:"));
        println!(
            "{many} sessions {kind}: {used} KiB of memory ({empty} before), {resident} KiB resident, {threads} threads"
        );
        // Anonymous memory only: pages of the program are counted as resident too, and become so as its code runs.
        // The first sessions need more, each with its own heap. The target of 64 MiB for 1,000 sessions is that of a release
        // build: `bench/serve-idle` measures it.
        let most = empty + 7 * 1024 + 52 * many as u64;
        assert!(used < most, "{used} KiB for {many} sessions {kind}, {most} at most");
        drop(sessions);
    }
}
