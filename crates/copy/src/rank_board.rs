//! The figures of all ranks of a copy, as the server reports them to each rank.

use std::sync::Arc;

use lfn_base::units::Bytes;
use lfn_session::wire::copy::ranks::RankFigures;
use parking_lot::Mutex;

use crate::part_course::PartCourse;

/// The latest figures of all ranks, and their course. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct RankBoard(Arc<Mutex<BoardState>>);

#[derive(Debug, Default)]
struct BoardState {
    figures: Option<RankFigures>,
    course: PartCourse,
}

impl RankBoard {
    pub(crate) fn set(&self, figures: RankFigures) {
        let mut state = self.0.lock();
        state.course.add(figures.time, || bytes_of(&figures));
        state.figures = Some(figures);
    }

    /// Returns the latest figures; `None` before the first report.
    pub fn figures(&self) -> Option<RankFigures> {
        self.0.lock().figures.clone()
    }

    /// Returns the bytes of each rank over time, up to the latest figures.
    pub fn course(&self) -> PartCourse {
        let state = self.0.lock();
        let mut course = state.course.clone();
        if let Some(figures) = &state.figures {
            course.finish(figures.time, bytes_of(figures));
        }
        course
    }
}

fn bytes_of(figures: &RankFigures) -> Vec<Bytes> {
    figures.ranks.iter().map(|rank| rank.bytes).collect()
}
