//! Flags of a copy that several hosts make together.

use std::str::FromStr;
use std::time::Duration;

use lfn_api::launcher::{LaunchedRank, find_rank};
use lfn_base::units::{Bytes, parse_unit_duration};
use lfn_session::wire::copy::ranks::{BlockAssignment, MAX_RANKS, RankRequest};

use crate::exit::Failure;

/// Default of `--patience` with ranks.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(120);

/// Flags of a copy that several hosts make together.
#[derive(clap::Args, Debug)]
#[command(next_help_heading = "Several hosts")]
pub struct RankFlags {
    /// Copy together with the other processes of this job (srun, mpirun, Kubernetes indexed jobs)
    ///
    /// The rank and the number of ranks come from the variables of the launcher. Give the number if the launcher sets
    /// none. All ranks send to one server, or receive from one server. The server assigns the blocks. Ranks that receive
    /// write into one destination, on a file system that all of them share.
    #[arg(long, value_name = "N", num_args = 0..=1, require_equals = true, value_parser = clap::value_parser!(u16).range(1..=i64::from(MAX_RANKS)))]
    ranks: Option<Option<u16>>,
    /// Copy as this rank, without a launcher; ranks count from 0: 3/8 is the fourth of eight
    #[arg(long, value_name = "RANK/RANKS", conflicts_with = "ranks")]
    rank: Option<TypedRank>,
    /// Place of this rank's file in the complete file, if each rank has a part of it
    #[arg(long, value_name = "BYTES")]
    offset: Option<Bytes>,
    /// Rule by which ranks get blocks
    #[arg(long, value_name = "RULE", value_enum, default_value = "on-demand")]
    assign: AssignmentRule,
    /// Wait this long for an absent rank, then give its blocks to the others or exit with 3; with --queue: for an absent
    /// server of the queue or for other movers, then exit with 3 [default: 2min, with --queue 10min]
    #[arg(long, value_name = "DURATION", value_parser = parse_unit_duration)]
    pub patience: Option<Duration>,
}

/// The rule by which ranks get blocks.
#[derive(clap::ValueEnum, Clone, Copy, Debug)]
enum AssignmentRule {
    /// The next blocks go to the rank that is ready for them
    OnDemand,
    /// Rank R of N gets the blocks R, R + N, R + 2N, and so on
    Staggered,
}

/// A rank given by hand.
#[derive(Clone, Copy, Debug)]
struct TypedRank {
    rank: u16,
    ranks: u16,
}

impl FromStr for TypedRank {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parse = |part: &str| part.parse::<u16>().ok();
        let Some((rank, ranks)) = text.split_once('/').and_then(|(rank, ranks)| parse(rank).zip(parse(ranks))) else {
            return Err("give two numbers, such as 3/8 for the fourth of eight".into());
        };
        if ranks == 0 || ranks > MAX_RANKS {
            return Err(format!("{ranks} ranks: at least 1 and at most {MAX_RANKS} can copy together"));
        }
        if rank >= ranks {
            return Err(format!("rank {rank} of {ranks}: ranks count from 0, so the highest is {}", ranks - 1));
        }
        Ok(TypedRank { rank, ranks })
    }
}

impl RankFlags {
    /// Returns the place of this process among the ranks. `None` if it copies alone.
    pub fn request(&self) -> Result<Option<RankRequest>, Failure> {
        let place = match (self.rank, self.ranks) {
            (Some(TypedRank { rank, ranks }), _) => LaunchedRank { rank, ranks, job: None },
            (None, Some(given)) => find_rank(given, |name| std::env::var(name).ok())
                .map_err(|error| Failure::usage(error.to_string()).hint(error.hint()))?,
            (None, None) if self.offset.is_some() => {
                return Err(Failure::usage("--offset is the place of a rank's part, but this copy has no ranks")
                    .hint("add --rank RANK/RANKS, or --ranks under srun or mpirun"));
            }
            (None, None) => return Ok(None),
        };
        let LaunchedRank { rank, ranks, job } = place;
        let assignment = match self.assign {
            AssignmentRule::OnDemand => BlockAssignment::OnDemand,
            AssignmentRule::Staggered => BlockAssignment::Staggered,
        };
        Ok(Some(RankRequest {
            rank,
            ranks,
            job,
            assignment,
            offset: self.offset,
            patience: self.patience.unwrap_or(DEFAULT_PATIENCE),
        }))
    }
}
