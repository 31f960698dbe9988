//! The verbs of `lfn mesh`.
