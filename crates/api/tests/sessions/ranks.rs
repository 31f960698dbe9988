//! Several ranks that send one copy: lost, late and contradictory ranks, and ranks that break the protocol.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, ScopedJoinHandle};
use std::time::Duration;

use lfn_api::service;
use lfn_base::random_data::fill_random;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::{CopyOptions, CopyOutcome, LocalSource, RankBoard, RankOptions, TransferError, upload};
use lfn_session::server::ServerConfig;
use lfn_session::wire::copy::blocks::MIN_BLOCK;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::ranks::{BlockAssignment, RankRequest, RankState};
use lfn_session::wire::copy::{CopyJob, CopyRequest, ReceiverMessage, RemoteDestination};
use lfn_session::wire::{RefusalCode, Request};
use lfn_session::{Control, SessionError, dial};
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::support::{self, TestServer, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server, and a directory with the data of the ranks.
struct Setup {
    served: TestServer,
    root: TempDir,
    near: TempDir,
}

/// The command of one rank.
#[derive(Clone)]
struct Rank {
    request: RankRequest,
    from: LocalSource,
    to: &'static str,
    block: Bytes,
    /// Slows the rank down, so that the others see it at work.
    pace: Option<BitRate>,
}

type Ended = Result<CopyOutcome, TransferError>;

impl Setup {
    fn new() -> Self {
        let [root, near] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let config = ServerConfig { root: Some(root.path().to_owned()), ..support::config() };
        Setup { served: TestServer::start(config, service::new()), root, near }
    }

    /// Writes a source file with random bytes.
    fn file(&self, name: &str, bytes: usize) -> (PathBuf, Vec<u8>) {
        let mut data = vec![0; bytes];
        fill_random(bytes as u64, 0, &mut data);
        let path = self.near.path().join(name);
        fs::write(&path, &data).unwrap();
        (path, data)
    }

    fn rank(&self, rank: u16, ranks: u16, from: &Path) -> Rank {
        let assignment = BlockAssignment::OnDemand;
        let request = RankRequest { rank, ranks, job: None, assignment, offset: None, patience: PATIENCE };
        Rank { request, from: LocalSource::File(from.to_owned()), to: "there", block: MIN_BLOCK, pace: None }
    }

    fn run(&self, rank: &Rank, interrupted: &AtomicBool) -> Ended {
        self.run_with(rank, &RankBoard::default(), interrupted)
    }

    fn run_with(&self, rank: &Rank, board: &RankBoard, interrupted: &AtomicBool) -> Ended {
        let options = CopyOptions {
            streams: 1,
            max_streams: 1,
            block: rank.block,
            pace: rank.pace,
            rank: Some(RankOptions { request: rank.request.clone(), board: board.clone() }),
            ..CopyOptions::default()
        };
        let to = match rank.to {
            "null:" => RemoteDestination::Null,
            path => RemoteDestination::File {
                path: path.into(),
                allowed: OverwritePolicy::default(),
                single: true,
                preserve: Default::default(),
            },
        };
        let watch = support::interruptible_observer(interrupted);
        upload(&self.served.target(), std::slice::from_ref(&rank.from), to, &options, watch)
    }

    /// Runs all ranks at the same time.
    fn run_all(&self, ranks: &[Rank]) -> Vec<Ended> {
        thread::scope(|scope| {
            let run = |rank| scope.spawn(move || self.run(rank, &AtomicBool::new(false)));
            let running: Vec<_> = ranks.iter().map(run).collect();
            running.into_iter().map(|thread| thread.join().unwrap()).collect()
        })
    }

    fn received(&self, name: &str) -> Vec<u8> {
        fs::read(self.root.path().join(name)).unwrap()
    }

    /// Waits until the partial file of the destination exists.
    fn wait_for_partial(&self) {
        wait_until(|| self.root.path().join(".there.lfn-partial").exists());
    }
}

fn slow(rank: Rank) -> Rank {
    Rank { pace: Some(BitRate(2_000_000)), ..rank }
}

#[track_caller]
fn refusal(ended: Ended) -> String {
    match ended.unwrap_err() {
        TransferError::Session(SessionError::Refused(refusal)) => refusal.message,
        other => panic!("{other}"),
    }
}

#[test]
fn ranks_write_one_file_together() {
    for assignment in [BlockAssignment::OnDemand, BlockAssignment::Staggered] {
        let setup = Setup::new();
        let (path, data) = setup.file("field", 300_001);
        let ranks: Vec<_> = (0..4)
            .map(|rank| {
                let mut rank = setup.rank(rank, 4, &path);
                rank.request.assignment = assignment;
                rank
            })
            .collect();
        let digest = *blake3::hash(&data).as_bytes();
        let mut moved = 0;
        for ended in setup.run_all(&ranks) {
            let outcome = ended.unwrap();
            assert_eq!(outcome.digest.unwrap().0, digest);
            assert_eq!((outcome.tally.files, outcome.tally.bytes), (1, Bytes(300_001)));
            moved += outcome.moved().0;
            if assignment == BlockAssignment::Staggered {
                assert!((73_000..77_000).contains(&outcome.moved().0), "{}", outcome.moved());
            }
        }
        assert_eq!(moved, 300_001, "each block was sent once");
        assert_eq!(setup.received("there"), data);
    }
}

#[test]
fn ranks_with_the_same_tree_share_it() {
    let setup = Setup::new();
    let tree = setup.near.path().join("tree");
    fs::create_dir_all(tree.join("a/b")).unwrap();
    for number in 0..200 {
        fs::write(tree.join(format!("a/{number}")), vec![number as u8; number * 37]).unwrap();
    }
    fs::write(tree.join("a/b/large"), vec![7; 100_000]).unwrap();
    let mut ranks = [0, 1, 2].map(|rank| setup.rank(rank, 3, &tree));
    ranks[1].request.patience = Duration::from_secs(1);
    for ended in setup.run_all(&ranks) {
        let tally = ended.unwrap().tally;
        assert_eq!((tally.files, tally.directories, tally.failed), (201, 3, 0));
    }
    assert_eq!(setup.received("there/tree/a/199"), vec![199; 199 * 37]);
    assert_eq!(setup.received("there/tree/a/b/large"), vec![7; 100_000]);
    // The second run finds everything up to date.
    for ended in setup.run_all(&ranks) {
        // Also the directories.
        assert_eq!(ended.unwrap().tally.skipped, 204);
    }
}

#[test]
fn each_rank_may_have_a_file_of_its_own() {
    let setup = Setup::new();
    let files = ["a", "b", "c"].map(|name| setup.file(name, 5000 + usize::from(name.as_bytes()[0])));
    let mut ranks = [0, 1, 2].map(|rank| setup.rank(rank, 3, &files[usize::from(rank)].0));
    fs::create_dir(setup.root.path().join("there")).unwrap();
    ranks.iter_mut().for_each(|rank| rank.to = "there/");
    setup.run_all(&ranks).into_iter().for_each(|ended| assert_eq!(ended.unwrap().tally.files, 3));
    for (name, (_, data)) in ["a", "b", "c"].iter().zip(files) {
        assert_eq!(setup.received(&format!("there/{name}")), data);
    }
}

#[test]
fn pieces_make_one_file() {
    // Of whole blocks, of any bytes, several in one block, and a file of one block.
    pieces_make_a_file(100_000, &[(0, 40_960), (40_960, 51_200), (51_200, 100_000)]);
    pieces_make_a_file(100_000, &[(0, 40_001), (40_001, 51_203), (51_203, 100_000)]);
    pieces_make_a_file(5000, &[(0, 1100), (1100, 1101), (1101, 1900), (1900, 1900), (1900, 5000)]);
    pieces_make_a_file(500, &[(0, 100), (100, 500)]);
}

fn pieces_make_a_file(bytes: usize, pieces: &[(usize, usize)]) {
    let setup = Setup::new();
    let (_, data) = setup.file("all", bytes);
    // Below the maximum number of ranks.
    let count = pieces.len() as u16;
    let mut ranks = Vec::new();
    for (rank, &(start, end)) in (0..).zip(pieces) {
        let path = setup.near.path().join(format!("piece{rank}"));
        fs::write(&path, &data[start..end]).unwrap();
        let mut rank = setup.rank(rank, count, &path);
        rank.request.offset = Some(Bytes(start as u64));
        ranks.push(rank);
    }
    let digest = *blake3::hash(&data).as_bytes();
    setup.run_all(&ranks).into_iter().for_each(|ended| assert_eq!(ended.unwrap().digest.unwrap().0, digest));
    assert_eq!(setup.received("there"), data);
}

#[test]
fn generated_data_of_all_ranks_is_equal() {
    let setup = Setup::new();
    let ranks = [0, 1].map(|rank| Rank {
        from: LocalSource::Random(Bytes(50_000)),
        to: "null:",
        ..setup.rank(rank, 2, Path::new(""))
    });
    let digests: Vec<_> = setup.run_all(&ranks).into_iter().map(|ended| ended.unwrap().digest.unwrap()).collect();
    assert_eq!(digests[0], digests[1]);
}

#[test]
fn other_ranks_send_the_blocks_of_a_lost_one() {
    for assignment in [BlockAssignment::OnDemand, BlockAssignment::Staggered] {
        let setup = Setup::new();
        let (path, data) = setup.file("field", 400_000);
        let mut ranks = [0, 1].map(|rank| slow(setup.rank(rank, 2, &path)));
        for rank in &mut ranks {
            rank.request.assignment = assignment;
            rank.request.patience = Duration::from_millis(300);
        }
        let (board, lost) = (RankBoard::default(), AtomicBool::new(false));
        thread::scope(|scope| {
            let stays = scope.spawn(|| setup.run_with(&ranks[0], &board, &AtomicBool::new(false)));
            let leaves = scope.spawn(|| setup.run(&ranks[1], &lost));
            setup.wait_for_partial();
            lost.store(true, Ordering::Relaxed);
            assert!(matches!(leaves.join().unwrap(), Err(TransferError::Interrupted)));
            assert_eq!(stays.join().unwrap().unwrap().digest.unwrap().0, *blake3::hash(&data).as_bytes());
        });
        assert_eq!(setup.received("there"), data);
        let figures = board.figures().unwrap();
        assert_eq!(figures.ranks.len(), 2);
        assert_eq!(figures.ranks[1].state, RankState::Lost);
    }
}

#[test]
fn missing_rank_is_named_and_the_copy_resumes() {
    let setup = Setup::new();
    let (_, data) = setup.file("all", 200_704);
    let mut ranks = Vec::new();
    for rank in 0..2 {
        let path = setup.near.path().join(format!("piece{rank}"));
        fs::write(&path, &data[usize::from(rank) * 100_352..][..100_352]).unwrap();
        let mut rank = setup.rank(rank, 2, &path);
        rank.request.offset = Some(Bytes(u64::from(rank.request.rank) * 100_352));
        rank.request.patience = Duration::from_millis(300);
        ranks.push(rank);
    }
    let lost = AtomicBool::new(false);
    let error = thread::scope(|scope| {
        let stays = scope.spawn(|| setup.run(&ranks[0], &AtomicBool::new(false)));
        let leaves: ScopedJoinHandle<'_, Ended> = scope.spawn(|| setup.run(&slow(ranks[1].clone()), &lost));
        setup.wait_for_partial();
        lost.store(true, Ordering::Relaxed);
        leaves.join().unwrap().unwrap_err();
        stays.join().unwrap().unwrap_err()
    });
    assert!(error.is_resumable());
    assert!(error.to_string().starts_with("rank 1 of 2 was lost and did not return for "), "{error}");
    // Alone, the other rank cannot complete the file either.
    let alone = setup.run(&ranks[1], &AtomicBool::new(false)).unwrap_err();
    assert!(alone.to_string().starts_with("rank 0 of 2 did not come for "), "{alone}");
    assert!(!setup.root.path().join("there").exists());
    ranks.iter_mut().for_each(|rank| rank.request.patience = PATIENCE);
    let moved: u64 = setup.run_all(&ranks).into_iter().map(|ended| ended.unwrap().moved().0).sum();
    assert!(moved < 200_704, "blocks of the first attempt were kept: {moved}");
    assert_eq!(setup.received("there"), data);
}

#[test]
fn restarted_rank_continues() {
    let setup = Setup::new();
    let (path, data) = setup.file("field", 300_000);
    let ranks = [0, 1].map(|rank| setup.rank(rank, 2, &path));
    let lost = AtomicBool::new(false);
    thread::scope(|scope| {
        let stays = scope.spawn(|| setup.run(&slow(ranks[0].clone()), &AtomicBool::new(false)));
        let leaves = scope.spawn(|| setup.run(&slow(ranks[1].clone()), &lost));
        setup.wait_for_partial();
        lost.store(true, Ordering::Relaxed);
        leaves.join().unwrap().unwrap_err();
        let again = setup.run(&ranks[1], &AtomicBool::new(false)).unwrap();
        assert_eq!(again.digest, stays.join().unwrap().unwrap().digest);
    });
    assert_eq!(setup.received("there"), data);
}

#[test]
fn contradictory_ranks_are_refused() {
    let setup = Setup::new();
    let (path, _) = setup.file("field", 40_000);
    let (other, _) = setup.file("other", 40_000);
    fs::create_dir(setup.near.path().join("copy")).unwrap();
    let (shorter, _) = setup.file("copy/field", 30_000);
    let first = setup.rank(0, 2, &path);
    let with = |change: fn(&mut Rank), from: &Path| {
        let mut rank = setup.rank(1, 2, from);
        change(&mut rank);
        rank
    };
    let refused = [
        (with(|rank| rank.request.rank = 0, &path), "rank 0 is connected already, from 127.0.0.1"),
        (with(|rank| rank.request.ranks = 3, &path), "rank 1 is one of 3, but the ranks before it are 2"),
        (
            with(|rank| rank.request.job = Some("other".into()), &path),
            "rank 1 belongs to the job other, but the job without a name is writing to this destination",
        ),
        (
            with(|rank| rank.block = Bytes(2048), &path),
            "another --block-size than the ranks before it: 2 KiB instead of 1 KiB",
        ),
        (
            with(|rank| rank.request.offset = Some(Bytes(0)), &path),
            "rank 1 has an --offset, but rank 0 has no --offset",
        ),
        (with(|rank| rank.request.rank = 2, &path), "rank 2 of 2: ranks count from 0, so the highest is 1"),
        (with(|rank| rank.request.ranks = 0, &path), "0 ranks: at least 1"),
        (with(|rank| rank.request.job = Some("x".repeat(1000)), &path), "the name of the job has 1000 bytes"),
    ];
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let waiting = scope.spawn(|| setup.run(&first, &stop));
        wait_until(|| setup.served.log.lock().iter().any(|event| event.contains("Opened")));
        // The first rank has its place.
        thread::sleep(Duration::from_millis(300));
        for (rank, text) in refused {
            let message = refusal(setup.run(&rank, &AtomicBool::new(false)));
            assert!(message.contains(text), "{message}");
        }
        stop.store(true, Ordering::Relaxed);
        waiting.join().unwrap().unwrap_err();
    });
    // These end the whole group, because either of the two may be right.
    for (from, text) in [(&other, ", and the destination is one file"), (&shorter, " sends field with ")] {
        let mut both = [first.clone(), setup.rank(1, 2, from)];
        both.iter_mut().for_each(|rank| rank.to = "elsewhere");
        let messages = setup.run_all(&both).map(refusal);
        let is_named = |message: &String| message.contains("rank 0") && message.contains("rank 1");
        assert!(messages.iter().all(is_named), "{messages:?}");
        assert!(messages[0] == messages[1] && messages[0].contains(text), "{messages:?}");
    }
    assert_eq!(fs::read_dir(setup.root.path()).unwrap().count(), 0, "nothing was written");
}

