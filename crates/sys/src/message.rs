//! Datagrams with what the kernel knows of them: when they came, with how many hops left, for which of this host's
//! addresses; and the error queue, where ICMP answers to what a socket sent are found without any privilege.
//!
//! Stands on `recvmsg(2)`, `SO_TIMESTAMPNS` (socket(7)), `IP_RECVERR`, `IP_RECVTTL`, `IP_PKTINFO` and `IP_MTU_DISCOVER`
//! (ip(7)) and their IPv6 twins (ipv6(7)). It decides nothing: what an ICMP type means is the caller's to know.

use std::io;
use std::mem::{self, MaybeUninit};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;
use std::time::Duration;

/// Who reported an error of the queue (`ee_origin` of linux/errqueue.h).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// This host's own kernel: larger than the interface or the known path takes.
    Local,
    /// An ICMP message.
    Icmp,
    /// An ICMPv6 message.
    Icmp6,
    /// Something else: zero copy, time stamps of sending.
    Other,
}

/// An error the kernel queued at a socket (`struct sock_extended_err`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueuedError {
    /// Who reported it.
    pub origin: Origin,
    /// ICMP type.
    pub kind: u8,
    /// ICMP code.
    pub code: u8,
    /// The `errno` it stands for.
    pub errno: i32,
    /// The MTU, where the error is a packet too large (`ee_info`).
    pub info: u32,
    /// Which address sent the ICMP message.
    pub offender: Option<IpAddr>,
    /// Where ICMP extension objects begin in what is quoted (RFC 4884), if the kernel found any.
    pub extensions: Option<u16>,
}

/// One message of a socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Message {
    /// How much of the buffer it fills. Of an error: what the ICMP message quotes behind the IP header's transport ports
    /// (UDP: its payload; TCP: from its header on).
    pub length: usize,
    /// It was longer than the buffer.
    pub truncated: bool,
    /// Who sent it; of an error, whom it was sent to.
    pub peer: Option<SocketAddr>,
    /// When the kernel got it, since 1970.
    pub stamp: Option<Duration>,
    /// TTL or hop limit it arrived with.
    pub hop_limit: Option<u8>,
    /// Type of service or traffic class it arrived with.
    pub traffic_class: Option<u8>,
    /// The address of this host it was sent to.
    pub local: Option<IpAddr>,
    /// The error, if it came from the error queue.
    pub error: Option<QueuedError>,
}

/// Which of a socket's queues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Queue {
    /// What peers sent.
    Data,
    /// Errors (`MSG_ERRQUEUE`).
    Errors,
}

/// What the kernel does about the path's MTU when a socket sends (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MtuDiscovery {
    /// Never fragments, and refuses what is larger than the path is known to take.
    Do,
    /// Never fragments, and sends whatever the interface takes: for probes (`IP_PMTUDISC_PROBE`).
    Probe,
}

/// Asks for ICMP errors in the error queue (`IP_RECVERR`), with extension objects told apart where the kernel can.
pub fn queue_errors(socket: impl AsFd) -> io::Result<()> {
    /// `IP_RECVERR_RFC4884` and `IPV6_RECVERR_RFC4884` (linux/in.h, linux/in6.h; since 5.9).
    const RECVERR_RFC4884: (libc::c_int, libc::c_int) = (26, 31);
    // Older kernels do not know it: then nothing is told of extensions.
    let _ = set_for_both(&socket, RECVERR_RFC4884, 1);
    set_for_both(&socket, (libc::IP_RECVERR, libc::IPV6_RECVERR), 1)
}

/// Asks for time stamps (`SO_TIMESTAMPNS`), hop limits and traffic classes of what arrives.
pub fn tell_arrival(socket: impl AsFd) -> io::Result<()> {
    set(&socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)?;
    set_for_both(&socket, (libc::IP_RECVTOS, libc::IPV6_RECVTCLASS), 1)?;
    set_for_both(&socket, (libc::IP_RECVTTL, libc::IPV6_RECVHOPLIMIT), 1)
}

/// Asks for the local address each datagram was sent to (`IP_PKTINFO`), so that the answer may leave from it.
pub fn tell_local_address(socket: impl AsFd) -> io::Result<()> {
    set_for_both(&socket, (libc::IP_PKTINFO, libc::IPV6_RECVPKTINFO), 1)
}

