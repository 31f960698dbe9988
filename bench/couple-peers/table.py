"""Prints the tables of bench/couple from the result files in a directory: medians with [minimum-maximum].

Time to open is the time from the start of the connection at the end that dials, while the other end listens, to the first step of this
end. Payload capacity is the rate times the share of a TCP segment's data in a full frame, with timestamps and an Ethernet header.
"""

import json
import math
import os
import pathlib
import statistics
import sys

WORK = pathlib.Path(sys.argv[1])
RTT = float(os.environ["RTT"]) / 1000
MTU = int(os.environ["MTU"])
SEGMENT, FRAME = MTU - 52, MTU + 14
FIELD, SMALL, STEPS, COMPUTE = 1 << 20, 1 << 16, 40, 0.1
LAGS = [int(lag) for lag in os.environ["LAGS"].split()]
NAMES = {"lfn": "lfn couple", "tcp": "raw TCP", "zenoh": "zenoh, BLOCK", "zeromq": "ZeroMQ", "flight": "Arrow Flight", "sst": "ADIOS2 SST, WAN"}


def spread(values, digits=1):
    """Returns the median with the minimum and the maximum."""
    if not values:
        return "-"
    median, *ends = (f"{value:.{digits}f}" for value in (statistics.median(values), min(values), max(values)))
    return f"{median} [{'-'.join(ends)}]"


def documents(pattern):
    """Returns the documents of the files."""
    return [json.loads(file.read_text()) for file in sorted(WORK.glob(pattern))]


def goodput(arrivals, start):
    """Returns the bits per second of the fields after the first one that arrived at `start` or later."""
    later = [time for time in arrivals if time >= start]
    return (len(later) - 1) * FIELD * 8 / (later[-1] - later[0]) if len(later) > 1 else 0


def stream():
    """One-way stream. The second RTT begins one RTT after the first field arrived."""
    capacity = float(os.environ["RATE"]) * 1e6 * SEGMENT / FRAME
    print(f"\nOne-way stream, {os.environ['FIELDS']} fields of 1 MiB, {os.environ['RATE']} Mb/s, payload capacity {capacity / 1e6:.1f} Mb/s:\n")
    print(
        "| system | from the second RTT on: Mb/s | % of the capacity | second half of the fields: % | first to last field, s "
        "| start of the connection to the first field, s | runs |"
    )
    print("| --- | --- | --- | --- | --- | --- | --- |")
    for tool, name in NAMES.items():
        files = sorted(WORK.glob(f"stream.{tool}.*.json"))
        runs = [json.loads(file.read_text())["arrivals"] for file in files]
        sent = [json.loads(file.with_suffix(".sent").read_text()) for file in files]
        opened = [run[0] - sender["connecting"] for run, sender in zip(runs, sent)]
        rates = [goodput(run, run[0] + RTT) for run in runs]
        halves = [goodput(run, run[len(run) // 2]) for run in runs]
        cells = [spread([rate / 1e6 for rate in rates]), spread([rate * 100 / capacity for rate in rates])]
        cells += [spread([rate * 100 / capacity for rate in halves]), spread([run[-1] - run[0] for run in runs], 2), spread(opened, 2), str(len(runs))]
        print("|", " | ".join([name, *cells]), "|")


def step_time(starts, first):
    """Returns the mean time of the steps from this one on."""
    return (starts[-1] - starts[first]) / (STEPS - first)


def lags():
    """Time of the run with each lag, from the first step on: that of the end that took longer."""
    rate = float(os.environ["LAG_RATE"]) * 1e6
    serialised = (SMALL + math.ceil(SMALL / SEGMENT) * (FRAME - SEGMENT)) * 8 / rate
    ideal = RTT / 2 + serialised
    print(f"\n{STEPS} steps of {COMPUTE} s, 64 KiB each way, {os.environ['LAG_RATE']} Mb/s, time of the run from the first step on, in s (ideal {STEPS * COMPUTE:.1f}):\n")
    print("| system |", " | ".join(f"lag {lag}" for lag in LAGS), "| time to open, s |")
    print("| --- |", " | ".join("---" for _ in LAGS), "| --- |")
    means, halves = {}, {}
    for tool in ("lfn", "zeromq"):
        cells, opened = [], []
        for lag in LAGS:
            pairs = list(zip(documents(f"lag{lag}.{tool}.*.far.json"), documents(f"lag{lag}.{tool}.*.near.json")))
            opened += [near["open"] for _, near in pairs]
            runs = [[far["starts"], near["starts"]] for far, near in pairs]
            cells.append(spread([max(end[-1] - end[0] for end in run) for run in runs], 2))
            means[tool, lag] = [max(step_time(end, lag) for end in run) for run in runs]
            halves[tool, lag] = [max(step_time(end, STEPS // 2) for end in run) for run in runs]
        print("|", " | ".join([NAMES[tool], *cells, spread(opened, 2)]), "|")
    print(f"\nMean of a step. One-way delay and serialisation are {ideal * 1000:.1f} ms:\n")
    print(f"| system, lag | step - compute time, ms | over delay and serialisation, ms | × compute time | the same, last {STEPS // 2} steps |")
    print("| --- | --- | --- | --- | --- |")
    for tool, lag in means:
        waits = spread([(step - COMPUTE) * 1000 for step in means[tool, lag]])
        above = spread([(step - COMPUTE - ideal) * 1000 for step in means[tool, lag]]) if lag == 0 else ""
        ratios = [spread([step / COMPUTE for step in steps[tool, lag]], 3) for steps in (means, halves)]
        print("|", " | ".join([f"{NAMES[tool]}, {lag}", waits, above, *ratios]), "|")


def put():
    """Hand-over of an array. The first put of a run is apart: its memory is new."""
    runs = documents("put.lfn.*.json")
    later = [run["bytes"] / time / 1e9 for run in runs for time in run["puts"][1:]]
    first = [run["bytes"] / run["puts"][0] / 1e9 for run in runs]
    print("\nPut of an array of 100 MB on loopback, GB/s:\n")
    print("| system | first put | later puts |")
    print("| --- | --- | --- |")
    print("|", " | ".join([NAMES["lfn"], spread(first, 2), spread(later, 2)]), "|")


for pattern, table in (("stream.*.json", stream), ("lag*.json", lags), ("put.*.json", put)):
    if any(WORK.glob(pattern)):
        table()
