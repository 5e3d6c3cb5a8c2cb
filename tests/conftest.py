"""What the whole suite needs: its tiers, and programs that are compiled quickly and once.

`pytest` runs the default tier. `pytest -m full` runs what is marked `full` and neither `slow` nor `bits`, the cases of
a parametrised test that its mark `sample` does not name (with `others="slow"` these are slow), and the property tests
again with more examples. All run on the processor, whose numbers they expect, also where there is a GPU;
`JAX_PLATFORMS=cuda JAX_DEFAULT_MATMUL_PRECISION=highest pytest tests/golden` runs these tests on the GPU. Both tiers
have XLA compile quickly, into slower programs; `pytest -m bits` and `pytest -m slow` compile as users do. Only `bits`
runs the tests that compare the bits of different programs, `bits(across_programs=True)`: programs that are compiled
quickly round differently.
"""

import gc
import hashlib
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import jax
import pytest
from hypothesis import HealthCheck, settings

from tidelog._machine import use_cache

QUICK_XLA = {
    "xla_backend_optimization_level": "0",
    "xla_cpu_use_fusion_emitters": "false",
    "xla_cpu_parallel_codegen_split_count": "1",  # the suite's workers already use all cores
}
KEPT_DAYS = 14
MAPS = Path("/proc/self/maps")
MANY = 42_000  # mapped regions; Linux allows a process 65,530, and each compiled program takes several
EXAMPLES = {"default": 20, "full": 100}
for tier, examples in EXAMPLES.items():
    settings.register_profile(
        tier,
        max_examples=examples,
        deadline=None,
        derandomize=True,
        database=None,
        suppress_health_check=[HealthCheck.too_slow],
    )


def full_tier(config) -> bool:
    """Whether the tests marked `full` are asked for."""
    return re.search(r"(?<!not )\bfull\b", config.option.markexpr) is not None


def accepted_flags(flags: list[str]) -> list[str]:
    """Return those flags that the installed XLA takes; it ends a process that sets another one."""

    def runs(several: list[str]) -> bool:
        environment = {**os.environ, "XLA_FLAGS": " ".join(several)}
        words = [sys.executable, "-c", "import jax; jax.devices()"]
        return subprocess.run(words, env=environment, capture_output=True, check=False).returncode == 0

    if runs(flags):
        return flags
    if not runs([]):
        raise pytest.UsageError("JAX does not start: `python -c 'import jax; jax.devices()'` says why")
    return [flag for flag in flags if runs([flag])]


def programs(config) -> Path | None:
    """Return the folder of compiled programs, kept from one run of the suite to the next, without old ones."""
    if not hasattr(config, "cache"):
        return None  # -p no:cacheprovider
    folder = config.cache.mkdir("programs")
    for file in folder.iterdir():
        if file.stat().st_mtime < time.time() - KEPT_DAYS * 24 * 3600:
            file.unlink(missing_ok=True)
    return folder


def pytest_configure(config):
    settings.load_profile("full" if full_tier(config) else "default")
    if hasattr(config, "workerinput"):
        return  # a worker has the environment of the process that started it
    platform = os.environ.setdefault("JAX_PLATFORMS", "cpu")
    jax.config.update("jax_platforms", platform)  # JAX was imported before
    if "full" in config.option.markexpr and platform == "cpu":  # other platforms end a process that sets these
        flags = accepted_flags([f"--{flag}={value}" for flag, value in QUICK_XLA.items()])
        os.environ["XLA_FLAGS"] = " ".join([*flags, os.environ.get("XLA_FLAGS", "")]).strip()
    if "TIDELOG_CACHE" not in os.environ and (folder := programs(config)) is not None:
        os.environ["TIDELOG_CACHE"] = str(folder)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config, items):
    def leave_out(apart):
        config.hook.pytest_deselected(items=list(apart))
        items[:] = [item for item in items if item not in apart]

    seen = {}
    for item in items:
        sample = item.get_closest_marker("sample")
        if sample is not None:
            cases = seen.setdefault((item.location[0], item.originalname), (set(sample.args), []))[1]
            every = sample.kwargs.get("every")
            sampled = item.callspec.id in sample.args or (every is not None and len(cases) % every == 0)
            cases.append(item.callspec.id)
            if not sampled:
                item.add_marker(sample.kwargs.get("others", "full"))
        if full_tier(config) and getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("full")
    if "full" in config.option.markexpr:
        marks = {item: item.get_closest_marker("bits") for item in items}
        whole = full_tier(config)  # what the tier `bits` runs with the programs of users need not run there, too
        apart = {item for item, mark in marks.items() if mark and (whole or mark.kwargs.get("across_programs"))}
        leave_out(apart)
    if config.option.markexpr and "slow" not in config.option.markexpr:
        leave_out({item for item in items if item.get_closest_marker("slow")})
    if not any("::" in argument for argument in config.args):
        unknown = {test: sorted(named - {*cases}) for test, (named, cases) in seen.items() if named - {*cases}}
        if unknown:
            raise pytest.UsageError(f"marks `sample` name cases that do not exist: {unknown}")


@pytest.fixture(scope="session", autouse=True)
def cache(tmp_path_factory):
    """Compiled programs do not go into the user's cache; workers and commands share them."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base
    os.environ.setdefault("TIDELOG_CACHE", str(shared / "programs"))
    use_cache()


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
