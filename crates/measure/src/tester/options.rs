//! Socket options of a test's streams: requested and granted values, and the time at which each option is set.
//!
//! Autotuning stays on if its maximum covers the plan: it grows with the path and uses no memory before. An exact
//! receive window uses a clamp (`TCP_WINDOW_CLAMP`). Set before connect or listen, the clamp also fixes the window
//! scale. It is set again every 50 ms, because the kernel raises it whenever autotuning or its scaling ratio changes.
//! The buffer for the window comes from `SO_RCVBUF`. Above `net.core.rmem_max`, and only in a network namespace of the
//! test's own, it comes from `tcp_rmem` with autotuning switched off.

use std::os::fd::AsFd;
use std::path::PathBuf;
use std::time::Duration;
use std::{env, io};

use lfn_base::congestion_request::CongestionRequest;
use lfn_base::units::{BitRate, Bytes};
use lfn_results::measure::{Dscp, Kernel, SocketReport, SocketRequest};
use lfn_session::sender_options;
use lfn_sys::{sysctl, tcp};
use parking_lot::Mutex;
use socket2::{Domain, SockRef, Socket, Type};

use super::TestError;

/// Environment variable that `lfn emulate` sets to 1 on both sides: the network namespace belongs to the test, which
/// may change its sysctls.
pub const EMULATED: &str = "LFN_EMULATED";

/// Interval at which a window clamp is set again. The kernel raises the clamp whenever autotuning or its scaling ratio
/// changes.
pub(super) const CLAMP_INTERVAL: Duration = Duration::from_millis(50);

/// Returns this host's name, its kernel, and the kernel's limits on buffers.
pub fn read_kernel() -> Kernel {
    let name = rustix::system::uname();
    let number = |name: &str| sysctl::read(name).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    let three = |name: &str| read_numbers(name).unwrap_or_default();
    Kernel {
        host: name.nodename().to_string_lossy().into_owned(),
        release: name.release().to_string_lossy().into_owned(),
        rmem_max_bytes: number("net.core.rmem_max"),
        wmem_max_bytes: number("net.core.wmem_max"),
        tcp_rmem_bytes: three(TCP_RMEM),
        tcp_wmem_bytes: three(TCP_WMEM),
        moderate_rcvbuf: number(TCP_MODERATE_RCVBUF) == 1,
        window_scaling: number("net.ipv4.tcp_window_scaling") == 1,
        congestion: sysctl::read("net.ipv4.tcp_congestion_control").unwrap_or_default().trim().to_owned(),
    }
}

/// Socket options of one end's streams.
#[derive(Debug)]
pub(super) struct SocketOptions {
    request: SocketRequest,
    sndbuf: Option<u64>,
    rcvbuf: Option<u64>,
    clamp: Option<u32>,
    /// Buffer that autotuning may reach since this test raised the limit.
    autotuning_max: Option<u64>,
    /// Settings that are put back at the end of the test.
    _changed: [Option<ChangedSysctls>; 2],
}

impl SocketOptions {
    /// Returns the requested pacing rate of a stream.
    pub(super) fn pacing_of(&self, stream: u16) -> Option<BitRate> {
        self.request.pacing_of(stream)
    }

