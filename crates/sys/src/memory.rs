//! Resident memory, and the available memory of the machine.
//!
//! The first access to a page causes a page fault, and two in a virtual machine. A data path that stores the packets of
//! a satellite hop would have this cost for every packet of the first seconds.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;

/// Zeroed memory, all of it resident.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the arena is the only owner of its mapping, like a Vec<u8>.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps `length` bytes, in large pages if possible, and touches all pages.
    pub fn new(length: usize) -> io::Result<Self> {
        let length = length.max(1);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address that the kernel chooses affects no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the new mapping. Large pages are optional, so the result is ignored.
        unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave a null address"))?;
        let mut arena = Arena { start, length };
        arena.touch();
        Ok(arena)
    }

    /// Returns the whole memory.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: start and length describe a live mapping, initialised to zero by the kernel.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// Returns the whole memory for writing.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    fn touch(&mut self) {
        const SMALLEST_PAGE: usize = 4096;
        for byte in self.as_mut_slice().iter_mut().step_by(SMALLEST_PAGE) {
            // SAFETY: the pointer comes from a live reference. The write is volatile, so that the compiler keeps it.
            unsafe { ptr::from_mut(byte).write_volatile(0) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: this value owns the mapping, and no reference to it can outlive the value.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Returns the bytes available without swapping: `MemAvailable` of `/proc/meminfo`, or less if a control group limits
/// it.
pub fn available() -> io::Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let on_machine = kib
        .and_then(|kib| kib.parse::<u64>().ok())
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))?
        .saturating_mul(1024);
    Ok(cgroup_available().map_or(on_machine, |available| available.min(on_machine)))
}

/// Returns the memory that the control group at the root of this view may still allocate (cgroup v2, for example of a
/// container).
fn cgroup_available() -> Option<u64> {
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max")?;
    Some(limit.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
}
