//! Parsers of the kernel's files under `/proc`.
//!
//! Each function takes the text of one file and never fails: values that it cannot read are skipped. The layouts are
//! those of `proc(5)` and of `net/ipv4/proc.c`. Newer kernels add lines and columns, which are kept or ignored.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ProcessorTime, ThreadTime};

/// Counters of the network stack by group and name.
pub type CounterTable = BTreeMap<String, i64>;

/// Length of a clock tick in `/proc`: `USER_HZ` is 100 on every Linux.
const TICK: Duration = Duration::from_millis(10);

/// Parses `/proc/net/snmp` or `/proc/net/netstat`: pairs of lines with names and values, each starting with the name of
/// a group. A line without the other line of its pair is skipped.
pub fn parse_counters(text: &str) -> CounterTable {
    let mut table = CounterTable::new();
    for (names, values) in pairs(text) {
        let (Some((group, names)), Some((_, values))) = (names.split_once(':'), values.split_once(':')) else {
            continue;
        };
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                table.insert(format!("{group}.{name}"), value);
            }
        }
    }
    table
}

/// Returns consecutive lines of one group: the names and their values.
fn pairs(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let mut names = None;
    text.lines().filter_map(move |line| match names.take() {
        Some(before) if group(before).is_some() && group(before) == group(line) => Some((before, line)),
        _ => {
            names = Some(line);
            None
        }
    })
}

fn group(line: &str) -> Option<&str> {
    line.split_once(':').map(|(group, _)| group)
}

/// Returns these files without the lines of names, which are most of the text and do not change while a kernel runs.
pub fn counter_values(text: &str) -> String {
    pairs(text).flat_map(|(_, values)| [values, "\n"]).collect()
}

/// Parses the output of [`counter_values`] with the names of a whole file of the same kernel.
pub fn parse_counter_values(values: &str, whole_file: &str) -> CounterTable {
    let names = |values: &str| pairs(whole_file).find(|(names, _)| group(names) == group(values));
    let named = values.lines().filter_map(|values| Some((names(values)?.0, values)));
    let text: String = named.flat_map(|(names, values)| [names, "\n", values, "\n"]).collect();
    parse_counters(&text)
}

/// Parses one value of these files, without a table of all values.
pub fn parse_counter(text: &str, group: &str, name: &str) -> Option<i64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let at = lines.next()?.split_whitespace().position(|other| other == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// Values that are not counters: settings and current numbers.
const NOT_COUNTERS: [&str; 6] =
    ["Ip.Forwarding", "Ip.DefaultTTL", "Tcp.RtoAlgorithm", "Tcp.RtoMin", "Tcp.RtoMax", "Tcp.MaxConn"];

/// Returns the changes between two readings.
pub fn counter_changes(before: &CounterTable, now: &CounterTable) -> CounterTable {
    let grown = |(name, value): (&String, &i64)| {
        let growth = value.wrapping_sub(*before.get(name)?);
        (growth != 0 && !NOT_COUNTERS.contains(&name.as_str())).then(|| (name.clone(), growth))
    };
    now.iter().filter_map(grown).collect()
}

/// Parses the lines of single processors in `/proc/stat`.
pub fn parse_processor_times(text: &str) -> Vec<ProcessorTime> {
    text.lines().filter_map(processor).collect()
}

/// Parses `cpuN user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; `user` already includes
/// guests.
fn processor(line: &str) -> Option<ProcessorTime> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let processor = words.next()?.parse().ok()?;
    // The line of all processors together has no number: "cpu  1 2 3" would be read as processor 1.
    if line.as_bytes().get(3) == Some(&b' ') {
        return None;
    }
    let ticks: Vec<u64> = words.map_while(|word| word.parse().ok()).collect();
    let time = |place: usize| tick(ticks.get(place).copied().unwrap_or(0));
    (ticks.len() >= 4).then(|| ProcessorTime {
        processor,
        user: time(0) + time(1),
        system: time(2),
        idle: time(3) + time(4),
        softirq: time(5) + time(6),
        stolen: time(7),
        receive_interrupts: None,
        transmit_interrupts: None,
    })
}

