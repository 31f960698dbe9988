#![allow(clippy::unwrap_used, reason = "a test")]

use proptest::prelude::*;

use super::{FieldFile, NetcdfError, NetcdfFile, StoredType};
use crate::coupling::ElementType;

const ELEMENTS: [ElementType; 4] = [ElementType::Float32, ElementType::Float64, ElementType::Int32, ElementType::Int64];

fn file(element: ElementType, shape: &[u64]) -> FieldFile<'_> {
    let (coupling, component, variable, units) = ("lake", "atmosphere", "wind", "m s-1");
    FieldFile { coupling, component, variable, units, element, shape, step: 7, put_step: Some(3) }
}

/// Returns a file with the values 0, 1, 2 and so on.
fn counting(element: ElementType, shape: &[u64]) -> (Vec<u8>, Vec<u8>) {
    let points = shape.iter().product::<u64>();
    let data: Vec<u8> = (0..points).flat_map(|value| element.encode(value as f64)).collect();
    (file(element, shape).encode(&data), data)
}

#[test]
fn fields_of_every_type_and_rank_survive() {
    for element in ELEMENTS {
        for shape in [&[5_u64][..], &[3, 5], &[2, 3, 5], &[2, 2, 3, 5]] {
            let (bytes, data) = counting(element, shape);
            let read = NetcdfFile::open(&bytes).unwrap();
            assert_eq!(read.field("wind", element, shape, "m s-1").unwrap(), data, "{element:?} {shape:?}");
            let wind = read.variable("wind").unwrap();
            assert_eq!(wind.units.as_deref(), Some("m s-1"));
        }
    }
}

#[test]
fn only_64_bit_integers_need_cdf_5() {
    for element in ELEMENTS {
        let version = counting(element, &[2]).0[3];
        assert_eq!(version, if element == ElementType::Int64 { 5 } else { 2 });
    }
}

#[test]
fn bits_of_nan_survive() {
    let data = [f64::NAN.to_bits() | 0x1234, (-0.0_f64).to_bits()].map(u64::to_le_bytes).concat();
    let bytes = file(ElementType::Float64, &[2]).encode(&data);
    let read = NetcdfFile::open(&bytes).unwrap();
    assert_eq!(read.field("wind", ElementType::Float64, &[2], "m s-1").unwrap(), data);
}

#[test]
fn differences_to_the_coupling_file_are_named() {
    let (bytes, _) = counting(ElementType::Float64, &[4, 6]);
    let read = NetcdfFile::open(&bytes).unwrap();
    let error = |name: &str, element, shape: &[u64], units: &str| {
        read.field(name, element, shape, units).unwrap_err().to_string()
    };
    assert_eq!(error("level", ElementType::Float64, &[4, 6], "m"), "no variable level; the file has wind");
    assert_eq!(
        error("wind", ElementType::Float32, &[4, 6], "m s-1"),
        "wind: the file has the type float64, the coupling file has float32"
    );
    assert_eq!(
        error("wind", ElementType::Float64, &[6, 4], "m s-1"),
        "wind: the file has the shape [4, 6], the coupling file has [6, 4]"
    );
    assert_eq!(
        error("wind", ElementType::Float64, &[4, 6], "kn"),
        "wind: the file has the units \"m s-1\", the coupling file has \"kn\""
    );
}

#[test]
fn a_leading_time_of_one_step_is_no_difference() {
    let (bytes, data) = counting(ElementType::Int32, &[1, 4, 6]);
    let read = NetcdfFile::open(&bytes).unwrap();
    assert_eq!(read.field("wind", ElementType::Int32, &[4, 6], "m s-1").unwrap(), data);
    assert!(read.field("wind", ElementType::Int32, &[6], "m s-1").is_err());
}

#[test]
fn every_shorter_file_is_truncated() {
    let (bytes, _) = counting(ElementType::Float32, &[3, 5]);
    for length in 0..bytes.len() {
        let short = bytes[..length].to_vec();
        let file = NetcdfFile::open(&short);
        let read = file.and_then(|file| file.field("wind", ElementType::Float32, &[3, 5], "m s-1"));
        // Without its magic number, a file is no NetCDF file.
        let is_named = matches!(read, Err(NetcdfError::Truncated { .. } | NetcdfError::NotNetcdf));
        assert!(is_named && (length < 4 || !matches!(read, Err(NetcdfError::NotNetcdf))), "{length}: {read:?}");
    }
}

