//! Flags for the output of a command, the same for all commands: `--output`, `--json`, `--report` and `--plot`.

use std::fmt::Debug;
use std::marker::PhantomData;
use std::path::{Path, PathBuf};

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use lfn_plot::{DEFAULT_SIZE, MAX_SIZE, MIN_SIZE, Size};

use crate::exit::{Exit, Failure};
use crate::print::output::{Output, OutputFormat};
use crate::print::pictures::PictureFiles;
use crate::print::report_file::{ReportFile, is_open_already};

const HEADING: &str = "Output";

/// Extensions of the pictures that `--plot` draws.
const PLOT_EXTENSIONS: [&str; 2] = ["svg", "png"];

/// Extensions of the files that `--report` writes.
const REPORT_EXTENSIONS: [&str; 2] = ["json", "html"];

/// Extensions of pictures, pages and data that `--plot` does not write. Other paths without a known extension are
/// directories.
const OTHER_FILES: [&str; 14] =
    ["pdf", "html", "htm", "jpg", "jpeg", "webp", "gif", "eps", "ps", "bmp", "tif", "tiff", "json", "csv"];

/// Formats of a command. The first one is the default.
pub trait FormatSet: Clone + Debug + Send + Sync + 'static {
    /// Formats with their descriptions.
    const FORMATS: &'static [(OutputFormat, &'static str)];
}

/// Text, or one JSON object.
#[derive(Clone, Debug)]
pub struct TextOrJson;

impl FormatSet for TextOrJson {
    const FORMATS: &'static [(OutputFormat, &'static str)] =
        &[(OutputFormat::Text, "Lines for a person"), (OutputFormat::Json, "One JSON object")];
}

/// Text, one JSON object, or one JSON object per line during the work.
#[derive(Clone, Debug)]
pub struct TextOrLines;

impl FormatSet for TextOrLines {
    const FORMATS: &'static [(OutputFormat, &'static str)] = &[
        (OutputFormat::Text, "Lines for a person"),
        (OutputFormat::Json, "One JSON object at the end"),
        (OutputFormat::Ndjson, "One JSON object per line as soon as it is known"),
    ];
}

/// Text, one JSON object, or a table.
#[derive(Clone, Debug)]
pub struct TextOrTable;

impl FormatSet for TextOrTable {
    const FORMATS: &'static [(OutputFormat, &'static str)] = &[
        (OutputFormat::Text, "Lines for a person"),
        (OutputFormat::Json, "One JSON object"),
        (OutputFormat::Csv, "A table with one row for each result"),
    ];
}

/// Formats of the entries of an archive.
#[derive(Clone, Debug)]
pub struct ExportFormats;

impl FormatSet for ExportFormats {
    const FORMATS: &'static [(OutputFormat, &'static str)] = &[
        (OutputFormat::Ndjson, "One JSON object per line for each entry, as `lfn mesh import` reads them"),
        (OutputFormat::Json, "One JSON object with a list of the entries"),
        (OutputFormat::Csv, "A table with one row for each entry"),
    ];
}

/// Formats of a test.
#[derive(Clone, Debug)]
pub struct TestFormats;

impl FormatSet for TestFormats {
    const FORMATS: &'static [(OutputFormat, &'static str)] = &[
        (OutputFormat::Text, "Lines for a person"),
        (OutputFormat::Json, "One JSON object at the end"),
        (OutputFormat::Ndjson, "One JSON object per line for each event; the last one is the complete result"),
        (OutputFormat::Csv, "A table with one row for each interval and stream"),
        (OutputFormat::Nettest, "The format of nettest (1995); implies --both"),
    ];
}

/// Formats of a sweep.
#[derive(Clone, Debug)]
pub struct SweepFormats;

impl FormatSet for SweepFormats {
    const FORMATS: &'static [(OutputFormat, &'static str)] = &[
        (OutputFormat::Text, "Lines for a person"),
        (OutputFormat::Json, "One JSON object at the end"),
        (OutputFormat::Ndjson, "One JSON object per line for each run; the last one is the complete result"),
        (OutputFormat::Csv, "A table with one row for each point"),
    ];
}

/// Flags for the result of a command.
#[derive(clap::Args, Debug)]
pub struct OutputArgs<S: FormatSet> {
    /// Set the format of the result on standard output
    #[arg(long, value_name = "FORMAT", default_value = S::FORMATS[0].0.name(), conflicts_with = "json", help_heading = HEADING)]
    #[arg(value_parser = format_parser::<S>())]
    output: OutputFormat,
    /// Print the result in JSON format; short for --output json
    #[arg(short = 'J', long, help_heading = HEADING)]
    json: bool,
    /// Write the result to FILE too; the extension selects the format: .json, .html
    #[arg(long, value_name = "FILE", value_parser = clap::builder::OsStringValueParser::new().try_map(report_path))]
    #[arg(help_heading = HEADING)]
    report: Option<PathBuf>,
    #[arg(skip)]
    formats: PhantomData<S>,
}

impl<S: FormatSet> OutputArgs<S> {
    /// Returns the format of standard output.
    pub fn format(&self) -> OutputFormat {
        if self.json { OutputFormat::Json } else { self.output }
    }

    /// Returns the file of `--report`.
    pub fn report(&self) -> Option<&Path> {
        self.report.as_deref()
    }

    /// Does the same as [`OutputArgs::open`] for a result with a secret: only this user can read the report file.
    pub fn open_private(&self) -> Result<Output, Failure> {
        let report = self.report.as_deref().map(ReportFile::create_private).transpose().map_err(bad_report)?;
        Ok(Output::new(self.format(), report))
    }