/// Adds the counts of `/proc/softirqs` to the processors. The file's columns have the names of the present processors.
pub fn add_softirqs(text: &str, processors: &mut [ProcessorTime]) {
    let mut lines = text.lines();
    let Some(head) = lines.next() else { return };
    let numbers: Vec<u32> = head.split_whitespace().map_while(|word| word.strip_prefix("CPU")?.parse().ok()).collect();
    for line in lines {
        let Some((name, counts)) = line.split_once(':') else { continue };
        for (number, count) in numbers.iter().zip(counts.split_whitespace()) {
            let (Ok(count), Some(processor)) =
                (count.parse(), processors.iter_mut().find(|processor| processor.processor == *number))
            else {
                continue;
            };
            match name.trim() {
                "NET_RX" => processor.receive_interrupts = Some(count),
                "NET_TX" => processor.transmit_interrupts = Some(count),
                _ => {}
            }
        }
    }
}

/// Parses `/proc/self/task/TID/stat`. The name in parentheses may contain anything, so the fields after the last
/// parenthesis count.
pub fn parse_thread_time(stat: &str) -> Option<ThreadTime> {
    // The first field here is field 3 of proc(5): utime is 14, stime 15, processor 39.
    let fields: Vec<&str> = stat.rsplit_once(')')?.1.split_whitespace().collect();
    let number = |place: usize| fields.get(place - 3)?.parse::<u64>().ok();
    Some(ThreadTime {
        processor: u32::try_from(number(39)?).ok()?,
        user: tick(number(14)?),
        system: tick(number(15)?),
        waited: None,
        migrations: None,
    })
}

/// Applies `/proc/self/task/TID/schedstat`: nanoseconds that the thread ran and waited for a processor. The run time is
/// exact and the ticks are not, so the ticks only divide it into user and system time. Without a valid file, `thread`
/// stays unchanged.
pub fn apply_schedstat(schedstat: &str, thread: &mut ThreadTime) {
    let mut words = schedstat.split_whitespace().map_while(|word| word.parse().ok()).map(Duration::from_nanos);
    let (Some(ran), Some(waited)) = (words.next(), words.next()) else { return };
    let ticks = thread.ran();
    let user = if ticks.is_zero() { 0.0 } else { thread.user.as_secs_f64() / ticks.as_secs_f64() };
    thread.user = ran.mul_f64(user);
    thread.system = ran.saturating_sub(thread.user);
    thread.waited = Some(waited);
}

/// Parses the migrations of a thread in `/proc/self/task/TID/sched`, if the kernel has the file.
pub fn parse_migrations(sched: &str) -> Option<u64> {
    let line = sched.lines().find(|line| line.starts_with("se.nr_migrations"))?;
    line.rsplit_once(':')?.1.trim().parse().ok()
}

