//! Many datagrams in one call: cut by the kernel from one long buffer (GSO) or handed over side by side
//! (`sendmmsg(2)`), and taken with all the kernel says of each (`recvmmsg(2)`).

use std::io;
use std::mem;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::os::fd::{AsFd, AsRawFd};
use std::ptr;

use super::address;

/// Most datagrams of one send with GSO (`UDP_MAX_SEGMENTS`, include/linux/udp.h).
pub const MOST_SEGMENTS: usize = 64;

/// Most bytes of one send with GSO: the longest payload of an IPv4 packet.
pub const MOST_BYTES: usize = 65_507;

/// Most datagrams side by side in one `sendmmsg`.
const MOST_BESIDE: usize = 64;

/// Room for the control messages asked for here: stamp, GRO, and the address it was sent to.
const CONTROL: usize = 256;

/// Sends `bytes` over a connected socket as datagrams of `segment` bytes, the last one shorter if it does not come out
/// even, in one call. With `gso` the kernel cuts them (at most [`MOST_SEGMENTS`] and [`MOST_BYTES`]). Says how many
/// datagrams it took: with `gso` all or none.
pub fn send(socket: impl AsFd, bytes: &[u8], segment: usize, gso: bool) -> io::Result<usize> {
    let segment = segment.clamp(1, bytes.len().max(1));
    if gso && bytes.len() > segment {
        send_cut(socket, bytes, segment)?;
        return Ok(bytes.len().div_ceil(segment));
    }
    send_beside(socket, bytes, segment)
}

fn send_cut(socket: impl AsFd, bytes: &[u8], segment: usize) -> io::Result<()> {
    let size = u16::try_from(segment).map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))?;
    let mut piece = libc::iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
    let mut control = [0u64; 8];
    // SAFETY: a msghdr is plain data for which zeros are valid.
    let mut message: libc::msghdr = unsafe { mem::zeroed() };
    (message.msg_iov, message.msg_iovlen) = (&raw mut piece, 1);
    message.msg_control = control.as_mut_ptr().cast();
    // SAFETY: only arithmetic. The control buffer has room for one message of two bytes, is aligned as a cmsghdr has to
    // be and outlives the call, as do the iovec and the bytes, which the kernel only reads.
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

fn send_beside(socket: impl AsFd, bytes: &[u8], segment: usize) -> io::Result<usize> {
    // SAFETY: both are plain data for which zeros are valid.
    let (mut pieces, mut messages): ([libc::iovec; MOST_BESIDE], [libc::mmsghdr; MOST_BESIDE]) =
        unsafe { (mem::zeroed(), mem::zeroed()) };
    let mut count = 0;
    for (at, part) in bytes.chunks(segment).take(MOST_BESIDE).enumerate() {
        pieces[at] = libc::iovec { iov_base: part.as_ptr().cast_mut().cast(), iov_len: part.len() };
        (messages[at].msg_hdr.msg_iov, messages[at].msg_hdr.msg_iovlen) = (&raw mut pieces[at], 1);
        count += 1;
    }
    // SAFETY: `count` messages are filled, each with one iovec of bytes that outlive the call and are only read.
    let sent = unsafe { libc::sendmmsg(socket.as_fd().as_raw_fd(), messages.as_mut_ptr(), count, 0) };
    usize::try_from(sent).map_err(|_| io::Error::last_os_error())
}

/// Room for what one call takes, used again and again.
#[derive(Debug)]
pub struct Inbox {
    slots: Vec<Slot>,
    taken: usize,
}

#[derive(Debug)]
struct Slot {
    bytes: Vec<u8>,
    control: [u64; CONTROL / 8],
    name: Box<libc::sockaddr_storage>,
    length: usize,
    controlled: usize,
    flags: libc::c_int,
}

/// What one slot holds: a datagram, or several of one flow that the kernel merged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Message<'a> {
    /// The payload.
    pub bytes: &'a [u8],
    /// How long each datagram is, the last one perhaps shorter; all of `bytes` where nothing was merged.
    pub segment: usize,
    /// When the kernel took it in, `CLOCK_REALTIME` in nanoseconds.
    pub stamp: Option<u64>,
    /// Who sent it.
    pub from: Option<SocketAddr>,
    /// Which of this host's addresses it was sent to.
    pub to: Option<IpAddr>,
    /// It was longer than the room for it.
    pub truncated: bool,
}

