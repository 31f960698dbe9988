//! A channel and its fields as classes of Python.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use lfn_couple::document::run_document;
use lfn_couple::{Channel, ChannelError, ChannelEvent, Field};
use parking_lot::Mutex;
use pyo3::buffer::PyBuffer;
use pyo3::prelude::*;

use crate::interrupt::Interrupt;
use crate::options::Arguments;
use crate::summary::summary;
use crate::{error, event, json};

/// Maximum time for events that Python has not yet read when the channel ends.
const EVENTS_TIMEOUT: Duration = Duration::from_secs(1);

/// A channel. Its methods release the interpreter while they wait.
#[pyclass(frozen, module = "lfn._couple", name = "Channel")]
pub(crate) struct PyChannel {
    /// None after the end of the channel.
    channel: Mutex<Option<Channel>>,
    interrupt: Arc<Interrupt>,
    ticket: Arc<Mutex<Option<String>>>,
    /// Bytes of a field of each variable.
    sizes: BTreeMap<String, usize>,
    events: Mutex<Option<JoinHandle<()>>>,
}

/// A field of the partner. It is empty after `recycle`.
#[pyclass(frozen, module = "lfn._couple", name = "Field")]
pub(crate) struct PyField(Mutex<Option<Field>>);

/// Connects to the partner, and returns when both sites agree about the coupling file. `on_event` gets the name, the text and the
/// details (JSON) of each event.
#[pyfunction]
pub(crate) fn open(py: Python<'_>, arguments: Arguments, on_event: Py<PyAny>) -> PyResult<PyChannel> {
    let options = arguments.channel_options(py)?;
    let field_size = |(name, variable)| {
        let bytes = options.coupling.field_bytes(variable).0;
        (String::clone(name), usize::try_from(bytes).unwrap_or(usize::MAX))
    };
    let sizes = options.coupling.variables.iter().map(field_size).collect();
    let (sender, receiver) = mpsc::channel();
    let events = event::call_for_each(on_event, receiver).map_err(|problem| {
        error::new(py, "CoupleError", &format!("cannot start the thread of the events: {problem}"), None)
    })?;
    let interrupt = Arc::new(Interrupt::default());
    let ticket = Arc::new(Mutex::new(None));
    let record = {
        let ticket = Arc::clone(&ticket);
        move |event: &ChannelEvent| {
            if let ChannelEvent::Listening { ticket: new } = event {
                *ticket.lock() = Some(new.clone());
            }
            // The receiver is gone if Python ends.
            let _ = sender.send(event.clone());
        }
    };
    let is_interrupted = {
        let interrupt = Arc::clone(&interrupt);
        move || interrupt.is_due()
    };
    let opened = py.detach(|| Channel::open(options, record, is_interrupted));
    let channel = opened.map_err(|error| raise(py, &interrupt, &error))?;
    Ok(PyChannel { channel: Mutex::new(Some(channel)), interrupt, ticket, sizes, events: Mutex::new(Some(events)) })
}

/// Returns the exception of the signal that ended the wait, or of the error.
fn raise(py: Python<'_>, interrupt: &Interrupt, error: &ChannelError) -> PyErr {
    interrupt.take().unwrap_or_else(|| error::of_channel(py, error))
}

impl PyChannel {
    /// Calls a function of the channel without the interpreter.
    fn call<T: Send>(
        &self,
        py: Python<'_>,
        action: impl FnOnce(&mut Channel) -> Result<T, ChannelError> + Send,
    ) -> PyResult<T> {
        let result = py.detach(|| self.channel.lock().as_mut().map(action));
        match result {
            Some(Ok(value)) => Ok(value),
            Some(Err(error)) => Err(raise(py, &self.interrupt, &error)),
            None => Err(has_ended(py)),
        }
    }

    /// Waits until Python has read the events.
    fn drain_events(&self, py: Python<'_>) {
        let Some(events) = self.events.lock().take() else { return };
        py.detach(|| {
            let deadline = Instant::now() + EVENTS_TIMEOUT;
            while !events.is_finished() && Instant::now() < deadline {
                thread::sleep(Duration::from_millis(1));
            }
        });
    }
}

fn has_ended(py: Python<'_>) -> PyErr {
    error::new(py, "CoupleError", "the channel has ended", None)
}

