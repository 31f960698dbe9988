//! Files of the pictures: one file with all panels of the largest connection, or a directory with one file for each
//! picture of the largest connections.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use lfn_api::documents::TracedConnection;
use lfn_api::trace::Traced;
use lfn_base::time::Instant;
use lfn_base::units::show_duration;
use lfn_session::atomic_file::AtomicFile;
use lfn_trace::Series;

use super::picture::{overview, pictures};
use super::view::{PlottedConnection, TimeRange};
use crate::cli::output::is_picture_file;
use crate::exit::{Failure, without_error_number};
use crate::print;
use crate::print::report_file::refuse_file_of_the_command;

/// Maximum number of connections in a directory.
const MAX_CONNECTIONS: usize = 5;

/// Destination of the pictures. It exists before the analysis, so that an error is found early.
#[derive(Debug)]
pub struct PictureFiles {
    path: PathBuf,
    /// File of the only picture; `None` for a directory.
    file: Option<AtomicFile>,
}

impl PictureFiles {
    /// Creates the file of a path that ends in `.svg`, or else the directory. The file gets its name when it is complete.
    pub fn create(path: &Path) -> Result<Self, Failure> {
        let is_file = is_picture_file(path);
        if is_file {
            refuse_file_of_the_command("plot", path, "pictures.svg")?;
        }
        let created = match is_file {
            true => AtomicFile::create(path, 0o666).map(Some),
            false => DirBuilder::new().recursive(true).create(path).map(|()| None),
        };
        let file = created.map_err(|error| {
            let failure = Failure::usage(plot_error(path, &error));
            failure.hint("choose a directory that you can write to: --plot /tmp/pictures")
        })?;
        Ok(PictureFiles { path: path.to_owned(), file })
    }

    /// Draws the largest connections, and reports the files. A capture without data has no pictures.
    pub fn draw(self, traced: &Traced, range: Option<TimeRange>) -> Result<(), Failure> {
        let PictureFiles { path, file } = self;
        let capture = capture_name(traced);
        let drawn = traced.document.connections.iter().zip(&traced.series);
        let drawn = drawn.filter_map(|(connection, series)| Some((connection, series.as_ref()?)));
        let lasts = |connection: &TracedConnection| range.is_none_or(|range| range.from < connection.evidence.duration);
        let has_picture = |connection: &TracedConnection| connection.evidence.payload.0 > 0 && lasts(connection);
        let mut drawn = drawn.filter(|(connection, _)| has_picture(connection)).take(MAX_CONNECTIONS).peekable();
        if drawn.peek().is_none() {
            let from = range.map_or(Duration::ZERO, |range| range.from);
            let after = if from.is_zero() { String::new() } else { format!(" after {}", show_duration(from)) };
            print::message(format_args!("no picture: the capture has no TCP connection with data{after}\n"));
            return Ok(());
        }
        let Some(mut file) = file else {
            let mut count = 0;
            for (connection, series) in drawn {
                let name = connection_name(&capture, connection);
                for picture in pictures(&plotted(connection, series, &name), range)? {
                    let path = path.join(format!("connection-{}-{}.svg", connection.number, picture.stem));
                    refuse_file_of_the_command("plot", &path, "pictures")?;
                    let file = AtomicFile::create(&path, 0o666);
                    let written = file.and_then(|file| write(file, &picture.svg));
                    written.map_err(|error| Failure::msg(plot_error(&path, &error)))?;
                    count += 1;
                }
            }
            print::message(format_args!("pictures: {count} files in {}\n", path.display()));
            return Ok(());
        };
        let Some((connection, series)) = drawn.next() else { return Ok(()) };
        let name = connection_name(&capture, connection);
        let svg = overview(&plotted(connection, series, &name), range)?;
        let _ = file.clear();
        write(file, &svg).map_err(|error| Failure::msg(plot_error(&path, &error)))?;
        print::message(format_args!("picture: {}\n", path.display()));
        Ok(())
    }
}

fn write(mut file: AtomicFile, svg: &str) -> io::Result<()> {
    file.write_all(svg.as_bytes())?;
    file.commit()
}

fn plotted<'a>(connection: &'a TracedConnection, series: &'a Series, name: &'a str) -> PlottedConnection<'a> {
    let start = Instant::ZERO + connection.start;
    PlottedConnection { evidence: &connection.evidence, series, start, name }
}

fn connection_name(capture: &str, connection: &TracedConnection) -> String {
    format!("{capture}, connection {}", connection.number)
}

/// Returns the name of the first file without its directory, or the interface.
fn capture_name(traced: &Traced) -> String {
    let file = traced.document.files.first().map(|file| file.name.as_str()).or(traced.document.interface.as_deref());
    let path = Path::new(file.unwrap_or("capture"));
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

fn plot_error(path: &Path, error: &io::Error) -> String {
    format!("--plot {}: {}", path.display(), without_error_number(&error.to_string()))
}
