//! Kinds of faults during a copy.

use std::fmt;

/// One kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    ClientKilled,
    ServerKilled,
    ServerRestarted,
    Outage,
    Reset,
    Corruption,
    DiskFull,
    SourceTruncated,
    SourceGrown,
    SourceReplaced,
    SourceRewritten,
    ClockJump,
    TimesJump,
    JournalTorn,
    JournalForged,
    PartialMeddled,
    TwoCopies,
    StripeCut,
    RankKilled,
    RankReturns,
    RankTwice,
    RankFrozen,
    RankPartLost,
}

impl Fault {
    pub const ALL: [Fault; 23] = [
        Fault::ClientKilled,
        Fault::ServerKilled,
        Fault::ServerRestarted,
        Fault::Outage,
        Fault::Reset,
        Fault::Corruption,
        Fault::DiskFull,
        Fault::SourceTruncated,
        Fault::SourceGrown,
        Fault::SourceReplaced,
        Fault::SourceRewritten,
        Fault::ClockJump,
        Fault::TimesJump,
        Fault::JournalTorn,
        Fault::JournalForged,
        Fault::PartialMeddled,
        Fault::TwoCopies,
        Fault::StripeCut,
        Fault::RankKilled,
        Fault::RankReturns,
        Fault::RankTwice,
        Fault::RankFrozen,
        Fault::RankPartLost,
    ];

    /// Returns whether the fault changes the source.
    pub fn changes_source(self) -> bool {
        use Fault::{SourceGrown, SourceReplaced, SourceRewritten, SourceTruncated};
        matches!(self, SourceTruncated | SourceGrown | SourceReplaced | SourceRewritten)
    }

    /// Returns whether the fault changes the remains of the interrupted copy.
    pub fn changes_remains(self) -> bool {
        matches!(self, Fault::TimesJump | Fault::JournalTorn | Fault::JournalForged | Fault::PartialMeddled)
    }

    /// Returns whether the fault concerns one of several ranks.
    pub fn has_ranks(self) -> bool {
        use Fault::{RankFrozen, RankKilled, RankPartLost, RankReturns, RankTwice};
        matches!(self, RankKilled | RankReturns | RankTwice | RankFrozen | RankPartLost)
    }

    /// Returns whether the fault kills the client.
    pub fn kills_client(self) -> bool {
        self == Fault::ClientKilled || self.changes_remains()
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Fault::ClientKilled => "kill -9 of the client",
            Fault::ServerKilled => "kill -9 of the server, which comes back",
            Fault::ServerRestarted => "server stopped and started again",
            Fault::Outage => "nothing passes for a while",
            Fault::Reset => "every connection reset",
            Fault::Corruption => "bits flipped, checksums right",
            Fault::DiskFull => "destination full, then not",
            Fault::SourceTruncated => "source truncated",
            Fault::SourceGrown => "source grown",
            Fault::SourceReplaced => "source replaced",
            Fault::SourceRewritten => "source rewritten at the same length",
            Fault::ClockJump => "wall clock jumps by days or years",
            Fault::TimesJump => "times of what is left jump by years",
            Fault::JournalTorn => "kill -9 and a torn journal",
            Fault::JournalForged => "kill -9 and a journal with wrong bytes",
            Fault::PartialMeddled => "kill -9, then another program writes to the partial file",
            Fault::TwoCopies => "two copies into one destination",
            Fault::StripeCut => "one of two stripes cut and repaired",
            Fault::RankKilled => "kill -9 of one of three ranks",
            Fault::RankReturns => "kill -9 of a rank, which comes back",
            Fault::RankTwice => "two ranks with the same number",
            Fault::RankFrozen => "a rank stopped for longer than its time-out",
            Fault::RankPartLost => "kill -9 of a rank that alone has its part",
        })
    }
}