    /// Chooses the options of an end that sends or receives. Detects refused options before any
    /// stream is opened.
    pub(super) fn new(request: &SocketRequest, sends: bool, kernel: &Kernel) -> Result<Self, TestError> {
        request.check()?;
        for name in request.congestion.iter().filter_map(CongestionRequest::requested) {
            check_congestion(name, kernel)?;
        }
        let window = request.window.filter(|_| !sends).map(|window| window.0);
        let planned = request.planned.map(|planned| planned.0);
        let mut rcvbuf = request.rcvbuf.map(|bytes| bytes.0);
        let mut autotuning = None;
        if let Some(window) = window.filter(|_| rcvbuf.is_none()) {
            if window <= kernel.rmem_max_bytes {
                // Twice the window, because the kernel's ratio of payload to buffer memory changes with the packets.
                rcvbuf = Some((2 * window).min(kernel.rmem_max_bytes));
            } else {
                autotuning = Some(ChangedSysctls::without_autotuning(4 * window).ok_or_else(|| TestError::Window {
                    requested: window,
                    cap: kernel.rmem_max_bytes,
                    host: kernel.host.clone(),
                })?);
            }
        } else if !sends && rcvbuf.is_none() {
            rcvbuf = planned.filter(|&planned| explicit_receive_buffer_helps(planned, kernel));
        }
        let has_own = if sends { request.sndbuf.is_some() } else { request.rcvbuf.is_some() || window.is_some() };
        let name = if sends { TCP_WMEM } else { TCP_RMEM };
        let raised = planned.filter(|_| !has_own).and_then(|planned| ChangedSysctls::with_maximum(name, planned));
        if raised.is_some() && !sends {
            rcvbuf = None;
        }
        let needs_explicit = sends && raised.is_none();
        let planned_sndbuf = planned.filter(|&planned| needs_explicit && explicit_send_buffer_helps(planned, kernel));
        // Multipath TCP has no window clamp.
        let bounds = !sends && rcvbuf.is_none() && !request.mptcp;
        let bound = window.or(request.planned_max.filter(|_| bounds).map(|most| most.0));
        Ok(SocketOptions {
            request: request.clone(),
            sndbuf: request.sndbuf.map(|bytes| bytes.0).or(planned_sndbuf),
            rcvbuf,
            clamp: bound.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX)),
            autotuning_max: planned.filter(|_| raised.is_some()),
            _changed: [autotuning, raised],
        })
    }

    /// Sets the options of a stream on a socket that is not connected or listening yet. On a connected socket only some
    /// of the options still take effect.
    pub(crate) fn apply(&self, socket: impl AsFd, stream: u16) -> io::Result<()> {
        let socket = socket.as_fd();
        if let Some(bytes) = self.sndbuf {
            tcp::set_send_buffer(socket, bytes)?;
        }
        if let Some(bytes) = self.rcvbuf {
            tcp::set_receive_buffer(socket, bytes)?;
        }
        if let Some(request) = self.request.congestion_of(stream) {
            sender_options::set_congestion_control(socket, request)?;
        }
        if let Some(rate) = self.request.pacing_of(stream) {
            tcp::set_pacing(socket, rate.0)?;
        }
        if let Some(mss) = self.request.mss {
            SockRef::from(&socket).set_tcp_mss(u32::try_from(mss.0).unwrap_or(u32::MAX))?;
        }
        if let Some(dscp) = self.request.dscp {
            set_dscp(socket, dscp)?;
        }
        self.set_clamp(socket)
    }

    /// Returns whether [`SocketOptions::set_clamp`] has an effect.
    pub(super) fn has_clamp(&self) -> bool {
        self.clamp.is_some()
    }

    /// Sets the window clamp, or sets it again.
    pub(super) fn set_clamp(&self, socket: impl AsFd) -> io::Result<()> {
        self.clamp.map_or(Ok(()), |bytes| tcp::set_window_clamp(socket, bytes))
    }

    /// Returns the requested and the granted values of a stream.
    pub(crate) fn report(&self, socket: impl AsFd, stream: u16) -> io::Result<SocketReport> {
        let socket = socket.as_fd();
        let congestion = self.request.congestion_of(stream);
        let options = SockRef::from(&socket);
        Ok(SocketReport {
            sndbuf_requested_bytes: self.sndbuf.map(Bytes),
            sndbuf_granted_bytes: Bytes(tcp::send_buffer(socket)?),
            rcvbuf_requested_bytes: self.rcvbuf.map(Bytes),
            rcvbuf_granted_bytes: Bytes(tcp::receive_buffer(socket)?),
            autotuning_max_bytes: self.autotuning_max.map(Bytes),
            window_requested_bytes: self.request.window.filter(|_| self.clamp.is_some()),
            window_limit_bytes: self.clamp.map(|bytes| Bytes(bytes.into())),
            congestion_requested: congestion.and_then(CongestionRequest::requested).map(str::to_owned),
            congestion_planned: congestion
                .filter(|request| request.requested().is_none())
                .map(|request| request.name().to_owned()),
            congestion: tcp::congestion(socket)?,
            pacing_requested: self.request.pacing_of(stream),
            pacing_granted: tcp::pacing(socket)?.map(BitRate),
            mss_requested_bytes: self.request.mss,
            // Multipath TCP reports no MSS.
            mss_granted_bytes: options.tcp_mss().ok().map(|mss| Bytes(mss.into())),
            dscp_requested: self.request.dscp,
            dscp_granted: current_dscp(&options),
            mptcp_requested: self.request.mptcp,
            mptcp_subflows: tcp::mptcp_subflows(socket),
            local_address: options.local_addr().ok().and_then(|address| address.as_socket()).map(|a| a.to_string()),
        })
    }
}

