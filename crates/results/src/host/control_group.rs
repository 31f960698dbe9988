//! Limits of the control groups of a process: the files under `/proc` that name them, and their own files.
//!
//! A group is limited by its own limits and by those of its ancestors, so the tightest one counts. Both versions are read:
//! `cgroup-v2.rst`, and `sched-bwc.rst` and `memory.rst` of version 1. The functions never fail: values that they cannot
//! read are absent.

use lfn_base::units::Bytes;

/// Maximum groups that are read: the process's own and its ancestors.
const MAX_DEPTH: usize = 32;
/// Limits above this one are the "no limit" of version 1, which is 2^63 rounded down to pages.
const MAX_MEMORY: u64 = 1 << 60;

/// A hierarchy of control groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hierarchy {
    /// The single hierarchy of version 2.
    Unified,
    /// The hierarchy of a controller of version 1, such as `cpu` or `memory`.
    Controller(&'static str),
}

/// Returns the directories of the process's group and of its ancestors, the own one first. `groups` is the text of
/// `/proc/self/cgroup`, `mounts` that of `/proc/self/mountinfo`. The list is empty if the hierarchy is not mounted.
pub fn group_directories(groups: &str, mounts: &str, hierarchy: Hierarchy) -> Vec<String> {
    let Some(group) = groups.lines().find_map(|line| group_path(line, hierarchy)) else { return vec![] };
    let Some((root, directory)) = mounts.lines().find_map(|line| mount(line, hierarchy)) else { return vec![] };
    // In a namespace of control groups, the mount shows a part of the hierarchy. Groups outside of it are not visible,
    // and have paths with `..`.
    let relative = match root {
        "/" => Some(group),
        _ => group.strip_prefix(root).filter(|rest| rest.is_empty() || rest.starts_with('/')),
    };
    let relative = relative.filter(|path| !path.split('/').any(|part| part == "..")).unwrap_or_default();
    let parts: Vec<&str> = relative.split('/').filter(|part| !part.is_empty()).collect();
    let ancestor = |length: usize| parts[..length].iter().fold(directory.to_owned(), |path, part| path + "/" + part);
    (0..=parts.len()).rev().take(MAX_DEPTH).map(ancestor).collect()
}

