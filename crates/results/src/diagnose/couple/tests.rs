//! Cases of each cause, and healthy runs.
