#![allow(clippy::unwrap_used, reason = "a test")]

use std::fs;
use std::thread;
use std::time::{Duration, Instant};

use lfn_couple::Coupling;
use lfn_couple::coupling::ElementType;
use lfn_couple::netcdf::{FieldFile, NetcdfError};

use super::directory::{ExchangeDirectory, parse_field_name};
use super::error::CoupleRunError;
use super::model::ModelProcess;
use super::watch::DirectoryWatch;

const COUPLING: &str = r#"
[coupling]
name = "test"
steps = 3
[component.a]
[component.b]
[grid.line]
shape = [4]
[variable.heat]
from = "a"
to = "b"
grid = "line"
type = "int32"
units = "W m-2"
[variable.ice]
from = "b"
to = "a"
grid = "line"
type = "int32"
units = "m"
"#;

fn coupling() -> Coupling {
    Coupling::parse(COUPLING).unwrap()
}

fn heat(units: &str) -> Vec<u8> {
    let (coupling, component, variable, shape) = ("test", "a", "heat", &[4][..]);
    let element = ElementType::Int32;
    let file = FieldFile { coupling, component, variable, units, element, shape, step: 0, put_step: None };
    file.encode(&[1_i32, 2, 3, 4].map(i32::to_le_bytes).concat())
}

#[test]
fn names_of_fields_have_a_variable_and_a_step() {
    assert_eq!(parse_field_name("heat.12.nc"), Some(("heat", 12)));
    for name in ["heat.nc", "heat.x.nc", "heat.+1.nc", "heat.1.nc.part", "heat..nc", "checkpoint.3"] {
        assert_eq!(parse_field_name(name), None, "{name}");
    }
}

#[test]
fn files_of_an_earlier_run_are_deleted_and_others_stay() {
    let home = tempfile::tempdir().unwrap();
    let stale = ["out/heat.1.nc", "out/checkpoint.1", "in/ice.7.nc", "in/step.7"];
    let others = ["out/other.1.nc", "in/step.x", "notes"];
    for directory in ["in", "out"] {
        fs::create_dir(home.path().join(directory)).unwrap();
    }
    for file in stale.iter().chain(&others) {
        fs::write(home.path().join(file), "").unwrap();
    }
    let directory = ExchangeDirectory::create(Some(home.path().to_owned()), &coupling(), false).unwrap();
    assert!(stale.iter().all(|file| !home.path().join(file).exists()));
    assert!(others.iter().all(|file| home.path().join(file).exists()));
    drop(directory);
    assert!(home.path().exists());
}

#[test]
fn fields_are_read_once_and_checked() {
    let coupling = coupling();
    let directory = ExchangeDirectory::create(None, &coupling, false).unwrap();
    fs::write(directory.own_field("heat", 2), heat("W m-2")).unwrap();
    let field = directory.take_field(&coupling, "heat", 2).unwrap();
    assert_eq!(field, [1_i32, 2, 3, 4].map(i32::to_le_bytes).concat());
    assert!(!directory.own_field("heat", 2).exists());
    fs::write(directory.own_field("heat", 2), heat("K")).unwrap();
    let error = directory.take_field(&coupling, "heat", 2).unwrap_err();
    assert!(matches!(&error, CoupleRunError::Field { source: NetcdfError::Differs { key: "units", .. }, .. }));
    // The partner needs no paths of this host.
    assert!(error.reason().starts_with("heat: the file has the units") && error.to_string().contains("/out/heat.2.nc"));
    let path = directory.path().to_owned();
    drop(directory);
    assert!(!path.exists());
}

#[test]
fn the_kernel_gives_notice_of_a_new_file() {
    let home = tempfile::tempdir().unwrap();
    let watch = DirectoryWatch::new(home.path());
    assert!(!watch.wait());
    let file = home.path().join("file");
    thread::scope(|scope| {
        scope.spawn(|| fs::write(&file, "").unwrap());
        let deadline = Instant::now() + Duration::from_secs(60);
        while !watch.wait() {
            assert!(Instant::now() < deadline);
        }
    });
}

#[test]
fn a_stopped_model_ends_with_its_children() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("child");
    let script = format!("sleep 600 & echo $! > {}; wait", file.display());
    let model = ModelProcess::new(["sh", "-c", &script].map(Into::into).to_vec());
    model.start(&[]).unwrap();
    let deadline = Instant::now() + Duration::from_secs(60);
    let child = loop {
        match fs::read_to_string(&file).unwrap_or_default().strip_suffix('\n') {
            Some(child) => break child.to_owned(),
            None => assert!(Instant::now() < deadline),
        }
        thread::sleep(Duration::from_millis(5));
    };
    assert!(model.end().is_none() && !model.has_ended_early());
    model.stop();
    assert_eq!(model.end().unwrap().to_string(), "was killed by signal 15");
    // The child may be a zombie until its new parent waits for it.
    let state = || fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
    while !(state().is_empty() || state().contains(") Z ")) {
        assert!(Instant::now() < deadline);
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn an_early_end_is_known_until_the_last_step() {
    let model = ModelProcess::new(["true".into()].to_vec());
    model.start(&[]).unwrap();
    assert!(model.wait(|| Ok(())).unwrap().is_success());
    assert!(model.has_ended_early());
    model.permit_end();
    assert!(!model.has_ended_early());
    let missing = ModelProcess::new(["/nonexistent/model".into()].to_vec()).start(&[]).unwrap_err();
    assert!(missing.hint().is_some_and(|hint| hint.contains("after --")), "{missing}");
}
