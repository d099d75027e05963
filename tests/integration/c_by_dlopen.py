"""c_by_dlopen.py LIBRARY: a program that was started without gradus loads the library, as those of
other languages do (dlopen), and calls its C interface. Uses only the standard library.

A library that is loaded late finds little room for variables of threads; more than glibc keeps for
this, and dlopen refuses it ("cannot allocate memory in static TLS block").
"""

import ctypes
import subprocess
import sys

BAD_HANDLE, USAGE = 1, 3


class Error(ctypes.Structure):
    _fields_ = [("id", ctypes.c_char * 24), ("text", ctypes.c_char * 1000)]


def main(library):
    loaded = ctypes.CDLL(library)
    assert loaded.gradus_c_version() == 1
    error, trainer = Error(), ctypes.c_uint64(7)
    status = loaded.gradus_open(b".", b"no-task", None, ctypes.byref(trainer), ctypes.byref(error))
    assert (status, trainer.value, error.id) == (USAGE, 0, b"G-CAPI-1"), (status, error.text)
    assert loaded.gradus_close(ctypes.c_uint64(5), None) == BAD_HANDLE
    print("loaded and called")


def sanitizer_of(library):
    needed = subprocess.run(["readelf", "-d", library], capture_output=True, text=True).stdout
    return next((name for name in ("libasan", "libtsan") if name in needed), None)


if __name__ == "__main__":
    if sanitizer_of(sys.argv[1]):
        print("skipped: a sanitizer must be there before everything else")
        sys.exit(77)
    main(sys.argv[1])
