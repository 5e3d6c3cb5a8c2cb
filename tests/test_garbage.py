"""The objects of JAX's import, which Python's search for reference cycles leaves out."""

import gc
import subprocess
import sys

import pytest

from tidelog._machine import import_without_gc

FROZEN = "import gc{before}, tidelog as tl; tl.Columns; light = gc.get_freeze_count(); tl.IQL; "
FROZEN += "print(light, gc.get_freeze_count())"


@pytest.mark.parametrize(("before", "frozen"), [("", True), (", jax", False)])
def test_the_objects_of_an_import_of_jax_are_frozen_unless_the_caller_has_imported_it(before, frozen):
    words = [sys.executable, "-c", FROZEN.format(before=before)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    light, heavy = map(int, shown.split())
    assert (light, heavy > 50_000) == (0, frozen)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_search_is_on_after_an_import_if_it_was_on_before(enabled):
    change = "" if enabled else "gc.disable(); "
    words = [sys.executable, "-c", f"import gc, tidelog as tl; {change}tl.IQL; print(gc.isenabled())"]
    assert subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip() == str(enabled)


def test_the_search_is_on_after_an_import_that_fails():
    with pytest.raises(ModuleNotFoundError):
        import_without_gc("tidelog.no_such_module")
    assert gc.isenabled()
