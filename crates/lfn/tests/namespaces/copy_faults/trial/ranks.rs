//! Faults of one of several ranks that make a copy together.

use std::fs;
use std::process::{Child, Output};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::{ATTEMPTS, PATIENCE, Seen, Trial, finish, kept, text};
use crate::copy_faults::fault::Fault;
use crate::copy_faults::proxy::Proxy;

/// Number of ranks of each copy with a fault.
const RANKS: u64 = 3;

/// Time that a rank is stopped: longer than the time-out of its session.
const FREEZE: Duration = Duration::from_secs(12);

impl Trial {
    /// Runs the copy with several ranks, one of which has the fault.
    pub fn run_ranks(mut self) -> Result<Seen, String> {
        if self.fault == Fault::RankPartLost {
            self.create_parts();
        } else {
            self.create_files();
        }
        let server = self.serve(None, None);
        let proxy = Proxy::start(server.address);
        let ticket = server.ticket.replace(&server.address.to_string(), &proxy.address.to_string());
        let rule = ["on-demand", "staggered"][self.draw.below(2) as usize];
        let mut ranks: Vec<Child> = (0..RANKS).map(|rank| self.start_rank(&ticket, rank, rule)).collect();
        let victim = self.draw.below(RANKS);
        let struck = self.wait_for_moment(&proxy, &mut ranks[victim as usize]);
        let pause = Duration::from_millis(self.draw.below(400));
        let mut extra = None;
        let child = &mut ranks[victim as usize];
        match self.fault {
            Fault::RankKilled | Fault::RankPartLost => {
                let _ = child.kill();
            }
            Fault::RankReturns => {
                let _ = child.kill();
                let _ = child.wait();
                thread::sleep(pause);
                *child = self.start_rank(&ticket, victim, rule);
            }
            Fault::RankTwice => extra = Some(self.start_rank(&ticket, victim, rule)),
            Fault::RankFrozen => {
                let pid = Pid::from_child(child);
                let _ = kill_process(pid, Signal::STOP);
                let others_end = Instant::now() + FREEZE;
                while Instant::now() < others_end {
                    thread::sleep(Duration::from_millis(20));
                }
                let _ = kill_process(pid, Signal::CONT);
            }
            fault => return Err(format!("not a fault of a rank: {fault}")),
        }
        let ends = ranks.into_iter().map(finish).collect::<Result<Vec<_>, _>>()?;
        extra.map(finish).transpose()?;
        self.check_final_names()?;
        self.check_ranks(&ends, victim)?;
        let mut resumed = false;
        if self.fault == Fault::RankPartLost && struck {
            // The same commands again.
            let mut attempts = 0;
            loop {
                let ranks: Vec<Child> = (0..RANKS).map(|rank| self.start_rank(&ticket, rank, rule)).collect();
                let ends = ranks.into_iter().map(finish).collect::<Result<Vec<_>, _>>()?;
                self.check_final_names()?;
                resumed |= ends.iter().any(|end| kept(end) > 0);
                if ends.iter().all(|end| end.status.success()) {
                    break;
                }
                attempts += 1;
                if attempts == ATTEMPTS {
                    return Err(format!("not done after {ATTEMPTS} attempts: {}", text(&ends[0].stderr)));
                }
            }
        }
        self.check_complete(false)?;
        Ok(Seen { struck, resumable: resumed, resumed })
    }

    /// Creates one file, and a part of it for each rank.
    fn create_parts(&mut self) {
        self.up = true;
        let mut content = vec![0; 1_000_000 + self.draw.below(10_000_000) as usize];
        lfn_base::random_data::fill_random(self.draw.next(), 0, &mut content);
        for (rank, part) in content.chunks(part_length(content.len())).enumerate() {
            fs::write(self.home.path().join(format!("near/part{rank}")), part).unwrap();
        }
        fs::create_dir(self.destination()).unwrap();
        self.versions.push([("large".into(), content)].into());
    }

    fn start_rank(&self, ticket: &str, rank: u64, rule: &str) -> Child {
        let number = format!("{rank}/{RANKS}");
        let flags = ["--rank", &number, "--patience", "2s", "--assign", rule];
        let mut command = self.command(ticket, &flags);
        if self.fault == Fault::RankPartLost {
            let offset = rank as usize * part_length(self.versions[0].values().next().unwrap().len());
            command = self.command_with(ticket, &[&format!("part{rank}"), "far:data/large"], &flags);
            command.args(["--offset", &offset.to_string()]);
        }
        command.spawn().unwrap()
    }

    /// Waits until a random part of the copy has passed. Returns whether the rank was still running.
    fn wait_for_moment(&mut self, proxy: &Proxy, victim: &mut Child) -> bool {
        let length: u64 = self.versions[0].values().map(|content| content.len() as u64).sum();
        let moment = self.draw.below(length);
        let deadline = Instant::now() + PATIENCE;
        while proxy.passed() < moment && victim.try_wait().unwrap().is_none() && Instant::now() < deadline {
            thread::sleep(Duration::from_micros(500));
        }
        victim.try_wait().unwrap().is_none()
    }

    /// Checks how each rank has ended.
    fn check_ranks(&self, ends: &[Output], victim: u64) -> Result<(), String> {
        for (end, rank) in ends.iter().zip(0..) {
            let error = text(&end.stderr);
            let is_expected = match self.fault {
                // Its copy may be complete, or it may find no other rank any more.
                Fault::RankKilled | Fault::RankFrozen if rank == victim => true,
                Fault::RankPartLost if rank == victim => true,
                Fault::RankPartLost => {
                    let is_named = error.contains(&format!("rank {victim} of {RANKS} was lost and did not return"));
                    end.status.success() || (end.status.code() == Some(3) && is_named)
                }
                // The other process with this number may have been first.
                Fault::RankTwice if rank == victim => end.status.success() || error.contains("is connected already"),
                _ => end.status.success(),
            };
            if !is_expected {
                return Err(format!(
                    "rank {rank} ended with {:?} after rank {victim} had the fault: {error}",
                    end.status.code()
                ));
            }
        }
        Ok(())
    }
}

/// Returns the length of the part of each rank except the last.
fn part_length(bytes: usize) -> usize {
    bytes.div_ceil(RANKS as usize)
}
