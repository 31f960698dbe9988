//! Maps owners by name, because both ends may use different numbers for the same user.
//!
//! As in rsync, the name decides if both ends know it, otherwise the number. Root and its group are never mapped. Every
//! result is cached, because a directory service may be slow and a tree has few owners.

use std::collections::HashMap;

use lfn_session::wire::copy::byte_string::ByteString;
use lfn_session::wire::copy::entry::Owner;
use lfn_sys::accounts;
use parking_lot::Mutex;

const MAX_CACHED: usize = 4096;

/// Cached user and group names of this host.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    names: Mutex<HashMap<(AccountKind, u32), Option<ByteString>>>,
    numbers: Mutex<HashMap<(AccountKind, ByteString), Option<u32>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum AccountKind {
    User,
    Group,
}

impl Accounts {
    /// Returns an owner with its names on this host.
    pub(crate) fn owner(&self, uid: u32, gid: u32) -> Owner {
        Owner { uid, gid, user: self.name(AccountKind::User, uid), group: self.name(AccountKind::Group, gid) }
    }

    /// Returns the user and group number of an owner on this host.
    pub(crate) fn numbers(&self, owner: &Owner) -> (u32, u32) {
        let number = |kind, name: &Option<ByteString>, number: u32| match name {
            Some(name) if number != 0 => self.number(kind, name).unwrap_or(number),
            _ => number,
        };
        (number(AccountKind::User, &owner.user, owner.uid), number(AccountKind::Group, &owner.group, owner.gid))
    }

    fn name(&self, kind: AccountKind, number: u32) -> Option<ByteString> {
        let ask = || match kind {
            AccountKind::User => accounts::user_name(number),
            AccountKind::Group => accounts::group_name(number),
        };
        // LOGIN_NAME_MAX: another host cannot have a longer name.
        cached(&self.names, (kind, number), || ask().filter(|name| name.len() <= 256).map(ByteString))
    }

    fn number(&self, kind: AccountKind, name: &ByteString) -> Option<u32> {
        cached(&self.numbers, (kind, name.clone()), || match kind {
            AccountKind::User => accounts::user_id(name.as_bytes()),
            AccountKind::Group => accounts::group_id(name.as_bytes()),
        })
    }
}

fn cached<K: std::hash::Hash + Eq, V: Clone>(known: &Mutex<HashMap<K, V>>, key: K, ask: impl FnOnce() -> V) -> V {
    if let Some(known) = known.lock().get(&key) {
        return known.clone();
    }
    let answer = ask();
    let mut known = known.lock();
    if known.len() >= MAX_CACHED {
        known.clear();
    }
    known.insert(key, answer.clone());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owner_name_takes_precedence_over_number() {
        let accounts = Accounts::default();
        let root = accounts.owner(0, 0);
        assert_eq!((root.user.clone(), root.group.clone()), (Some("root".into()), Some("root".into())));
        assert_eq!(accounts.numbers(&root), (0, 0));
        let owner = |user: Option<&str>| Owner { uid: 4711, gid: 4712, user: user.map(ByteString::from), group: None };
        assert_eq!(accounts.numbers(&owner(Some("root"))), (0, 4712));
        assert_eq!(accounts.numbers(&owner(Some("no user of this name"))), (4711, 4712));
        assert_eq!(accounts.numbers(&owner(None)), (4711, 4712));
        assert_eq!(accounts.numbers(&Owner { uid: 0, user: Some("nobody".into()), ..Owner::default() }), (0, 0));
    }
}
