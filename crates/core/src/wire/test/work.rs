//! How the bytes of a test are made, moved and looked at: what the loops at both ends are to do with them.

use std::fmt;

use serde::{Deserialize, Serialize};

/// How an end moves payload. Figures of different modes are of different work: no comparison mixes them.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Mode {
    /// As most programs do: the kernel copies what is written, and what is read.
    #[default]
    Copying,
    /// The sender hands over pages (`sendfile`), the receiver takes bytes off the queue unread (`MSG_TRUNC`).
    NoCopy,
}

/// How each end moves payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Modes {
    /// The client.
    pub near: Mode,
    /// The server.
    pub far: Mode,
}

impl fmt::Display for Modes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = |mode| if mode == Mode::NoCopy { "no copy" } else { "copying" };
        match (name(self.near), name(self.far)) {
            (near, far) if near == far => f.write_str(near),
            (near, far) => write!(f, "{near} near and {far} far"),
        }
    }
}

/// What payload consists of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub enum Data {
    /// Bytes that do not compress: a compressing tunnel would make a path of its own of anything else.
    #[default]
    Random,
    /// Zeros.
    Zero,
}

/// What a receiver found that looked at every byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(test, derive(schemars::JsonSchema))]
pub struct Check {
    /// Bytes looked at.
    pub checked_bytes: u64,
    /// Of them not what was sent at their place.
    pub wrong_bytes: u64,
    /// Where the first of those stands in its stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wrong_offset: Option<u64>,
}

impl Check {
    /// Takes in what was found at `offset`: of `length` bytes `wrong`, the first of them `first` bytes in.
    pub fn add(&mut self, offset: u64, length: usize, found: Option<(usize, usize)>) {
        self.checked_bytes += length as u64;
        if let Some((first, wrong)) = found {
            self.wrong_bytes += wrong as u64;
            self.first_wrong_offset.get_or_insert(offset + first as u64);
        }
    }
}
