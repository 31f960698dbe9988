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
