//! Live capture of the packets of an interface, as tcpdump makes it: both directions, the first bytes of each packet.

use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::time::Duration;

use super::PacketSocket;
use super::host_filter;
use super::ring::{ReceiveRing, ReceivedFrame, SlotSize};
use crate::clock::wait_readable;
use crate::netlink::Netlink;

/// Name of the pseudo-interface for all interfaces.
const ANY: &str = "any";
/// Link type of Ethernet and of the loopback interface of Linux (`DLT_EN10MB`).
const ETHERNET: u32 = 1;
/// Link type of packets of any interface, with their EtherType (`LINKTYPE_LINUX_SLL2`).
const LINUX_COOKED: u32 = 276;
/// Size of its header. The EtherType comes first; the rest (interface, hardware type, address) is zero here.
const COOKED_HEADER: usize = 20;
/// Size of the ring: 50,000 packets of 192 bytes.
const RING_SIZE: usize = 16 << 20;

/// Packets of a live capture.
#[derive(Debug, Clone, Default)]
pub struct LiveFilter {
    /// Addresses of the hosts whose packets are captured; empty for all hosts. The kernel drops the other TCP and UDP
    /// packets, unless they are in a tunnel.
    pub hosts: Vec<IpAddr>,
}

/// Live capture on one interface, or on all.
#[derive(Debug)]
pub struct LiveCapture {
    socket: PacketSocket,
    ring: ReceiveRing,
    link_type: u32,
    dropped: u64,
    /// The frame that was read last. Its slot belongs to the kernel again.
    last: Option<ReceivedFrame>,
    /// First bytes of this frame.
    bytes: Vec<u8>,
}

/// Captured frame, until the next one is read.
#[derive(Debug, Clone, Copy)]
pub struct LiveFrame<'a> {
    /// Time at the interface, nanoseconds of `CLOCK_REALTIME`.
    pub at: u64,
    /// Link type number of the first bytes: 1 for Ethernet, 276 for Linux cooked version 2.
    pub link_type: u32,
    /// Captured part of the frame, from its start.
    pub bytes: &'a [u8],
    /// Bytes of the whole frame, also of a cooked header. The frame of a super-packet (GSO, GRO) has more bytes than the MTU.
    pub original_length: u32,
    /// The interface sent the frame.
    pub is_outgoing: bool,
}

impl LiveCapture {
    /// Opens a capture in the network namespace of the calling thread, on this interface or on `any`. Keeps the first
    /// `snap_length` bytes of each frame. Frames of the loopback interface are captured once.
    ///
    /// Needs CAP_NET_RAW: the error is `PermissionDenied` without it, and `NotFound` for an unknown interface.
    pub fn open(interface: &str, snap_length: u32, filter: &LiveFilter) -> io::Result<Self> {
        let index = if interface == ANY { 0 } else { find_interface(interface)? };
        let (socket, link_type) = open_socket(index)?;
        let mut program = host_filter::program(&filter.hosts, snap_length);
        socket.attach(&mut program)?;
        let ring = ReceiveRing::new(&socket, SlotSize::Frames(snap_length as usize), RING_SIZE)?;
        socket.bind(index)?;
        Ok(LiveCapture { socket, ring, link_type, dropped: 0, last: None, bytes: Vec::new() })
    }

    /// Reads the next frame for [`frame`](Self::frame); false if none arrives within `timeout`, or if a signal arrives.
    pub fn read(&mut self, timeout: Duration) -> io::Result<bool> {
        let mut has_waited = false;
        let frame = loop {
            match self.ring.take()? {
                // The loopback interface passes each frame twice: when it is sent, and when it arrives.
                Some(frame) if frame.is_loopback && frame.is_outgoing => self.ring.give_back(frame.slot),
                Some(frame) => break frame,
                None if has_waited => return Ok(false),
                None => {
                    wait_readable([self.socket.as_fd()], Some(timeout))?;
                    self.socket.take_error()?;
                    has_waited = true;
                }
            }
        };
        self.bytes.clear();
        if self.link_type == LINUX_COOKED {
            self.bytes.extend(frame.protocol.to_be_bytes());
            self.bytes.resize(COOKED_HEADER, 0);
        }
        self.bytes.extend_from_slice(self.ring.bytes(frame.slot));
        self.ring.give_back(frame.slot);
        self.last = Some(frame);
        Ok(true)
    }

    /// Returns the frame that was read last.
    pub fn frame(&self) -> Option<LiveFrame<'_>> {
        let frame = self.last?;
        let header = if self.link_type == LINUX_COOKED { COOKED_HEADER as u32 } else { 0 };
        Some(LiveFrame {
            at: frame.timestamp,
            link_type: self.link_type,
            bytes: &self.bytes,
            // A VLAN tag that was inserted again is a part of the frame.
            original_length: (frame.length + header).max(self.bytes.len() as u32),
            is_outgoing: frame.is_outgoing,
        })
    }

    /// Returns the frames that the kernel dropped since the start, because the ring was full (`PACKET_STATISTICS`).
    pub fn dropped(&mut self) -> io::Result<u64> {
        self.dropped += self.socket.take_dropped()?;
        Ok(self.dropped)
    }
}

/// Returns the index of the interface; the error of an unknown one lists all interfaces.
fn find_interface(name: &str) -> io::Result<u32> {
    let mut netlink = Netlink::open()?;
    netlink.index(name).map_err(|error| match error.raw_os_error() {
        Some(libc::ENODEV | libc::ENOENT | libc::EINVAL | libc::ERANGE) => {
            let names = netlink.interface_names().unwrap_or_default().join(", ");
            io::Error::new(io::ErrorKind::NotFound, format!("no such interface; this host has: {names}"))
        }
        _ => error,
    })
}

/// Opens a socket that receives nothing yet, with the link type of the interface.
fn open_socket(index: u32) -> io::Result<(PacketSocket, u32)> {
    if index != 0 {
        let probe = PacketSocket::without_vnet(true)?;
        // A filter that drops everything: the probe only reads the type.
        probe.attach(&mut [libc::sock_filter { code: (libc::BPF_RET | libc::BPF_K) as u16, jt: 0, jf: 0, k: 0 }])?;
        probe.bind(index)?;
        if matches!(probe.hardware_type()?, libc::ARPHRD_ETHER | libc::ARPHRD_LOOPBACK) {
            return Ok((PacketSocket::without_vnet(true)?, ETHERNET));
        }
    }
    Ok((PacketSocket::without_vnet(false)?, LINUX_COOKED))
}
