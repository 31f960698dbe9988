"""Two models in lock-step or with a lag, over a ZeroMQ PAIR: put 64 KiB, get the field of step n − lag, compute.

Usage: pair.py listen|dial READY RESULT LAG STEPS COMPUTE, with COMPUTE in seconds. The file READY shows the end that dials that
the other end listens. Writes the time to open the channel, the start of each step and the end of the last one to RESULT.
"""

import os
import sys
import time

import zmq

import fields

role, ready, file = sys.argv[1:4]
lag, steps, compute = int(sys.argv[4]), int(sys.argv[5]), float(sys.argv[6])
field = os.urandom(65536)
partner = zmq.Context().socket(zmq.PAIR)
if role == "dial":
    fields.wait_for(ready)
connecting = time.monotonic()
if role == "listen":
    partner.bind(f"tcp://*:{fields.PORT}")
    open(ready, "w").close()
else:
    partner.connect(f"tcp://{fields.HOST}:{fields.PORT}")
partner.send(b"ready")
partner.recv()
opened = time.monotonic() - connecting

starts = []
for step in range(steps):
    starts.append(time.monotonic())
    partner.send(field, copy=False)
    if step >= lag:
        partner.recv(copy=False)
    time.sleep(compute)
starts.append(time.monotonic())
fields.write(file, {"open": opened, "starts": starts})
for _ in range(lag):
    partner.recv(copy=False)
partner.send(b"end")
partner.recv()
