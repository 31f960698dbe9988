//! Packet sockets that carry whole super-packets (`packet(7)`, `PACKET_VNET_HDR`).
//!
//! A frame travels with the ten bytes of `struct virtio_net_hdr` before it, which say how the kernel would segment it
//! and where its checksum is still to be filled in. So up to 64 KiB cross in one call, and what is sent here looks to
//! the receiving stack as if the sending stack had handed it over. The socket never blocks.

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Length of the virtual-net header in front of every frame.
pub const VNET_HEADER: usize = 10;

/// The most that one `receive` can give: header, Ethernet header with VLAN tag, and a super-packet.
pub const MAX_FRAME: usize = VNET_HEADER + 18 + 65_536;

/// A packet socket bound to one interface; it sees what arrives there and not what is sent from there.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// On the interface with this index in the namespace of the calling thread. Needs CAP_NET_RAW there.
    pub fn open(interface: u32) -> io::Result<Self> {
        // Protocol 0: nothing is received before bind() has said from which interface.
        // SAFETY: socket takes integers; the descriptor is checked before it is owned.
        let raw =
            unsafe { libc::socket(libc::AF_PACKET, libc::SOCK_RAW | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor was just made and nothing else owns it.
        let socket = PacketSocket { socket: unsafe { OwnedFd::from_raw_fd(raw) } };
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1)?;
        socket.bind(interface)?;
        Ok(socket)
    }

    /// Asks for a receive buffer of `bytes`, beyond `net.core.rmem_max` where the caller may (`SO_RCVBUFFORCE`);
    /// gives what was granted, which the kernel doubles for its own bookkeeping.
    pub fn set_receive_buffer(&self, bytes: u32) -> io::Result<u64> {
        let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
        if self.set(libc::SOL_SOCKET, libc::SO_RCVBUFFORCE, bytes).is_err() {
            self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, bytes)?;
        }
        let granted: i32 = self.get(libc::SOL_SOCKET, libc::SO_RCVBUF)?;
        Ok(u64::try_from(granted).unwrap_or(0))
    }

    /// Receives header and frame into `buffer`; `None` if there is none now. A frame longer than `buffer` is an error.
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<usize>> {
        // SAFETY: pointer and length are those of a live mutable slice.
        let got =
            unsafe { libc::recv(self.socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), libc::MSG_TRUNC) };
        match usize::try_from(got) {
            Ok(length) if length <= buffer.len() => Ok(Some(length)),
            Ok(length) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes"))),
            Err(_) => match io::Error::last_os_error() {
                e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
                e => Err(e),
            },
        }
    }

    /// Sends one frame, given with its virtual-net header in front.
    pub fn send(&self, frame: &[u8]) -> io::Result<()> {
        // SAFETY: pointer and length are those of a live slice.
        let sent = unsafe { libc::send(self.socket.as_raw_fd(), frame.as_ptr().cast(), frame.len(), 0) };
        match usize::try_from(sent) {
            Ok(length) if length == frame.len() => Ok(()),
            Ok(length) => Err(io::Error::other(format!("sent {length} of {} bytes", frame.len()))),
            Err(_) => Err(io::Error::last_os_error()),
        }
    }

    /// Frames that found no room in the receive buffer since the last call (`PACKET_STATISTICS`).
    pub fn take_dropped(&self) -> io::Result<u64> {
        let statistics: libc::tpacket_stats = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(u64::from(statistics.tp_drops))
    }

    fn bind(&self, interface: u32) -> io::Result<()> {
        // SAFETY: sockaddr_ll is plain data, for which all zeros is a value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
        let length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is a live sockaddr_ll and the length is its own.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) })
    }

    fn set(&self, level: i32, option: i32, value: i32) -> io::Result<()> {
        let length = mem::size_of::<i32>() as libc::socklen_t;
        // SAFETY: the value is a live i32 and the length is its own.
        check(unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const value).cast(), length) })
    }

    /// `T` must be the plain struct the kernel fills for this option.
    fn get<T: Copy>(&self, level: i32, option: i32) -> io::Result<T> {
        // SAFETY: T is plain data by the contract of this private function, for which all zeros is a value.
        let mut value: T = unsafe { mem::zeroed() };
        let mut length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: value and length are live, and the kernel writes no more than `length` bytes.
        check(unsafe {
            libc::getsockopt(self.socket.as_raw_fd(), level, option, (&raw mut value).cast(), &raw mut length)
        })?;
        Ok(value)
    }
}

impl AsFd for PacketSocket {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.socket.as_fd()
    }
}

fn check(result: i32) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
