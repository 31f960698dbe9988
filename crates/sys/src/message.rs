//! Datagrams with their metadata: receive time, hop limit, and local address. Also the error queue, where a socket
//! without privileges finds ICMP replies to its packets.
//!
//! Uses `recvmsg(2)`, `SO_TIMESTAMPNS` (socket(7)), `IP_RECVERR`, `IP_RECVTTL`, `IP_PKTINFO` and `IP_MTU_DISCOVER`
//! (ip(7)), and their IPv6 counterparts (ipv6(7)). The caller interprets the ICMP types.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

/// Origin of a queued error (`ee_origin` in linux/errqueue.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The local kernel: the packet is larger than the interface or the known path allows.
    Local,
    Icmp,
    Icmp6,
    /// For example zero copy, or timestamps of sent packets.
    Other,
}

/// An error in the error queue of a socket (`struct sock_extended_err`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    pub origin: Origin,
    pub kind: u8,
    pub code: u8,
    pub errno: i32,
    /// The MTU, if the error is "packet too big" (`ee_info`).
    pub info: u32,
    /// Sender of the ICMP message.
    pub offender: Option<IpAddr>,
    /// Offset of the ICMP extension objects in the quoted packet (RFC 4884), if the kernel found any.
    pub extensions: Option<u16>,
}

/// One message of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// Length of the message in the buffer. For an error, this is the quoted part of the packet: for UDP the payload,
    /// for TCP from the TCP header on.
    pub length: usize,
    /// The message was longer than the buffer.
    pub truncated: bool,
    /// Sender of the message. For an error, the destination of the packet that caused it.
    pub peer: Option<SocketAddr>,
    /// Receive time in the kernel, since 1970.
    pub timestamp: Option<Duration>,
    /// TTL or hop limit on arrival.
    pub hop_limit: Option<u8>,
    /// Type of service or traffic class on arrival.
    pub traffic_class: Option<u8>,
    /// Local destination address of the message.
    pub local: Option<IpAddr>,
    /// Set if the message came from the error queue.
    pub error: Option<QueuedError>,
}

/// Receive queue of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    Data,
    /// Read with the flag `MSG_ERRQUEUE`.
    Errors,
}

/// Path MTU behaviour of a sending socket (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// Never fragments. Refuses packets above the known path MTU.
    Do,
    /// Never fragments. Sends any packet that the interface allows, for probes (`IP_PMTUDISC_PROBE`).
    Probe,
}

/// Enables ICMP errors in the error queue (`IP_RECVERR`), with the offset of extension objects if the kernel supports
/// this.
pub fn enable_error_queue(socket: impl AsFd) -> io::Result<()> {
    /// Socket options of linux/in.h and linux/in6.h, since Linux 5.9.
    const IP_RECVERR_RFC4884: libc::c_int = 26;
    const IPV6_RECVERR_RFC4884: libc::c_int = 31;
    // Older kernels do not support this option and report no extension objects.
    let _ = set_for_both(&socket, IP_RECVERR_RFC4884, IPV6_RECVERR_RFC4884, 1);
    set_for_both(&socket, libc::IP_RECVERR, libc::IPV6_RECVERR, 1)
}

/// Enables timestamps (`SO_TIMESTAMPNS`), hop limits and traffic classes of received messages.
pub fn enable_timestamps(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    set_for_both(&socket, libc::IP_RECVTOS, libc::IPV6_RECVTCLASS, 1)?;
    set_for_both(&socket, libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT, 1)
}

/// Enables the local destination address of received messages (`IP_PKTINFO`), so that the reply can use it as its
/// source.
pub fn enable_local_addresses(socket: impl AsFd) -> io::Result<()> {
    set_for_both(&socket, libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO, 1)
}

/// Sets the path MTU behaviour.
pub fn set_mtu_discovery(socket: impl AsFd, discovery: MtuDiscovery) -> io::Result<()> {
    let value = match discovery {
        MtuDiscovery::Do => libc::IP_PMTUDISC_DO,
        MtuDiscovery::Probe => libc::IP_PMTUDISC_PROBE,
    };
    set_for_both(&socket, libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER, value)
}

