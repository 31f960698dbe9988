"""Variables of a coupling file, and the arrays that fit them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import ArrayLike, DTypeLike, NDArray

from .errors import FieldError


@dataclass(frozen=True)
class Declared:
    """Properties of a variable in the model, which the channel compares with the coupling file. Absent ones are not compared."""

    units: str | None = None
    shape: tuple[int, ...] | None = None
    dtype: DTypeLike | None = None

    def as_arguments(self) -> tuple[str | None, list[int] | None, str | None]:
        """Returns the properties for the channel."""
        shape = None if self.shape is None else [int(length) for length in self.shape]
        return self.units, shape, None if self.dtype is None else numpy.dtype(self.dtype).name


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
        """Raises `FieldError` if the array has another type or shape."""
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
        array = numpy.asarray(field)
        self.check(array)
        return as_bytes(numpy.ascontiguousarray(array))


def as_bytes(array: NDArray[Any]) -> NDArray[numpy.uint8]:
    """Returns the bytes of a contiguous array, without a copy."""
    return array.reshape(-1).view(numpy.uint8)


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
