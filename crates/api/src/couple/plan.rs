//! The plan of a coupled run from a coupling file.

use std::path::PathBuf;

use lfn_couple::document::{CouplePlanDocument, PathOverrides, plan_document};

use super::{CoupleError, read_coupling};

/// Options of a plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CouplePlanOptions {
    /// Path of the coupling file.
    pub file: PathBuf,
    /// Figures of the path that replace those of the coupling file.
    pub path: PathOverrides,
}

/// Reads and checks a coupling file, and predicts its run.
pub fn plan(options: &CouplePlanOptions) -> Result<CouplePlanDocument, CoupleError> {
    let coupling = read_coupling(&options.file)?;
    plan_document(&coupling, options.path).map_err(|source| CoupleError::Plan { path: options.file.clone(), source })
}
