//! Reads the facts of this host, in bounded time.

use std::sync::Arc;
use std::sync::mpsc::{self, RecvTimeoutError};
use std::thread;
use std::time::Duration;

use lfn_results::host::facts::HostFacts;
use parking_lot::Mutex;

use super::sources::{Sources, reason};
use super::{Ends, machine, network, settings};

/// Maximum time to read all facts. An ordinary reading takes milliseconds, but a driver may hold a lock of the kernel.
const READ_TIMEOUT: Duration = Duration::from_secs(3);
/// Maximum facts that are reported as unreadable.
const MAX_UNREADABLE: usize = 32;

/// A group of facts that is read as a whole.
struct Step {
    /// Name in a sentence.
    name: &'static str,
    read: fn(&Sources, &mut HostFacts),
}

/// The groups. Those that may wait for a driver are the last ones.
const STEPS: [Step; 3] = [
    Step { name: "settings of the kernel", read: settings::read },
    Step { name: "processors, memory and limits", read: machine::read },
    Step { name: "interface and route", read: network::read },
];

/// Facts of one reading. The reading goes on in its own thread after its time-out.
struct Progress {
    facts: HostFacts,
    /// Name of the step that runs.
    step: &'static str,
}

/// Reads the facts of this host, with the interface and the route to the other end. Facts that cannot be read are named
/// in [`HostFacts::unreadable`].
pub fn of_this_host(ends: Option<Ends>) -> HostFacts {
    read(Sources { root: "/".into(), ends }, &STEPS, READ_TIMEOUT)
}

