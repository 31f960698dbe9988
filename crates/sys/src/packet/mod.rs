//! Packet sockets that carry complete super-packets (`packet(7)`, `PACKET_VNET_HDR`).
//!
//! The ten bytes of `struct virtio_net_hdr` precede each frame. They describe the segmentation of the frame and the
//! position of an unfinished checksum. So up to 64 KiB cross in one call, and the receiving stack handles a sent frame
//! as if it came directly from the sending stack. Frames are received through a [`ReceiveRing`] shared with the kernel,
//! and sent one per call. No function here blocks.

mod capture;
mod host_filter;
mod ring;

use std::io::{self, IoSlice};
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd};

pub use capture::{LiveCapture, LiveFilter, LiveFrame};
pub use ring::{ReceiveRing, ReceivedFrame, SlotSize};

/// Length of the virtio-net header before each frame.
pub const VNET_HEADER: usize = 10;

/// Maximum length of a frame, with virtio-net header, Ethernet header and VLAN tag.
pub const MAX_FRAME: usize = VNET_HEADER + 18 + 65_536;

/// Filter for received frames by length, counted with the Ethernet header and without a VLAN tag.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LengthFilter {
    UpTo(u32),
    Above(u32),
}

/// A packet socket at one interface. Receives arriving frames, but not frames that are sent from the interface.
#[derive(Debug)]
pub struct PacketSocket {
    socket: OwnedFd,
    /// Bytes of the virtio-net header before each frame.
    vnet_header: usize,
    /// The frames begin with their link-layer header.
    has_link_header: bool,
}

