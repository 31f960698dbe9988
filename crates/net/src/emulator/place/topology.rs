//! The two sides and what joins them to the middle: namespaces, veth pairs, addresses, kernel parameters.
//!
//! The calling thread's network namespace is the middle. Each side has one interface a path, whose Ethernet address and
//! neighbour are fixed, so that nothing but the two commands' own traffic ever crosses the link: no ARP, no IPv6
//! neighbour discovery, no duplicate address detection, no multicast reports.

use std::io::{self, Write};
use std::os::unix::net::UnixDatagram;

use lfn_core::path::PathProfile;
use lfn_core::plan::{Wishes, kernel_limit, plan};
use lfn_core::units::{Bytes, Ratio};
use lfn_sys::ethtool;
use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::{Netlink, VethEnd};
use lfn_sys::sysctl;
use rustix::io::Errno;

use super::addresses::{End, LEAST_MTU_V6, PREFIX_V4, PREFIX_V6, SideName};
use super::attach::Attached;
use super::isolation::{Lacking, Obstacle};
use crate::emulator::data_path::Port;
use crate::emulator::{EmulateError, Setup, system};

/// What a kernel without IPv6 says, or one that has it switched off.
const NO_IPV6: [Errno; 3] = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::ACCESS];

/// One side of all paths.
#[derive(Debug)]
pub(in crate::emulator) struct SideNet {
    /// Where its commands run.
    pub(in crate::emulator) namespace: NetNamespace,
    /// Whether it was there before, and stays.
    pub(in crate::emulator) existed: bool,
    /// To the middle, one a path.
    pub(in crate::emulator) cables: Vec<Cable>,
}

/// A veth pair from the middle to a side, or a real interface.
#[derive(Debug)]
pub(in crate::emulator) struct Cable {
    /// The middle's end of it.
    pub(in crate::emulator) socket: Port,
    /// Name of the middle's end.
    pub(super) port: String,
    /// Name of the side's end, if it is one of ours.
    pub(super) inside: Option<String>,
    /// What the middle's end had dropped before there was a path: packets received, packets to be sent.
    pub(super) before: (u64, u64),
    /// That no other run may take this interface.
    pub(super) _claim: Option<UnixDatagram>,
}

/// Builds near and far around the namespace of the calling thread, or around what is attached.
pub(in crate::emulator) fn build(setup: &Setup, attached: [Option<Attached>; 2]) -> Result<[SideNet; 2], EmulateError> {
    without_ipv6();
    let [near, far] = attached;
    Ok([build_side(SideName::Near, setup, near)?, build_side(SideName::Far, setup, far)?])
}

fn build_side(side: SideName, setup: &Setup, attached: Option<Attached>) -> Result<SideNet, EmulateError> {
    let ends = || setup.path_numbers().map(|path| End::new(side, path));
    let existed = attached.is_some();
    let namespace = match attached {
        None => furnished_namespace(setup)?,
        Some(attached) => {
            ends().try_for_each(|end| attached.check(end))?;
            hint_at_buffers(&attached, setup);
            attached.namespace
        }
    };
    let cables = ends().zip(&setup.paths).map(|(end, path)| lay_cable(end, &namespace, path.profile.mtu));
    let cables = cables.collect::<Result<_, _>>()?;
    Ok(SideNet { namespace, existed, cables })
}

/// A namespace of our own, in which a path can be filled.
fn furnished_namespace(setup: &Setup) -> Result<NetNamespace, EmulateError> {
    let namespace = NetNamespace::new().map_err(system("make a network namespace"))?;
    let up = || {
        let mut netlink = Netlink::open()?;
        let lo = netlink.index("lo")?;
        netlink.set_up(lo)
    };
    namespace.run(up).and_then(|result| result).map_err(system("bring a loopback interface up"))?;
    namespace.run(|| raise_buffers(setup)).map_err(system("enter a network namespace"))??;
    Ok(namespace)
}

/// The settings of a namespace that exists are its owner's to change, but they limit what TCP can do on the path.
fn hint_at_buffers(attached: &Attached, setup: &Setup) {
    let Ok(Some(settings)) = attached.check_buffers(buffer_needed(setup)) else { return };
    // Nobody may be listening, and the run goes on all the same.
    let _ = writeln!(
        io::stderr(),
        "lfn: {}: TCP's buffers are too small to fill this path\nhint: {} sysctl -w {settings}",
        attached.typed,
        attached.enter()
    );
}

fn lay_cable(end: End, namespace: &NetNamespace, mtu: u32) -> Result<Cable, EmulateError> {
    let mut netlink = Netlink::open().map_err(system("open a netlink socket"))?;
    let (middle, inside) = (end.name(), end.interface());
    let here = VethEnd { name: &middle, mac: end.middle_mac() };
    let there = VethEnd { name: &inside, mac: end.mac() };
    netlink.add_veth(here, there, namespace, mtu).map_err(|error| match error.raw_os_error() {
        Some(code) if code == Errno::OPNOTSUPP.raw_os_error() => Obstacle::Kernel(Lacking::Veth).into(),
        _ => system("make a pair of veth interfaces")(error),
    })?;
    let index = netlink.index(&middle).map_err(system("find a veth interface"))?;
    // Up first, or the socket would start with ENETDOWN. Nothing is missed: the other end is still down.
    netlink.set_up(index).map_err(system("bring a veth interface up"))?;
    let socket = Port::open(index).map_err(system("open a packet socket"))?;
    cut_early(&middle).map_err(system("switch off offloads of a veth interface"))?;
    let furnished = namespace.run(|| furnish(end, mtu)).and_then(|result| result);
    furnished.map_err(system("furnish a network namespace"))?;
    Ok(Cable { socket, port: middle, inside: Some(inside), before: (0, 0), _claim: None })
}

