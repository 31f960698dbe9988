//! Link settings by name, each set or not set.
//!
//! A [`LinkSettings`] holds the settings of one direction, a [`HopSettings`] those of both. Profiles, flags and changes
//! to a running link are such records. Later records override earlier ones, and [`EmulatedPath::new`] creates
//! [`LinkConfig`](super::LinkConfig)s from the result. One table, [`KEYS`], has the names; the flags, the reference and
//! the hints of errors come from this table. Values are text without commas or spaces, so they have the same form in a
//! flag, in TOML and on a socket. No code here reads a file: the caller provides the text of files.

mod emulated;
mod error;
mod hop_settings;
mod keys;
mod link_settings;

pub use emulated::EmulatedPath;
pub use error::{MAX_MTU, MIN_MTU, SettingsError, SettingsHint, nearest_word};
pub use hop_settings::HopSettings;
pub use keys::KEYS;
pub use link_settings::{ImpairmentSettings, LinkSettings};

pub use super::key::{Group, Key};
