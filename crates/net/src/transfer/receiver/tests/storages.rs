//! Tests of a receiver that writes to a storage in memory: no file system is involved.

use super::*;
use crate::transfer::storage::memory::MemoryStorage;

fn into_memory(storage: &MemoryStorage) -> Destination {
    let storage = Box::new(storage.clone());
    Destination::Opened { storage, overwrite: OverwritePolicy::default(), preserve: LINKS }
}

fn read_file(storage: &MemoryStorage, name: &str) -> Vec<u8> {
    let file = storage.open_file(&Name::new(name).unwrap()).unwrap();
    let mut bytes = vec![0; file.metadata().unwrap().length.0 as usize];
    file.read_exact_at(&mut bytes, 0).unwrap();
    bytes
}

#[test]
fn tree_is_copied_into_memory() {
    let (storage, small, large) = (MemoryStorage::default(), data(1, 700), data(2, 3_000));
    let entries = || vec![directory("d"), file("d/small", &small), file("d/large", &large), link("d/l", "small")];
    let mut copy = TestCopy::start(into_memory(&storage));
    copy.list(entries());
    let mut stream = copy.open_stream();
    stream.write_all(&block(1, &small, 0, false)).unwrap();
    (0..3).for_each(|index| stream.write_all(&block(2, &large, index, false)).unwrap());
    copy.send_digest(2, &large);
    let tally = copy.finish().tally;
    assert_eq!((tally.directories, tally.files, tally.links, tally.failed), (1, 2, 1, 0));
    assert_eq!((read_file(&storage, "d/small"), read_file(&storage, "d/large")), (small.clone(), large.clone()));
    // The next copy finds everything up to date.
    let mut again = TestCopy::start(into_memory(&storage));
    again.list(entries());
    assert_eq!(again.finish().tally.skipped, 4);
}

#[test]
fn interrupted_copy_into_memory_resumes() {
    let (storage, large) = (MemoryStorage::default(), data(2, 3_000));
    let mut copy = TestCopy::start(into_memory(&storage));
    copy.list(vec![file("large", &large)]);
    let mut stream = copy.open_stream();
    (0..2).for_each(|index| stream.write_all(&block(0, &large, index, false)).unwrap());
    let deadline = Instant::now() + Duration::from_secs(30);
    while copy.receiver.streams.progress().bytes < Bytes(2_048) || copy.receiver.streams.meter().is_delayed() {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(1));
    }
    copy.receiver.close();
    let mut again = TestCopy::start(into_memory(&storage));
    again.list(vec![file("large", &large)]);
    let kept = again.resumed_blocks(0);
    let mut stream = again.open_stream();
    (0..3).filter(|index| !kept.contains(index)).for_each(|index| {
        stream.write_all(&block(0, &large, index, false)).unwrap();
    });
    again.send_digest(0, &large);
    assert_eq!(again.finish().tally.files, 1);
    assert!(!kept.is_empty() && read_file(&storage, "large") == large);
}
