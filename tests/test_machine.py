"""What a process holds: arenas of the C library, memory that it returns, and objects that no search looks through."""

import gc
import os
import subprocess
import sys

import pytest

from tidelog._machine import import_without_gc

linux = pytest.mark.skipif(sys.platform != "linux", reason="glibc is the C library of Linux")
ARENAS = """
import ctypes, os, sys, threading
from tidelog._machine import limit_arenas
limit_arenas()
meet = threading.Barrier(6)
def work():
    kept = [bytearray(2_000) for _ in range(100)]
    meet.wait()
threads = [threading.Thread(target=work) for _ in range(6)]
[one.start() for one in threads]
[one.join() for one in threads]
library = ctypes.CDLL(None)
library.fdopen.restype = ctypes.c_void_p
stream = ctypes.c_void_p(library.fdopen(1, b"w"))
library.malloc_info(0, stream)
library.fflush(stream)
"""


@linux
@pytest.mark.parametrize(("environment", "arenas"), [({}, 2), ({"MALLOC_ARENA_MAX": "4"}, 4)])
def test_threads_share_two_arenas_unless_the_environment_says_otherwise(environment, arenas):
    done = subprocess.run([sys.executable, "-c", ARENAS], env=os.environ | environment, capture_output=True, text=True)
    assert done.stdout.count("<heap nr=") == arenas, done.stderr


FREED = """
import os
from pathlib import Path
from tidelog._machine import release_memory
def resident():
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
before = resident()
small = [bytes(1_000) for _ in range(60_000)]  # below the size that the C library maps by itself
kept, between = small[::2_000], resident()
del small
release_memory()
print(len(kept), between - before, resident() - before)
"""


@linux
def test_freed_memory_is_returned():
    """In a process of its own: a large one would use what it has freed before."""
    done = subprocess.run([sys.executable, "-c", FREED], capture_output=True, text=True, check=True)
    kept, taken, left = map(int, done.stdout.split())
    assert kept == 30
    assert taken > 40e6
    assert left < 20e6


# The objects of JAX's import, which Python's search for reference cycles leaves out.


FROZEN = "import gc{before}, tidelog as tl; {change}tl.Columns; light = gc.get_freeze_count(); tl.IQL; "
FROZEN += "print(light, gc.get_freeze_count(), gc.isenabled())"


@pytest.mark.parametrize(
    ("before", "change", "frozen"),
    [("", "", True), (", jax", "", False), ("", "gc.disable(); ", True)],
    ids=["alone", "after jax", "without a search"],
)
def test_the_objects_of_an_import_of_jax_are_frozen_and_the_search_is_on_if_it_was_on_before(before, change, frozen):
    words = [sys.executable, "-c", FROZEN.format(before=before, change=change)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    light, heavy, enabled = shown.split()
    assert (int(light), int(heavy) > 50_000, enabled) == (0, frozen, str(not change))


def test_the_search_is_on_after_an_import_that_fails():
    with pytest.raises(ModuleNotFoundError):
        import_without_gc("tidelog.no_such_module")
    assert gc.isenabled()
