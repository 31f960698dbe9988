//! Memory that an entry needs, as both ends count it.

use super::{Entry, EntryKind};

/// Memory of an extended attribute besides its bytes: two strings and their list elements.
const XATTR_OVERHEAD: usize = 64;

impl Entry {
    /// Returns the bytes of memory that this entry needs in addition to the base size: its name, link target, owner
    /// names, and extended attributes with 64 bytes each.
    pub fn weight(&self) -> usize {
        let target = match &self.kind {
            EntryKind::Symlink { target } => target.0.len(),
            _ => 0,
        };
        let owner = self.owner.iter().flat_map(|owner| [&owner.user, &owner.group]).flatten();
        let owner: usize = owner.map(|name| name.0.len()).sum();
        self.name.as_bytes().len() + target + owner + self.xattrs_weight()
    }

    /// Returns the part of the weight for extended attributes.
    pub fn xattrs_weight(&self) -> usize {
        self.xattrs.iter().map(|xattr| xattr.name.0.len() + xattr.value.0.len() + XATTR_OVERHEAD).sum()
    }
}

#[cfg(test)]
mod tests {
    use lfn_base::units::Bytes;

    use super::*;
    use crate::wire::copy::MAX_PENDING_BYTES;
    use crate::wire::copy::byte_string::ByteString;
    use crate::wire::copy::entry::{MAX_NAME, MAX_XATTR_BYTES, MAX_XATTRS, Modified, Name, Owner, Xattr};

    fn entry(kind: EntryKind) -> Entry {
        Entry::new(Name::new("d/e").unwrap(), kind, 0o644, Modified::default()).unwrap()
    }

    #[test]
    fn weight_covers_all_variable_parts() {
        let file = entry(EntryKind::File { length: Bytes(1 << 40) });
        assert_eq!(file.weight(), 3, "the length of a file is no weight");
        assert_eq!(entry(EntryKind::Symlink { target: "/elsewhere".into() }).weight(), 13);
        let mut rich = file.clone();
        rich.owner = Some(Owner { uid: 1, gid: 2, user: Some("mario".into()), group: None });
        rich.xattrs = vec![
            Xattr { name: "user.a".into(), value: ByteString(vec![0; 1000]) },
            Xattr { name: "b".into(), value: ByteString::default() },
        ];
        assert_eq!((rich.weight(), rich.xattrs_weight()), (3 + 5 + 1007 + 2 * 64, 1007 + 2 * 64));
    }

    #[test]
    fn largest_entry_is_far_below_limit() {
        let most = 2 * MAX_NAME + 512 + MAX_XATTR_BYTES + MAX_XATTRS * XATTR_OVERHEAD;
        assert!(most * 8 < MAX_PENDING_BYTES, "so that waiting for a few makes room");
    }
}
