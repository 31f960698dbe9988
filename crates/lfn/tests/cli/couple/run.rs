//! `lfn couple run`: two components on loopback, whose models are shell scripts.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use lfn_couple::coupling::ElementType;
use lfn_couple::netcdf::{FieldFile, NetcdfFile};
use tempfile::TempDir;

use crate::support::python::python_with;
use crate::support::{eventually, lfn, stderr, stdout};

/// Two components with a variable each. The atmosphere has checkpoints.
const COUPLING: &str = r#"
[coupling]
name = "test"
steps = 5
[component.atmosphere]
checkpoints = true
[component.lake]
[grid.surface]
shape = [2, 3]
[variable.wind]
from = "atmosphere"
to = "lake"
grid = "surface"
type = "float64"
units = "m s-1"
lag = 1
initial = -1.0
[variable.level]
from = "lake"
to = "atmosphere"
grid = "surface"
type = "float32"
units = "m"
"#;

/// A model that puts the prepared files `field.N.nc` as variable `$1`, and keeps the received files of variable `$2`.
const MODEL: &str = r#"
n=$LFN_COUPLE_FIRST_STEP
while [ "$n" -lt "$LFN_COUPLE_STEPS" ]; do
  cp "field.$n.nc" "$LFN_COUPLE_DIR/out/.part"
  mv "$LFN_COUPLE_DIR/out/.part" "$LFN_COUPLE_DIR/out/$1.$n.nc"
  while [ ! -e "$LFN_COUPLE_DIR/in/step.$n" ]; do sleep 0.01; done
  cp "$LFN_COUPLE_DIR/in/$2.$n.nc" "received.$n.nc"
  n=$((n + 1))
done
"#;

/// Returns a field whose elements are the value.
fn field(variable: &str, units: &str, value: f64) -> Vec<u8> {
    let element = if variable == "wind" { ElementType::Float64 } else { ElementType::Float32 };
    let (coupling, component, shape) = ("model", "model", &[2, 3][..]);
    let file = FieldFile { coupling, component, variable, units, element, shape, step: 0, put_step: None };
    file.encode(&element.encode(value).repeat(6))
}

/// A component with its directory, which is also its home directory.
struct Component {
    name: &'static str,
    variable: &'static str,
    partner_variable: &'static str,
    home: TempDir,
}

impl Component {
    /// Prepares the fields of all steps: the atmosphere puts 100, 101 and so on, the lake 200, 201 and so on.
    fn new(name: &'static str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("coupling.toml"), COUPLING).unwrap();
        let (variable, partner_variable, units, first) =
            if name == "lake" { ("level", "wind", "m", 200.0) } else { ("wind", "level", "m s-1", 100.0) };
        for step in 0..6 {
            let bytes = field(variable, units, first + f64::from(step));
            fs::write(home.path().join(format!("field.{step}.nc")), bytes).unwrap();
        }
        Component { name, variable, partner_variable, home }
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    /// Starts `lfn couple run` with flags and a model, which is a shell script.
    fn start(&self, flags: &[&str], model: &str) -> Child {
        let mut command = self.command(flags);
        command.args(["--", "sh", "-c", model, "sh", self.variable, self.partner_variable]);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    }

    fn command(&self, flags: &[&str]) -> Command {
        let mut command = lfn();
        command.args(["couple", "run", "coupling.toml", self.name]).args(flags);
        command.current_dir(self.path()).env("HOME", self.path()).env_remove("XDG_STATE_HOME");
        command.env_remove("XDG_CONFIG_HOME").stdin(Stdio::null());
        command
    }

    /// Starts the component that listens, and returns it with its ticket.
    fn listen(&self, flags: &[&str], model: &str) -> (Child, String) {
        let file = self.path().join("ticket");
        let _ = fs::remove_file(&file);
        let listen = ["--listen=127.0.0.1:0", "--ticket-file", "ticket"];
        let child = self.start(&[&listen, flags].concat(), model);
        assert!(eventually(|| file.exists()));
        (child, fs::read_to_string(file).unwrap().trim().to_owned())
    }

    /// Returns the first element of the field that the model received in a step.
    fn received(&self, step: u64) -> f64 {
        let bytes = fs::read(self.path().join(format!("received.{step}.nc"))).unwrap();
        let file = NetcdfFile::open(&bytes).unwrap();
        if self.partner_variable == "wind" {
            let data = file.field("wind", ElementType::Float64, &[2, 3], "m s-1").unwrap();
            return f64::from_le_bytes(data[..8].try_into().unwrap());
        }
        let data = file.field("level", ElementType::Float32, &[2, 3], "m").unwrap();
        f32::from_le_bytes(data[..4].try_into().unwrap()).into()
    }
}

/// Runs both components to their end; the lake listens. Returns the outputs of the lake and of the atmosphere.
fn couple(lake: &Component, of_lake: Started<'_>, atmosphere: &Component, of_atmosphere: Started<'_>) -> [Output; 2] {
    let (listening, ticket) = lake.listen(of_lake.flags, of_lake.model);
    let dialling = atmosphere.start(&[&["--dial", &ticket], of_atmosphere.flags].concat(), of_atmosphere.model);
    let atmosphere = dialling.wait_with_output().unwrap();
    [listening.wait_with_output().unwrap(), atmosphere]
}

/// Flags and model of a component.
struct Started<'a> {
    flags: &'a [&'a str],
    model: &'a str,
}

