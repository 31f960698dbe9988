//! What holds of every result, whatever was measured: it is JSON its schema takes, no figure gets lost or becomes null,
//! integers stay integers, no object has a key twice, and reading it gives the same again.
//!
//! Results are made at random of what the types say of themselves, so a field is in here as soon as it is in them.

use proptest::prelude::*;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64;
use schemars::JsonSchema;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};

use super::{Comparison, Document, Event, Stored, compare, csv, read, schema};
use crate::diagnose::{self, Cause, Remedy};

/// Makes values of a schema.
struct Maker {
    schema: Value,
    dice: Pcg64,
}

impl Maker {
    fn of<T: JsonSchema>(seed: u64) -> Maker {
        Maker { schema: schema::of_types::<T>(), dice: Pcg64::seed_from_u64(seed) }
    }

    fn one(&mut self) -> Value {
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
        let (least, most): (i128, i128) = match schema["format"].as_str() {
            Some("uint8") => (0, u8::MAX.into()),
            Some("uint16") => (0, u16::MAX.into()),
            Some("uint32") => (0, u32::MAX.into()),
            Some("int64") => (i64::MIN.into(), i64::MAX.into()),
            _ => (0, u64::MAX.into()),
        };
        let most = schema["maximum"].as_i64().map_or(most, i128::from);
        let value = match self.dice.random_range(0..4) {
            0 => least,
            1 => most,
            // Counts that no `f64` holds.
            2 => most.min((1 << 53) + 1),
            _ => self.dice.random_range(least..=most.min(1 << 20)),
        };
        i64::try_from(value).map_or_else(|_| json!(u64::try_from(value).unwrap()), |value| json!(value))
    }

    /// A time in whole nanoseconds, a share, or any number; few enough digits that reading them is exact.
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

    /// With what has to be escaped in JSON or in a table.
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

/// Fails unless every figure of the first is the same in the second, and nothing there is null that was not.
fn kept(before: &Value, after: &Value, at: &str) {
    match (before, after) {
        (Value::Object(before), Value::Object(after)) => {
            for (name, value) in before {
                let empty = value.is_null() || *value == json!(false) || *value == json!([]);
                assert!(empty || after.contains_key(name), "{at}/{name} is lost");
            }
            for (name, value) in after {
                kept(before.get(name).unwrap_or(&Value::Null), value, &format!("{at}/{name}"));
            }
        }
        (Value::Array(before), Value::Array(after)) => {
            assert_eq!(before.len(), after.len(), "{at}");
            before.iter().zip(after).for_each(|(before, after)| kept(before, after, &format!("{at}/_")));
        }
        // What was not said is null, or what it is by default.
        (Value::Null, _) => {}
        (before, after) => assert_eq!(before, after, "{at}"),
    }
}

/// What a value of a type becomes when it is read, written and read again.
fn again<T: JsonSchema + DeserializeOwned + Serialize + PartialEq + std::fmt::Debug>(seed: u64) -> (T, String) {
    let value = Maker::of::<T>(seed).one();
    let read: T = T::deserialize(&value).unwrap_or_else(|error| panic!("{error}"));
    let text = serde_json::to_string(&read).unwrap();
    kept(&value, &serde_json::from_str(&text).unwrap(), "");
    assert_eq!(serde_json::from_str::<T>(&text).unwrap(), read);
    (read, text)
}

/// Fails unless the schema that is kept takes it.
fn assert_valid(schema: &str, value: &Value) {
    let (mut schemas, mut compiler) = (boon::Schemas::new(), boon::Compiler::new());
    compiler.add_resource("http://schema/it.json", serde_json::from_str(schema).unwrap()).unwrap();
    let schema = compiler.compile("http://schema/it.json", &mut schemas).unwrap();
    schemas.validate(value, schema).map_err(|error| format!("{error:#}")).unwrap();
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn every_result_is_what_its_schema_says_and_comes_back_whole(seed: u64) {
        let (document, text) = again::<Document>(seed);
        assert_valid(include_str!("../../../../doc/schema/lfn.test.2.schema.json"), &serde_json::from_str(&text).unwrap());
        // This one refuses a key that is there twice.
        let Stored::Test(read) = read(text.as_bytes()).unwrap() else { panic!("a result is a result") };
        prop_assert_eq!(*read, document);
    }

    #[test]
    fn every_event_is_what_its_schema_says_and_comes_back_whole(seed: u64) {
        let (_, text) = again::<Event>(seed);
        let schema = include_str!("../../../../doc/schema/lfn.test.2.event.schema.json");
        assert_valid(schema, &serde_json::from_str(&text).unwrap());
        prop_assert!(!text.contains('\n'), "one event a line");
    }

    #[test]
    fn any_results_can_be_tabulated_and_compared(seed: u64) {
        let document = || again::<Document>(seed).0;
        let tables = [csv(&document()), comparison(document(), again::<Document>(!seed).0)];
        for table in tables {
            let widths: Vec<usize> = records(&table).iter().map(Vec::len).collect();
            prop_assert!(widths.iter().all(|width| *width == widths[0]), "{}", table);
        }
    }
}

/// The comparison as a table, after a look at its JSON.
fn comparison(first: Document, second: Document) -> String {
    let files = [first, second].map(|document| ("a,b\".json".to_owned(), Stored::Test(Box::new(document))));
    let comparison = compare(&files);
    let text = serde_json::to_string(&comparison).unwrap();
    let schema = include_str!("../../../../doc/schema/lfn.show.1.schema.json");
    assert_valid(schema, &serde_json::from_str(&text).unwrap());
    let read: Comparison = serde_json::from_str(&text).unwrap();
    assert_eq!(read.results.len(), comparison.results.len());
    comparison.csv()
}

/// The fields of a table as RFC 4180 has them; none is a number that is none.
fn records(table: &str) -> Vec<Vec<String>> {
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

#[test]
fn a_finding_whose_figure_is_no_number_leaves_it_out() {
    let finding = diagnose::Finding {
        cause: Cause::ReceiveWindow,
        summary: "so".into(),
        evidence: [("good", json!(1.5)), ("bad", json!(f64::NAN)), ("worse", json!(f64::INFINITY))].into(),
        cure: Remedy { command: "true".into(), host: None },
        predicted: None,
        gain: None,
    };
    assert_eq!(json!(super::Finding::from(&finding).evidence), json!({ "good": 1.5 }));
}
