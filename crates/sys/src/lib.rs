//! System calls of `lfn`. Only this crate contains `unsafe` code and `cfg(target_os)`.
//!
//! This crate knows nothing of the product: no paths, plans or findings. It provides socket options with requested and
//! granted values, `TCP_INFO` of any length, datagrams with timestamps and error queues, packet sockets that carry
//! super-packets, network namespaces, the netlink requests that configure them and read their counters, and the names
//! of users. Each function names its kernel facility.

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
pub mod route;
pub mod sysctl;
pub mod tcp;
pub mod tcp_metrics;
pub mod traffic;
pub mod udp;
