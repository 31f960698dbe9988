use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use super::TestStorage;
use super::fixtures::{LargeFile, file_entry, name};

/// Number of replacements while another thread reads.
const REPLACEMENTS: usize = 60;

/// No reader sees a short or mixed file under a final name, whatever is published in its place.
pub(super) fn readers_see_whole_files_only(make: impl Fn() -> TestStorage) {
    let storage = make();
    if !storage.stores_files() {
        return;
    }
    let (large, small) = (LargeFile::new("file", 4), vec![9; 1000]);
    large.complete(&*storage, false).unwrap();
    let is_over = AtomicBool::new(false);
    thread::scope(|scope| {
        scope.spawn(|| {
            let mut reads = 0;
            while reads == 0 || !is_over.load(Ordering::SeqCst) {
                // A replaced file stays readable, and there is no moment without a file.
                let file = storage.open_file(&name("file")).unwrap();
                let mut bytes = vec![0; file.metadata().unwrap().length.0 as usize];
                file.read_exact_at(&mut bytes, 0).unwrap();
                assert!(bytes == large.bytes || bytes == small, "{} bytes", bytes.len());
                reads += 1;
            }
        });
        for _ in 0..REPLACEMENTS {
            storage.write_file(&file_entry("file", small.len()), &small).unwrap().publish(true).unwrap();
            large.complete(&*storage, true).unwrap();
        }
        is_over.store(true, Ordering::SeqCst);
    });
}
