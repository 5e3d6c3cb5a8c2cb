"""What the imports of JAX and Polars allocate is left out of Python's search for reference cycles."""

from __future__ import annotations

import gc
import importlib
import sys
from typing import Any

LARGE = frozenset({"jax", "polars"})


def import_without_gc(module: str) -> Any:
    """Return a module; if its import is the first one of JAX or Polars, the objects of all modules are frozen.

    They stay until the process ends. The search for reference cycles went through them again and again, while they were
    imported, while programs were traced, and at the end: 0.4 s of the 2.6 s of an IQL run of one update with a filled
    compilation cache.
    """
    before, enabled = LARGE & sys.modules.keys(), gc.isenabled()
    gc.disable()
    try:
        found = importlib.import_module(module)
        if LARGE & sys.modules.keys() != before:
            gc.freeze()
    finally:
        if enabled:
            gc.enable()
    return found
