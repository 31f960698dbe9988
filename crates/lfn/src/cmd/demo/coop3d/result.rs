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
use super::files::FILE_STEPS;
use super::plan::PlannedCoupling;
use crate::cmd::demo::wrap::wrap;
use crate::print::counted;
use crate::print::table::{Column, table};
use crate::print::terminal::columns;

/// Width of the texts in characters, as in the other demo.
const WIDTH: usize = 80;

/// A finished run with its plan.
#[derive(Debug)]
pub struct FinishedRun {
    pub plan: PlannedCoupling,
    pub report: RunReport,
    /// Surface of the lake at the end.
    pub surface: Surface,
}

/// Returns the models of the demo. Without ANUGA, both are synthetic.
pub fn models(anuga: Option<&AnugaVersion>) -> Vec<CoupledModel> {
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
pub fn document(
    path: &PathProfile,
    models: Vec<CoupledModel>,
    runs: &[FinishedRun],
    by_files: Option<Duration>,
    accuracy_report: AccuracyReport,
) -> Coop3dDocument {
    let is_lake_synthetic = models.iter().any(|model| model.component == "lake" && model.synthetic);
    let difference = match runs {
        [one, other] => {
            let levels = one.surface.level.iter().zip(&other.surface.level);
            levels.map(|(one, other)| (one - other).abs()).fold(0.0, f64::max)
        }
        _ => 0.0,
    };
    Coop3dDocument {
        schema: Coop3dSchema::Current,
        models,
        install: is_lake_synthetic.then(|| INSTALL.to_owned()),
        path: *path,
        model_step: MODEL_STEP,
        runs: runs.iter().map(run).collect(),
        by_files: by_files.map(|run| FileCoupling { steps: FILE_STEPS, run, step: run.div_f64(FILE_STEPS as f64) }),
        level_difference_meters: figure(difference),
        accurate: accuracy_report.is_accurate(),
        accuracy_report,
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
    let (compute, transfer) = (show_duration(predicted.compute), show_duration(transfer));
    match plan.lag() {
        0 => format!(
            "A step uses the partner's fields of the same step. The models compute for {compute}, then wait: {transfer} for the \
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

/// Returns the result as text: the models, the table, the explanations and the effect of the lag.
pub fn page(document: &Coop3dDocument) -> String {
    let mut text = "\n".to_owned();
    for CoupledModel { component, side, synthetic, model, description } in &document.models {
        let model = if *synthetic { "synthetic".to_owned() } else { model.clone() };
        let _ = writeln!(text, "{component:<12}{side:<6}{model}: {description}");
    }
    text.push('\n');
    text += &times(&document.runs);
    text.push('\n');
    for (number, run) in document.runs.iter().enumerate() {
        text += &wrap(&format!("{:>2}. {}: {}", number + 1, run.name, explanation(run)), WIDTH);
        text.push('\n');
    }
    if let [lock_step, lagged] = &document.runs[..] {
        text.push('\n');
        text += &wrap(&effect(document, lock_step, lagged), WIDTH);
        text.push('\n');
    }
    if let Some(FileCoupling { steps, step, .. }) = &document.by_files {
        let steps = counted(*steps, "step");
        let line = format!("By files, with `lfn copy` in each of {steps}: {} a step.", show_duration(*step));
        text += &(wrap(&line, WIDTH) + "\n");
    }
    text
}

fn times(runs: &[Coop3dRun]) -> String {
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
    table(&head, &runs.iter().map(row).collect::<Vec<_>>(), columns())
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
        "With lag {} the same simulation is {ratio:.1} times as fast. Its price: the wind reaches the lake {} later in the \
         simulation, and the level differs by up to {:.2} m (it ranges from {} m to {} m).",
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