trait MapAll<T> {
    fn map<U>(self, change: impl Fn(T) -> U) -> Vec<U>;
}

impl<T> MapAll<T> for Vec<T> {
    fn map<U>(self, change: impl Fn(T) -> U) -> Vec<U> {
        self.into_iter().map(change).collect()
    }
}

#[test]
fn gaps_and_overlaps_of_pieces_are_refused() {
    let setup = Setup::new();
    let (path, _) = setup.file("piece", 4096);
    let at = |rank, offset| {
        let mut rank = setup.rank(rank, 2, &path);
        rank.request.offset = Some(Bytes(offset));
        rank
    };
    for (second, text) in [
        (5120, "no rank has the bytes from 4096 to 5120: the next piece is that of rank 1"),
        (1024, "the pieces of rank 1 (1024 to 5120) and rank 0 (0 to 4096) overlap"),
    ] {
        let messages = setup.run_all(&[at(0, 0), at(1, second)]).map(refusal);
        assert_eq!(messages, [text, text]);
    }
    let huge = setup.run_all(&[at(0, 0), at(1, 1 << 62)]).map(refusal);
    assert!(huge[0].starts_with("no rank has the bytes from 4096 to 4611686018427387904"), "{huge:?}");
}

#[test]
fn same_command_after_the_end_copies_again() {
    let setup = Setup::new();
    let (path, _) = setup.file("field", 50_000);
    let mut rank = setup.rank(0, 2, &path);
    rank.request.patience = Duration::from_millis(200);
    setup.run(&rank, &AtomicBool::new(false)).unwrap();
    fs::remove_file(setup.root.path().join("there")).unwrap();
    let (_, data) = setup.file("field", 60_000);
    let again = setup.run(&rank, &AtomicBool::new(false)).unwrap();
    assert_eq!(again.moved(), Bytes(60_000));
    assert_eq!(setup.received("there"), data);
}

