//! TCP sockets: buffers with what was asked and what the kernel granted, the window clamp, congestion control by name,
//! and `TCP_INFO` as the bytes the kernel gave.
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
