//! TCP sockets: buffers with requested and granted sizes, the window clamp, congestion control, pacing, subflows, and
//! the raw bytes of `TCP_INFO`.
//!
//! Linux doubles the requested `SO_SNDBUF` and `SO_RCVBUF` for its own overhead, and returns the doubled value. All
//! functions here use the requested units (socket(7)).

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt;

/// Space for `struct tcp_info` of later kernels. Linux 6.18 fills 280 bytes.
const MAX_INFO: usize = 512;

/// Returns `TCP_INFO`: the bytes of `struct tcp_info` that this kernel fills (linux/tcp.h).
pub fn info(socket: impl AsFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; MAX_INFO];
    let mut length = MAX_INFO as libc::socklen_t;
    // SAFETY: `bytes` is writable for `length` bytes, which the kernel never exceeds, and outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_INFO,
            bytes.as_mut_ptr().cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    bytes.truncate(length as usize);
    Ok(bytes)
}

/// Requests a send buffer of `bytes` (`SO_SNDBUF`). The kernel silently limits it to `net.core.wmem_max`: read
/// [`send_buffer`] afterwards. This also stops autotuning of the buffer.
pub fn set_send_buffer(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(socket, clamp_buffer(bytes))?)
}

/// Returns the granted send buffer, in the units of [`set_send_buffer`].
pub fn send_buffer(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_send_buffer_size(socket)? as u64 / 2)
}

/// Requests a receive buffer of `bytes` (`SO_RCVBUF`). Call this before connect or listen if it must affect the window
/// scale. The kernel silently limits it to `net.core.rmem_max`: read [`receive_buffer`] afterwards. This also stops
/// autotuning of the buffer.
pub fn set_receive_buffer(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, clamp_buffer(bytes))?)
}

/// Returns the granted receive buffer, in the units of [`set_receive_buffer`].
pub fn receive_buffer(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_recv_buffer_size(socket)? as u64 / 2)
}

/// Limits the advertised receive window (`TCP_WINDOW_CLAMP`). Before connect or listen, this also limits the window
/// scale. Autotuning raises the clamp again. For a fixed window, call this repeatedly.
pub fn set_window_clamp(socket: impl AsFd, bytes: u32) -> io::Result<()> {
    let value = libc::c_int::try_from(bytes).unwrap_or(libc::c_int::MAX);
    // SAFETY: the option value is an int that outlives the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::IPPROTO_TCP,
            libc::TCP_WINDOW_CLAMP,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Sets the congestion control (`TCP_CONGESTION`). The error is `ENOENT` if the kernel does not have it, and `EPERM` if
/// it is not in `net.ipv4.tcp_allowed_congestion_control`. A route's `congctl` overrides it at connect: read
/// [`congestion`] afterwards.
pub fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// Returns the congestion control in use.
pub fn congestion(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// Limits the send rate of a socket, bits per second (`SO_MAX_PACING_RATE`, bytes per second in the kernel). Without an
/// `fq` queueing discipline, TCP's own timer paces (since Linux 4.13).
pub fn set_pacing(socket: impl AsFd, bits_per_second: u64) -> io::Result<()> {
    // The kernel reads a long since Linux 5.0. All ones would mean "no limit".
    let value: libc::c_ulong = (bits_per_second / 8).clamp(1, i64::MAX as u64);
    // SAFETY: the option value is a long that outlives the call, and its length is given.
    let result = unsafe {
        libc::setsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw const value).cast(),
            mem::size_of_val(&value) as libc::socklen_t,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Returns the current pacing limit in bits per second, or `None` if there is none.
pub fn pacing(socket: impl AsFd) -> io::Result<Option<u64>> {
    let mut value: libc::c_ulong = 0;
    let mut length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option value is a writable long of the given length, and outlives the call.
    let result = unsafe {
        libc::getsockopt(
            socket.as_fd().as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_MAX_PACING_RATE,
            (&raw mut value).cast(),
            &raw mut length,
        )
    };
    if result != 0 {
        return Err(io::Error::last_os_error());
    }
    // A kernel that returns an int sets only the ones of the lower half.
    let is_unlimited = value == libc::c_ulong::MAX || (length == 4 && value as u32 == u32::MAX);
    Ok((!is_unlimited).then(|| value.saturating_mul(8)))
}

/// Returns the number of additional subflows of a Multipath TCP connection (`MPTCP_INFO`). Returns `None` for plain
/// TCP, also after a fallback (RFC 8684 §3.7).
pub fn mptcp_subflows(socket: impl AsFd) -> Option<u8> {
    // Constants of linux/socket.h and linux/mptcp.h. struct mptcp_info starts with the number of subflows.
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_INFO: libc::c_int = 1;
    let mut bytes = [0u8; MAX_INFO];
    let mut length = MAX_INFO as libc::socklen_t;
    // SAFETY: `bytes` is writable for `length` bytes, which the kernel never exceeds, and outlives the call.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), SOL_MPTCP, MPTCP_INFO, bytes.as_mut_ptr().cast(), &raw mut length)
    };
    (result == 0).then_some(bytes[0])
}

/// Removes bytes from the receive queue without copying them (`MSG_TRUNC`, tcp(7)). The length of `buffer` is the
/// maximum number of bytes, and its content stays unchanged.
pub fn discard(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (_, length) = rustix::net::recv(socket, buffer, rustix::net::RecvFlags::TRUNC)?;
    Ok(length)
}

/// Returns the number of received bytes that the application has not read (`FIONREAD`).
pub fn unread_bytes(socket: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(socket)?)
}

/// Processor time, in user and kernel mode.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    pub user: Duration,
    pub system: Duration,
}

