//! A transparent bridge: the path lies between two existing interfaces. Every frame that arrives at one leaves at the
//! other.
//!
//! The interfaces are only put into promiscuous mode, which ends when the sockets are closed. If the machine uses an
//! interface itself, the machine answers outside the emulated path. This causes a warning and not an error.

use std::io::{self, Write};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};

use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::{Interface, Netlink};

use super::topology::{Cable, SideNetwork};
use crate::data_path::Port;
use crate::error::{EmulateError, system_error};

/// Returns the MTU of a path between these interfaces in bytes, the smaller of the two. Returns an error if an
/// interface cannot be bridged.
pub fn bridge_mtu(names: &[String; 2]) -> Result<u32, EmulateError> {
    let [one, other] = find(names)?;
    Ok(one.mtu.min(other.mtu))
}

/// Builds both sides. Each side has one cable, its real interface.
pub(super) fn build(names: &[String; 2]) -> Result<[SideNetwork; 2], EmulateError> {
    let interfaces = find(names)?;
    let warnings = warnings(names, &interfaces).map_err(system_error("read the state of the interfaces"))?;
    // The run continues if stderr is closed.
    let _ = warnings.iter().try_for_each(|warning| writeln!(io::stderr(), "lfn: {warning}"));
    let [(one, near), (other, far)] = [(&names[0], &interfaces[0]), (&names[1], &interfaces[1])];
    Ok([side(one, near)?, side(other, far)?])
}

fn side(name: &str, interface: &Interface) -> Result<SideNetwork, EmulateError> {
    let permission_error = |error: io::Error| match error.kind() {
        io::ErrorKind::PermissionDenied => permission_error(name),
        _ => system_error("open a packet socket")(error),
    };
    let reservation = reserve(name, interface)?;
    let socket = Port::open(interface.index).map_err(permission_error)?;
    socket.set_promiscuous(interface.index).map_err(system_error("enable promiscuous mode"))?;
    let before = Netlink::open().and_then(|mut netlink| netlink.dropped_packets(name));
    let before = before.map_err(system_error("read the interfaces' counters"))?;
    let namespace = NetNamespace::current().map_err(system_error("open this network namespace"))?;
    Ok(SideNetwork {
        namespace,
        is_attached: true,
        cables: vec![Cable {
            socket,
            middle_interface: name.to_owned(),
            side_interface: None,
            drops_before: before,
            _reservation: Some(reservation),
        }],
    })
}

/// Reserves an interface, because two runs on one interface would both forward every packet. The reservation is an
/// abstract socket name in the interface's network namespace. The kernel frees the name when the process ends.
fn reserve(name: &str, interface: &Interface) -> Result<UnixDatagram, EmulateError> {
    let address = SocketAddr::from_abstract_name(format!("lfn-wire-{}", interface.index));
    address.and_then(|address| UnixDatagram::bind_addr(&address)).map_err(|error| match error.kind() {
        io::ErrorKind::AddrInUse => {
            bridge_error(name, "another emulation already uses it", "stop the other emulation first")
        }
        _ => system_error("reserve an interface")(error),
    })
}

fn find(names: &[String; 2]) -> Result<[Interface; 2], EmulateError> {
    let [one, other] = names;
    if one == other {
        return Err(bridge_error(one, "both ends are the same interface", "name two different interfaces"));
    }
    let mut netlink = Netlink::open().map_err(system_error("open a netlink socket"))?;
    let mut find = |name: &str| {
        let interface = netlink
            .interface(name)
            .map_err(|_| bridge_error(name, "there is no such interface", "list the interfaces with: ip link"))?;
        match interface {
            Interface { is_ethernet: false, .. } => {
                Err(bridge_error(name, "it is not an Ethernet interface", "list the interfaces with: ip link"))
            }
            Interface { is_up: false, .. } => Err(bridge_error(name, "it is down", &format!("ip link set {name} up"))),
            interface => Ok(interface),
        }
    };
    let found = [find(one)?, find(other)?];
    if found[0].index == found[1].index {
        Err(bridge_error(one, "both ends are the same interface", "name two different interfaces"))
    } else {
        Ok(found)
    }
}

/// Returns warnings about properties that can change the behaviour of the path.
fn warnings(names: &[String; 2], interfaces: &[Interface; 2]) -> io::Result<Vec<String>> {
    let mut warnings = Vec::new();
    let addresses = Netlink::open()?.addresses()?;
    for (name, interface) in names.iter().zip(interfaces) {
        // Every interface has a link-local IPv6 address, and only direct neighbours use it.
        let own = addresses.iter().find(|assigned| {
            let is_link_local = matches!(assigned.address, std::net::IpAddr::V6(v6) if v6.is_unicast_link_local());
            assigned.interface == interface.index && !is_link_local
        });
        if let Some(assigned) = own {
            warnings.push(format!(
                "{name} has the address {}: this machine answers there outside the emulated path",
                assigned.address
            ));
        }
        if interface.master.is_some() {
            warnings
                .push(format!("{name} belongs to a bridge or bond, which forwards packets outside the emulated path"));
        }
        if lfn_sys::ethtool::has_large_receive_offload(name).unwrap_or(false) {
            warnings.push(format!(
                "{name} merges received packets, and they cannot be split again\nhint: ethtool -K {name} lro off"
            ));
        }
    }
    let [one, other] = interfaces;
    if one.mtu != other.mtu {
        let [near, far] = names;
        warnings.push(format!("{near} has MTU {}, {far} {}: larger packets cannot pass", one.mtu, other.mtu));
    }
    Ok(warnings)
}

/// Returns the error that the caller has no right to receive the packets of the interface.
pub(super) fn permission_error(name: &str) -> EmulateError {
    bridge_error(
        name,
        "only root may capture its packets",
        "run as root, in a container with --cap-add SYS_ADMIN,NET_ADMIN,NET_RAW",
    )
}

fn bridge_error(name: &str, reason: &str, remedy: &str) -> EmulateError {
    EmulateError::Bridge { interface: name.to_owned(), reason: reason.to_owned(), remedy: remedy.to_owned() }
}
