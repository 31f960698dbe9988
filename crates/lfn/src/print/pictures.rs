//! Files of `--plot`. One file has one picture with all charts. A directory has two files for each chart.
//!
//! The file or the directory is created before the work, so that an error is found early. The pictures are written after
//! the result is printed, so that an error of the pictures never loses a result.

use std::fs::DirBuilder;
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use lfn_api::pictures::Album;
use lfn_plot::{Drawing, MAX_PANELS, Picture, Size};
use lfn_session::atomic_file::AtomicFile;

use crate::exit::{Failure, without_error_number};
use crate::print;
use crate::print::report_file::refuse_file_of_the_command;

/// Format of a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PictureFormat {
    Svg,
    Png,
}

impl PictureFormat {
    /// Returns the format of a file name; `None` for other extensions.
    pub fn of(path: &Path) -> Option<Self> {
        let extension = path.extension().unwrap_or_default();
        let known = [("svg", PictureFormat::Svg), ("png", PictureFormat::Png)];
        known.into_iter().find(|(name, _)| extension.eq_ignore_ascii_case(name)).map(|(_, format)| format)
    }
}

/// Destination of the pictures of one command.
#[derive(Debug)]
pub struct PictureFiles {
    path: PathBuf,
    /// File of the only picture with its format; `None` for a directory.
    file: Option<(AtomicFile, PictureFormat)>,
    size: Size,
}

impl PictureFiles {
    /// Creates the file of a path that ends in `.svg` or `.png`, or else the directory. The file gets its name when it is
    /// complete.
    pub fn create(path: &Path, size: Size) -> Result<Self, Failure> {
        let format = PictureFormat::of(path).filter(|_| !path.is_dir());
        if format.is_some() {
            refuse_file_of_the_command("plot", path, "pictures.svg")?;
        }
        let created = match format {
            Some(format) => AtomicFile::create(path, 0o666).map(|file| Some((file, format))),
            None => DirBuilder::new().recursive(true).create(path).and_then(|()| check_writable(path)).map(|()| None),
        };
        let file = created.map_err(|error| {
            let failure = Failure::usage(plot_error(path, &error));
            failure.hint("choose a directory that you can write to: --plot /tmp/pictures")
        })?;
        Ok(PictureFiles { path: path.to_owned(), file, size })
    }

    /// Returns the path as typed.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Returns the present path of a file that has another name when it is complete.
    pub fn hidden_path(&self) -> Option<&Path> {
        self.file.as_ref().and_then(|(file, _)| file.hidden_path())
    }

    /// Writes the charts of the first album to the file, or the charts of all albums to files of the directory. Each album
    /// has a prefix for the names of its files.
    pub fn write(self, albums: &[(String, Album)], nothing: &str) -> Result<(), Failure> {
        let albums: Vec<_> = albums.iter().filter(|(_, album)| !album.charts.is_empty()).collect();
        let Some((_, first)) = albums.first() else {
            print::message(format_args!("no picture: {nothing}\n"));
            return Ok(());
        };
        let pictures = albums.iter().flat_map(|(prefix, album)| {
            album.pictures().map(move |(stem, picture)| (format!("{prefix}{stem}"), picture))
        });
        self.write_pictures(&first.overview(), pictures)
    }

    /// Writes the charts of one album.
    pub fn write_one(self, album: Album, nothing: &str) -> Result<(), Failure> {
        self.write(&[(String::new(), album)], nothing)
    }

    /// Writes one picture. In a directory, the names of its files have this stem.
    pub fn write_picture(self, stem: &str, picture: &Picture) -> Result<(), Failure> {
        self.write_pictures(picture, std::iter::once((stem.to_owned(), picture.clone())))
    }

    /// Writes the overview to the file, or the pictures with their stems to the directory.
    fn write_pictures(
        self,
        overview: &Picture,
        pictures: impl Iterator<Item = (String, Picture)>,
    ) -> Result<(), Failure> {
        let PictureFiles { path, file, size } = self;
        if let Some((mut file, format)) = file {
            let _ = file.clear();
            let all = overview.panels.len();
            if all > MAX_PANELS {
                print::message(format_args!(
                    "{} has the first {MAX_PANELS} of {all} charts; a directory has all\n",
                    path.display()
                ));
            }
            write(file, &overview.draw(size), format).map_err(|error| Failure::msg(plot_error(&path, &error)))?;
            print::message(format_args!("picture: {}\n", path.display()));
            return Ok(());
        }
        let mut count = 0;
        for (stem, picture) in pictures {
            let drawing = picture.draw(size);
            for (extension, format) in [("svg", PictureFormat::Svg), ("png", PictureFormat::Png)] {
                let path = path.join(format!("{stem}.{extension}"));
                refuse_file_of_the_command("plot", &path, "pictures")?;
                let file = AtomicFile::create(&path, 0o666);
                let written = file.and_then(|file| write(file, &drawing, format));
                written.map_err(|error| Failure::msg(plot_error(&path, &error)))?;
                count += 1;
            }
        }
        print::message(format_args!("pictures: {count} files in {}\n", path.display()));
        Ok(())
    }
}

/// Creates a file in the directory, which disappears at once.
fn check_writable(directory: &Path) -> io::Result<()> {
    AtomicFile::create(&directory.join("pictures"), 0o666).map(drop)
}

/// Writes a drawing to a file.
fn write(mut file: AtomicFile, drawing: &Drawing, format: PictureFormat) -> io::Result<()> {
    file.write_all(&encoded(drawing, format)?)?;
    file.commit()
}

/// Returns a drawing as bytes of a file.
fn encoded(drawing: &Drawing, format: PictureFormat) -> io::Result<Vec<u8>> {
    match format {
        PictureFormat::Svg => Ok(drawing.svg().into_bytes()),
        PictureFormat::Png => drawing.png(),
    }
}

/// Returns the text of an error of a picture.
fn plot_error(path: &Path, error: &io::Error) -> String {
    format!("--plot {}: {}", path.display(), without_error_number(&error.to_string()))
}
