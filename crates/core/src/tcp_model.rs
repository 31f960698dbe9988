//! Placeholder head, replaced with the module.
