//! Several datagrams in one call: split by the kernel from one long buffer (GSO) or passed separately (`sendmmsg(2)`),
//! and received with their metadata (`recvmmsg(2)`).

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use super::address;

/// Maximum number of datagrams in one send with GSO (`UDP_MAX_SEGMENTS`, include/linux/udp.h).
pub const MAX_SEGMENTS: usize = 64;

/// Maximum number of bytes in one send with GSO: the maximum payload of an IPv4 packet.
pub const MAX_GSO_BYTES: usize = 65_507;

/// Maximum number of datagrams in one `sendmmsg`.
const MAX_DATAGRAMS: usize = 64;

/// Size of the control messages used here: timestamp, GRO, and the destination address.
const CONTROL_SIZE: usize = 256;

/// Sends `bytes` in one call over a connected socket, as datagrams of `segment` bytes. The last datagram may be
/// shorter. With `gso`, the kernel splits the bytes (at most [`MAX_SEGMENTS`] and [`MAX_GSO_BYTES`]). Returns the
/// number of accepted datagrams, with `gso` all or none.
pub fn send(socket: impl AsFd, bytes: &[u8], segment: usize, gso: bool) -> io::Result<usize> {
    let segment = segment.clamp(1, bytes.len().max(1));
    if gso && bytes.len() > segment {
        send_gso(socket, bytes, segment)?;
        return Ok(bytes.len().div_ceil(segment));
    }
    send_mmsg(socket, bytes, segment)
}

fn send_gso(socket: impl AsFd, bytes: &[u8], segment: usize) -> io::Result<()> {
    let size = u16::try_from(segment).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut part = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 8];
    // SAFETY: a msghdr is plain data, for which zeros are valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: the macros are pure arithmetic. The control buffer has room for one message of two bytes, has the
    // alignment of a cmsghdr and outlives the call. The iovec and the bytes, which the kernel only reads, also outlive
    // it.
    let sent = unsafe {
        message.msg_controllen = libc::CMSG_SPACE(mem::size_of::<u16>() as u32) as _;
        let head = libc::CMSG_FIRSTHDR(&raw const message);
        (*head).cmsg_level = libc::IPPROTO_UDP;
        (*head).cmsg_type = libc::UDP_SEGMENT;
        (*head).cmsg_len = libc::CMSG_LEN(mem::size_of::<u16>() as u32) as _;
        ptr::write_unaligned(libc::CMSG_DATA(head).cast::<u16>(), size);
        libc::sendmsg(socket.as_fd().as_raw_fd(), &raw const message, 0)
    };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

