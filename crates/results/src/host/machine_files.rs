//! Parsers of the kernel's files about a machine: memory, processors and its container.
//!
//! Each function takes the text of one file and never fails: values that it cannot read are absent. The layouts are
//! those of `proc(5)`.

use std::collections::BTreeMap;

use lfn_base::units::Bytes;

/// Maximum number of a processor. The kernel's own maximum (`NR_CPUS`) is 8192.
const MAX_PROCESSOR: u32 = 65_535;

/// Parses one line of `/proc/meminfo`, such as `MemAvailable:    23709764 kB`.
pub fn parse_memory(meminfo: &str, name: &str) -> Option<Bytes> {
    let value = meminfo.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))?;
    let kibibytes: u64 = value.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kibibytes.checked_mul(1024).map(Bytes)
}

/// Parses the model of the first processor in `/proc/cpuinfo`. The name of the field depends on the architecture.
pub fn parse_processor_model(cpuinfo: &str) -> Option<String> {
    let field = |wanted: &str| {
        cpuinfo.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            (name.trim() == wanted && !value.trim().is_empty()).then(|| value.trim().to_owned())
        })
    };
    // x86, MIPS, POWER and s390. On ARM, the model is that of the board.
    ["model name", "cpu model", "cpu", "processor 0", "Model", "Hardware"].into_iter().find_map(field)
}

/// Parses the processors that a thread may use: `Cpus_allowed_list` in `/proc/self/status`.
pub fn parse_allowed_processors(status: &str) -> Option<Vec<u32>> {
    let list = status.lines().find_map(|line| line.strip_prefix("Cpus_allowed_list:"))?;
    let range = |text: &str| {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let number = |text: &str| text.trim().parse().ok().filter(|number| *number <= MAX_PROCESSOR);
        Some(number(first)?..=number(last)?)
    };
    let ranges: Option<Vec<_>> = list.split(',').map(range).collect();
    let processors: Vec<u32> = ranges?.into_iter().flatten().collect();
    (!processors.is_empty()).then_some(processors)
}

/// Signs of a container, as far as they are readable.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ContainerSigns {
    /// Text of `/run/systemd/container`, which has the name of the container manager.
    pub systemd: Option<String>,
    /// Environment of process 1, with zero bytes between the variables (`/proc/1/environ`).
    pub environment: Option<String>,
    /// `/.dockerenv` exists, which docker creates.
    pub dockerenv: bool,
    /// `/run/.containerenv` exists, which podman and CRI-O create.
    pub containerenv: bool,
    /// Control groups of process 1 (`/proc/1/cgroup`).
    pub groups: Option<String>,
}

impl ContainerSigns {
    /// Returns the container in which this process runs.
    pub fn container(&self) -> Option<String> {
        let named = |text: &str| Some(text.trim().to_owned()).filter(|name| !name.is_empty());
        let environment = self.environment.as_deref().unwrap_or_default();
        let variable = environment.split('\0').find_map(|variable| variable.strip_prefix("container="));
        let groups = self.groups.as_deref().unwrap_or_default();
        // Words in the paths of groups, and the containers that they mean.
        let words = [
            ("kubepods", "kubernetes"),
            ("libpod", "podman"),
            ("docker", "docker"),
            ("lxc", "lxc"),
            ("garden", "garden"),
            ("containerd", "containerd"),
        ];
        let by_group = || words.into_iter().find(|(word, _)| groups.contains(word)).map(|(_, name)| name.to_owned());
        let by_file = || match (self.containerenv, self.dockerenv) {
            (true, _) => Some("podman".to_owned()),
            (false, true) => Some("docker".to_owned()),
            (false, false) => None,
        };
        self.systemd.as_deref().and_then(named).or_else(|| variable.and_then(named)).or_else(by_file).or_else(by_group)
    }
}

