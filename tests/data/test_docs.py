"""The page of checks is complete, and the room is light to enter."""

import subprocess
import sys
from pathlib import Path

from tidelog.data import checks as checks
from tidelog.data.columns import Columns
from tidelog.data.raw import CHECKS, as_table

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "data.md").read_text()


def test_the_table_of_checks_is_the_registry() -> None:
    assert f"\n\n{as_table()}\n\n" in PAGE, "paste what `as_table()` returns into docs/data.md"
    assert all(one.meaning.endswith(".") for one in CHECKS.values())


def test_every_field_of_a_mapping_is_on_the_page() -> None:
    for name in Columns.__dataclass_fields__:
        assert f"`{name}`" in PAGE, name


def test_the_room_loads_neither_jax_nor_what_it_does_not_need() -> None:
    code = (
        "import sys; from tidelog.data import formats, inspect, read;"
        "print([name for name in ('jax', 'equinox', 'minari', 'gymnasium', 'pandas', 'h5py') if name in sys.modules])"
    )
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert said.stdout.strip() == "[]"