/// File that the netCDF4 library for Python wrote with its default format.
const NETCDF4: &[u8] = include_bytes!("../../../../fuzz/seeds/netcdf/netcdf4.nc");
/// File of HDF5 in its oldest format, as h5py writes it by default.
const SYMBOLS: &[u8] = include_bytes!("../../../../fuzz/seeds/netcdf/symbols.h5");

/// Returns the field with the values 0 to 23 on the grid [4, 6].
fn grid(element: ElementType) -> Vec<u8> {
    (0..24).flat_map(|value| element.encode(f64::from(value))).collect()
}

#[test]
fn netcdf4_of_the_python_library_is_read() {
    let bytes = NETCDF4.to_vec();
    let file = NetcdfFile::open(&bytes).unwrap();
    let fields = [
        ("level", ElementType::Float64, "m"),
        ("wind", ElementType::Float32, "m s-1"),
        ("depth", ElementType::Float64, "größe"),
        ("count", ElementType::Int64, "1"),
    ];
    for (name, element, units) in fields {
        assert_eq!(file.field(name, element, &[4, 6], units).unwrap(), grid(element), "{name}");
    }
    assert!(!file.variables().contains_key("y") && file.variables().contains_key("x"));
    let error = |name: &str| file.field(name, ElementType::Float32, &[4, 6], "m").unwrap_err().to_string();
    assert_eq!(error("packed"), "packed is packed: it has the attribute scale_factor");
    assert!(error("short").contains("type int16"), "{}", error("short"));
    let never = file.field("never", ElementType::Float32, &[6], "").unwrap_err();
    assert_eq!(never.to_string(), "the variable, or a part of it, was never written");
}

#[test]
fn hdf5_with_a_symbol_table_is_read() {
    let bytes = SYMBOLS.to_vec();
    let file = NetcdfFile::open(&bytes).unwrap();
    assert_eq!(file.field("level", ElementType::Float64, &[4, 6], "m").unwrap(), grid(ElementType::Float64));
    assert_eq!(file.field("wind", ElementType::Float32, &[4, 6], "m s-1").unwrap(), grid(ElementType::Float32));
}

#[test]
fn shorter_hdf5_files_cause_no_panic() {
    for file in [NETCDF4, SYMBOLS] {
        (0..file.len()).step_by(7).for_each(|length| read_all(&file[..length].to_vec()));
    }
}

/// Opens a file, and reads each variable that a field may have.
fn read_all(bytes: &Vec<u8>) {
    let Ok(file) = NetcdfFile::open(bytes) else { return };
    for (name, variable) in file.variables() {
        if let StoredType::Field(element) = variable.element {
            let shape = variable.shape.clone();
            let points = shape.iter().fold(1_u64, |points, length| points.saturating_mul(*length));
            // The coupling file bounds the shape of a field.
            if points < 100_000 {
                let units = variable.units.clone().unwrap_or_default();
                if let Ok(data) = file.field(name, element, &shape, &units) {
                    assert_eq!(data.len() as u64, points * element.size() as u64);
                }
            }
        }
    }
}

/// Starts of files of each format.
const MAGIC: [&[u8]; 5] = [b"CDF\x01", b"CDF\x02", b"CDF\x05", b"\x89HDF\r\n\x1a\n", b""];

proptest! {
    #[test]
    fn garbage_causes_no_panic(format in 0..MAGIC.len(), rest in prop::collection::vec(any::<u8>(), 0..300)) {
        read_all(&[MAGIC[format], &rest].concat());
    }

    #[test]
    fn changed_bytes_cause_no_panic(element in 0..4_usize, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6)) {
        let (mut bytes, _) = counting(ELEMENTS[element], &[3, 5]);
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(&bytes);
    }

    #[test]
    fn changed_bytes_of_hdf5_cause_no_panic(is_new: bool, changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20)) {
        let mut bytes = if is_new { NETCDF4 } else { SYMBOLS }.to_vec();
        for (at, value) in changes {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        read_all(&bytes);
    }
}
