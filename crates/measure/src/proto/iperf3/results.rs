//! Results that each end sends at the end of a test.

use std::time::Duration;

use serde_json::{Map, Value, json};

use super::number::{count, integer, real};
use super::parameters::MAX_STREAMS;

/// Processor time of all threads of the process, in per cent of the time of the test.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct CpuPercent {
    pub total: f64,
    pub user: f64,
    pub system: f64,
}

/// Output that the server would print.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerOutput {
    Text(String),
    Json(Value),
}

/// Results of one end.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Results {
    pub cpu: CpuPercent,
    /// True if the sending end counts retransmissions; `None` from an end that only receives.
    pub has_retransmits: Option<bool>,
    /// Congestion control in use.
    pub congestion: Option<String>,
    /// Output that the server would print.
    pub output: Option<ServerOutput>,
    pub streams: Vec<StreamResult>,
}

/// Results of one end for one stream, without the warm-up.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct StreamResult {
    /// Identifier by the rule of [`super::stream_id`].
    pub id: u32,
    /// Payload bytes sent or received.
    pub bytes: u64,
    /// Retransmissions, if the sender counts them.
    pub retransmits: Option<u64>,
    /// Jitter at the receiver, seconds.
    pub jitter: f64,
    /// Datagrams lost, with those of the warm-up.
    pub errors: u64,
    /// Datagrams sent, or the highest number received, with those of the warm-up.
    pub packets: u64,
    /// Datagrams lost and sent in the warm-up; versions before 3.13 do not report them.
    pub omitted: Option<(u64, u64)>,
    /// Duration of the count; versions before 3.2 do not report it.
    pub time: Option<Duration>,
}

/// Error: results of a peer that are not valid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ResultsError {
    /// A required field is missing or not a number.
    #[error("'{0}' is missing or not a number")]
    Field(&'static str),
    /// The list of streams is missing, or longer than in any test.
    #[error("'streams' is missing or too long")]
    Streams,
    /// One of two fields that belong together.
    #[error("only one of 'omitted_errors' and 'omitted_packets' is present")]
    IncompleteOmitted,
    /// A stream that does not belong to this test, or a repeated one.
    #[error("stream {0} does not belong to this test, or is repeated")]
    Id(u32),
    /// A stream of this test is missing.
    #[error("stream {0} is missing")]
    Absent(u32),
}

impl Results {
    /// Reads the results of the other end, for a test with these streams.
    pub fn read(value: &Value, expected: &[u32]) -> Result<Results, ResultsError> {
        let number = |key| field(value, key).and_then(|value| real(value).ok_or(ResultsError::Field(key)));
        let cpu = CpuPercent {
            total: number("cpu_util_total")?,
            user: number("cpu_util_user")?,
            system: number("cpu_util_system")?,
        };
        let has = field(value, "sender_has_retransmits")?;
        let has_retransmits = match integer(has).ok_or(ResultsError::Field("sender_has_retransmits"))? {
            ..0 => None,
            number => Some(number > 0),
        };
        let text = |key| value.get(key).and_then(Value::as_str).map(str::to_owned);
        let output = match value.get("server_output_json") {
            Some(json @ Value::Object(_)) => Some(ServerOutput::Json(json.clone())),
            _ => text("server_output_text").map(ServerOutput::Text),
        };
        let congestion = text("congestion_used").filter(|name| name.len() < 16);
        let streams = read_streams(value, expected)?;
        Ok(Results { cpu, has_retransmits, congestion, output, streams })
    }

    /// Writes the results as JSON.
    pub fn write(&self) -> Value {
        let streams: Vec<Value> = self.streams.iter().map(StreamResult::write).collect();
        let mut value = json!({
            "cpu_util_total": self.cpu.total,
            "cpu_util_user": self.cpu.user,
            "cpu_util_system": self.cpu.system,
            "sender_has_retransmits": self.has_retransmits.map_or(-1, i64::from),
            "streams": streams,
        });
        if let Some(map) = value.as_object_mut() {
            if let Some(name) = &self.congestion {
                map.insert("congestion_used".into(), json!(name));
            }
            match &self.output {
                Some(ServerOutput::Text(text)) => drop(map.insert("server_output_text".into(), json!(text))),
                Some(ServerOutput::Json(value)) => drop(map.insert("server_output_json".into(), value.clone())),
                None => {}
            }
        }
        value
    }

    /// Returns the results of one stream.
    pub fn stream(&self, id: u32) -> Option<&StreamResult> {
        self.streams.iter().find(|stream| stream.id == id)
    }
}

impl StreamResult {
    fn read(value: &Value) -> Result<StreamResult, ResultsError> {
        let number = |key| field(value, key).and_then(|value| integer(value).ok_or(ResultsError::Field(key)));
        // A count cannot be negative; a negative number means unknown.
        let counted = |key| number(key).map(|number| u64::try_from(number).unwrap_or(0));
        let seconds = |key| value.get(key).and_then(real);
        let omitted = match (value.get("omitted_errors"), value.get("omitted_packets")) {
            (None, None) => None,
            (Some(errors), Some(packets)) => Some((count(errors).unwrap_or(0), count(packets).unwrap_or(0))),
            _ => return Err(ResultsError::IncompleteOmitted),
        };
        let jitter = real(field(value, "jitter")?).ok_or(ResultsError::Field("jitter"))?;
        Ok(StreamResult {
            id: u32::try_from(number("id")?).map_err(|_| ResultsError::Field("id"))?,
            bytes: counted("bytes")?,
            retransmits: u64::try_from(number("retransmits")?).ok(),
            jitter: jitter.max(0.0),
            errors: counted("errors")?,
            packets: counted("packets")?,
            omitted,
            time: match (seconds("start_time"), seconds("end_time")) {
                (Some(start), Some(end)) => Duration::try_from_secs_f64(end - start).ok(),
                _ => None,
            },
        })
    }