fn send_mmsg(socket: impl AsFd, bytes: &[u8], segment: usize) -> io::Result<usize> {
    // SAFETY: both are plain data, for which zeros are valid.
    let (mut parts, mut messages): ([libc::iovec; MAX_DATAGRAMS], [libc::mmsghdr; MAX_DATAGRAMS]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    for (at, part) in bytes.chunks(segment).take(MAX_DATAGRAMS).enumerate() {
        parts[at] = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        (messages[at].msg_hdr.msg_iov, messages[at].msg_hdr.msg_iovlen) = (&raw mut parts[at], 1);
        count += 1;
    }
    // SAFETY: `count` messages are filled. Each has one iovec of bytes that outlive the call and are only read.
    let sent = unsafe { libc::sendmmsg(socket.as_fd().as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Reusable buffers for the messages of one receive call.
#[derive(Debug)]
pub struct ReceiveBuffers {
    slots: Vec<ReceiveSlot>,
    received: usize,
}

#[derive(Debug)]
struct ReceiveSlot {
    bytes: Vec<u8>,
    control: [u64; CONTROL_SIZE / 8],
    name: Box<libc::sockaddr_storage>,
    length: usize,
    control_length: usize,
    flags: libc::c_int,
}

/// A received datagram, or several datagrams of one flow that the kernel merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MergedDatagrams<'a> {
    /// Payload of all datagrams.
    pub bytes: &'a [u8],
    /// Length of each datagram. The last one may be shorter. Without merging, the length of `bytes`.
    pub segment: usize,
    /// Receive time in the kernel, `CLOCK_REALTIME` in nanoseconds.
    pub timestamp: Option<u64>,
    pub from: Option<SocketAddr>,
    /// Local address that the datagram was sent to.
    pub to: Option<IpAddr>,
    /// The datagram was longer than its buffer.
    pub truncated: bool,
}

impl<'a> MergedDatagrams<'a> {
    /// Returns the payload of each datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        // An empty datagram also counts as one.
        let empty = bytes.is_empty().then_some(bytes);
        bytes.chunks(self.segment.max(1)).chain(empty)
    }
}

impl ReceiveBuffers {
    /// Allocates buffers for `slots` messages of `size` bytes each. Merged datagrams need 64 KiB.
    pub fn new(slots: usize, size: usize) -> Self {
        // SAFETY: a sockaddr_storage is plain data, for which zeros are valid.
        let name = || Box::new(unsafe { mem::zeroed::<libc::sockaddr_storage>() });
        let slot = || ReceiveSlot {
            bytes: vec![0; size],
            control: [0; CONTROL_SIZE / 8],
            name: name(),
            length: 0,
            control_length: 0,
            flags: 0,
        };
        ReceiveBuffers { slots: (0..slots.max(1)).map(|_| slot()).collect(), received: 0 }
    }

    /// Receives the waiting messages. Waits for the first one, up to the read time-out of the socket. Returns the
    /// number of messages.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.received = 0;
        let count = self.slots.len();
        // SAFETY: plain data, for which zeros are valid.
        let zeros = || unsafe { (mem::zeroed::<libc::iovec>(), mem::zeroed::<libc::mmsghdr>()) };
        let (mut parts, mut messages): (Vec<_>, Vec<_>) = (0..count).map(|_| zeros()).unzip();
        for ((slot, part), message) in self.slots.iter_mut().zip(&mut parts).zip(&mut messages) {
            *part = libc::iovec { iov_base: slot.bytes.as_mut_ptr().cast(), iov_len: slot.bytes.len() };
            let head = &mut message.msg_hdr;
            (head.msg_iov, head.msg_iovlen) = (&raw mut *part, 1);
            head.msg_name = (&raw mut *slot.name).cast();
            head.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            head.msg_control = slot.control.as_mut_ptr().cast();
            head.msg_controllen = CONTROL_SIZE as _;
        }
        // SAFETY: every message points to buffers of the lengths that it contains, and all of them outlive the call.
        let got = unsafe {
            let flags = libc::MSG_WAITFORONE;
            let socket = socket.as_fd().as_raw_fd();
            libc::recvmmsg(socket, messages.as_mut_ptr(), count as _, flags as _, ptr::null_mut())
        };
        self.received = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        for (slot, message) in self.slots.iter_mut().zip(&messages).take(self.received) {
            slot.length = (message.msg_len as usize).min(slot.bytes.len());
            #[allow(clippy::unnecessary_cast, reason = "the type of musl differs")]
            let control_length = message.msg_hdr.msg_controllen as usize;
            slot.control_length = control_length.min(CONTROL_SIZE);
            slot.flags = message.msg_hdr.msg_flags;
        }
        Ok(self.received)
    }

    /// Returns the messages of the last [`ReceiveBuffers::receive`].
    pub fn messages(&self) -> impl Iterator<Item = MergedDatagrams<'_>> {
        self.slots.iter().take(self.received).map(ReceiveSlot::message)
    }
}

