"""Raw TCP: one connection, and the length of a field is fixed."""

import socket

import fields


def receive(arrivals):
    listener = socket.create_server(("", fields.PORT))
    arrivals.ready()
    connection, _ = listener.accept()
    buffer = bytearray(fields.SIZE)
    while True:
        rest = memoryview(buffer)
        while rest:
            taken = connection.recv_into(rest)
            if not taken:
                return
            rest = rest[taken:]
        if arrivals.note(buffer):
            return


def send(until_received):
    connection = socket.create_connection((fields.HOST, fields.PORT))
    for field in fields.fields():
        connection.sendall(field)
    until_received()


fields.run(receive, send)
