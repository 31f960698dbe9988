//! Settings of the kernel: sysctls and the parameters of modules.

use std::fs;
use std::io::ErrorKind;

use lfn_results::host::facts::HostFacts;
use lfn_sys::namespace::UserIdentity;

use super::sources::{Sources, note};

/// Sysctls of `net.core` that a load depends on (`Documentation/admin-guide/sysctl/net.rst`).
const CORE: [&str; 9] = [
    "default_qdisc",
    "netdev_budget",
    "netdev_budget_usecs",
    "netdev_max_backlog",
    "optmem_max",
    "rmem_default",
    "rmem_max",
    "wmem_default",
    "wmem_max",
];

/// Sysctls of `net.ipv4` that a load depends on, also with IPv6 (`Documentation/networking/ip-sysctl.rst`).
const IPV4: [&str; 36] = [
    "ip_forward_use_pmtu",
    "ip_no_pmtu_disc",
    "tcp_adv_win_scale",
    "tcp_allowed_congestion_control",
    "tcp_app_win",
    "tcp_autocorking",
    "tcp_available_congestion_control",
    "tcp_base_mss",
    "tcp_congestion_control",
    "tcp_dsack",
    "tcp_early_retrans",
    "tcp_ecn",
    "tcp_ecn_fallback",
    "tcp_frto",
    "tcp_limit_output_bytes",
    "tcp_max_reordering",
    "tcp_mem",
    "tcp_min_tso_segs",
    "tcp_moderate_rcvbuf",
    "tcp_mtu_probing",
    "tcp_no_metrics_save",
    "tcp_notsent_lowat",
    "tcp_pacing_ca_ratio",
    "tcp_pacing_ss_ratio",
    "tcp_recovery",
    "tcp_reordering",
    "tcp_rmem",
    "tcp_sack",
    "tcp_shrink_window",
    "tcp_slow_start_after_idle",
    "tcp_timestamps",
    "tcp_tso_win_divisor",
    "tcp_window_scaling",
    "tcp_wmem",
    "tcp_workaround_signed_windows",
    "tcp_mtu_probe_floor",
];

/// Modules with parameters that a load depends on.
const MODULES: [&str; 1] = ["tcp_cubic"];
/// Maximum parameters of a module.
const MAX_PARAMETERS: usize = 16;

/// Reads the sysctls and the parameters of modules.
pub(super) fn read(sources: &Sources, facts: &mut HostFacts) {
    facts.is_root = UserIdentity::current().is_root();
    match sources.text("/proc/sys/kernel/osrelease") {
        Ok(release) => facts.release = release.trim().to_owned(),
        // The loop below names a missing /proc/sys.
        Err(error) if error.kind() == ErrorKind::NotFound => {}
        Err(error) => note(facts, "release of the kernel", &error),
    }
    read_sysctls(sources, facts);
    let names = |sysctl: &str| {
        let value = facts.sysctls.get(sysctl).map(String::as_str).unwrap_or_default();
        value.split_whitespace().map(str::to_owned).collect()
    };
    let available = names("net.ipv4.tcp_available_congestion_control");
    let allowed = names("net.ipv4.tcp_allowed_congestion_control");
    (facts.congestion_available, facts.congestion_allowed) = (available, allowed);
    for module in MODULES {
        read_parameters(sources, module, facts);
    }
}

fn read_sysctls(sources: &Sources, facts: &mut HostFacts) {
    let core = CORE.iter().map(|name| ("core", name));
    let ipv4 = IPV4.iter().map(|name| ("ipv4", name));
    let mut missing = Vec::new();
    for (group, name) in core.chain(ipv4) {
        let sysctl = format!("net.{group}.{name}");
        match sources.text(&format!("/proc/sys/net/{group}/{name}")) {
            Ok(value) => {
                facts.sysctls.insert(sysctl, value.trim_end().to_owned());
            }
            Err(error) if error.kind() == ErrorKind::NotFound => missing.push(sysctl),
            Err(error) => note(facts, &format!("sysctl {sysctl}"), &error),
        }
    }
    // An older kernel lacks new sysctls, and a network namespace lacks those of the whole host.
    if missing.len() == CORE.len() + IPV4.len() {
        facts.unreadable.push("settings of the kernel: /proc/sys is missing".into());
    } else {
        let sentence = |names: &[String]| format!("sysctls that this kernel or namespace lacks: {}", names.join(", "));
        facts.unreadable.extend(missing.chunks(6).map(sentence));
    }
}

/// Reads the parameters of a module as `MODULE.PARAMETER`, as on the command line of the kernel. A module that is not
/// loaded has none.
fn read_parameters(sources: &Sources, module: &str, facts: &mut HostFacts) {
    let directory = format!("/sys/module/{module}/parameters");
    let Ok(entries) = fs::read_dir(sources.path(&directory)) else { return };
    let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
    let mut names: Vec<String> = names.take(MAX_PARAMETERS).collect();
    names.sort();
    for name in names {
        match sources.text(&format!("{directory}/{name}")) {
            Ok(value) => {
                facts.sysctls.insert(format!("{module}.{name}"), value.trim_end().to_owned());
            }
            Err(error) => note(facts, &format!("parameter {module}.{name}"), &error),
        }
    }
}
