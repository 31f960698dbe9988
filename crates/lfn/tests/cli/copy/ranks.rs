//! Copies of several ranks, started by real launchers and by hand.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use serde_json::Value;

use super::{Pair, content, text};
use crate::support::server::assert_refused;
use crate::support::skip::{Missing, skip};
use crate::support::{eventually, is_root, lfn, lfn_path, missing_program};

impl Pair {
    /// Returns the destination `path` as a command-line argument.
    fn place(&self, path: &str) -> String {
        self.server.ticket.replace('#', &format!("/{path}#"))
    }

    /// Runs a launcher with `lfn copy --ranks` and these arguments. Returns the reports in the order of the ranks: a launcher
    /// mixes the output of its processes.
    fn launch(&self, mut launcher: Command, ranks: usize, arguments: &[&str]) -> Vec<Value> {
        let reports = self.near("report");
        let script = "exec \"$0\" copy --ranks --json \"$@\" > \"$REPORT${OMPI_COMM_WORLD_RANK:-$SLURM_PROCID}\"";
        launcher.args(["sh", "-c", script]).arg(lfn_path()).args(arguments);
        let output = launcher.env("HOME", self.home.path()).env("REPORT", &reports).output().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        let read = |rank: usize| fs::read(format!("{}{rank}", reports.display())).unwrap();
        (0..ranks).map(|rank| serde_json::from_slice(&read(rank)).unwrap()).collect()
    }

    fn rank(&self, rank: &str, arguments: &[&str]) -> Child {
        let mut command = lfn();
        command.args(["copy", "--rank", rank]).args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        command.spawn().unwrap()
    }
}

#[track_caller]
fn check_reports(reports: &[Value], job: &str) {
    let mut moved = 0;
    for (rank, report) in reports.iter().enumerate() {
        assert_eq!(report["ranks"]["rank"], rank);
        assert!(report["ranks"]["job"].as_str().unwrap().starts_with(job), "{report}");
        assert_eq!(report["ranks"]["ranks"].as_array().unwrap().len(), reports.len());
        assert_eq!(report["digest_blake3"], reports[0]["digest_blake3"]);
        moved += report["moved_bytes"].as_u64().unwrap();
    }
    assert_eq!(reports[0]["ranks"]["bytes"], moved, "each block was sent once");
}

#[test]
fn mpirun_numbers_the_ranks() {
    if let Some(missing) = missing_program(&["mpirun"]) {
        return skip("mpirun_numbers_the_ranks", &missing);
    }
    let pair = Pair::new();
    let data = content(3_000_001);
    fs::write(pair.near("field"), &data).unwrap();
    let mut launcher = Command::new("mpirun");
    launcher.args(["-n", "4", "--oversubscribe", "--allow-run-as-root"]);
    let field = pair.near("field");
    let reports = pair.launch(launcher, 4, &[field.to_str().unwrap(), &pair.place("there")]);
    check_reports(&reports, "Open MPI ");
    assert!(fs::read(pair.far("there")).unwrap() == data);
}

#[test]
fn mpirun_ranks_receive_one_file() {
    if let Some(missing) = missing_program(&["mpirun"]) {
        return skip("mpirun_ranks_receive_one_file", &missing);
    }
    let pair = Pair::new();
    let data = content(20_000_001);
    fs::write(pair.far("field"), &data).unwrap();
    let mut launcher = Command::new("mpirun");
    launcher.args(["-n", "3", "--oversubscribe", "--allow-run-as-root"]);
    let there = pair.near("there");
    let reports = pair.launch(launcher, 3, &[&pair.place("field"), there.to_str().unwrap()]);
    check_reports(&reports, "Open MPI ");
    assert_eq!(reports[1]["ranks"]["direction"], "download");
    assert!(fs::read(&there).unwrap() == data);
    let text = pair.rank("0/1", &[&pair.place("field"), "null:"]).wait_with_output().unwrap();
    assert!(text_of_ranks(&text.stdout).starts_with("1 ranks received 20 MB in "), "{text:?}");
}

