//! lfn web
#![forbid(unsafe_code)]