/// Parses a line of `/proc/self/cgroup`: number of the hierarchy, its controllers, and the path of the group.
fn group_path(line: &str, hierarchy: Hierarchy) -> Option<&str> {
    let mut fields = line.splitn(3, ':');
    let (number, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let is_wanted = match hierarchy {
        Hierarchy::Unified => number == "0" && controllers.is_empty(),
        Hierarchy::Controller(name) => controllers.split(',').any(|controller| controller == name),
    };
    is_wanted.then_some(path)
}

/// Returns the root and the directory of a mount of the hierarchy: fields 4 and 5 of a line of `/proc/self/mountinfo`.
/// The type and the options of the file system are behind a hyphen.
fn mount(line: &str, hierarchy: Hierarchy) -> Option<(&str, &str)> {
    let (place, system) = line.split_once(" - ")?;
    let (kind, rest) = system.split_once(' ')?;
    let is_wanted = match hierarchy {
        Hierarchy::Unified => kind == "cgroup2",
        Hierarchy::Controller(name) => {
            kind == "cgroup" && rest.split_whitespace().nth(1)?.split(',').any(|option| option == name)
        }
    };
    let mut fields = place.split(' ').skip(3);
    is_wanted.then(|| Some((fields.next()?, fields.next()?)))?
}

/// Parses `cpu.max` of version 2: the time in each period, or `max`. Returns a number of processors.
pub fn parse_cpu_max(text: &str) -> Option<f64> {
    let (quota, period) = text.trim().split_once(' ')?;
    processors(quota, period)
}

/// Parses `cpu.cfs_quota_us` and `cpu.cfs_period_us` of version 1. A quota of -1 is no limit.
pub fn parse_cfs_quota(quota: &str, period: &str) -> Option<f64> {
    processors(quota, period)
}

fn processors(quota: &str, period: &str) -> Option<f64> {
    let microseconds = |text: &str| text.trim().parse::<u32>().ok().filter(|time| *time > 0).map(f64::from);
    Some(microseconds(quota)? / microseconds(period)?)
}

/// Parses `memory.max` of version 2 or `memory.limit_in_bytes` of version 1.
pub fn parse_memory_limit(text: &str) -> Option<Bytes> {
    text.trim().parse().ok().filter(|limit| *limit <= MAX_MEMORY).map(Bytes)
}

/// Parses the time in which the limit stopped the group, in seconds: `throttled_usec` of version 2 or `throttled_time`,
/// in nanoseconds, of version 1, in `cpu.stat`.
pub fn parse_throttled_seconds(stat: &str) -> Option<f64> {
    let value = |name: &str| stat.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok());
    let microseconds = value("throttled_usec ").map(|time| time as f64 / 1e6);
    microseconds.or_else(|| value("throttled_time ").map(|time| time as f64 / 1e9))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "\
        23 28 0:21 / /proc rw,relatime shared:11 - proc proc rw\n\
        31 23 0:27 / /sys/fs/cgroup/unified rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n\
        33 23 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:12 - cgroup cgroup rw,cpu,cpuacct\n\
        34 23 0:30 /docker/12ab /sys/fs/cgroup/memory rw master:13 - cgroup cgroup rw,memory\n";

    #[test]
    fn own_group_comes_before_its_ancestors() {
        let groups = "0::/user.slice/user-1000.slice/session-3.scope\n";
        let root = "/sys/fs/cgroup/unified";
        let expected =
            ["/user.slice/user-1000.slice/session-3.scope", "/user.slice/user-1000.slice", "/user.slice", ""];
        let directories = group_directories(groups, MOUNTS, Hierarchy::Unified);
        assert_eq!(directories, expected.map(|path| format!("{root}{path}")));
    }

    #[test]
    fn version_1_has_a_hierarchy_for_each_controller() {
        let groups = "5:memory:/docker/12ab/inner\n4:cpu,cpuacct:/docker/12ab\n1:name=systemd:/\n0::/other\n";
        let directories = |name| group_directories(groups, MOUNTS, Hierarchy::Controller(name));
        let cpu = "/sys/fs/cgroup/cpu,cpuacct";
        assert_eq!(directories("cpu"), [format!("{cpu}/docker/12ab"), format!("{cpu}/docker"), cpu.to_owned()]);
        // Only the part of the hierarchy below the root of the mount is visible.
        assert_eq!(directories("memory"), ["/sys/fs/cgroup/memory/inner", "/sys/fs/cgroup/memory"]);
        assert_eq!(directories("blkio"), Vec::<String>::new());
    }

    #[test]
    fn groups_outside_of_the_mount_use_its_root() {
        let memory = |groups| group_directories(groups, MOUNTS, Hierarchy::Controller("memory"));
        for groups in ["5:memory:/\n", "5:memory:/docker/12abc\n", "5:memory:/docker/12ab/../../x\n"] {
            assert_eq!(memory(groups), ["/sys/fs/cgroup/memory"], "{groups}");
        }
        let deep = format!("0::{}\n", "/x".repeat(1000));
        assert_eq!(group_directories(&deep, MOUNTS, Hierarchy::Unified).len(), MAX_DEPTH);
        for broken in ["", "0:", "nonsense", "0::"] {
            assert!(group_directories(broken, "1 2 3 - cgroup2", Hierarchy::Unified).is_empty(), "{broken}");
        }
    }

    #[test]
    fn quota_is_a_number_of_processors() {
        assert_eq!((parse_cpu_max("50000 100000\n"), parse_cpu_max("250000 100000\n")), (Some(0.5), Some(2.5)));
        assert_eq!((parse_cpu_max("max 100000\n"), parse_cpu_max(""), parse_cpu_max("1 0")), (None, None, None));
        assert_eq!((parse_cfs_quota("20000\n", "10000\n"), parse_cfs_quota("-1\n", "100000\n")), (Some(2.0), None));
    }

    #[test]
    fn memory_limit_of_both_versions_is_read() {
        assert_eq!(parse_memory_limit("536870912\n"), Some(Bytes(512 << 20)));
        assert_eq!((parse_memory_limit("max\n"), parse_memory_limit("9223372036854771712\n")), (None, None));
    }

    #[test]
    fn throttled_time_has_its_unit() {
        let unified = "usage_usec 81\nuser_usec 50\nnr_periods 9\nnr_throttled 4\nthrottled_usec 1500000\n";
        assert_eq!(parse_throttled_seconds(unified), Some(1.5));
        assert_eq!(parse_throttled_seconds("nr_periods 9\nnr_throttled 4\nthrottled_time 2500000000\n"), Some(2.5));
        assert_eq!(parse_throttled_seconds("usage_usec 81\n"), None, "a group without the controller");
    }
}
