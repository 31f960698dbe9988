"""The channel between two coupled models over a long path.

    import lfn.couple

    with lfn.couple.listen("lag.toml", "lake") as channel:
        for step in channel:
            step.put("level", level)
            wind = step.get("wind")
            level = compute(level, wind)

The partner calls `lfn.couple.dial` with the ticket that `listen` prints. `lfn.couple.run` calls a function in each step, and
`lfn.couple.bmi` couples models with the Basic Model Interface.
"""

from .channel import COUPLE_PORT, DEFAULT_HISTORY, DEFAULT_PATIENCE, Channel, Step, dial, listen, plan
from .errors import (
    CoupleError,
    CouplingFileError,
    FieldError,
    FilesDiffer,
    ModelDiffers,
    PartnerLost,
    PartnerStopped,
)
from .events import Event, print_event
from .function import Inputs, Outputs, run
from .variables import Declared, Variable

__all__ = [
    "COUPLE_PORT",
    "DEFAULT_HISTORY",
    "DEFAULT_PATIENCE",
    "Channel",
    "CoupleError",
    "CouplingFileError",
    "Declared",
    "Event",
    "FieldError",
    "FilesDiffer",
    "Inputs",
    "ModelDiffers",
    "Outputs",
    "PartnerLost",
    "PartnerStopped",
    "Step",
    "Variable",
    "dial",
    "listen",
    "plan",
    "print_event",
    "run",
]
