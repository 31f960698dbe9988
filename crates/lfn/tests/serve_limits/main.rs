//! `lfn serve` with demanding, hostile and many clients; its stop, its log and its metrics.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

#[path = "../support/mod.rs"]
mod support;

mod announcement;
mod crowds;
mod log_and_metrics;
mod queue;
mod quotas;
mod served;
mod settings;
mod stop;