    fn write(&self) -> Value {
        let mut map = Map::new();
        let mut put = |key: &str, value: Value| drop(map.insert(key.to_owned(), value));
        put("id", self.id.into());
        put("bytes", self.bytes.into());
        put("retransmits", self.retransmits.map_or(Value::from(-1), Value::from));
        put("jitter", self.jitter.into());
        put("errors", self.errors.into());
        put("packets", self.packets.into());
        if let Some((errors, packets)) = self.omitted {
            put("omitted_errors", errors.into());
            put("omitted_packets", packets.into());
        }
        if let Some(time) = self.time {
            put("start_time", 0.into());
            put("end_time", time.as_secs_f64().into());
        }
        Value::Object(map)
    }
}

fn read_streams(value: &Value, expected: &[u32]) -> Result<Vec<StreamResult>, ResultsError> {
    let list = value.get("streams").and_then(Value::as_array).ok_or(ResultsError::Streams)?;
    if list.len() > 2 * usize::from(MAX_STREAMS) {
        return Err(ResultsError::Streams);
    }
    let mut streams: Vec<StreamResult> = Vec::with_capacity(list.len());
    for value in list {
        let stream = StreamResult::read(value)?;
        if !expected.contains(&stream.id) || streams.iter().any(|known| known.id == stream.id) {
            return Err(ResultsError::Id(stream.id));
        }
        streams.push(stream);
    }
    match expected.iter().find(|&&id| streams.iter().all(|stream| stream.id != id)) {
        Some(&id) => Err(ResultsError::Absent(id)),
        None => Ok(streams),
    }
}

fn field<'a>(value: &'a Value, key: &'static str) -> Result<&'a Value, ResultsError> {
    value.get(key).ok_or(ResultsError::Field(key))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn results() -> Results {
        Results {
            cpu: CpuPercent { total: 12.5, user: 2.25, system: 10.25 },
            has_retransmits: Some(true),
            congestion: Some("cubic".into()),
            output: Some(ServerOutput::Text("[  5] 0.00-1.00 sec\n".into())),
            streams: vec![
                StreamResult { id: 1, bytes: 1 << 40, retransmits: Some(3), ..StreamResult::default() },
                StreamResult {
                    id: 3,
                    jitter: 0.000_12,
                    errors: 5,
                    packets: 100,
                    omitted: Some((1, 20)),
                    time: Some(Duration::from_millis(1500)),
                    ..StreamResult::default()
                },
            ],
        }
    }

    #[test]
    fn written_values_are_read_back() {
        assert_eq!(Results::read(&results().write(), &[1, 3]), Ok(results()));
        let json = Results { output: Some(ServerOutput::Json(json!({"end": {}}))), ..results() };
        assert_eq!(Results::read(&json.write(), &[1, 3]), Ok(json));
    }

    #[test]
    fn results_of_iperf_3_12_are_read() {
        let text = r#"{"cpu_util_total":1.5,"cpu_util_user":0,"cpu_util_system":1.5,
            "sender_has_retransmits":18446744073709551615,"streams":[{"id":1,"bytes":7,
            "retransmits":18446744073709551615,"jitter":0,"errors":0,"packets":0,"start_time":0,"end_time":1.000123}]}"#;
        let read = Results::read(&serde_json::from_str(text).unwrap(), &[1]).unwrap();
        assert_eq!((read.has_retransmits, read.streams[0].retransmits), (None, None));
        assert_eq!(read.streams[0].time, Some(Duration::from_micros(1_000_123)));
        assert_eq!(read.stream(1).unwrap().bytes, 7);
    }

    #[test]
    fn invalid_results_are_rejected() {
        let streams = |list: Value| {
            let mut value = Results::default().write();
            value["streams"] = list;
            Results::read(&value, &[1])
        };
        let one = json!({"id": 1, "bytes": 0, "retransmits": 0, "jitter": 0, "errors": 0, "packets": 0});
        assert!(streams(json!([one])).is_ok());
        assert_eq!(streams(json!([])), Err(ResultsError::Absent(1)));
        assert_eq!(streams(json!([one, one])), Err(ResultsError::Id(1)));
        assert_eq!(streams(json!("none")), Err(ResultsError::Streams));
        assert_eq!(streams(Value::Array(vec![one.clone(); 300])), Err(ResultsError::Streams));
        let with = |key: &str, value: Value| {
            let mut stream = one.clone();
            stream[key] = value;
            streams(json!([stream]))
        };
        assert_eq!(with("id", 2.into()), Err(ResultsError::Id(2)));
        assert_eq!(with("id", (-1).into()), Err(ResultsError::Field("id")));
        assert_eq!(with("bytes", "7".into()), Err(ResultsError::Field("bytes")));
        assert_eq!(with("omitted_errors", 0.into()), Err(ResultsError::IncompleteOmitted));
        assert_eq!(with("end_time", (-1).into()).unwrap().streams[0].time, None);
        assert_eq!(Results::read(&json!({}), &[]), Err(ResultsError::Field("cpu_util_total")));
    }
}