fn tick(count: u64) -> Duration {
    TICK.saturating_mul(u32::try_from(count).unwrap_or(u32::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    const SNMP: &str = "Ip: Forwarding DefaultTTL InReceives\nIp: 2 64 29247769\n\
        Tcp: RtoAlgorithm RtoMin RtoMax MaxConn ActiveOpens RetransSegs\nTcp: 1 200 120000 -1 22 741\n";

    #[test]
    fn counters_are_parsed_by_name() {
        let table = parse_counters(SNMP);
        assert_eq!((table["Tcp.RetransSegs"], table["Tcp.MaxConn"], table["Ip.InReceives"]), (741, -1, 29_247_769));
        assert_eq!(table.len(), 9);
        assert_eq!(
            (parse_counter(SNMP, "Tcp", "RetransSegs"), parse_counter(SNMP, "Ip", "InReceives")),
            (Some(741), Some(29_247_769))
        );
        assert_eq!(
            (
                parse_counter(SNMP, "Tcp", "InReceives"),
                parse_counter(SNMP, "Udp", "A"),
                parse_counter("Tcp: A\n", "Tcp", "A")
            ),
            (None, None, None)
        );
        // A line without its pair, groups that do not match, and words that are not numbers.
        assert_eq!(parse_counters("Tcp: A B\nUdp: 1 2\nTcp: A\n"), CounterTable::new());
        assert_eq!(parse_counters("Tcp: A B\nTcp: x 2 3\n").into_iter().collect::<Vec<_>>(), [("Tcp.B".to_owned(), 2)]);
        assert_eq!(parse_counters("nonsense\n\n::\n"), CounterTable::new());
    }

    #[test]
    fn missing_lines_hide_only_their_group() {
        let whole = "Ip: A\nIp: 1\nIcmp: B\nIcmp: 2\nTcp: C D\nTcp: 3 4\nUdp: E\nUdp: 5\n";
        let lines: Vec<&str> = whole.lines().collect();
        let all = parse_counters(whole);
        assert_eq!(all.len(), 5);
        for missing in 0..lines.len() {
            let kept = lines.iter().enumerate().filter(|(at, _)| *at != missing);
            let text: String = kept.flat_map(|(_, line)| [line, "\n"]).collect();
            let group = lines[missing].split(':').next().unwrap();
            let mut expected = all.clone();
            expected.retain(|name, _| !name.starts_with(group));
            assert_eq!(parse_counters(&text), expected, "without {}", lines[missing]);
            assert_eq!(parse_counter_values(&counter_values(&text), whole), expected);
            assert_eq!(parse_counter_values(&counter_values(whole), &text), expected);
        }
        assert!(parse_counters("").is_empty() && parse_counters("no colon\nno colon\n").is_empty());
    }

    #[test]
    fn only_changed_counters_are_returned() {
        let later = SNMP.replace("22 741", "22 750").replace("120000", "60000");
        let grown = counter_changes(&parse_counters(SNMP), &parse_counters(&later));
        assert_eq!(grown.into_iter().collect::<Vec<_>>(), [("Tcp.RetransSegs".to_owned(), 9)]);
        // A counter of the later reading only has no known change.
        assert_eq!(counter_changes(&CounterTable::new(), &parse_counters(SNMP)), CounterTable::new());
    }

    const STAT: &str = "cpu  24 1 7 23 10 0 11 2 0 0\ncpu0 1235 564 346 1237 26 3 58 54 0 0\n\
        cpu11 5 0 0 6\ncpu3 1 2 3\nintr 136188314 0\nctxt 7\n";

    #[test]
    fn line_of_all_processors_is_skipped() {
        let times = parse_processor_times(STAT);
        assert_eq!(times.iter().map(|time| time.processor).collect::<Vec<_>>(), [0, 11]);
        let ms = Duration::from_millis;
        assert_eq!((times[0].user, times[0].system, times[0].softirq), (ms(17_990), ms(3460), ms(610)));
        assert_eq!((times[0].idle, times[0].stolen), (ms(12_630), ms(540)));
        assert_eq!((times[1].user, times[1].softirq), (ms(50), ms(0)), "the short line of an old kernel");
    }

    #[test]
    fn softirqs_are_assigned_by_column() {
        let mut times = parse_processor_times(STAT);
        add_softirqs("       CPU0       CPU11\n HI: 0 0\n NET_TX: 5 6\n NET_RX: 7 8\n", &mut times);
        let counts = |time: &ProcessorTime| (time.transmit_interrupts, time.receive_interrupts);
        assert_eq!(times.iter().map(counts).collect::<Vec<_>>(), [(Some(5), Some(7)), (Some(6), Some(8))]);
        add_softirqs("", &mut times);
        add_softirqs("CPU0\nNET_RX: x\nnonsense", &mut times);
        assert_eq!(times[0].receive_interrupts, Some(7));
    }

    #[test]
    fn thread_with_any_name_is_parsed() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 50 150 0 0 20 0 1 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0";
        let mut thread = parse_thread_time(&format!("77 (a) R 1 (x)) {rest}")).unwrap();
        assert_eq!((thread.user, thread.system), (Duration::from_millis(500), Duration::from_millis(1500)));
        assert_eq!(thread.processor, 1);
        apply_schedstat("2040000000 500000000 77\n", &mut thread);
        assert_eq!((thread.user, thread.system), (Duration::from_millis(510), Duration::from_millis(1530)));
        assert_eq!(thread.waited, Some(Duration::from_millis(500)));
        apply_schedstat("0", &mut thread);
        assert_eq!(thread.waited, Some(Duration::from_millis(500)), "a truncated file changes nothing");
        assert_eq!(parse_thread_time("77 (short) S 1 2"), None);
        assert_eq!(parse_thread_time(""), None);
    }

    #[test]
    fn migrations_are_parsed_if_present() {
        let sched = "cat (26946, #threads: 1)\n---\nse.vruntime    :   255.9\nse.nr_migrations    :    12\n";
        assert_eq!(parse_migrations(sched), Some(12));
        assert_eq!(parse_migrations("se.vruntime : 1\n"), None);
    }
}
