//! Routing-netlink requests that configure a network namespace (`rtnetlink(7)`).
//!
//! This is not a general client. It creates veth pairs, brings interfaces up, sets addresses and permanent neighbours,
//! and reads interfaces and addresses. The kernel answers each request at once, so the socket is blocking.

use std::io;
use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};

use netlink_packet_core::{
    NLM_F_ACK, NLM_F_CREATE, NLM_F_DUMP, NLM_F_EXCL, NLM_F_REPLACE, NLM_F_REQUEST, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_route::address::{AddressAttribute, AddressHeaderFlags, AddressMessage, CacheInfo};
use netlink_packet_route::link::{
    AfSpecInet6, AfSpecUnspec, In6AddrGenMode, InfoData, InfoKind, InfoVeth, LinkAttribute, LinkFlags, LinkInfo,
    LinkLayerType, LinkMessage,
};
use netlink_packet_route::neighbour::{NeighbourAttribute, NeighbourMessage, NeighbourState};
use netlink_packet_route::route::RouteType;
use netlink_packet_route::{AddressFamily, RouteNetlinkMessage};
use netlink_sys::{Socket, SocketAddr, protocols::NETLINK_ROUTE};

use crate::namespace::NetNamespace;

/// Ethernet address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MacAddress(pub [u8; 6]);

/// One end of a new veth pair.
#[derive(Clone, Copy, Debug)]
pub struct VethEnd<'a> {
    /// At most 15 bytes.
    pub name: &'a str,
    pub mac: MacAddress,
}

/// Properties of a network interface.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Interface {
    pub index: u32,
    /// Set by "ip link set up" (`IFF_UP`).
    pub is_up: bool,
    /// In bytes, without the Ethernet header.
    pub mtu: u32,
    /// Index of the bridge or bond that the interface belongs to (`IFLA_MASTER`).
    pub master: Option<u32>,
    /// Has an Ethernet header (`ARPHRD_ETHER`).
    pub is_ethernet: bool,
}

/// An address of an interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InterfaceAddress {
    /// Index of the interface.
    pub interface: u32,
    pub address: IpAddr,
    /// Prefix length of its network.
    pub prefix: u8,
    /// Accepts connections, and stays for longer than a day: not tentative, failed or deprecated (RFC 4862), and not
    /// temporary (RFC 8981).
    pub is_lasting: bool,
}

/// A lifetime that never ends (`INFINITY_LIFE_TIME`).
const INFINITE_LIFETIME: u32 = u32::MAX;

/// A routing-netlink socket of the namespace where it was opened.
#[derive(Debug)]
pub struct Netlink {
    socket: Socket,
    sequence: u32,
}

impl Netlink {
    /// Opens a socket in the network namespace of the calling thread.
    pub fn open() -> io::Result<Self> {
        let mut socket = Socket::new(NETLINK_ROUTE)?;
        socket.bind_auto()?;
        socket.connect(&SocketAddr::new(0, 0))?;
        Ok(Netlink { socket, sequence: 0 })
    }

