//! Checks of the tables.
