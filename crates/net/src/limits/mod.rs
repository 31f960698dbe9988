//! Limits of clients, for the servers of all protocols: sessions, queue, bytes, rates, connections and addresses.
//!
//! [`admission`] decides which session runs and which waits. [`rate_limiter`] enforces the rate and the bytes of a
//! session, at both ends. [`connection_table`] limits the connections of a port, and [`access`] their addresses.

pub mod access;
pub mod admission;
pub mod connection_table;
pub mod rate_limiter;
