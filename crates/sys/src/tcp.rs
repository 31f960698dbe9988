//! TCP sockets: buffers with what was asked and what the kernel granted, the window clamp, congestion control by name,
//! pace, subflows, and `TCP_INFO` as the bytes the kernel gave.
//!
//! Linux doubles what `SO_SNDBUF` and `SO_RCVBUF` are asked for, to make room for its own book-keeping, and reports
//! the doubled value; everything here speaks in the units that are asked for (socket(7)).

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rustix::net::sockopt;

/// Room for `struct tcp_info` of kernels to come; 6.18 fills 280 bytes.
const INFO_ROOM: usize = 512;

/// `TCP_INFO`: as many bytes of `struct tcp_info` as this kernel has (linux/tcp.h).
pub fn info(socket: impl AsFd) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0u8; INFO_ROOM];
    let mut length = INFO_ROOM as libc::socklen_t;
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

/// Asks for a send buffer of `bytes` (`SO_SNDBUF`). The kernel caps it at `net.core.wmem_max` without a word: read
/// [`send_buffer`] afterwards. Also stops its autotuning.
pub fn set_send_buffer(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    Ok(sockopt::set_socket_send_buffer_size(socket, capped(bytes))?)
}

/// The send buffer granted, in the units of [`set_send_buffer`].
pub fn send_buffer(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_send_buffer_size(socket)? as u64 / 2)
}

/// Asks for a receive buffer of `bytes` (`SO_RCVBUF`), before connect or listen if the window scale is to follow. The
/// kernel caps it at `net.core.rmem_max` without a word: read [`receive_buffer`] afterwards. Also stops its autotuning.
pub fn set_receive_buffer(socket: impl AsFd, bytes: u64) -> io::Result<()> {
    Ok(sockopt::set_socket_recv_buffer_size(socket, capped(bytes))?)
}

/// The receive buffer granted, in the units of [`set_receive_buffer`].
pub fn receive_buffer(socket: impl AsFd) -> io::Result<u64> {
    Ok(sockopt::socket_recv_buffer_size(socket)? as u64 / 2)
}

/// Bounds the receive window that is offered (`TCP_WINDOW_CLAMP`). Before connect or listen it also bounds the window
/// scale. The kernel raises it again when autotuning moves: to hold a window, set it again and again.
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

/// Chooses the congestion control (`TCP_CONGESTION`). `ENOENT`: the kernel has none of that name; `EPERM`: not in
/// `net.ipv4.tcp_allowed_congestion_control`. A route's `congctl` overrides it at connect: read [`congestion`] after.
pub fn set_congestion(socket: impl AsFd, name: &str) -> io::Result<()> {
    Ok(sockopt::set_tcp_congestion(socket, name)?)
}

/// The congestion control in use.
pub fn congestion(socket: impl AsFd) -> io::Result<String> {
    Ok(sockopt::tcp_congestion(socket)?)
}