#[pymethods]
impl PyChannel {
    #[getter]
    fn ticket(&self) -> Option<String> {
        self.ticket.lock().clone()
    }

    fn first_step(&self, py: Python<'_>) -> PyResult<u64> {
        self.call(py, |channel| Ok(channel.first_step()))
    }

    /// Returns the number of the step; none after the last step.
    fn begin_step(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.call(py, Channel::begin_step)
    }

    /// Copies the bytes of the field into the channel. The buffer is contiguous.
    fn put(&self, py: Python<'_>, variable: &str, data: PyBuffer<u8>) -> PyResult<()> {
        self.check_size(py, variable, &data)?;
        let mut copied = Ok(());
        // The channel may wait before it has room for the field: the interpreter is attached again for the copy alone.
        let fill = |field: &mut [u8]| copied = Python::attach(|py| data.copy_to_slice(py, field));
        self.call(py, |channel| channel.put_with(variable, fill))?;
        copied
    }

    /// Returns the partner's field for this step, after a wait if necessary.
    fn get(&self, py: Python<'_>, variable: &str) -> PyResult<Option<PyField>> {
        Ok(self.call(py, |channel| channel.get(variable))?.map(|field| PyField(Mutex::new(Some(field)))))
    }

    /// Gives the memory of a field back to the channel.
    fn recycle(&self, py: Python<'_>, variable: &str, field: &PyField) -> PyResult<()> {
        let Some(field) = field.0.lock().take() else { return Ok(()) };
        self.call(py, |channel| {
            channel.recycle(variable, field);
            Ok(())
        })
    }

    fn checkpoint(&self, py: Python<'_>) -> PyResult<()> {
        self.call(py, Channel::checkpoint)
    }

    /// Returns the checkpoint from which a later process can resume.
    fn confirmed_checkpoint(&self, py: Python<'_>) -> PyResult<Option<u64>> {
        self.call(py, |channel| Ok(channel.confirmed_checkpoint()))
    }

    /// Ends the run in order, and returns the document of the run as JSON and as text.
    fn finish(&self, py: Python<'_>) -> PyResult<(String, String)> {
        let finish = |channel: Channel| {
            let coupling = channel.coupling().clone();
            channel.finish().map(|report| run_document(&coupling, &report))
        };
        let result = py.detach(|| self.channel.lock().take().map(finish));
        self.drain_events(py);
        match result {
            Some(Ok(document)) => Ok((json(py, &document)?, summary(&document))),
            Some(Err(error)) => Err(raise(py, &self.interrupt, &error)),
            None => Err(has_ended(py)),
        }
    }

    /// Stops the run at both ends. A call of another thread that waits ends with an error.
    fn stop(&self, py: Python<'_>, reason: &str) {
        let channel = py.detach(|| {
            if let Some(mut channel) = self.channel.try_lock() {
                return channel.take();
            }
            self.interrupt.request(true);
            let channel = self.channel.lock().take();
            self.interrupt.request(false);
            channel
        });
        if let Some(channel) = channel {
            py.detach(|| channel.stop(reason));
        }
        self.drain_events(py);
    }
}

impl PyChannel {
    /// Checks the length of a buffer, because a copy into the field cannot fail halfway.
    fn check_size(&self, py: Python<'_>, variable: &str, data: &PyBuffer<u8>) -> PyResult<()> {
        let found = data.len_bytes();
        match self.sizes.get(variable) {
            Some(&expected) if expected != found => {
                let error = ChannelError::FieldSize { variable: variable.to_owned(), found, expected: expected as u64 };
                Err(error::of_channel(py, &error))
            }
            // The channel names an unknown variable, and the known ones.
            _ => Ok(()),
        }
    }
}

#[pymethods]
impl PyField {
    /// Step in which the partner put the field; none for the initial value of the coupling file.
    #[getter]
    fn step(&self) -> Option<u64> {
        self.0.lock().as_ref().and_then(|field| field.step)
    }

    /// Copies the field into a writable buffer of the same length.
    fn copy_to(&self, py: Python<'_>, target: PyBuffer<u8>) -> PyResult<()> {
        let field = self.0.lock();
        let bytes = field.as_ref().map_or(&[][..], |field| &field.bytes);
        target.copy_from_slice(py, bytes)
    }
}
