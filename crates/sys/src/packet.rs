//! Packet sockets that carry whole super-packets (`packet(7)`, `PACKET_VNET_HDR`).
//!
//! A frame travels with the ten bytes of `struct virtio_net_hdr` before it, which say how the kernel would segment it
//! and where its checksum is still to be filled in. So up to 64 KiB cross in one call, and what is sent here looks to
//! the receiving stack as if the sending stack had handed it over. The socket never blocks.

use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

/// Length of the virtual-net header in front of every frame.
pub const VNET_HEADER: usize = 10;

/// The most that one `receive` can give: header, Ethernet header with VLAN tag, and a super-packet.
pub const MAX_FRAME: usize = VNET_HEADER + 18 + 65_536;

/// What was received.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Bytes, the virtual-net header among them.
    pub length: usize,
    /// When it arrived at the interface, in nanoseconds of `CLOCK_REALTIME`, if the kernel says (`SO_TIMESTAMPNS`).
    pub stamp: Option<u64>,
}

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
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1_i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1_i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1_i32)?;
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1_i32)?;
        socket.bind(interface)?;
        Ok(socket)
    }

    /// Receives what is addressed to others as well, on the interface with this index, as long as the socket is open
    /// (`PACKET_MR_PROMISC`).
    pub fn receive_all(&self, interface: u32) -> io::Result<()> {
        // SAFETY: packet_mreq is plain data, for which all zeros is a value.
        let mut membership: libc::packet_mreq = unsafe { mem::zeroed() };
        membership.mr_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)
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
    pub fn receive(&self, buffer: &mut [u8]) -> io::Result<Option<Frame>> {
        let room = buffer.len();
        let mut part = libc::iovec { iov_base: buffer.as_mut_ptr().cast(), iov_len: room };
        let mut control = Control([0; CONTROL]);
        // SAFETY: msghdr is plain data, for which all zeros is a value.
        let mut message: libc::msghdr = unsafe { mem::zeroed() };
        message.msg_iov = &raw mut part;
        message.msg_iovlen = 1;
        message.msg_control = control.0.as_mut_ptr().cast();
        message.msg_controllen = CONTROL;
        // SAFETY: message points to one live slice and one live control buffer with their own lengths.
        let got = unsafe { libc::recvmsg(self.socket.as_raw_fd(), &raw mut message, libc::MSG_TRUNC) };
        match usize::try_from(got) {
            Ok(length) if length <= room => Ok(Some(Frame { length, stamp: stamp(&message) })),
            Ok(length) => Err(io::Error::new(io::ErrorKind::InvalidData, format!("a frame of {length} bytes"))),
            Err(_) => match io::Error::last_os_error() {
                e if matches!(e.kind(), io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted) => Ok(None),
                e => Err(e),
            },
        }
    }

    /// Sends one frame, its virtual-net header in front, gathered from `parts`.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        match rustix::io::writev(&self.socket, parts)? {
            sent if sent == length => Ok(()),
            sent => Err(io::Error::other(format!("sent {sent} of {length} bytes"))),
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

    /// `T` must be the plain struct the kernel reads for this option.
    fn set<T: Copy>(&self, level: i32, option: i32, value: T) -> io::Result<()> {
        let length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is live and the length is its own.
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

/// Room for one control message with a timespec, and some.
const CONTROL: usize = 64;

/// Control messages are read as structs: aligned as those are.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// The time stamp among the control messages of a received message.
fn stamp(message: &libc::msghdr) -> Option<u64> {
    // SAFETY: the kernel filled in the control buffer, which is live and aligned, and set its length; CMSG_FIRSTHDR
    // gives null or a header within it.
    let header = unsafe { libc::CMSG_FIRSTHDR(message).as_ref() }?;
    let length = mem::size_of::<libc::timespec>() as u32;
    // SAFETY: CMSG_LEN computes from an integer.
    let whole = header.cmsg_len >= unsafe { libc::CMSG_LEN(length) } as usize;
    if header.cmsg_level != libc::SOL_SOCKET || header.cmsg_type != libc::SCM_TIMESTAMPNS || !whole {
        return None;
    }
    // SAFETY: the message says that it holds a timespec, and is long enough for it; it may not be aligned.
    let time = unsafe { libc::CMSG_DATA(header).cast::<libc::timespec>().read_unaligned() };
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}