impl PacketSocket {
    /// Opens a socket at the interface with this index, in the namespace of the calling thread. Needs CAP_NET_RAW
    /// there.
    pub fn open(interface: u32, lengths: LengthFilter) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.set(libc::SOL_PACKET, libc::PACKET_IGNORE_OUTGOING, 1_i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_QDISC_BYPASS, 1_i32)?;
        socket.receive_from(interface, lengths)?;
        Ok(socket)
    }

    /// Like [`open`](Self::open), but also receives frames that are sent from the interface. Other taps can see the
    /// frames that this socket sends.
    pub fn open_tap(interface: u32, lengths: LengthFilter) -> io::Result<Self> {
        let socket = Self::new()?;
        socket.receive_from(interface, lengths)?;
        Ok(socket)
    }

    fn new() -> io::Result<Self> {
        let socket = PacketSocket { vnet_header: VNET_HEADER, ..Self::without_vnet(true)? };
        socket.set(libc::SOL_PACKET, libc::PACKET_VNET_HDR, 1_i32)?;
        Ok(socket)
    }

    /// Creates a socket without virtio-net headers. Without the link-layer header, each frame begins with its IP header
    /// (`SOCK_DGRAM`).
    fn without_vnet(has_link_header: bool) -> io::Result<Self> {
        let kind = if has_link_header { libc::SOCK_RAW } else { libc::SOCK_DGRAM };
        // With protocol 0, no frame is received before bind() has set the interface.
        // SAFETY: socket takes integers, and the descriptor is checked before it is owned.
        let raw = unsafe { libc::socket(libc::AF_PACKET, kind | libc::SOCK_CLOEXEC | libc::SOCK_NONBLOCK, 0) };
        if raw < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the descriptor is new and has no other owner.
        let socket = PacketSocket { socket: unsafe { OwnedFd::from_raw_fd(raw) }, vnet_header: 0, has_link_header };
        // Timestamps of the arrival at the interface, not of the copy into a ring.
        socket.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1_i32)?;
        socket.set(libc::SOL_PACKET, libc::PACKET_TIMESTAMP, libc::SOF_TIMESTAMPING_SOFTWARE)?;
        Ok(socket)
    }

    fn receive_from(&self, interface: u32, lengths: LengthFilter) -> io::Result<()> {
        self.set_length_filter(lengths)?;
        self.bind(interface)
    }

    /// Also receives frames for other hosts, while the socket is open (`PACKET_MR_PROMISC`).
    pub fn set_promiscuous(&self, interface: u32) -> io::Result<()> {
        // SAFETY: packet_mreq is plain data, for which all zeros is a valid value.
        let mut membership: libc::packet_mreq = unsafe { mem::zeroed() };
        membership.mr_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
        membership.mr_type = libc::PACKET_MR_PROMISC as u16;
        self.set(libc::SOL_PACKET, libc::PACKET_ADD_MEMBERSHIP, membership)
    }

    /// Sends one frame, gathered from `parts`. The virtio-net header comes first.
    pub fn send(&self, parts: &[IoSlice<'_>]) -> io::Result<()> {
        let length: usize = parts.iter().map(|part| part.len()).sum();
        match rustix::io::writev(&self.socket, parts)? {
            sent if sent == length => Ok(()),
            sent => Err(io::Error::other(format!("sent {sent} of {length} bytes"))),
        }
    }

    /// Returns the error of the socket since the last call, for example a vanished interface (`SO_ERROR`).
    pub fn take_error(&self) -> io::Result<()> {
        match self.get::<i32>(libc::SOL_SOCKET, libc::SO_ERROR)? {
            0 => Ok(()),
            error => Err(io::Error::from_raw_os_error(error)),
        }
    }

    /// Returns the number of frames dropped for lack of room since the last call (`PACKET_STATISTICS`).
    pub fn take_dropped(&self) -> io::Result<u64> {
        let statistics: libc::tpacket_stats = self.get(libc::SOL_PACKET, libc::PACKET_STATISTICS)?;
        Ok(u64::from(statistics.tp_drops))
    }

    /// Attaches a filter in classic BPF (`SO_ATTACH_FILTER`): load the frame length, compare, accept or drop.
    fn set_length_filter(&self, lengths: LengthFilter) -> io::Result<()> {
        const ACCEPT: u32 = u32::MAX;
        let (limit, above, otherwise) = match lengths {
            LengthFilter::UpTo(limit) => (limit, 0, ACCEPT),
            LengthFilter::Above(limit) => (limit, ACCEPT, 0),
        };
        let code = |class: u32, jt, jf, k| libc::sock_filter { code: class as u16, jt, jf, k };
        let mut program = [
            code(libc::BPF_LD | libc::BPF_W | libc::BPF_LEN, 0, 0, 0),
            code(libc::BPF_JMP | libc::BPF_JGT | libc::BPF_K, 0, 1, limit),
            code(libc::BPF_RET | libc::BPF_K, 0, 0, above),
            code(libc::BPF_RET | libc::BPF_K, 0, 0, otherwise),
        ];
        self.attach(&mut program)
    }

    /// Attaches a filter program. The kernel copies and checks it.
    fn attach(&self, program: &mut [libc::sock_filter]) -> io::Result<()> {
        let len = u16::try_from(program.len()).map_err(io::Error::other)?;
        let filter = libc::sock_fprog { len, filter: program.as_mut_ptr() };
        self.set(libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, filter)
    }

    /// Returns the hardware type of the bound interface (`ARPHRD_`).
    fn hardware_type(&self) -> io::Result<u16> {
        // SAFETY: sockaddr_ll is plain data, for which all zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        let mut length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address and its length are live, and the kernel writes at most `length` bytes.
        check(unsafe { libc::getsockname(self.socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length) })?;
        Ok(address.sll_hatype)
    }

    fn bind(&self, interface: u32) -> io::Result<()> {
        // SAFETY: sockaddr_ll is plain data, for which all zeros is a valid value.
        let mut address: libc::sockaddr_ll = unsafe { mem::zeroed() };
        address.sll_family = libc::AF_PACKET as u16;
        address.sll_protocol = (libc::ETH_P_ALL as u16).to_be();
        address.sll_ifindex = i32::try_from(interface).map_err(io::Error::other)?;
        let length = mem::size_of::<libc::sockaddr_ll>() as libc::socklen_t;
        // SAFETY: the address is a live sockaddr_ll with its own length.
        check(unsafe { libc::bind(self.socket.as_raw_fd(), (&raw const address).cast(), length) })
    }

    /// Sets an option. `T` must be the type that the kernel reads for this option, and pointers in it must be valid
    /// during the call.
    fn set<T: Copy>(&self, level: i32, option: i32, value: T) -> io::Result<()> {
        let length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: the value is live and the length is its own.
        check(unsafe { libc::setsockopt(self.socket.as_raw_fd(), level, option, (&raw const value).cast(), length) })
    }

    /// Reads an option. `T` must be the plain struct that the kernel fills for this option.
    fn get<T: Copy>(&self, level: i32, option: i32) -> io::Result<T> {
        // SAFETY: T is plain data by the contract of this private function, so all zeros is a valid value.
        let mut value: T = unsafe { mem::zeroed() };
        let mut length = mem::size_of::<T>() as libc::socklen_t;
        // SAFETY: value and length are live, and the kernel writes at most `length` bytes.
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
