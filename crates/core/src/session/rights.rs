//! What the bearer of a token may do, and what a server lets anybody do: words that are combined, never widened.
//!
//! Rights of a session are those that both its token and its server give. To write is ordered: not at all, into a drop
//! box where nothing that is there can be touched or learnt of, or anywhere below the root.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// What may be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Writing {
    /// Nothing.
    #[default]
    No,
    /// New files, into a directory of the session's own.
    Drop,
    /// Files and directories below the root.
    Yes,
}

/// What somebody may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Load the path.
    pub test: bool,
    /// List and fetch what is below the root.
    pub read: bool,
    /// Store below the root.
    pub write: Writing,
}

/// Why text names no rights.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RightsError {
    /// No word of ours.
    #[error("unknown right '{0}': expected read, write, drop or test, with commas between")]
    Unknown(String),
    /// A drop box is for who may neither read nor write otherwise.
    #[error("drop does not go with read or write")]
    Drop,
    /// Nothing at all.
    #[error("no rights: expected read, write, drop or test, with commas between")]
    None,
}

impl Rights {
    /// Everything.
    pub const ALL: Rights = Rights { test: true, read: true, write: Writing::Yes };

    /// What both give.
    pub fn and(self, other: Rights) -> Rights {
        Rights { test: self.test && other.test, read: self.read && other.read, write: self.write.min(other.write) }
    }
}

impl fmt::Display for Rights {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let write = match self.write {
            Writing::No => None,
            Writing::Drop => Some("drop"),
            Writing::Yes => Some("write"),
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
        let mut drop = false;
        for word in text.split(',').map(str::trim).filter(|word| !word.is_empty()) {
            match word {
                "read" => rights.read = true,
                "write" => rights.write = Writing::Yes,
                "drop" => drop = true,
                "test" => rights.test = true,
                other => return Err(RightsError::Unknown(other.to_owned())),
            }
        }
        match drop {
            true if rights.read || rights.write == Writing::Yes => return Err(RightsError::Drop),
            true => rights.write = Writing::Drop,
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
    fn text_survives_and_nonsense_is_named() {
        for text in ["read,write,test", "read", "write", "drop", "drop,test", "test"] {
            assert_eq!(rights(text).to_string(), text);
        }
        assert_eq!(rights("test, read,"), rights("read,test"));
        assert_eq!("read,all".parse::<Rights>(), Err(RightsError::Unknown("all".into())));
        assert_eq!("drop,read".parse::<Rights>(), Err(RightsError::Drop));
        assert_eq!("write,drop".parse::<Rights>(), Err(RightsError::Drop));
        assert_eq!(" ,".parse::<Rights>(), Err(RightsError::None));
    }

    #[test]
    fn two_together_give_no_more_than_either() {
        assert_eq!(Rights::ALL.and(rights("drop")), rights("drop"));
        assert_eq!(rights("write,test").and(rights("drop,test")), rights("drop,test"));
        assert_eq!(rights("read").and(rights("write")), Rights::default());
        assert_eq!(rights("read,write").and(rights("write,test")), rights("write"));
    }
}
