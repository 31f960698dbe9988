//! Rights of tokens and servers. Rights can only be combined to fewer rights.
//!
//! A session has the rights that both its token and its server permit. Write access has three levels: none, write-only
//! (into the session's own directory; existing files can be neither changed nor seen), and full write access below the
//! root.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// Level of write access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum WriteAccess {
    #[default]
    No,
    /// New files, into a directory of the session's own.
    CreateOnly,
    /// Files and directories below the root.
    Yes,
}

/// Rights of a session, token or server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    pub test: bool,
    /// List and download below the root.
    pub read: bool,
    /// Upload below the root.
    pub write: WriteAccess,
}

/// Reason why a text contains no valid rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    #[error("unknown right '{0}': expected a comma-separated list of read, write, create and test")]
    Unknown(String),
    /// Write-only access excludes read and full write access.
    #[error("create cannot be combined with read or write")]
    CreateWithOthers,
    #[error("no rights given: expected a comma-separated list of read, write, create and test")]
    None,
}

impl Rights {
    pub const ALL: Rights = Rights { test: true, read: true, write: WriteAccess::Yes };

    /// Returns the rights that both sides permit.
    pub fn and(self, other: Rights) -> Rights {
        Rights { test: self.test && other.test, read: self.read && other.read, write: self.write.min(other.write) }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = match self.write {
            WriteAccess::No => None,
            WriteAccess::CreateOnly => Some("create"),
            WriteAccess::Yes => Some("write"),
        };
        let words = [self.read.then_some("read"), write, self.test.then_some("test")];
        let words: Vec<&str> = words.into_iter().flatten().collect();
        f.pad(&words.join(","))
    }
}

impl FromStr for Rights {
    type Err = RightsError;

    fn from_str(text: &str) -> Result<Self, RightsError> {
        let mut rights = Rights::default();
        let mut create = false;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "read" => rights.read = true,
                "write" => rights.write = WriteAccess::Yes,
                "create" => create = true,
                "test" => rights.test = true,
                other => return Err(RightsError::Unknown(other.to_owned())),
            }
        }
        match create {
            true if rights.read || rights.write == WriteAccess::Yes => return Err(RightsError::CreateWithOthers),
            true => rights.write = WriteAccess::CreateOnly,
            false => {}
        }
        if rights == Rights::default() { Err(RightsError::None) } else { Ok(rights) }
    }
}

impl Serialize for Rights {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Rights {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rights(text: &str) -> Rights {
        text.parse().unwrap()
    }

    #[test]
    fn rights_parse_and_print_round_trip() {
        for text in ["read,write,test", "read", "write", "create", "create,test", "test"] {
            assert_eq!(rights(text).to_string(), text);
        }
        assert_eq!(rights("test, read,"), rights("read,test"));
        assert_eq!("read,all".parse::<Rights>(), Err(RightsError::Unknown("all".into())));
        assert_eq!("create,read".parse::<Rights>(), Err(RightsError::CreateWithOthers));
        assert_eq!("write,create".parse::<Rights>(), Err(RightsError::CreateWithOthers));
        assert_eq!(" ,".parse::<Rights>(), Err(RightsError::None));
    }

    #[test]
    fn combined_rights_never_exceed_either() {
        assert_eq!(Rights::ALL.and(rights("create")), rights("create"));
        assert_eq!(rights("write,test").and(rights("create,test")), rights("create,test"));
        assert_eq!(rights("read").and(rights("write")), Rights::default());
        assert_eq!(rights("read,write").and(rights("write,test")), rights("write"));
    }
}
