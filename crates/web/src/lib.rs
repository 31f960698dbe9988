//! The page of a mesh: a matrix of all pairs, one page for each pair and site, the plan, and metrics for Prometheus.
//!
//! [`PageServer`] is the only item that other crates need. It serves HTTP on threads of its own, reads the archive through
//! connections of its own, and stops when it is dropped. Nothing asynchronous leaves the crate.
//!
//! - `view` turns the entries of the archive, the sites file and the time into what a reader sees. It is pure.
//! - `html`, `chart`, `text` and `metrics` write a view. They are pure too, so HTML, text and metrics have the same figures.
//! - `request`, `routes` and `reader` authenticate a request, choose its view and read the archive.
//! - `server`, `connections` and `tls` accept connections and bound their number, their size and their time.
//!
//! Texts of other hosts (names, findings, errors, conditions) pass `view::clean` and the escaping of the templates.

#![forbid(unsafe_code)]

mod chart;
mod connections;
mod error;
mod format;
mod html;
mod metrics;
mod options;
mod plans;
mod reader;
mod request;
mod routes;
mod server;
mod text;
mod tls;
mod view;

pub use error::WebError;
pub use options::{CertificateFiles, Limits, MeshView, PageOptions};
pub use server::PageServer;
