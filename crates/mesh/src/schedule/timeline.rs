//! Occupied times of resources, and the search for a time at which several resources are free. Times are whole seconds.

/// Entries that are moved in the time in which one is compared.
const ENTRIES_A_STEP: u64 = 64;

/// Time from `start` to `end`, without the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Busy {
    start: u64,
    end: u64,
}

/// Occupied times of one lane, in order. Times that touch are one.
#[derive(Debug, Clone, Default)]
struct Lane {
    busy: Vec<Busy>,
}

impl Lane {
    /// Returns the first time from `from` on at which the lane is free for `length`. Adds the compared entries to `steps`.
    fn next_free(&self, from: u64, length: u64, steps: &mut u64) -> u64 {
        let mut time = from;
        let first = self.busy.partition_point(|busy| busy.end <= time);
        for busy in &self.busy[first..] {
            *steps += 1;
            if busy.start >= time + length {
                break;
            }
            time = busy.end;
        }
        *steps += 1;
        time
    }

    /// Occupies a free time. Adds the moved entries to `steps`.
    fn occupy(&mut self, start: u64, length: u64, steps: &mut u64) {
        let end = start + length;
        let at = self.busy.partition_point(|busy| busy.end < start);
        *steps += 1 + (self.busy.len() - at) as u64 / ENTRIES_A_STEP;
        let joins_left = self.busy.get(at).is_some_and(|busy| busy.end == start);
        let right = if joins_left { at + 1 } else { at };
        let joins_right = self.busy.get(right).is_some_and(|busy| busy.start == end);
        match (joins_left, joins_right) {
            (true, true) => {
                self.busy[at].end = self.busy[right].end;
                self.busy.remove(right);
            }
            (true, false) => self.busy[at].end = end,
            (false, true) => self.busy[at].start = start,
            (false, false) => self.busy.insert(at, Busy { start, end }),
        }
    }
}

/// Occupied times of one resource: one lane for each load that the resource carries at once.
#[derive(Debug, Clone)]
struct Lanes {
    /// Lanes that have been used. The other ones are free.
    used: Vec<Lane>,
    /// Number of all lanes.
    count: u64,
}

impl Lanes {
    fn next_free(&self, from: u64, length: u64, steps: &mut u64) -> u64 {
        if (self.used.len() as u64) < self.count {
            *steps += 1;
            return from;
        }
        let mut first = u64::MAX;
        for lane in &self.used {
            first = first.min(lane.next_free(from, length, steps));
            if first == from {
                break;
            }
        }
        first
    }

    fn occupy(&mut self, start: u64, length: u64, steps: &mut u64) {
        for lane in &mut self.used {
            if lane.next_free(start, length, steps) == start {
                return lane.occupy(start, length, steps);
            }
        }
        if (self.used.len() as u64) < self.count {
            let mut lane = Lane::default();
            lane.occupy(start, length, steps);
            self.used.push(lane);
        }
    }
}

/// Occupied times of all resources.
#[derive(Debug, Clone)]
pub struct Timelines {
    resources: Vec<Lanes>,
    /// Compared and moved entries so far: a measure of work that is the same on every host.
    pub steps: u64,
}

/// Time in which a load must be placed: it starts at `start` or later and ends at `end` or earlier, with its guard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PlacingSpan {
    pub start: u64,
    pub end: u64,
}

impl Timelines {
    /// Creates free resources with these numbers of lanes.
    pub fn new(lanes: &[u64]) -> Self {
        let free = |count: &u64| Lanes { used: Vec::new(), count: *count };
        Timelines { resources: lanes.iter().map(free).collect(), steps: lanes.len() as u64 }
    }

    /// Returns the first time in the span at which all resources are free for `length`.
    pub fn first_free(&mut self, resources: &[u32], span: PlacingSpan, length: u64) -> Option<u64> {
        let mut time = span.start;
        loop {
            let before = time;
            for resource in resources {
                time = self.resources[*resource as usize].next_free(time, length, &mut self.steps);
                if time + length > span.end {
                    return None;
                }
            }
            if time == before {
                return Some(time);
            }
        }
    }

    /// Occupies the resources for a time at which they are free.
    pub fn occupy(&mut self, resources: &[u32], start: u64, length: u64) {
        for resource in resources {
            self.resources[*resource as usize].occupy(start, length, &mut self.steps);
        }
    }

    /// Returns the first resource that has no free time of this length in the span.
    pub fn full_resource(&mut self, resources: &[u32], span: PlacingSpan, length: u64) -> Option<u32> {
        resources.iter().copied().find(|resource| self.first_free(&[*resource], span, length).is_none())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn lanes_never_overlap_and_stay_merged(lengths in prop::collection::vec((0..200_u64, 1..20_u64), 1..60)) {
            let mut lane = Lane::default();
            let mut total = 0;
            for (from, length) in lengths {
                let start = lane.next_free(from, length, &mut 0);
                prop_assert!(start >= from && lane.next_free(start, length, &mut 0) == start);
                lane.occupy(start, length, &mut 0);
                total += length;
            }
            prop_assert_eq!(lane.busy.iter().map(|busy| busy.end - busy.start).sum::<u64>(), total);
            prop_assert!(lane.busy.windows(2).all(|pair| pair[0].end < pair[1].start));
        }
    }

    #[test]
    fn a_load_waits_for_all_of_its_resources() {
        let mut timelines = Timelines::new(&[1, 1, 2]);
        timelines.occupy(&[0], 0, 10);
        timelines.occupy(&[1], 12, 10);
        timelines.occupy(&[2], 0, 30);
        let span = PlacingSpan { start: 0, end: 100 };
        assert_eq!(timelines.first_free(&[0, 1, 2], span, 5), Some(22));
        assert_eq!(timelines.first_free(&[0, 1, 2], span, 2), Some(10));
        assert_eq!(timelines.first_free(&[0, 1], PlacingSpan { start: 0, end: 20 }, 5), None);
        assert_eq!(timelines.full_resource(&[0, 1], PlacingSpan { start: 0, end: 15 }, 5), None);
        assert_eq!(timelines.full_resource(&[0, 1], PlacingSpan { start: 8, end: 15 }, 5), Some(1));
    }
}
