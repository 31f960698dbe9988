//! A test for a person: a line an interval as it happens (`table`), then what it came to beside what was predicted, then
//! why (`summary`). What only some tests have is a file of labelled lines of its own, called from `summary`.

mod blocks;
mod datagrams;
mod ends;
mod host;
mod iperf3;
mod latency;
mod layout;
mod load;
mod path;
mod summary;
mod table;
mod udp;

pub use summary::resent;
pub use table::{Place, Table};
