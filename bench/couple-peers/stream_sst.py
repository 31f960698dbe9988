"""ADIOS2 SST with its WAN transport: one step for each field. SST finds the other side with a file that both sides share."""

import os
import sys

import adios2
import numpy

import fields

CONTACT = os.path.abspath(sys.argv[2] + ".contact")
PARAMETERS = {"DataTransport": "WAN", "RendezvousReaderCount": "1", "OpenTimeoutSecs": "120", "NetworkInterface": "lfn0"}


ADIOS = adios2.Adios()


def engine(mode):
    """Opens the engine of one side."""
    io = ADIOS.declare_io("couple")
    io.set_engine("SST")
    io.set_parameters(PARAMETERS)
    return io, io.open(CONTACT, mode)


def receive(arrivals):
    arrivals.ready()
    io, reader = engine(adios2.bindings.Mode.Read)
    field = numpy.empty(fields.SIZE, dtype=numpy.uint8)
    while reader.begin_step() == adios2.bindings.StepStatus.OK:
        variable = io.inquire_variable("field")
        variable.set_selection([[0], [fields.SIZE]])
        reader.get(variable, field)
        reader.end_step()
        arrivals.note(field)
    reader.close()


def send(until_received):
    io, writer = engine(adios2.bindings.Mode.Write)
    first = numpy.empty(fields.SIZE, dtype=numpy.uint8)
    variable = io.define_variable("field", first, [fields.SIZE], [0], [fields.SIZE], True)
    for field in fields.fields():
        array = numpy.frombuffer(bytearray(field), dtype=numpy.uint8)
        writer.begin_step()
        writer.put(variable, array)
        writer.end_step()
    until_received()
    writer.close()


fields.run(receive, send)
