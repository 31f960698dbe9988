//! Several ranks that receive one copy into one destination: lost ranks, a lost lead, and ranks that break the protocol.

use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use lfn_api::service;
use lfn_base::random_data::fill_random;
use lfn_base::units::{BitRate, Bytes};
use lfn_copy::{CopyOptions, CopyOutcome, LocalDestination, RankBoard, RankOptions, TransferError, download};
use lfn_session::server::ServerConfig;
use lfn_session::wire::Request;
use lfn_session::wire::copy::blocks::MIN_BLOCK;
use lfn_session::wire::copy::digest::BlockHash;
use lfn_session::wire::copy::overwrite::OverwritePolicy;
use lfn_session::wire::copy::ranks::{BlockAssignment, RankRequest, RankState};
use lfn_session::wire::copy::{
    CopyJob, CopyRequest, ReceiverMessage, RemoteSource, Selection, SenderMessage, StoredBlock,
};
use lfn_session::{Control, dial};
use tempfile::TempDir;

use crate::support::{self, TestServer, wait_until};

const PATIENCE: Duration = Duration::from_secs(60);

/// A server with data, and the directory that all ranks share.
struct Setup {
    served: TestServer,
    root: TempDir,
    shared: TempDir,
}

/// The command of one rank.
#[derive(Clone)]
struct Rank {
    request: RankRequest,
    from: &'static str,
    /// `None` for `null:`.
    to: Option<PathBuf>,
    /// Slows the rank down, so that the others see it at work.
    pace: Option<BitRate>,
    board: RankBoard,
}

type Ended = Result<CopyOutcome, TransferError>;

impl Setup {
    fn new() -> Self {
        let [root, shared] = [0, 1].map(|_| tempfile::tempdir().unwrap());
        let config = ServerConfig { root: Some(root.path().to_owned()), ..support::config() };
        Setup { served: TestServer::start(config, service::new()), root, shared }
    }

    /// Writes a served file with random bytes.
    fn file(&self, name: &str, bytes: usize) -> Vec<u8> {
        let mut data = vec![0; bytes];
        fill_random(bytes as u64, 0, &mut data);
        fs::write(self.root.path().join(name), &data).unwrap();
        data
    }

    fn ranks(&self, count: u16) -> Vec<Rank> {
        let rank = |rank| Rank {
            request: RankRequest {
                rank,
                ranks: count,
                job: None,
                assignment: BlockAssignment::OnDemand,
                offset: None,
                patience: PATIENCE,
            },
            from: "field",
            to: Some(self.shared.path().join("there")),
            pace: None,
            board: RankBoard::default(),
        };
        (0..count).map(rank).collect()
    }

    fn run(&self, rank: &Rank, interrupted: &AtomicBool) -> Ended {
        let options = CopyOptions {
            streams: 1,
            max_streams: 1,
            block: MIN_BLOCK,
            pace: rank.pace,
            retry_for: PATIENCE,
            rank: Some(RankOptions { request: rank.request.clone(), board: rank.board.clone() }),
            ..CopyOptions::default()
        };
        let to = match &rank.to {
            None => LocalDestination::Null,
            Some(path) => LocalDestination::File { path: path.clone(), allowed: OverwritePolicy::default() },
        };
        let from = vec![RemoteSource::File { path: rank.from.into() }];
        download(&self.served.target(), from, &to, &options, support::interruptible_observer(interrupted))
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
        fs::read(self.shared.path().join(name)).unwrap()
    }

    /// Waits until the lead has opened the file.
    fn wait_for_partial(&self) {
        wait_until(|| self.shared.path().join(".there.lfn-partial").exists());
    }
}

fn slow(rank: Rank) -> Rank {
    Rank { pace: Some(BitRate(2_000_000)), ..rank }
}

fn digest_of(data: &[u8]) -> [u8; 32] {
    *blake3::hash(data).as_bytes()
}

#[test]
fn ranks_receive_one_file_together() {
    for assignment in [BlockAssignment::OnDemand, BlockAssignment::Staggered] {
        let setup = Setup::new();
        let data = setup.file("field", 300_001);
        let mut ranks = setup.ranks(4);
        ranks.iter_mut().for_each(|rank| rank.request.assignment = assignment);
        let mut moved = Vec::new();
        for ended in setup.run_all(&ranks) {
            let outcome = ended.unwrap();
            assert_eq!(outcome.digest.unwrap().0, digest_of(&data));
            assert_eq!((outcome.tally.files, outcome.tally.bytes), (1, Bytes(300_001)));
            moved.push(outcome.moved().0);
        }
        assert_eq!(moved.iter().sum::<u64>(), 300_001, "each block was sent once: {moved:?}");
        if assignment == BlockAssignment::Staggered {
            assert!(moved.iter().all(|bytes| (73_000..77_000).contains(bytes)), "{moved:?}");
        }
        assert_eq!(setup.received("there"), data);
        let figures = ranks[0].board.figures().unwrap();
        assert_eq!((figures.ranks.len(), figures.bytes()), (4, Bytes(300_001)));
        assert_eq!(fs::read_dir(setup.shared.path()).unwrap().count(), 1, "nothing else is left");
    }
}

