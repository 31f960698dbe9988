//! UDP sockets: fragmentation, path MTU, merged datagrams (GRO), receive timestamps, drops of the receive buffer, and
//! several datagrams in one call ([`batch`]).
//!
//! Features that an old kernel lacks are errors. The caller can continue without them.

pub mod batch;

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};

use socket2::{Domain, Protocol, Socket, Type};

/// Handling of datagrams above the path MTU (`IP_MTU_DISCOVER`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fragmentation {
    /// Datagrams are fragmented, here or on the path.
    Allowed,
    /// DF is set. A datagram above the path MTU that this host knows is refused with `EMSGSIZE`.
    Forbidden,
    /// DF is set. The known path MTU is ignored, to discover the real one.
    Probing,
}

/// Binds a socket to `local`, an address that other sockets of this user may share (`SO_REUSEPORT`). Unlike
/// `SO_REUSEADDR`, this does not allow other users to take the datagrams.
pub fn bind_shared(local: SocketAddr) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(local), Type::DGRAM, Some(Protocol::UDP))?;
    socket.set_reuse_port(true)?;
    socket.bind(&local.into())?;
    Ok(socket)
}

/// Sets the handling of long datagrams.
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

/// Returns the path MTU that this host knows for a connected socket, bytes of the IP packet (`IP_MTU`).
pub fn path_mtu(socket: impl AsFd) -> io::Result<u32> {
    let socket = socket.as_fd();
    let mtu = match is_ipv6(socket)? {
        true => get::<libc::c_int>(socket, libc::IPPROTO_IPV6, libc::IPV6_MTU)?,
        false => get::<libc::c_int>(socket, libc::IPPROTO_IP, libc::IP_MTU)?,
    };
    u32::try_from(mtu).map_err(|_| io::Error::other(format!("a path MTU of {mtu}")))
}

/// Returns the maximum payload of a datagram in a packet of `mtu` bytes to this address, without IP options.
pub fn max_payload(mtu: u32, peer: &SocketAddr) -> u32 {
    const UDP: u32 = 8;
    let ip = if peer.ip().to_canonical().is_ipv4() { 20 } else { 40 };
    mtu.saturating_sub(ip + UDP)
}

/// Allows the kernel to merge received datagrams of one flow (`UDP_GRO`, Linux 5.0).
pub fn set_gro(socket: impl AsFd, on: bool) -> io::Result<()> {
    set(socket, libc::IPPROTO_UDP, libc::UDP_GRO, libc::c_int::from(on))
}

/// Returns true if the kernel can split long sends into datagrams (`UDP_SEGMENT`, Linux 4.18). The option itself stays
/// off.
pub fn has_gso(socket: impl AsFd) -> bool {
    set(socket, libc::IPPROTO_UDP, libc::UDP_SEGMENT, 0).is_ok()
}

/// Enables receive timestamps of the kernel (`SO_TIMESTAMPNS`), in `CLOCK_REALTIME`.
pub fn enable_timestamps(socket: impl AsFd) -> io::Result<()> {
    set(socket, libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
}

/// Enables errors of the path and of local queues (`IP_RECVERR`). Without this, Linux reports success for a datagram
/// that it drops because the device queue is full.
pub fn enable_error_reports(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    match is_ipv6(socket)? {
        true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1),
        false => set(socket, libc::IPPROTO_IP, libc::IP_RECVERR, 1),
    }
}

/// Removes the next entry of the error queue (`MSG_ERRQUEUE`). Returns false if there is none.
pub fn discard_error(socket: impl AsFd) -> bool {
    let mut byte = [0u8; 1];
    let flags = libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT;
    // SAFETY: the buffer is writable for the given length and outlives the call.
    let result = unsafe { libc::recv(socket.as_fd().as_raw_fd(), byte.as_mut_ptr().cast(), byte.len(), flags) };
    result >= 0
}

/// Enables the local destination address of each datagram (`IP_PKTINFO`).
pub fn enable_destination_addresses(socket: impl AsFd) -> io::Result<()> {
    let socket = socket.as_fd();
    match is_ipv6(socket)? {
        true => set(socket, libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1),
        false => set(socket, libc::IPPROTO_IP, libc::IP_PKTINFO, 1),
    }
}

