"""What the imports of JAX allocate is left out of Python's search for reference cycles."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any


def import_once(module: str) -> Any:
    """Return a module; at the first import of JAX, the objects of all modules are frozen.

    They stay until the process ends. The search for reference cycles went through them again and again, also at the
    end: 0.4 s of the 2.6 s of an IQL run of one update with a filled compilation cache.
    """
    before = "jax" in sys.modules
    found = importlib.import_module(module)
    if "jax" in sys.modules and not before:
        gc.freeze()
    return found
