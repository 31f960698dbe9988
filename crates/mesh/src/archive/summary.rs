//! Figures of days, and of the whole archive.

use std::time::Duration;

use lfn_base::units::{BitRate, Bytes};
use rusqlite::{Row, params};

use super::insert::DAY_MILLISECONDS;
use super::row::{kind_number, milliseconds};
use super::{Archive, ArchiveError};
use crate::entry::EntryKind;

/// Figures of one day (UTC) of one pair and kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySummary {
    /// First moment of the day: time since 1970.
    pub day: Duration,
    /// Number of all entries.
    pub entries: u64,
    /// Number of measurements that failed.
    pub failed: u64,
    /// Minimum goodput; `None` without a measured goodput.
    pub goodput_min: Option<BitRate>,
    /// Mean goodput of the measurements.
    pub goodput_mean: Option<BitRate>,
    /// Maximum goodput of the day.
    pub goodput_max: Option<BitRate>,
    /// Minimum RTT of the day.
    pub base_rtt: Option<Duration>,
    /// Number of packets sent.
    pub packets: u64,
    /// Number of packets lost.
    pub lost_packets: u64,
    /// Payload of the loads.
    pub bytes: Bytes,
}

/// Size of an archive.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ArchiveCounts {
    /// Number of all entries.
    pub entries: u64,
    /// Number of pairs with entries.
    pub pairs: u64,
    /// Pages of the file in use, in bytes.
    pub bytes: Bytes,
}

impl Archive {
    /// Returns the days of a pair and kind from `since` to before `until`, in order. Days without entries are absent.
    pub fn days(
        &mut self,
        from: &str,
        to: &str,
        kind: EntryKind,
        since: Duration,
        until: Duration,
    ) -> Result<Vec<DaySummary>, ArchiveError> {
        let Archive { connection, dictionary, .. } = self;
        let mut read = || {
            let Some(pair) = dictionary.find_pair(connection, from, to)? else { return Ok(Vec::new()) };
            let mut statement = connection.prepare_cached(
                "SELECT day, entries, failed, measured, goodput_min, goodput_sum, goodput_max, base_rtt, packets, lost, \
                 bytes FROM day WHERE pair = $1 AND kind = $2 AND day >= $3 AND day < $4 ORDER BY day",
            )?;
            let (first, end) = (
                milliseconds(since) / DAY_MILLISECONDS,
                milliseconds(until).saturating_add(DAY_MILLISECONDS - 1) / DAY_MILLISECONDS,
            );
            let days = statement.query_map(params![pair, kind_number(kind), first, end], summary_of)?;
            days.collect()
        };
        let days = read();
        days.map_err(|error| self.failed(error))
    }

    /// Returns the size of the archive.
    pub fn counts(&self) -> Result<ArchiveCounts, ArchiveError> {
        let read = || {
            let number = |sql: &str| self.connection.prepare_cached(sql)?.query_row([], |row| row.get::<_, i64>(0));
            let pragma = |name| self.connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0));
            Ok(ArchiveCounts {
                // The table of days counts every entry once, and is small.
                entries: unsigned(number("SELECT coalesce(sum(entries), 0) FROM day")?),
                pairs: unsigned(number("SELECT count(*) FROM pair")?),
                bytes: Bytes(unsigned(pragma("page_count")? * pragma("page_size")?)),
            })
        };
        read().map_err(|error| self.failed(error))
    }
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

fn summary_of(row: &Row<'_>) -> rusqlite::Result<DaySummary> {
    let number = |column| row.get::<_, i64>(column).map(unsigned);
    let rate =
        |column| Ok::<_, rusqlite::Error>(row.get::<_, Option<i64>>(column)?.map(|rate| BitRate(unsigned(rate))));
    let (measured, sum) = (number(3)?, number(5)?);
    Ok(DaySummary {
        day: Duration::from_secs(number(0)? * 86_400),
        entries: number(1)?,
        failed: number(2)?,
        goodput_min: rate(4)?,
        goodput_mean: sum.checked_div(measured).map(BitRate),
        goodput_max: rate(6)?,
        base_rtt: row.get::<_, Option<i64>>(7)?.map(|rtt| Duration::from_micros(unsigned(rtt))),
        packets: number(8)?,
        lost_packets: number(9)?,
        bytes: Bytes(number(10)?),
    })
}
