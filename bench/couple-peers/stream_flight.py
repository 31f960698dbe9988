"""Arrow Flight: one DoPut, one record batch for each field."""

import pyarrow
from pyarrow import flight

import fields

SCHEMA = pyarrow.schema([("field", pyarrow.uint8())])


class Server(flight.FlightServerBase):
    """Notes the batches of a DoPut."""

    def __init__(self, arrivals):
        super().__init__(f"grpc://0.0.0.0:{fields.PORT}")
        self.arrivals = arrivals

    def do_put(self, context, descriptor, reader, writer):
        for chunk in reader:
            self.arrivals.note(chunk.data.column(0).buffers()[1])


def receive(arrivals):
    server = Server(arrivals)
    arrivals.ready()
    server.serve()


def send(until_received):
    client = flight.connect(f"grpc://{fields.HOST}:{fields.PORT}")
    writer, _ = client.do_put(flight.FlightDescriptor.for_path("field"), SCHEMA)
    for field in fields.fields():
        array = pyarrow.Array.from_buffers(pyarrow.uint8(), fields.SIZE, [None, pyarrow.py_buffer(field)])
        writer.write_batch(pyarrow.record_batch([array], schema=SCHEMA))
    writer.done_writing()
    until_received()


fields.run(receive, send)
