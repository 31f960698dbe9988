//! The two sides and their connections to the middle: namespaces, veth pairs, addresses, kernel parameters.
//!
//! The network namespace of the calling thread is the middle. Each side has one interface for each path. Its Ethernet
//! address and its neighbour are fixed. So only the traffic of the two commands crosses the link: no ARP, no IPv6
//! neighbour discovery, no duplicate address detection, no multicast reports.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;

use lfn_base::path::PathProfile;
use lfn_base::plan::{PlanOptions, kernel_limit, plan};
use lfn_base::units::{Bytes, Ratio};
use lfn_sys::namespace::{NetNamespace, UserIdentity};
use lfn_sys::netlink::{Netlink, VethEnd};
use lfn_sys::{ethtool, sysctl};
use rustix::io::Errno;

use super::addresses::{MIN_MTU_V6, PREFIX_V4, PREFIX_V6, PathEnd, SideName};
use super::existing_namespace::AttachedNamespace;
use super::namespace_error::{MissingFeature, NamespaceError};
use crate::Setup;
use crate::data_path::Port;
use crate::error::{EmulateError, system_error};

/// Errors of a kernel without IPv6, or with IPv6 disabled.
const NO_IPV6: [Errno; 3] = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::ACCESS];

/// One side of all paths.
#[derive(Debug)]
pub(crate) struct SideNetwork {
    /// Network namespace of the commands of this side.
    pub(crate) namespace: NetNamespace,
    /// True if the namespace existed before the run. It also exists after the run.
    pub(crate) is_attached: bool,
    /// One connection to the middle for each path.
    pub(crate) cables: Vec<Cable>,
}

/// A veth pair from the middle to a side, or a real interface.
#[derive(Debug)]
pub(crate) struct Cable {
    /// Port at the middle's end.
    pub(crate) socket: Port,
    pub(super) middle_interface: String,
    /// `None` for a real interface.
    pub(super) side_interface: Option<String>,
    /// Drops at the middle's end before the path existed: received packets, packets to be sent.
    pub(super) drops_before: (u64, u64),
    /// Prevents other runs from using this interface.
    pub(super) _reservation: Option<UnixDatagram>,
}

/// Builds near and far around the namespace of the calling thread, or around the attached namespaces.
pub(crate) fn build(setup: &Setup, attached: [Option<AttachedNamespace>; 2]) -> Result<[SideNetwork; 2], EmulateError> {
    disable_ipv6();
    let [near, far] = attached;
    Ok([build_side(SideName::Near, setup, near)?, build_side(SideName::Far, setup, far)?])
}

fn build_side(side: SideName, setup: &Setup, attached: Option<AttachedNamespace>) -> Result<SideNetwork, EmulateError> {
    let ends = || setup.path_numbers().map(|path| PathEnd::new(side, path));
    let is_attached = attached.is_some();
    let namespace = match attached {
        None => new_namespace(setup)?,
        Some(attached) => {
            ends().try_for_each(|end| attached.check(end))?;
            warn_about_small_buffers(&attached, setup);
            attached.namespace
        }
    };
    let cables = ends().zip(&setup.paths).map(|(end, path)| add_cable(end, &namespace, path.profile.mtu));
    let cables = cables.collect::<Result<_, _>>()?;
    Ok(SideNetwork { namespace, is_attached, cables })
}

/// Creates a namespace with buffers that can fill a path.
fn new_namespace(setup: &Setup) -> Result<NetNamespace, EmulateError> {
    let namespace = NetNamespace::new().map_err(system_error("create a network namespace"))?;
    let up = || {
        let mut netlink = Netlink::open()?;
        let lo = netlink.index("lo")?;
        netlink.set_up(lo)
    };
    namespace.run(up).and_then(|result| result).map_err(system_error("bring a loopback interface up"))?;
    namespace.run(|| prepare_tcp(setup)).map_err(system_error("enter a network namespace"))??;
    Ok(namespace)
}

