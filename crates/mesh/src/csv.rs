//! Entries as a table: one row for each entry (RFC 4180). Unknown values are empty.

use std::time::Duration;

use lfn_base::date;

use crate::entry::Entry;

/// Names of the columns with their units.
const COLUMNS: &str = "from,to,kind,time,test,duration_seconds,bytes,goodput_bits_per_second,\
     predicted_goodput_bits_per_second,capacity_bits_per_second,base_rtt_seconds,rtt_seconds,max_rtt_seconds,\
     one_way_delay_seconds,packets,lost_packets,retransmits,hops,outcome,verdict,findings,conditions,own_load,maintenance,\
     clock,imported,error";

/// Returns the header row.
pub fn csv_header() -> String {
    format!("{COLUMNS}\r\n")
}

/// Returns the row of an entry. Hops, findings and conditions are lists in one cell.
pub fn csv_row(entry: &Entry) -> String {
    let number = |value: Option<u64>| value.map(|value| value.to_string()).unwrap_or_default();
    let seconds = |time: Option<Duration>| time.map(|time| time.as_secs_f64().to_string()).unwrap_or_default();
    let flag = |value: bool| value.to_string();
    let hops = entry.hops.iter().map(|hop| if hop.is_empty() { "*" } else { hop }).collect::<Vec<_>>().join(" ");
    let findings = entry.findings.iter().map(|finding| finding.name.as_str()).collect::<Vec<_>>().join(" ");
    let conditions = entry.conditions.iter().map(|(name, value)| format!("{name}={value}"));
    let cells = [
        entry.from.clone(),
        entry.to.clone(),
        entry.kind.name().to_owned(),
        date::rfc3339(entry.time),
        entry.test.clone(),
        seconds(entry.duration),
        number(entry.bytes.map(|bytes| bytes.0)),
        number(entry.goodput.map(|rate| rate.0)),
        number(entry.predicted.map(|rate| rate.0)),
        number(entry.capacity.map(|rate| rate.0)),
        seconds(entry.base_rtt),
        seconds(entry.rtt),
        seconds(entry.max_rtt),
        seconds(entry.one_way_delay),
        number(entry.packets),
        number(entry.lost_packets),
        number(entry.retransmits),
        hops,
        entry.outcome.name().to_owned(),
        entry.verdict.clone(),
        findings,
        conditions.collect::<Vec<_>>().join("; "),
        flag(entry.marks.own_load),
        flag(entry.marks.maintenance),
        flag(entry.marks.clock),
        flag(entry.marks.imported),
        entry.error.clone().unwrap_or_default(),
    ];
    cells.map(|text| cell(&text)).join(",") + "\r\n"
}

/// Quotes a cell if it needs quotes.
fn cell(text: &str) -> String {
    if text.contains([',', '"', '\n', '\r']) { format!("\"{}\"", text.replace('"', "\"\"")) } else { text.to_owned() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::entry::EntryKind;

    #[test]
    fn row_has_a_cell_for_each_column() {
        let mut entry = Entry::new(EntryKind::Path, "a", "b", Duration::from_secs(1));
        entry.hops = vec!["192.0.2.1".into(), String::new()];
        let row = csv_row(&entry);
        assert_eq!(row.matches(',').count(), COLUMNS.matches(',').count());
        assert!(row.starts_with("a,b,path,1970-01-01T00:00:01.000Z,") && row.contains("192.0.2.1 *"), "{row}");
    }

    #[test]
    fn commas_and_quotes_are_quoted() {
        let entry = Entry { verdict: "1, \"2\"".into(), ..Entry::new(EntryKind::Load, "a", "b", Duration::ZERO) };
        assert!(csv_row(&entry).contains(",\"1, \"\"2\"\"\","));
    }
}
