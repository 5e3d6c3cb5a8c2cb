"""The shared files that tests read: real logs that are too large, or not ours, to keep here."""

import os
from pathlib import Path

import pytest

ROOT = Path(os.environ.get("TIDELOG_SHARED", Path(__file__).resolve().parents[1].parent / "shared"))


def shared(path: str) -> Path:
    """A file below the shared folder (TIDELOG_SHARED, else ../shared); skips the test where it is absent."""
    found = ROOT / path
    if not found.exists():
        pytest.skip(f"{found} is not here; set TIDELOG_SHARED to the folder that holds {path}")
    return found
