//! Socket options of a test's streams: what is asked of the kernel at which moment, and what it granted.
//!
//! Autotuning is left alone where its maximum covers the plan: it grows with the path and costs no memory before. An
//! exact receive window is held by a clamp (`TCP_WINDOW_CLAMP`). Set before connect or listen it fixes the scale; it is
//! set again every 50 ms, because the kernel raises it whenever autotuning or its scaling ratio moves. The room behind it
//! comes from `SO_RCVBUF` or, beyond `net.core.rmem_max` and only in a namespace of our own, from `tcp_rmem` with
//! autotuning switched off.

use std::env;
use std::io;
use std::os::fd::AsFd;
use std::path::PathBuf;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use lfn_core::units::{BitRate, Bytes};
use lfn_core::wire::CongestionWish;
use lfn_core::wire::test::{Dscp, Kernel, SocketReport, SocketWish};
use lfn_sys::{sysctl, tcp};
use socket2::{Domain, SockRef, Socket, Type};

use super::{EMULATED, TestError};
use crate::session::congestion;

/// How often a clamp is set again: the kernel raises it whenever autotuning or its scaling ratio moves.
pub(super) const HOLD_EVERY: Duration = Duration::from_millis(50);

/// What this host calls itself, its kernel, and its limits on buffers.
pub fn kernel() -> Kernel {
    let name = rustix::system::uname();
    let number = |name: &str| numbers(name).first().copied().unwrap_or(0);
    let three = |name: &str| <[u64; 3]>::try_from(numbers(name)).unwrap_or_default();
    Kernel {
        host: name.nodename().to_string_lossy().into_owned(),
        release: name.release().to_string_lossy().into_owned(),
        rmem_max_bytes: number("net.core.rmem_max"),
        wmem_max_bytes: number("net.core.wmem_max"),
        tcp_rmem_bytes: three(TCP_RMEM),
        tcp_wmem_bytes: three("net.ipv4.tcp_wmem"),
        moderate_rcvbuf: number(MODERATE) == 1,
        window_scaling: number("net.ipv4.tcp_window_scaling") == 1,
    }
}

/// What one end's streams are to have.
#[derive(Debug)]
pub(super) struct Options {
    wish: SocketWish,
    sndbuf: Option<u64>,
    rcvbuf: Option<u64>,
    clamp: Option<u32>,
    _held: Option<HeldAutotuning>,
}

impl Options {
    /// The pace that was asked for of a stream.
    pub(super) fn pacing_of(&self, stream: u16) -> Option<BitRate> {
        self.wish.pacing_of(stream)
    }

    /// Decides, for an end that sends or one that receives; finds out before any stream is opened what the kernel
    /// will not grant.
    pub(super) fn new(wish: &SocketWish, sends: bool, kernel: &Kernel) -> Result<Self, TestError> {
        wish.check()?;
        for name in wish.congestion.iter().filter_map(CongestionWish::asked) {
            check_congestion(name, kernel)?;
        }
        let window = wish.window.filter(|_| !sends).map(|window| window.0);
        let planned = wish.planned.map(|planned| planned.0);
        let mut rcvbuf = wish.rcvbuf.map(|bytes| bytes.0);
        let mut held = None;
        if let Some(window) = window.filter(|_| rcvbuf.is_none()) {
            if window <= kernel.rmem_max_bytes {
                // Twice the window, because the kernel's ratio of payload to buffer changes with the packets it sees.
                rcvbuf = Some((2 * window).min(kernel.rmem_max_bytes));
            } else {
                held = Some(HeldAutotuning::at(4 * window).ok_or_else(|| TestError::Window {
                    asked: window,
                    cap: kernel.rmem_max_bytes,
                    host: kernel.host.clone(),
                })?);
            }
        } else if !sends && rcvbuf.is_none() {
            rcvbuf = planned.filter(|&planned| explicit_receive_buffer_helps(planned, kernel));
        }
        let planned_sndbuf = planned.filter(|&planned| sends && explicit_send_buffer_helps(planned, kernel));
        // Multipath TCP has no clamp.
        let bounds = !sends && rcvbuf.is_none() && !wish.mptcp;
        let bound = window.or(wish.planned_most.filter(|_| bounds).map(|most| most.0));
        Ok(Options {
            wish: wish.clone(),
            sndbuf: wish.sndbuf.map(|bytes| bytes.0).or(planned_sndbuf),
            rcvbuf,
            clamp: bound.map(|bound| u32::try_from(bound).unwrap_or(u32::MAX)),
            _held: held,
        })
    }

