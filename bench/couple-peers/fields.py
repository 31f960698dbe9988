"""The fields of a one-way stream, the same for each peer of bench/couple.

Usage of a peer: PEER.py receive RESULT, on the far side; PEER.py send RESULT, on the near side. The receiver writes the arrival
times to the file RESULT. RESULT.ready shows the sender that the receiver listens. FIELDS is the number of fields.
"""

import json
import os
import sys
import time

COUNT = int(os.environ.get("FIELDS", "100"))
SIZE = 1 << 20
HOST = os.environ.get("LFN_FAR", "127.0.0.1")
PORT = 7400


def fields():
    """Yields each field: its number in 8 bytes, then the same random bytes."""
    rest = os.urandom(SIZE - 8)
    for number in range(COUNT):
        yield number.to_bytes(8, "little") + rest


class Arrivals:
    """Arrival times of the fields. A lost or reordered field ends the run."""

    def __init__(self, file):
        self.file, self.times = file, []

    def ready(self):
        """Shows the sender that the receiver listens."""
        open(self.file + ".ready", "w").close()

    def note(self, field):
        """Notes a field. Returns true after the last one, when the file is written."""
        now = time.monotonic()
        number = int.from_bytes(bytes(field[:8]), "little")
        if len(field) != SIZE or number != len(self.times):
            sys.exit(f"got field {number} of {len(field)} bytes, expected field {len(self.times)} of {SIZE} bytes")
        self.times.append(now)
        if len(self.times) < COUNT:
            return False
        with open(self.file + ".new", "w") as out:
            json.dump({"arrivals": self.times}, out)
        os.rename(self.file + ".new", self.file)
        return True


def wait_for(file):
    """Waits until a file of the other side exists."""
    while not os.path.exists(file):
        time.sleep(0.05)


def run(receive, send):
    """Runs one side of a peer. The sender stays until the receiver has all fields."""
    role, file = sys.argv[1:]
    if role == "receive":
        receive(Arrivals(file))
    else:
        wait_for(file + ".ready")
        send(lambda: wait_for(file))