/// Sets the DSCP of sent packets. An IPv6 socket may send IPv4 packets, which have their own field.
pub(super) fn set_dscp(socket: impl AsFd, dscp: Dscp) -> io::Result<()> {
    let socket = socket.as_fd();
    let options = SockRef::from(&socket);
    let tos = dscp.tos().into();
    match options.domain()? {
        Domain::IPV6 => options.set_tclass_v6(tos).and(options.set_tos_v4(tos)),
        _ => options.set_tos_v4(tos),
    }
}

/// Returns the DSCP of sent packets; the socket must be connected.
pub(crate) fn current_dscp(options: &SockRef<'_>) -> Option<Dscp> {
    let local = options.local_addr().ok()?.as_socket()?.ip();
    let tos = if local.to_canonical().is_ipv4() { options.tos_v4() } else { options.tclass_v6() };
    tos.ok().map(|tos| Dscp::of_tos(tos as u8))
}

/// Autotuning grows to half of `tcp_rmem`'s maximum as a window; an explicit buffer is limited by `rmem_max`.
fn explicit_receive_buffer_helps(planned: u64, kernel: &Kernel) -> bool {
    let [_, first, most] = kernel.tcp_rmem_bytes;
    let autotuned = if kernel.moderate_rcvbuf { most } else { first } / 2;
    planned > autotuned && planned.min(kernel.rmem_max_bytes) > autotuned
}

/// Autotuning grows to `tcp_wmem`'s maximum; an explicit buffer is limited by twice `wmem_max`.
fn explicit_send_buffer_helps(planned: u64, kernel: &Kernel) -> bool {
    let [_, _, most] = kernel.tcp_wmem_bytes;
    planned > most && 2 * planned.min(kernel.wmem_max_bytes) > most
}

/// Tries the name on a socket that is never connected.
fn check_congestion(name: &str, kernel: &Kernel) -> Result<(), TestError> {
    let host = || kernel.host.clone();
    let failed = |source| TestError::Options { host: host(), source };
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).map_err(failed)?;
    let Err(error) = tcp::set_congestion(&socket, name) else { return Ok(()) };
    let (why, list) = match error.kind() {
        io::ErrorKind::NotFound => ("is not available", "net.ipv4.tcp_available_congestion_control"),
        io::ErrorKind::PermissionDenied => ("is not allowed to this user", "net.ipv4.tcp_allowed_congestion_control"),
        _ => return Err(failed(error)),
    };
    let available = sysctl::read(list).unwrap_or_else(|_| "(unknown)".into());
    Err(TestError::Congestion { name: name.to_owned(), reason: why, host: host(), available })
}

const TCP_RMEM: &str = "net.ipv4.tcp_rmem";
const TCP_WMEM: &str = "net.ipv4.tcp_wmem";
const TCP_MODERATE_RCVBUF: &str = "net.ipv4.tcp_moderate_rcvbuf";

/// Returns the files that a test writes in a network namespace of its own ([`EMULATED`]). A sandbox must leave them
/// writable.
pub fn emulated_path_sysctls() -> Vec<PathBuf> {
    [TCP_RMEM, TCP_WMEM, TCP_MODERATE_RCVBUF].map(sysctl::file).into()
}

/// Changed TCP settings of this network namespace, as long as a test of this process needs them.
#[derive(Debug)]
struct ChangedSysctls;

#[derive(Debug)]
struct SavedSysctls {
    users: usize,
    /// Names and original values.
    values: Vec<(&'static str, String)>,
}

static SAVED_SYSCTLS: Mutex<Option<SavedSysctls>> = Mutex::new(None);

impl ChangedSysctls {
    /// Replaces autotuning by receive buffers of a fixed size.
    fn without_autotuning(buffer: u64) -> Option<Self> {
        let [least, _, most] = read_numbers(TCP_RMEM)?;
        let fixed = format!("{least} {buffer} {}", most.max(buffer));
        Self::write(&[(TCP_RMEM, fixed), (TCP_MODERATE_RCVBUF, "0".to_owned())])
    }

    /// Raises the maximum of autotuning so that `buffer` bytes of payload fit.
    fn with_maximum(name: &'static str, buffer: u64) -> Option<Self> {
        let [least, first, most] = read_numbers(name)?;
        // Linux counts its own data too, so about half of the memory holds payload.
        let needed = buffer.saturating_mul(2).min(i32::MAX as u64);
        if most >= needed { None } else { Self::write(&[(name, format!("{least} {first} {needed}"))]) }
    }

