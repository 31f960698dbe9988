//! Tests of `--delete` when the names of the source are not completely known.

use super::*;

#[test]
fn too_many_unlisted_names_prevent_deletion() {
    let home = tempfile::tempdir().unwrap();
    let extra = home.path().join("d/extra");
    fs::create_dir(home.path().join("d")).unwrap();
    fs::write(&extra, b"").unwrap();
    for (left_out, stays) in [(1_800_000, true), (1000, false)] {
        let options = TransferOptions { delete: true, ..TransferOptions::default() };
        let mut copy = TestCopy::with_options(destination_in(home.path(), OverwritePolicy::default()), options);
        copy.list(vec![directory("d")]);
        for first in (0..left_out).step_by(1000) {
            let names = (first..first + 1000).map(|n| Name::new(format!("d/{n}")).unwrap()).collect();
            copy.receiver.on_message(SenderMessage::Excluded { names }, Instant::now()).unwrap();
        }
        let result = copy.finish();
        assert_eq!(
            (extra.exists(), result.tally.deletion_skipped, result.tally.failed),
            (stays, stays, 0),
            "{left_out}"
        );
    }
}

/// A file system that ignores case lists copied files under the spelling that existed before.
#[test]
fn renamed_spellings_are_not_deleted() {
    for dry_run in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("data")).unwrap();
        let entry = file("file", b"12");
        create_file(home.path(), &entry, b"12");
        fs::write(at("extra"), b"").unwrap();
        let options = TransferOptions { delete: true, dry_run, ..TransferOptions::default() };
        let mut copy = TestCopy::with_options(destination_in(home.path(), OverwritePolicy::default()), options);
        let listed = vec![directory("."), directory("data"), directory("new"), entry];
        copy.list(if dry_run { [&listed[..2], &listed[3..]].concat() } else { listed });
        let last = copy.listed - 1;
        copy.wait_for("all of it", |message| match message {
            ReceiverMessage::Settled { files } => files.contains(last.into()).then_some(()),
            _ => None,
        });
        for (name, folded) in [("data", "Data"), ("new", "New"), ("file", "File")] {
            if name != "new" || !dry_run {
                fs::rename(at(name), at(folded)).unwrap();
            }
        }
        let result = copy.finish();
        assert_eq!((result.tally.deleted, result.tally.failed), (1, 0), "{:?}", result.failures);
        let stay = if dry_run { vec!["Data", "File", "extra"] } else { vec!["Data", "File", "New"] };
        assert_eq!(names(home.path()), stay);
    }
}
