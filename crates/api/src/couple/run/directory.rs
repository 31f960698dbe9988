//! The directory in which lfn and the model exchange files.
//!
//! - `out/VARIABLE.N.nc`: a field that the model puts in step N. The model renames a complete file to this name.
//! - `out/checkpoint.N`: the state of the model at the start of step N is on disk. The model creates it before the first field of
//!   step N.
//! - `out/step.N`: the model begins step N. A model without variables of its own creates it.
//! - `in/VARIABLE.N.nc`: the partner's field for step N.
//! - `in/step.N`: all fields of the partner for step N are there.
//! - `in/checkpoint.N`: the model can resume from step N, and no longer needs earlier checkpoints.
//!
//! lfn deletes the files in `out` when it has read them. lfn deletes those in `in` when the model has written its files of the
//! next step, or when the model of one step has ended.

use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use data_encoding::HEXLOWER;
use lfn_couple::coupling::Coupling;
use lfn_couple::netcdf::{ByteSource, FieldFile, NetcdfFile};
use rustix::fs::{FlockOperation, OFlags, flock};
use rustix::io::Errno;

use super::error::CoupleRunError;

/// Name of the file that is locked during a run.
const LOCK: &str = ".lock";
/// Name of the file that reports a checkpoint, before the step.
const CHECKPOINT: &str = "checkpoint";
/// Name of the file that marks a step, before the step.
const STEP: &str = "step";

/// The directory of a run.
#[derive(Debug)]
pub(super) struct ExchangeDirectory {
    path: PathBuf,
    /// Locked until the end of the run.
    _lock: File,
    is_temporary: bool,
    keep: bool,
}

impl ExchangeDirectory {
    /// Creates the directory, and deletes the files of an earlier run in it.
    pub(super) fn create(chosen: Option<PathBuf>, coupling: &Coupling, keep: bool) -> Result<Self, CoupleRunError> {
        let is_temporary = chosen.is_none();
        let path = match chosen {
            Some(path) => {
                fs::create_dir_all(&path).map_err(write_error(&path))?;
                // The model may run in another directory.
                path.canonicalize().map_err(write_error(&path))?
            }
            None => create_temporary()?,
        };
        let directory = ExchangeDirectory { _lock: lock(&path)?, path, is_temporary, keep };
        for part in [directory.input(), directory.output()] {
            fs::create_dir_all(&part).map_err(write_error(&part))?;
            delete_files(&part, coupling).map_err(write_error(&part))?;
        }
        Ok(directory)
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Directory of the partner's fields.
    pub(super) fn input(&self) -> PathBuf {
        self.path.join("in")
    }

    /// Directory of the model's fields.
    pub(super) fn output(&self) -> PathBuf {
        self.path.join("out")
    }

    pub(super) fn own_field(&self, variable: &str, step: u64) -> PathBuf {
        self.output().join(field_name(variable, step))
    }

    /// File with which a model without variables of its own begins a step.
    pub(super) fn own_step(&self, step: u64) -> PathBuf {
        self.output().join(format!("{STEP}.{step}"))
    }

    /// Deletes the file with which the model began a step.
    pub(super) fn take_step(&self, step: u64) {
        if !self.keep {
            // The model may have removed it.
            let _ = fs::remove_file(self.own_step(step));
        }
    }

    pub(super) fn has_checkpoint(&self, step: u64) -> bool {
        self.output().join(format!("{CHECKPOINT}.{step}")).exists()
    }

    /// Reads a field of the model, and deletes its file.
    pub(super) fn take_field(&self, coupling: &Coupling, variable: &str, step: u64) -> Result<Vec<u8>, CoupleRunError> {
        let path = self.own_field(variable, step);
        let read_error = |source| CoupleRunError::Read { path: path.clone(), source };
        // A pipe would block.
        let file =
            File::options().read(true).custom_flags(OFlags::NONBLOCK.bits() as i32).open(&path).map_err(read_error)?;
        let metadata = file.metadata().map_err(read_error)?;
        if !metadata.is_file() {
            return Err(read_error(io::Error::other("not a regular file")));
        }
        let source = FieldSource { file, length: metadata.len() };
        let settings = &coupling.variables[variable];
        let shape = coupling.grids.get(&settings.grid).map_or(&[][..], |grid| &grid.shape);
        let field = NetcdfFile::open(&source)
            .and_then(|file| file.field(variable, settings.element, shape, &settings.units))
            .map_err(|source| CoupleRunError::Field { file: path.clone(), source })?;
        if !self.keep {
            fs::remove_file(&path).map_err(write_error(&path))?;
        }
        Ok(field)
    }

    /// Writes a field of the partner.
    pub(super) fn write_field(&self, file: &FieldFile<'_>, data: &[u8]) -> Result<(), CoupleRunError> {
        self.place(&field_name(file.variable, file.step), &file.encode(data))
    }

    /// Marks the end of the fields of a step.
    pub(super) fn finish_input(&self, step: u64) -> Result<(), CoupleRunError> {
        self.place(&format!("{STEP}.{step}"), b"")
    }

    /// Shows the model from which checkpoint it can resume.
    pub(super) fn confirm_checkpoint(&self, before: Option<u64>, step: u64) -> Result<(), CoupleRunError> {
        self.place(&format!("{CHECKPOINT}.{step}"), b"")?;
        if let Some(before) = before.filter(|_| !self.keep) {
            // The model may have removed it.
            let _ = fs::remove_file(self.input().join(format!("{CHECKPOINT}.{before}")));
        }
        Ok(())
    }

    /// Deletes the partner's fields of a step that the model has read, and the checkpoint report of this step.
    pub(super) fn delete_step(&self, coupling: &Coupling, component: &str, step: u64) {
        if self.keep {
            return;
        }
        let received = coupling.received_by(component);
        let fields = received.map(|(name, _)| self.input().join(field_name(name, step)));
        let others = [self.input().join(format!("{STEP}.{step}")), self.output().join(format!("{CHECKPOINT}.{step}"))];
        for file in fields.chain(others) {
            // A model may have moved the file.
            let _ = fs::remove_file(file);
        }
    }

    /// Writes a file of the input under another name, then renames it.
    fn place(&self, name: &str, bytes: &[u8]) -> Result<(), CoupleRunError> {
        let (partial, path) = (self.input().join(format!(".{name}.part")), self.input().join(name));
        fs::write(&partial, bytes).map_err(write_error(&partial))?;
        fs::rename(&partial, &path).map_err(write_error(&path))
    }
}

impl Drop for ExchangeDirectory {
    fn drop(&mut self) {
        if self.is_temporary {
            // The system deletes old temporary files.
            let _ = fs::remove_dir_all(&self.path);
        }
    }
}

/// Parses the name of a file of a field, and returns the variable and the step.
pub(super) fn parse_field_name(name: &str) -> Option<(&str, u64)> {
    let (variable, step) = name.strip_suffix(".nc")?.rsplit_once('.')?;
    let is_number = !step.is_empty() && step.bytes().all(|digit| digit.is_ascii_digit());
    Some((variable, step.parse().ok().filter(|_| is_number)?))
}

fn field_name(variable: &str, step: u64) -> String {
    format!("{variable}.{step}.nc")
}

/// Bytes of a file that a model wrote.
struct FieldSource {
    file: File,
    length: u64,
}

impl ByteSource for FieldSource {
    fn length(&self) -> u64 {
        self.length
    }

