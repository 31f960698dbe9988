//! What an emulation says: before it (profiles, a dry run), while it runs (the live line, how it stands), and after it
//! (the ledger).

pub mod dry_run;
pub mod ledger;
pub mod live;
pub mod profiles;
pub mod standing;