/// Opens the session of a rank that follows no protocol.
fn hostile_rank(setup: &Setup, rank: u16, ranks: u16) -> Control {
    let target = setup.served.target();
    let job = CopyJob::Put {
        to: RemoteDestination::File {
            path: "there".into(),
            allowed: OverwritePolicy::default(),
            single: true,
            preserve: Default::default(),
        },
    };
    let Request::Copy(request) = support::copy_request(job, 1, MIN_BLOCK.0) else { panic!("a copy") };
    let rank = Some(Box::new(setup.rank(rank, ranks, Path::new("")).request));
    let request = Request::Copy(CopyRequest { rank, ..request });
    dial::open_control(&target, dial::new_session_id().unwrap(), request).unwrap()
}

/// Returns the refusal that ends the session.
fn last_refusal(control: &mut Control) -> (RefusalCode, String) {
    loop {
        match control.recv::<ReceiverMessage>(PATIENCE, "in a test") {
            Ok(_) => {}
            Err(SessionError::Refused(refusal)) => return (refusal.code, refusal.message),
            Err(error) => panic!("{error}"),
        }
    }
}

#[test]
fn rank_that_breaks_the_protocol_is_lost_alone() {
    let setup = Setup::new();
    let (path, data) = setup.file("field", 20_000);
    let entry = |name: &str, length: u64| json!({ "name": name, "kind": { "file": { "length": length } }, "mode": 420, "modified": [0, 0] });
    let lies: [Vec<Value>; 5] = [
        vec![json!({ "sender": "list", "first": 7, "entries": [entry("field", 20_000)] })],
        vec![json!({ "sender": "listed", "entries": 3, "bytes": 0 })],
        vec![json!({ "sender": "list", "first": 0, "entries": [entry("../field", 20_000)] })],
        vec![json!({ "sender": "list", "first": 0, "entries": [entry("field", u64::MAX)] })],
        vec![
            json!({ "sender": "lost", "stream": 0, "blocks": [{ "file": 9, "blocks": [[0, 5]] }] }),
            json!({ "sender": "what" }),
        ],
    ];
    for lie in lies {
        let mut hostile = hostile_rank(&setup, 1, 2);
        lie.iter().for_each(|message| hostile.send(message).unwrap());
        let (code, message) = last_refusal(&mut hostile);
        assert!(!message.is_empty() && code != RefusalCode::Io, "{code:?}: {message}");
    }
    let ranks = [0, 1].map(|rank| setup.rank(rank, 2, &path));
    setup.run_all(&ranks).into_iter().for_each(|ended| assert!(ended.is_ok()));
    assert_eq!(setup.received("there"), data);
}