/// Returns the settings of a component without flags.
fn plain(model: &str) -> Started<'_> {
    Started { flags: &[], model }
}

fn assert_all_received(lake: &Component, atmosphere: &Component) {
    for step in 0..5 {
        let wind = if step == 0 { -1.0 } else { 100.0 + step as f64 - 1.0 };
        assert_eq!(lake.received(step), wind, "wind of step {step}");
        assert_eq!(atmosphere.received(step), 200.0 + step as f64, "level of step {step}");
    }
}

#[test]
fn models_exchange_the_files_of_all_steps() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let [of_lake, of_atmosphere] =
        couple(&lake, plain(MODEL), &atmosphere, Started { flags: &["--json"], model: MODEL });
    assert!(of_lake.status.success(), "{}", stderr(&of_lake));
    assert!(of_atmosphere.status.success(), "{}", stderr(&of_atmosphere));
    assert_all_received(&lake, &atmosphere);
    serde_json::from_str::<serde_json::Value>(&stdout(&of_atmosphere)).unwrap();
    assert!(stderr(&of_lake).contains("connected to atmosphere"), "{}", stderr(&of_lake));
}

#[test]
fn a_model_may_be_started_for_each_step() {
    let each = r#"
case $LFN_COUPLE_STEP in start) ;; *) cp "$LFN_COUPLE_DIR/in/$2.$LFN_COUPLE_STEP.nc" "received.$LFN_COUPLE_STEP.nc" ;; esac
cp "field.$LFN_COUPLE_NEXT_STEP.nc" "$LFN_COUPLE_DIR/out/$1.$LFN_COUPLE_NEXT_STEP.nc"
"#;
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let flags = ["--each-step", "--directory", "exchange", "--keep"];
    let [of_lake, of_atmosphere] = couple(&lake, Started { flags: &flags, model: each }, &atmosphere, plain(MODEL));
    assert!(of_lake.status.success(), "{}", stderr(&of_lake));
    assert!(of_atmosphere.status.success(), "{}", stderr(&of_atmosphere));
    assert_all_received(&lake, &atmosphere);
    assert!(lake.path().join("exchange/in/wind.4.nc").exists());
}

/// A model that gets a variable and puts none begins each step with a file of its own.
#[test]
fn a_model_without_own_variables_sets_its_own_pace() {
    let viewer = r#"
for n in 0 1 2 3 4; do
  : > "$LFN_COUPLE_DIR/out/step.$n"
  while [ ! -e "$LFN_COUPLE_DIR/in/step.$n" ]; do sleep 0.01; done
  sleep 0.1
  cp "$LFN_COUPLE_DIR/in/wind.$n.nc" "received.$n.nc"
done
"#;
    let source = r#"for n in 0 1 2 3 4; do cp "field.$n.nc" "$LFN_COUPLE_DIR/out/.part"; mv "$LFN_COUPLE_DIR/out/.part" "$LFN_COUPLE_DIR/out/wind.$n.nc"; done
while [ ! -e "$LFN_COUPLE_DIR/in/step.4" ]; do sleep 0.01; done"#;
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    for component in [&lake, &atmosphere] {
        let one_way = &COUPLING[..COUPLING.find("[variable.level]").unwrap()];
        fs::write(component.path().join("coupling.toml"), one_way).unwrap();
    }
    let [of_lake, of_atmosphere] =
        couple(&lake, Started { flags: &["--json"], model: viewer }, &atmosphere, plain(source));
    assert!(of_lake.status.success(), "{}", stderr(&of_lake));
    assert!(of_atmosphere.status.success(), "{}", stderr(&of_atmosphere));
    let winds: Vec<f64> = (0..5).map(|step| lake.received(step)).collect();
    assert_eq!(winds, [-1.0, 100.0, 101.0, 102.0, 103.0]);
    let document: serde_json::Value = serde_json::from_str(&stdout(&of_lake)).unwrap();
    assert!(document["measured"]["own"]["compute_seconds"].as_f64().unwrap() >= 0.4, "{document}");
}

