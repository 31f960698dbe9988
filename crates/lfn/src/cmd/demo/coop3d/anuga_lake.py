"""The lake of `lfn demo coop3d`: ANUGA in the box of the demo.

The program that starts this script owns the channel to the atmosphere. The two exchange fields over standard input and
output: after one line of JSON, each step reads the wind (eastwards, northwards) and writes the lake (level, current
eastwards, current northwards). A field has ROWS times COLUMNS float64 values, little-endian: rows from south to north, in
each row from west to east.

`anuga_lake.py --check` compares the wind set-up with the analytic one, and ends with 1 if they differ.
"""

import argparse
import importlib
import json
import math
import os
import sys

# One core: the emulated path needs the other ones.
os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

# ANUGA 4.1.0 has a density of the air of 0.0012 kg/m3, salt water, and a gravity of 9.8 m/s2. basin.rs has the same constants,
# and a test compares both.
AIR_DENSITY = 1.2
WATER_DENSITY = 1000.0
DRAG = 3.0e-3
MANNING = 0.025
GRAVITY = 9.81
# Modules that copy the constants when they are imported.
MODULES_WITH_CONSTANTS = ["anuga.config", "anuga.operators.wind_stress_operator"]

MAX_SET_UP_DIFFERENCE = 0.05


def import_anuga():
    """Imports ANUGA and corrects its constants. Call it before a domain is created."""
    import anuga

    for name in MODULES_WITH_CONSTANTS:
        module = importlib.import_module(name)
        module.rho_a, module.rho_w, module.eta_w, module.g = AIR_DENSITY, WATER_DENSITY, DRAG, GRAVITY
    return anuga


class Lake:
    """A box of water under a wind that is given on cells. The mesh has its own squares, each with four triangles."""

    def __init__(self, columns, rows, length, width, depth, squares=(145, 35)):
        self.anuga = import_anuga()
        self.shape, self.depth = (rows, columns), depth
        self.domain = self.anuga.rectangular_cross_domain(*squares, len1=length, len2=width)
        domain = self.domain
        domain.set_store(False)
        domain.set_flow_algorithm("DE0")
        domain.set_quantity("elevation", -depth)
        domain.set_quantity("stage", 0.0)
        domain.set_quantity("friction", MANNING)
        wall = self.anuga.Reflective_boundary(domain)
        domain.set_boundary({tag: wall for tag in domain.get_boundary_tags()})
        x, y = domain.centroid_coordinates.T
        column = np.clip((x / (length / columns)).astype(int), 0, columns - 1)
        row = np.clip((y / (width / rows)).astype(int), 0, rows - 1)
        self.cell = row * columns + column
        self.triangles = np.bincount(self.cell, minlength=rows * columns)
        self.speed = np.zeros(len(self.cell))
        self.direction = np.zeros(len(self.cell))
        self.anuga.Wind_stress_operator(
            domain, speed=lambda t, x, y: self.speed, phi=lambda t, x, y: self.direction
        )

    def set_wind(self, east, north):
        """Sets the wind on the cells, in m/s."""
        east, north = np.ravel(east)[self.cell], np.ravel(north)[self.cell]
        self.speed = np.hypot(east, north)
        self.direction = np.degrees(np.arctan2(north, east))

    def step(self, seconds):
        """Computes the lake this many seconds later."""
        for _ in self.domain.evolve(yieldstep=seconds, duration=seconds):
            pass

    def fields(self):
        """Returns the level in m, and the current eastwards and northwards in m/s, as means of the cells."""
        values = {name: self.domain.quantities[name].centroid_values for name in ("stage", "xmomentum", "ymomentum")}
        height = np.maximum(values["stage"] + self.depth, 1e-3)
        triangles = values["stage"], values["xmomentum"] / height, values["ymomentum"] / height
        means = [np.bincount(self.cell, weights=value, minlength=len(self.triangles)) for value in triangles]
        return [(mean / self.triangles).reshape(self.shape) for mean in means]


def exchange(lake, seconds, source, sink):
    """Computes a step for each wind that arrives, until the source ends."""
    rows, columns = lake.shape
    size = 2 * rows * columns * 8
    while True:
        data = source.read(size)
        if not data:
            return
        if len(data) < size:
            sys.exit(f"the wind has {len(data)} bytes; expected {size}")
        lake.set_wind(*np.frombuffer(data, "<f8").reshape(2, -1))
        lake.step(seconds)
        sink.write(b"".join(field.astype("<f8").tobytes() for field in lake.fields()))
        sink.flush()


def check(arguments):
    """Compares the set-up with tau L / (rho g h): the level swings around it, and its mean over a period is the set-up."""
    length, depth, wind = arguments.length, arguments.depth, 6.0
    lake = Lake(40, 10, length, arguments.width, depth, squares=(40, 10))
    lake.set_wind(np.full(lake.shape, wind), np.zeros(lake.shape))
    steps, period = 48, 2.0 * length / math.sqrt(GRAVITY * depth)
    total, volume = 0.0, 0.0
    for _ in range(steps):
        lake.step(period / steps)
        level = lake.fields()[0]
        columns = level.shape[1]
        # The ends of the basin are half a cell outside of the middle of the last cells.
        total += (level[:, -1].mean() - level[:, 0].mean()) * columns / (columns - 1)
        volume = max(volume, abs(level.mean()))
    mean = total / steps
    expected = AIR_DENSITY * DRAG * wind**2 * length / (WATER_DENSITY * GRAVITY * depth)
    ok = abs(mean / expected - 1.0) < MAX_SET_UP_DIFFERENCE and volume < 1e-6
    result = {"anuga": version(), "set_up_meters": mean, "analytic_meters": expected, "level_change_meters": volume}
    result = {name: value if isinstance(value, str) else round(float(value), 9) for name, value in result.items()}
    print(json.dumps(result | {"ok": bool(ok)}), file=arguments.results, flush=True)
    return 0 if ok else 1


def version():
    """Returns the version of ANUGA."""
    from importlib.metadata import version as of

    return of("anuga")


def main():
    """Runs the lake, or the check."""
    # The results have their own descriptor, because ANUGA prints on standard output.
    results = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--columns", type=int, default=97)
    parser.add_argument("--rows", type=int, default=23)
    parser.add_argument("--length", type=float, default=388e3)
    parser.add_argument("--width", type=float, default=92e3)
    parser.add_argument("--depth", type=float, default=19.0)
    parser.add_argument("--step", type=float, default=600.0, help="coupling step, seconds")
    parser.add_argument("--check", action="store_true", help="compare the wind set-up with the analytic one")
    arguments = parser.parse_args()
    if arguments.check:
        arguments.results = os.fdopen(results.fileno(), "w", closefd=False)
        sys.exit(check(arguments))
    lake = Lake(arguments.columns, arguments.rows, arguments.length, arguments.width, arguments.depth)
    ready = {"version": version(), "triangles": int(lake.domain.number_of_elements)}
    results.write(json.dumps(ready).encode() + b"\n")
    sink = os.fdopen(os.dup(results.fileno()), "wb")
    exchange(lake, arguments.step, sys.stdin.buffer, sink)


if __name__ == "__main__":
    main()
