"""A channel to the partner, and its steps."""

from __future__ import annotations

import atexit
import json
import os
import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self

import numpy
from numpy.typing import ArrayLike, NDArray

from .. import _couple
from .errors import CoupleError, CouplingFileError, FieldError
from .events import Event, print_event
from .variables import Declared, Variable, as_bytes, variables_of, whole_number

COUPLE_PORT = 7327
"""Default port of a component that listens."""

DEFAULT_PATIENCE = 600.0
"""Time for which a component waits for its partner, in seconds."""

DEFAULT_HISTORY = 1 << 30
"""Memory for fields since the partner's last checkpoint, in bytes."""

MAX_PATIENCE = 1_000_000_000
"""Maximum patience, in seconds: 31 years."""

MAX_STREAMS = 64
"""Maximum number of data streams for large fields in each direction."""


def listen(
    file: str | os.PathLike[str],
    component: str,
    *,
    address: str | None = None,
    port: int = COUPLE_PORT,
    host: str | None = None,
    state: str | os.PathLike[str] | None = None,
    patience: float = DEFAULT_PATIENCE,
    resume: bool = False,
    history: int = DEFAULT_HISTORY,
    declared: Mapping[str, Declared] | None = None,
    on_event: Callable[[Event], None] = print_event,
) -> Channel:
    """Listens, and returns the channel when the partner has dialled and both coupling files agree.

    The event `listening` has the ticket, with which the partner dials.

    Parameters:
        file: The coupling file.
        component: The component of the file that this program runs.
        address: IP address on which the component listens; by default, every address.
        port: Port, 0 to 65,535; 0 takes any free port.
        host: Host name or address in the ticket; by default, an address of this host that other hosts reach.
        state: Directory of the key and the token. With a directory, the ticket is the same after a restart.
        patience: Maximum time without the partner, or without a field of the partner, in seconds, above 0 and at most
            1,000,000,000.
        resume: Resume from the last checkpoint that this component reported.
        history: Maximum memory for fields since the partner's last checkpoint, in bytes.
        declared: Properties of the model's variables, by name. They must agree with the coupling file.
        on_event: Function that gets the events, on a thread of its own. By default, the events are printed on standard error.

    Raises:
        CoupleError: The channel could not be opened. The subclass names the cause.
        ValueError: An argument is outside its range.
        TypeError: An argument has another type.
        OSError: The coupling file cannot be read.
    """
    arguments = _Arguments(
        text=_read(file),
        component=component,
        address=address,
        port=whole_number("port", port, 0, 65_535),
        host=host,
        state=None if state is None else os.fsdecode(state),
        patience=_seconds(patience),
        resume=resume,
        history=_bytes(history),
        declared=_declared(declared),
    )
    return _open(arguments, on_event)


def dial(
    file: str | os.PathLike[str],
    component: str,
    ticket: str,
    *,
    patience: float = DEFAULT_PATIENCE,
    resume: bool = False,
    streams: int | None = None,
    history: int = DEFAULT_HISTORY,
    declared: Mapping[str, Declared] | None = None,
    on_event: Callable[[Event], None] = print_event,
) -> Channel:
    """Dials the partner, and returns the channel when both coupling files agree.

    Parameters:
        ticket: The ticket that the partner prints.
        streams: Data streams for large fields in each direction, 1 to 64; by default, the channel chooses the number.

    The other parameters are those of `listen`.

    Raises:
        CoupleError: The channel could not be opened. The subclass names the cause.
        ValueError: An argument is outside its range.
        TypeError: An argument has another type.
        OSError: The coupling file cannot be read.
    """
    # Without a ticket, the channel would listen.
    _check_text("ticket", ticket)
    arguments = _Arguments(
        text=_read(file),
        component=component,
        ticket=ticket,
        patience=_seconds(patience),
        resume=resume,
        streams=None if streams is None else whole_number("streams", streams, 1, MAX_STREAMS),
        history=_bytes(history),
        declared=_declared(declared),
    )
    return _open(arguments, on_event)


def plan(file: str | os.PathLike[str]) -> dict[str, Any]:
    """Predicts the run of a coupling file over the path of the file: the time of the run, and the lag that each variable needs.

    The keys are those of the output of `lfn couple plan --json`.

    Raises:
        CouplingFileError: The file is not valid.
        CoupleError: The file has no path or no compute time.
        OSError: The file cannot be read.
    """
    planned: dict[str, Any] = json.loads(_couple.predict(_read(file)))
    return planned


@dataclass(kw_only=True)
class _Arguments:
    """Arguments of the channel in Rust."""

    text: str
    component: str
    ticket: str | None = None
    address: str | None = None
    port: int = 0
    host: str | None = None
    state: str | None = None
    patience: float
    resume: bool
    streams: int | None = None
    history: int
    declared: dict[str, tuple[str | None, list[int] | None, str | None]]

    def __post_init__(self) -> None:
        _check_text("component", self.component)
        for name in ("address", "host"):
            if (value := getattr(self, name)) is not None:
                _check_text(name, value)
        if not isinstance(self.resume, bool | numpy.bool_):
            raise TypeError(f"resume = {self.resume!r}: expected True or False")


