import ctypes, os, struct, sys, platform
# Denies sockets of the family AF_NETLINK (16) with EPERM, then runs a command.
number = {"x86_64": 41, "aarch64": 198}[platform.machine()]
code = [(0x20,0,0,0),(0x15,0,3,number),(0x20,0,0,16),(0x15,0,1,16),(0x06,0,0,0x00050001),(0x06,0,0,0x7fff0000)]
program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in code))
class Filter(ctypes.Structure):
    _fields_ = [("len", ctypes.c_ushort), ("filter", ctypes.c_void_p)]
libc = ctypes.CDLL(None, use_errno=True)
libc.prctl.argtypes = [ctypes.c_int] + [ctypes.c_ulong] * 4
f = Filter(len(code), ctypes.addressof(program))
assert libc.prctl(38, 1, 0, 0, 0) == 0
assert libc.prctl(22, 2, ctypes.addressof(f), 0, 0) == 0, os.strerror(ctypes.get_errno())
os.execvp(sys.argv[1], sys.argv[1:])
