//! Settings that are the same for all ranks of a group.

use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::server::metrics::RankCounters;
use lfn_session::wire::copy::ranks::RankRequest;

use super::error::RankError;
use super::event::{Applicant, CommonOptions};

/// Settings of a group, from the request of its first rank.
#[derive(Clone, Debug)]
pub(super) struct GroupSettings {
    pub(super) request: RankRequest,
    pub(super) block: Bytes,
    pub(super) options: CommonOptions,
    /// Counters of the server.
    pub(super) counters: Arc<RankCounters>,
}

impl GroupSettings {
    /// Checks that an applicant has the settings of this group.
    pub(super) fn check<O>(&self, applicant: &Applicant<O>) -> Result<(), RankError> {
        let GroupSettings { request: known, block, options, .. } = self;
        let RankRequest { rank, ranks, job, offset, assignment, .. } = &applicant.request;
        let rank = *rank;
        if *ranks != known.ranks {
            return Err(RankError::OtherCount { rank, ranks: *ranks, known: known.ranks });
        }
        if *job != known.job {
            return Err(RankError::OtherJob { rank, job: job.clone(), known: known.job.clone() });
        }
        let other = |what, own: String, known: String| Err(RankError::OtherOption { rank, what, own, known });
        if applicant.block != *block {
            return other("--block-size", applicant.block.to_string(), block.to_string());
        }
        if *assignment != known.assignment {
            return other("--assign", format!("{assignment:?}"), format!("{:?}", known.assignment));
        }
        let (own, common) = (&applicant.options.transfer, &options.transfer);
        if own.verify != common.verify {
            return other("--verify", format!("{:?}", own.verify), format!("{:?}", common.verify));
        }
        if applicant.options != *options {
            return other("set of options", "those of its command line".into(), "theirs".into());
        }
        if offset.is_some() != known.offset.is_some() {
            let show = |offset: &Option<Bytes>| if offset.is_some() { "an --offset" } else { "no --offset" };
            return Err(RankError::MixedPieces {
                rank,
                own: show(offset),
                other: known.rank,
                known: show(&known.offset),
            });
        }
        Ok(())
    }
}
