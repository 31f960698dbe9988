//! Memory that the rings of all directions may take.

use lfn_sys::memory;

use crate::error::{EmulateError, system_error};

/// Maximum share of the available memory for all rings. The kernel's own buffers take as much again.
const MAX_MEMORY_SHARE: f64 = 0.6;

/// Returns the number of bytes that rings may take of the available memory.
pub(crate) fn usable_memory() -> Result<u64, EmulateError> {
    let available = memory::available().map_err(system_error("read /proc/meminfo"))?;
    Ok((available as f64 * MAX_MEMORY_SHARE) as u64)
}
