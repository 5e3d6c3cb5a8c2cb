"""The objects of JAX's import, which Python's search for reference cycles leaves out."""

import subprocess
import sys

import pytest

FROZEN = "import gc{before}, tidelog as tl; tl.Columns; light = gc.get_freeze_count(); tl.IQL; "
FROZEN += "print(light, gc.get_freeze_count())"


@pytest.mark.parametrize(("before", "frozen"), [("", True), (", jax", False)])
def test_the_objects_of_an_import_of_jax_are_frozen_unless_the_caller_has_imported_it(before, frozen):
    words = [sys.executable, "-c", FROZEN.format(before=before)]
    shown = subprocess.run(words, capture_output=True, text=True, check=True).stdout
    light, heavy = map(int, shown.split())
    assert (light, heavy > 50_000) == (0, frozen)
