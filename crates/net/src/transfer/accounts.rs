//! Owners by name: both ends may number the same user differently.
//!
//! As with rsync the name counts where both ends know it, else the number; root and its group are never mapped. Every
//! answer is remembered, since a directory service may take its time, and trees have few owners.

use std::collections::HashMap;
use std::sync::Mutex;

use lfn_core::transfer::entry::Owner;
use lfn_core::transfer::raw::Raw;
use lfn_sys::accounts;

use super::flow::lock;

/// Most answers that are remembered.
const MOST: usize = 4096;

/// What was asked of the host before.
#[derive(Debug, Default)]
pub(crate) struct Accounts {
    names: Mutex<HashMap<(Kind, u32), Option<Raw>>>,
    numbers: Mutex<HashMap<(Kind, Raw), Option<u32>>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Kind {
    User,
    Group,
}

impl Accounts {
    /// An owner with the names that this host has for it.
    pub(crate) fn owner(&self, uid: u32, gid: u32) -> Owner {
        Owner { uid, gid, user: self.name(Kind::User, uid), group: self.name(Kind::Group, gid) }
    }

    /// The numbers that this host has for an owner.
    pub(crate) fn numbers(&self, owner: &Owner) -> (u32, u32) {
        let number = |kind, name: &Option<Raw>, number: u32| match name {
            Some(name) if number != 0 => self.number(kind, name).unwrap_or(number),
            _ => number,
        };
        (number(Kind::User, &owner.user, owner.uid), number(Kind::Group, &owner.group, owner.gid))
    }

    fn name(&self, kind: Kind, number: u32) -> Option<Raw> {
        let ask = || match kind {
            Kind::User => accounts::user_name(number),
            Kind::Group => accounts::group_name(number),
        };
        // LOGIN_NAME_MAX: a longer one is no name that another host could have.
        remembered(&self.names, (kind, number), || ask().filter(|name| name.len() <= 256).map(Raw))
    }

    fn number(&self, kind: Kind, name: &Raw) -> Option<u32> {
        remembered(&self.numbers, (kind, name.clone()), || match kind {
            Kind::User => accounts::user_id(name.as_bytes()),
            Kind::Group => accounts::group_id(name.as_bytes()),
        })
    }
}

fn remembered<K: std::hash::Hash + Eq, V: Clone>(known: &Mutex<HashMap<K, V>>, key: K, ask: impl FnOnce() -> V) -> V {
    if let Some(known) = lock(known).get(&key) {
        return known.clone();
    }
    let answer = ask();
    let mut known = lock(known);
    if known.len() >= MOST {
        known.clear();
    }
    known.insert(key, answer.clone());
    answer
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_counts_where_both_ends_know_it() {
        let accounts = Accounts::default();
        let root = accounts.owner(0, 0);
        assert_eq!((root.user.clone(), root.group.clone()), (Some("root".into()), Some("root".into())));
        assert_eq!(accounts.numbers(&root), (0, 0));
        let nobody = |user: Option<&str>| Owner { uid: 4711, gid: 4712, user: user.map(Raw::from), group: None };
        assert_eq!(accounts.numbers(&nobody(Some("root"))), (0, 4712));
        assert_eq!(accounts.numbers(&nobody(Some("nobody of this name"))), (4711, 4712));
        assert_eq!(accounts.numbers(&nobody(None)), (4711, 4712));
        assert_eq!(accounts.numbers(&Owner { uid: 0, user: Some("nobody".into()), ..Owner::default() }), (0, 0));
    }
}
