//! Memory that is there before it is needed, and how much of it the machine has left.
//!
//! The first touch of a page costs a fault, in a virtual machine two; a data path that keeps a satellite hop's worth
//! of packets would pay it for every packet of the first seconds.

use std::fs;
use std::io;
use std::ptr::{self, NonNull};
use std::slice;

/// A block of zeroed memory, all of it resident.
#[derive(Debug)]
pub struct Arena {
    start: NonNull<u8>,
    length: usize,
}

// SAFETY: the arena owns its mapping alone, like a Vec<u8> does.
unsafe impl Send for Arena {}

impl Arena {
    /// Maps `length` bytes in large pages where possible, and touches them all.
    pub fn new(length: usize) -> io::Result<Self> {
        let length = length.max(1);
        let (protection, flags) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
        // SAFETY: a new anonymous mapping at an address the kernel chooses touches no existing memory.
        let start = unsafe { libc::mmap(ptr::null_mut(), length, protection, flags, -1, 0) };
        if start == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the range is the mapping just made. Large pages are a wish: refusing it is no failure.
        unsafe { libc::madvise(start, length, libc::MADV_HUGEPAGE) };
        let start = NonNull::new(start.cast()).ok_or_else(|| io::Error::other("mmap gave a null address"))?;
        let mut arena = Arena { start, length };
        arena.touch();
        Ok(arena)
    }

    /// All of it.
    pub fn as_slice(&self) -> &[u8] {
        // SAFETY: start and length are those of a live mapping, initialised to zero by the kernel.
        unsafe { slice::from_raw_parts(self.start.as_ptr(), self.length) }
    }

    /// All of it, to write to.
    pub fn as_mut_slice(&mut self) -> &mut [u8] {
        // SAFETY: as in `as_slice`, and `&mut self` makes this the only reference.
        unsafe { slice::from_raw_parts_mut(self.start.as_ptr(), self.length) }
    }

    fn touch(&mut self) {
        const SMALLEST_PAGE: usize = 4096;
        for byte in self.as_mut_slice().iter_mut().step_by(SMALLEST_PAGE) {
            // SAFETY: the pointer comes from a live reference; volatile so that the write is not optimised away.
            unsafe { ptr::from_mut(byte).write_volatile(0) };
        }
    }
}

impl Drop for Arena {
    fn drop(&mut self) {
        // SAFETY: the mapping is owned by this value and no reference to it can outlive it.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}

/// Bytes that can be had without swapping: `MemAvailable` of `/proc/meminfo`, or less where a control group says so.
pub fn available() -> io::Result<u64> {
    let meminfo = fs::read_to_string("/proc/meminfo")?;
    let kib = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:")?.split_whitespace().next());
    let machine = kib
        .and_then(|kib| kib.parse::<u64>().ok())
        .ok_or_else(|| io::Error::other("/proc/meminfo has no MemAvailable"))?
        .saturating_mul(1024);
    Ok(control_group_left().map_or(machine, |left| left.min(machine)))
}

/// What the control group at the root of this view (a container's own, in cgroup v2) may still allocate.
fn control_group_left() -> Option<u64> {
    let number = |file: &str| fs::read_to_string(file).ok()?.trim().parse::<u64>().ok();
    let limit = number("/sys/fs/cgroup/memory.max")?;
    Some(limit.saturating_sub(number("/sys/fs/cgroup/memory.current")?))
}
