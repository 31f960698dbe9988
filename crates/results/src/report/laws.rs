//! Laws of every result: the JSON matches its schema, no figure is lost or becomes null, integers stay integers, no
//! object has a duplicate key, and reading the JSON gives an equal result.
//!
//! The results are generated at random from the schemas of the types, so a new field is tested without further code.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{
    Comparison, Run, StoredResult, TestDocument, TestEvent, TuningDocument, compare, interval_csv, read_result,
};

/// Generates random values of a schema.
struct ValueGenerator {
    schema: Value,
    dice: Pcg64,
}

impl ValueGenerator {
    fn new<T: JsonSchema>(seed: u64) -> ValueGenerator {
        // The formats of Rust's numbers are part of the schema.
        let schema = SchemaSettings::draft2020_12().for_serialize().into_generator().into_root_schema_for::<T>();
        ValueGenerator { schema: schema.into(), dice: Pcg64::seed_from_u64(seed) }
    }

    fn value(&mut self) -> Value {
        let schema = self.schema.clone();
        self.make(&schema)
    }

    fn one_of<'a>(&mut self, values: &'a [Value]) -> &'a Value {
        &values[self.dice.random_range(0..values.len())]
    }

    fn make(&mut self, schema: &Value) -> Value {
        if let Some(place) = schema["$ref"].as_str() {
            let schema = self.schema.pointer(place.trim_start_matches('#')).unwrap().clone();
            return self.make(&schema);
        }
        if let Some(value) = schema.get("const") {
            return value.clone();
        }
        if let Some(Value::Array(values)) = schema.get("enum") {
            return self.one_of(values).clone();
        }
        if let Some(Value::Array(kinds)) = schema.get("oneOf").or(schema.get("anyOf")) {
            let kind = self.one_of(kinds).clone();
            return self.make(&kind);
        }
        let kind = match &schema["type"] {
            Value::Array(kinds) => self.one_of(kinds).clone(),
            kind => kind.clone(),
        };
        match kind.as_str() {
            Some("object") => self.object(schema),
            Some("array") => self.array(schema),
            Some("integer") => self.integer(schema),
            Some("number") => self.number(schema),
            Some("string") => self.string(schema),
            Some("boolean") => self.dice.random::<bool>().into(),
            Some("null") => Value::Null,
            _ => self.anything(),
        }
    }

    fn object(&mut self, schema: &Value) -> Value {
        let required = schema["required"].as_array().cloned().unwrap_or_default();
        let mut object = Map::new();
        for (name, part) in schema["properties"].as_object().into_iter().flatten() {
            if required.contains(&json!(name)) || self.dice.random::<bool>() {
                object.insert(name.clone(), self.make(part));
            }
        }
        if schema["properties"].is_null() {
            for _ in 0..self.dice.random_range(0..3) {
                let name = self.text();
                let value = match &schema["additionalProperties"] {
                    Value::Object(part) => self.make(&part.clone().into()),
                    _ => self.anything(),
                };
                object.insert(name, value);
            }
        }
        object.into()
    }

    fn array(&mut self, schema: &Value) -> Value {
        let fixed = schema["minItems"].as_u64();
        let count = fixed.unwrap_or_else(|| self.dice.random_range(0..3));
        (0..count).map(|_| self.make(&schema["items"])).collect()
    }

    fn integer(&mut self, schema: &Value) -> Value {
        let (min, max): (i128, i128) = match schema["format"].as_str() {
            Some("uint8") => (0, u8::MAX.into()),
            Some("uint16") => (0, u16::MAX.into()),
            Some("uint32") => (0, u32::MAX.into()),
            Some("int64") => (i64::MIN.into(), i64::MAX.into()),
            _ => (0, u64::MAX.into()),
        };
        let max = schema["maximum"].as_i64().map_or(max, i128::from);
        let value = match self.dice.random_range(0..4) {
            0 => min,
            1 => max,
            // Counts that no `f64` can hold.
            2 => max.min((1 << 53) + 1),
            _ => self.dice.random_range(min..=max.min(1 << 20)),
        };
        i64::try_from(value).map_or_else(|_| json!(u64::try_from(value).unwrap()), |value| json!(value))
    }

    /// Returns a time in whole nanoseconds, a share, or any number, with few enough digits for an exact conversion.
    fn number(&mut self, schema: &Value) -> Value {
        match (schema["minimum"].as_i64(), schema["maximum"].as_i64()) {
            (Some(0), Some(1)) => json!(f64::from(self.dice.random_range(0..=1024u32)) / 1024.0),
            (Some(0), None) => json!(self.dice.random_range(0..1u64 << 50) as f64 / 1e9),
            _ => json!(f64::from(self.dice.random::<i32>()) / 64.0),
        }
    }

    fn string(&mut self, schema: &Value) -> Value {
        let texts = match schema["format"].as_str() {
            Some("ip") => ["192.0.2.1", "2001:db8::1"],
            _ => return self.text().into(),
        };
        texts[self.dice.random_range(0..2)].into()
    }

    /// Returns a text with characters that JSON or CSV must escape.
    fn text(&mut self) -> String {
        let letters = ['a', 'ü', '"', '\\', ',', '\n', '\r', '\u{0}', '\u{1b}', '\u{2028}', '🛰'];
        let count = self.dice.random_range(0..6);
        (0..count).map(|_| letters[self.dice.random_range(0..letters.len())]).collect()
    }

    fn anything(&mut self) -> Value {
        match self.dice.random_range(0..5) {
            0 => self.text().into(),
            1 => self.dice.random::<u64>().into(),
            2 => json!({ "a": [1.5, null, true], "b": self.text() }),
            3 => self.number(&Value::Null),
            _ => Value::Null,
        }
    }
}

