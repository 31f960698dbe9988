//! Events of a running examination.

use std::time::Duration;

use lfn_measure::tester::TestProgress;
use lfn_results::evidence::Side;
use lfn_results::measure::TestDirection;
use lfn_results::report::{Origin, PlannedLoad, Unseen};

/// Event of a running examination.
#[derive(Debug)]
pub enum DoctorEvent<'a> {
    /// The options are valid. The name of the server is preliminary if a ticket selects the server.
    Started(&'a Origin),
    /// The server is found: its name, the RTT of the handshake, and the load that follows.
    Planned { far: &'a str, rtt: Duration, load: &'a PlannedLoad },
    /// A part of the examination begins; its progress follows.
    Begin(DoctorPart),
    /// The load of the running part has new figures.
    Progress(&'a TestProgress<'a>),
    /// A part has no result.
    Unseen(&'a Unseen),
}

/// Part of an examination.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DoctorPart {
    /// Facts of both hosts, and the path MTU of both directions.
    Facts,
    /// TCP load in one direction.
    Load(TestDirection),
    /// Trains of datagrams in one direction.
    Trains(TestDirection),
    /// Trains of datagrams in both directions at the same time.
    BothTrains,
    /// Reads and writes of a disk.
    Disk(Side),
}

impl DoctorPart {
    /// Returns the part in words.
    pub fn name(self) -> &'static str {
        match self {
            DoctorPart::Facts => "hosts and path MTU",
            DoctorPart::Load(TestDirection::Forward) => "TCP from near to far",
            DoctorPart::Load(TestDirection::Reverse) => "TCP from far to near",
            DoctorPart::Trains(TestDirection::Forward) => "datagrams from near to far",
            DoctorPart::Trains(TestDirection::Reverse) => "datagrams from far to near",
            DoctorPart::BothTrains => "datagrams in both directions",
            DoctorPart::Disk(Side::Near) => "disk of near",
            DoctorPart::Disk(Side::Far) => "disk of far",
        }
    }

    /// Returns what the result does not show without this part.
    pub(super) fn consequence(self) -> &'static str {
        match self {
            DoctorPart::Facts => "settings and limits of the hosts are found only by their effects",
            DoctorPart::Disk(_) => "a copy may be slower than the path",
            DoctorPart::Load(_) => "the limit of this direction is unknown",
            DoctorPart::Trains(_) | DoctorPart::BothTrains => {
                "a policer, a shaper, random loss and a short queue have the same signs"
            }
        }
    }

    /// Returns the entry of a part without a result.
    pub(super) fn unseen(self, reason: String) -> Unseen {
        Unseen { part: self.name().to_owned(), reason, consequence: self.consequence().to_owned() }
    }
}
