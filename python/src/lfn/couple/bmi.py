"""Couples models with the Basic Model Interface (BMI 2.0, package `bmipy`).

with lfn.couple.listen("lake.toml", "lake") as channel:
    lfn.couple.bmi.run_bmi(Lake(), channel, "lake.yaml", names={"level": "lake_water__level"})
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

import numpy

from .channel import Channel
from .errors import CoupleError, ModelDiffers
from .variables import Variable, whole_number

if TYPE_CHECKING:
    from bmipy import Bmi

TOLERANCE = 1e-6
"""Maximum difference of two model times, as a share of the time step."""

_SECONDS = {
    "s": 1.0,
    "sec": 1.0,
    "second": 1.0,
    "seconds": 1.0,
    "min": 60.0,
    "minute": 60.0,
    "minutes": 60.0,
    "h": 3600.0,
    "hr": 3600.0,
    "hour": 3600.0,
    "hours": 3600.0,
    "d": 86400.0,
    "day": 86400.0,
    "days": 86400.0,
}


def run_bmi(
    model: Bmi,
    channel: Channel,
    config_file: str | None = None,
    *,
    names: Mapping[str, str] | None = None,
    save: Callable[[Bmi, int], None] | None = None,
    every: int = 1,
    restore: Callable[[Bmi, int], None] | None = None,
) -> None:
    """Runs all steps of a model, and finalizes the model.

    Before the first step, the names, units, shapes, element types and the time step of the model are compared with the coupling
    file. In each step, the model's output variables are put, the partner's fields are set, and the model is updated until the
    end of the step. A coupling file without `model_step` updates the model once in each step.

    Parameters:
        model: The model.
        channel: The channel.
        config_file: Argument of the model's `initialize`; None for a model that is initialized.
        names: BMI name of each coupling variable that has another name in the model.
        save: Function that writes the state of the model at the start of a step: `save(model, number)`. BMI has none. After the
            call, the channel reports the checkpoint to the partner.
        every: Number of steps from one checkpoint to the next.
        restore: Function that reads this state: `restore(model, number)`. A resumed run calls it after `initialize`.

    Raises:
        ModelDiffers: The model does not fit the coupling file.
        CoupleError: The run cannot go on. The other subclasses are those of `Step.put` and `Step.get`.
        ValueError: `every` is below 1.
        TypeError: `every` is not a whole number.
    """
    every = whole_number("every", every, 1)
    if config_file is not None:
        model.initialize(config_file)
    try:
        if channel.first_step > 0:
            if restore is None:
                raise CoupleError(
                    f"the run resumes from step {channel.first_step}, and BMI has no function that restores a model",
                    hint="pass restore=FUNCTION to run_bmi",
                )
            restore(model, channel.first_step)
        adapter = Adapter(model, channel, names or {})
        for step in channel:
            if save is not None and step.number > channel.first_step and step.number % every == 0:
                save(model, step.number)
                step.checkpoint()
            for name in channel.sent:
                step.put(name, adapter.value(name))
            for name in channel.received:
                adapter.set_value(name, step.get(name, out=adapter.buffer(name)))
            adapter.update(step.number)
    finally:
        model.finalize()


class Adapter:
    """A model whose variables fit the coupling file."""

    def __init__(self, model: Bmi, channel: Channel, names: Mapping[str, str]) -> None:
        """Compares the model with the coupling file.

        Raises:
            ModelDiffers: The model does not fit the coupling file. The message lists every difference.
        """
        self._model = model
        self._names = {name: names.get(name, name) for name in channel.variables}
        unknown = sorted(set(names) - set(channel.variables))
        problems = [f"{name}: the coupling file has no such variable" for name in unknown]
        for variable in channel.sent.values():
            problems += self._problems(variable, model.get_output_var_names(), "output")
        for variable in channel.received.values():
            problems += self._problems(variable, model.get_input_var_names(), "input")
        self._seconds = 0.0 if channel.model_step is None else self._seconds_of_unit(problems)
        self._step = channel.model_step
        if self._step is not None and self._seconds > 0:
            problems += self._time_problems(self._step)
        if problems:
            raise ModelDiffers("; ".join(problems), hint="convert in the model, or change the coupling file at both sites")
        self._start = model.get_current_time()
        self._first_step = channel.first_step
        self._buffers = {name: numpy.empty(it.shape, it.dtype) for name, it in channel.variables.items()}

    def buffer(self, name: str) -> numpy.ndarray:
        """Returns the array for the field of a variable."""
        return self._buffers[name]

    def value(self, name: str) -> numpy.ndarray:
        """Returns the model's value of a coupling variable."""
        field = self._buffers[name]
        self._model.get_value(self._names[name], field.reshape(-1))
        return field

    def set_value(self, name: str, field: numpy.ndarray | None) -> None:
        """Sets the model's value of a coupling variable. A variable that has no field yet keeps its value."""
        if field is not None:
            self._model.set_value(self._names[name], field.reshape(-1))

    def update(self, number: int) -> None:
        """Updates the model once, or until the end of the coupling step if the coupling file has `model_step`."""
        if self._step is None:
            self._model.update()
            return
        step = self._step / self._seconds
        end = self._start + (number + 1 - self._first_step) * step
        while self._model.get_current_time() < end - step * TOLERANCE:
            before = self._model.get_current_time()
            self._model.update()
            if not self._model.get_current_time() > before:
                raise CoupleError(f"update() did not advance the time {before:g} of the model; step {number} ends at {end:g}")
        reached = self._model.get_current_time()
        if reached > end + step * TOLERANCE:
            raise CoupleError(f"the model is at time {reached:g} {self._model.get_time_units()}; step {number} ends at {end:g}")

    def _problems(self, variable: Variable, known: tuple[str, ...], kind: str) -> list[str]:
        """Returns the differences of one variable."""
        name, model = self._names[variable.name], self._model
        if name not in known:
            listed = ", ".join(known) or "none"
            return [f"{variable.name}: the model has no {kind} variable {name}; it has {listed}"]
        pairs = [
            ("units", model.get_var_units(name), variable.units),
            ("shape", self._shape(name), variable.shape),
            ("type", self._dtype(name), variable.dtype.name),
        ]
        return [
            f"{variable.name}: the model has {key} {here!r}, the coupling file has {there!r}"
            for key, here, there in pairs
            if here != there
        ]

    def _shape(self, name: str) -> tuple[int, ...]:
        """Returns the shape of a variable. Grids without a shape, and values on edges or faces, have one dimension."""
        model = self._model
        grid = model.get_var_grid(name)
        if model.get_var_location(name) == "node" and model.get_grid_type(grid) in _SHAPED:
            shape = numpy.zeros(model.get_grid_rank(grid), dtype=numpy.int32)
            return tuple(int(length) for length in model.get_grid_shape(grid, shape))
        return (model.get_var_nbytes(name) // model.get_var_itemsize(name),)

    def _dtype(self, name: str) -> str:
        """Returns the name of the element type. BMI allows the names of NumPy and of C; `float` differs between the two."""
        named, size = self._model.get_var_type(name), self._model.get_var_itemsize(name)
        try:
            dtype = numpy.dtype(named)
            return dtype.name if dtype.itemsize == size else numpy.dtype(f"{dtype.kind}{size}").name
        except TypeError:
            return f"{named} of {size} bytes"

    def _seconds_of_unit(self, problems: list[str]) -> float:
        """Returns the seconds of the model's time unit; 0 for an unknown unit, which is a problem."""
        units = self._model.get_time_units()
        seconds = _SECONDS.get(units.strip().lower(), 0.0)
        if seconds == 0:
            problems.append(f"the model has time units {units!r}; expected s, min, h or d")
        return seconds

    def _time_problems(self, coupling_step: float) -> list[str]:
        """Returns a problem if the coupling step is not a whole number of the model's time steps."""
        model_step = self._model.get_time_step() * self._seconds
        count = coupling_step / model_step if model_step > 0 else 0.0
        if count > 0.5 and abs(count - round(count)) <= TOLERANCE * count:
            return []
        steps = f"the model has a time step of {model_step:g} s, the coupling file has model_step = {coupling_step:g} s"
        return [f"{steps}: expected a whole multiple"]


_SHAPED = ("uniform_rectilinear", "rectilinear", "structured_quadrilateral")
"""Types of grids with `get_grid_shape`."""
