"""Runs a model that is a function of one step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from numpy.typing import ArrayLike, NDArray

from .channel import Channel, Step
from .variables import whole_number

Inputs = dict[str, "NDArray[Any] | None"]
"""Fields of the partner, by the name of the variable."""

Outputs = Mapping[str, ArrayLike]
"""Fields of the model, by the name of the variable."""


def run(
    channel: Channel,
    function: Callable[[Step, Inputs], Outputs],
    initial: Outputs,
    *,
    save: Callable[[int, Outputs], None] | None = None,
    every: int = 1,
) -> Outputs:
    """Calls `function(step, inputs)` in each step, and returns the fields that the last call returned.

    The function gets the fields of the partner, and returns the fields of the model at the end of the step. The channel puts
    these fields at the start of the next step.

    Parameters:
        channel: The channel.
        function: The model.
        initial: Fields at the start of the first step of this process.
        save: Function that writes the fields at the start of a step to disk: `save(number, fields)`. After the call, the channel
            reports the checkpoint to the partner.
        every: Number of steps from one checkpoint to the next.

    Raises:
        CoupleError: The run cannot go on. The subclass names the cause, as in `Step.put` and `Step.get`.
        ValueError: `every` is below 1.
        TypeError: `every` is not a whole number.
    """
    every = whole_number("every", every, 1)
    outputs = initial
    for step in channel:
        # The channel resumes from the first step of this process already.
        if save is not None and step.number > channel.first_step and step.number % every == 0:
            save(step.number, outputs)
            step.checkpoint()
        for name, field in outputs.items():
            step.put(name, field)
        outputs = function(step, {name: step.get(name) for name in channel.received})
    return outputs
