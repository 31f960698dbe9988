//! The place of this process among the ranks of a job, from the variables of its launcher.
//!
//! No library of a launcher is used. The variables are those of Slurm (srun(1), "output environment variables"), Open MPI
//! (mpirun(1)), PMI (MPICH, Intel MPI) and Kubernetes (indexed jobs).

use std::fmt;

use lfn_session::wire::copy::ranks::MAX_RANKS;

/// The variables of one launcher.
#[derive(Debug)]
struct Launcher {
    name: &'static str,
    rank: &'static str,
    /// Variables with the number of ranks; the first one that is set counts.
    ranks: &'static [&'static str],
    /// Variables that name the job. Those that are set are joined.
    job: &'static [&'static str],
}

/// The launchers, those that start processes within another launcher's job first.
const LAUNCHERS: [Launcher; 4] = [
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        ranks: &["OMPI_COMM_WORLD_SIZE"],
        job: &["PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"],
    },
    Launcher { name: "PMI", rank: "PMI_RANK", ranks: &["PMI_SIZE"], job: &["PMI_JOBID"] },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        ranks: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        job: &["SLURM_JOB_ID", "SLURM_STEP_ID"],
    },
    Launcher { name: "Kubernetes", rank: "JOB_COMPLETION_INDEX", ranks: &[], job: &["JOB_NAME"] },
];

/// The place of this process among the ranks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LaunchedRank {
    /// Number of the rank, from 0.
    pub rank: u16,
    pub ranks: u16,
    /// Name of the job; `None` if the launcher names none.
    pub job: Option<String>,
}

/// Reason why the place is not known.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LauncherError {
    #[error("no launcher has set a rank: none of {} is set", RankVariables)]
    NoRank,
    #[error("{launcher} has set {variable} to {value:?}, which is no number from 0 to {}", MAX_RANKS)]
    NotANumber { launcher: &'static str, variable: &'static str, value: String },
    #[error("{0} has set a rank, but not the number of ranks")]
    NoSize(&'static str),
    #[error("{launcher} has set {variable} to {rank}, but there are {ranks} ranks: the highest is {}", .ranks.saturating_sub(1))]
    OutOfRange { launcher: &'static str, variable: &'static str, rank: u16, ranks: u16 },
    #[error(
        "the launchers contradict each other: {first} sets rank {rank} of {ranks}, {second} sets rank {other_rank} of {other_ranks}"
    )]
    Contradiction {
        first: &'static str,
        rank: u16,
        ranks: u16,
        second: &'static str,
        other_rank: u16,
        other_ranks: u16,
    },
    #[error("--ranks={given}, but {launcher} has started {ranks}")]
    OtherSize { given: u16, launcher: &'static str, ranks: u16 },
}

impl LauncherError {
    /// Returns the action for the user.
    pub fn hint(&self) -> &'static str {
        match self {
            LauncherError::NoRank => {
                "start it with srun or mpirun, or number the ranks by hand: --rank 0/8 is the first of eight"
            }
            LauncherError::NoSize(_) => "give the number: --ranks=8",
            LauncherError::NotANumber { .. }
            | LauncherError::OutOfRange { .. }
            | LauncherError::Contradiction { .. } => "number the ranks by hand: --rank 0/8 is the first of eight",
            LauncherError::OtherSize { .. } => "omit the number after --ranks",
        }
    }
}

/// The names of the variables with a rank.
struct RankVariables;

impl fmt::Display for RankVariables {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = LAUNCHERS.iter().map(|launcher| launcher.rank).collect();
        f.write_str(&names.join(", "))
    }
}

/// Finds the place of this process. `variable` reads a variable of the environment. `given` is the number of ranks if the
/// user gave it.
pub fn find_rank(given: Option<u16>, variable: impl Fn(&str) -> Option<String>) -> Result<LaunchedRank, LauncherError> {
    let mut found: Option<(&Launcher, LaunchedRank)> = None;
    for launcher in &LAUNCHERS {
        let Some(place) = launcher.place(given, &variable)? else { continue };
        match &found {
            // mpirun starts its processes within a Slurm job, whose variables describe the step of its daemons.
            Some((first, _)) if first.name == "Open MPI" && launcher.name == "Slurm" => {}
            Some((first, known)) if (known.rank, known.ranks) != (place.rank, place.ranks) => {
                return Err(LauncherError::Contradiction {
                    first: first.name,
                    rank: known.rank,
                    ranks: known.ranks,
                    second: launcher.name,
                    other_rank: place.rank,
                    other_ranks: place.ranks,
                });
            }
            Some(_) => {}
            None => found = Some((launcher, place)),
        }
    }
    found.map(|(_, place)| place).ok_or(LauncherError::NoRank)
}