def _check_text(name: str, value: object) -> None:
    if not isinstance(value, str):
        raise TypeError(f"{name} = {value!r}: expected a string")


def _read(file: str | os.PathLike[str]) -> str:
    """Reads the text of a coupling file."""
    try:
        return Path(file).read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CouplingFileError(f"{os.fspath(file)}: byte {error.start} is not UTF-8") from None


def _seconds(patience: float) -> float:
    if not isinstance(patience, Real):
        raise TypeError(f"patience = {patience!r}: expected a number of seconds")
    if not 0 < patience <= MAX_PATIENCE:
        raise ValueError(f"patience = {patience}: expected seconds above 0, at most {MAX_PATIENCE:,}")
    return float(patience)


def _bytes(history: int) -> int:
    return whole_number("history", history, 0, (1 << 64) - 1)


def _declared(declared: Mapping[str, Declared] | None) -> dict[str, tuple[str | None, list[int] | None, str | None]]:
    return {name: properties.as_arguments(f"declared[{name!r}]") for name, properties in (declared or {}).items()}


def _open(arguments: _Arguments, on_event: Callable[[Event], None]) -> Channel:
    def call(kind: str, text: str, details: str) -> None:
        on_event(Event(kind, text, json.loads(details)))

    coupling = json.loads(_couple.parse(arguments.text))
    return Channel(_couple.open(arguments, call), coupling, arguments.component, on_event)


class Channel:
    """One end of the channel between two components. `listen` and `dial` create it.

    Iterate over the channel to run the steps. Use the channel as a context manager: the end of the block finishes the run, and
    an exception in the block stops the run at both ends.
    """

    component: str
    """The component that this program runs."""
    partner: str
    """The component at the other end of the channel."""
    steps: int
    """Number of steps in the coupling file."""
    model_step: float | None
    """Time of one step in the simulation, in seconds; None if the file has none."""
    variables: Mapping[str, Variable]
    """Variables of the coupling file, by name."""
    report: dict[str, Any] | None
    """Predicted and measured figures of the run, with the findings; None before the end. The keys are those of the output of
    `lfn couple run --json`."""

    def __init__(
        self,
        channel: _couple.Channel,
        coupling: Mapping[str, Any],
        component: str,
        on_event: Callable[[Event], None],
    ) -> None:
        """Wraps a channel in Rust. Use `listen` or `dial` instead."""
        self._channel = channel
        self._on_event = on_event
        self._step: Step | None = None
        self._has_ended = False
        _open_channels.add(self)
        self.component = component
        self.partner = next(name for name in coupling["components"] if name != component)
        self.steps = coupling["steps"]
        self.model_step = coupling["model_step_seconds"]
        self.variables = MappingProxyType(variables_of(coupling))
        self.report = None
        self.first_step = channel.first_step()

    @property
    def confirmed_checkpoint(self) -> int | None:
        """The checkpoint from which a later process can resume; None before the first one.

        The partner knows it and has all earlier fields. Keep the state of this step, and of all later checkpoints.

        Raises:
            CoupleError: The run has ended.
        """
        return self._channel.confirmed_checkpoint()

    @property
    def ticket(self) -> str | None:
        """The ticket with which the partner dials; None at the end that dials."""
        return self._channel.ticket

    @property
    def sent(self) -> dict[str, Variable]:
        """The variables that this component puts, by name."""
        return {name: variable for name, variable in self.variables.items() if variable.source == self.component}

    @property
    def received(self) -> dict[str, Variable]:
        """The variables that this component gets, by name."""
        return {name: variable for name, variable in self.variables.items() if variable.target == self.component}

    def __iter__(self) -> Iterator[Step]:
        """Begins one step after the other, from the first step of this process to the last step of the coupling file.

        Raises:
            PartnerStopped: The partner stopped the run.
            CoupleError: A variable of the step before was not put, or the run cannot go on.
        """
        while (number := self._channel.begin_step()) is not None:
            self._step = Step(self, number)
            yield self._step

    def finish(self) -> dict[str, Any]:
        """Ends the last step, waits until the partner has finished, and returns the report.

        The event `result` has the report as text.

        Raises:
            PartnerLost: The partner did not return within the patience.
            PartnerStopped: The partner stopped the run.
            CoupleError: A variable of the last step was not put, no step has begun, or the channel has ended.
        """
        if self.report is None:
            # After an error the channel cannot finish again.
            self._has_ended = True
            document, summary = self._channel.finish()
            report: dict[str, Any] = json.loads(document)
            self.report = report
            self._on_event(Event("result", summary, report))
        return self.report

    def stop(self, reason: str) -> None:
        """Stops the run at both ends. The partner raises `PartnerStopped` with this reason."""
        if not self._has_ended:
            self._has_ended = True
            self._channel.stop(reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None) -> None:
        if error is not None:
            self.stop(_reason(error))
        elif not self._has_ended:
            self.finish()

    def __repr__(self) -> str:
        return f"<lfn.couple.Channel of {self.component} to {self.partner}, {self.steps} steps>"

    def _variable(self, name: str) -> Variable | None:
        """Returns a variable; None for an unknown one, which the channel reports with the known names."""
        return self.variables.get(name)


