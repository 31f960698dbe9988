//! The sites file: sites, hosts, contacts, circuits, bottlenecks, groups of pairs, tests, audiences and maintenance windows.
//!
//! [`Sites::parse`] turns the text into [`Sites`], or into all problems with their positions. Nothing here reads a file.

mod between;
mod error;
pub mod limits;
mod maintenance;
mod model;
mod names;
pub mod pairs;
mod parse;
mod parse_tests;
mod people;
mod planned_work;
mod reader;
mod size;

#[cfg(test)]
mod tests;

pub use error::{Problem, SitesError, SitesErrors};
pub use maintenance::{Maintenance, MaintenanceScope, Window};
pub use model::{
    Audience, AudienceKind, Bottleneck, Circuit, Contact, Directions, Group, GroupPairs, Host, HostKind, HubSettings,
    Operator, Role, Site, Sites, Test,
};
pub use parse_tests::kind_name;
pub use people::Person;
pub use planned_work::PlannedWindow;
