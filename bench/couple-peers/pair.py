"""Two models in lock-step or with a lag, over a ZeroMQ PAIR: put 64 KiB, get the field of step n − lag, compute.

Usage: pair.py listen|dial RESULT LAG STEPS COMPUTE, with COMPUTE in seconds. Writes the start of each step and the end of the last one to RESULT.
"""

import json
import os
import sys
import time

import zmq

import fields

role, file = sys.argv[1:3]
lag, steps, compute = int(sys.argv[3]), int(sys.argv[4]), float(sys.argv[5])
field = os.urandom(65536)
partner = zmq.Context().socket(zmq.PAIR)
if role == "listen":
    partner.bind(f"tcp://*:{fields.PORT}")
else:
    partner.connect(f"tcp://{fields.HOST}:{fields.PORT}")
partner.send(b"ready")
partner.recv()

starts = []
for step in range(steps):
    starts.append(time.monotonic())
    partner.send(field, copy=False)
    if step >= lag:
        partner.recv(copy=False)
    time.sleep(compute)
starts.append(time.monotonic())
with open(file, "w") as out:
    json.dump({"starts": starts}, out)
for _ in range(lag):
    partner.recv(copy=False)
partner.send(b"end")
partner.recv()
