"""ZeroMQ: PUSH and PULL. A queue of 16 fields is longer than the BDP."""

import zmq

import fields

QUEUE = 16


def receive(arrivals):
    puller = zmq.Context().socket(zmq.PULL)
    puller.setsockopt(zmq.RCVHWM, QUEUE)
    puller.bind(f"tcp://*:{fields.PORT}")
    arrivals.ready()
    while not arrivals.note(puller.recv(copy=False).buffer):
        pass


def send(until_received):
    pusher = zmq.Context().socket(zmq.PUSH)
    pusher.setsockopt(zmq.SNDHWM, QUEUE)
    pusher.connect(f"tcp://{fields.HOST}:{fields.PORT}")
    for field in fields.fields():
        pusher.send(field, copy=False)
    until_received()


fields.run(receive, send)