#[test]
fn page_and_picture_show_each_rank() {
    let pair = Pair::new();
    fs::write(pair.near("field"), content(3_000_000)).unwrap();
    let (field, there) = (pair.near("field").display().to_string(), pair.place("there"));
    let [page, picture] = ["report.html", "ranks.svg"].map(|name| pair.near(name));
    let files = ["--report", page.to_str().unwrap(), "--plot", picture.to_str().unwrap()];
    let other = pair.rank("1/2", &[&field, &there]);
    let first = pair.rank("0/2", &[&[field.as_str(), &there], &files[..]].concat()).wait_with_output().unwrap();
    assert!(first.status.success() && other.wait_with_output().unwrap().status.success(), "{}", text(&first.stderr));
    let page = fs::read_to_string(page).unwrap();
    for part in
        ["<td>rank 0</td>", "<td>rank 1</td>", "<td>100 %</td>", "<svg", "&quot;lfn.copy/3&quot;", "2 ranks sent 3 MB"]
    {
        assert!(page.contains(part), "{part}");
    }
    assert!(!page.contains(pair.server.ticket.split(['@', '/']).nth(2).unwrap()), "the page contains the token");
    let picture = fs::read_to_string(picture).unwrap();
    assert!(["all 2 ranks", "rank 0", "rank 1"].iter().all(|name| picture.contains(name)), "{picture}");
}

/// Returns the line about all ranks.
fn text_of_ranks(stdout: &[u8]) -> String {
    text(stdout).lines().find(|line| line.contains(" ranks ")).unwrap_or_default().to_owned()
}

#[test]
fn srun_numbers_the_ranks() {
    const TEST: &str = "srun_numbers_the_ranks";
    if !is_root() {
        return skip(TEST, &Missing::User("root, for the daemons of Slurm"));
    }
    if let Some(missing) = missing_program(&["srun", "slurmctld", "slurmd", "munged"]) {
        return skip(TEST, &missing);
    }
    let pair = Pair::new();
    let data = content(2_000_000);
    fs::write(pair.near("field"), &data).unwrap();
    let slurm = SlurmNode::start();
    let mut launcher = Command::new("srun");
    launcher.args(["-n", "3"]).env("SLURM_CONF", &slurm.configuration);
    let field = pair.near("field");
    let arguments = [field.to_str().unwrap(), &pair.place("there"), "--assign", "staggered"];
    check_reports(&pair.launch(launcher, 3, &arguments), "Slurm 1.");
    assert!(fs::read(pair.far("there")).unwrap() == data);
}

/// Slurm and munge on this host, with their files and ports of their own.
struct SlurmNode {
    configuration: PathBuf,
    daemons: Vec<Child>,
    _directory: tempfile::TempDir,
}

