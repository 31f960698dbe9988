//! Laws of the texts of settings and traces.

#![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]

mod setting_text;
mod settings_laws;
mod trace_laws;