fn read(sources: Sources, steps: &'static [Step], timeout: Duration) -> HostFacts {
    let progress = Arc::new(Mutex::new(Progress { facts: HostFacts::default(), step: "facts of this host" }));
    let (sender, finished) = mpsc::channel::<()>();
    let shared = progress.clone();
    let work = move || {
        let mut facts = HostFacts::default();
        for step in steps {
            shared.lock().step = step.name;
            (step.read)(&sources, &mut facts);
            shared.lock().facts = facts.clone();
        }
        // The receiver is gone after a time-out.
        let _ = sender.send(());
    };
    // A thread of its own: it may wait for a driver, and netlink needs more stack than the thread of a session has.
    let spawned = thread::Builder::new().name("facts".into()).spawn(work);
    let ended = spawned.map(|_| finished.recv_timeout(timeout));
    let Progress { mut facts, step } = {
        let mut progress = progress.lock();
        Progress { facts: std::mem::take(&mut progress.facts), step: progress.step }
    };
    match ended {
        Ok(Ok(())) => {}
        Ok(Err(RecvTimeoutError::Timeout)) => {
            facts.unreadable.push(format!("{step}: no answer from the kernel within {} s", timeout.as_secs_f64()));
        }
        Ok(Err(RecvTimeoutError::Disconnected)) => {
            facts.unreadable.push(format!("{step}: the reading thread failed (its message is on stderr)"))
        }
        Err(error) => facts.unreadable.push(format!("{step}: {}", reason(&error))),
    }
    facts.unreadable.truncate(MAX_UNREADABLE);
    facts.bounded()
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::net::Ipv4Addr;
    use std::time::Instant;

    use lfn_base::figure::Figure;

    use super::*;

    fn loopback() -> Ends {
        Ends { peer: Ipv4Addr::LOCALHOST.into(), local: Some(Ipv4Addr::LOCALHOST.into()) }
    }

    #[test]
    fn facts_of_any_linux_are_read() {
        let facts = of_this_host(Some(loopback()));
        assert!(facts.sysctls["net.ipv4.tcp_rmem"].split_whitespace().count() == 3, "{facts:?}");
        assert!(!facts.release.is_empty() && facts.congestion_available.contains(&"reno".to_owned()), "{facts:?}");
        assert!(facts.processors > Some(0) && facts.memory > facts.available_memory, "{facts:?}");
        let interface = facts.interface.unwrap();
        assert!(interface.loopback && interface.mtu_bytes > 0 && interface.counters.is_some(), "{interface:?}");
        assert_eq!(interface.root_qdisc.as_deref(), Some("noqueue"));
        assert!(interface.offloads["tcp-segmentation-offload"], "{interface:?}");
        assert_eq!(facts.route.unwrap().gateway, None);
    }

    #[test]
    fn ordinary_user_reads_the_same_facts() {
        // Only root can change the user of a thread; another user runs the test above with their own rights.
        if !lfn_sys::namespace::UserIdentity::current().is_root() {
            return;
        }
        let facts = lfn_sys::process::run_as_user(65_534, || {
            read(Sources { root: "/".into(), ends: Some(loopback()) }, &STEPS, READ_TIMEOUT)
        });
        let facts = facts.unwrap();
        assert!(!facts.is_root && facts.interface.is_some() && facts.route.is_some(), "{facts:?}");
        assert!(
            facts.unreadable.iter().all(|text| !text.contains("denied") && !text.contains("permitted")),
            "{facts:?}"
        );
    }

    #[test]
    fn missing_proc_and_sys_are_named() {
        let directory = tempfile::tempdir().unwrap();
        let facts = read(Sources { root: directory.path().into(), ends: None }, &STEPS, READ_TIMEOUT);
        assert_eq!((facts.sysctls.len(), facts.processors, facts.memory), (0, None, None));
        assert!(
            facts.unreadable.iter().any(|text| text == "settings of the kernel: /proc/sys is missing"),
            "{facts:?}"
        );
        assert!(facts.unreadable.iter().any(|text| text.starts_with("memory: ")), "{facts:?}");
        assert!(facts.unreadable.iter().all(|text| !text.contains("os error")), "{facts:?}");
    }

    #[test]
    fn settings_and_machine_are_read_below_a_root() {
        let directory = tempfile::tempdir().unwrap();
        let write = |path: &str, text: &str| {
            let file = directory.path().join(path);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        write("proc/sys/kernel/osrelease", "6.1.0-28-amd64\n");
        write("proc/sys/net/ipv4/tcp_wmem", "4096\t16384\t4194304\n");
        write("proc/sys/net/ipv4/tcp_available_congestion_control", "reno cubic bbr\n");
        write("sys/module/tcp_cubic/parameters/hystart", "1\n");
        write("proc/self/status", "Cpus_allowed_list:\t0,2-3\n");
        write("proc/self/cgroup", "0::/service\n");
        write("proc/self/mountinfo", "31 23 0:27 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
        write("sys/fs/cgroup/cpu.max", "max 100000\n");
        write("sys/fs/cgroup/memory.max", "1073741824\n");
        write("sys/fs/cgroup/service/cpu.max", "150000 100000\n");
        write("sys/fs/cgroup/service/cpu.stat", "usage_usec 1\nthrottled_usec 2000000\n");
        write("sys/fs/cgroup/service/memory.max", "max\n");
        write("sys/devices/system/cpu/cpu0/cpufreq/scaling_governor", "powersave\n");
        write("sys/devices/system/cpu/cpu2/cpufreq/scaling_governor", "performance\n");
        write(".dockerenv", "");
        let facts = read(Sources { root: directory.path().into(), ends: None }, &STEPS, READ_TIMEOUT);
        assert_eq!(facts.release, "6.1.0-28-amd64");
        assert_eq!(facts.sysctls["net.ipv4.tcp_wmem"], "4096\t16384\t4194304");
        assert_eq!(facts.sysctls["tcp_cubic.hystart"], "1");
        assert_eq!(facts.congestion_available, ["reno", "cubic", "bbr"]);
        assert_eq!((facts.processors, facts.container.as_deref()), (Some(3), Some("docker")));
        assert_eq!(facts.governor.as_deref(), Some("performance, powersave"));
        let group = facts.control_group.unwrap();
        assert_eq!((group.max_processors, group.throttled_seconds), (Figure::new(1.5), Figure::new(2.0)));
        assert_eq!(group.max_memory.map(|memory| memory.0), Some(1 << 30), "the limit of an ancestor");
        assert!(facts.unreadable.iter().any(|text| text.contains("net.ipv4.tcp_rmem")), "{:?}", facts.unreadable);
    }

    #[test]
    fn slow_kernel_leaves_the_facts_before() {
        const SLOW: [Step; 2] = [
            Step { name: "settings of the kernel", read: |_, facts| facts.release = "6.1".into() },
            Step { name: "interface and route", read: |_, _| thread::sleep(Duration::from_secs(5)) },
        ];
        let begun = Instant::now();
        let facts = read(Sources { root: "/".into(), ends: None }, &SLOW, Duration::from_millis(500));
        assert!(begun.elapsed() < Duration::from_secs(4));
        assert_eq!(facts.release, "6.1");
        assert_eq!(facts.unreadable, ["interface and route: no answer from the kernel within 0.5 s"]);
    }

    #[test]
    fn failed_reading_is_named() {
        const BROKEN: [Step; 1] = [Step { name: "interface and route", read: |_, _| panic!("a defect of a reader") }];
        let facts = read(Sources { root: "/".into(), ends: None }, &BROKEN, READ_TIMEOUT);
        assert_eq!(facts.unreadable, ["interface and route: the reading thread failed (its message is on stderr)"]);
    }
}
