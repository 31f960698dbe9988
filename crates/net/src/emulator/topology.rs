//! The two sides and what joins them to the middle: namespaces, veth pairs, addresses, kernel parameters.
//!
//! The calling thread's network namespace is the middle. Each side has one interface a path, whose Ethernet address and
//! neighbour are fixed, so that nothing but the two commands' own traffic ever crosses the link: no ARP, no IPv6
//! neighbour discovery, no duplicate address detection, no multicast reports.

use std::io;

use lfn_core::path::PathProfile;
use lfn_core::plan::{Wishes, kernel_limit, plan};
use lfn_core::units::{Bytes, Ratio};
use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::{Netlink, VethEnd};
use lfn_sys::packet::PacketSocket;
use lfn_sys::sysctl;
use rustix::io::Errno;

use super::addresses::{End, LEAST_MTU_V6, PREFIX_V4, PREFIX_V6, SideName};
use super::{EmulateError, Setup, system};

/// What a kernel without IPv6 says, or one that has it switched off.
const NO_IPV6: [Errno; 3] = [Errno::OPNOTSUPP, Errno::AFNOSUPPORT, Errno::ACCESS];

/// One side of all paths.
#[derive(Debug)]
pub(super) struct SideNet {
    /// Where its commands run.
    pub(super) namespace: NetNamespace,
    /// To the middle, one a path.
    pub(super) cables: Vec<Cable>,
}

/// A veth pair from the middle to a side.
#[derive(Debug)]
pub(super) struct Cable {
    /// The middle's end of it.
    pub(super) socket: PacketSocket,
    end: End,
}

/// Builds near and far around the namespace of the calling thread.
pub(super) fn build(setup: &Setup) -> Result<[SideNet; 2], EmulateError> {
    without_ipv6();
    Ok([build_side(SideName::Near, setup)?, build_side(SideName::Far, setup)?])
}

fn build_side(side: SideName, setup: &Setup) -> Result<SideNet, EmulateError> {
    let namespace = NetNamespace::new().map_err(system("make a network namespace"))?;
    let up = || {
        let mut netlink = Netlink::open()?;
        let lo = netlink.index("lo")?;
        netlink.set_up(lo)
    };
    namespace.run(up).and_then(|result| result).map_err(system("bring a loopback interface up"))?;
    let ends = setup.path_numbers().map(|path| End::new(side, path));
    let cables = ends.zip(&setup.paths).map(|(end, path)| lay_cable(end, &namespace, path.profile.mtu));
    let cables = cables.collect::<Result<_, _>>()?;
    namespace.run(|| raise_buffers(setup)).map_err(system("enter a network namespace"))??;
    Ok(SideNet { namespace, cables })
}

fn lay_cable(end: End, namespace: &NetNamespace, mtu: u32) -> Result<Cable, EmulateError> {
    let mut netlink = Netlink::open().map_err(system("open a netlink socket"))?;
    let (middle, inside) = (end.name(), end.interface());
    let here = VethEnd { name: &middle, mac: end.middle_mac() };
    let there = VethEnd { name: &inside, mac: end.mac() };
    netlink.add_veth(here, there, namespace, mtu).map_err(system("make a pair of veth interfaces"))?;
    let index = netlink.index(&middle).map_err(system("find a veth interface"))?;
    // Up first, or the socket would start with ENETDOWN. Nothing is missed: the other end is still down.
    netlink.set_up(index).map_err(system("bring a veth interface up"))?;
    let socket = PacketSocket::open(index).map_err(system("open a packet socket"))?;
    let furnished = namespace.run(|| furnish(end, mtu)).and_then(|result| result);
    furnished.map_err(system("furnish a network namespace"))?;
    Ok(Cable { socket, end })
}

/// Inside the side's own namespace.
fn furnish(end: End, mtu: u32) -> io::Result<()> {
    let mut netlink = Netlink::open()?;
    let index = netlink.index(&end.interface())?;
    netlink.keep_quiet(index)?;
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

impl SideNet {
    /// Packets that the interfaces of this path's cable dropped: on the way from the side, and on the way to it.
    pub(super) fn dropped(&self, path: usize) -> io::Result<(u64, u64)> {
        let Some(cable) = self.cables.get(path) else { return Ok((0, 0)) };
        let from_side = self.namespace.run(|| Netlink::open()?.dropped_in_sending(&cable.end.interface()))??;
        let to_side = Netlink::open()?.dropped_in_sending(&cable.end.name())?;
        Ok((from_side, to_side))
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
