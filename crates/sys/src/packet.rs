//! Packet sockets that carry whole super-packets (`packet(7)`, `PACKET_VNET_HDR`).
//!
//! A frame travels with the ten bytes of `struct virtio_net_hdr` before it, which say how the kernel would segment it
//! and where its checksum is still to be filled in. So up to 64 KiB cross in one call, and what is sent here looks to
//! the receiving stack as if the sending stack had handed it over. The socket never blocks. The kernel takes the outer
//! VLAN tag out of a frame before anybody sees it and tells it apart (`PACKET_AUXDATA`); here it is put back.

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
        socket.set(libc::SOL_PACKET, libc::PACKET_AUXDATA, 1_i32)?;
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
            Ok(length) if length <= room => {
                let told = Told::read(&message);
                let tag = told.tag.and_then(|tag| insert_tag(buffer, length, tag));
                Ok(Some(Frame { length: tag.unwrap_or(length), stamp: told.stamp }))
            }
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

/// Room for the control messages with a timespec and a `tpacket_auxdata`, and some.
const CONTROL: usize = 128;

/// Control messages are read as structs: aligned as those are.
#[repr(align(8))]
struct Control([u8; CONTROL]);

/// What the kernel tells of a frame beside its bytes.
#[derive(Debug, Default)]
struct Told {
    /// When it arrived, nanoseconds of `CLOCK_REALTIME`.
    stamp: Option<u64>,
    /// The VLAN tag that was taken out: TPID and TCI, as they were in the frame.
    tag: Option<[u8; 4]>,
}

impl Told {
    /// From the control messages of a received message.
    fn read(message: &libc::msghdr) -> Told {
        let mut told = Told::default();
        // SAFETY: the kernel filled in the control buffer, which is live and aligned, and set its length; CMSG_FIRSTHDR
        // gives null or a header within it.
        let mut next = unsafe { libc::CMSG_FIRSTHDR(message) };
        // SAFETY: `next` is null or a header within the control buffer.
        while let Some(header) = unsafe { next.as_ref() } {
            match (header.cmsg_level, header.cmsg_type) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => told.stamp = content(header).and_then(nanos),
                (libc::SOL_PACKET, libc::PACKET_AUXDATA) => told.tag = content(header).and_then(tag),
                _ => {}
            }
            // SAFETY: `header` is one of this message; CMSG_NXTHDR gives null or another within the buffer.
            next = unsafe { libc::CMSG_NXTHDR(message, header) };
        }
        told
    }
}

/// What a control message holds. `T` must be the plain struct the kernel puts into messages of this kind.
fn content<T: Copy>(header: &libc::cmsghdr) -> Option<T> {
    // SAFETY: CMSG_LEN computes from an integer.
    let whole = header.cmsg_len >= unsafe { libc::CMSG_LEN(mem::size_of::<T>() as u32) } as usize;
    // SAFETY: the message is long enough for a T by its own account; it may not be aligned.
    whole.then(|| unsafe { libc::CMSG_DATA(header).cast::<T>().read_unaligned() })
}

fn nanos(time: libc::timespec) -> Option<u64> {
    let (seconds, nanos) = (u64::try_from(time.tv_sec).ok()?, u64::try_from(time.tv_nsec).ok()?);
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

fn tag(told: libc::tpacket_auxdata) -> Option<[u8; 4]> {
    if told.tp_status & libc::TP_STATUS_VLAN_VALID == 0 {
        return None;
    }
    let protocol = match told.tp_status & libc::TP_STATUS_VLAN_TPID_VALID {
        0 => libc::ETH_P_8021Q as u16,
        _ => told.tp_vlan_tpid,
    };
    let ([a, b], [c, d]) = (protocol.to_be_bytes(), told.tp_vlan_tci.to_be_bytes());
    Some([a, b, c, d])
}

/// Puts a VLAN tag back behind the Ethernet addresses of a frame and gives the new length; `None` if there is no room or
/// no frame. What the virtual-net header counts from the frame's start moves with it.
fn insert_tag(buffer: &mut [u8], length: usize, tag: [u8; 4]) -> Option<usize> {
    /// Of two Ethernet addresses.
    const ADDRESSES: usize = 12;
    /// Offsets in `struct virtio_net_hdr`.
    const HEADER_LENGTH: usize = 2;
    const CHECKSUM_START: usize = 6;
    let at = VNET_HEADER + ADDRESSES;
    let longer = length + tag.len();
    if length < at || longer > buffer.len() {
        return None;
    }
    buffer.copy_within(at..length, at + tag.len());
    buffer[at..at + tag.len()].copy_from_slice(&tag);
    for offset in [HEADER_LENGTH, CHECKSUM_START] {
        let field = u16::from_ne_bytes([buffer[offset], buffer[offset + 1]]);
        // Zero where there is no such thing.
        let moved = if field == 0 { 0 } else { field.saturating_add(tag.len() as u16) };
        buffer[offset..offset + 2].copy_from_slice(&moved.to_ne_bytes());
    }
    Some(longer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_goes_behind_the_addresses_and_offsets_move() {
        let mut buffer = [0; 64];
        buffer[VNET_HEADER..VNET_HEADER + 12].fill(1);
        buffer[VNET_HEADER + 12..40].fill(2);
        buffer[2..4].copy_from_slice(&54_u16.to_ne_bytes());
        buffer[6..8].copy_from_slice(&34_u16.to_ne_bytes());
        assert_eq!(insert_tag(&mut buffer, 40, [0x81, 0, 0, 5]), Some(44));
        assert_eq!(buffer[VNET_HEADER..VNET_HEADER + 12], [1; 12]);
        assert_eq!(buffer[VNET_HEADER + 12..VNET_HEADER + 16], [0x81, 0, 0, 5]);
        assert_eq!(buffer[VNET_HEADER + 16..44], [2; 18]);
        assert_eq!(
            (buffer[2..4].to_vec(), buffer[6..8].to_vec()),
            (58_u16.to_ne_bytes().into(), 38_u16.to_ne_bytes().into())
        );
        assert_eq!(insert_tag(&mut buffer, 61, [0; 4]), None);
        assert_eq!(insert_tag(&mut buffer, 21, [0; 4]), None);
    }
}
