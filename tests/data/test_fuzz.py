"""Random valid logs survive every format; spoilt files are caught or harmless, never a stack trace or a dead process.

`pytest -m slow tests/data/test_fuzz.py` spoils more than ten thousand files and leaves what came of them in
benchmarks/results/door_fuzz.json.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data import damage
from tests.data.damage import BINARY, BYTE_DAMAGE, TABLE_DAMAGE, TABLES, Elsewhere
from tidelog.data import read_log, read_npz

FINE = ("valid", "caught")
SEEDS = st.integers(0, 2**32 - 1)
Tally = Counter[tuple[str, str]]


def settled(examples: int) -> Any:
    checks = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large]
    return settings(max_examples=examples, deadline=None, suppress_health_check=checks, derandomize=True, database=None)


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[Elsewhere]:
    one = Elsewhere()
    yield one
    one.close()


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as made:
        yield Path(made)


def spoil_tables(folder: Path, elsewhere: Elsewhere, tally: Tally, examples: int) -> None:
    @settled(examples)
    @given(st.sampled_from(TABLES), st.lists(st.sampled_from(sorted(TABLE_DAMAGE)), min_size=1, max_size=3), SEEDS)
    def spoil(form: str, kinds: list[str], seed: int) -> None:
        rng = np.random.default_rng(seed)
        frame, mapping = damage.table(rng)
        for kind in kinds:
            frame = TABLE_DAMAGE[kind](rng, frame)
        path = damage.write(frame, folder / f"log{form}")
        found = damage.outcome(path, mapping, seed % 4 == 0)
        tally[f"table {form}", found] += 1
        assert found in FINE, found

    spoil()


def spoil_bytes(folder: Path, elsewhere: Elsewhere, tally: Tally, examples: int) -> None:
    @settled(examples)
    @given(st.sampled_from((*TABLES, ".npz")), st.sampled_from(sorted(BYTE_DAMAGE)), SEEDS)
    def spoil(form: str, kind: str, seed: int) -> None:
        rng = np.random.default_rng(seed)
        frame, mapping = damage.table(rng)
        path = folder / f"log{form}"
        if form == ".npz":
            np.savez(path, **arrays(rng))
        else:
            damage.write(frame, path)
        path.write_bytes(BYTE_DAMAGE[kind](rng, path.read_bytes()))
        judge = elsewhere.outcome if form in BINARY else damage.outcome
        found = judge(path, None if form == ".npz" else mapping, seed % 4 == 0)
        tally[f"bytes {form}", found] += 1
        assert found in FINE, found

    spoil()


def spoil_folders(folder: Path, elsewhere: Elsewhere, tally: Tally, examples: int) -> None:
    np.savez(folder / "log.npz", **arrays(np.random.default_rng(0)))
    read_npz(folder / "log.npz").save(folder / "clean")

    @settled(examples)
    @given(st.sampled_from(sorted(BYTE_DAMAGE)), st.booleans(), SEEDS)
    def spoil(kind: str, memory_map: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        spoilt = folder / "spoilt"
        shutil.rmtree(spoilt, ignore_errors=True)
        shutil.copytree(folder / "clean", spoilt)
        path = rng.choice(sorted(spoilt.iterdir()))
        path.write_bytes(BYTE_DAMAGE[kind](rng, path.read_bytes()))
        found = damage.opened(spoilt, memory_map)
        tally["saved log", found] += 1
        assert found in FINE

    spoil()


def arrays(rng: np.random.Generator) -> dict[str, Any]:
    ends = np.arange(24) % 4 == 3
    return {
        "observation/seen": rng.normal(size=(24, 2)).astype(np.float32), "observation/code": rng.integers(0, 3, 24),
        "action": rng.integers(0, 3, 24), "reward": rng.normal(size=24).astype(np.float32),
        "episode": np.repeat(np.arange(6), 4), "terminated": ends, "propensity": np.full(24, 0.3),
    }  # fmt: skip


SPOILERS: list[tuple[Callable[[Path, Elsewhere, Tally, int], None], int, int]] = [
    (spoil_tables, 150, 5_000), (spoil_bytes, 150, 5_000), (spoil_folders, 40, 1_000),
]  # fmt: skip


@given(SEEDS, st.sampled_from(TABLES))
@settled(60)
def test_a_valid_table_is_the_same_log_in_every_format(seed: int, form: str) -> None:
    frame, mapping = damage.table(np.random.default_rng(seed))
    expected = read_log(frame, mapping)
    with tempfile.TemporaryDirectory() as made:
        found = read_log(damage.write(frame, Path(made) / f"log{form}"), mapping)
        assert found.fingerprint() == expected.fingerprint()
        for name, values in expected.columns().items():
            np.testing.assert_array_equal(found.columns()[name], values, err_msg=name)


@pytest.mark.parametrize(("spoiler", "few", "many"), SPOILERS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_spoilt_file_is_caught_or_harmless(
    spoiler: Callable[..., None], few: int, many: int, folder: Path, elsewhere: Elsewhere
) -> None:
    tally: Tally = Counter()
    spoiler(folder, elsewhere, tally, few)
    assert {found for _, found in tally} == set(FINE)


@pytest.mark.slow
def test_ten_thousand_spoilt_files(elsewhere: Elsewhere) -> None:
    from benchmarks.keep import keep

    tally: Tally = Counter()
    begun = time.perf_counter()
    for spoiler, _, many in SPOILERS:
        with tempfile.TemporaryDirectory() as made:
            spoiler(Path(made), elsewhere, tally, many)
    counts: dict[str, dict[str, int]] = {}
    for (what, found), count in sorted(tally.items()):
        counts.setdefault(what, {})[found] = count
    total = sum(tally.values())
    content = {"examples": total, "seconds": round(time.perf_counter() - begun, 1), "outcomes": counts}
    keep("door_fuzz", "pytest -m slow tests/data/test_fuzz.py", content)
    assert total >= 10_000
