//! The document of the demo, and its text.

use std::fmt::Write as _;
use std::time::Duration;

use lfn_api::documents::{Coop3dDocument, Coop3dRun, Coop3dSchema, CoupledModel, FileCoupling};
use lfn_base::figure::Figure;
use lfn_base::path::PathProfile;
use lfn_base::units::show_duration;
use lfn_couple::RunReport;
use lfn_couple::document::run_document;
use lfn_emulate::AccuracyReport;

use super::anuga::{AnugaVersion, INSTALL};
use super::basin::{MODEL_STEP, Surface};
use super::plan::PlannedCoupling;
use crate::cmd::demo::wrap::{wrap, wrap_paragraph};
use crate::print::counted;
use crate::print::table::{Column, table};

/// Maximum width of the texts in characters, as in the other demo.
const MAX_WIDTH: usize = 80;

/// Columns of the table without the times of a step.
const RUN_COLUMNS: usize = 4;

/// A finished run with its plan.
#[derive(Debug)]
pub struct FinishedRun {
    pub plan: PlannedCoupling,
    pub report: RunReport,
    /// Surface of the lake at the end.
    pub surface: Surface,
}

/// Results of a finished demo.
#[derive(Debug)]
pub struct FinishedDemo {
    /// Accuracy report of the runs with the channel.
    pub accuracy_report: AccuracyReport,
    pub runs: Vec<FinishedRun>,
    /// ANUGA as the lake; none for the synthetic lake.
    pub anuga: Option<AnugaVersion>,
    /// The run with copied files, if it is requested.
    pub by_files: Option<FileCoupling>,
}

/// Returns the figures of a run with copied files, from the times of its steps. The first step opens the first sessions.
pub fn file_coupling(steps: &[Duration], accuracy_report: AccuracyReport) -> FileCoupling {
    let mut later = steps.get(1..).unwrap_or_default().to_vec();
    later.sort_unstable();
    FileCoupling {
        steps: steps.len() as u64,
        run: steps.iter().sum(),
        step: later.get(later.len() / 2).copied().unwrap_or_default(),
        accurate: accuracy_report.is_accurate(),
        accuracy_report,
    }
}

/// Returns the models of the demo. Without ANUGA, both are synthetic.
fn models(anuga: Option<&AnugaVersion>) -> Vec<CoupledModel> {
    let model = |component: &str, side: &str, name: Option<String>, description: String| CoupledModel {
        component: component.to_owned(),
        side: side.to_owned(),
        synthetic: name.is_none(),
        model: name.unwrap_or_else(|| "synthetic".to_owned()),
        description,
    };
    let lake = match anuga {
        Some(AnugaVersion { version, triangles }) => {
            let mesh = format!("shallow water in a box, {triangles} triangles");
            model("lake", "far", Some(format!("ANUGA {version}")), mesh)
        }
        None => model("lake", "far", None, "linear shallow water in a box".to_owned()),
    };
    vec![model("atmosphere", "near", None, "the wind of a storm as a formula".to_owned()), lake]
}

