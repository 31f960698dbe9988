//! UDP sockets: fragmentation, path MTU, merged datagrams (GRO), arrival stamps, drops of the socket's own buffer; and
//! many datagrams in one call ([`batch`]).
//!
//! Everything takes the kernel's word: what an old kernel does not know is an error the caller can live with.

pub mod batch;

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, Socket, Type};

/// What may be done with a datagram longer than the path MTU (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// It is cut into fragments, here or on the way.
    Allowed,
    /// DF is set, and what is longer than the path MTU known to this host is refused with `EMSGSIZE`.
    Forbidden,
    /// DF is set, and the path MTU this host knows is ignored: for finding it out.
    Probing,
}

/// A socket bound to `local`, beside others of this user at the same address (`SO_REUSEPORT`, which unlike
/// `SO_REUSEADDR` lets no other user take datagrams away).
pub fn bind_shared(local: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Sets what may be done with long datagrams.
pub fn set_fragmentation(socket: impl AsFd, fragmentation: Fragmentation) -> io::Result<()> {
    let socket = socket.as_fd();
    if is_ipv6(socket)? {
        let value = match fragmentation {
            Fragmentation::Allowed => libc::IPV6_PMTUDISC_DONT,
            Fragmentation::Forbidden => libc::IPV6_PMTUDISC_DO,
            Fragmentation::Probing => libc::IPV6_PMTUDISC_PROBE,
        };
        return set(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, value);
    }
    let value = match fragmentation {
        Fragmentation::Allowed => libc::IP_PMTUDISC_DONT,
        Fragmentation::Forbidden => libc::IP_PMTUDISC_DO,
        Fragmentation::Probing => libc::IP_PMTUDISC_PROBE,
    };
    set(socket, libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, value)
}

/// The path MTU this host knows of a connected socket's path, bytes of the IP packet (`IP_MTU`).
pub fn path_mtu(socket: impl AsFd) -> io::Result<u32> {
    let socket = socket.as_fd();
    let mtu = match is_ipv6(socket)? {
        true => get::<libc::c_int>(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
        false => get::<libc::c_int>(socket, libc::IPPROTO_IP, libc::IP_MTU)?,
    };
    u32::try_from(mtu).map_err(|_| io::Error::other(format!("a path MTU of {mtu}")))
}

/// The longest payload of a datagram that fits a packet of `mtu` to this address, without IP options.
pub fn payload_within(mtu: u32, peer: &SocketAddr) -> u32 {
    const UDP: u32 = 8;
    let ip = if peer.ip().to_canonical().is_ipv4() { 20 } else { 40 };
    mtu.saturating_sub(ip + UDP)
}

/// Lets the kernel hand several datagrams of one flow over as one (`UDP_GRO`, Linux 5.0).
pub fn set_gro(socket: impl AsFd, on: bool) -> io::Result<()> {
    set(socket, libc::IPPROTO_UDP, libc::UDP_GRO, libc::c_int::from(on))
}

/// Whether the kernel cuts long sends into datagrams (`UDP_SEGMENT`, Linux 4.18). The option itself stays off.
pub fn has_gso(socket: impl AsFd) -> bool {
    set(socket, libc::IPPROTO_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Has every datagram that arrives stamped by the kernel (`SO_TIMESTAMPNS`), in `CLOCK_REALTIME`.
pub fn set_stamps(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Has errors of the path and of this host's own queues told (`IP_RECVERR`): without it Linux drops a datagram that
/// finds the device's queue full and says that it was sent.
pub fn set_errors_told(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    match is_ipv6(socket)? {
        true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        false => set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
    }
}

/// Takes the next entry of the error queue (`MSG_ERRQUEUE`) and throws it away; false if there is none.
pub fn forget_error(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is writable for the length given and outlives the call.
    let result = unsafe { libc::recv(socket.as_fd().as_raw_fd(), byte.as_mut_ptr().cast(), byte.len(), flags) };
    result >= 0
}

/// Has every datagram tell which of this host's addresses it was sent to (`IP_PKTINFO`).
pub fn set_destination_told(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    match is_ipv6(socket)? {
        true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        false => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    }
}

/// What this socket dropped on arrival, its buffer being full or a checksum wrong (`SO_MEMINFO`, Linux 4.12). With GRO a
/// drop may be of several datagrams at once.
pub fn drops(socket: impl AsFd) -> io::Result<u64> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let info = get::<[u32; DROPS + 1]>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(info[DROPS].into())
}

/// Lets sleeps of the calling thread end on time (`PR_SET_TIMERSLACK` of 1 ns; by default they may be 50 µs late).
pub fn wake_on_time() {
    // SAFETY: the call takes plain numbers and touches nothing but the calling thread's slack.
    unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, 1 as libc::c_ulong) };
}

fn is_ipv6(socket: std::os::fd::BorrowedFd<'_>) -> io::Result<bool> {
    Ok(get::<libc::c_int>(socket, libc::SOL_SOCKET, libc::SO_DOMAIN)? == libc::AF_INET6)
}

fn set(socket: impl AsFd, level: libc::c_int, name: libc::c_int, value: libc::c_int) -> io::Result<()> {
    // SAFETY: the option value is an int that outlives the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            level,
            name,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Plain numbers, of which every pattern of bits is one.
trait Plain: Copy {}
impl Plain for libc::c_int {}
impl<const N: usize> Plain for [u32; N] {}

fn get<T: Plain>(socket: impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = mem::MaybeUninit::<T>::zeroed();
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `length` bytes, which the kernel never exceeds, and outlives the call.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: all zeros before, and `Plain` numbers take any bits the kernel wrote.
    Ok(unsafe { value.assume_init() })
}

/// The address in a `sockaddr_storage` the kernel filled; IPv4 in IPv6 clothes is undressed.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family says that it is a sockaddr_in, and a sockaddr_storage has room and alignment for one.
            let v4 = unsafe { *(&raw const *storage).cast::<libc::sockaddr_in>() };
            Some(SocketAddr::new(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family says that it is a sockaddr_in6, and a sockaddr_storage has room and alignment for one.
            let v6 = unsafe { *(&raw const *storage).cast::<libc::sockaddr_in6>() };
            let (ip, port) = (Ipv6Addr::from(v6.sin6_addr.s6_addr), u16::from_be(v6.sin6_port));
            match ip.to_ipv4_mapped() {
                Some(ip) => Some(SocketAddr::new(IpAddr::V4(ip), port)),
                None => Some(std::net::SocketAddrV6::new(ip, port, 0, v6.sin6_scope_id).into()),
            }
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_path_mtu_of_loopback_is_that_of_its_interface() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        set_fragmentation(&socket, Fragmentation::Forbidden).unwrap();
        let mtu = path_mtu(&socket).unwrap();
        assert_eq!(payload_within(mtu, &socket.peer_addr().unwrap()), mtu - 28);
        if mtu < 65_507 {
            let error = socket.send(&vec![0; mtu as usize]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        }
    }

    #[test]
    fn a_full_receive_buffer_is_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        crate::tcp::set_receive_buffer(&receiver, 1).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let got = std::iter::from_fn(|| receiver.recv(&mut [0; 2000]).ok()).count() as u64;
        let dropped = drops(&receiver).unwrap();
        assert!(dropped > 0);
        assert_eq!(got + dropped, 100);
    }

    #[test]
    fn two_sockets_of_one_user_share_a_port() {
        let first = bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap().as_socket().unwrap();
        bind_shared(address).unwrap();
        assert!(UdpSocket::bind(address).is_err(), "one that does not share is kept out");
    }
}