#[test]
fn a_stop_is_seen_while_the_model_computes() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    // The lake would compute for ten minutes.
    let [of_lake, of_atmosphere] = couple(&lake, plain("exec sleep 600"), &atmosphere, plain("exit 9"));
    assert!(stderr(&of_atmosphere).contains("failed with exit code 9"), "{}", stderr(&of_atmosphere));
    assert_eq!(of_lake.status.code(), Some(1), "{}", stderr(&of_lake));
    assert!(stderr(&of_lake).contains("atmosphere stopped the run"), "{}", stderr(&of_lake));
}

#[test]
fn a_wrong_unit_is_named_at_both_ends() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    fs::write(atmosphere.path().join("field.2.nc"), field("wind", "kn", 1.0)).unwrap();
    let [of_lake, of_atmosphere] = couple(&lake, plain(MODEL), &atmosphere, plain(MODEL));
    let problem = "wind: the file has the units \"kn\", the coupling file has \"m s-1\"";
    for output in [&of_lake, &of_atmosphere] {
        assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
        assert!(stderr(output).contains(problem), "{}", stderr(output));
    }
}

#[test]
fn a_file_of_an_unknown_variable_is_named() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let misspelt = "echo x > $LFN_COUPLE_DIR/out/wnd.0.nc; sleep 600";
    let [of_lake, of_atmosphere] = couple(&lake, plain(MODEL), &atmosphere, plain(misspelt));
    for output in [&of_lake, &of_atmosphere] {
        assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
        assert!(stderr(output).contains("wnd.0.nc is not a file of a variable"), "{}", stderr(output));
    }
}

#[test]
fn a_failed_model_ends_the_run_at_both_ends() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let [of_lake, of_atmosphere] = couple(&lake, plain(MODEL), &atmosphere, plain("exit 9"));
    for output in [&of_lake, &of_atmosphere] {
        assert_eq!(output.status.code(), Some(1), "{}", stderr(output));
        assert!(stderr(output).contains("failed with exit code 9 in step 0"), "{}", stderr(output));
    }
}

#[test]
fn a_missing_program_is_named_at_both_ends() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let (listening, ticket) = lake.listen(&[], MODEL);
    let mut command = atmosphere.command(&["--dial", &ticket, "--", "/nonexistent/model"]);
    let of_atmosphere = command.output().unwrap();
    assert!(stderr(&of_atmosphere).contains("cannot start /nonexistent/model"), "{}", stderr(&of_atmosphere));
    let of_lake = listening.wait_with_output().unwrap();
    assert_eq!((of_lake.status.code(), of_atmosphere.status.code()), (Some(1), Some(1)));
    assert!(stderr(&of_lake).contains("the model cannot be started"), "{}", stderr(&of_lake));
}

#[test]
fn an_interrupt_ends_the_model_and_the_partner() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let (listening, ticket) = lake.listen(&[], MODEL);
    let dialling = atmosphere.start(&["--dial", &ticket], "echo $$ > model; exec sleep 600");
    let started = atmosphere.path().join("model");
    let is_started = || fs::read_to_string(&started).is_ok_and(|text| text.ends_with('\n'));
    assert!(eventually(is_started));
    let signalled = Command::new("kill").args(["-INT", &dialling.id().to_string()]).status().unwrap();
    assert!(signalled.success());
    let of_atmosphere = dialling.wait_with_output().unwrap();
    assert_eq!(of_atmosphere.status.code(), Some(130), "{}", stderr(&of_atmosphere));
    let model = fs::read_to_string(&started).unwrap();
    assert!(!Path::new("/proc").join(model.trim()).exists());
    let of_lake = listening.wait_with_output().unwrap();
    assert_eq!(of_lake.status.code(), Some(1), "{}", stderr(&of_lake));
    assert!(stderr(&of_lake).contains("atmosphere stopped the run"), "{}", stderr(&of_lake));
}

#[test]
fn a_wrong_token_is_refused_and_named_at_both_ends() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let (listening, ticket) = lake.listen(&[], MODEL);
    let (token, rest) = ticket.strip_prefix("lfn://").unwrap().split_once('@').unwrap();
    let first = if token.starts_with('A') { 'B' } else { 'A' };
    let wrong = format!("lfn://{first}{}@{rest}", &token[1..]);
    let refused = atmosphere.start(&["--dial", &wrong], MODEL).wait_with_output().unwrap();
    assert_eq!(refused.status.code(), Some(1), "{}", stderr(&refused));
    assert!(stderr(&refused).contains("the ticket that the partner prints"), "{}", stderr(&refused));
    // The run waits for the right partner.
    let of_atmosphere = atmosphere.start(&["--dial", &ticket], MODEL).wait_with_output().unwrap();
    let of_lake = listening.wait_with_output().unwrap();
    assert!(of_lake.status.success() && of_atmosphere.status.success(), "{}", stderr(&of_lake));
    assert!(stderr(&of_lake).contains("refused a client at 127.0.0.1:"), "{}", stderr(&of_lake));
    assert_all_received(&lake, &atmosphere);
}

