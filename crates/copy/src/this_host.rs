//! The tag of the running kernel, for the check whether both ends of a copy are on one host.

use lfn_session::wire::copy::HostTag;
use lfn_sys::sysctl;

/// Returns the boot id (`random(4)`), which containers of one host share. `None` without /proc.
fn boot_id() -> Option<String> {
    sysctl::read("kernel.random.boot_id").ok()
}

/// Returns a new tag of this kernel.
pub(super) fn tag() -> Option<HostTag> {
    let mut salt = [0; 16];
    getrandom::fill(&mut salt).ok()?;
    Some(HostTag::new(&boot_id()?, salt))
}

/// Reports whether the tag of the other end is that of this kernel. Two ends without /proc count as one host.
pub(super) fn is_tagged(tag: Option<&HostTag>) -> bool {
    match (tag, boot_id()) {
        (Some(tag), Some(own)) => tag.matches(&own),
        (tag, own) => tag.is_none() && own.is_none(),
    }
}
