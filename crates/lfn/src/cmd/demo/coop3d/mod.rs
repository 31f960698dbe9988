//! `lfn demo coop3d`: an atmosphere and a lake that are coupled over the emulated path.

mod atmosphere;
mod basin;
mod lake;