#[test]
fn a_failed_model_resumes_from_its_checkpoint() {
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let (listening, ticket) = lake.listen(&[], MODEL);
    // The first process writes a checkpoint in step 2, and fails in step 3.
    let checkpoint = MODEL.replace(
        "  cp \"field",
        "  [ $n = 2 ] && : > \"$LFN_COUPLE_DIR/out/checkpoint.2\"\n  [ $n = 3 ] && [ ! -e again ] && exit 7\n  cp \"field",
    );
    let first = atmosphere.start(&["--dial", &ticket], &checkpoint).wait_with_output().unwrap();
    assert_eq!(first.status.code(), Some(3), "{}", stderr(&first));
    assert!(stderr(&first).contains("--resume"), "{}", stderr(&first));
    fs::write(atmosphere.path().join("again"), "").unwrap();
    let second = atmosphere.start(&["--dial", &ticket, "--resume"], &checkpoint).wait_with_output().unwrap();
    assert!(second.status.success(), "{}", stderr(&second));
    assert!(stderr(&second).contains("step 2 begins"), "{}", stderr(&second));
    let of_lake = listening.wait_with_output().unwrap();
    assert!(of_lake.status.success(), "{}", stderr(&of_lake));
    assert_all_received(&lake, &atmosphere);
}

#[test]
fn a_restarted_listener_has_the_same_key_and_token() {
    let lake = Component::new("lake");
    let tickets = [(); 2].map(|()| {
        let (mut child, ticket) = lake.listen(&[], MODEL);
        child.kill().unwrap();
        child.wait().unwrap();
        ticket
    });
    let without_port = |ticket: &str| {
        let (host, fingerprint) = ticket.split_once('#').unwrap();
        (host.rsplit_once(':').unwrap().0.to_owned(), fingerprint.to_owned())
    };
    assert_eq!(without_port(&tickets[0]), without_port(&tickets[1]));
}

#[test]
fn a_coupling_needs_one_way_to_meet() {
    let lake = Component::new("lake");
    for flags in [&["--", "true"][..], &["--listen", "--dial", "x", "--", "true"]] {
        let output = lake.command(flags).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
    }
    let output = lake.command(&["--listen=127.0.0.1:0"]).output().unwrap();
    assert_eq!(output.status.code(), Some(2), "{}", stderr(&output));
}

#[test]
fn python_models_exchange_compressed_netcdf4_files() {
    let python = python_with(&["netCDF4==1.7.5.1.post1", "numpy==2.4.6"]);
    let (lake, atmosphere) = (Component::new("lake"), Component::new("atmosphere"));
    let start = |component: &Component, flags: &[&str], model: &[&str]| {
        let mut command = component.command(flags);
        fs::write(component.path().join("model.py"), include_str!("netcdf4_model.py")).unwrap();
        command.arg("--").arg(&python.program).arg("model.py").args(model);
        command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
    };
    let listening =
        start(&lake, &["--listen=127.0.0.1:0", "--ticket-file", "ticket"], &["level", "m", "f4", "200", "wind"]);
    let ticket = lake.path().join("ticket");
    assert!(eventually(|| ticket.exists()));
    let ticket = fs::read_to_string(ticket).unwrap();
    let dialling = start(&atmosphere, &["--dial", ticket.trim()], &["wind", "m s-1", "f8", "100", "level"]);
    for (child, component, units, lag) in [(dialling, &atmosphere, "m", 0), (listening, &lake, "m s-1", 1)] {
        let output = child.wait_with_output().unwrap();
        assert!(output.status.success(), "{}", stderr(&output));
        let received = fs::read(component.path().join("received.json")).unwrap();
        let received: Vec<(String, Vec<f64>)> = serde_json::from_slice(&received).unwrap();
        let first = if component.name == "lake" { 100.0 } else { 200.0 };
        let expected = (0..5).map(|step: u32| {
            let field = |put: u32| (0..6).map(|n| first + f64::from(10 * put + n)).collect();
            (units.to_owned(), step.checked_sub(lag).map_or(vec![-1.0; 6], field))
        });
        assert_eq!(received, expected.collect::<Vec<_>>());
    }
}