    /// Sets those of a stream on a socket that is to connect or listen, or, as far as that still helps, on one that is
    /// connected.
    pub(crate) fn apply(&self, socket: impl AsFd, stream: u16) -> io::Result<()> {
        let socket = socket.as_fd();
        if let Some(bytes) = self.sndbuf {
            tcp::set_send_buffer(socket, bytes)?;
        }
        if let Some(bytes) = self.rcvbuf {
            tcp::set_receive_buffer(socket, bytes)?;
        }
        if let Some(wish) = self.wish.congestion_of(stream) {
            congestion::set(socket, wish)?;
        }
        if let Some(rate) = self.wish.pacing_of(stream) {
            tcp::set_pacing(socket, rate.0)?;
        }
        if let Some(mss) = self.wish.mss {
            SockRef::from(&socket).set_tcp_mss(u32::try_from(mss.0).unwrap_or(u32::MAX))?;
        }
        if let Some(dscp) = self.wish.dscp {
            mark(socket, dscp)?;
        }
        self.hold(socket)
    }

    /// Whether [`Options::hold`] has something to do.
    pub(super) fn holds(&self) -> bool {
        self.clamp.is_some()
    }

    /// Sets the window clamp (again).
    pub(super) fn hold(&self, socket: impl AsFd) -> io::Result<()> {
        self.clamp.map_or(Ok(()), |bytes| tcp::set_window_clamp(socket, bytes))
    }

    /// What was asked and what there is.
    pub(crate) fn report(&self, socket: impl AsFd, stream: u16) -> io::Result<SocketReport> {
        let socket = socket.as_fd();
        let congestion = self.wish.congestion_of(stream);
        let options = SockRef::from(&socket);
        Ok(SocketReport {
            sndbuf_asked_bytes: self.sndbuf.map(Bytes),
            sndbuf_granted_bytes: Bytes(tcp::send_buffer(socket)?),
            rcvbuf_asked_bytes: self.rcvbuf.map(Bytes),
            rcvbuf_granted_bytes: Bytes(tcp::receive_buffer(socket)?),
            window_asked_bytes: self.wish.window.filter(|_| self.clamp.is_some()),
            window_bound_bytes: self.clamp.map(|bytes| Bytes(bytes.into())),
            congestion_asked: congestion.and_then(CongestionWish::asked).map(str::to_owned),
            congestion_planned: congestion.filter(|wish| wish.asked().is_none()).map(|wish| wish.name().to_owned()),
            congestion: tcp::congestion(socket)?,
            pacing_asked: self.wish.pacing_of(stream),
            pacing_granted: tcp::pacing(socket)?.map(BitRate),
            mss_asked_bytes: self.wish.mss,
            // Multipath TCP has none of its own.
            mss_granted_bytes: options.tcp_mss().ok().map(|mss| Bytes(mss.into())),
            dscp_asked: self.wish.dscp,
            dscp_granted: marked(&options),
            mptcp_asked: self.wish.mptcp,
            mptcp_subflows: tcp::mptcp_subflows(socket),
            local_address: options.local_addr().ok().and_then(|address| address.as_socket()).map(|a| a.to_string()),
        })
    }
}

/// Marks what leaves. An IPv6 socket may carry IPv4 inside, which has a byte of its own.
pub(super) fn mark(socket: impl AsFd, dscp: Dscp) -> io::Result<()> {
    let socket = socket.as_fd();
    let options = SockRef::from(&socket);
    let tos = dscp.tos().into();
    match options.domain()? {
        Domain::IPV6 => options.set_tclass_v6(tos).and(options.set_tos_v4(tos)),
        _ => options.set_tos_v4(tos),
    }
}

/// The mark of what leaves, once connected.
pub(crate) fn marked(options: &SockRef<'_>) -> Option<Dscp> {
    let local = options.local_addr().ok()?.as_socket()?.ip();
    let tos = if local.to_canonical().is_ipv4() { options.tos_v4() } else { options.tclass_v6() };
    tos.ok().map(|tos| Dscp::of_tos(tos as u8))
}

/// Autotuning ends at half of `tcp_rmem`'s maximum as a window; an explicit buffer at `rmem_max`.
fn explicit_receive_buffer_helps(planned: u64, kernel: &Kernel) -> bool {
    let [_, first, most] = kernel.tcp_rmem_bytes;
    let autotuned = if kernel.moderate_rcvbuf { most } else { first } / 2;
    planned > autotuned && planned.min(kernel.rmem_max_bytes) > autotuned
}

/// Autotuning ends at `tcp_wmem`'s maximum; an explicit buffer at twice `wmem_max`.
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
    Err(TestError::Congestion { name: name.to_owned(), why, host: host(), available })
}

