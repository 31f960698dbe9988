//! Messages between two components.
