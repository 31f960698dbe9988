"""Variables of a coupling file, and the arrays that fit them."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, SupportsIndex

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .errors import FieldError

MAX_LENGTH = (1 << 63) - 1
"""Maximum length of a dimension in NumPy."""


@dataclass(frozen=True)
class Declared:
    """Properties of a variable in the model, which the channel compares with the coupling file. Absent ones are not compared."""

    units: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: DTypeLike | None = None

    def as_arguments(self, argument: str) -> tuple[str | None, list[int] | None, str | None]:
        """Returns the properties for the channel. `argument` is the name of this object in messages.

        Raises:
            ValueError: A length of the shape is outside its range.
            TypeError: A property has another type.
        """
        if not isinstance(self.units, str | None):
            raise TypeError(f"{argument}.units = {self.units!r}: expected a string")
        name, shape = f"{argument}.shape", self.shape
        if not isinstance(shape, Iterable | None):
            raise TypeError(f"{name} = {shape!r}: expected a tuple of whole numbers")
        lengths = None if shape is None else [whole_number(name, it, 0, MAX_LENGTH, shown=shape) for it in shape]
        return self.units, lengths, None if self.dtype is None else numpy.dtype(self.dtype).name


@dataclass(frozen=True)
class Variable:
    """A variable of the coupling file."""

    name: str
    source: str
    """Component that puts the field."""
    target: str
    """Component that gets the field."""
    units: str
    shape: tuple[int, ...]
    dtype: numpy.dtype[Any]
    lag: int
    """Step n uses the field of step n − lag."""
    may_drop: bool
    """A newer field replaces older ones that wait (`drop = "oldest"`)."""

    def check(self, array: NDArray[Any]) -> None:
        """Raises `FieldError` if the value is not an array, or has another type or shape."""
        if not isinstance(array, numpy.ndarray):
            raise FieldError(f"{self.name}: expected a NumPy array, found {type(array).__name__}")
        if array.dtype != self.dtype:
            hint = f"convert the array: {self.name}.astype('{self.dtype.name}')"
            raise FieldError(
                f"{self.name}: the array has dtype {_name(array.dtype)}, the coupling file has {self.dtype.name}", hint=hint
            )
        if array.shape != self.shape:
            raise FieldError(f"{self.name}: the array has shape {array.shape}, the coupling file has {self.shape}")

    def contents(self, field: ArrayLike) -> NDArray[numpy.uint8]:
        """Returns the bytes of a field to put. Copies only an array that is not contiguous."""
        if numpy.ma.is_masked(field):
            raise FieldError(
                f"{self.name}: the array has masked elements, which the channel does not transfer",
                hint=f"give these elements a value: {self.name}.filled(numpy.nan)",
            )
        try:
            array = numpy.asarray(field)
        except (TypeError, ValueError) as error:
            raise FieldError(f"{self.name}: not an array: {error}") from None
        self.check(array)
        return as_bytes(numpy.ascontiguousarray(array))


def as_bytes(array: NDArray[Any]) -> NDArray[numpy.uint8]:
    """Returns the bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(numpy.uint8)


def whole_number(name: str, value: SupportsIndex, low: int, high: int | None = None, *, shown: object = None) -> int:
    """Returns the value of an argument. Without `high`, the range has no maximum. Messages show the argument as `shown`, if the
    value is a part of it.

    Raises:
        ValueError: The value is outside the range.
        TypeError: The value is not a whole number.
    """
    shown = value if shown is None else shown
    try:
        number = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} = {shown!r}: expected a whole number") from None
    if number < low or (high is not None and number > high):
        expected = f"{low:,} or more" if high is None else f"{low:,} to {high:,}"
        raise ValueError(f"{name} = {shown}: expected {expected}")
    return number


def variables_of(coupling: Mapping[str, Any]) -> dict[str, Variable]:
    """Returns the variables of the contents of a coupling file."""
    variables = {}
    for name, values in coupling["variables"].items():
        variables[name] = Variable(
            name=name,
            source=values["from"],
            target=values["to"],
            units=values["units"],
            shape=tuple(coupling["grids"][values["grid"]]["shape"]),
            # The channel transfers little-endian elements.
            dtype=numpy.dtype(values["type"]).newbyteorder("<"),
            lag=values["lag"],
            may_drop=values["drop"] == "oldest",
        )
    return variables


def _name(dtype: numpy.dtype[Any]) -> str:
    """Returns the name of a type, with its byte order if this is not the one of the channel."""
    return dtype.name if dtype == dtype.newbyteorder("<") else f"{dtype.name} (big-endian)"
