//! The machine: its processors, clock and memory, and the limits of the control group and the container.

use std::collections::BTreeSet;
use std::io;

use lfn_base::figure::Figure;
use lfn_base::units::Bytes;
use lfn_results::host::control_group::{
    Hierarchy, group_directories, parse_cfs_quota, parse_cpu_max, parse_memory_limit, parse_throttled_seconds,
};
use lfn_results::host::facts::{ControlGroup, HostFacts};
use lfn_results::host::machine_files::{ContainerSigns, parse_allowed_processors, parse_memory, parse_processor_model};

use super::sources::{Sources, note};

/// Maximum processors whose governor is read.
const MAX_GOVERNORS: usize = 256;

/// Reads the facts of the machine.
pub(super) fn read(sources: &Sources, facts: &mut HostFacts) {
    read_processors(sources, facts);
    match sources.text("/proc/meminfo") {
        Ok(text) => {
            facts.memory = parse_memory(&text, "MemTotal");
            facts.available_memory = parse_memory(&text, "MemAvailable");
        }
        Err(error) => note(facts, "memory", &error),
    }
    match sources.text("/sys/devices/system/clocksource/clocksource0/current_clocksource") {
        Ok(name) => facts.clock_source = Some(name.trim().to_owned()),
        Err(error) => note(facts, "clock source", &error),
    }
    match control_group(sources) {
        Ok(group) => facts.control_group = group,
        Err(error) => note(facts, "limits of the control group", &error),
    }
    // Each sign may be unreadable: an ordinary user may not read the environment of process 1.
    facts.container = ContainerSigns {
        systemd: sources.text("/run/systemd/container").ok(),
        environment: sources.text("/proc/1/environ").ok(),
        dockerenv: sources.path("/.dockerenv").exists(),
        containerenv: sources.path("/run/.containerenv").exists(),
        groups: sources.text("/proc/1/cgroup").ok(),
    }
    .container();
}

fn read_processors(sources: &Sources, facts: &mut HostFacts) {
    match sources.text("/proc/cpuinfo") {
        Ok(text) => facts.processor_model = parse_processor_model(&text),
        Err(error) => note(facts, "model of the processors", &error),
    }
    let allowed = match sources.text("/proc/self/status") {
        Ok(text) => parse_allowed_processors(&text).unwrap_or_default(),
        Err(error) => {
            note(facts, "processors that this process may use", &error);
            vec![]
        }
    };
    facts.processors = u32::try_from(allowed.len()).ok().filter(|count| *count > 0);
    // Virtual machines have no governor.
    let governor = |number: &u32| {
        let path = format!("/sys/devices/system/cpu/cpu{number}/cpufreq/scaling_governor");
        sources.text(&path).ok().map(|name| name.trim().to_owned())
    };
    let governors: BTreeSet<String> = allowed.iter().take(MAX_GOVERNORS).filter_map(governor).collect();
    facts.governor = (!governors.is_empty()).then(|| Vec::from_iter(governors).join(", "));
}

/// Returns the tightest limits of the process's control groups and of their ancestors. `None` if no group has a limit
/// and none was stopped by one.
fn control_group(sources: &Sources) -> io::Result<Option<ControlGroup>> {
    let groups = sources.text("/proc/self/cgroup")?;
    let mounts = sources.text("/proc/self/mountinfo")?;
    let mut limits = ControlGroup::default();
    let text = |directory: &str, name: &str| sources.text(&format!("{directory}/{name}")).ok();
    for directory in group_directories(&groups, &mounts, Hierarchy::Unified) {
        let processors = text(&directory, "cpu.max").and_then(|text| parse_cpu_max(&text));
        let memory = text(&directory, "memory.max").and_then(|text| parse_memory_limit(&text));
        tighten(&mut limits, processors, memory);
        add_throttled(&mut limits, text(&directory, "cpu.stat"));
    }
    for directory in group_directories(&groups, &mounts, Hierarchy::Controller("cpu")) {
        let quota = text(&directory, "cpu.cfs_quota_us").zip(text(&directory, "cpu.cfs_period_us"));
        tighten(&mut limits, quota.and_then(|(quota, period)| parse_cfs_quota(&quota, &period)), None);
        add_throttled(&mut limits, text(&directory, "cpu.stat"));
    }
    for directory in group_directories(&groups, &mounts, Hierarchy::Controller("memory")) {
        let memory = text(&directory, "memory.limit_in_bytes").and_then(|text| parse_memory_limit(&text));
        tighten(&mut limits, None, memory);
    }
    Ok((limits != ControlGroup::default()).then_some(limits))
}

fn tighten(limits: &mut ControlGroup, processors: Option<f64>, memory: Option<Bytes>) {
    let tightest = [limits.max_processors.map(Figure::get), processors].into_iter().flatten().reduce(f64::min);
    limits.max_processors = tightest.and_then(Figure::new);
    limits.max_memory = [limits.max_memory, memory].into_iter().flatten().min();
}

/// Keeps the longest time: that of the group whose limit is reached.
fn add_throttled(limits: &mut ControlGroup, stat: Option<String>) {
    let throttled = stat.and_then(|stat| parse_throttled_seconds(&stat)).filter(|seconds| *seconds > 0.0);
    let longest = [limits.throttled_seconds.map(Figure::get), throttled].into_iter().flatten().reduce(f64::max);
    limits.throttled_seconds = longest.and_then(Figure::new);
}