/// Says what is to be done about the path's MTU.
pub fn set_mtu_discovery(socket: impl AsFd, discovery: MtuDiscovery) -> io::Result<()> {
    let value = match discovery {
        MtuDiscovery::Do => libc::IP_PMTUDISC_DO,
        MtuDiscovery::Probe => libc::IP_PMTUDISC_PROBE,
    };
    set_for_both(&socket, (libc::IP_MTU_DISCOVER, libc::IPV6_MTU_DISCOVER), value)
}

/// The TTL or hop limit of what is sent from now on.
pub fn set_hop_limit(socket: impl AsFd, hops: u8) -> io::Result<()> {
    set_for_both(&socket, (libc::IP_TTL, libc::IPV6_UNICAST_HOPS), hops.into())
}

/// Sets an option of IPv4 and of IPv6: a socket of both families needs both, one of a single family takes one.
fn set_for_both(socket: &impl AsFd, (four, six): (libc::c_int, libc::c_int), value: libc::c_int) -> io::Result<()> {
    let v6 = set(socket, libc::IPPROTO_IPV6, six, value);
    let v4 = set(socket, libc::IPPROTO_IP, four, value);
    v6.or(v4)
}

fn set(socket: &impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    let length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option value is an int that outlives the call, and its length is given.
    let result =
        unsafe { libc::setsockopt(socket.as_fd().as_raw_fd(), level, name, (&raw const value).cast(), length) };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Room for every control message asked for here: stamp, hop limit, class, local address, error with its offender.
const CONTROL_ROOM: usize = 512;

/// Control messages want the alignment of their header.
#[repr(C, align(8))]
struct Control([u8; CONTROL_ROOM]);

/// Takes the next message of a queue, without waiting; `None` if it is empty. An error that the data queue reports
/// ahead of its data (of an ICMP message that is in the error queue too) is returned as an error.
pub fn receive(socket: impl AsFd, queue: Queue, buffer: &mut [u8]) -> io::Result<Option<Message>> {
    let mut control = Control([0; CONTROL_ROOM]);
    let mut peer = MaybeUninit::<libc::sockaddr_storage>::zeroed();
    let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: buffer.len() };
    // SAFETY: all zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = peer.as_mut_ptr().cast();
    header.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = CONTROL_ROOM as _;
    let flags = match queue {
        Queue::Data => libc::MSG_DONTWAIT,
        Queue::Errors => libc::MSG_DONTWAIT | libc::MSG_ERRQUEUE,
    };
    // SAFETY: every pointer of the header is to a live buffer of the length given beside it.
    let length = unsafe { libc::recvmsg(socket.as_fd().as_raw_fd(), &raw mut header, flags) };
    if length < 0 {
        let error = io::Error::last_os_error();
        return match error.kind() {
            io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted => Ok(None),
            _ => Err(error),
        };
    }
    let named = header.msg_namelen as usize;
    let mut message = Message {
        length: (length as usize).min(buffer.len()),
        truncated: header.msg_flags & libc::MSG_TRUNC != 0,
        // SAFETY: the storage was zeroed and then written by the kernel; any bytes are a valid one.
        peer: socket_address(unsafe { peer.assume_init_ref() }, named),
        stamp: None,
        hop_limit: None,
        traffic_class: None,
        local: None,
        error: None,
    };
    read_control(&header, &mut message);
    Ok(Some(message))
}

/// Sends a datagram; from this local address, if one is given.
pub fn send(socket: impl AsFd, data: &[u8], to: SocketAddr, from: Option<IpAddr>) -> io::Result<usize> {
    let to = socket2::SockAddr::from(to);
    let mut control = Control([0; CONTROL_ROOM]);
    let mut part = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    // SAFETY: all zeros is a valid empty header.
    let mut header: libc::msghdr = unsafe { mem::zeroed() };
    header.msg_name = to.as_ptr().cast_mut().cast();
    header.msg_namelen = to.len();
    header.msg_iov = &raw mut part;
    header.msg_iovlen = 1;
    header.msg_control = control.0.as_mut_ptr().cast();
    header.msg_controllen = from.map_or(0, |from| write_source(&mut control, from)) as _;
    // SAFETY: every pointer of the header is to a live buffer of the length given beside it; none is written to.
    let sent = unsafe { libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const header, libc::MSG_DONTWAIT) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(sent as usize) }
}

