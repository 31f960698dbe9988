//! FQ-CoDel (RFC 8290): a queue for every flow, served in turn, each under CoDel.

use std::fmt;

use super::codel::CoDel;
use super::settings::{DisciplineError, whole};
use crate::link::setting::{Parts, SettingError};
use crate::units::Bytes;

/// What FQ-CoDel is set to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FqCoDel {
    /// Of every flow's queue.
    pub codel: CoDel,
    /// How many queues there are: flows are hashed onto them.
    pub flows: u32,
    /// Bytes that a flow may send in its turn, counted as the line counts them. With a large quantum more packets of a
    /// super-packet stay together.
    pub quantum: Bytes,
}

impl Default for FqCoDel {
    /// 1,024 queues and a quantum of one Ethernet packet (RFC 8290 §5.2).
    fn default() -> Self {
        FqCoDel { codel: CoDel::default(), flows: 1024, quantum: Bytes(1514) }
    }
}

impl FqCoDel {
    pub(super) const FORM: &'static str = "fq-codel:flows=1024:quantum=1514:target=5ms:interval=100ms";
    /// As many as the kernel allows.
    pub(super) const MOST_FLOWS: u32 = 65_536;
    pub(super) const LEAST_QUANTUM: Bytes = Bytes(256);
    pub(super) const MOST_QUANTUM: Bytes = Bytes(16 << 20);

    pub(super) fn read(parts: &mut Parts) -> Result<Self, SettingError> {
        let default = FqCoDel::default();
        let flows = |text: &str| whole(text, text, "number of flows", "1024");
        Ok(FqCoDel {
            codel: CoDel::read(parts)?,
            flows: parts.key("flows", flows)?.unwrap_or(default.flows),
            quantum: parts.key("quantum", str::parse)?.unwrap_or(default.quantum),
        })
    }

    pub(super) fn check(&self) -> Result<(), DisciplineError> {
        if !(1..=Self::MOST_FLOWS).contains(&self.flows) {
            return Err(DisciplineError::Flows(self.flows));
        }
        if !(Self::LEAST_QUANTUM..=Self::MOST_QUANTUM).contains(&self.quantum) {
            return Err(DisciplineError::Quantum(self.quantum));
        }
        self.codel.check()
    }
}

impl fmt::Display for FqCoDel {
    /// The parameters as typed, each behind a colon, without what is the default.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let default = FqCoDel::default();
        if self.flows != default.flows {
            write!(f, ":flows={}", self.flows)?;
        }
        if self.quantum != default.quantum {
            write!(f, ":quantum={}", self.quantum.0)?;
        }
        self.codel.fmt(f)
    }
}
