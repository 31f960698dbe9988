"""zenoh over TCP, with a publisher that waits (CongestionControl.BLOCK) and does not drop."""

import threading
import time

import zenoh

import fields


def session(role, endpoint):
    """Opens a session with one endpoint, without discovery."""
    config = zenoh.Config()
    config.insert_json5("scouting/multicast/enabled", "false")
    # Without this, zenoh passes fields through shared memory and not over the path, because both sides are on one host.
    config.insert_json5("transport/shared_memory/enabled", "false")
    config.insert_json5(role, f'["{endpoint}"]')
    return zenoh.open(config)


def receive(arrivals):
    last = threading.Event()

    def note(sample):
        if arrivals.note(sample.payload.to_bytes()):
            last.set()

    with session("listen/endpoints", f"tcp/0.0.0.0:{fields.PORT}") as receiver:
        receiver.declare_subscriber("couple/field", note)
        arrivals.ready()
        last.wait()


def send(until_received):
    with session("connect/endpoints", f"tcp/{fields.HOST}:{fields.PORT}") as sender:
        publisher = sender.declare_publisher("couple/field", congestion_control=zenoh.CongestionControl.BLOCK)
        while not publisher.matching_status.matching:
            time.sleep(0.05)
        for field in fields.fields():
            publisher.put(field)
        until_received()


fields.run(receive, send)
