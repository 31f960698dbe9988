//! `lfn serve` with demanding, hostile and many clients; its stop, its log and its metrics.

mod announcement;
mod crowds;
mod log_and_metrics;
mod queue;
mod quotas;
mod served;
mod settings;
mod stop;
