//! What a sender may not do, and when a receiver need not move.

use super::*;

#[test]
fn a_sender_that_does_not_keep_to_the_order_is_refused() {
    let place = TempDir::new().unwrap();
    let copy = Copy::into(place.path());
    let said = |message| copy.receiving.heard(message).unwrap_err().to_string();
    let list = |first, count: u32| FromSender::List {
        first,
        entries: (0..count).map(|n| file(&n.to_string(), b"x")).collect(),
    };
    assert!(said(list(1, 1)).contains("leaves out"));
    assert!(said(list(0, MOST_UNSETTLED + 1)).contains("may wait"));
    let rich = Copy::into(place.path());
    rich.receiving.flow.cut();
    let mut entry = file("rich", b"x");
    entry.xattrs = vec![Xattr { name: "user.a".into(), value: Raw(vec![b'x'; 60_000]) }; 17];
    // The register has stopped: nothing is settled.
    let error = (0..40).find_map(|number| {
        let listed = rich.receiving.heard(FromSender::List { first: number, entries: vec![entry.clone()] });
        listed.err().map(|error| (number, error.to_string()))
    });
    let (number, error) = error.unwrap();
    assert!((25..=32).contains(&number) && error.contains("attributes than may wait"), "{number}: {error}");
    assert!(
        said(FromSender::Listed { entries: 1, bytes: Bytes(0), left_out: LeftOut::default() }).contains("complete")
    );
    copy.listed();
    assert!(said(list(0, 1)).contains("complete"));
    copy.receiving.close();
    let broken = |bytes: &[u8], block: Vec<u8>| {
        let mut copy = Copy::into(place.path());
        copy.list(vec![file("a", bytes)]);
        copy.listed();
        let mut stream = copy.stream();
        stream.write_all(&block).unwrap();
        let deadline = Instant::now() + Duration::from_secs(30);
        loop {
            if let Some(error) = copy.receiving.flow.take_failure() {
                copy.receiving.close();
                return error.to_string();
            }
            assert!(Instant::now() < deadline);
            thread::sleep(Duration::from_millis(1));
        }
    };
    let bytes = data(1, 3_000);
    assert!(broken(&bytes, block(1, &bytes, 0, false)).contains("file 1, which is not listed"));
    assert!(broken(&bytes[..2_500], block(0, &bytes, 2, false)).contains("no block"));
    let twice = [block(0, &bytes, 1, false), block(0, &bytes, 1, false)].concat();
    assert!(broken(&bytes, twice).contains("twice"));
    let long = BlockHeader {
        file: 0,
        offset: 0,
        length: u32::MAX,
        hash: BlockHash([0; 32]),
        hole: false,
        verify: Verify::Blake3,
    };
    assert!(broken(&bytes, long.encode().to_vec()).contains("no block"));
}

#[test]
fn while_a_disk_syncs_nothing_has_to_move() {
    let place = TempDir::new().unwrap();
    let copy = Copy::into(place.path());
    let receiving = &copy.receiving;
    let deadline = Instant::now() + Duration::from_secs(30);
    while !receiving.moving() {
        assert!(Instant::now() < deadline, "with a list to come it waits for that");
    }
    assert!(!receiving.while_busy(|| receiving.moving() || receiving.moving()));
    assert!(receiving.moving());
    receiving.close();
}
