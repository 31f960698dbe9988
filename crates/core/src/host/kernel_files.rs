//! The text of the kernel's files under `/proc`, as figures.
//!
//! Each function takes the text of one file and never fails: what it cannot make out is left out. The layouts are those
//! of `proc(5)` and of `net/ipv4/proc.c`; newer kernels add lines and columns, which are carried or passed over.

use std::collections::BTreeMap;
use std::time::Duration;

use super::{ProcessorTime, ThreadTime};

/// Counters of the network stack by group and name.
pub type CounterTable = BTreeMap<String, i64>;

/// Length of a clock tick as `/proc` counts them: `USER_HZ` is 100 on every Linux there is.
const TICK: Duration = Duration::from_millis(10);

/// `/proc/net/snmp` or `/proc/net/netstat`: pairs of lines, names and values, each begun by the name of a group.
pub fn counters(text: &str) -> CounterTable {
    let mut table = CounterTable::new();
    let mut lines = text.lines();
    while let (Some(names), Some(values)) = (lines.next(), lines.next()) {
        let (Some((group, names)), Some((same, values))) = (names.split_once(':'), values.split_once(':')) else {
            continue;
        };
        if group != same {
            continue;
        }
        for (name, value) in names.split_whitespace().zip(values.split_whitespace()) {
            if let Ok(value) = value.parse() {
                table.insert(format!("{group}.{name}"), value);
            }
        }
    }
    table
}

/// Such files without their lines of names, which are most of them and do not change while a kernel runs.
pub fn values(text: &str) -> String {
    text.lines().skip(1).step_by(2).flat_map(|line| [line, "\n"]).collect()
}

/// The counters of [`values`], with the names of a whole file of the same kernel.
pub fn counters_named(values: &str, whole: &str) -> CounterTable {
    let names = whole.lines().step_by(2);
    let pairs: String = names.zip(values.lines()).flat_map(|(names, values)| [names, "\n", values, "\n"]).collect();
    counters(&pairs)
}

/// One value of such files, without a table of all.
pub fn counter(text: &str, group: &str, name: &str) -> Option<i64> {
    let mut lines = text.lines().filter_map(|line| line.strip_prefix(group)?.strip_prefix(':'));
    let at = lines.next()?.split_whitespace().position(|other| other == name)?;
    lines.next()?.split_whitespace().nth(at)?.parse().ok()
}

/// Values that are no counters: settings, and how many there are at a moment.
const NO_COUNTERS: [&str; 6] =
    ["Ip.Forwarding", "Ip.DefaultTTL", "Tcp.RtoAlgorithm", "Tcp.RtoMin", "Tcp.RtoMax", "Tcp.MaxConn"];

/// What changed between two readings.
pub fn changed(before: &CounterTable, now: &CounterTable) -> CounterTable {
    let grown = |(name, value): (&String, &i64)| {
        let growth = value.wrapping_sub(*before.get(name)?);
        (growth != 0 && !NO_COUNTERS.contains(&name.as_str())).then(|| (name.clone(), growth))
    };
    now.iter().filter_map(grown).collect()
}

/// `/proc/stat`: the lines of single processors.
pub fn processor_times(text: &str) -> Vec<ProcessorTime> {
    text.lines().filter_map(processor).collect()
}

