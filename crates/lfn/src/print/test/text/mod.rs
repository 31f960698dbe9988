//! Text output of a test: one line for each interval during the test (`table`), then the figures with the prediction,
//! then the findings (`summary`, `findings`). Lines that only some tests have are in files of their own, which
//! `summary` calls.

mod datagrams;
mod ends;
mod findings;
mod host;
mod iperf3;
mod latency;
mod layout;
mod load;
mod path;
mod summary;
mod table;
mod udp;

pub(super) use findings::finding_text;
pub(super) use layout::{paragraphs, wrapped};

pub use table::{Table, TablePosition};