/// Returns the processor time of the calling thread (`getrusage(RUSAGE_THREAD)`).
pub fn thread_cpu() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

fn usage(who: libc::c_int) -> CpuTime {
    let mut usage = mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a writable rusage that outlives the call. If the call fails, all zeros is a valid value.
    let usage = unsafe {
        libc::getrusage(who, usage.as_mut_ptr());
        usage.assume_init()
    };
    CpuTime { user: time(usage.ru_utime), system: time(usage.ru_stime) }
}

fn time(value: libc::timeval) -> Duration {
    let (seconds, micros) = (u64::try_from(value.tv_sec).unwrap_or(0), u64::try_from(value.tv_usec).unwrap_or(0));
    Duration::from_secs(seconds) + Duration::from_micros(micros)
}

/// Limits a buffer size to half of an int, because the kernel doubles it as an int. The kernel's own limit is far
/// lower.
fn clamp_buffer(bytes: u64) -> usize {
    bytes.min(i32::MAX as u64 / 2) as usize
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn buffer_sizes_use_the_requested_units() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_receive_buffer(&listener, 65_536).unwrap();
        set_send_buffer(&listener, 65_536).unwrap();
        assert_eq!(receive_buffer(&listener).unwrap(), 65_536);
        assert_eq!(send_buffer(&listener).unwrap(), 65_536);
        // A size above the limit is reduced, without an error.
        set_receive_buffer(&listener, u64::MAX).unwrap();
        assert!(receive_buffer(&listener).unwrap() <= i32::MAX as u64 / 2);
    }

    #[test]
    fn info_has_the_length_that_the_kernel_returns() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let bytes = info(&client).unwrap();
        // tcpi_state of an established connection. All kernels in use have the fields up to total_retrans.
        assert_eq!(bytes[0], 1);
        assert!(bytes.len() >= 104, "{}", bytes.len());
    }

    #[test]
    fn unknown_congestion_control_is_an_error() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        assert_eq!(set_congestion(&listener, "nosuch").unwrap_err().kind(), io::ErrorKind::NotFound);
        set_congestion(&listener, "reno").unwrap();
        assert_eq!(congestion(&listener).unwrap(), "reno");
    }

    fn connected() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    #[test]
    fn pacing_above_32_bits_reads_back() {
        let (client, _server) = connected();
        assert_eq!(pacing(&client).unwrap(), None);
        for rate in [8_000, 100_000_000_000] {
            set_pacing(&client, rate).unwrap();
            assert_eq!(pacing(&client).unwrap(), Some(rate));
        }
    }

    #[test]
    fn discard_counts_and_removes_bytes() {
        use std::io::{Read, Write};
        let (mut client, mut server) = connected();
        client.write_all(b"0123456789").unwrap();
        let mut buffer = *b"unused";
        assert_eq!(discard(&server, &mut buffer).unwrap(), 6);
        assert_eq!(&buffer, b"unused");
        let mut rest = [0; 4];
        server.read_exact(&mut rest).unwrap();
        assert_eq!(&rest, b"6789");
        drop(client);
        assert_eq!(discard(&server, &mut buffer).unwrap(), 0);
    }

    #[test]
    fn plain_tcp_has_no_subflows() {
        assert_eq!(mptcp_subflows(connected().0), None);
    }

    #[test]
    fn busy_thread_uses_cpu_time() {
        let before = thread_cpu();
        let mut value = 1u64;
        while thread_cpu().user == before.user && thread_cpu().system == before.system {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        assert!(thread_cpu().user + thread_cpu().system > before.user + before.system);
    }
}
