//! Generation, transport and verification of a test's payload.

use std::fmt;

use serde::{Deserialize, Serialize};

/// Method that moves the payload at one end. Figures of different methods are never compared.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum Mode {
    /// Like most programs: the kernel copies written and read data.
    #[default]
    Copying,
    /// The sender passes pages (`sendfile`), and the receiver discards bytes in the kernel (`MSG_TRUNC`).
    NoCopy,
}

/// Method that moves the payload at each end.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Modes {
    /// Method of the client.
    pub near: Mode,
    /// Method of the server.
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

/// Content of the payload.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub enum PayloadData {
    /// Bytes that do not compress. Other content would be faster through a compressing tunnel.
    #[default]
    Random,
    /// Zero bytes, which compress well.
    Zero,
}

/// Result of a receiver that checks every byte.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct PayloadCheck {
    /// Bytes that were checked.
    pub checked_bytes: u64,
    /// Checked bytes that differ from the sent bytes.
    pub wrong_bytes: u64,
    /// Position of the first wrong byte in its stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub first_wrong_offset: Option<u64>,
}

impl PayloadCheck {
    /// Adds the result for `length` bytes at `offset`. `found` holds the position of the first wrong byte and the count
    /// of wrong bytes.
    pub fn add(&mut self, offset: u64, length: usize, found: Option<(usize, usize)>) {
        self.checked_bytes += length as u64;
        if let Some((first, wrong)) = found {
            self.wrong_bytes += wrong as u64;
            self.first_wrong_offset.get_or_insert(offset + first as u64);
        }
    }
}
