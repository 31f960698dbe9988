//! Kernel settings for a plan: the values that are too small on a host, and the values to restore.
//!
//! A plan never lowers a setting. Each value is at least the value of the host, or the default of the kernel if the
//! host is not known. The one exception is [`super::PlanOptions::max_buffer`]: no value exceeds this limit, so a setting
//! whose default is larger is skipped.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{Plan, available_congestion, kernel_limit, recommend_congestion};
use crate::framing::Framing;
use crate::path::PathProfile;
use crate::tcp_model::Congestion;
use crate::units::{BitRate, Bytes};

/// Settings that [`needed_settings`] reads.
pub const SETTING_NAMES: [&str; 12] = [
    RMEM_MAX,
    WMEM_MAX,
    TCP_RMEM,
    TCP_WMEM,
    TCP_MEM,
    CONGESTION,
    ALLOWED_CONGESTION,
    MTU_PROBING,
    "net.ipv4.tcp_window_scaling",
    "net.ipv4.tcp_sack",
    "net.ipv4.tcp_timestamps",
    "net.ipv4.tcp_moderate_rcvbuf",
];

const RMEM_MAX: &str = "net.core.rmem_max";
const WMEM_MAX: &str = "net.core.wmem_max";
const TCP_RMEM: &str = "net.ipv4.tcp_rmem";
const TCP_WMEM: &str = "net.ipv4.tcp_wmem";
const TCP_MEM: &str = "net.ipv4.tcp_mem";
const CONGESTION: &str = "net.ipv4.tcp_congestion_control";
const ALLOWED_CONGESTION: &str = "net.ipv4.tcp_available_congestion_control";
const MTU_PROBING: &str = "net.ipv4.tcp_mtu_probing";

/// Largest default of `net.core.rmem_max` and `wmem_max` of any kernel: 4 MiB on Linux 6.18 (`SK_RMEM_MAX`); older
/// kernels have 212,992 B.
const DEFAULT_CORE_MAX: u64 = 4 << 20;
/// Largest default of `net.ipv4.tcp_rmem` of any kernel: a maximum of 32 MiB on Linux 6.18 (`tcp_init`); older kernels
/// have 6 MiB.
pub(super) const DEFAULT_TCP_RMEM: [u64; 3] = [4096, 131_072, 32 << 20];
/// Default of `net.ipv4.tcp_wmem` (`tcp_init`).
const DEFAULT_TCP_WMEM: [u64; 3] = [4096, 16_384, 4 << 20];
/// Page size in which `net.ipv4.tcp_mem` counts.
const PAGE: u64 = 4096;

/// The settings of a host that a plan reads. An unknown setting is absent.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct HostSettings {
    /// Values by name with dots (`net.ipv4.tcp_rmem`), words separated by one space.
    pub sysctls: BTreeMap<String, String>,
    /// Interface of the default route.
    pub interface: Option<DefaultInterface>,
}

/// The interface through which a host reaches other networks.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct DefaultInterface {
    pub name: String,
    /// MTU in bytes of the IP packet.
    pub mtu: u32,
    /// Root queueing discipline, such as `fq_codel`.
    pub qdisc: Option<String>,
    /// Link rate, if the driver reports it.
    pub rate: Option<BitRate>,
    /// Descriptor rings, if the driver reports them.
    pub rings: Option<RingSizes>,
}

/// Sizes of the descriptor rings of an interface, in packets (`ethtool -g`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RingSizes {
    pub receive: u32,
    pub max_receive: u32,
    pub send: u32,
    pub max_send: u32,
}

/// The host that gets the settings of a plan.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum TargetHost<'a> {
    /// A host with known settings: only settings that are too small are needed.
    Known(&'a HostSettings),
    /// Any other host: all settings are needed.
    Unknown,
}

/// One kernel setting that a plan needs.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(any(test, feature = "schema"), derive(schemars::JsonSchema))]
pub struct Setting {
    /// Name with dots, for example `net.core.rmem_max`.
    pub key: &'static str,
    /// Value without quotes, for example `4096 131072 18874368`.
    pub value: String,
    /// Value of the host before the change, if known.
    pub now: Option<String>,
}