/// Returns the number of datagrams that this socket dropped on arrival, because its buffer was full or a checksum was
/// wrong (`SO_MEMINFO`, Linux 4.12). With GRO, one drop may be several datagrams.
pub fn dropped_datagrams(socket: impl AsFd) -> io::Result<u64> {
    const DROPS: usize = libc::SK_MEMINFO_DROPS as usize;
    let info = get::<[u32; DROPS + 1]>(socket.as_fd(), libc::SOL_SOCKET, libc::SO_MEMINFO)?;
    Ok(info[DROPS].into())
}

/// Makes sleeps of the calling thread end on time (`PR_SET_TIMERSLACK` of 1 ns; the default is up to 50 µs late).
pub fn set_exact_timers() {
    // SAFETY: the call takes plain numbers and affects only the timer slack of the calling thread.
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

/// Plain numbers, for which every bit pattern is valid.
trait PlainNumber: Copy {}
impl PlainNumber for libc::c_int {}
impl<const N: usize> PlainNumber for [u32; N] {}

fn get<T: PlainNumber>(socket: impl AsFd, level: libc::c_int, name: libc::c_int) -> io::Result<T> {
    let mut value = mem::MaybeUninit::<T>::zeroed();
    let mut length = mem::size_of::<T>() as libc::socklen_t;
    // SAFETY: `value` is writable for `length` bytes, which the kernel never exceeds, and outlives the call.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), level, name, value.as_mut_ptr().cast(), &raw mut length)
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: the value was zeroed, and every bit pattern that the kernel writes is a valid `PlainNumber`.
    Ok(unsafe { value.assume_init() })
}

/// Returns the address in a `sockaddr_storage` that the kernel filled. An IPv4 address mapped into IPv6 is converted.
fn address(storage: &libc::sockaddr_storage) -> Option<SocketAddr> {
    match libc::c_int::from(storage.ss_family) {
        libc::AF_INET => {
            // SAFETY: the family is AF_INET, so this is a sockaddr_in, and a sockaddr_storage has the size and alignment for
            // one.
            let v4 = unsafe { *(&raw const *storage).cast::<libc::sockaddr_in>() };
            Some(SocketAddr::new(Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)).into(), u16::from_be(v4.sin_port)))
        }
        libc::AF_INET6 => {
            // SAFETY: the family is AF_INET6, so this is a sockaddr_in6, and a sockaddr_storage has the size and alignment
            // for one.
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
    fn path_mtu_of_loopback_is_its_interface_mtu() {
        let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
        socket.connect("127.0.0.1:9").unwrap();
        set_fragmentation(&socket, Fragmentation::Forbidden).unwrap();
        let mtu = path_mtu(&socket).unwrap();
        assert_eq!(max_payload(mtu, &socket.peer_addr().unwrap()), mtu - 28);
        if mtu < 65_507 {
            let error = socket.send(&vec![0; mtu as usize]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EMSGSIZE));
        }
    }

    #[test]
    fn drops_of_a_full_buffer_are_counted() {
        let receiver = UdpSocket::bind("127.0.0.1:0").unwrap();
        crate::tcp::set_receive_buffer(&receiver, 1).unwrap();
        let sender = UdpSocket::bind("127.0.0.1:0").unwrap();
        for _ in 0..100 {
            sender.send_to(&[0; 1000], receiver.local_addr().unwrap()).unwrap();
        }
        receiver.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
        let got = std::iter::from_fn(|| receiver.recv(&mut [0; 2000]).ok()).count() as u64;
        let dropped = dropped_datagrams(&receiver).unwrap();
        assert!(dropped > 0);
        assert_eq!(got + dropped, 100);
    }

    #[test]
    fn sockets_of_one_user_share_a_port() {
        let first = bind_shared("127.0.0.1:0".parse().unwrap()).unwrap();
        let address = first.local_addr().unwrap().as_socket().unwrap();
        bind_shared(address).unwrap();
        assert!(UdpSocket::bind(address).is_err(), "a socket that does not share the port is refused");
    }
}