#[test]
fn ranks_receive_a_tree_together() {
    let setup = Setup::new();
    fs::create_dir_all(setup.root.path().join("tree/a")).unwrap();
    for number in 0..200 {
        fs::write(setup.root.path().join(format!("tree/a/{number}")), vec![number as u8; number * 37]).unwrap();
    }
    let large: Vec<_> = (0..20).map(|number| setup.file(&format!("tree/large{number}"), 30_000 + number)).collect();
    let mut ranks = setup.ranks(3);
    ranks.iter_mut().for_each(|rank| rank.from = "tree");
    for ended in setup.run_all(&ranks) {
        let tally = ended.unwrap().tally;
        assert_eq!((tally.files, tally.failed), (220, 0));
    }
    for (number, data) in large.iter().enumerate() {
        assert_eq!(&setup.received(&format!("there/tree/large{number}")), data);
    }
    assert_eq!(setup.received("there/tree/a/199"), vec![199; 199 * 37]);
    // The second run finds everything up to date.
    for ended in setup.run_all(&ranks) {
        let outcome = ended.unwrap();
        assert_eq!((outcome.moved(), outcome.tally.files), (Bytes(0), 0));
    }
}

#[test]
fn ranks_verify_and_discard() {
    let setup = Setup::new();
    let data = setup.file("field", 200_000);
    let mut ranks = setup.ranks(2);
    ranks.iter_mut().for_each(|rank| rank.to = None);
    let mut moved = 0;
    for ended in setup.run_all(&ranks) {
        let outcome = ended.unwrap();
        assert_eq!(outcome.digest.unwrap().0, digest_of(&data));
        moved += outcome.moved().0;
    }
    assert_eq!(moved, 200_000);
}

#[test]
fn blocks_of_a_lost_rank_go_to_the_others() {
    for assignment in [BlockAssignment::OnDemand, BlockAssignment::Staggered] {
        let setup = Setup::new();
        let data = setup.file("field", 400_000);
        let mut ranks: Vec<_> = setup.ranks(3).into_iter().map(slow).collect();
        for rank in &mut ranks {
            rank.request.assignment = assignment;
            rank.request.patience = Duration::from_millis(300);
        }
        let lost = AtomicBool::new(false);
        thread::scope(|scope| {
            let stay: Vec<_> =
                ranks[..2].iter().map(|rank| scope.spawn(|| setup.run(rank, &AtomicBool::new(false)))).collect();
            let leaves = scope.spawn(|| setup.run(&ranks[2], &lost));
            setup.wait_for_partial();
            lost.store(true, Ordering::Relaxed);
            assert!(matches!(leaves.join().unwrap(), Err(TransferError::Interrupted)));
            for rank in stay {
                assert_eq!(rank.join().unwrap().unwrap().digest.unwrap().0, digest_of(&data));
            }
        });
        assert_eq!(setup.received("there"), data);
        assert_eq!(ranks[0].board.figures().unwrap().ranks[2].state, RankState::Lost);
    }
}

#[test]
fn lost_lead_is_replaced_or_returns() {
    for returns in [true, false] {
        let setup = Setup::new();
        let data = setup.file("field", 400_000);
        // The figures come once a second.
        let slower = |rank| Rank { pace: Some(BitRate(400_000)), ..rank };
        let mut ranks: Vec<_> = setup.ranks(2).into_iter().map(slower).collect();
        let patience = if returns { PATIENCE } else { Duration::from_millis(300) };
        ranks.iter_mut().for_each(|rank| rank.request.patience = patience);
        let lost = AtomicBool::new(false);
        thread::scope(|scope| {
            let lead = scope.spawn(|| setup.run(&ranks[0], &lost));
            setup.wait_for_partial();
            let stays = scope.spawn(|| setup.run(&ranks[1], &AtomicBool::new(false)));
            wait_until(|| ranks[0].board.figures().is_some_and(|figures| figures.ranks[1].bytes.0 > 10_000));
            lost.store(true, Ordering::Relaxed);
            assert!(matches!(lead.join().unwrap(), Err(TransferError::Interrupted)));
            if returns {
                let again = setup.run(&ranks[0], &AtomicBool::new(false)).unwrap();
                assert!(again.moved().0 < 390_000, "blocks of the first attempt were kept: {}", again.moved());
            }
            let outcome = stays.join().unwrap().unwrap();
            assert_eq!(outcome.reconnects, 1);
        });
        assert_eq!(setup.received("there"), data);
    }
}