/// Returns the document of the demo.
pub fn document(path: &PathProfile, demo: &FinishedDemo) -> Coop3dDocument {
    let FinishedDemo { accuracy_report, runs, anuga, by_files } = demo;
    let difference = match &runs[..] {
        [one, other] => {
            let levels = one.surface.level.iter().zip(&other.surface.level);
            levels.map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    Coop3dDocument {
        schema: Coop3dSchema::Current,
        models: models(anuga.as_ref()),
        install: anuga.is_none().then(|| INSTALL.to_owned()),
        path: *path,
        model_step: MODEL_STEP,
        runs: runs.iter().map(run).collect(),
        by_files: by_files.clone(),
        level_difference_meters: figure(difference),
        accurate: accuracy_report.is_accurate() && by_files.as_ref().is_none_or(|by_files| by_files.accurate),
        accuracy_report: accuracy_report.clone(),
    }
}

fn run(finished: &FinishedRun) -> Coop3dRun {
    let FinishedRun { plan, report, surface } = finished;
    let measured = report.own.run.max(report.partner.run);
    let per_step = |time: Duration| time.div_f64(plan.coupling.steps.max(1) as f64);
    let (lowest, highest) = range(&surface.level);
    Coop3dRun {
        name: plan.name.to_owned(),
        lag: plan.lag(),
        predicted_run: plan.predicted.run,
        measured_run: measured,
        predicted_step: per_step(plan.predicted.run),
        measured_step: per_step(measured),
        reason: reason(plan),
        lowest_level_meters: figure(lowest),
        highest_level_meters: figure(highest),
        fastest_wind: figure(fastest_wind(surface)),
        result: run_document(&plan.coupling, report),
    }
}

/// Explains the predicted time of a step.
fn reason(plan: &PlannedCoupling) -> String {
    let predicted = &plan.predicted;
    let delay = show_duration(predicted.one_way_delay);
    let transfer = predicted.directions.iter().map(|direction| direction.serialisation).max().unwrap_or_default();
    // In lock-step, the faster model starts later in each second step.
    let times: Vec<Duration> = plan.coupling.components.values().filter_map(|component| component.compute).collect();
    let mean = times.iter().sum::<Duration>() / u32::try_from(times.len()).unwrap_or(1).max(1);
    let (compute, transfer) = (show_duration(mean), show_duration(transfer));
    match plan.lag() {
        0 => format!(
            "A step uses the partner's fields of the same step. The models compute for {compute} (mean of both), then wait: {transfer} for the \
             transfer of the fields, and {delay} for the path."
        ),
        lag => format!(
            "A step uses the partner's fields of {} before. The fields have {} for the path of {delay}, while the models compute.",
            counted(lag, "step"),
            show_duration(predicted.compute.saturating_mul(u32::try_from(lag).unwrap_or(u32::MAX))),
        ),
    }
}

/// Returns the lowest and the highest of the values; 0 without a value.
pub fn range(values: &[f64]) -> (f64, f64) {
    let ends = values.iter().fold(None, |ends: Option<(f64, f64)>, value| {
        Some(ends.map_or((*value, *value), |(low, high)| (low.min(*value), high.max(*value))))
    });
    ends.unwrap_or_default()
}

/// Returns the fastest wind of a surface, m/s.
pub fn fastest_wind(surface: &Surface) -> f64 {
    let winds = surface.wind_east.iter().zip(&surface.wind_north);
    winds.map(|(east, north)| east.hypot(*north)).fold(0.0, f64::max)
}

fn figure(value: f64) -> Figure {
    Figure::new(value).unwrap_or_default()
}

/// Returns the result as text for a terminal of this width: the models, the table, the explanations and the effect of the lag.
pub fn page(document: &Coop3dDocument, columns: usize) -> String {
    let width = columns.min(MAX_WIDTH);
    let mut text = "\n".to_owned();
    for CoupledModel { component, side, synthetic, model, description } in &document.models {
        let model = if *synthetic { "synthetic".to_owned() } else { model.clone() };
        let line = format!("{component:<12}{side:<6}{model}: {description}");
        let _ = writeln!(text, "{}", wrap(&line, width));
    }
    text.push('\n');
    text += &times(&document.runs, columns);
    text.push('\n');
    for (number, run) in document.runs.iter().enumerate() {
        text += &wrap(&format!("{:>2}. {}: {}", number + 1, run.name, explanation(run)), width);
        text.push('\n');
    }
    if let [lock_step, lagged] = &document.runs[..] {
        text += &format!("\n{}\n", wrap_paragraph(&effect(document, lock_step, lagged), width));
    }
    if let Some(by_files) = &document.by_files {
        text += &format!("\n{}\n", wrap_paragraph(&file_times(by_files), width));
    }
    text
}

fn times(runs: &[Coop3dRun], columns: usize) -> String {
    let head = [
        Column::text("", Column::KEPT),
        Column::number("lag", Column::KEPT),
        Column::number("run predicted", Column::KEPT),
        Column::number("measured", Column::KEPT),
        Column::number("step predicted", Column::KEPT),
        Column::number("measured", Column::KEPT),
    ];
    let row = |run: &Coop3dRun| {
        let times = [run.predicted_run, run.measured_run, run.predicted_step, run.measured_step];
        [run.name.clone(), run.lag.to_string()].into_iter().chain(times.map(show_duration)).collect()
    };
    let mut rows: Vec<Vec<String>> = runs.iter().map(row).collect();
    let text = table(&head, &rows, columns);
    if text.lines().all(|line| line.chars().count() <= columns) {
        return text;
    }
    // A narrow terminal has room for the runs only.
    rows.iter_mut().for_each(|row| row.truncate(RUN_COLUMNS));
    table(&head[..RUN_COLUMNS], &rows, columns)
}

/// Returns the time of a step with copied files.
fn file_times(by_files: &FileCoupling) -> String {
    let (steps, step) = (counted(by_files.steps, "step"), show_duration(by_files.step));
    let accuracy = if by_files.accurate { "" } else { " The emulation of this run was not accurate." };
    format!("By files, with `lfn copy` in each of {steps}: {step} a step (median without the first step).{accuracy}")
}

/// Returns the explanation of a run, with the findings where the plan and the run differ.
fn explanation(run: &Coop3dRun) -> String {
    let findings = &run.result.findings;
    if findings.is_empty() {
        return format!("{} The run matches its plan.", run.reason);
    }
    let findings: Vec<&str> = findings.iter().map(|finding| finding.summary.trim_end_matches('.')).collect();
    format!("{} The run differs from its plan: {}.", run.reason, findings.join("; "))
}

/// Returns the gain of the lag, and its effect on the lake.
fn effect(document: &Coop3dDocument, lock_step: &Coop3dRun, lagged: &Coop3dRun) -> String {
    let ratio = lock_step.measured_run.as_secs_f64() / lagged.measured_run.as_secs_f64().max(1e-9);
    let delay = document.model_step.saturating_mul(u32::try_from(lagged.lag).unwrap_or(u32::MAX));
    format!(
        "With lag {} the run is {ratio:.1} times as fast. The result differs: the wind reaches the lake {} later in the \
         simulation, and the level differs by up to {:.2} m. In lock-step, the level ranges from {} m to {} m.",
        lagged.lag,
        show_duration(delay),
        document.level_difference_meters.get(),
        signed(lock_step.lowest_level_meters.get()),
        signed(lock_step.highest_level_meters.get()),
    )
}

/// Returns a level with its sign.
pub fn signed(level: f64) -> String {
    format!("{level:+.2}").replace('-', "−")
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a test")]

    use lfn_campaign::published;

    use super::*;

    fn accuracy_report() -> AccuracyReport {
        AccuracyReport { seed: 1, calibration: None, paths: Vec::new() }
    }

    fn demo(by_files: Option<FileCoupling>) -> FinishedDemo {
        FinishedDemo { accuracy_report: accuracy_report(), runs: Vec::new(), anuga: None, by_files }
    }

    #[test]
    fn time_of_a_file_step_is_the_median_without_the_first() {
        let steps = [9, 3, 1, 2].map(Duration::from_secs);
        let by_files = file_coupling(&steps, accuracy_report());
        assert_eq!((by_files.steps, by_files.step), (4, Duration::from_secs(2)));
        assert_eq!(by_files.run, Duration::from_secs(15));
    }

    #[test]
    fn inaccurate_run_by_files_is_stated() {
        let by_files = file_coupling(&[Duration::from_secs(1); 3], accuracy_report());
        let inaccurate = FileCoupling { accurate: false, ..by_files.clone() };
        let [accurate, inaccurate] = [by_files, inaccurate].map(|it| document(&published::path(), &demo(Some(it))));
        assert!(accurate.accurate && !inaccurate.accurate);
        assert!(!page(&accurate, 80).contains("not accurate"));
        assert!(page(&inaccurate, 200).contains("The emulation of this run was not accurate."));
    }

    #[test]
    fn text_fits_a_narrow_terminal() {
        let by_files = file_coupling(&[Duration::from_secs(1); 3], accuracy_report());
        let text = page(&document(&published::path(), &demo(Some(by_files))), 50);
        assert!(text.lines().all(|line| line.chars().count() <= 50), "{text}");
    }
}