impl Launcher {
    fn place(
        &self,
        given: Option<u16>,
        variable: &impl Fn(&str) -> Option<String>,
    ) -> Result<Option<LaunchedRank>, LauncherError> {
        let number = |name: &'static str| {
            let Some(value) = variable(name).filter(|value| !value.is_empty()) else { return Ok(None) };
            let parsed = value.parse().ok().filter(|number| *number <= MAX_RANKS);
            parsed.map(Some).ok_or(LauncherError::NotANumber { launcher: self.name, variable: name, value })
        };
        let Some(rank) = number(self.rank)? else { return Ok(None) };
        let launched = self.ranks.iter().find_map(|name| number(name).transpose()).transpose()?;
        let ranks = match (launched, given) {
            (Some(ranks), Some(given)) if ranks != given => {
                return Err(LauncherError::OtherSize { given, launcher: self.name, ranks });
            }
            (Some(ranks), _) | (None, Some(ranks)) => ranks,
            (None, None) => return Err(LauncherError::NoSize(self.name)),
        };
        if rank >= ranks {
            return Err(LauncherError::OutOfRange { launcher: self.name, variable: self.rank, rank, ranks });
        }
        let parts: Vec<String> =
            self.job.iter().filter_map(|name| variable(name)).filter(|part| !part.is_empty()).collect();
        let job = (!parts.is_empty()).then(|| format!("{} {}", self.name, parts.join(".")));
        Ok(Some(LaunchedRank { rank, ranks, job }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(given: Option<u16>, variables: &[(&str, &str)]) -> Result<LaunchedRank, LauncherError> {
        let value = |name: &str| variables.iter().find(|(key, _)| *key == name).map(|(_, value)| (*value).to_owned());
        find_rank(given, value)
    }

    fn place(rank: u16, ranks: u16, job: Option<&str>) -> Result<LaunchedRank, LauncherError> {
        Ok(LaunchedRank { rank, ranks, job: job.map(str::to_owned) })
    }

    #[test]
    fn each_launcher_sets_rank_and_size() {
        let slurm = [("SLURM_PROCID", "3"), ("SLURM_NTASKS", "8"), ("SLURM_JOB_ID", "77"), ("SLURM_STEP_ID", "0")];
        assert_eq!(find(None, &slurm), place(3, 8, Some("Slurm 77.0")));
        let open_mpi = [("OMPI_COMM_WORLD_RANK", "0"), ("OMPI_COMM_WORLD_SIZE", "2"), ("PMIX_NAMESPACE", "1423")];
        assert_eq!(find(None, &open_mpi), place(0, 2, Some("Open MPI 1423")));
        assert_eq!(find(None, &[("PMI_RANK", "1"), ("PMI_SIZE", "2")]), place(1, 2, None));
        let kubernetes = [("JOB_COMPLETION_INDEX", "4"), ("JOB_NAME", "copy")];
        assert_eq!(find(Some(5), &kubernetes), place(4, 5, Some("Kubernetes copy")));
        assert_eq!(find(None, &kubernetes), Err(LauncherError::NoSize("Kubernetes")));
    }

    #[test]
    fn contradictory_variables_are_named() {
        let both = [("PMI_RANK", "1"), ("PMI_SIZE", "4"), ("SLURM_PROCID", "2"), ("SLURM_NTASKS", "4")];
        let text = "the launchers contradict each other: PMI sets rank 1 of 4, Slurm sets rank 2 of 4";
        assert_eq!(find(None, &both).unwrap_err().to_string(), text);
        let beyond = [("SLURM_PROCID", "8"), ("SLURM_NTASKS", "8")];
        let text = "Slurm has set SLURM_PROCID to 8, but there are 8 ranks: the highest is 7";
        assert_eq!(find(None, &beyond).unwrap_err().to_string(), text);
        let word = [("PMI_RANK", "one"), ("PMI_SIZE", "2")];
        assert!(find(None, &word).unwrap_err().to_string().contains("PMI_RANK to \"one\""));
        let other = [("SLURM_PROCID", "0"), ("SLURM_NTASKS", "8")];
        assert_eq!(find(Some(4), &other).unwrap_err().to_string(), "--ranks=4, but Slurm has started 8");
        assert_eq!(find(Some(4), &[]), Err(LauncherError::NoRank));
    }

    #[test]
    fn mpirun_within_a_slurm_job_counts() {
        let variables = [
            ("OMPI_COMM_WORLD_RANK", "5"),
            ("OMPI_COMM_WORLD_SIZE", "8"),
            ("SLURM_PROCID", "0"),
            ("SLURM_NTASKS", "2"),
        ];
        assert_eq!(find(None, &variables), place(5, 8, None));
    }
}
