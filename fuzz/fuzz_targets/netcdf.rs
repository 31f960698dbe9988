//! Any bytes as a NetCDF file: each small variable is read without a panic, and has the size of its shape.

#![no_main]

use lfn_couple::netcdf::{NetcdfFile, StoredType};
use libfuzzer_sys::fuzz_target;

/// Maximum number of elements that are read. The coupling file bounds those of a run.
const MAX_POINTS: u64 = 100_000;

fuzz_target!(|bytes: Vec<u8>| {
    let Ok(file) = NetcdfFile::open(&bytes) else { return };
    for (name, variable) in file.variables() {
        let StoredType::Field(element) = variable.element else { continue };
        let points = variable.shape.iter().fold(1_u64, |points, length| points.saturating_mul(*length));
        if points > MAX_POINTS {
            continue;
        }
        let units = variable.units.clone().unwrap_or_default();
        if let Ok(data) = file.field(name, element, &variable.shape, &units) {
            assert_eq!(data.len() as u64, points * element.size() as u64);
        }
    }
});