impl<'a> Message<'a> {
    /// Each datagram.
    pub fn datagrams(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let bytes = self.bytes;
        // An empty datagram is one, too.
        let empty = bytes.is_empty().then_some(bytes);
        bytes.chunks(self.segment.max(1)).chain(empty)
    }
}

impl Inbox {
    /// Room for `slots` messages of `room` bytes each; merged datagrams want 64 KiB.
    pub fn new(slots: usize, room: usize) -> Self {
        // SAFETY: a sockaddr_storage is plain data for which zeros are valid.
        let name = || Box::new(unsafe { mem::zeroed::<libc::sockaddr_storage>() });
        let slot = || Slot {
            bytes: vec![0; room],
            control: [0; CONTROL / 8],
            name: name(),
            length: 0,
            controlled: 0,
            flags: 0,
        };
        Inbox { slots: (0..slots.max(1)).map(|_| slot()).collect(), taken: 0 }
    }

    /// Takes what is there, waiting for the first as long as the socket's read time-out allows; says how many messages.
    pub fn receive(&mut self, socket: impl AsFd) -> io::Result<usize> {
        self.taken = 0;
        let count = self.slots.len();
        // SAFETY: plain data for which zeros are valid.
        let zeros = || unsafe { (mem::zeroed::<libc::iovec>(), mem::zeroed::<libc::mmsghdr>()) };
        let (mut pieces, mut messages): (Vec<_>, Vec<_>) = (0..count).map(|_| zeros()).unzip();
        for ((slot, piece), message) in self.slots.iter_mut().zip(&mut pieces).zip(&mut messages) {
            *piece = libc::iovec { iov_base: slot.bytes.as_mut_ptr().cast(), iov_len: slot.bytes.len() };
            let head = &mut message.msg_hdr;
            (head.msg_iov, head.msg_iovlen) = (&raw mut *piece, 1);
            head.msg_name = (&raw mut *slot.name).cast();
            head.msg_namelen = mem::size_of::<libc::sockaddr_storage>() as libc::socklen_t;
            head.msg_control = slot.control.as_mut_ptr().cast();
            head.msg_controllen = CONTROL as _;
        }
        // SAFETY: every message points at buffers of the lengths it names, all of which outlive the call.
        let got = unsafe {
            let flags = libc::MSG_WAITFORONE;
            let socket = socket.as_fd().as_raw_fd();
            libc::recvmmsg(socket, messages.as_mut_ptr(), count as _, flags as _, ptr::null_mut())
        };
        self.taken = usize::try_from(got).map_err(|_| io::Error::last_os_error())?;
        for (slot, message) in self.slots.iter_mut().zip(&messages).take(self.taken) {
            slot.length = (message.msg_len as usize).min(slot.bytes.len());
            slot.controlled = message.msg_hdr.msg_controllen.min(CONTROL);
            slot.flags = message.msg_hdr.msg_flags;
        }
        Ok(self.taken)
    }

    /// What the last [`Inbox::receive`] took.
    pub fn messages(&self) -> impl Iterator<Item = Message<'_>> {
        self.slots.iter().take(self.taken).map(Slot::message)
    }
}

