"""Random valid logs survive every format; spoilt files are caught or harmless, never a stack trace or a dead process.

One end of the process is allowed: Polars, which reads Parquet and Arrow, stops it where a file declares more than the
memory.

`pytest -m slow tests/data/test_fuzz.py` spoils more than ten thousand files and leaves what came of them in
benchmarks/results/door_fuzz.json.
"""

import datetime
import shutil
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.data import damage
from tests.data.damage import BINARY, BYTE_DAMAGE, TABLE_DAMAGE, TABLES, Elsewhere
from tidelog.data.inspect import describe_table
from tidelog.data.read import read_log, validate

FINE = ("valid", "caught")
NO_MEMORY = f"the process ended with {-signal.SIGABRT}"
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
        found = damage.outcome(path, mapping, seed % 8 == 0)
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
        found = judge(path, None if form == ".npz" else mapping, seed % 8 == 0)
        tally[f"bytes {form}", found] += 1
        assert found in FINE or (form in BINARY and found == NO_MEMORY), found

    spoil()


def spoil_folders(folder: Path, elsewhere: Elsewhere, tally: Tally, examples: int) -> None:
    np.savez(folder / "log.npz", **arrays(np.random.default_rng(0)))
    read_log(folder / "log.npz").save(folder / "clean")

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
    (spoil_tables, 100, 5_000), (spoil_bytes, 120, 5_000), (spoil_folders, 40, 1_000),
]  # fmt: skip


@given(SEEDS, st.sampled_from(TABLES))
@settled(60)
@pytest.mark.full
def test_a_valid_table_is_the_same_log_in_every_format(seed: int, form: str) -> None:
    frame, mapping = damage.table(np.random.default_rng(seed))
    expected = read_log(frame, mapping)
    with tempfile.TemporaryDirectory() as made:
        found = read_log(damage.write(frame, Path(made) / f"log{form}"), mapping)
        assert found.fingerprint() == expected.fingerprint()
        for name, values in expected.columns().items():
            np.testing.assert_array_equal(found.columns()[name], values, err_msg=name)


@pytest.mark.full
@pytest.mark.parametrize(("spoiler", "few", "many"), SPOILERS, ids=lambda one: getattr(one, "__name__", ""))
def test_a_spoilt_file_is_caught_or_harmless(
    spoiler: Callable[..., None], few: int, many: int, folder: Path, elsewhere: Elsewhere
) -> None:
    tally: Tally = Counter()
    spoiler(folder, elsewhere, tally, few)
    assert {found for _, found in tally} - {NO_MEMORY} == set(FINE)


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


ROWS = 12
ROLES = {"e": "episode", "s": "step", "o": "observation", "a": "action", "r": "reward", "d": "terminated",
         "p": "propensity", "m": "action_mask", "t": "time", "n": "next_observation", "x": "extra"}  # fmt: skip
ORDINARY = pl.DataFrame({
    "e": [0] * 6 + [1] * 6, "s": [*range(6), *range(6)], "o": np.arange(ROWS) / 2, "a": [0, 1] * 6,
    "r": np.arange(ROWS) * 1.0, "d": ([0] * 5 + [1]) * 2, "p": 0.5, "m": "1,1", "t": range(ROWS),
    "n": (np.arange(ROWS) + 1) / 2, "x": 1,
})  # fmt: skip
KINDS: dict[str, pl.Series] = {
    "struct": pl.Series([{"x": 1}] * ROWS), "object": pl.Series([object()] * ROWS, dtype=pl.Object),
    "bytes": pl.Series([b"\xff"] * ROWS), "clock": pl.Series([datetime.time(1)] * ROWS),
    "duration": pl.Series([datetime.timedelta(1)] * ROWS), "nothing": pl.Series([None] * ROWS),
    "words": pl.Series([["a"]] * ROWS), "nested": pl.Series([[[1]]] * ROWS), "structs": pl.Series([[{"x": 1}]] * ROWS),
    "array": pl.Series([[1.0, 2.0]] * ROWS, dtype=pl.Array(pl.Float64, 2)),
    "empty lists": pl.Series([[]] * ROWS, dtype=pl.List(pl.Int64)), "null lists": pl.Series([[None]] * ROWS),
    "flags": pl.Series([[True, False]] * ROWS), "wide": pl.Series([2**100] * ROWS, dtype=pl.Int128),
    "unsigned": pl.Series([2**64 - 1] * ROWS, dtype=pl.UInt64), "enum": pl.Series(["x"] * ROWS, dtype=pl.Enum(["x"])),
    "decimal": pl.Series(["1.5"] * ROWS).cast(pl.Decimal(10, 2)),
    "zoned": pl.Series([datetime.datetime(2020, 1, 1)] * ROWS).dt.replace_time_zone("Europe/Paris"),
}  # fmt: skip


@pytest.mark.sample("structs", "decimal", "zoned")
@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_column_in_every_role_is_a_log_or_a_report(kind: str) -> None:
    for column in ROLES:
        frame = ORDINARY.with_columns(KINDS[kind].alias(column))
        report = validate(frame, {role: name for name, role in ROLES.items()})
        if report.ok:
            assert read_log(frame, {role: name for name, role in ROLES.items()}).report == report
        assert describe_table(frame).text()
