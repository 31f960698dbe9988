//! `lfn serve` under clients that ask for much, mean no good or come in crowds; how it stops; what it tells.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod crowds;
mod queue;
mod quotas;
mod served;
mod settings;
mod stop;
mod told;
