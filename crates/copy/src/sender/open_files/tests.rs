use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::thread;
use std::time::Duration;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::blocks::Layout;
use lfn_session::wire::copy::digest::HashTree;

use super::super::listing::Listing;
use super::super::source::Source;
use super::super::walk::Walk;
use super::super::walk_step::WalkStep;
use super::*;
use crate::base_dir::BaseDir;

/// A file of 100 kB whose blocks are read one after the other.
struct Fixture {
    home: tempfile::TempDir,
    source: Arc<ListedFile>,
    layout: Layout,
    verify: Verify,
    files: OpenFiles,
    streams: StreamSet,
}

impl Fixture {
    fn new(verify: Verify, block: u64) -> Self {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("file");
        fs::write(&path, vec![1; 100_000]).unwrap();
        // Longer than the clock resolution of a file system.
        thread::sleep(Duration::from_millis(20));
        let file = Source::File { base: Arc::new(BaseDir::Local), path };
        let Some(WalkStep::Entry(_, Some(source))) = Walk::new(file, Listing::default()).next() else { panic!() };
        let layout = Layout::new(Bytes(100_000), Bytes(block)).unwrap();
        Fixture { home, source, layout, verify, files: OpenFiles::default(), streams: StreamSet::default() }
    }

    fn change(&self, change: impl FnOnce(&Path)) {
        change(&self.home.path().join("file"));
    }

    fn task(&self, index: u64) -> BlockTask<Arc<ListedFile>> {
        let block = self.layout.block(index).unwrap();
        BlockTask { file: 0, block, layout: self.layout, source: self.source.clone(), send: true }
    }

    fn comparison(&self) -> Comparison<'_> {
        Comparison { verify: self.verify, streams: &self.streams, is_rank: false }
    }

    fn read(&self, index: u64) -> Result<Vec<u8>, String> {
        let task = self.task(index);
        let mut buffer = vec![0; task.block.length as usize];
        let read = self.files.read_block(&task, &mut buffer, false, self.comparison());
        read.map(|_| buffer).map_err(|error| error.to_string())
    }

    /// Reads the blocks, and the first of them before `change`.
    fn read_all(&self, change: impl FnOnce(&Path)) -> Result<(), String> {
        let mut tree = HashTree::new(self.layout);
        let mut change = Some(change);
        for index in 0..self.layout.blocks() {
            let bytes = self.read(index)?;
            tree.insert(index, self.verify.hash(&self.layout, self.layout.block(index).unwrap(), &bytes));
            if let Some(change) = change.take() {
                self.change(change);
            }
        }
        let closed = self.files.close(&self.task(0), tree.digest().unwrap(), self.comparison());
        closed.map_err(|error| error.to_string())
    }
}

/// Writes to the file and puts its modification time back.
fn rewrite(path: &Path, byte: u8) {
    let modified = fs::metadata(path).unwrap().modified().unwrap();
    let file = fs::File::options().write(true).open(path).unwrap();
    file.write_all_at(&[byte; 10], 0).unwrap();
    file.set_modified(modified).unwrap();
}

fn chmod(path: &Path) {
    fs::set_permissions(path, Permissions::from_mode(0o600)).unwrap();
}

fn hard_link(path: &Path) {
    fs::hard_link(path, path.with_extension("link")).unwrap();
}

const CHANGED: &str = "changed during the copy";

#[test]
fn rewritten_file_with_old_times_is_reported() {
    for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
        let fixture = Fixture::new(verify, 16 << 10);
        assert_eq!(fixture.read_all(|path| rewrite(path, 2)).unwrap_err(), CHANGED, "{verify:?}");
    }
}

#[test]
fn changed_attributes_alone_are_no_failure() {
    for verify in [Verify::Blake3, Verify::Xxh3, Verify::Off] {
        for change in [chmod, hard_link] {
            assert_eq!(Fixture::new(verify, 16 << 10).read_all(change), Ok(()), "{verify:?}");
        }
    }
    // The same bytes again: the content is equal, which only a digest shows.
    assert_eq!(Fixture::new(Verify::Blake3, 16 << 10).read_all(|path| rewrite(path, 1)), Ok(()));
    let renamed = |path: &Path| fs::rename(path, path.with_extension("other")).unwrap();
    assert_eq!(Fixture::new(Verify::Blake3, 16 << 10).read_all(renamed), Ok(()));
}

#[test]
fn blocks_sent_again_are_of_the_same_content() {
    let fixture = Fixture::new(Verify::Blake3, 16 << 10);
    fixture.read_all(|_| {}).unwrap();
    fixture.change(chmod);
    assert_eq!(fixture.read(3), Ok(vec![1; 16 << 10]));
    thread::sleep(Duration::from_millis(20));
    fixture.change(|path| rewrite(path, 2));
    // The change is in another block.
    assert_eq!(fixture.read(3).unwrap_err(), CHANGED);
    let opened = fixture.files.open_unchanged(&fixture.task(3), fixture.comparison());
    assert_eq!(opened.unwrap_err().to_string(), CHANGED);
}

#[test]
fn file_of_one_block_is_read_in_one_version() {
    let fixture = Fixture::new(Verify::Blake3, 1 << 20);
    assert_eq!(fixture.read(0), Ok(vec![1; 100_000]));
    // Nothing of the file was sent, or all of it is sent again.
    fixture.change(|path| rewrite(path, 2));
    assert_eq!(fixture.read(0).unwrap()[..20], [[2; 10], [1; 10]].concat());
}