impl Slot {
    fn message(&self) -> Message<'_> {
        let bytes = &self.bytes[..self.length];
        let mut message = Message {
            bytes,
            segment: bytes.len(),
            stamp: None,
            from: address(&self.name),
            to: None,
            truncated: self.flags & libc::MSG_TRUNC != 0,
        };
        for (level, kind, data) in self.controls() {
            match (level, kind) {
                (libc::SOL_SOCKET, libc::SCM_TIMESTAMPNS) => message.stamp = stamp(data),
                (libc::IPPROTO_UDP, libc::UDP_GRO) => {
                    let length = data.first_chunk().map_or(0, |bytes| i32::from_ne_bytes(*bytes));
                    message.segment = usize::try_from(length).unwrap_or(0).clamp(1, bytes.len().max(1));
                }
                // struct in_pktinfo: interface, the local address, the one in the header (ip(7)).
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

    /// Level, type and data of each control message.
    fn controls(&self) -> impl Iterator<Item = (libc::c_int, libc::c_int, &[u8])> {
        let head = mem::size_of::<libc::cmsghdr>();
        // SAFETY: the array is plain bytes of that length, and any byte is a valid u8.
        let all = unsafe { std::slice::from_raw_parts(self.control.as_ptr().cast::<u8>(), CONTROL) };
        let mut rest = &all[..self.controlled];
        std::iter::from_fn(move || {
            if rest.len() < head {
                return None;
            }
            // SAFETY: `rest` has at least a header's bytes, all of which the kernel or zeros have set.
            let found = unsafe { ptr::read_unaligned(rest.as_ptr().cast::<libc::cmsghdr>()) };
            let length = (found.cmsg_len as usize).clamp(head, rest.len());
            let data = &rest[head..length];
            rest = &rest[length.next_multiple_of(mem::size_of::<usize>()).min(rest.len())..];
            Some((found.cmsg_level, found.cmsg_type, data))
        })
    }
}

/// A `struct timespec` as nanoseconds.
fn stamp(data: &[u8]) -> Option<u64> {
    let (seconds, nanos) = data.split_at_checked(8)?;
    let seconds = u64::try_from(i64::from_ne_bytes(*seconds.first_chunk()?)).ok()?;
    let nanos = u64::try_from(i64::from_ne_bytes(*nanos.first_chunk()?)).ok()?;
    seconds.checked_mul(1_000_000_000)?.checked_add(nanos)
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;
    use std::time::Duration;

    use super::super::{set_destination_told, set_gro, set_stamps};
    use super::*;
    use crate::clock::wall_nanos;

    fn pair() -> (UdpSocket, UdpSocket) {
        let (here, there) = (UdpSocket::bind("127.0.0.1:0").unwrap(), UdpSocket::bind("127.0.0.1:0").unwrap());
        here.connect(there.local_addr().unwrap()).unwrap();
        there.set_read_timeout(Some(Duration::from_secs(5))).unwrap();
        (here, there)
    }

    fn taken(socket: &UdpSocket, count: usize) -> Vec<Vec<u8>> {
        let mut inbox = Inbox::new(4, 65_536);
        let mut all = Vec::new();
        while all.len() < count {
            inbox.receive(socket).unwrap();
            all.extend(
                inbox.messages().flat_map(|message| message.datagrams().map(<[u8]>::to_vec).collect::<Vec<_>>()),
            );
        }
        all
    }

    #[test]
    fn the_same_datagrams_arrive_cut_and_side_by_side() {
        let bytes: Vec<u8> = (0..10_000).map(|i| (i % 251) as u8).collect();
        let expected: Vec<Vec<u8>> = bytes.chunks(1400).map(<[u8]>::to_vec).collect();
        for (gso, gro) in [(false, false), (false, true), (true, false), (true, true)] {
            let (here, there) = pair();
            set_gro(&there, gro).unwrap();
            assert_eq!(send(&here, &bytes, 1400, gso).unwrap(), 8);
            assert_eq!(taken(&there, 8), expected, "gso {gso} gro {gro}");
        }
    }

    #[test]
    fn stamps_and_addresses_come_with_a_datagram() {
        let (here, there) = pair();
        set_stamps(&there).unwrap();
        set_destination_told(&there).unwrap();
        let before = wall_nanos();
        send(&here, &[7], 1, false).unwrap();
        let mut inbox = Inbox::new(2, 100);
        assert_eq!(inbox.receive(&there).unwrap(), 1);
        let message = inbox.messages().next().unwrap();
        assert_eq!((message.bytes, message.truncated), (&[7][..], false));
        assert_eq!(message.from, Some(here.local_addr().unwrap()));
        assert_eq!(message.to, Some(there.local_addr().unwrap().ip()));
        let stamp = message.stamp.unwrap();
        assert!((before..=wall_nanos()).contains(&stamp), "{before} {stamp}");
    }

    #[test]
    fn what_does_not_fit_says_so() {
        let (here, there) = pair();
        send(&here, &[1; 50], 50, false).unwrap();
        let mut inbox = Inbox::new(1, 20);
        inbox.receive(&there).unwrap();
        let message = inbox.messages().next().unwrap();
        assert_eq!((message.bytes.len(), message.truncated), (20, true));
    }
}
