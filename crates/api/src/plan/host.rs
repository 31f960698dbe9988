//! Settings of this host that a plan compares with the needs of the path.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

use lfn_base::plan::settings::{DefaultInterface, HostSettings, RingSizes, SETTING_NAMES};
use lfn_base::units::BitRate;
use lfn_sys::netlink::Netlink;
use lfn_sys::{ethtool, sysctl};

/// Addresses for documentation (RFC 5737, RFC 3849). Only the default route leads there.
const ELSEWHERE: [IpAddr; 2] =
    [IpAddr::V4(Ipv4Addr::new(192, 0, 2, 1)), IpAddr::V6(Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 1))];

/// Reads the settings of this host; `None` if none is readable. Settings that this network namespace does not have are
/// absent.
pub(super) fn read_this_host() -> Option<HostSettings> {
    let mut settings = HostSettings { interface: default_interface(), ..HostSettings::default() };
    for name in SETTING_NAMES {
        if let Ok(value) = sysctl::read(name) {
            settings.insert(name, &value);
        }
    }
    (!settings.sysctls.is_empty()).then_some(settings)
}

fn default_interface() -> Option<DefaultInterface> {
    let mut netlink = Netlink::open().ok()?;
    let index = ELSEWHERE.into_iter().find_map(|address| netlink.route_interface(address, None).ok())?;
    let stats = netlink.interface_stats(index).ok()?;
    let root = |netlink: &mut Netlink| {
        let qdiscs = netlink.qdisc_stats(index).ok()?;
        qdiscs.into_iter().find(|qdisc| qdisc.parent == u32::MAX).map(|qdisc| qdisc.kind)
    };
    let rings = ethtool::ring_parameters(&stats.name).ok().map(|rings| RingSizes {
        receive: rings.receive,
        max_receive: rings.max_receive,
        send: rings.send,
        max_send: rings.max_send,
    });
    let megabits = ethtool::link_speed_megabits(&stats.name).ok().flatten();
    Some(DefaultInterface {
        qdisc: root(&mut netlink),
        mtu: stats.mtu,
        rate: megabits.map(|megabits| BitRate(u64::from(megabits) * 1_000_000)),
        rings: rings.filter(|rings| rings.max_receive > 0),
        name: stats.name,
    })
}

/// Returns the file for the settings, 90-lfn.conf to 99-lfn.conf in `directory`. On this host the file does not exist
/// yet while one of the ten names is free, so settings of another plan are kept.
pub(super) fn settings_file(directory: &str, is_this_host: bool) -> String {
    let mut files = (90..=99).map(|number| format!("{directory}/{number}-lfn.conf"));
    let free = files.find(|file| !is_this_host || !Path::new(file).exists());
    free.unwrap_or_else(|| format!("{directory}/99-lfn.conf"))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use std::fs;

    use super::*;

    #[test]
    fn a_settings_file_of_another_plan_is_kept() {
        let directory = tempfile::tempdir().unwrap();
        let name = directory.path().to_str().unwrap();
        assert_eq!(settings_file(name, true), format!("{name}/90-lfn.conf"));
        fs::write(directory.path().join("90-lfn.conf"), "").unwrap();
        assert_eq!(settings_file(name, true), format!("{name}/91-lfn.conf"));
        assert_eq!(settings_file(name, false), format!("{name}/90-lfn.conf"), "the files of another host are unknown");
    }
}