    fn read_at(&self, offset: u64, buffer: &mut [u8]) -> io::Result<()> {
        self.file.read_exact_at(buffer, offset)
    }
}

/// Locks the directory, so that a second run does not delete the files of the first one.
fn lock(directory: &Path) -> Result<File, CoupleRunError> {
    let path = directory.join(LOCK);
    let file = File::options().create(true).truncate(false).write(true).open(&path).map_err(write_error(&path))?;
    match flock(&file, FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(Errno::WOULDBLOCK) => Err(CoupleRunError::InUse { directory: directory.to_owned() }),
        // A file system without locks.
        Err(Errno::NOTSUP | Errno::NOLCK | Errno::NOSYS) => Ok(file),
        Err(error) => Err(write_error(&path)(error.into())),
    }
}

/// Creates a directory that only this user can read.
fn create_temporary() -> Result<PathBuf, CoupleRunError> {
    let parent = std::env::temp_dir();
    let mut random = [0; 8];
    getrandom::fill(&mut random).map_err(|error| write_error(&parent)(io::Error::other(error)))?;
    let path = parent.join(format!("lfn-couple-{}", HEXLOWER.encode(&random)));
    DirBuilder::new().mode(0o700).create(&path).map_err(write_error(&path))?;
    Ok(path)
}

/// Deletes the files of an earlier run. Other files stay.
fn delete_files(directory: &Path, coupling: &Coupling) -> io::Result<()> {
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        let name = entry.file_name();
        let name = name.to_string_lossy();
        let is_field = parse_field_name(&name).is_some_and(|(variable, _)| coupling.variables.contains_key(variable));
        let is_report = name
            .rsplit_once('.')
            .is_some_and(|(report, step)| (report == CHECKPOINT || report == STEP) && step.parse::<u64>().is_ok());
        if is_field || is_report {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Returns a function that adds the path to an error.
fn write_error(path: &Path) -> impl Fn(io::Error) -> CoupleRunError + '_ {
    move |source| CoupleRunError::Write { path: path.to_owned(), source }
}