/// Warns if the settings of an existing namespace limit TCP on the path. Only the owner of the namespace may change
/// them.
fn warn_about_small_buffers(attached: &AttachedNamespace, setup: &Setup) {
    let Ok(Some(settings)) = attached.small_buffer_settings(needed_buffer(setup)) else { return };
    // The run continues if stderr is closed.
    let _ = writeln!(
        io::stderr(),
        "lfn: {}: TCP buffers are too small to fill this path\nhint: {} sysctl -w {settings}",
        attached.spec,
        attached.spec.enter_command(!UserIdentity::current().is_root())
    );
}

fn add_cable(end: PathEnd, namespace: &NetNamespace, mtu: u32) -> Result<Cable, EmulateError> {
    let mut netlink = Netlink::open().map_err(system_error("open a netlink socket"))?;
    let (middle, side_interface) = (end.name(), end.interface());
    let middle_end = VethEnd { name: &middle, mac: end.middle_mac() };
    let side_end = VethEnd { name: &side_interface, mac: end.mac() };
    netlink.add_veth(middle_end, side_end, namespace, mtu).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::OPNOTSUPP.raw_os_error() => NamespaceError::Kernel(MissingFeature::Veth).into(),
        _ => system_error("create a pair of veth interfaces")(error),
    })?;
    let index = netlink.index(&middle).map_err(system_error("find a veth interface"))?;
    // The interface must be up before the socket is opened, or the socket would start with ENETDOWN. No packet is
    // missed, because the other end is still down.
    netlink.set_up(index).map_err(system_error("bring a veth interface up"))?;
    let socket = Port::open(index).map_err(system_error("open a packet socket"))?;
    disable_offloads(&middle).map_err(system_error("switch off offloads of a veth interface"))?;
    let configured = namespace.run(|| configure_side(end, mtu)).and_then(|result| result);
    configured.map_err(system_error("configure a network namespace"))?;
    Ok(Cable {
        socket,
        middle_interface: middle,
        side_interface: Some(side_interface),
        drops_before: (0, 0),
        _reservation: None,
    })
}

/// Configures the side's end of a cable. Runs in the side's namespace.
fn configure_side(end: PathEnd, mtu: u32) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(&end.interface())?;
    netlink.disable_background_traffic(index)?;
    disable_offloads(&end.interface())?;
    netlink.add_address(index, end.v4().into(), PREFIX_V4)?;
    netlink.add_neighbour(index, end.peer().v4().into(), end.peer().mac())?;
    netlink.set_up(index)?;
    if mtu < MIN_MTU_V6 {
        return Ok(());
    }
    let ipv6 = netlink
        .add_deprecated_address(index, end.v6().into(), PREFIX_V6)
        .and_then(|()| netlink.add_neighbour(index, end.peer().v6().into(), end.peer().mac()));
    match ipv6 {
        Err(error) if Errno::from_io_error(&error).is_some_and(|e| NO_IPV6.contains(&e)) => Ok(()),
        other => other,
    }
}

/// Disables offloads of tunnels. With these offloads, tunnels in the path send super-packets that a packet socket
/// cannot distinguish from one large packet, and cannot send.
fn disable_offloads(interface: &str) -> io::Result<()> {
    match ethtool::disable_unsupported_offloads(interface) {
        // The path is accurate for all other packets, and the accuracy report counts these packets.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        other => other,
    }
}

impl SideNetwork {
    /// Returns the packets that the interfaces of this path's cable dropped: from the side, and to the side.
    pub(crate) fn dropped(&self, path: usize) -> io::Result<(u64, u64)> {
        let Some(cable) = self.cables.get(path) else { return Ok((0, 0)) };
        let (missed, to_side) = Netlink::open()?.dropped_packets(&cable.middle_interface)?;
        let from_side = match &cable.side_interface {
            Some(side_interface) => self.namespace.run(|| Netlink::open()?.dropped_packets(side_interface))??.1,
            None => missed,
        };
        Ok((from_side.saturating_sub(cable.drops_before.0), to_side.saturating_sub(cable.drops_before.1)))
    }