/// Returns the offloads by the names of `ethtool -k` from the kernel's features. An offload of several features is on if
/// one of them is on.
pub fn offloads(features: &[(String, bool)]) -> BTreeMap<String, bool> {
    let mut offloads = BTreeMap::new();
    for (feature, is_on) in features {
        let name = match feature.as_str() {
            "rx-checksum" => "rx-checksumming",
            "tx-checksum-ipv4" | "tx-checksum-ipv6" | "tx-checksum-ip-generic" => "tx-checksumming",
            "tx-scatter-gather" => "scatter-gather",
            "tx-tcp-segmentation" | "tx-tcp6-segmentation" => "tcp-segmentation-offload",
            "tx-generic-segmentation" => "generic-segmentation-offload",
            "rx-gro" => "generic-receive-offload",
            "rx-lro" => "large-receive-offload",
            "rx-gro-hw" | "tx-udp-segmentation" => feature,
            _ => continue,
        };
        *offloads.entry(name.to_owned()).or_default() |= *is_on;
    }
    offloads
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_read_by_name() {
        let text =
            "MemTotal:       24683656 kB\nMemFree:        20286076 kB\nMemAvailable:   23709764 kB\nHugePages: 3\n";
        assert_eq!(parse_memory(text, "MemTotal"), Some(Bytes(24_683_656 << 10)));
        assert_eq!(parse_memory(text, "MemAvailable"), Some(Bytes(23_709_764 << 10)));
        assert_eq!(
            (parse_memory(text, "HugePages"), parse_memory(text, "Mem"), parse_memory("", "Mem")),
            (None, None, None)
        );
        assert_eq!(parse_memory("MemTotal: 18446744073709551615 kB", "MemTotal"), None, "more than 64 bits");
    }

    #[test]
    fn processor_model_is_found_on_each_architecture() {
        let x86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel\t\t: 1\nmodel name\t: AMD EPYC\nprocessor\t: 1\n";
        let arm =
            "processor\t: 0\nBogoMIPS\t: 108.00\nCPU part\t: 0xd08\n\nModel\t\t: Raspberry Pi 4 Model B Rev 1.4\n";
        let power = "processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 2300.000000MHz\n";
        let model = |text| parse_processor_model(text).unwrap();
        assert_eq!(model(x86), "AMD EPYC");
        assert_eq!(model(arm), "Raspberry Pi 4 Model B Rev 1.4");
        assert_eq!(model(power), "POWER9, altivec supported");
        assert_eq!((parse_processor_model(""), parse_processor_model("model name\t: \n")), (None, None));
    }

    #[test]
    fn allowed_processors_are_a_list_of_ranges() {
        let status = |list| format!("Name:\tcat\nCpus_allowed:\tff\nCpus_allowed_list:\t{list}\nMems_allowed:\t1\n");
        let parse = |list| parse_allowed_processors(&status(list));
        assert_eq!(parse("0-2,8"), Some(vec![0, 1, 2, 8]));
        assert_eq!(parse("5"), Some(vec![5]));
        assert_eq!((parse(""), parse("a-b"), parse("2-1"), parse("0-4294967295")), (None, None, None, None));
        assert_eq!(parse_allowed_processors("Name:\tcat\n"), None);
    }

    #[test]
    fn container_is_named_by_its_best_sign() {
        let text = |text: &str| Some(text.to_owned());
        let named = |signs: ContainerSigns| signs.container();
        let none =
            ContainerSigns { groups: text("0::/init.scope\n"), environment: text("HOME=/\0"), ..Default::default() };
        assert_eq!(named(none), None);
        let lxc =
            ContainerSigns { environment: text("TERM=linux\0container=lxc\0"), dockerenv: true, ..Default::default() };
        assert_eq!(named(lxc), text("lxc"));
        let docker = ContainerSigns { dockerenv: true, groups: text("0::/\n"), ..Default::default() };
        assert_eq!(named(docker), text("docker"));
        let podman = ContainerSigns { containerenv: true, ..Default::default() };
        assert_eq!(named(podman), text("podman"));
        let pod = "11:memory:/kubepods/burstable/pod1234/5678\n1:name=systemd:/kubepods/burstable/pod1234/5678\n";
        assert_eq!(named(ContainerSigns { groups: text(pod), ..Default::default() }), text("kubernetes"));
        let nspawn = ContainerSigns { systemd: text("systemd-nspawn\n"), ..Default::default() };
        assert_eq!(named(nspawn), text("systemd-nspawn"));
    }

    #[test]
    fn offloads_have_the_names_of_ethtool() {
        let features = [
            ("tx-tcp-segmentation", false),
            ("tx-tcp6-segmentation", true),
            ("rx-gro", true),
            ("rx-vlan-filter", true),
        ];
        let features = features.map(|(name, is_on)| (name.to_owned(), is_on));
        let expected = [("generic-receive-offload", true), ("tcp-segmentation-offload", true)];
        assert_eq!(offloads(&features), expected.map(|(name, is_on)| (name.to_owned(), is_on)).into());
        assert_eq!(offloads(&[]), BTreeMap::new());
    }
}
