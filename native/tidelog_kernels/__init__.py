"""Dense layers as native code: tidelog finds this package and uses it. Nothing here is called by hand."""

import ctypes
from pathlib import Path

LIBRARY = Path(__file__).with_name("libtidelog.so")


def load() -> ctypes.CDLL:
    """Return the library; OSError where it does not fit this system."""
    return ctypes.CDLL(str(LIBRARY))
