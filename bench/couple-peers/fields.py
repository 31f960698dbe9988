"""The fields of a one-way stream, the same for each peer of bench/couple.

Usage of a peer: PEER.py receive RESULT, on the far side; PEER.py send RESULT SENT, on the near side. The receiver writes the
arrival times to the file RESULT, and the sender the start of its connection to the file SENT. Both are in seconds since 1970.
RESULT.ready shows the sender that the receiver listens. FIELDS is the number of fields.
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
        self.start, self.start_time = time.monotonic(), time.time()

    def ready(self):
        """Shows the sender that the receiver listens."""
        open(self.file + ".ready", "w").close()

    def note(self, field):
        """Notes a field. Returns true after the last one, when the file is written."""
        now = self.start_time + time.monotonic() - self.start
        number = int.from_bytes(bytes(field[:8]), "little")
        if len(field) != SIZE or number != len(self.times):
            sys.exit(f"got field {number} of {len(field)} bytes, expected field {len(self.times)} of {SIZE} bytes")
        self.times.append(now)
        if len(self.times) < COUNT:
            return False
        write(self.file, {"arrivals": self.times})
        return True


def write(file, document):
    """Writes a file in one step, so that its reader never sees a part of the text."""
    with open(file + ".new", "w") as out:
        json.dump(document, out)
    os.rename(file + ".new", file)


def wait_for(file):
    """Waits until a file of the other side exists."""
    while not os.path.exists(file):
        time.sleep(0.05)


def run(receive, send):
    """Runs one side of a peer. The sender stays until the receiver has all fields."""
    role, file, *sent = sys.argv[1:]
    if role == "receive":
        receive(Arrivals(file))
    else:
        wait_for(file + ".ready")
        write(sent[0], {"connecting": time.time()})
        send(lambda: wait_for(file))
