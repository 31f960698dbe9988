//! One printer per output format.
