//! A setting that changes at fixed times: steps since the link's epoch, optionally repeated.
//!
//! Traces and handovers give the rate, delay and loss of a moving link as timetables. A constant is a timetable of one
//! step. A timetable is a function of time without a position, so every stage can ask for any instant.

use std::sync::Arc;
use std::time::Duration;

/// Value that is constant between steps.
#[derive(Clone, Debug, PartialEq)]
pub struct Timetable<T> {
    /// Sorted by time. The first step is at zero.
    steps: Arc<[(Duration, T)]>,
    /// Time after which the timetable starts again. Without a period the last value stays.
    period: Option<Duration>,
}

/// Reason why steps do not form a timetable.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TimetableError {
    #[error("the timetable has no steps")]
    Empty,
    /// The times must increase from zero.
    #[error("step {0} of the timetable is not later than the previous step, or the first step is not at zero")]
    Order(usize),
    /// The period must end after the last step.
    #[error("the timetable repeats before its last step")]
    Period,
}

impl<T: Copy> Timetable<T> {
    /// Creates a timetable with one value for all time.
    pub fn constant(value: T) -> Self {
        Timetable { steps: Arc::new([(Duration::ZERO, value)]), period: None }
    }

    /// Creates a timetable of steps from zero on, in order of time. With a `period` the steps repeat.
    pub fn new(steps: Vec<(Duration, T)>, period: Option<Duration>) -> Result<Self, TimetableError> {
        let &(last, _) = steps.last().ok_or(TimetableError::Empty)?;
        let times = || steps.iter().map(|(at, _)| *at);
        if times().next() != Some(Duration::ZERO) {
            return Err(TimetableError::Order(0));
        }
        if let Some(index) = times().zip(times().skip(1)).position(|(before, after)| after <= before) {
            return Err(TimetableError::Order(index + 1));
        }
        if period.is_some_and(|period| period <= last) {
            return Err(TimetableError::Period);
        }
        Ok(Timetable { steps: steps.into(), period })
    }

    /// Returns the value at a time since the epoch.
    pub fn value_at(&self, since: Duration) -> T {
        self.steps[self.index(self.phase(since))].1
    }

    /// Returns the time (since the epoch) of the next step after `since`, whether or not this step changes the value.
    pub fn next_step_after(&self, since: Duration) -> Option<Duration> {
        let phase = self.phase(since);
        let began = since - phase;
        match (self.steps.get(self.index(phase) + 1), self.period) {
            (Some((at, _)), _) => began.checked_add(*at),
            (None, Some(period)) => began.checked_add(period),
            (None, None) => None,
        }
    }

    /// Returns the steps of one period, or all steps if there is no period.
    pub fn steps(&self) -> &[(Duration, T)] {
        &self.steps
    }

    /// Returns the time after which the timetable starts again.
    pub fn period(&self) -> Option<Duration> {
        self.period
    }

    /// Returns the value of every step.
    pub fn values(&self) -> impl Iterator<Item = T> + '_ {
        self.steps.iter().map(|(_, value)| *value)
    }

    /// Returns the value if the timetable has only one step.
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
                // The remainder of one Duration's nanoseconds by another's exceeds 64 bits only after 584 years.
                Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
            }
            None => since,
        }
    }

    /// Returns the index of the step in force at `phase`. The first step is at zero, so a step always exists.
    fn index(&self, phase: Duration) -> usize {
        self.steps.partition_point(|(at, _)| *at <= phase).saturating_sub(1)
    }
}

impl<T: Copy> From<T> for Timetable<T> {
    fn from(value: T) -> Self {
        Timetable::constant(value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn ms(ms: u64) -> Duration {
        Duration::from_millis(ms)
    }

    #[test]
    fn timetable_repeats_after_its_period() {
        let once = Timetable::new(vec![(ms(0), 'a'), (ms(10), 'b'), (ms(15), 'c')], None).unwrap();
        let again = Timetable::new(vec![(ms(0), 'a'), (ms(10), 'b'), (ms(15), 'c')], Some(ms(20))).unwrap();
        for (at, first, later) in
            [(0, 'a', 'a'), (9, 'a', 'a'), (10, 'b', 'b'), (19, 'c', 'c'), (20, 'c', 'a'), (55, 'c', 'c')]
        {
            assert_eq!((once.value_at(ms(at)), again.value_at(ms(at))), (first, later), "{at} ms");
        }
        assert_eq!(
            [0, 10, 14, 15, 99].map(|at| once.next_step_after(ms(at))),
            [Some(ms(10)), Some(ms(15)), Some(ms(15)), None, None]
        );
        assert_eq!([0, 19, 20, 35].map(|at| again.next_step_after(ms(at))), [10, 20, 30, 40].map(|at| Some(ms(at))));
        assert_eq!(Timetable::from(7).as_constant(), Some(7));
        assert_eq!(Timetable::from(7).next_step_after(Duration::ZERO), None);
    }

    #[test]
    fn invalid_timetables_are_refused() {
        assert_eq!(Timetable::<u8>::new(vec![], None), Err(TimetableError::Empty));
        assert_eq!(Timetable::new(vec![(ms(1), 1)], None), Err(TimetableError::Order(0)));
        assert_eq!(Timetable::new(vec![(ms(0), 1), (ms(5), 1), (ms(5), 1)], None), Err(TimetableError::Order(2)));
        assert_eq!(Timetable::new(vec![(ms(0), 1), (ms(5), 1)], Some(ms(5))), Err(TimetableError::Period));
    }
}