/// Sets the TTL or hop limit of packets that are sent from now on.
pub fn set_hop_limit(socket: impl AsFd, hops: u8) -> io::Result<()> {
    set_for_both(&socket, libc::IP_TTL, libc::IPV6_UNICAST_HOPS, hops.into())
}

/// Sets an option for IPv4 and IPv6. A dual-stack socket needs both, other sockets accept only one.
fn set_for_both(
    socket: &impl AsFd,
    v4_option: libc::c_int,
    v6_option: libc::c_int,
    value: libc::c_int,
) -> io::Result<()> {
    let v6 = set(socket, libc::IPPROTO_IPV6, v6_option, value);
    let v4 = set(socket, libc::IPPROTO_IP, v4_option, value);
    v6.or(v4)
}

fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option value is an int that outlives the call, and its length is given.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Size of all enabled control messages: timestamp, hop limit, traffic class, local address, and error with its
/// offender.
const CONTROL_SIZE: usize = 512;

/// Buffer with the alignment of the control message header.
#[repr(C, align(8))]
struct ControlBuffer([u8; CONTROL_SIZE]);

/// Receives the next message of a queue without waiting. Returns `None` if the queue is empty. The data queue may first
/// return the error of an ICMP message that is also in the error queue. This error is returned as an error.
pub fn receive(socket: impl AsFd, queue: Queue, buffer: &mut [u8]) -> io::Result<Option<Message>> {
    let mut control = ControlBuffer([0; CONTROL_SIZE]);
    let mut peer = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = peer.as_mut_ptr().cast();
    header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_SIZE as _;
    let flags = match queue {
        Queue::Data => libc::MSG_DONTWAIT,
        Queue::Errors => libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE,
    };
    // SAFETY: every pointer in the header is to a live buffer of the given length.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    let address_length = header.msg_namelen as usize;
    let mut message = Message {
        length: (length as usize).min(buffer.len()),
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        // SAFETY: the storage was zeroed and then written by the kernel, and any bytes are a valid value.
        peer: socket_address(unsafe { peer.assume_init_ref() }, address_length),
        timestamp: None,
        hop_limit: None,
        traffic_class: None,
        local: None,
        error: None,
    };
    read_control(&header, &mut message);
    Ok(Some(message))
}

/// Sends a datagram, from a given local address if there is one.
pub fn send(socket: impl AsFd, data: &[u8], to: SocketAddr, from: Option<IpAddr>) -> io::Result<usize> {
    let to = socket2::SockAddr::from(to);
    let mut control = ControlBuffer([0; CONTROL_SIZE]);
    let mut part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: all zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = from.map_or(0, |from| write_source(&mut control, from)) as _;
    // SAFETY: every pointer in the header is to a live buffer of the given length, and none is written to.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// Writes a control message with the source address. Returns its length.
fn write_source(control: &mut ControlBuffer, from: IpAddr) -> usize {
    match from {
        IpAddr::V4(address) => {
            let any = libc::in_addr { s_addr: 0 };
            let source = libc::in_addr { s_addr: u32::from(address).to_be() };
            let info = libc::in_pktinfo { ipi_ifindex: 0, ipi_spec_dst: source, ipi_addr: any };
            write_one(control, libc::IPPROTO_IP, libc::IP_PKTINFO, info)
        }
        IpAddr::V6(address) => {
            let info = libc::in6_pktinfo { ipi6_addr: libc::in6_addr { s6_addr: address.octets() }, ipi6_ifindex: 0 };
            write_one(control, libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, info)
        }
    }
}

fn write_one<T: Copy>(control: &mut ControlBuffer, level: libc::c_int, kind: libc::c_int, value: T) -> usize {
    let length = mem::size_of::<T>() as u32;
    // SAFETY: CMSG_LEN and CMSG_SPACE are pure arithmetic.
    let (inner, outer) = unsafe { (libc::CMSG_LEN(length), libc::CMSG_SPACE(length)) };
    assert!(outer as usize <= CONTROL_SIZE, "one address fits");
    let head = control.0.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: the buffer is aligned for a header, and holds it and the value, as just asserted.
    unsafe {
        (*head).cmsg_len = inner as _;
        (*head).cmsg_level = level;
        (*head).cmsg_type = kind;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast::<T>(), value);
    }
    outer as usize
}

