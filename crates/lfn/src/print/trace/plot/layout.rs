//! Sizes that the parts of a picture share.

/// Width of all pictures in pixels.
pub const WIDTH: i32 = 840;
/// Pixels between a text and the side of the picture.
pub const MARGIN: i32 = 16;
