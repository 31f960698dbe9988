//! All rules of the diagnosis with their thresholds, their evidence and their sources.
//!
//! A rule is one function of the figures. It belongs to one kind of load. These tables are the only list: the diagnosis
//! runs them, and `--list-findings` prints them. The constants of the thresholds are next to the functions that use them.
//! Each row has the main conditions of its function.

#[cfg(test)]
mod capture_cases;
#[cfg(test)]
mod capture_examples;
#[cfg(test)]
mod capture_loss_cases;
mod captures;
mod copies;
mod couples;
mod datagram_tests;
mod disks;
mod rule;
mod tcp_faults;
mod tcp_path;
mod tcp_tests;
#[cfg(test)]
mod tests;

pub(super) use rule::{Bound, Rule};

/// Returns all rules in the order of their evaluation. If gains are equal, the earlier rule of a load is the cause and the
/// later one is a consequence. `Cause::Unexplained` of TCP is examined last, and only if the others explain too little.
pub(super) fn rules() -> impl Iterator<Item = &'static Rule> {
    [
        tcp_tests::RULES,
        tcp_faults::RULES,
        tcp_path::RULES,
        disks::RULES,
        datagram_tests::RULES,
        copies::RULES,
        captures::RULES,
        couples::RULES,
    ]
    .into_iter()
    .flatten()
}