/// `cpuN user nice system idle iowait irq softirq steal guest guest_nice`, in ticks; guests are in user already.
fn processor(line: &str) -> Option<ProcessorTime> {
    let mut words = line.strip_prefix("cpu")?.split_whitespace();
    let processor = words.next()?.parse().ok()?;
    // The line of all processors together has no number: "cpu  1 2 3" would be taken for processor 1.
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

/// `/proc/softirqs`, into the processors it is of. Its columns are named by the processors there are.
pub fn softirqs(text: &str, processors: &mut [ProcessorTime]) {
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

/// `/proc/self/task/TID/stat`: the name in parentheses may hold anything, so what follows the last one counts.
pub fn thread_times(stat: &str) -> Option<ThreadTime> {
    // From here on field 3 of proc(5) is the first: utime is 14, stime 15, processor 39.
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

/// `/proc/self/task/TID/schedstat`: nanoseconds that it ran and waited for a processor. The first is exact where the
/// ticks are not, so they only share it out; the kernel that has no such file leaves `thread` as it is.
pub fn thread_runtime(schedstat: &str, thread: &mut ThreadTime) {
    let mut words = schedstat.split_whitespace().map_while(|word| word.parse().ok()).map(Duration::from_nanos);
    let (Some(ran), Some(waited)) = (words.next(), words.next()) else { return };
    let ticks = thread.ran();
    let user = if ticks.is_zero() { 0.0 } else { thread.user.as_secs_f64() / ticks.as_secs_f64() };
    thread.user = ran.mul_f64(user);
    thread.system = ran.saturating_sub(thread.user);
    thread.waited = Some(waited);
}

/// `/proc/self/task/TID/sched`, of kernels that have it: how often the thread moved.
pub fn migrations(sched: &str) -> Option<u64> {
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
    fn counters_are_read_by_their_names() {
        let table = counters(SNMP);
        assert_eq!((table["Tcp.RetransSegs"], table["Tcp.MaxConn"], table["Ip.InReceives"]), (741, -1, 29_247_769));
        assert_eq!(table.len(), 9);
        assert_eq!(
            (counter(SNMP, "Tcp", "RetransSegs"), counter(SNMP, "Ip", "InReceives")),
            (Some(741), Some(29_247_769))
        );
        assert_eq!(
            (counter(SNMP, "Tcp", "InReceives"), counter(SNMP, "Udp", "A"), counter("Tcp: A\n", "Tcp", "A")),
            (None, None, None)
        );
        // A line without its pair, groups that do not match, and words that are no numbers.
        assert_eq!(counters("Tcp: A B\nUdp: 1 2\nTcp: A\n"), CounterTable::new());
        assert_eq!(counters("Tcp: A B\nTcp: x 2 3\n").into_iter().collect::<Vec<_>>(), [("Tcp.B".to_owned(), 2)]);
        assert_eq!(counters("nonsense\n\n::\n"), CounterTable::new());
    }

    #[test]
    fn only_what_changed_is_told_and_settings_are_not() {
        let later = SNMP.replace("22 741", "22 750").replace("120000", "60000");
        let grown = changed(&counters(SNMP), &counters(&later));
        assert_eq!(grown.into_iter().collect::<Vec<_>>(), [("Tcp.RetransSegs".to_owned(), 9)]);
        // A counter only the later reading has cannot be told.
        assert_eq!(changed(&CounterTable::new(), &counters(SNMP)), CounterTable::new());
    }

    const STAT: &str = "cpu  24 1 7 23 10 0 11 2 0 0\ncpu0 1235 564 346 1237 26 3 58 54 0 0\n\
        cpu11 5 0 0 6\ncpu3 1 2 3\nintr 136188314 0\nctxt 7\n";

    #[test]
    fn processors_are_told_apart_and_the_sum_is_none() {
        let times = processor_times(STAT);
        assert_eq!(times.iter().map(|time| time.processor).collect::<Vec<_>>(), [0, 11]);
        let ms = Duration::from_millis;
        assert_eq!((times[0].user, times[0].system, times[0].softirq), (ms(17_990), ms(3460), ms(610)));
        assert_eq!((times[0].idle, times[0].stolen), (ms(12_630), ms(540)));
        assert_eq!((times[1].user, times[1].softirq), (ms(50), ms(0)), "an old kernel's short line");
    }

    #[test]
    fn softirqs_go_to_the_processors_of_their_columns() {
        let mut times = processor_times(STAT);
        softirqs("       CPU0       CPU11\n HI: 0 0\n NET_TX: 5 6\n NET_RX: 7 8\n", &mut times);
        let counts = |time: &ProcessorTime| (time.transmit_interrupts, time.receive_interrupts);
        assert_eq!(times.iter().map(counts).collect::<Vec<_>>(), [(Some(5), Some(7)), (Some(6), Some(8))]);
        softirqs("", &mut times);
        softirqs("CPU0\nNET_RX: x\nnonsense", &mut times);
        assert_eq!(times[0].receive_interrupts, Some(7));
    }

    #[test]
    fn a_thread_of_any_name_is_read() {
        let rest = "S 1 2 3 4 5 6 7 8 9 10 50 150 0 0 20 0 1 0 99 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 1 0 0";
        let mut thread = thread_times(&format!("77 (a) R 1 (x)) {rest}")).unwrap();
        assert_eq!((thread.user, thread.system), (Duration::from_millis(500), Duration::from_millis(1500)));
        assert_eq!(thread.processor, 1);
        thread_runtime("2040000000 500000000 77\n", &mut thread);
        assert_eq!((thread.user, thread.system), (Duration::from_millis(510), Duration::from_millis(1530)));
        assert_eq!(thread.waited, Some(Duration::from_millis(500)));
        thread_runtime("0", &mut thread);
        assert_eq!(thread.waited, Some(Duration::from_millis(500)), "half a file says nothing");
        assert_eq!(thread_times("77 (short) S 1 2"), None);
        assert_eq!(thread_times(""), None);
    }

    #[test]
    fn migrations_are_counted_where_the_kernel_does() {
        let sched = "cat (26946, #threads: 1)\n---\nse.vruntime    :   255.9\nse.nr_migrations    :    12\n";
        assert_eq!(migrations(sched), Some(12));
        assert_eq!(migrations("se.vruntime : 1\n"), None);
    }
}