impl SlurmNode {
    fn start() -> Self {
        let directory = tempfile::Builder::new().prefix("slurm").tempdir_in("/tmp").unwrap();
        let path = |name: &str| directory.path().join(name);
        for name in ["state", "spool"] {
            fs::create_dir(path(name)).unwrap();
        }
        fs::write(path("key"), [7; 1024]).unwrap();
        let permissions = |path: &Path, mode| {
            fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
        };
        permissions(&path("key"), 0o400);
        permissions(directory.path(), 0o755);
        let host = fs::read_to_string("/proc/sys/kernel/hostname").unwrap();
        let host = host.trim().split('.').next().unwrap_or_default().to_owned();
        // Both are open at the same time, so that they differ.
        let listeners = [0, 1].map(|_| TcpListener::bind("127.0.0.1:0").unwrap());
        let [controller, daemon] = listeners.map(|listener| listener.local_addr().unwrap().port());
        let here = directory.path().display();
        let settings = format!(
            "ClusterName=test\nSlurmctldHost={host}(127.0.0.1)\nSlurmUser=root\nSlurmctldPort={controller}\nSlurmdPort={daemon}\n\
             AuthType=auth/munge\nAuthInfo=socket={here}/munge\nStateSaveLocation={here}/state\nSlurmdSpoolDir={here}/spool\n\
             SlurmctldPidFile={here}/slurmctld.pid\nSlurmdPidFile={here}/slurmd.pid\nProctrackType=proctrack/linuxproc\n\
             TaskPlugin=task/none\nSchedulerType=sched/builtin\nSelectType=select/cons_tres\nSelectTypeParameters=CR_Core\n\
             ReturnToService=2\nMpiDefault=none\nSlurmdParameters=config_overrides\n\
             NodeName={host} NodeAddr=127.0.0.1 CPUs=8 State=UNKNOWN\nPartitionName=all Nodes=ALL Default=YES State=UP\n",
        );
        let configuration = path("slurm.conf");
        fs::write(&configuration, settings).unwrap();
        let mut node = SlurmNode { configuration, daemons: Vec::new(), _directory: directory };
        let file = |option: &str, name: &str| format!("--{option}={}/{name}", node._directory.path().display());
        let munged = [
            "--foreground".into(),
            "--force".into(),
            file("key-file", "key"),
            file("socket", "munge"),
            file("pid-file", "munged.pid"),
            file("log-file", "munged.log"),
            file("seed-file", "seed"),
        ];
        node.spawn("/usr/sbin/munged", &munged);
        let socket = node._directory.path().join("munge");
        assert!(eventually(|| socket.exists()));
        let configured = ["-D".to_owned(), "-f".into(), node.configuration.display().to_string()];
        node.spawn("/usr/sbin/slurmctld", &configured);
        let configuration = node.configuration.clone();
        let reply = |program: &str, arguments: &[&str]| {
            let output = Command::new(program).args(arguments).env("SLURM_CONF", &configuration).output();
            text(&output.unwrap().stdout)
        };
        // A daemon that finds no controller tries again only much later.
        assert!(eventually(|| reply("scontrol", &["ping"]).contains(" is UP")), "slurmctld does not answer");
        let is_idle = |state: &str| state.trim() == "idle";
        node.spawn("/usr/sbin/slurmd", &configured);
        let state = || reply("sinfo", &["-h", "-o", "%t"]);
        assert!(eventually(|| is_idle(&state())), "the node of Slurm is not idle: {}", state());
        node
    }

