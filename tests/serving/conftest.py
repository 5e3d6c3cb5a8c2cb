"""A served policy, and clients of it."""

import importlib.util

import pytest

from tests.runtime.cases import policy
from tidelog import runtime

if not all(importlib.util.find_spec(name) for name in ("starlette", "uvicorn", "httpx")):
    collect_ignore_glob = ["test_*.py"]  # the extra [serve] is not installed


@pytest.fixture(scope="session")
def saved(tmp_path_factory):
    """Artefacts by the name of their case."""
    place = tmp_path_factory.mktemp("served")
    names = ("iql, choice", "iql, memory", "bc, point", "discrete bcq, pictures")
    return {name: policy(name).save(place / name.replace(", ", "-")) for name in names}


@pytest.fixture(scope="session")
def plain(saved):
    """The same policies on NumPy."""
    return {name: runtime.load(path) for name, path in saved.items()}