/// One control message that names the source address; returns how long it is.
fn write_source(control: &mut Control, from: IpAddr) -> usize {
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

fn write_one<T: Copy>(control: &mut Control, level: libc::c_int, kind: libc::c_int, value: T) -> usize {
    let length = mem::size_of::<T>() as u32;
    // SAFETY: CMSG_LEN and CMSG_SPACE only compute.
    let (inner, outer) = unsafe { (libc::CMSG_LEN(length), libc::CMSG_SPACE(length)) };
    assert!(outer as usize <= CONTROL_ROOM, "one address fits");
    let head = control.0.as_mut_ptr().cast::<libc::cmsghdr>();
    // SAFETY: the buffer is aligned for a header and holds it and the value, as just asserted.
    unsafe {
        (*head).cmsg_len = inner as _;
        (*head).cmsg_level = level;
        (*head).cmsg_type = kind;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast::<T>(), value);
    }
    outer as usize
}

fn read_control(header: &libc::msghdr, message: &mut Message) {
    // SAFETY: the header was filled by recvmsg and its control buffer is alive.
    let mut next = unsafe { libc::CMSG_FIRSTHDR(header) };
    while !next.is_null() {
        // SAFETY: CMSG_FIRSTHDR and CMSG_NXTHDR give headers that lie wholly in the buffer.
        let (head, data) = unsafe { (&*next, libc::CMSG_DATA(next)) };
        // SAFETY: CMSG_LEN only computes.
        let room = head.cmsg_len.saturating_sub(unsafe { libc::CMSG_LEN(0) } as usize);
        read_one((head.cmsg_level, head.cmsg_type), data, room, message);
        // SAFETY: as above.
        next = unsafe { libc::CMSG_NXTHDR(header, next) };
    }
}

fn read_one(kind: (libc::c_int, libc::c_int), data: *const u8, room: usize, message: &mut Message) {
    match kind {
        (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => {
            message.stamp = value::<libc::timespec>(data, room).and_then(|stamp| {
                Some(Duration::new(u64::try_from(stamp.tv_sec).ok()?, u32::try_from(stamp.tv_nsec).ok()?))
            });
        }
        (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
            message.hop_limit = value::<libc::c_int>(data, room).and_then(|hops| u8::try_from(hops).ok());
        }
        (libc::IPPROTO_IP, libc::IP_TOS) => message.traffic_class = value::<u8>(data, room),
        (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
            message.traffic_class = value::<libc::c_int>(data, room).and_then(|class| u8::try_from(class).ok());
        }
        (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
            let info = value::<libc::in_pktinfo>(data, room);
            message.local = info.map(|info| IpAddr::V4(u32::from_be(info.ipi_addr.s_addr).into()));
        }
        (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
            let info = value::<libc::in6_pktinfo>(data, room);
            message.local = info.map(|info| IpAddr::V6(info.ipi6_addr.s6_addr.into()));
        }
        (libc::IPPROTO_IP, libc::IP_RECVERR) | (libc::IPPROTO_IPV6, libc::IPV6_RECVERR) => {
            message.error = queued_error(data, room);
        }
        _ => {}
    }
}

/// A plain C value at `data`, if that many bytes are there.
fn value<T: Copy>(data: *const u8, room: usize) -> Option<T> {
    // SAFETY: the caller's message has `room` bytes at `data`, enough for T, which is a plain C struct or number.
    (room >= mem::size_of::<T>()).then(|| unsafe { ptr::read_unaligned(data.cast::<T>()) })
}

fn queued_error(data: *const u8, room: usize) -> Option<QueuedError> {
    let error = value::<libc::sock_extended_err>(data, room)?;
    let head = mem::size_of::<libc::sock_extended_err>();
    // SAFETY: `head` bytes are there, as `value` has just checked, and the offender follows them (SO_EE_OFFENDER).
    let (rest, room) = (unsafe { data.add(head) }, room - head);
    let origin = match error.ee_origin {
        libc::SO_EE_ORIGIN_LOCAL => Origin::Local,
        libc::SO_EE_ORIGIN_ICMP => Origin::Icmp,
        libc::SO_EE_ORIGIN_ICMP6 => Origin::Icmp6,
        _ => Origin::Other,
    };
    // struct sock_ee_data_rfc4884: u16 len, u8 flags, u8 reserved; flag 1 says that the checksum is wrong.
    let [low, high, flags, _] = error.ee_data.to_ne_bytes();
    let extensions = u16::from_ne_bytes([low, high]);
    let by_icmp = matches!(origin, Origin::Icmp | Origin::Icmp6);
    Some(QueuedError {
        origin,
        kind: error.ee_type,
        code: error.ee_code,
        errno: i32::try_from(error.ee_errno).unwrap_or(i32::MAX),
        info: error.ee_info,
        offender: offender(rest, room).filter(|_| by_icmp),
        extensions: (by_icmp && extensions > 0 && flags & 1 == 0).then_some(extensions),
    })
}

fn offender(data: *const u8, room: usize) -> Option<IpAddr> {
    let family = value::<libc::sa_family_t>(data, room)?;
    match libc::c_int::from(family) {
        libc::AF_INET => {
            value::<libc::sockaddr_in>(data, room).map(|a| IpAddr::V4(u32::from_be(a.sin_addr.s_addr).into()))
        }
        libc::AF_INET6 => value::<libc::sockaddr_in6>(data, room).map(|a| plain(a.sin6_addr.s6_addr.into())),
        _ => None,
    }
}

fn socket_address(storage: &libc::sockaddr_storage, length: usize) -> Option<SocketAddr> {
    let data = ptr::from_ref(storage).cast::<u8>();
    let room = length.min(mem::size_of::<libc::sockaddr_storage>());
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            let address = value::<libc::sockaddr_in>(data, room)?;
            let ip = Ipv4Addr::from(u32::from_be(address.sin_addr.s_addr));
            Some(SocketAddrV4::new(ip, u16::from_be(address.sin_port)).into())
        }
        libc::AF_INET6 => {
            let address = value::<libc::sockaddr_in6>(data, room)?;
            let (ip, port) = (Ipv6Addr::from(address.sin6_addr.s6_addr), u16::from_be(address.sin6_port));
            Some(SocketAddrV6::new(ip, port, address.sin6_flowinfo, address.sin6_scope_id).into())
        }
        _ => None,
    }
}

