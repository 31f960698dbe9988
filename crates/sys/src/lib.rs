//! The only unsafe and the only `cfg(target_os)` of `lfn`: plain structs over the system calls it needs.
//!
//! This crate knows nothing of the product: no path, no plan, no finding. It gives socket options with asked and
//! granted apart, `TCP_INFO` read by length, datagrams with their stamps and error queues, packet sockets that carry
//! super-packets, network namespaces, the netlink requests that furnish and count them, and the names of users. Every
//! function names the kernel facility it stands on.

pub mod accounts;
pub mod arguments;
pub mod clock;
pub mod ethtool;
pub mod memory;
pub mod message;
pub mod names;
pub mod namespace;
pub mod netlink;
pub mod packet;
pub mod pages;
pub mod process;
pub mod sysctl;
pub mod tcp;
pub mod traffic;
pub mod udp;
