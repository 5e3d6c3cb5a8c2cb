"""What the whole suite needs: programs are compiled once, and forgotten before a process may hold no more of them."""

import gc
import hashlib
import os
from pathlib import Path

import jax
import pytest

from tidelog.training.engine.cache import use_cache

MAPS = Path("/proc/self/maps")
MANY = 20_000  # mapped regions; Linux allows a process 65,530, and each compiled program takes several


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled programs go where this session ends, not into the user's cache; workers and commands share them."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    before = os.environ.get("TIDELOG_CACHE")
    os.environ["TIDELOG_CACHE"] = before or str(shared / "programs")
    use_cache()
    yield
    if before is None:
        del os.environ["TIDELOG_CACHE"]


@pytest.fixture(scope="session", autouse=True)
def remembered(tmp_path_factory):
    """What fixtures judge is written down where this session ends, not in the user's state folder."""
    folder = tmp_path_factory.getbasetemp() / "state"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TIDELOG_STATE", str(folder))
        yield folder


@pytest.fixture(autouse=True)
def forgetful(remembered, request, monkeypatch):
    """No test is a second look at the episodes of another one."""
    name = hashlib.sha256(request.node.nodeid.encode()).hexdigest()[:16]
    monkeypatch.setenv("TIDELOG_STATE", str(remembered / name))


@pytest.fixture(scope="session", autouse=True)
def imported():
    """What was imported stays, and is not looked through again for garbage; nor is everything else so often."""
    gc.freeze()
    gc.set_threshold(50_000)


@pytest.fixture(scope="module", autouse=True)
def room_for_programs():
    """Thousands of tests compile thousands of programs; XLA crashes where no more memory can be mapped."""
    yield
    if MAPS.exists() and MAPS.read_bytes().count(b"\n") > MANY:
        jax.clear_caches()
        gc.collect()
