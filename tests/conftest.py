"""What the whole suite needs: compiled programs are forgotten before a process may hold no more of them."""

import gc
from pathlib import Path

import jax
import pytest

MAPS = Path("/proc/self/maps")
MANY = 20_000  # mapped regions; Linux allows a process 65,530, and each compiled program takes several


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Thousands of tests compile thousands of programs; XLA crashes where no more memory can be mapped."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        gc.collect()