/// An IPv4 address as such, also where a socket of both families shows it mapped into IPv6.
fn plain(address: Ipv6Addr) -> IpAddr {
    IpAddr::V6(address).to_canonical()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::UdpSocket;
    use std::thread;

    /// The next message, waited for.
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
    fn a_closed_port_answers_into_the_error_queue() {
        for (host, origin, kind) in [("127.0.0.1", Origin::Icmp, 3), ("::1", Origin::Icmp6, 1)] {
            let Ok(socket) = UdpSocket::bind((host, 0)) else { continue };
            let closed = UdpSocket::bind((host, 0)).unwrap().local_addr().unwrap();
            queue_errors(&socket).unwrap();
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
    fn a_datagram_comes_with_stamp_hops_and_address() {
        for (host, any) in [("127.0.0.1", "0.0.0.0"), ("::1", "::"), ("127.0.0.1", "::")] {
            let Ok(server) = UdpSocket::bind((any, 0)) else { continue };
            tell_arrival(&server).unwrap();
            tell_local_address(&server).unwrap();
            let client = UdpSocket::bind((host, 0)).unwrap();
            set_hop_limit(&client, 77).unwrap();
            client.connect((host, server.local_addr().unwrap().port())).unwrap();
            client.send(b"hello").unwrap();
            let mut buffer = [0; 4];
            let message = next(&server, Queue::Data, &mut buffer);
            assert_eq!((message.length, message.truncated, message.hop_limit), (4, true, Some(77)), "{host} at {any}");
            assert_eq!(message.local.map(|l| l.to_canonical()), Some(host.parse().unwrap()));
            let local = message.local;
            assert!(message.stamp.is_some() && message.traffic_class == Some(0), "{message:?}");
            send(&server, b"back", message.peer.unwrap(), local).unwrap();
            assert_eq!(next(&client, Queue::Data, &mut buffer).length, 4);
        }
    }

    #[test]
    fn a_probe_larger_than_the_interface_is_refused_here() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        set_mtu_discovery(&socket, MtuDiscovery::Do).unwrap();
        set_mtu_discovery(&socket, MtuDiscovery::Probe).unwrap();
        // The loopback's MTU is 65536, an IP packet's limit 65535.
        let error = socket.send_to(&[0; 65_508], "127.0.0.1:9").unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
    }
}
