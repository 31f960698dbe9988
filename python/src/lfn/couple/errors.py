"""Exceptions of a coupled run."""

from __future__ import annotations


class CoupleError(Exception):
    """The channel could not be opened, or the run cannot go on."""

    message: str
    """The problem, with its values."""
    hint: str | None
    """An action that fixes the cause."""
    is_resumable: bool
    """A new process of this component can resume the run with `resume=True`, if the process of the partner still waits."""

    def __init__(self, message: str, *, hint: str | None = None, is_resumable: bool = False) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.is_resumable = is_resumable

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message}\nhint: {self.hint}"


class CouplingFileError(CoupleError, ValueError):
    """The coupling file is not valid. The message lists every problem."""


class FilesDiffer(CoupleError):
    """The coupling files of the two sites differ, or both sites run the same component."""

    differences: list[tuple[str, str | None, str | None]]
    """Key, value at this site and value at the partner's site."""

    def __init__(self, message: str, *, hint: str | None = None, is_resumable: bool = False) -> None:
        super().__init__(message, hint=hint, is_resumable=is_resumable)
        self.differences = []


class ModelDiffers(CoupleError, ValueError):
    """The model does not fit the coupling file: units, shape, element type or time step."""


class FieldError(CoupleError, ValueError):
    """An array does not fit its variable. The channel converts nothing."""


class PartnerLost(CoupleError):
    """The partner, or a field of the partner, did not arrive within the patience."""


class PartnerStopped(CoupleError):
    """The partner stopped the run. The message contains the reason."""
