//! A setting that changes by a timetable: steps since the link's epoch, perhaps over and over.
//!
//! Rate, delay and loss of a moving link are given as such timetables (traces, handovers), and a constant is one of one
//! step. It is a function of time and holds no position, so every stage may ask it about any instant.

use std::sync::Arc;
use std::time::Duration;

/// A value that is constant between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Varying<T> {
    /// Sorted by time; the first is at zero.
    steps: Arc<[(Duration, T)]>,
    /// After so long it starts over; without it the last value stays.
    period: Option<Duration>,
}

/// Why a timetable is none.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum VaryingError {
    /// It says nothing about any time.
    #[error("a timetable without steps")]
    Empty,
    /// Times must count up from zero.
    #[error("step {0} of the timetable is not later than the one before it, or the first is not at zero")]
    Order(usize),
    /// Starting over must come after the last step.
    #[error("the timetable starts over before its last step")]
    Period,
}

impl<T: Copy> Varying<T> {
    /// The same for ever.
    pub fn constant(value: T) -> Self {
        Varying { steps: Arc::new([(Duration::ZERO, value)]), period: None }
    }

    /// Steps from zero on, in order of time; with a `period` they repeat.
    pub fn new(steps: Vec<(Duration, T)>, period: Option<Duration>) -> Result<Self, VaryingError> {
        let &(last, _) = steps.last().ok_or(VaryingError::Empty)?;
        let times = || steps.iter().map(|(at, _)| *at);
        if times().next() != Some(Duration::ZERO) {
            return Err(VaryingError::Order(0));
        }
        if let Some(index) = times().zip(times().skip(1)).position(|(before, after)| after <= before) {
            return Err(VaryingError::Order(index + 1));
        }
        if period.is_some_and(|period| period <= last) {
            return Err(VaryingError::Period);
        }
        Ok(Varying { steps: steps.into(), period })
    }

    /// The value so long after the epoch.
    pub fn at(&self, since: Duration) -> T {
        self.steps[self.index(self.phase(since))].1
    }

    /// When, since the epoch, the next step comes after `since`, whether or not it changes the value.
    pub fn step_after(&self, since: Duration) -> Option<Duration> {
        let phase = self.phase(since);
        let began = since - phase;
        match (self.steps.get(self.index(phase) + 1), self.period) {
            (Some((at, _)), _) => began.checked_add(*at),
            (None, Some(period)) => began.checked_add(period),
            (None, None) => None,
        }
    }

    /// What it was made of: the steps of one period, or of all time.
    pub fn steps(&self) -> &[(Duration, T)] {
        &self.steps
    }

    /// After how long it starts over, if it does.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Every value it ever has.
    pub fn values(&self) -> impl Iterator<Item = T> + '_ {
        self.steps.iter().map(|(_, value)| *value)
    }

    /// The value, if there is only one.
    pub fn as_constant(&self) -> Option<T> {
        match &*self.steps {
            [(_, value)] => Some(*value),
            _ => None,
        }
    }

    fn phase(&self, since: Duration) -> Duration {
        match self.period {
            Some(period) => {
                let nanos = since.as_nanos() % period.as_nanos().max(1);
                // A remainder of a Duration's nanoseconds by another's fits in 64 bits after 584 years only.
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            None => since,
        }
    }

    /// The step in force at `phase`. The first is at zero, so there is one.
    fn index(&self, phase: Duration) -> usize {
        self.steps.partition_point(|(at, _)| *at <= phase).saturating_sub(1)
    }
}

impl<T: Copy> From<T> for Varying<T> {
    fn from(value: T) -> Self {
        Varying::constant(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn a_timetable_is_read_at_any_time_and_starts_over() {
        let once = Varying::new(vec![(ms(0), 'a'), (ms(10), 'b'), (ms(15), 'c')], None).unwrap();
        let again = Varying::new(vec![(ms(0), 'a'), (ms(10), 'b'), (ms(15), 'c')], Some(ms(20))).unwrap();
        for (at, first, later) in
            [(0, 'a', 'a'), (9, 'a', 'a'), (10, 'b', 'b'), (19, 'c', 'c'), (20, 'c', 'a'), (55, 'c', 'c')]
        {
            assert_eq!((once.at(ms(at)), again.at(ms(at))), (first, later), "{at} ms");
        }
        assert_eq!(
            [0, 10, 14, 15, 99].map(|at| once.step_after(ms(at))),
            [Some(ms(10)), Some(ms(15)), Some(ms(15)), None, None]
        );
        assert_eq!([0, 19, 20, 35].map(|at| again.step_after(ms(at))), [10, 20, 30, 40].map(|at| Some(ms(at))));
        assert_eq!(Varying::from(7).as_constant(), Some(7));
        assert_eq!(Varying::from(7).step_after(Duration::ZERO), None);
    }

    #[test]
    fn what_is_no_timetable_is_refused() {
        assert_eq!(Varying::<u8>::new(vec![], None), Err(VaryingError::Empty));
        assert_eq!(Varying::new(vec![(ms(1), 1)], None), Err(VaryingError::Order(0)));
        assert_eq!(Varying::new(vec![(ms(0), 1), (ms(5), 1), (ms(5), 1)], None), Err(VaryingError::Order(2)));
        assert_eq!(Varying::new(vec![(ms(0), 1), (ms(5), 1)], Some(ms(5))), Err(VaryingError::Period));
    }
}