/// Bounds the rate a socket sends at, bits per second (`SO_MAX_PACING_RATE`, bytes per second in the kernel). Where no
/// `fq` queueing discipline paces, TCP's own timer does (since 4.13).
pub fn set_pacing(socket: impl AsFd, bits_per_second: u64) -> io::Result<()> {
    // The kernel takes a long since 5.0; all ones would mean "no bound".
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

/// The bound in force, bits per second; `None` without one.
pub fn pacing(socket: impl AsFd) -> io::Result<Option<u64>> {
    let mut value: libc::c_ulong = 0;
    let mut length = mem::size_of_val(&value) as libc::socklen_t;
    // SAFETY: the option value is a writable long of the length given, and outlives the call.
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
    // A kernel that answers with an int has all its ones in the lower half.
    let unbounded = value == libc::c_ulong::MAX || (length == 4 && value as u32 == u32::MAX);
    Ok((!unbounded).then(|| value.saturating_mul(8)))
}

/// Further subflows of a Multipath TCP connection beside the first (`MPTCP_INFO`); `None` of a connection that is plain
/// TCP, also one that was meant to be more and fell back (RFC 8684, section 3.7).
pub fn mptcp_subflows(socket: impl AsFd) -> Option<u8> {
    // linux/socket.h and linux/mptcp.h; struct mptcp_info begins with the number of subflows.
    const SOL_MPTCP: libc::c_int = 284;
    const MPTCP_INFO: libc::c_int = 1;
    let mut bytes = [0u8; INFO_ROOM];
    let mut length = INFO_ROOM as libc::socklen_t;
    // SAFETY: `bytes` is writable for `length` bytes, which the kernel never exceeds, and outlives the call.
    let result = unsafe {
        libc::getsockopt(socket.as_fd().as_raw_fd(), SOL_MPTCP, MPTCP_INFO, bytes.as_mut_ptr().cast(), &raw mut length)
    };
    (result == 0).then_some(bytes[0])
}

/// Takes bytes off the receive queue without copying them (`MSG_TRUNC`, tcp(7)); `buffer` says how many and is not
/// written to.
pub fn discard(socket: impl AsFd, buffer: &mut [u8]) -> io::Result<usize> {
    let (_, length) = rustix::net::recv(socket, buffer, rustix::net::RecvFlags::TRUNC)?;
    Ok(length)
}

/// Bytes received that the application has not read (`FIONREAD`).
pub fn unread(socket: impl AsFd) -> io::Result<u64> {
    Ok(rustix::io::ioctl_fionread(socket)?)
}

/// Processor time used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CpuTime {
    /// In user mode.
    pub user: Duration,
    /// In the kernel on the caller's behalf.
    pub system: Duration,
}

/// What the calling thread has used (`getrusage(RUSAGE_THREAD)`).
pub fn thread_cpu() -> CpuTime {
    usage(libc::RUSAGE_THREAD)
}

fn usage(who: libc::c_int) -> CpuTime {
    let mut usage = mem::MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `usage` is a writable rusage that outlives the call; all zeros is a valid one should the call fail.
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

/// The kernel doubles the value as an int: more than half an int would wrap (it caps far below that anyway).
fn capped(bytes: u64) -> usize {
    bytes.min(i32::MAX as u64 / 2) as usize
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{TcpListener, TcpStream};

    #[test]
    fn buffers_read_back_in_the_units_asked_for() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        set_receive_buffer(&listener, 65_536).unwrap();
        set_send_buffer(&listener, 65_536).unwrap();
        assert_eq!(receive_buffer(&listener).unwrap(), 65_536);
        assert_eq!(send_buffer(&listener).unwrap(), 65_536);
        // More than any cap: granted what the cap allows, never an error.
        set_receive_buffer(&listener, u64::MAX).unwrap();
        assert!(receive_buffer(&listener).unwrap() <= i32::MAX as u64 / 2);
    }

    #[test]
    fn info_says_how_much_this_kernel_knows() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let bytes = info(&client).unwrap();
        // tcpi_state of an established connection; the fields up to total_retrans are older than any kernel in use.
        assert_eq!(bytes[0], 1);
        assert!(bytes.len() >= 104, "{}", bytes.len());
    }

    #[test]
    fn an_unknown_congestion_control_is_an_error() {
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
    fn a_pace_reads_back_also_beyond_32_bits() {
        let (client, _server) = connected();
        assert_eq!(pacing(&client).unwrap(), None);
        for rate in [8_000, 100_000_000_000] {
            set_pacing(&client, rate).unwrap();
            assert_eq!(pacing(&client).unwrap(), Some(rate));
        }
    }

    #[test]
    fn what_is_discarded_is_counted_and_gone() {
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
    fn a_plain_connection_is_no_multipath_one() {
        assert_eq!(mptcp_subflows(connected().0), None);
    }

    #[test]
    fn a_thread_that_works_uses_time() {
        let before = thread_cpu();
        let mut value = 1u64;
        while thread_cpu().user == before.user && thread_cpu().system == before.system {
            value = std::hint::black_box(value.wrapping_mul(3));
        }
        assert!(thread_cpu().user + thread_cpu().system > before.user + before.system);
    }
}
