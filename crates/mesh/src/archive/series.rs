//! The points of a line, without the texts of their entries.

use std::time::Duration;

use lfn_base::units::BitRate;
use rusqlite::{Row, params};

use super::row::{kind_number, marks_of, milliseconds, of_milliseconds};
use super::{Archive, ArchiveError};
use crate::entry::EntryKind;
use crate::entry::point::Point;

impl Archive {
    /// Returns the points of a pair and kind since a time, in order, and at most the `limit` newest ones.
    pub fn series(
        &mut self,
        from: &str,
        to: &str,
        kind: EntryKind,
        since: Duration,
        limit: usize,
    ) -> Result<Vec<Point>, ArchiveError> {
        let Archive { connection, dictionary, .. } = self;
        let mut read = || {
            let Some(pair) = dictionary.find_pair(connection, from, to)? else { return Ok(Vec::new()) };
            let mut statement = connection.prepare_cached(
                "SELECT time, goodput, predicted, base_rtt, rtt, packets, lost, marks, conditions FROM result \
                 WHERE pair = $1 AND kind = $2 AND time >= $3 ORDER BY time DESC LIMIT $4",
            )?;
            let limit = i64::try_from(limit).unwrap_or(i64::MAX);
            let rows = statement.query_map(params![pair, kind_number(kind), milliseconds(since), limit], point)?;
            let mut points = rows.collect::<rusqlite::Result<Vec<Point>>>()?;
            points.reverse();
            Ok(points)
        };
        let points = read();
        points.map_err(|error| self.failed(error))
    }
}

fn point(row: &Row<'_>) -> rusqlite::Result<Point> {
    let number = |column| -> rusqlite::Result<Option<u64>> {
        Ok(row.get::<_, Option<i64>>(column)?.map(|number| u64::try_from(number).unwrap_or(0)))
    };
    Ok(Point {
        time: of_milliseconds(row.get(0)?),
        goodput: number(1)?.map(BitRate),
        predicted: number(2)?.map(BitRate),
        base_rtt: number(3)?.map(Duration::from_micros),
        rtt: number(4)?.map(Duration::from_micros),
        packets: number(5)?,
        lost_packets: number(6)?,
        marks: marks_of(row.get(7)?),
        conditions: row.get(8)?,
    })
}

#[cfg(test)]
mod tests {
    use crate::entry::{Entry, Marks};

    use super::*;

    #[test]
    fn series_has_the_newest_points_in_order() {
        let directory = tempfile::tempdir().unwrap();
        let mut archive = Archive::open(&directory.path().join("a.db")).unwrap();
        let entry = |seconds: u64, wscale: &str| Entry {
            goodput: Some(BitRate(seconds)),
            conditions: [("wscale".to_owned(), wscale.to_owned())].into(),
            marks: Marks { own_load: seconds == 3, ..Marks::default() },
            ..Entry::new(EntryKind::Load, "a", "b", Duration::from_secs(seconds))
        };
        let entries = [entry(1, "7"), entry(2, "7"), entry(3, "0"), entry(4, "7")];
        archive.insert(&entries, Duration::from_secs(10)).unwrap();
        let mut series = |since, limit| {
            let since = Duration::from_secs(since);
            archive.series("a", "b", EntryKind::Load, since, limit).unwrap()
        };
        let rates = |points: &[Point]| points.iter().map(|point| point.goodput.unwrap().0).collect::<Vec<_>>();
        let points = series(2, 100);
        assert_eq!((rates(&points), rates(&series(0, 2))), (vec![2, 3, 4], vec![3, 4]));
        assert!(points[1].marks.own_load && points[0].conditions != points[1].conditions);
        assert!(points[0].conditions == points[2].conditions && points[0].conditions.is_some());
        assert_eq!(archive.series("b", "a", EntryKind::Load, Duration::ZERO, 9).unwrap(), []);
    }
}