    /// Creates a veth pair: `local` in this namespace, `remote` in another one. Both ends have this MTU in bytes.
    pub fn add_veth(&mut self, local: VethEnd, remote: VethEnd, namespace: &NetNamespace, mtu: u32) -> io::Result<()> {
        let mut peer = new_link(remote, mtu);
        peer.attributes.push(LinkAttribute::NetNsFd(namespace.as_fd().as_raw_fd()));
        let mut link = new_link(local, mtu);
        link.attributes.push(LinkAttribute::LinkInfo(vec![
            LinkInfo::Kind(InfoKind::Veth),
            LinkInfo::Data(InfoData::Veth(InfoVeth::Peer(peer))),
        ]));
        self.change(RouteNetlinkMessage::NewLink(link), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Returns the index of an interface.
    pub fn index(&mut self, name: &str) -> io::Result<u32> {
        self.link(name).map(|link| link.header.index)
    }

    /// Returns the names of all interfaces.
    pub fn interface_names(&mut self) -> io::Result<Vec<String>> {
        let links = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let name = |message| match message {
            RouteNetlinkMessage::NewLink(link) => link.attributes.into_iter().find_map(|attribute| match attribute {
                LinkAttribute::IfName(name) => Some(name),
                _ => None,
            }),
            _ => None,
        };
        Ok(links.into_iter().filter_map(name).collect())
    }

    /// Returns the properties of an interface.
    pub fn interface(&mut self, name: &str) -> io::Result<Interface> {
        let link = self.link(name)?;
        let mut interface = Interface {
            index: link.header.index,
            is_up: link.header.flags.contains(LinkFlags::Up),
            mtu: 0,
            master: None,
            is_ethernet: link.header.link_layer_type == LinkLayerType::Ether,
        };
        for attribute in link.attributes {
            match attribute {
                LinkAttribute::Mtu(mtu) => interface.mtu = mtu,
                LinkAttribute::Controller(master) => interface.master = Some(master),
                _ => {}
            }
        }
        Ok(interface)
    }

    /// Returns all addresses in this namespace.
    pub fn addresses(&mut self) -> io::Result<Vec<InterfaceAddress>> {
        let all = self.dump(RouteNetlinkMessage::GetAddress(AddressMessage::default()))?;
        let assigned = |message| match message {
            RouteNetlinkMessage::NewAddress(AddressMessage { header, attributes, .. }) => {
                // The attribute ADDRESS of a point-to-point address is the address of the other end.
                let own = |attribute: &AddressAttribute| match attribute {
                    AddressAttribute::Local(address) => Some((true, *address)),
                    AddressAttribute::Address(address) => Some((false, *address)),
                    _ => None,
                };
                let (_, address) = attributes.iter().filter_map(own).max_by_key(|(is_local, _)| *is_local)?;
                Some(InterfaceAddress {
                    interface: header.index,
                    address,
                    prefix: header.prefix_len,
                    is_lasting: is_lasting(header.flags, address),
                })
            }
            _ => None,
        };
        Ok(all.into_iter().filter_map(assigned).collect())
    }

    /// Returns the indices of the interfaces that are up and connected (`IFF_RUNNING`), without loopback.
    pub fn connected_interfaces(&mut self) -> io::Result<Vec<u32>> {
        let links = self.dump(RouteNetlinkMessage::GetLink(LinkMessage::default()))?;
        let connected = |message| match message {
            RouteNetlinkMessage::NewLink(LinkMessage { header, .. }) => {
                let is_connected = header.flags.contains(LinkFlags::Up | LinkFlags::Running);
                (is_connected && !header.flags.contains(LinkFlags::Loopback)).then_some(header.index)
            }
            _ => None,
        };
        Ok(links.into_iter().filter_map(connected).collect())
    }

    /// Returns the MTU of the interface with this local address, or `None` if no interface has the address.
    pub fn mtu_of(&mut self, address: IpAddr) -> io::Result<Option<u32>> {
        let Some(assigned) = self.addresses()?.into_iter().find(|assigned| assigned.address == address) else {
            return Ok(None);
        };
        let mut query = LinkMessage::default();
        query.header.index = assigned.interface;
        let Some(RouteNetlinkMessage::NewLink(link)) =
            self.request(RouteNetlinkMessage::GetLink(query), NLM_F_REQUEST)?
        else {
            return Ok(None);
        };
        Ok(link.attributes.into_iter().find_map(|attribute| match attribute {
            LinkAttribute::Mtu(mtu) => Some(mtu),
            _ => None,
        }))
    }

    /// Returns the packets that the interface dropped: received packets without room (`rx_missed_errors`,
    /// `rx_fifo_errors`), and packets to be sent.
    pub fn dropped_packets(&mut self, name: &str) -> io::Result<(u64, u64)> {
        let link = self.link(name)?;
        let stats = link.attributes.iter().find_map(|attribute| match attribute {
            LinkAttribute::Stats64(stats) => {
                Some((stats.rx_missed_errors + stats.rx_fifo_errors, stats.tx_dropped + stats.tx_errors))
            }
            _ => None,
        });
        stats.ok_or_else(|| io::Error::other(format!("{name}: the kernel gave no statistics")))
    }

    /// Deletes an interface, and the other end of a veth pair.
    pub fn delete(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        self.change(RouteNetlinkMessage::DelLink(link), 0)
    }

    /// Brings an interface up.
    pub fn set_up(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Up;
        link.header.change_mask = LinkFlags::Up;
        self.change(RouteNetlinkMessage::SetLink(link), 0)
    }

    /// Stops an interface that is still down from sending packets on its own. Disables neighbour discovery
    /// (`IFF_NOARP`, which also ends IPv6 neighbour discovery and its multicast reports), and the link-local address
    /// (`IFLA_INET6_ADDR_GEN_MODE`), without which the interface sends no router solicitations. Addresses and
    /// neighbours must then be set explicitly.
    pub fn disable_background_traffic(&mut self, index: u32) -> io::Result<()> {
        let mut link = LinkMessage::default();
        link.header.index = index;
        link.header.flags = LinkFlags::Noarp;
        link.header.change_mask = LinkFlags::Noarp;
        self.change(RouteNetlinkMessage::SetLink(link), 0)?;
        let mut link = LinkMessage::default();
        link.header.index = index;
        let no_link_local = AfSpecInet6::AddrGenMode(In6AddrGenMode::None);
        link.attributes = vec![LinkAttribute::AfSpecUnspec(vec![AfSpecUnspec::Inet6(vec![no_link_local])])];
        match self.change(RouteNetlinkMessage::SetLink(link), 0) {
            // Without IPv6 there is no such address.
            Err(error) if error.raw_os_error() == Some(libc::EAFNOSUPPORT) => Ok(()),
            other => other,
        }
    }

    /// Adds an address without duplicate address detection (RFC 4862 §5.4). The kernel also adds the route to its
    /// network.
    pub fn add_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.assign(index, address, prefix, INFINITE_LIFETIME)
    }

    /// Adds an address that resolvers choose last (RFC 6724 §5 rule 3): its preferred lifetime has ended, and its valid
    /// lifetime never ends. The address works like any other.
    pub fn add_deprecated_address(&mut self, index: u32, address: IpAddr, prefix: u8) -> io::Result<()> {
        self.assign(index, address, prefix, 0)
    }

    fn assign(&mut self, index: u32, address: IpAddr, prefix: u8, preferred: u32) -> io::Result<()> {
        let mut message = AddressMessage::default();
        message.header.family = family(address);
        message.header.prefix_len = prefix;
        message.header.index = index;
        message.header.flags = AddressHeaderFlags::Nodad;
        let mut lifetimes = CacheInfo::default();
        (lifetimes.ifa_preferred, lifetimes.ifa_valid) = (preferred, INFINITE_LIFETIME);
        message.attributes = vec![
            AddressAttribute::Local(address),
            AddressAttribute::Address(address),
            AddressAttribute::CacheInfo(lifetimes),
        ];
        self.change(RouteNetlinkMessage::NewAddress(message), NLM_F_CREATE | NLM_F_EXCL)
    }

    /// Sets the permanent Ethernet address of a neighbour, so that no neighbour discovery crosses the link.
    pub fn add_neighbour(&mut self, index: u32, address: IpAddr, mac: MacAddress) -> io::Result<()> {
        let mut message = NeighbourMessage::default();
        message.header.family = family(address);
        message.header.ifindex = index;
        message.header.state = NeighbourState::Permanent;
        message.header.kind = RouteType::Unicast;
        message.attributes =
            vec![NeighbourAttribute::Destination(address.into()), NeighbourAttribute::LinkLayerAddress(mac.0.to_vec())];
        self.change(RouteNetlinkMessage::NewNeighbour(message), NLM_F_CREATE | NLM_F_REPLACE)
    }

    fn link(&mut self, name: &str) -> io::Result<LinkMessage> {
        let mut query = LinkMessage::default();
        query.attributes.push(LinkAttribute::IfName(name.to_owned()));
        match self.request(RouteNetlinkMessage::GetLink(query), NLM_F_REQUEST)? {
            Some(RouteNetlinkMessage::NewLink(link)) => Ok(link),
            _ => Err(io::Error::other(format!("{name}: the kernel described no interface"))),
        }
    }

    fn change(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.request(message, NLM_F_REQUEST | NLM_F_ACK | flags).map(drop)
    }

    /// Sends a request and reads its single answer.
    pub(crate) fn request(
        &mut self,
        message: RouteNetlinkMessage,
        flags: u16,
    ) -> io::Result<Option<RouteNetlinkMessage>> {
        self.send(message, flags)?;
        loop {
            match self.receive()?.into_iter().next() {
                Some(NetlinkPayload::Error(error)) if error.code.is_some() => return Err(error.to_io()),
                Some(NetlinkPayload::InnerMessage(inner)) => return Ok(Some(inner)),
                Some(_) => return Ok(None),
                None => {}
            }
        }
    }

    /// Sends a request and reads its answers, which arrive in several datagrams.
    fn dump(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<RouteNetlinkMessage>> {
        self.send(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut answers = Vec::new();
        loop {
            for answer in self.receive()? {
                match answer {
                    NetlinkPayload::Error(error) if error.code.is_some() => return Err(error.to_io()),
                    NetlinkPayload::InnerMessage(inner) => answers.push(inner),
                    NetlinkPayload::Done(_) => return Ok(answers),
                    _ => {}
                }
            }
        }
    }

    /// Like [`dump`](Self::dump), but returns the bytes after the header of each message.
    pub(crate) fn dump_bytes(&mut self, message: RouteNetlinkMessage) -> io::Result<Vec<Vec<u8>>> {
        /// Size of `struct nlmsghdr`: length, kind, flags, sequence number, port.
        const HEADER: usize = 16;
        const DONE: u16 = 3;
        const ERROR: u16 = 2;
        self.send(message, NLM_F_REQUEST | NLM_F_DUMP)?;
        let mut answers = Vec::new();
        loop {
            let (datagram, _) = self.socket.recv_from_full()?;
            let mut rest = &datagram[..];
            while let Some(head) = rest.get(..HEADER) {
                let word = |at: usize| u32::from_ne_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
                let (length, kind) = (word(0) as usize, u16::from_ne_bytes([head[4], head[5]]));
                let body = rest.get(HEADER..length).unwrap_or_default();
                let is_own = word(8) == self.sequence;
                rest = rest.get(length.next_multiple_of(4).max(HEADER)..).unwrap_or_default();
                match kind {
                    _ if !is_own => {}
                    DONE => return Ok(answers),
                    ERROR => {
                        let code = body.first_chunk().map_or(0, |code| i32::from_ne_bytes(*code));
                        return Err(io::Error::from_raw_os_error(code.saturating_neg()));
                    }
                    _ => answers.push(body.to_vec()),
                }
            }
        }
    }

    fn send(&mut self, message: RouteNetlinkMessage, flags: u16) -> io::Result<()> {
        self.sequence += 1;
        let mut request = NetlinkMessage::from(message);
        request.header.flags = flags;
        request.header.sequence_number = self.sequence;
        request.finalize();
        let mut bytes = vec![0; request.buffer_len()];
        request.serialize(&mut bytes);
        self.socket.send(&bytes, 0).map(drop)
    }

    /// Reads one datagram, and returns its answers to the last request.
    fn receive(&mut self) -> io::Result<Vec<NetlinkPayload<RouteNetlinkMessage>>> {
        let (datagram, _) = self.socket.recv_from_full()?;
        let (mut rest, mut answers) = (&datagram[..], Vec::new());
        while !rest.is_empty() {
            let answer = NetlinkMessage::<RouteNetlinkMessage>::deserialize(rest).map_err(io::Error::other)?;
            // Messages are aligned to four bytes (NLMSG_ALIGN).
            let length = usize::try_from(answer.header.length).map_err(io::Error::other)?.next_multiple_of(4);
            rest = rest.get(length.max(4)..).unwrap_or_default();
            if answer.header.sequence_number == self.sequence {
                answers.push(answer.payload);
            }
        }
        Ok(answers)
    }
}

/// Reports whether the address accepts connections and stays. In IPv6 the flag of secondary addresses marks temporary
/// ones (`IFA_F_TEMPORARY`).
fn is_lasting(flags: AddressHeaderFlags, address: IpAddr) -> bool {
    use AddressHeaderFlags as Flags;
    let unusable = Flags::Tentative | Flags::Dadfailed | Flags::Deprecated;
    !flags.intersects(unusable) && (address.is_ipv4() || !flags.contains(Flags::Secondary))
}

fn family(address: IpAddr) -> AddressFamily {
    match address {
        IpAddr::V4(_) => AddressFamily::Inet,
        IpAddr::V6(_) => AddressFamily::Inet6,
    }
}

fn new_link(end: VethEnd, mtu: u32) -> LinkMessage {
    let mut link = LinkMessage::default();
    link.attributes = vec![
        LinkAttribute::IfName(end.name.to_owned()),
        LinkAttribute::Address(end.mac.0.to_vec()),
        LinkAttribute::Mtu(mtu),
    ];
    link
}