fn read_control(header: &libc::msghdr, message: &mut Message) {
    // SAFETY: recvmsg filled the header, and its control buffer is alive.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR return only headers that lie completely in the buffer.
        let (head, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        // SAFETY: CMSG_LEN is pure arithmetic.
        #[allow(clippy::unnecessary_cast, reason = "the type of musl differs")]
        let length = (head.cmsg_len as usize).saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        read_one(head.cmsg_level, head.cmsg_type, data, length, message);
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

fn read_one(level: libc::c_int, kind: libc::c_int, data: *const u8, length: usize, message: &mut Message) {
    match (level, kind) {
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
            message.timestamp = value::<libc::timespec>(data, length).and_then(|timestamp| {
                Some(Duration::new(u64::try_from(timestamp.tv_sec).ok()?, u32::try_from(timestamp.tv_nsec).ok()?))
            });
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            message.hop_limit = value::<libc::c_int>(data, length).and_then(|hops| u8::try_from(hops).ok());
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => message.traffic_class = value::<u8>(data, length),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            message.traffic_class = value::<libc::c_int>(data, length).and_then(|class| u8::try_from(class).ok());
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let info = value::<libc::in_pktinfo>(data, length);
            message.local = info.map(|info| IpAddr::V4(u32::from_be(info.ipi_addr.s_addr).into()));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let info = value::<libc::in6_pktinfo>(data, length);
            message.local = info.map(|info| IpAddr::V6(info.ipi6_addr.s6_addr.into()));
        }
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
            message.error = queued_error(data, length);
        }
        _ => {}
    }
}

/// Reads a plain C value at `data`, if `length` is sufficient.
fn value<T: Copy>(data: *const u8, length: usize) -> Option<T> {
    // SAFETY: the caller's message has `length` bytes at `data`, enough for T, which is a plain C struct or number.
    (length >= mem::size_of::<T>()).then(|| unsafe { ptr::read_unaligned(data.cast::<T>()) })
}

fn queued_error(data: *const u8, length: usize) -> Option<QueuedError> {
    let error = value::<libc::sock_extended_err>(data, length)?;
    let head = mem::size_of::<libc::sock_extended_err>();
    // SAFETY: `value` has just checked that `head` bytes exist, and the offender follows them (SO_EE_OFFENDER).
    let (rest, length) = (unsafe { data.add(head) }, length - head);
    let origin = match error.ee_origin {
        libc::SO_EE_ORIGIN_LOCAL => Origin::Local,
        libc::SO_EE_ORIGIN_ICMP => Origin::Icmp,
        libc::SO_EE_ORIGIN_ICMP6 => Origin::Icmp6,
        _ => Origin::Other,
    };
    // Layout of struct sock_ee_data_rfc4884: u16 len, u8 flags, u8 reserved. Flag 1 means a wrong checksum.
    let [low, high, flags, _] = error.ee_data.to_ne_bytes();
    let extensions = u16::from_ne_bytes([low, high]);
    let is_icmp = matches!(origin, Origin::Icmp | Origin::Icmp6);
    Some(QueuedError {
        origin,
        kind: error.ee_type,
        code: error.ee_code,
        errno: i32::try_from(error.ee_errno).unwrap_or(i32::MAX),
        info: error.ee_info,
        offender: offender(rest, length).filter(|_| is_icmp),
        extensions: (is_icmp && extensions > 0 && flags & 1 == 0).then_some(extensions),
    })
}