impl HostSettings {
    /// Reads the output of `sysctl -a` or a file of `/etc/sysctl.d`: lines of `name = value`. Other lines are skipped.
    pub fn parse(text: &str) -> HostSettings {
        let line = |line: &str| {
            let (name, value) = line.split_once('=')?;
            let name = name.trim();
            let is_name = !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || "._-/".contains(c));
            is_name.then(|| (name.replace('/', "."), single_spaces(value)))
        };
        HostSettings { sysctls: text.lines().filter_map(line).collect(), interface: None }
    }

    /// Sets a value as the kernel prints it.
    pub fn insert(&mut self, name: &str, value: &str) {
        self.sysctls.insert(name.to_owned(), single_spaces(value));
    }

    /// Returns the value of a setting, if known.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.sysctls.get(name).map(String::as_str)
    }

    /// Returns the host's congestion control, if the model knows it.
    pub fn congestion(&self) -> Option<Congestion> {
        self.get(CONGESTION)?.parse().ok()
    }

    /// Returns the congestion controls of the model that the kernel has loaded.
    pub fn available_congestion(&self) -> Vec<Congestion> {
        self.get(ALLOWED_CONGESTION).map(available_congestion).unwrap_or_default()
    }

    /// Returns the memory that all TCP sockets together may use: the maximum of `tcp_mem`.
    pub fn tcp_memory(&self) -> Option<Bytes> {
        let pages: u64 = self.get(TCP_MEM)?.split(' ').nth(2)?.parse().ok()?;
        Some(Bytes(pages.saturating_mul(PAGE)))
    }

    /// Returns three numbers of a setting.
    fn numbers(&self, name: &str) -> Option<[u64; 3]> {
        let numbers: Vec<u64> = self.get(name)?.split(' ').filter_map(|word| word.parse().ok()).collect();
        numbers.try_into().ok()
    }
}

impl Setting {
    /// Returns the line of a file in `/etc/sysctl.d`.
    pub fn line(&self) -> String {
        format!("{} = {}", self.key, self.value)
    }

    /// Returns the command that restores the value of the host, if known.
    pub fn undo(&self) -> Option<String> {
        let now = self.now.as_ref()?;
        let quote = if now.contains(' ') { "'" } else { "" };
        Some(format!("sysctl -w {}={quote}{now}{quote}", self.key))
    }
}

/// Recommends the congestion control for streams of a path from one host. A kernel loads a missing module when
/// `sysctl` sets its name, so a congestion control may be recommended that the host has not loaded.
pub fn recommend_for_host(path: &PathProfile, streams: u32, target: TargetHost<'_>) -> Congestion {
    let current = match target {
        TargetHost::Known(host) => host.congestion(),
        TargetHost::Unknown => None,
    };
    recommend_congestion(path, streams, &Congestion::ALL, current).unwrap_or_default()
}

/// Returns the settings that the plan needs on a host: on a known host those that are too small, else all.
///
/// `max_buffer` is the largest value of a buffer setting. An unreadable setting of a known host is skipped.
pub fn needed_settings(plan: &Plan, max_buffer: Bytes, congestion: Congestion, target: TargetHost<'_>) -> Vec<Setting> {
    let single = plan.kernel_buffer.0.next_multiple_of(1 << 20);
    let autotuned = kernel_limit(plan.kernel_buffer).0;
    let (single, autotuned) = (single.min(max_buffer.0), autotuned.min(max_buffer.0));
    let mut needed = Vec::new();
    for key in [RMEM_MAX, WMEM_MAX] {
        let now = |host: &HostSettings| host.get(key)?.parse().ok();
        needed.extend(buffer_setting(key, single, DEFAULT_CORE_MAX, max_buffer, target, now, |most| most.to_string()));
    }
    for (key, default) in [(TCP_RMEM, DEFAULT_TCP_RMEM), (TCP_WMEM, DEFAULT_TCP_WMEM)] {
        let [min, first, _] = match target {
            TargetHost::Known(host) => host.numbers(key).unwrap_or(default),
            TargetHost::Unknown => default,
        };
        let now = |host: &HostSettings| host.numbers(key).map(|numbers| numbers[2]);
        let value = |most| format!("{min} {first} {most}");
        needed.extend(buffer_setting(key, autotuned, default[2], max_buffer, target, now, value));
    }
    needed.extend(switches(plan).filter_map(|key| switch(key, target)));
    match target {
        TargetHost::Known(host) if host.congestion() == Some(congestion) => {}
        TargetHost::Known(host) => needed.extend(host.get(CONGESTION).map(|now| Setting {
            key: CONGESTION,
            value: congestion.to_string(),
            now: Some(now.to_owned()),
        })),
        TargetHost::Unknown => {
            needed.push(Setting { key: CONGESTION, value: congestion.to_string(), now: None });
        }
    }
    needed
}

/// Returns a buffer setting if the host needs it. `now` reads the host's maximum, and `value` formats a maximum.
fn buffer_setting(
    key: &'static str,
    need: u64,
    default: u64,
    max_buffer: Bytes,
    target: TargetHost<'_>,
    now: impl Fn(&HostSettings) -> Option<u64>,
    value: impl Fn(u64) -> String,
) -> Option<Setting> {
    match target {
        TargetHost::Known(host) => {
            now(host).filter(|now| *now < need)?;
            let most = need.max(default.min(max_buffer.0));
            Some(Setting { key, value: value(most), now: host.get(key).map(str::to_owned) })
        }
        // Without the host's value, a value below the default could lower the setting.
        TargetHost::Unknown => {
            let most = need.max(default);
            (most <= max_buffer.0).then(|| Setting { key, value: value(most), now: None })
        }
    }
}