    /// Returns `None` outside an emulated path, where this process may not change the namespace.
    fn write(changes: &[(&'static str, String)]) -> Option<Self> {
        if env::var_os(EMULATED).is_none_or(|value| value != "1") {
            return None;
        }
        let mut saved = SAVED_SYSCTLS.lock();
        let mut values = saved.as_ref().map(|saved| saved.values.clone()).unwrap_or_default();
        for (name, value) in changes {
            let before = sysctl::read(name).ok()?;
            sysctl::write(name, value).ok()?;
            if values.iter().all(|(known, _)| known != name) {
                values.push((name, before));
            }
        }
        let users = saved.as_ref().map_or(0, |saved| saved.users) + 1;
        *saved = Some(SavedSysctls { users, values });
        Some(ChangedSysctls)
    }
}

impl Drop for ChangedSysctls {
    fn drop(&mut self) {
        let mut saved_sysctls = SAVED_SYSCTLS.lock();
        let Some(saved) = &mut *saved_sysctls else { return };
        saved.users -= 1;
        if saved.users == 0 {
            for (name, value) in &saved.values {
                // The files were writable before. If they no longer are, the namespace is being removed.
                let _ = sysctl::write(name, value);
            }
            *saved_sysctls = None;
        }
    }
}

fn read_numbers(name: &str) -> Option<[u64; 3]> {
    let text = sysctl::read(name).ok()?;
    let numbers: Vec<u64> = text.split_whitespace().map_while(|word| word.parse().ok()).collect();
    numbers.try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kernel() -> Kernel {
        Kernel {
            host: "far".into(),
            rmem_max_bytes: 4 << 20,
            wmem_max_bytes: 4 << 20,
            tcp_rmem_bytes: [4096, 131_072, 32 << 20],
            tcp_wmem_bytes: [4096, 16_384, 4 << 20],
            moderate_rcvbuf: true,
            window_scaling: true,
            ..Kernel::default()
        }
    }

    fn options(request: SocketRequest, sends: bool) -> SocketOptions {
        SocketOptions::new(&request, sends, &kernel()).unwrap()
    }

    #[test]
    fn autotuning_stays_if_it_covers_the_plan() {
        let planned = |bytes| SocketRequest { planned: Some(Bytes(bytes)), ..SocketRequest::default() };
        assert_eq!(options(planned(9_095_625), false).rcvbuf, None);
        assert_eq!(options(planned(3_000_000), true).sndbuf, None);
        // tcp_wmem ends at 4 MiB; SO_SNDBUF at twice 4 MiB.
        assert_eq!(options(planned(9_095_625), true).sndbuf, Some(9_095_625));
        // tcp_rmem gives a window of 16 MiB; SO_RCVBUF at most 4 MiB.
        assert_eq!(options(planned(64 << 20), false).rcvbuf, None);
    }

    #[test]
    fn receiver_clamps_its_window_with_a_larger_buffer() {
        let request = SocketRequest { window: Some(Bytes(1 << 20)), ..SocketRequest::default() };
        let receiver = options(request.clone(), false);
        assert_eq!((receiver.clamp, receiver.rcvbuf), (Some(1 << 20), Some(2 << 20)));
        let sender = options(request, true);
        assert_eq!((sender.clamp, sender.rcvbuf), (None, None));
    }

    #[test]
    fn window_above_the_cap_names_the_sysctl() {
        let request = SocketRequest { window: Some(Bytes(4_547_813)), ..SocketRequest::default() };
        let error = SocketOptions::new(&request, false, &kernel()).unwrap_err();
        assert!(error.to_string().contains("net.core.rmem_max is 4194304"), "{error}");
        assert_eq!(error.hint().unwrap(), "sysctl -w net.core.rmem_max=4547813   # on far");
    }

    #[test]
    fn unknown_congestion_control_lists_the_available() {
        let request = SocketRequest {
            congestion: vec![CongestionRequest::Requested("nosuch".into())],
            ..SocketRequest::default()
        };
        let error = SocketOptions::new(&request, true, &kernel()).unwrap_err().to_string();
        assert!(error.contains("'nosuch' is not available on far") && error.contains("reno"), "{error}");
    }
}