/// Asserts that every figure of `before` is equal in `after`, and that no null is new.
fn assert_preserved(before: &Value, after: &Value, at: &str) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let empty = value.is_null() || *value == json!(false) || *value == json!([]);
                assert!(empty || after.contains_key(name), "{at}/{name} is lost");
            }
            for (name, value) in after {
                assert_preserved(before.get(name).unwrap_or(&Value::Null), value, &format!("{at}/{name}"));
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len(), "{at}");
            before.iter().zip(after).for_each(|(before, after)| assert_preserved(before, after, &format!("{at}/_")));
        }
        // An absent value is null or has its default.
        (Value::Null, _) => {}
        (before, after) => assert_eq!(before, after, "{at}"),
    }
}

/// Returns a generated value and its text after it was written and read.
fn round_trip<T: JsonSchema + DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(seed: u64) -> (T, String) {
    let value = ValueGenerator::new::<T>(seed).value();
    let read: T = T::deserialize(&value).unwrap_or_else(|error| panic!("{error}"));
    let text = serde_json::to_string(&read).unwrap();
    assert_preserved(&value, &serde_json::from_str(&text).unwrap(), "");
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), read);
    (read, text)
}

/// Returns a run with arbitrary figures.
pub(super) fn arbitrary_run() -> Run {
    round_trip::<Run>(7).0
}

/// Asserts that the stored schema accepts the value.
fn assert_valid(schema: &str, value: &Value) {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("http://schema/it.json", serde_json::from_str(schema).unwrap()).unwrap();
    let schema = compiler.compile("http://schema/it.json", &mut schemas).unwrap();
    schemas.validate(value, schema).map_err(|error| format!("{error:#}")).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_result_matches_its_schema_and_round_trips(seed: u64) {
        let (document, text) = round_trip::<TestDocument>(seed);
        assert_valid(include_str!("../../../../doc/schema/lfn.test.3.schema.json"), &serde_json::from_str(&text).unwrap());
        // `read_result` refuses duplicate keys.
        let StoredResult::Test(read) = read_result(text.as_bytes()).unwrap() else { panic!("a result is a result") };
        prop_assert_eq!(*read, document);
    }

    #[test]
    fn every_comparison_matches_its_schema_and_round_trips(seed: u64) {
        let (document, text) = round_trip::<TuningDocument>(seed);
        let schema = include_str!("../../../../doc/schema/lfn.test.compare.1.schema.json");
        assert_valid(schema, &serde_json::from_str(&text).unwrap());
        let StoredResult::Tuning(read) = read_result(text.as_bytes()).unwrap() else { panic!("a result is a result") };
        prop_assert_eq!(*read, document);
    }

    #[test]
    fn every_event_matches_its_schema_and_round_trips(seed: u64) {
        let (_, text) = round_trip::<TestEvent>(seed);
        let schema = include_str!("../../../../doc/schema/lfn.test.3.event.schema.json");
        assert_valid(schema, &serde_json::from_str(&text).unwrap());
        prop_assert!(!text.contains('\n'), "one event a line");
    }

    #[test]
    fn all_results_can_be_tabulated_and_compared(seed: u64) {
        let document = || round_trip::<TestDocument>(seed).0;
        let tables = [interval_csv(&document()), comparison_csv(document(), round_trip::<TestDocument>(!seed).0)];
        for table in tables {
            let widths: Vec<usize> = csv_records(&table).iter().map(Vec::len).collect();
            prop_assert!(widths.iter().all(|width| *width == widths[0]), "{}", table);
        }
    }
}

/// Returns the comparison as CSV after a check of its JSON.
fn comparison_csv(first: TestDocument, second: TestDocument) -> String {
    let files = [first, second].map(|document| ("a,b\".json".to_owned(), StoredResult::Test(Box::new(document))));
    let comparison = compare(&files);
    let text = serde_json::to_string(&comparison).unwrap();
    let schema = include_str!("../../../../doc/schema/lfn.show.2.schema.json");
    assert_valid(schema, &serde_json::from_str(&text).unwrap());
    let read: Comparison = serde_json::from_str(&text).unwrap();
    assert_eq!(read.results.len(), comparison.results.len());
    comparison.csv()
}

/// Splits a CSV table into its fields (RFC 4180) and asserts that each number is finite.
fn csv_records(table: &str) -> Vec<Vec<String>> {
    let (mut records, mut record, mut field) = (Vec::new(), Vec::new(), String::new());
    let (mut quoted, mut letters) = (false, table.chars().peekable());
    while let Some(letter) = letters.next() {
        match letter {
            '"' if quoted && letters.peek() == Some(&'"') => field.extend(letters.next()),
            '"' => quoted = !quoted,
            ',' if !quoted => record.push(std::mem::take(&mut field)),
            '\r' if !quoted && letters.next_if_eq(&'\n').is_some() => {
                record.push(std::mem::take(&mut field));
                assert!(record.iter().all(|field| !["NaN", "inf", "-inf"].contains(&field.as_str())), "{record:?}");
                records.push(std::mem::take(&mut record));
            }
            letter => field.push(letter),
        }
    }
    assert!(!quoted && field.is_empty() && record.is_empty(), "the last line has an end");
    records
}
