//! The texts of the result of a run. The command and the Python package lay them out.

use std::time::Duration;

use lfn_base::units::{counted, show_duration};

use super::run::{CoupleRunDocument, StepFigure};
use crate::plan::{PlannedRun, PlannedVariable};

/// Share of a step that a wait takes at least to be named.
const MIN_WAIT_SHARE: f64 = 0.01;

impl CoupleRunDocument {
    /// Returns the simulation, both components, the steps and the RTT.
    pub fn heading(&self) -> String {
        let CoupleRunDocument { coupling, component, partner, measured, .. } = self;
        let steps = counted(measured.own.steps, "step");
        let resumed = match measured.own.first_step {
            0 => String::new(),
            first => format!(", resumed at step {first}"),
        };
        format!("{coupling}: {component} with {partner}, {steps}{resumed}, RTT {}", show_duration(measured.rtt))
    }

    /// Returns the time of the run, then the mean times of a step. The plan has no time for a part of the run.
    pub fn figures(&self) -> Vec<StepFigure> {
        let own = &self.measured.own;
        let whole = self.predicted.as_ref().filter(|plan| plan.steps == own.steps);
        let run = StepFigure { name: "run".to_owned(), predicted: whole.map(|plan| plan.run), measured: own.run };
        [run].into_iter().chain(self.step_figures()).collect()
    }

    /// Returns the lost connections, the dropped fields and the elements that are not a number, each as a label and a text. The
    /// last label is `result`, with the verdict.
    pub fn remarks(&self) -> Vec<(&'static str, String)> {
        let mut remarks = Vec::new();
        let own = &self.measured.own;
        if own.reconnects > 0 {
            let lost = show_duration(own.disconnected);
            remarks
                .push(("connection", format!("{lost} without a connection, {}", counted(own.reconnects, "reconnect"))));
        }
        let ends = [&self.measured.own, &self.measured.partner];
        for (name, sent) in ends.iter().flat_map(|end| &end.sent) {
            let received = ends.iter().find_map(|end| end.received.get(name));
            let dropped = sent.dropped + received.map_or(0, |received| received.dropped);
            if dropped > 0 {
                remarks.push(("dropped", format!("{dropped} of {} of {name}", counted(sent.fields, "field"))));
            }
            let nan = sent.nan.max(received.map_or(0, |received| received.nan));
            if nan > 0 {
                remarks.push(("not a number", format!("{} of {name}", counted(nan, "element"))));
            }
        }
        remarks.push(("result", self.verdict.summary.clone()));
        remarks
    }

    /// Returns the lags to change after a run without findings: the plan itself may have waits.
    pub fn advice(&self) -> Vec<String> {
        let plan = self.predicted.as_ref().filter(|_| self.findings.is_empty());
        plan.map(lag_advice).unwrap_or_default()
    }
}

impl StepFigure {
    /// Returns the name, the predicted time and the measured time.
    pub fn texts(self) -> [String; 3] {
        let predicted = self.predicted.map_or_else(|| "unknown".to_owned(), show_duration);
        [self.name, predicted, show_duration(self.measured)]
    }
}

/// Returns a line for each variable whose lag is too small, with the lag to write.
pub fn lag_advice(plan: &PlannedRun) -> Vec<String> {
    let min_wait = plan.step.mul_f64(MIN_WAIT_SHARE);
    let wait_of = |component: &str| -> Duration {
        plan.variables.iter().filter(|variable| variable.to == component).map(|variable| variable.wait).sum()
    };
    let waiting = plan.variables.iter().filter(|variable| wait_of(&variable.to) > min_wait);
    let line = |variable: &PlannedVariable| {
        let PlannedVariable { name, lag, .. } = variable;
        let wait = show_duration(variable.wait);
        match variable.needed_lag {
            Some(needed) if needed > *lag && variable.wait > min_wait => {
                Some(format!("lag {lag} of `{name}` waits {wait} a step: set lag = {needed} in [variable.{name}]"))
            }
            Some(needed) if needed > *lag => {
                Some(format!("lag {lag} of `{name}` is too small, too: set lag = {needed} in [variable.{name}]"))
            }
            Some(_) => None,
            None if variable.wait <= min_wait => None,
            None => Some(format!(
                "`{name}` waits {wait} a step with any lag: the path needs more time for the fields of {} than a step has",
                variable.from
            )),
        }
    };
    waiting.filter_map(line).collect()
}
