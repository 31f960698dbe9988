//! Packet sockets that carry whole super-packets (`packet(7)`, `PACKET_VNET_HDR`).
//!
//! A frame travels with the ten bytes of `struct virtio_net_hdr` before it, which say how the kernel would segment it
//! and where its checksum is still to be filled in. So up to 64 KiB cross in one call, and what is sent here looks to
//! the receiving stack as if the sending stack had handed it over. Frames are received through a [`ReceiveRing`] shared
//! with the kernel, and sent one a call. Nothing here blocks.

mod ring;

use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use ring::{ReceiveRing, Received, Room};

/// Length of the virtual-net header in front of every frame.
pub const VNET_HEADER: usize = 10;

/// The longest frame there is, virtual-net header, Ethernet header and VLAN tag included.
pub const MAX_FRAME: usize = VNET_HEADER + 18 + 65_536;

/// Which frames a socket receives, by their bytes with the Ethernet header and without VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lengths {
    /// So long or shorter.
    UpTo(u32),
    /// Longer than that.
    Above(u32),
}

/// A packet socket bound to one interface; it sees what arrives there and not what is sent from there.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
}

impl PacketSocket {
    /// On the interface with this index in the namespace of the calling thread. Needs CAP_NET_RAW there.
    pub fn open(interface: u32, lengths: Lengths) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1_i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1_i32)?;
        socket.receive_from(interface, lengths)?;
        Ok(socket)
    }

    /// The same, but it also sees what is sent from the interface, and what it sends itself is seen by others.
    pub fn open_tap(interface: u32, lengths: Lengths) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.receive_from(interface, lengths)?;
        Ok(socket)
    }

    fn new() -> io::Result<Self> {
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
        // Stamps of the arrival at the interface, not of the copying into a ring.
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1_i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, libc::SOF_TIMESTAMPING_SOFTWARE)?;
        Ok(socket)
    }

    fn receive_from(&self, interface: u32, lengths: Lengths) -> io::Result<()> {
        self.accept_only(lengths)?;
        self.bind(interface)
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

    /// Sends one frame, its virtual-net header in front, gathered from `parts`.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        match rustix::io::writev(&self.socket, parts)? {
            sent if sent == length => Ok(()),
            sent => Err(io::Error::other(format!("sent {sent} of {length} bytes"))),
        }
    }

    /// What went wrong with the socket since the last call, such as that its interface is gone (`SO_ERROR`).
    pub fn take_error(&self) -> io::Result<()> {
        match self.get::<i32>(libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Frames that found no room since the last call (`PACKET_STATISTICS`).
    pub fn take_dropped(&self) -> io::Result<u64> {
        let statistics: libc::tpacket_stats = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(u64::from(statistics.tp_drops))
    }

    /// A filter in the kernel's classic bytecode (`SO_ATTACH_FILTER`): take the frame's length, compare, pass whole or not.
    fn accept_only(&self, lengths: Lengths) -> io::Result<()> {
        const WHOLE: u32 = u32::MAX;
        let (limit, above, otherwise) = match lengths {
            Lengths::UpTo(limit) => (limit, 0, WHOLE),
            Lengths::Above(limit) => (limit, WHOLE, 0),
        };
        let code = |class: u32, jt, jf, k| libc::sock_filter { code: class as u16, jt, jf, k };
        let mut program = [
            code(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
            code(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, limit),
            code(libc::BPF_RET | libc::BPF_K, 0, 0, above),
            code(libc::BPF_RET | libc::BPF_K, 0, 0, otherwise),
        ];
        let filter = libc::sock_fprog { len: program.len() as u16, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, filter)
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

    /// `T` must be what the kernel reads for this option; pointers in it must be good for the call.
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
