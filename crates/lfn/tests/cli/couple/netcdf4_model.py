"""A model that reads and writes NetCDF-4 with netCDF4-python.

`netcdf4_model.py PUT UNITS TYPE FIRST GET` puts FIRST + 10 n + (number of the element) in step n, and writes
the units and the elements that it has got in each step to `received.json`.
"""

import json
import os
import pathlib
import sys
import time

import netCDF4
import numpy as np

put, units, kind, first, get = sys.argv[1:]
received = []
exchange = pathlib.Path(os.environ["LFN_COUPLE_DIR"])
for step in range(int(os.environ["LFN_COUPLE_STEPS"])):
    part = exchange / "out" / ".part"
    with netCDF4.Dataset(part, "w", format="NETCDF4") as file:
        file.createDimension("time", None)
        file.createDimension("y", 2)
        file.createDimension("x", 3)
        field = file.createVariable(
            put, kind, ("time", "y", "x"), zlib=True, shuffle=True, fletcher32=True, chunksizes=(1, 2, 3)
        )
        field.units = units
        field[0] = np.arange(6).reshape(2, 3) + float(first) + 10 * step
    part.rename(exchange / "out" / f"{put}.{step}.nc")
    while not (exchange / "in" / f"step.{step}").exists():
        time.sleep(0.01)
    with netCDF4.Dataset(exchange / "in" / f"{get}.{step}.nc") as file:
        received.append([file[get].units, np.ma.getdata(file[get][:]).ravel().tolist()])
pathlib.Path("received.json").write_text(json.dumps(received))
