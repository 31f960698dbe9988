//! Writing of a file with one field, in the classic format.

use super::classic::{ATTRIBUTES, DIMENSIONS, NC_CHAR, NC_DOUBLE, NC_FLOAT, NC_INT, NC_INT64, VARIABLES, padding};
use super::file::swap_elements;
use crate::coupling::ElementType;

/// Maximum size of a variable in CDF-2, bytes. Limit of the 32-bit size in its header.
const MAX_CDF2_SIZE: u64 = (1 << 31) - 4;

/// Names of the last three dimensions, the last one first.
const AXES: [&str; 3] = ["x", "y", "z"];

/// Description of a file with one field.
#[derive(Debug, Clone, PartialEq)]
pub struct FieldFile<'a> {
    /// Name of the coupling. Global attribute `coupling`.
    pub coupling: &'a str,
    /// Component that put the field. Global attribute `component`.
    pub component: &'a str,
    pub variable: &'a str,
    /// Attribute `units` of the variable.
    pub units: &'a str,
    pub element: ElementType,
    /// Lengths of the dimensions, the slowest one first.
    pub shape: &'a [u64],
    /// Step that uses the field. Global attribute `step`.
    pub step: u64,
    /// Step in which the component put the field. Global attribute `put_step`; absent for the initial value.
    pub put_step: Option<u64>,
}

impl FieldFile<'_> {
    /// Returns the bytes of the file. `data` has the elements in C order, little-endian.
    pub fn encode(&self, data: &[u8]) -> Vec<u8> {
        let is_large = data.len() as u64 > MAX_CDF2_SIZE || self.shape.iter().any(|length| *length > MAX_CDF2_SIZE);
        let is_wide = is_large || self.element == ElementType::Int64;
        let mut file = Encoder { bytes: Vec::with_capacity(data.len() + 1024), is_wide };
        self.encode_header(&mut file, data.len() as u64);
        let start = file.bytes.len();
        file.bytes.extend_from_slice(data);
        swap_elements(&mut file.bytes[start..], self.element);
        file.bytes
    }

    fn encode_header(&self, file: &mut Encoder, size: u64) {
        file.bytes.extend_from_slice(b"CDF");
        file.bytes.push(if file.is_wide { 5 } else { 2 });
        // Number of records.
        file.count(0);
        let rank = self.shape.len();
        file.list(DIMENSIONS, rank);
        for (at, length) in self.shape.iter().enumerate() {
            match AXES.get(rank - 1 - at) {
                Some(axis) => file.text(axis),
                None => file.text(&format!("dimension_{at}")),
            }
            file.count(*length);
        }
        let steps = [Some(("step", self.step)), self.put_step.map(|step| ("put_step", step))];
        let steps: Vec<_> = steps.into_iter().flatten().collect();
        file.list(ATTRIBUTES, 2 + steps.len());
        file.text_attribute("coupling", self.coupling);
        file.text_attribute("component", self.component);
        for (name, step) in steps {
            file.step_attribute(name, step);
        }
        file.list(VARIABLES, 1);
        file.text(self.variable);
        file.count(rank as u64);
        (0..rank as u64).for_each(|dimension| file.count(dimension));
        file.list(ATTRIBUTES, 1);
        file.text_attribute("units", self.units);
        file.word(match self.element {
            ElementType::Float32 => NC_FLOAT,
            ElementType::Float64 => NC_DOUBLE,
            ElementType::Int32 => NC_INT,
            ElementType::Int64 => NC_INT64,
        });
        file.count(size);
        // The data follow the header, which ends with this offset.
        let begin = file.bytes.len() as u64 + 8;
        file.bytes.extend_from_slice(&begin.to_be_bytes());
    }
}

struct Encoder {
    bytes: Vec<u8>,
    /// CDF-5: counts have 64 bits.
    is_wide: bool,
}

impl Encoder {
    fn word(&mut self, value: u32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    fn count(&mut self, value: u64) {
        if self.is_wide {
            self.bytes.extend_from_slice(&value.to_be_bytes());
        } else {
            // The caller chose CDF-5 for larger values.
            self.word(u32::try_from(value).unwrap_or(u32::MAX));
        }
    }

    fn list(&mut self, tag: u32, length: usize) {
        self.word(if length == 0 { 0 } else { tag });
        self.count(length as u64);
    }

    fn text(&mut self, text: &str) {
        self.count(text.len() as u64);
        self.padded(text.as_bytes());
    }

    fn padded(&mut self, bytes: &[u8]) {
        self.bytes.extend_from_slice(bytes);
        let end = self.bytes.len() + padding(bytes.len() as u64) as usize;
        self.bytes.resize(end, 0);
    }

    fn text_attribute(&mut self, name: &str, value: &str) {
        self.text(name);
        self.word(NC_CHAR);
        self.text(value);
    }

    /// Writes the number of a step; steps are below 1,000,000,001.
    fn step_attribute(&mut self, name: &str, step: u64) {
        self.text(name);
        self.word(NC_INT);
        self.count(1);
        self.word(u32::try_from(step).unwrap_or(i32::MAX as u32));
    }
}
