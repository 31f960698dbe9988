//! One stream of datagrams as its thread and the control thread share it.

use std::io;
use std::sync::atomic::AtomicI32;
use std::sync::{Mutex, MutexGuard, PoisonError};

use lfn_core::udp::datagram;
use lfn_core::udp::figures::{Received, Sent};
use lfn_core::udp::pace::Pace;
use lfn_core::udp::receiver::Receiver;
use lfn_core::udp::step::StepMeter;
use lfn_core::units::{BitRate, Bytes, Ratio};
use lfn_core::wire::test::{SocketReport, SocketWish, UdpRequest};
use lfn_sys::tcp;
use lfn_sys::udp::{self, Fragmentation};
use socket2::SockRef;

use crate::session::DatagramStream;
use crate::tester::options;

/// Asked for if nothing else is: a few milliseconds of 10 Gb/s, and what `net.core.rmem_max` usually allows of it.
const RECEIVE_BUFFER: u64 = 4 << 20;

/// The longest datagram that nobody asked for: loopback's MTU would make them of 64 KiB, which no path carries.
const LONGEST_UNASKED: u32 = 8972;

/// A stream, how its socket is set, and what its thread has done so far.
#[derive(Debug)]
pub(super) struct Lane {
    pub(super) stream: DatagramStream,
    /// Payload of each datagram sent.
    pub(super) datagram: usize,
    pub(super) gso: bool,
    pub(super) dont_fragment: bool,
    pub(super) path_mtu: Option<u32>,
    pub(super) socket: SocketReport,
    /// What was asked, and the server's limit below it.
    pub(super) limited: Option<(BitRate, BitRate)>,
    /// The thread that moves its datagrams, once there is one.
    pub(super) thread: AtomicI32,
    outgoing: Mutex<Outgoing>,
    incoming: Mutex<Incoming>,
}

/// What a sender has done.
#[derive(Debug, Default)]
pub(super) struct Outgoing {
    pub(super) pace: Option<Pace>,
    pub(super) asked: BitRate,
    pub(super) datagrams: u64,
    pub(super) bytes: u64,
    /// First and last departure, nanoseconds.
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    pub(super) queue_full: u64,
    pub(super) gso_refused: bool,
    pub(super) gso_used: bool,
}

/// What a receiver has seen.
#[derive(Debug, Default)]
pub(super) struct Incoming {
    pub(super) account: Receiver,
    pub(super) bytes: u64,
    /// First and last arrival, nanoseconds.
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    pub(super) merged: u32,
    pub(super) foreign: u64,
    pub(super) kernel_stamps: bool,
    pub(super) step: StepMeter,
}

impl Lane {
    /// Sets the socket as it was asked for; GSO and GRO are left out where the kernel has none.
    pub(super) fn new(
        stream: DatagramStream,
        wish: &SocketWish,
        request: &UdpRequest,
        sends: bool,
    ) -> io::Result<Self> {
        let socket = stream.socket();
        let fragmentation = if request.fragment { Fragmentation::Allowed } else { Fragmentation::Forbidden };
        udp::set_fragmentation(socket, fragmentation)?;
        if let Some(dscp) = wish.dscp {
            options::mark(socket, dscp)?;
        }
        let path_mtu = udp::path_mtu(socket).ok();
        let fits = path_mtu.map(|mtu| udp::payload_within(mtu, &stream.peer())).unwrap_or(1200);
        let unasked = fits.min(LONGEST_UNASKED).max(datagram::LENGTH as u32);
        let bytes = request.datagram_bytes.unwrap_or(unasked);
        if sends {
            udp::set_errors_told(socket)?;
            socket.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
            if let Some(asked) = wish.sndbuf {
                tcp::set_send_buffer(socket, asked.0)?;
            }
        } else {
            let _ = udp::set_stamps(socket);
            let _ = udp::set_gro(socket, !request.no_gro);
            tcp::set_receive_buffer(socket, wish.rcvbuf.map_or(RECEIVE_BUFFER, |asked| asked.0))?;
        }
        let report = SocketReport {
            sndbuf_asked_bytes: wish.sndbuf.filter(|_| sends),
            sndbuf_granted_bytes: Bytes(tcp::send_buffer(socket)?),
            // What we ask for where nobody did may be capped, and nobody misses it.
            rcvbuf_asked_bytes: wish.rcvbuf.filter(|_| !sends),
            rcvbuf_granted_bytes: Bytes(tcp::receive_buffer(socket)?),
            dscp_asked: wish.dscp,
            dscp_granted: options::marked(&SockRef::from(socket)),
            local_address: socket.local_addr().ok().map(|address| address.to_string()),
            ..SocketReport::default()
        };
        // A datagram that has to be fragmented cannot be cut by the kernel's GSO.
        let gso = sends && !request.no_gso && bytes <= fits && udp::has_gso(socket);
        Ok(Lane {
            datagram: bytes as usize,
            gso,
            dont_fragment: !request.fragment,
            path_mtu,
            socket: report,
            limited: None,
            thread: AtomicI32::new(0),
            stream,
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
        })
    }

    pub(super) fn outgoing(&self) -> MutexGuard<'_, Outgoing> {
        self.outgoing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn incoming(&self) -> MutexGuard<'_, Incoming> {
        self.incoming.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What was sent.
    pub(super) fn sent(&self) -> Sent {
        let out = self.outgoing();
        let nanos = out.last.saturating_sub(out.first.unwrap_or(out.last));
        let seconds = nanos as f64 / 1e9;
        let bytes = out.bytes.saturating_sub(self.datagram as u64);
        let pace = out.pace.as_ref();
        let behind = pace.map_or(0.0, |pace| pace.behind().as_secs_f64());
        Sent {
            datagrams: out.datagrams,
            datagram_bytes: self.datagram as u64,
            asked: self.limited.map_or(out.asked, |(asked, _)| asked),
            limit: self.limited.map(|(_, limit)| limit),
            // From the first to the last departure: the time of one datagram fewer than were sent.
            achieved: BitRate(if nanos == 0 { 0 } else { (bytes as f64 * 8.0 / seconds) as u64 }),
            burst_datagrams: pace.map_or(1, Pace::burst),
            gso: out.gso_used,
            gso_refused: out.gso_refused,
            lateness: pace.and_then(Pace::lateness),
            behind_share: Ratio::new((behind / seconds).min(1.0)).unwrap_or_default(),
            given_up: pace.map(Pace::given_up).unwrap_or_default(),
            queue_full: out.queue_full,
            dont_fragment: self.dont_fragment,
            path_mtu_bytes: self.path_mtu,
        }
    }

    /// What was received.
    pub(super) fn received(&self) -> Received {
        let incoming = self.incoming();
        Received {
            foreign: incoming.foreign,
            overflows: udp::drops(self.stream.socket()).ok(),
            merged: incoming.merged,
            kernel_stamps: incoming.kernel_stamps,
            ..incoming.account.figures()
        }
    }
}