fn offender(data: *const u8, length: usize) -> Option<IpAddr> {
    let family = value::<libc::sa_family_t>(data, length)?;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            value::<libc::sockaddr_in>(data, length).map(|a| IpAddr::V4(u32::from_be(a.sin_addr.s_addr).into()))
        }
        libc::AF_INET6 => value::<libc::sockaddr_in6>(data, length).map(|a| canonical(a.sin6_addr.s6_addr.into())),
        _ => None,
    }
}

fn socket_address(storage: &libc::sockaddr_storage, length: usize) -> Option<SocketAddr> {
    let data = ptr::from_ref(storage).cast::<u8>();
    let length = length.min(mem::size_of::<libc::sockaddr_storage>());
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            let address = value::<libc::sockaddr_in>(data, length)?;
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 => {
            let address = value::<libc::sockaddr_in6>(data, length)?;
            let (ip, port) = (Ipv6Addr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port));
            Some(SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// Converts an IPv4 address that a dual-stack socket maps into IPv6.
fn canonical(address: Ipv6Addr) -> IpAddr {
    IpAddr::V6(address).to_canonical()
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::thread;

    use super::*;

    /// Waits for the next message.
    fn next(socket: &UdpSocket, queue: Queue, buffer: &mut [u8]) -> Message {
        for _ in 0..500 {
            match receive(socket, queue, buffer) {
                Ok(Some(message)) => return message,
                // The error is in both queues.
                Ok(None) | Err(_) => thread::sleep(Duration::from_millis(10)),
            }
        }
        panic!("nothing in {queue:?}");
    }

    #[test]
    fn closed_port_is_reported_in_the_error_queue() {
        for (host, origin, kind) in [("127.0.0.1", Origin::Icmp, 3), ("::1", Origin::Icmp6, 1)] {
            let Ok(socket) = UdpSocket::bind((host, 0)) else { continue };
            let closed = UdpSocket::bind((host, 0)).unwrap().local_addr().unwrap();
            enable_error_queue(&socket).unwrap();
            set_hop_limit(&socket, 9).unwrap();
            socket.connect(closed).unwrap();
            socket.send(b"who is there").unwrap();
            let mut buffer = [0; 64];
            let message = next(&socket, Queue::Errors, &mut buffer);
            let error = message.error.unwrap();
            assert_eq!((error.origin, error.kind, error.errno), (origin, kind, libc::ECONNREFUSED));
            assert_eq!(error.offender, Some(closed.ip()));
            assert_eq!(&buffer[..message.length], b"who is there");
            assert_eq!(message.peer, Some(closed));
        }
    }

    #[test]
    fn datagram_has_timestamp_hop_limit_and_address() {
        for (host, any) in [("127.0.0.1", "0.0.0.0"), ("::1", "::"), ("127.0.0.1", "::")] {
            let Ok(server) = UdpSocket::bind((any, 0)) else { continue };
            enable_timestamps(&server).unwrap();
            enable_local_addresses(&server).unwrap();
            let client = UdpSocket::bind((host, 0)).unwrap();
            set_hop_limit(&client, 77).unwrap();
            client.connect((host, server.local_addr().unwrap().port())).unwrap();
            client.send(b"hello").unwrap();
            let mut buffer = [0; 4];
            let message = next(&server, Queue::Data, &mut buffer);
            assert_eq!((message.length, message.truncated, message.hop_limit), (4, true, Some(77)), "{host} at {any}");
            assert_eq!(message.local.map(|l| l.to_canonical()), Some(host.parse().unwrap()));
            let local = message.local;
            assert!(message.timestamp.is_some() && message.traffic_class == Some(0), "{message:?}");
            send(&server, b"back", message.peer.unwrap(), local).unwrap();
            assert_eq!(next(&client, Queue::Data, &mut buffer).length, 4);
        }
    }

    #[test]
    fn probe_above_the_interface_mtu_is_refused() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_mtu_discovery(&socket, MtuDiscovery::Do).unwrap();
        set_mtu_discovery(&socket, MtuDiscovery::Probe).unwrap();
        // The MTU of the loopback interface is 65536, and the maximum size of an IP packet is 65535.
        let error = socket.send_to(&[0; 65_508], "127.0.0.1:9").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