impl ReceiveSlot {
    fn message(&self) -> MergedDatagrams<'_> {
        let bytes = &self.bytes[..self.length];
        let mut message = MergedDatagrams {
            bytes,
            segment: bytes.len(),
            timestamp: None,
            from: address(&self.name),
            to: None,
            truncated: self.flags & libc::MSG_TRUNC != 0,
        };
        for (level, kind, data) in self.controls() {
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => message.timestamp = timestamp(data),
                (libc::IPPROTO_UDP, libc::UDP_GRO) => {
                    let length = data.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                    message.segment = usize::try_from(length).unwrap_or(0).clamp(1, bytes.len().max(1));
                }
                // Layout of struct in_pktinfo: interface, local address, address in the header (ip(7)).
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    message.to = data.get(8..12).and_then(|a| a.first_chunk::<4>()).map(|a| Ipv4Addr::from(*a).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let address = data.first_chunk::<16>().map(|a| Ipv6Addr::from(*a));
                    message.to = address.map(|a| IpAddr::from(a).to_canonical());
                }
                _ => {}
            }
        }
        message
    }

    /// Returns level, type and data of each control message.
    fn controls(&self) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
        let head = mem::size_of::<libc::cmsghdr>();
        // SAFETY: the array is plain bytes of this length, and any byte is a valid u8.
        let all = unsafe { std::slice::from_raw_parts(self.control.as_ptr().cast::<u8>(), CONTROL_SIZE) };
        let mut rest = &all[..self.control_length];
        std::iter::from_fn(move || {
            if rest.len() < head {
                return None;
            }
            // SAFETY: `rest` contains at least the bytes of a header, all of them initialised.
            let found = unsafe { ptr::read_unaligned(rest.as_ptr().cast::<libc::cmsghdr>()) };
            let length = (found.cmsg_len as usize).clamp(head, rest.len());
            let data = &rest[head..length];
            rest = &rest[length.next_multiple_of(mem::size_of::<usize>()).min(rest.len())..];
            Some((found.cmsg_level, found.cmsg_type, data))
        })
    }
}

/// Converts a `struct timespec` to nanoseconds.
fn timestamp(data: &[u8]) -> Option<u64> {
    let (seconds, nanos) = data.split_at_checked(8)?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds.first_chunk()?)).ok()?;
    let nanos = u64::try_from(i64::from_ne_bytes(*nanos.first_chunk()?)).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::super::{enable_destination_addresses, enable_timestamps, set_gro};
    use super::*;
    use crate::clock::wall_nanos;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (client, server) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        client.connect(server.local_addr().unwrap()).unwrap();
        server.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (client, server)
    }

    fn received(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
        let mut buffers = ReceiveBuffers::new(4, 65_536);
        let mut all = Vec::new();
        while all.len() < count {
            buffers.receive(socket).unwrap();
            all.extend(
                buffers.messages().flat_map(|message| message.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()),
            );
        }
        all
    }

    #[test]
    fn gso_and_sendmmsg_send_the_same_datagrams() {
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let expected: Vec<Vec<u8>> = bytes.chunks(1400).map(<[u8]>::to_vec).collect();
        for (gso, gro) in [(false, false), (false, true), (true, false), (true, true)] {
            let (client, server) = pair();
            set_gro(&server, gro).unwrap();
            assert_eq!(send(&client, &bytes, 1400, gso).unwrap(), 8);
            assert_eq!(received(&server, 8), expected, "gso {gso} gro {gro}");
        }
    }

    #[test]
    fn datagram_has_timestamp_and_addresses() {
        let (client, server) = pair();
        enable_timestamps(&server).unwrap();
        enable_destination_addresses(&server).unwrap();
        let before = wall_nanos();
        send(&client, &[7], 1, false).unwrap();
        let mut buffers = ReceiveBuffers::new(2, 100);
        assert_eq!(buffers.receive(&server).unwrap(), 1);
        let message = buffers.messages().next().unwrap();
        assert_eq!((message.bytes, message.truncated), (&[7][..], false));
        assert_eq!(message.from, Some(client.local_addr().unwrap()));
        assert_eq!(message.to, Some(server.local_addr().unwrap().ip()));
        let timestamp = message.timestamp.unwrap();
        assert!((before..=wall_nanos()).contains(&timestamp), "{before} {timestamp}");
    }

    #[test]
    fn long_datagram_is_marked_as_truncated() {
        let (client, server) = pair();
        send(&client, &[1; 50], 50, false).unwrap();
        let mut buffers = ReceiveBuffers::new(1, 20);
        buffers.receive(&server).unwrap();
        let message = buffers.messages().next().unwrap();
        assert_eq!((message.bytes.len(), message.truncated), (20, true));
    }
}