    fn spawn(&mut self, program: &str, arguments: &[String]) {
        let mut command = Command::new(program);
        command.args(arguments).env("SLURM_CONF", &self.configuration);
        self.daemons.push(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    }
}

impl Drop for SlurmNode {
    fn drop(&mut self) {
        for daemon in self.daemons.iter_mut().rev() {
            let _ = daemon.kill();
            let _ = daemon.wait();
        }
    }
}

#[test]
fn ranks_started_by_hand_share_a_file() {
    let pair = Pair::new();
    let data = content(2_500_000);
    fs::write(pair.near("field"), &data).unwrap();
    let (field, there) = (pair.near("field"), pair.place("there"));
    let arguments = [field.to_str().unwrap(), &there];
    let ranks = ["0/2", "1/2"].map(|rank| pair.rank(rank, &arguments));
    let outputs = ranks.map(|child| child.wait_with_output().unwrap());
    assert!(outputs.iter().all(|output| output.status.success()), "{outputs:?}");
    let [first, second] = outputs.map(|output| text(&output.stdout));
    let digest = format!("blake3 {}", blake3::hash(&data));
    assert!(first.contains("2 ranks sent 2.5 MB in ") && first.contains(&digest), "{first}");
    // Only rank 0 prints the sum.
    assert!(!second.contains("2 ranks") && second.contains(&digest), "{second}");
    assert!(fs::read(pair.far("there")).unwrap() == data);
}

#[test]
fn killed_rank_continues_after_its_restart() {
    let pair = Pair::new();
    let data = content(4_000_000);
    fs::write(pair.near("first"), &data[..2_000_000]).unwrap();
    fs::write(pair.near("second"), &data[2_000_000..]).unwrap();
    let [first, second] = ["first", "second"].map(|name| pair.near(name));
    let there = pair.place("there");
    let slow = ["--rate", "8mbit", "--streams", "1"];
    let offsets =
        [["--offset", "0", first.to_str().unwrap(), &there], ["--offset", "2000000", second.to_str().unwrap(), &there]];
    let stays = pair.rank("0/2", &[&slow[..], &offsets[0]].concat());
    let mut killed = pair.rank("1/2", &[&slow[..], &offsets[1]].concat());
    assert!(eventually(|| pair.far(".there.lfn-partial").exists()));
    killed.kill().unwrap();
    killed.wait().unwrap();
    let again = pair.rank("1/2", &offsets[1]).wait_with_output().unwrap();
    assert!(again.status.success(), "{}", text(&again.stderr));
    assert!(stays.wait_with_output().unwrap().status.success());
    assert!(fs::read(pair.far("there")).unwrap() == data);
}

#[test]
fn missing_rank_exits_with_3() {
    let pair = Pair::new();
    fs::write(pair.near("part"), content(100_000)).unwrap();
    let (part, there) = (pair.near("part"), pair.place("there"));
    let alone = pair.rank("1/2", &["--offset", "100kB", "--patience", "300ms", part.to_str().unwrap(), &there]);
    let output = alone.wait_with_output().unwrap();
    assert_refused(&output, 3, "rank 0 of 2 did not come for ");
    assert!(text(&output.stderr).contains("hint: start the rank again with the same command"));
}

#[test]
fn ranks_without_a_valid_place_are_refused() {
    let copy = |variables: &[(&str, &str)], arguments: &[&str]| {
        let mut command = lfn();
        for name in ["OMPI_COMM_WORLD_RANK", "PMI_RANK", "SLURM_PROCID", "JOB_COMPLETION_INDEX"] {
            command.env_remove(name);
        }
        command.envs(variables.iter().copied()).arg("copy").args(arguments).output().unwrap()
    };
    let pair = Pair::new();
    fs::write(pair.near("part"), "x").unwrap();
    let (part, there) = (pair.near("part").display().to_string(), pair.place("there"));
    let kubernetes = [("JOB_COMPLETION_INDEX", "3")];
    let slurm = [("SLURM_PROCID", "1"), ("SLURM_NTASKS", "4"), ("PMI_RANK", "2"), ("PMI_SIZE", "4")];
    for (variables, flags, text) in [
        (&[][..], &["--ranks"][..], "no launcher has set a rank"),
        (&kubernetes, &["--ranks"], "Kubernetes has set a rank, but not the number of ranks"),
        (&kubernetes, &["--ranks=3"], "Kubernetes has set JOB_COMPLETION_INDEX to 3, but there are 3 ranks"),
        (&slurm, &["--ranks"], "the launchers contradict each other: PMI sets rank 2 of 4, Slurm sets rank 1 of 4"),
        (&[], &["--rank", "8/8"], "rank 8 of 8: ranks count from 0, so the highest is 7"),
        (&[], &["--rank", "3"], "give two numbers, such as 3/8"),
        (&[], &["--offset", "5"], "--offset is the place of a rank's part, but this copy has no ranks"),
        (&[], &["--rank", "0/2", "--delete"], "--delete cannot be used by several ranks"),
        (&[], &["--rank", "0/2", "--checksum"], "--checksum cannot be used by several ranks"),
    ] {
        assert_refused(&copy(variables, &[flags, &[&part, &there]].concat()), 2, text);
    }
    let part_of_download = copy(&[], &["--rank", "0/2", "--offset", "5", &there, &part]);
    assert_refused(&part_of_download, 2, "--offset is the place of a part that this rank has, but a download writes");
    let local = copy(&[], &["--rank", "0/2", &part, &format!("{part}.copy")]);
    assert_refused(&local, 2, "ranks copy between this host and one server, and these places are others");
    let alone = copy(&kubernetes, &["--ranks=4", "--patience", "100ms", "--offset", "0", &part, &there]);
    assert_refused(&alone, 3, "rank 0 of 4 did not come for ");
}
