//! Numbers in a peer's JSON. iperf3 prints some negative numbers as unsigned, and some whole numbers as floating point.
//! Versions before 3.18 read any existing value as true.

use serde_json::Value;

/// Reads a whole number. A value beyond `i64` is a negative number that was printed as unsigned.
pub(super) fn integer(value: &Value) -> Option<i64> {
    if let Some(number) = value.as_i64() {
        return Some(number);
    }
    if let Some(number) = value.as_u64() {
        return Some(number as i64);
    }
    /// 2^63 is exact as a double; so is 2^64.
    const TWO_POW_63: f64 = 9_223_372_036_854_775_808.0;
    let number = value.as_f64().filter(|number| number.is_finite())?;
    // -1 as unsigned, rounded to a double, is 2^64.
    if number >= TWO_POW_63 { Some(-1) } else { Some(number as i64) }
}

/// Reads a count; `None` for a negative number, which means unknown.
pub(super) fn count(value: &Value) -> Option<u64> {
    integer(value).and_then(|number| u64::try_from(number).ok())
}

/// Reads a finite number.
pub(super) fn real(value: &Value) -> Option<f64> {
    value.as_f64().filter(|number| number.is_finite())
}

/// Reads a boolean; a number other than zero is true.
pub(super) fn switch(value: Option<&Value>) -> bool {
    match value {
        Some(Value::Bool(on)) => *on,
        Some(value) => integer(value).is_some_and(|number| number != 0),
        None => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn minus_one_is_read_in_all_its_forms() {
        for text in ["-1", "18446744073709551615", "1.8446744073709552e+19", "-1.0"] {
            let value: Value = serde_json::from_str(text).unwrap();
            assert_eq!((integer(&value), count(&value)), (Some(-1), None), "{text}");
        }
        let value = |text: &str| serde_json::from_str::<Value>(text).unwrap();
        assert_eq!(count(&value("1.5e9")), Some(1_500_000_000));
        assert_eq!(count(&value("9223372036854775807")), Some(i64::MAX as u64));
        assert_eq!(integer(&value("-1e300")), Some(i64::MIN));
        assert_eq!(integer(&value("\"7\"")), None);
        assert!(switch(Some(&value("1"))) && switch(Some(&value("true"))) && !switch(Some(&value("0"))));
        assert!(!switch(Some(&value("\"yes\""))) && !switch(Some(&value("false"))) && !switch(None));
    }
}