/// Inside the side's own namespace.
fn furnish(end: End, mtu: u32) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(&end.interface())?;
    netlink.keep_quiet(index)?;
    cut_early(&end.interface())?;
    netlink.add_address(index, end.v4().into(), PREFIX_V4)?;
    netlink.add_neighbour(index, end.peer().v4().into(), end.peer().mac())?;
    netlink.set_up(index)?;
    if mtu < LEAST_MTU_V6 {
        return Ok(());
    }
    let ipv6 = netlink
        .add_second_choice(index, end.v6().into(), PREFIX_V6)
        .and_then(|()| netlink.add_neighbour(index, end.peer().v6().into(), end.peer().mac()));
    match ipv6 {
        Err(error) if Errno::from_io_error(&error).is_some_and(|e| NO_IPV6.contains(&e)) => Ok(()),
        other => other,
    }
}

/// Tunnels inside the path send super-packets that packet sockets cannot tell from one large packet, nor send on.
fn cut_early(interface: &str) -> io::Result<()> {
    match ethtool::cut_what_is_not_told(interface) {
        // The path is right for all that is not such a super-packet, and the ledger tells of those.
        Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => Ok(()),
        other => other,
    }
}

impl SideNet {
    /// Packets that the interfaces of this path's cable dropped: on the way from the side, and on the way to it.
    pub(in crate::emulator) fn dropped(&self, path: usize) -> io::Result<(u64, u64)> {
        let Some(cable) = self.cables.get(path) else { return Ok((0, 0)) };
        let (missed, to_side) = Netlink::open()?.dropped(&cable.port)?;
        let from_side = match &cable.inside {
            Some(inside) => self.namespace.run(|| Netlink::open()?.dropped(inside))??.1,
            None => missed,
        };
        Ok((from_side.saturating_sub(cable.before.0), to_side.saturating_sub(cable.before.1)))
    }

    /// Takes the cables away now. The kernel would do so as well, a little after the emulator's end; until then nobody
    /// else could attach to a namespace that was there before.
    pub(in crate::emulator) fn unplug(&self) {
        let Ok(mut netlink) = Netlink::open() else { return };
        for cable in self.cables.iter().filter(|cable| cable.inside.is_some()) {
            // What is gone already is what was wanted.
            let _ = netlink.index(&cable.port).and_then(|index| netlink.delete(index));
        }
    }

    /// What has become of an interface without which there is no path.
    pub(in crate::emulator) fn broken(&self) -> Option<String> {
        let mut netlink = Netlink::open().ok()?;
        self.cables.iter().find_map(|cable| {
            let name = cable.inside.as_ref().unwrap_or(&cable.port);
            match netlink.interface(&cable.port) {
                Err(_) => Some(format!("interface {name} vanished")),
                Ok(interface) if !interface.is_up => Some(format!("interface {name} went down")),
                Ok(_) => None,
            }
        })
    }
}

/// Interfaces made from now on in the thread's namespace have no IPv6 address, so the kernel sends nothing unasked.
fn without_ipv6() {
    // A kernel without IPv6 has no such parameter, and nothing to switch off.
    let _ = sysctl::write("net.ipv6.conf.default.disable_ipv6", "1");
}

/// Lets TCP have windows that fill the path, and has it start every connection cold.
fn raise_buffers(setup: &Setup) -> Result<(), EmulateError> {
    let needed = buffer_needed(setup);
    for name in ["net.ipv4.tcp_rmem", "net.ipv4.tcp_wmem"] {
        raise_most(name, needed).map_err(system(&format!("set {name}")))?;
    }
    // Metrics kept of one connection would make the next one faster, and no two runs alike.
    sysctl::write("net.ipv4.tcp_no_metrics_save", "1").map_err(system("set net.ipv4.tcp_no_metrics_save"))?;
    // Ping without privilege for every group there is here: in a user namespace that is only the caller's own. Where
    // neither is accepted ping still works for root, which CMD is.
    let _ = sysctl::write("net.ipv4.ping_group_range", "0 2147483647")
        .or_else(|_| sysctl::write("net.ipv4.ping_group_range", "0 0"));
    Ok(())
}

/// What the plan of these paths asks of `tcp_rmem` and `tcp_wmem`: the cure `lfn plan` prints is the one applied here.
/// Of all paths together, because one connection of Multipath TCP may fill them all (RFC 8684 §3.3.1).
///
/// Loss does not change what a window must hold. A path for which there is no plan, such as an MTU that the headers
/// fill, can be emulated all the same: its sockets keep the limits of the system.
fn buffer_needed(setup: &Setup) -> Bytes {
    let of = |profile: &PathProfile| {
        let path = PathProfile { loss: Ratio::default(), ..*profile };
        plan(&path, &Wishes::default()).map_or(0, |plan| kernel_limit(plan.buffer).0)
    };
    let all = setup.paths.iter().map(|path| of(&path.profile)).fold(0, u64::saturating_add);
    Bytes(all.min(SYSCTL_MOST))
}

/// The kernel's parameters are of type int.
const SYSCTL_MOST: u64 = i32::MAX as u64;

/// Raises the third of three numbers, the most a socket may take, and leaves the others.
fn raise_most(name: &str, needed: Bytes) -> io::Result<()> {
    let value = sysctl::read(name)?;
    let mut numbers = value.split_whitespace();
    let (Some(least), Some(default), Some(most)) = (numbers.next(), numbers.next(), numbers.next()) else {
        return Err(io::Error::other(format!("'{value}' is not three numbers")));
    };
    let most = most.parse().unwrap_or(0).max(needed.0);
    sysctl::write(name, &format!("{least} {default} {most}"))
}