/// Returns the settings that must not be 0.
fn switches(plan: &Plan) -> impl Iterator<Item = &'static str> {
    let Framing { without_timestamps, tunnel, .. } = plan.path.framing;
    let timestamps = (!without_timestamps).then_some("net.ipv4.tcp_timestamps");
    // Large packets and tunnels meet routers that drop them without an ICMP message.
    let probing = (plan.path.mtu > 1500 || tunnel.is_some()).then_some(MTU_PROBING);
    let always = ["net.ipv4.tcp_window_scaling", "net.ipv4.tcp_sack", "net.ipv4.tcp_moderate_rcvbuf"];
    always.into_iter().chain(timestamps).chain(probing)
}

fn switch(key: &'static str, target: TargetHost<'_>) -> Option<Setting> {
    let now = match target {
        TargetHost::Known(host) => Some(host.get(key).filter(|now| *now == "0")?.to_owned()),
        TargetHost::Unknown => None,
    };
    Some(Setting { key, value: "1".into(), now })
}

fn single_spaces(value: &str) -> String {
    value.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::{PlanOptions, plan};
    use super::*;

    /// The defaults of Linux 6.18.
    const DEFAULTS: &str = "net.core.rmem_max = 4194304
net.core.wmem_max = 4194304
net.ipv4.tcp_rmem = 4096\t131072\t33554432
net.ipv4.tcp_wmem = 4096\t16384\t4194304
net.ipv4.tcp_congestion_control = cubic
net.ipv4.tcp_available_congestion_control = reno cubic
net.ipv4.tcp_sack = 1
net.ipv4.tcp_mtu_probing = 0
net.ipv4.tcp_mem = 100\t200\t1000
";

    fn plan_of(rate: u64, millis: u64) -> Plan {
        plan(&PathProfile::new(BitRate(rate), Duration::from_millis(millis)), &PlanOptions::default()).unwrap()
    }

    fn needed(plan: &Plan, host: &str) -> Vec<String> {
        let host = HostSettings::parse(host);
        let settings = needed_settings(plan, Bytes(i32::MAX as u64), Congestion::Cubic, TargetHost::Known(&host));
        settings.iter().map(Setting::line).collect()
    }

    #[test]
    fn sufficient_settings_are_not_printed() {
        assert_eq!(needed(&plan_of(100_000_000, 70), DEFAULTS), [] as [&str; 0]);
        assert_eq!(needed(&plan_of(10_000_000, 20), DEFAULTS), [] as [&str; 0]);
    }

    #[test]
    fn only_small_settings_are_printed() {
        // BDP 9,095,625 B: rmem is large enough.
        let lines = needed(&plan_of(135_000_000, 539), DEFAULTS);
        let expected =
            ["net.core.rmem_max = 9437184", "net.core.wmem_max = 9437184", "net.ipv4.tcp_wmem = 4096 16384 18874368"];
        assert_eq!(lines, expected);
        let lines = needed(&plan_of(10_000_000, 20), &DEFAULTS.replace("tcp_sack = 1", "tcp_sack = 0"));
        assert_eq!(lines, ["net.ipv4.tcp_sack = 1"]);
        // A host below the kernel's default gets at least the default.
        let lines = needed(&plan_of(100_000_000, 70), &DEFAULTS.replace("131072\t33554432", "87380\t200000"));
        assert_eq!(lines, ["net.ipv4.tcp_rmem = 4096 87380 33554432"]);
    }

    #[test]
    fn values_of_another_host_are_at_least_the_defaults() {
        let plan = plan_of(100_000_000, 70);
        let all = |max| needed_settings(&plan, Bytes(max), Congestion::Bbr, TargetHost::Unknown);
        let lines: Vec<String> = all(i32::MAX as u64).iter().map(Setting::line).collect();
        for line in ["net.core.rmem_max = 4194304", "net.ipv4.tcp_rmem = 4096 131072 33554432"] {
            assert!(lines.iter().any(|have| have == line), "{lines:?}");
        }
        assert!(lines.contains(&"net.ipv4.tcp_congestion_control = bbr".to_owned()));
        // With a maximum below the default, the setting is skipped.
        assert!(all(8 << 20).iter().all(|setting| setting.key != TCP_RMEM));
    }

    #[test]
    fn undo_restores_the_values_of_the_host() {
        let host = HostSettings::parse(DEFAULTS);
        let target = TargetHost::Known(&host);
        let settings = needed_settings(&plan_of(135_000_000, 539), Bytes(1 << 30), Congestion::Bbr, target);
        let undo: Vec<String> = settings.iter().filter_map(Setting::undo).collect();
        assert!(undo.contains(&"sysctl -w net.ipv4.tcp_wmem='4096 16384 4194304'".to_owned()), "{undo:?}");
        assert!(undo.contains(&"sysctl -w net.ipv4.tcp_congestion_control=cubic".to_owned()), "{undo:?}");
        assert_eq!(host.tcp_memory(), Some(Bytes(4_096_000)));
        assert_eq!(host.available_congestion(), [Congestion::Reno, Congestion::Cubic]);
    }
}
