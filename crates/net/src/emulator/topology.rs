//! The two sides and what joins them to the middle: namespaces, veth pairs, addresses, kernel parameters.
//!
//! The calling thread's network namespace is the middle. Each side has one interface, whose Ethernet address and
//! neighbour are fixed, so that nothing but the two commands' own traffic ever crosses the link: no ARP, no IPv6
//! neighbour discovery.

use std::io;
use std::net::Ipv4Addr;

use lfn_core::path::PathProfile;
use lfn_core::plan::{Wishes, kernel_limit, plan};
use lfn_core::units::{Bytes, Ratio};
use lfn_sys::namespace::NetNamespace;
use lfn_sys::netlink::{Mac, Netlink, VethEnd};
use lfn_sys::packet::PacketSocket;
use lfn_sys::sysctl;

use super::{EmulateError, Setup, system};

/// Address of the near side. From 10.73.23.0/30: private, and hardly anybody's choice.
pub(super) const NEAR: Ipv4Addr = Ipv4Addr::new(10, 73, 23, 1);
/// Address of the far side.
pub(super) const FAR: Ipv4Addr = Ipv4Addr::new(10, 73, 23, 2);
const PREFIX: u8 = 30;

/// Name of each side's interface.
const INSIDE: &str = "lfn0";

/// One side of the path.
#[derive(Debug)]
pub(super) struct SideNet {
    /// Where its commands run.
    pub(super) namespace: NetNamespace,
    /// The middle's end of the cable to it.
    pub(super) socket: PacketSocket,
    /// Name of the middle's end.
    middle: &'static str,
}

/// What differs between the sides. Locally administered addresses, so that no vendor's is taken.
struct Plan {
    middle: VethEnd<'static>,
    mac: Mac,
    address: Ipv4Addr,
    peer_mac: Mac,
    peer: Ipv4Addr,
}

const NEAR_MAC: Mac = Mac([0x02, 0x4c, 0x46, 0x4e, 0x00, 0x01]);
const FAR_MAC: Mac = Mac([0x02, 0x4c, 0x46, 0x4e, 0x00, 0x02]);

/// Builds near and far around the namespace of the calling thread.
pub(super) fn build(setup: &Setup) -> Result<[SideNet; 2], EmulateError> {
    let plans = [
        Plan {
            middle: VethEnd { name: "near", mac: Mac([0x02, 0x4c, 0x46, 0x4e, 0x01, 0x01]) },
            mac: NEAR_MAC,
            address: NEAR,
            peer_mac: FAR_MAC,
            peer: FAR,
        },
        Plan {
            middle: VethEnd { name: "far", mac: Mac([0x02, 0x4c, 0x46, 0x4e, 0x01, 0x02]) },
            mac: FAR_MAC,
            address: FAR,
            peer_mac: NEAR_MAC,
            peer: NEAR,
        },
    ];
    without_ipv6();
    let [near, far] = plans;
    Ok([near.build(setup)?, far.build(setup)?])
}

impl Plan {
    fn build(&self, setup: &Setup) -> Result<SideNet, EmulateError> {
        let namespace = NetNamespace::new().map_err(system("make a network namespace"))?;
        namespace.run(without_ipv6).map_err(system("enter a network namespace"))?;
        let mut netlink = Netlink::open().map_err(system("open a netlink socket"))?;
        let inside = VethEnd { name: INSIDE, mac: self.mac };
        netlink
            .add_veth(self.middle, inside, &namespace, setup.paths[0].profile.mtu)
            .map_err(system("make a pair of veth interfaces"))?;
        let index = netlink.index(self.middle.name).map_err(system("find a veth interface"))?;
        // Up first, or the socket would start with ENETDOWN. Nothing is missed: the other end is still down.
        netlink.set_up(index).map_err(system("bring a veth interface up"))?;
        let socket = PacketSocket::open(index).map_err(system("open a packet socket"))?;
        let furnished = namespace.run(|| self.furnish()).and_then(|result| result);
        furnished.map_err(system("furnish a network namespace"))?;
        let buffers = namespace.run(|| raise_buffers(setup)).map_err(system("enter a network namespace"))?;
        buffers?;
        Ok(SideNet { namespace, socket, middle: self.middle.name })
    }

    /// Inside the side's own namespace.
    fn furnish(&self) -> io::Result<()> {
        let mut netlink = Netlink::open()?;
        let lo = netlink.index("lo")?;
        netlink.set_up(lo)?;
        let index = netlink.index(INSIDE)?;
        netlink.add_address(index, self.address, PREFIX)?;
        netlink.set_up(index)?;
        netlink.add_neighbour(index, self.peer, self.peer_mac)
    }
}

impl SideNet {
    /// Packets that the interfaces of this cable dropped: on the way from the side, and on the way to it.
    pub(super) fn dropped(&self) -> io::Result<(u64, u64)> {
        let from_side = self.namespace.run(|| Netlink::open()?.dropped_in_sending(INSIDE))??;
        let to_side = Netlink::open()?.dropped_in_sending(self.middle)?;
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

/// What the plan of this path asks of `tcp_rmem` and `tcp_wmem`: the cure `lfn plan` prints is the one applied here.
///
/// Loss does not change what a window must hold. A path for which there is no plan, such as an MTU that the headers
/// fill, can be emulated all the same: its sockets keep the limits of the system.
fn buffer_needed(setup: &Setup) -> Bytes {
    let path = PathProfile { loss: Ratio::default(), ..setup.paths[0].profile };
    plan(&path, &Wishes::default()).map_or(Bytes(0), |plan| kernel_limit(plan.buffer))
}

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
