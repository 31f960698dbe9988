//! `--delete` where it is not known what the source does not have.

use super::*;

#[test]
fn where_more_is_left_out_than_is_remembered_nothing_is_removed() {
    let home = tempfile::tempdir().unwrap();
    let extra = home.path().join("d/extra");
    fs::create_dir(home.path().join("d")).unwrap();
    fs::write(&extra, b"").unwrap();
    for (left_out, stays) in [(1_800_000, true), (1000, false)] {
        let manner = Manner { delete: true, ..Manner::default() };
        let mut copy = Copy::in_manner(aim(home.path(), Allowed::default()), manner);
        copy.list(vec![directory("d")]);
        for first in (0..left_out).step_by(1000) {
            let names = (first..first + 1000).map(|n| Name::new(format!("d/{n}")).unwrap()).collect();
            copy.receiving.heard(FromSender::LeftOut { names }).unwrap();
        }
        let ended = copy.end();
        assert_eq!((extra.exists(), ended.tally.not_deleted, ended.tally.failed), (stays, stays, 0), "{left_out}");
    }
}

/// A file system that folds case has what is copied under the names that were there.
#[test]
fn what_the_list_names_stays_whatever_it_is_called() {
    for dry_run in [false, true] {
        let home = tempfile::tempdir().unwrap();
        let at = |name: &str| home.path().join(name);
        fs::create_dir(at("data")).unwrap();
        let entry = file("file", b"12");
        plant(home.path(), &entry, b"12");
        fs::write(at("extra"), b"").unwrap();
        let manner = Manner { delete: true, dry_run, ..Manner::default() };
        let mut copy = Copy::in_manner(aim(home.path(), Allowed::default()), manner);
        let listed = vec![directory("."), directory("data"), directory("new"), entry];
        copy.list(if dry_run { [&listed[..2], &listed[3..]].concat() } else { listed });
        let last = copy.listed - 1;
        copy.until("all of it", |word| match word {
            FromReceiver::Settled { files } => files.contains(last.into()).then_some(()),
            _ => None,
        });
        for (name, folded) in [("data", "Data"), ("new", "New"), ("file", "File")] {
            if name != "new" || !dry_run {
                fs::rename(at(name), at(folded)).unwrap();
            }
        }
        let ended = copy.end();
        assert_eq!((ended.tally.deleted, ended.tally.failed), (1, 0), "{:?}", ended.failures);
        let stay = if dry_run { vec!["Data", "File", "extra"] } else { vec!["Data", "File", "New"] };
        assert_eq!(names(home.path()), stay);
    }
}