    /// Deletes the cables now. The kernel also deletes them, but a short time after the end of the emulator. Until then
    /// no other run could attach to the existing namespace.
    pub(crate) fn delete_interfaces(&self) {
        let Ok(mut netlink) = Netlink::open() else { return };
        for cable in self.cables.iter().filter(|cable| cable.side_interface.is_some()) {
            // This fails only if the interface is already gone.
            let _ = netlink.index(&cable.middle_interface).and_then(|index| netlink.delete(index));
        }
    }

    /// Returns the reason if an interface of a path vanished or went down.
    pub(crate) fn interface_failure(&self) -> Option<String> {
        let mut netlink = Netlink::open().ok()?;
        self.cables.iter().find_map(|cable| {
            let name = cable.side_interface.as_ref().unwrap_or(&cable.middle_interface);
            match netlink.interface(&cable.middle_interface) {
                Err(_) => Some(format!("interface {name} vanished")),
                Ok(interface) if !interface.is_up => Some(format!("interface {name} went down")),
                Ok(_) => None,
            }
        })
    }
}

/// Gives later interfaces of the thread's namespace no IPv6 address, so that the kernel sends no packets on its own.
fn disable_ipv6() {
    // A kernel without IPv6 has no such parameter.
    let _ = sysctl::write("net.ipv6.conf.default.disable_ipv6", "1");
}

/// Makes every connection start without cached metrics. Allows TCP windows that fill the path, if this is requested.
fn prepare_tcp(setup: &Setup) -> Result<(), EmulateError> {
    if setup.large_buffers {
        let needed = needed_buffer(setup);
        for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
            raise_maximum(name, needed).map_err(system_error(&format!("set {name}")))?;
        }
    }
    // Cached metrics of one connection would make the next one faster, and runs would not be comparable.
    sysctl::write("net.ipv4.tcp_no_metrics_save", "1").map_err(system_error("set net.ipv4.tcp_no_metrics_save"))?;
    // Allows unprivileged ping to all groups. In a user namespace only the caller's own group can be set. If neither
    // value is accepted, ping still works, because CMD is root.
    let _ = sysctl::write("net.ipv4.ping_group_range", "0 2147483647")
        .or_else(|_| sysctl::write("net.ipv4.ping_group_range", "0 0"));
    Ok(())
}

/// Returns the maximum that the plan of these paths requires of `tcp_rmem` and `tcp_wmem`. `lfn plan` prints the same
/// value as its remedy. The sum over all paths, because one Multipath TCP connection may fill them all (RFC 8684
/// §3.3.1).
///
/// Loss does not change the required window. A path without a plan, for example with an MTU that the headers fill, can
/// still be emulated: its sockets keep the limits of the system.
fn needed_buffer(setup: &Setup) -> Bytes {
    let of = |profile: &PathProfile| {
        let path = PathProfile { loss: Ratio::default(), ..*profile };
        plan(&path, &PlanOptions::default()).map_or(0, |plan| kernel_limit(plan.buffer).0)
    };
    let all = setup.paths.iter().map(|path| of(&path.profile)).fold(0, u64::saturating_add);
    Bytes(all.min(MAX_SYSCTL))
}

/// The kernel parameters have the type int.
const MAX_SYSCTL: u64 = i32::MAX as u64;

/// Raises the third of three numbers, the maximum for one socket, and keeps the others.
fn raise_maximum(name: &str, needed: Bytes) -> io::Result<()> {
    let value = sysctl::read(name)?;
    let mut numbers = value.split_whitespace();
    let (Some(min), Some(default), Some(max)) = (numbers.next(), numbers.next(), numbers.next()) else {
        return Err(io::Error::other(format!("'{value}' is not three numbers")));
    };
    let max = max.parse().unwrap_or(0).max(needed.0);
    sysctl::write(name, &format!("{min} {default} {max}"))
}