const TCP_RMEM: &str = "net.ipv4.tcp_rmem";
const MODERATE: &str = "net.ipv4.tcp_moderate_rcvbuf";

/// Files that a test may write in a network namespace that is the test's own ([`EMULATED`]): whoever confines its process
/// leaves them writable.
pub fn tuned_on_an_emulated_path() -> Vec<PathBuf> {
    [TCP_RMEM, MODERATE].map(sysctl::file).into()
}

/// Receive buffers of a fixed large size instead of autotuning, in this network namespace, for as long as any test
/// of this process wants them.
#[derive(Debug)]
struct HeldAutotuning;

#[derive(Debug)]
struct Saved {
    users: usize,
    tcp_rmem: String,
    moderate: String,
}

static HELD: Mutex<Option<Saved>> = Mutex::new(None);

impl HeldAutotuning {
    /// `None` outside an emulated path, where the namespace is not ours to change.
    fn at(buffer: u64) -> Option<Self> {
        if env::var_os(EMULATED).is_none_or(|value| value != "1") {
            return None;
        }
        let mut held = held();
        let (tcp_rmem, moderate) = (sysctl::read(TCP_RMEM).ok()?, sysctl::read(MODERATE).ok()?);
        let now = numbers(TCP_RMEM);
        let (least, most) = (now.first()?, (*now.get(2)?).max(buffer));
        sysctl::write(TCP_RMEM, &format!("{least} {buffer} {most}")).ok()?;
        sysctl::write(MODERATE, "0").ok()?;
        match &mut *held {
            Some(saved) => saved.users += 1,
            none => *none = Some(Saved { users: 1, tcp_rmem, moderate }),
        }
        Some(HeldAutotuning)
    }
}

impl Drop for HeldAutotuning {
    fn drop(&mut self) {
        let mut held = held();
        let Some(saved) = &mut *held else { return };
        saved.users -= 1;
        if saved.users == 0 {
            // They were writable a moment ago; if they no longer are, the namespace is going away.
            let _ = sysctl::write(TCP_RMEM, &saved.tcp_rmem);
            let _ = sysctl::write(MODERATE, &saved.moderate);
            *held = None;
        }
    }
}

fn held() -> MutexGuard<'static, Option<Saved>> {
    HELD.lock().unwrap_or_else(PoisonError::into_inner)
}

fn numbers(name: &str) -> Vec<u64> {
    let text = sysctl::read(name).unwrap_or_default();
    text.split_whitespace().map_while(|word| word.parse().ok()).collect()
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

    fn options(wish: SocketWish, sends: bool) -> Options {
        Options::new(&wish, sends, &kernel()).unwrap()
    }

    #[test]
    fn autotuning_is_left_alone_where_it_covers_the_plan() {
        let planned = |bytes| SocketWish { planned: Some(Bytes(bytes)), ..SocketWish::default() };
        assert_eq!(options(planned(9_095_625), false).rcvbuf, None);
        assert_eq!(options(planned(3_000_000), true).sndbuf, None);
        // tcp_wmem ends at 4 MiB, SO_SNDBUF at 4 MiB doubled.
        assert_eq!(options(planned(9_095_625), true).sndbuf, Some(9_095_625));
        // tcp_rmem gives 16 MiB, SO_RCVBUF no more than 4.
        assert_eq!(options(planned(64 << 20), false).rcvbuf, None);
    }

    #[test]
    fn a_window_is_held_by_the_receiver_with_room_behind_it() {
        let wish = SocketWish { window: Some(Bytes(1 << 20)), ..SocketWish::default() };
        let receiver = options(wish.clone(), false);
        assert_eq!((receiver.clamp, receiver.rcvbuf), (Some(1 << 20), Some(2 << 20)));
        let sender = options(wish, true);
        assert_eq!((sender.clamp, sender.rcvbuf), (None, None));
    }

    #[test]
    fn a_window_beyond_the_cap_names_the_sysctl() {
        let wish = SocketWish { window: Some(Bytes(4_547_813)), ..SocketWish::default() };
        let error = Options::new(&wish, false, &kernel()).unwrap_err();
        assert!(error.to_string().contains("net.core.rmem_max is 4194304"), "{error}");
        assert_eq!(error.hint().unwrap(), "sysctl -w net.core.rmem_max=4547813   (on far)");
    }

    #[test]
    fn an_unknown_congestion_control_names_those_there_are() {
        let wish = SocketWish { congestion: vec![CongestionWish::Asked("nosuch".into())], ..SocketWish::default() };
        let error = Options::new(&wish, true, &kernel()).unwrap_err().to_string();
        assert!(error.contains("'nosuch' is not available on far") && error.contains("reno"), "{error}");
    }
}