_open_channels: weakref.WeakSet[Channel] = weakref.WeakSet()


@atexit.register
def _stop_open_channels() -> None:
    """Stops the runs that the program did not finish. The partner would otherwise wait for a restart."""
    for channel in list(_open_channels):
        channel.stop("the program ended without finish()")


class Step:
    """One step of the run. Put all own variables, get those of the partner, and compute."""

    number: int
    """Number of the step, from 0."""

    def __init__(self, channel: Channel, number: int) -> None:
        """Creates a step. Iterate over a channel instead."""
        self._channel = channel
        self.number = number
        self._steps_of_fields: dict[str, int | None] = {}

    def put(self, variable: str, array: ArrayLike) -> None:
        """Puts the field of a variable.

        The array has the type and the shape of the coupling file. The channel copies the array once, and the model may change
        the array after the call. An array that is not contiguous is copied twice.

        Raises:
            FieldError: The array has another type or shape, or masked elements.
            PartnerLost: The partner did not take fields within the patience.
            PartnerStopped: The partner stopped the run.
            CoupleError: The component does not put this variable, the variable was put twice, the step has ended, or the run
                cannot go on.
        """
        known = self._current()._variable(variable)
        data = numpy.empty(0, numpy.uint8) if known is None else known.contents(array)
        self._channel._channel.put(variable, data)

    def get(self, variable: str, out: NDArray[Any] | None = None) -> NDArray[Any] | None:
        """Returns the partner's field of this step minus the lag, after a wait if necessary.

        The field is copied once, into `out` or into a new array. A second get of a field in the same step is an error.

        A variable with `drop = "oldest"` has the newest field that has arrived, without a wait and again if none is newer,
        and None before the first one.

        Raises:
            FieldError: `out` is not an array, has another type or shape, or is read-only.
            PartnerLost: The field did not arrive within the patience.
            PartnerStopped: The partner stopped the run.
            CoupleError: The component does not get this variable, the variable was got twice, the step has ended, or the run
                cannot go on.
        """
        known = self._current()._variable(variable)
        if known is not None and out is not None:
            known.check(out)
            if not out.flags.writeable:
                raise FieldError(f"{variable}: the array for the field is read-only")
        field = self._channel._channel.get(variable)
        self._steps_of_fields[variable] = None if field is None else field.step
        if known is None or field is None:
            return None
        is_direct = out is not None and out.flags.c_contiguous
        array = out if out is not None and is_direct else numpy.empty(known.shape, known.dtype)
        field.copy_to(as_bytes(array))
        self._channel._channel.recycle(variable, field)
        if out is None or is_direct:
            return array
        out[...] = array
        return out

    def step_of(self, variable: str) -> int | None:
        """Returns the step in which the partner put the field that `get` returned.

        Returns None for the initial value of the file, and if `get` returned None.

        Raises:
            CoupleError: `get` was not called for this variable in this step.
        """
        if variable not in self._steps_of_fields:
            raise CoupleError(
                f"step_of({variable!r}) before get({variable!r}) in step {self.number}",
                hint="call get of the same step first",
            )
        return self._steps_of_fields[variable]

    def checkpoint(self) -> None:
        """Reports that the state of the model at the start of this step is on disk. Call it before the first put of the step.

        With `resume=True`, a later process resumes from the last such step that the partner has confirmed
        (`Channel.confirmed_checkpoint`).

        Raises:
            PartnerStopped: The partner stopped the run.
            CoupleError: The step has ended, or the run cannot go on.
        """
        self._current()._channel.checkpoint()

    def __repr__(self) -> str:
        return f"<lfn.couple.Step {self.number} of {self._channel.component}>"

    def _current(self) -> Channel:
        """Returns the channel, if this step still runs."""
        running = self._channel._step
        if running is not self:
            number = "none" if running is None else running.number
            raise CoupleError(f"step {self.number} has ended; the channel is at step {number}")
        return self._channel


def _reason(error: BaseException) -> str:
    """Returns the reason for the partner: the type and the text of an exception."""
    if isinstance(error, KeyboardInterrupt):
        return "interrupted"
    text = error.message if isinstance(error, CoupleError) else str(error)
    return f"{type(error).__name__}: {text}" if text else type(error).__name__
