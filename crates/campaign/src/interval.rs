//! The 95 % interval of a point's goodput over its runs.

use lfn_base::stats::student_quantile;

use crate::run::SweepRun;

/// Mean goodput of several runs, with its accuracy.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct MeanGoodput {
    /// Mean, bits per second.
    pub mean: f64,
    /// Half the width of the 95 % interval, bits per second; `None` if nothing shows how much the runs differ.
    pub half_width: Option<f64>,
}

/// Returns the mean goodput of the runs of one point. Several runs: Student's interval of their mean. One run: its own
/// interval. `None` without runs.
pub fn mean_goodput<'a>(runs: impl Iterator<Item = &'a SweepRun>) -> Option<MeanGoodput> {
    let mut own = None;
    let rates: Vec<f64> = runs.inspect(|run| own = run.half_width).map(|run| run.goodput.as_f64()).collect();
    if rates.len() < 2 {
        return rates.first().map(|&mean| MeanGoodput { mean, half_width: own.map(|own| own.get()) });
    }
    let count = rates.len() as f64;
    let mean = rates.iter().sum::<f64>() / count;
    let variance = rates.iter().map(|rate| (rate - mean).powi(2)).sum::<f64>() / (count - 1.0);
    Some(MeanGoodput { mean, half_width: Some(quantile(rates.len() - 1) * (variance / count).sqrt()) })
}

/// Returns the 97.5 % quantile of Student's distribution. The expansion of [`student_quantile`] is too small below four
/// degrees of freedom, so these are from the table.
fn quantile(freedom: usize) -> f64 {
    match freedom {
        0 | 1 => 12.706,
        2 => 4.303,
        3 => 3.182,
        more => student_quantile(more as f64),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::schedule::tests::run;

    #[test]
    fn interval_of_several_runs_is_students() {
        let runs = [run(0, 98), run(0, 100), run(0, 102)];
        let known = mean_goodput(runs.iter()).unwrap();
        assert!((known.mean - 100.0).abs() < 1e-9);
        let expected = 4.303 * 2.0 / 3f64.sqrt();
        assert!((known.half_width.unwrap() - expected).abs() < 1e-9);
    }

    #[test]
    fn one_run_has_its_own_interval() {
        assert_eq!(mean_goodput([].iter()), None);
        let mut one = run(0, 100);
        assert_eq!(mean_goodput([one.clone()].iter()).unwrap().half_width, None);
        one.half_width = lfn_base::figure::Figure::new(3.0);
        assert_eq!(mean_goodput([one].iter()).unwrap().half_width, Some(3.0));
    }
}