#[test]
fn restarted_rank_continues() {
    let setup = Setup::new();
    let data = setup.file("field", 300_000);
    let ranks: Vec<_> = setup.ranks(2).into_iter().map(slow).collect();
    let lost = AtomicBool::new(false);
    thread::scope(|scope| {
        let lead = scope.spawn(|| setup.run(&ranks[0], &AtomicBool::new(false)));
        let leaves = scope.spawn(|| setup.run(&ranks[1], &lost));
        setup.wait_for_partial();
        lost.store(true, Ordering::Relaxed);
        leaves.join().unwrap().unwrap_err();
        let again = setup.run(&ranks[1], &AtomicBool::new(false)).unwrap();
        assert_eq!(again.digest, lead.join().unwrap().unwrap().digest);
    });
    assert_eq!(setup.received("there"), data);
}

#[test]
fn rank_with_another_destination_is_named() {
    let setup = Setup::new();
    let data = setup.file("field", 300_000);
    let mut ranks: Vec<_> = setup.ranks(2).into_iter().map(slow).collect();
    let elsewhere = tempfile::tempdir().unwrap();
    ranks[1].to = Some(elsewhere.path().join("there"));
    let ended = setup.run_all(&ranks);
    let [lead, other] = <[Ended; 2]>::try_from(ended).unwrap();
    let error = other.unwrap_err();
    assert!(error.to_string().ends_with("there: this host does not see the partial file of the lead rank"), "{error}");
    assert_eq!(lead.unwrap().digest.unwrap().0, digest_of(&data));
    assert_eq!(setup.received("there"), data);
    assert_eq!(fs::read_dir(elsewhere.path()).unwrap().count(), 0, "nothing was created");
}

#[test]
fn existing_destination_needs_overwrite() {
    let setup = Setup::new();
    setup.file("field", 50_000);
    fs::write(setup.shared.path().join("there"), "mine").unwrap();
    for ended in setup.run_all(&setup.ranks(2)) {
        let tally = ended.unwrap().tally;
        assert_eq!((tally.files, tally.failed), (0, 1));
    }
    assert_eq!(setup.received("there"), b"mine");
}

#[test]
fn same_command_after_the_end_copies_again() {
    let setup = Setup::new();
    setup.file("field", 50_000);
    let ranks = setup.ranks(2);
    // The other rank never comes, so the group waits for it after the end.
    setup.run(&ranks[0], &AtomicBool::new(false)).unwrap();
    fs::remove_file(setup.shared.path().join("there")).unwrap();
    let data = setup.file("field", 60_000);
    let again = setup.run(&ranks[0], &AtomicBool::new(false)).unwrap();
    assert_eq!((again.moved(), again.digest.unwrap().0), (Bytes(60_000), digest_of(&data)));
    assert_eq!(setup.received("there"), data);
}

/// Opens the session of a rank that follows no protocol.
fn hostile_rank(setup: &Setup, rank: &Rank) -> Control {
    let job = CopyJob::Get { from: vec![RemoteSource::File { path: "field".into() }], selection: Selection::default() };
    let Request::Copy(request) = support::copy_request(job, 1, MIN_BLOCK.0) else { panic!("a copy") };
    let request = Request::Copy(CopyRequest { rank: Some(Box::new(rank.request.clone())), ..request });
    dial::open_control(&setup.served.target(), dial::new_session_id().unwrap(), request).unwrap()
}

#[test]
fn invented_stored_blocks_are_ignored() {
    let setup = Setup::new();
    let data = setup.file("field", 300_000);
    let ranks: Vec<_> = setup.ranks(2).into_iter().map(slow).collect();
    thread::scope(|scope| {
        let lead = scope.spawn(|| setup.run(&ranks[0], &AtomicBool::new(false)));
        let mut hostile = hostile_rank(&setup, &ranks[1]);
        loop {
            if let SenderMessage::Opened { .. } = hostile.recv(PATIENCE, "in a test").unwrap() {
                break;
            }
        }
        // No block was sent to this rank: it has no stream.
        let invented = |index| StoredBlock { index, hash: BlockHash([7; 32]) };
        for file in [0, 1, u32::MAX] {
            let blocks = (0..1000).chain([u64::MAX]).map(invented).collect();
            hostile.send(&ReceiverMessage::Stored { file, blocks }).unwrap();
            hostile.send(&ReceiverMessage::Resend { file, index: u64::MAX }).unwrap();
            hostile.send(&ReceiverMessage::Settled { files: Default::default() }).unwrap();
            hostile.send(&ReceiverMessage::Opened { file, identity: Default::default() }).unwrap();
        }
        assert_eq!(lead.join().unwrap().unwrap().digest.unwrap().0, digest_of(&data));
    });
    assert_eq!(setup.received("there"), data);
}