    /// Creates the report file, so that an error is found before the work, and returns the destinations of the result.
    pub fn open(&self) -> Result<Output, Failure> {
        let report = self.report.as_deref().map(ReportFile::create).transpose().map_err(bad_report)?;
        Ok(Output::new(self.format(), report))
    }
}

/// A file that cannot be created is a bad value of the flag.
fn bad_report(failure: Failure) -> Failure {
    failure.with_exit(Exit::Usage)
}

/// Flags for the pictures of a command.
#[derive(clap::Args, Debug)]
pub struct PlotArgs {
    /// Draw the result to PATH: a file (.svg or .png) with all charts, or a directory with both files for each chart
    #[arg(long, value_name = "PATH", value_parser = clap::builder::OsStringValueParser::new().try_map(plot_path))]
    #[arg(help_heading = HEADING)]
    pub plot: Option<PathBuf>,
    /// Set the size of a picture with one chart, in pixels; .png files have twice as many [default: 840x520]
    #[arg(long, value_name = "WIDTHxHEIGHT", requires = "plot", value_parser = plot_size)]
    #[arg(help_heading = HEADING)]
    plot_size: Option<Size>,
}

impl PlotArgs {
    /// Creates the file or the directory of the pictures, if they are requested.
    pub fn create(&self) -> Result<Option<PictureFiles>, Failure> {
        self.plot.as_deref().map(|path| PictureFiles::create(path, self.size())).transpose()
    }

    /// Returns the size of a picture with one chart.
    pub fn size(&self) -> Size {
        self.size_or(DEFAULT_SIZE)
    }

    /// Returns the size of a picture with one chart, with another default.
    pub fn size_or(&self, default: Size) -> Size {
        self.plot_size.unwrap_or(default)
    }
}

/// Parses the size of a picture.
fn plot_size(typed: &str) -> Result<Size, String> {
    let numbers = typed.split_once('x').and_then(|(width, height)| Some((width.parse().ok()?, height.parse().ok()?)));
    let (width, height) = numbers.ok_or("write WIDTHxHEIGHT in pixels: 840x520")?;
    let is_allowed =
        (MIN_SIZE.width..=MAX_SIZE.width).contains(&width) && (MIN_SIZE.height..=MAX_SIZE.height).contains(&height);
    if !is_allowed {
        let (min, max) = (MIN_SIZE, MAX_SIZE);
        return Err(format!("the size must be from {}x{} to {}x{}", min.width, min.height, max.width, max.height));
    }
    Ok(Size { width, height })
}

fn format_parser<S: FormatSet>() -> impl TypedValueParser<Value = OutputFormat> {
    let values = S::FORMATS.iter().map(|(format, help)| PossibleValue::new(format.name()).help(help));
    PossibleValuesParser::new(values).map(|name| {
        let named = S::FORMATS.iter().map(|(format, _)| *format).find(|format| format.name() == name);
        named.unwrap_or(OutputFormat::Text)
    })
}

/// Checks the extension of a report. An open descriptor such as /dev/stdout needs no extension.
fn report_path(typed: std::ffi::OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(typed);
    if is_open_already(&path) {
        return Ok(path);
    }
    check_extension(&path, &REPORT_EXTENSIONS)?;
    Ok(path)
}

/// Checks the extension of a picture. A path without the extension of a file is a directory.
fn plot_path(typed: std::ffi::OsString) -> Result<PathBuf, String> {
    let path = PathBuf::from(typed);
    if path.as_os_str().is_empty() || path.as_os_str() == "-" {
        return Err("no file or directory".to_owned());
    }
    let extension = path.extension().unwrap_or_default();
    let is_directory = path.is_dir() || path.as_os_str().as_encoded_bytes().ends_with(b"/");
    if OTHER_FILES.iter().any(|other| extension.eq_ignore_ascii_case(other)) && !is_directory {
        check_extension(&path, &PLOT_EXTENSIONS)?;
    }
    Ok(path)
}

fn check_extension(path: &Path, supported: &[&str]) -> Result<(), String> {
    let extension = path.extension().unwrap_or_default();
    if supported.iter().any(|known| extension.eq_ignore_ascii_case(known)) {
        return Ok(());
    }
    let known: Vec<_> = supported.iter().map(|known| format!(".{known}")).collect();
    let found = if extension.is_empty() {
        "no extension".into()
    } else {
        format!("unknown extension .{}", extension.display())
    };
    Err(format!("{found}; supported: {}", known.join(", ")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn extension_selects_the_report_format() {
        for path in ["a/b.json", "/dev/stdout", "a/b.HTML"] {
            assert!(report_path(path.into()).is_ok(), "{path}");
        }
        for (path, says) in
            [("r.pdf", "unknown extension .pdf; supported: .json, .html"), ("r", "no extension"), ("-", "no extension")]
        {
            assert!(report_path(path.into()).is_err_and(|error| error.contains(says)), "{path}");
        }
        assert!(plot_path("a.svg".into()).is_ok() && plot_path("pictures".into()).is_ok());
        assert!(plot_path("a.png".into()).is_ok() && plot_path("a.pdf/".into()).is_ok());
        assert!(plot_path("a.pdf".into()).is_err_and(|error| error.contains(".svg, .png")));
        assert!(plot_path("2026-11.27".into()).is_ok());
        assert!(plot_path("-".into()).is_err() && plot_path("".into()).is_err());
    }

    #[test]
    fn sizes_of_pictures_have_limits() {
        assert_eq!(plot_size("1600x1000"), Ok(Size { width: 1600, height: 1000 }));
        for size in ["", "x", "1600", "10x10", "100000x100000", "-5x300", "800x", "99999999999999999999x300"] {
            assert!(plot_size(size).is_err(), "{size}");
        }
    }
}
