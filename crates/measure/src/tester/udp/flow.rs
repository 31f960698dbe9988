//! State of one datagram stream that its thread and the control thread share.

use std::io;
use std::sync::Arc;

use lfn_base::units::{BitRate, Bytes, Ratio};
use lfn_results::measure::{SocketReport, SocketRequest, UdpRequest};
use lfn_results::udp::figures::{UdpReceived, UdpSent};
use lfn_session::DatagramStream;
use lfn_sys::tcp;
use lfn_sys::udp::{self, Fragmentation};
use parking_lot::Mutex;
use socket2::SockRef;

use crate::load::{Pacer, StreamCounter};
use crate::proto::udp::datagram;
use crate::proto::udp::receiver::DatagramReceiver;
use crate::proto::udp::step::StepMeter;
use crate::tester::options;

/// Default receive buffer: a few milliseconds of 10 Gb/s, and usually the maximum of `net.core.rmem_max`.
const DEFAULT_RECEIVE_BUFFER: u64 = 4 << 20;

/// Maximum payload of the default datagram size. Loopback's MTU would allow 64 KiB, which no real path carries.
const MAX_DEFAULT_DATAGRAM: u32 = 8972;

/// A stream, its socket options, and the counts of its thread.
#[derive(Debug)]
pub(super) struct UdpFlow {
    pub(super) stream: DatagramStream,
    /// Payload of each sent datagram.
    pub(super) datagram_bytes: usize,
    pub(super) gso: bool,
    pub(super) dont_fragment: bool,
    pub(super) path_mtu: Option<u32>,
    pub(super) socket: SocketReport,
    /// Requested rate and the server's lower limit.
    pub(super) rate_limit: Option<(BitRate, BitRate)>,
    pub(super) counter: Arc<StreamCounter>,
    pub(super) outgoing: Mutex<FlowSent>,
    pub(super) incoming: Mutex<FlowReceived>,
}

/// Figures of a sender that its [`StreamCounter`] does not have.
#[derive(Debug, Default)]
pub(super) struct FlowSent {
    pub(super) pace: Option<Pacer>,
    pub(super) requested: BitRate,
    /// First and last departure, nanoseconds.
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    pub(super) queue_full: u64,
    pub(super) gso_refused: bool,
    pub(super) gso_used: bool,
}

/// Figures of a receiver that its [`StreamCounter`] does not have.
#[derive(Debug, Default)]
pub(super) struct FlowReceived {
    pub(super) stats: DatagramReceiver,
    /// First and last arrival, nanoseconds.
    pub(super) first: Option<u64>,
    pub(super) last: u64,
    pub(super) merged: u32,
    pub(super) unrecognised: u64,
    pub(super) kernel_stamps: bool,
    pub(super) step: StepMeter,
}

impl UdpFlow {
    /// Sets the requested socket options. GSO and GRO are skipped where the kernel does not support them.
    pub(super) fn new(
        stream: DatagramStream,
        socket_request: &SocketRequest,
        request: &UdpRequest,
        sends: bool,
    ) -> io::Result<Self> {
        let socket = stream.socket();
        let fragmentation = if request.fragment { Fragmentation::Allowed } else { Fragmentation::Forbidden };
        udp::set_fragmentation(socket, fragmentation)?;
        if let Some(dscp) = socket_request.dscp {
            options::set_dscp(socket, dscp)?;
        }
        let path_mtu = udp::path_mtu(socket).ok();
        let fits = path_mtu.map(|mtu| udp::max_payload(mtu, &stream.peer())).unwrap_or(1200);
        let default = fits.min(MAX_DEFAULT_DATAGRAM).max(datagram::HEADER_LENGTH as u32);
        let bytes = request.datagram_bytes.unwrap_or(default);
        if sends {
            udp::enable_error_reports(socket)?;
            socket.set_write_timeout(Some(std::time::Duration::from_secs(1)))?;
            if let Some(asked) = socket_request.sndbuf {
                tcp::set_send_buffer(socket, asked.0)?;
            }
        } else {
            let _ = udp::enable_timestamps(socket);
            let _ = udp::set_gro(socket, !request.no_gro);
            tcp::set_receive_buffer(socket, socket_request.rcvbuf.map_or(DEFAULT_RECEIVE_BUFFER, |asked| asked.0))?;
        }
        let report = SocketReport {
            sndbuf_requested_bytes: socket_request.sndbuf.filter(|_| sends),
            sndbuf_granted_bytes: Bytes(tcp::send_buffer(socket)?),
            // The kernel may reduce the default size, so only a size that the user requested is reported.
            rcvbuf_requested_bytes: socket_request.rcvbuf.filter(|_| !sends),
            rcvbuf_granted_bytes: Bytes(tcp::receive_buffer(socket)?),
            dscp_requested: socket_request.dscp,
            dscp_granted: options::current_dscp(&SockRef::from(socket)),
            local_address: socket.local_addr().ok().map(|address| address.to_string()),
            ..SocketReport::default()
        };
        // GSO cannot split datagrams that need IP fragmentation.
        let gso = sends && !request.no_gso && bytes <= fits && udp::has_gso(socket);
        Ok(UdpFlow {
            datagram_bytes: bytes as usize,
            gso,
            dont_fragment: !request.fragment,
            path_mtu,
            socket: report,
            rate_limit: None,
            counter: Arc::default(),
            stream,
            outgoing: Mutex::default(),
            incoming: Mutex::default(),
        })
    }

    /// Returns the sender's figures.
    pub(super) fn sent(&self) -> UdpSent {
        let out = self.outgoing.lock();
        let nanos = out.last.saturating_sub(out.first.unwrap_or(out.last));
        let seconds = nanos as f64 / 1e9;
        let bytes = self.counter.bytes().saturating_sub(self.datagram_bytes as u64);
        let pace = out.pace.as_ref();
        let behind = pace.map_or(0.0, |pace| pace.behind().as_secs_f64());
        UdpSent {
            datagrams: self.counter.datagrams(),
            datagram_bytes: self.datagram_bytes as u64,
            requested: self.rate_limit.map_or(out.requested, |(asked, _)| asked),
            limit: self.rate_limit.map(|(_, limit)| limit),
            // The time from the first to the last departure belongs to one datagram fewer than were sent.
            achieved: BitRate(if nanos == 0 { 0 } else { (bytes as f64 * 8.0 / seconds) as u64 }),
            burst_datagrams: pace.map_or(1, Pacer::burst),
            gso: out.gso_used,
            gso_refused: out.gso_refused,
            lateness: pace.and_then(Pacer::lateness),
            behind_schedule_share: Ratio::new((behind / seconds).min(1.0)).unwrap_or_default(),
            skipped: pace.map(Pacer::given_up).unwrap_or_default(),
            queue_full: out.queue_full,
            dont_fragment: self.dont_fragment,
            path_mtu_bytes: self.path_mtu,
        }
    }

    /// Returns the receiver's figures.
    pub(super) fn received(&self) -> UdpReceived {
        let incoming = self.incoming.lock();
        UdpReceived {
            unrecognised: incoming.unrecognised,
            overflows: udp::dropped_datagrams(self.stream.socket()).ok(),
            max_merged_datagrams: incoming.merged,
            kernel_timestamps: incoming.kernel_stamps,
            ..incoming.stats.figures()
        }
    }
}
