//! Any bytes as values of a queue: the head and a part of a manifest, the record of a part, and the address of a queue.

#![no_main]

use lfn_queue::proto::address::QueueAddress;
use lfn_queue::proto::board::Board;
use lfn_queue::proto::header::Header;
use lfn_queue::proto::part::Part;
use lfn_queue::proto::record::PartRecord;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|bytes: &[u8]| {
    let Some((&selector, bytes)) = bytes.split_first() else { return };
    match selector % 4 {
        0 => {
            if let Ok(header) = Header::decode(bytes) {
                assert_eq!(Header::decode(&header.encode()), Ok(header.clone()));
                assert!(header.parts() > 100_000 || Board::new(&header).open_count() <= u64::from(header.parts()));
            }
        }
        1 => {
            if let Ok(part) = Part::decode(bytes) {
                assert_eq!(Part::decode(&part.encode()), Ok(part));
            }
        }
        2 => {
            if let Ok(record) = PartRecord::decode(bytes) {
                assert!(PartRecord::decode(&record.encode()).is_ok());
            }
        }
        _ => {
            if let Ok(address) = String::from_utf8_lossy(bytes).parse::<QueueAddress>() {
                let shown = address.to_string();
                assert_eq!(shown.parse::<QueueAddress>().map(|again| again.to_string()), Ok(shown));
            }
        }
    }
});
