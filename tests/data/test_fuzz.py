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

from benchmarks.fuzz_child import outcome
from benchmarks.fuzz_formats import READERS
from benchmarks.fuzz_mutations import files_in, unpacked
from tests.data import damage
from tests.data.damage import BINARY, BYTE_DAMAGE, TABLE_DAMAGE, TABLES, Elsewhere
from tests.data.nstep import n_step
from tidelog.data.inspect import describe_table
from tidelog.data.log import Log
from tidelog.data.read import read_log, validate
from tidelog.errors import TidelogError

CORPUS = Path(__file__).parent / "corpus"
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
    log = read_log(folder / "log.npz")
    fingerprint = log.fingerprint()
    log.save(folder / "clean")

    @settled(examples)
    @given(st.sampled_from(sorted(BYTE_DAMAGE)), st.booleans(), SEEDS)
    def spoil(kind: str, memory_map: bool, seed: int) -> None:
        rng = np.random.default_rng(seed)
        spoilt = folder / "spoilt"
        shutil.rmtree(spoilt, ignore_errors=True)
        shutil.copytree(folder / "clean", spoilt)
        path = rng.choice(sorted(spoilt.iterdir()))
        path.write_bytes(BYTE_DAMAGE[kind](rng, path.read_bytes()))
        found = damage.opened(spoilt, memory_map, fingerprint)
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


@pytest.mark.sample("spoil_folders")
@pytest.mark.parametrize(("spoiler", "few"), [spoiler[:2] for spoiler in SPOILERS],
                         ids=["spoil_tables", "spoil_bytes", "spoil_folders"])  # fmt: skip
def test_a_spoilt_file_is_caught_or_harmless(
    spoiler: Callable[..., None], few: int, folder: Path, elsewhere: Elsewhere
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


# Inputs that once ended in a traceback, a wrong report or a dead process: all are read or refused now.


KEPT = sorted(CORPUS.iterdir()) if CORPUS.exists() else []


@pytest.mark.parametrize("path", KEPT, ids=lambda path: path.name)
def test_a_kept_input_is_read_or_refused(path: Path, tmp_path: Path) -> None:
    name = path.name.rpartition("-")[0].replace("_", " ")
    assert outcome(READERS[name], unpacked(path.read_bytes()), tmp_path / "files") in ("valid", "caught")


@pytest.mark.full
@pytest.mark.parametrize("name", READERS)
def test_what_a_fuzzer_starts_from_is_valid(name: str, folder: Path, tmp_path: Path) -> None:
    READERS[name].seed(folder)
    assert outcome(READERS[name], files_in(folder), tmp_path / "files", 60.0) == "valid"


# Random valid logs survive every round trip; random damage is caught or harmless, and never a stack trace.


@st.composite
def arrays_of_properties(draw: st.DrawFn) -> dict[str, Any]:
    """Episodes of random lengths, ends and kinds, with the known next observations that follow from them."""
    lengths = draw(st.lists(st.integers(1, 5), min_size=1, max_size=6))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    rows = sum(lengths)
    ends = np.isin(np.arange(rows), np.cumsum(lengths) - 1)
    kind = draw(st.sampled_from(["discrete", "multi", "continuous"]))
    given: dict[str, Any] = {
        "observation": rng.normal(size=(rows, draw(st.integers(1, 3)))).astype(np.float32),
        "reward": rng.normal(size=rows).astype(np.float32),
        "episode": np.repeat(rng.permutation(len(lengths)), lengths),
        "terminated": ends & np.repeat(rng.random(len(lengths)) < 0.5, lengths),
        "action": rng.integers(0, 4, rows),
    }
    if kind == "multi":
        given["action"] = rng.integers(0, 4, (rows, 2))
    if kind == "continuous":
        given["action"] = rng.normal(size=(rows, 2)).astype(np.float32)
    if draw(st.booleans()):
        given["truncated"] = ends & ~given["terminated"]
    if draw(st.booleans()):
        following = np.roll(given["observation"], -1, axis=0)
        following[ends] += 1
        given["next_observation"] = following
    if draw(st.booleans()):
        given["propensity"] = rng.uniform(0.1, 1, rows).astype(np.float32)
    return given


@pytest.mark.full
@given(arrays_of_properties())
def test_valid_logs_survive_saving(given: dict[str, Any]) -> None:
    log = Log.from_arrays(**given)
    with tempfile.TemporaryDirectory() as folder:
        log.save(Path(folder) / "log")
        for memory_map in (False, True):
            assert Log.load(Path(folder) / "log", memory_map).fingerprint() == log.fingerprint()
    assert log.take_episodes(range(len(log.episodes))).fingerprint() == log.fingerprint()


@given(arrays_of_properties())
def test_what_comes_out_is_what_went_in(given: dict[str, Any]) -> None:
    log = Log.from_arrays(**given)
    transitions = log.transitions
    np.testing.assert_array_equal(transitions.observation["observation"], given["observation"])
    np.testing.assert_array_equal(transitions.action, given["action"])
    last = np.append(np.diff(log.episode) != 0, True)
    if "next_observation" in given:
        np.testing.assert_array_equal(transitions.next_observation["observation"], given["next_observation"])
    np.testing.assert_array_equal(transitions.followed, ~last | ("next_observation" in given))
    np.testing.assert_array_equal((log.terminated | log.truncated), last)
    assert not (log.terminated & log.truncated).any()


@given(arrays_of_properties(), st.integers(1, 4))
def test_windows_are_the_definition_row_by_row(given: dict[str, Any], n: int) -> None:
    log = Log.from_arrays(**given)
    windows = n_step(log, np.arange(log.steps), n, 0.5)
    for row in range(log.steps):
        end = log.starts[log.episode[row] + 1]
        usable = [k for k in range(row, min(row + n, end)) if log.terminated[k] or log.transitions.followed[k]]
        assert windows.m[row] == len(usable)
        reward = sum(0.5 ** (k - row) * float(log.reward[k]) for k in usable)
        np.testing.assert_allclose(windows.reward[row], reward, rtol=1e-6, atol=1e-6)
        if usable:
            assert windows.discount[row] == 0.5 ** len(usable) * (not log.terminated[usable[-1]])
            assert windows.next_position[row] == log.next_position[usable[-1]]


@given(arrays_of_properties())
def test_valid_logs_survive_csv(given: dict[str, Any]) -> None:
    wide = {"o": given["observation"], "n": given.get("next_observation"), "a": given["action"]}
    columns = {
        name: np.asarray(values).reshape(len(given["reward"]), -1)
        for name, values in wide.items()
        if values is not None
    }
    table = {f"{name}{place}": values[:, place] for name, values in columns.items() for place in range(values.shape[1])}
    single = {
        name: given[name] for name in ("reward", "episode", "terminated", "truncated", "propensity") if name in given
    }
    roles: dict[str, Any] = {name: name for name in single}
    roles |= {
        "observation": [name for name in table if name[0] == "o"],
        "action": [name for name in table if name[0] == "a"],
    }
    following = [name for name in table if name[0] == "n"]
    roles |= {"next_observation": following} if following else {}
    if given["action"].dtype.kind == "i":
        tops = given["action"].reshape(len(given["reward"]), -1).max(axis=0) + 1
        roles["actions"] = tops.tolist()
    with tempfile.TemporaryDirectory() as folder:
        pl.DataFrame(table | single).write_csv(Path(folder) / "log.csv")
        log = read_log(Path(folder) / "log.csv", roles)
    expected = Log.from_arrays(**given)
    for name, values in expected.columns().items():
        found = log.columns()[name.replace("observation/observation", "observation/numeric")]
        np.testing.assert_array_equal(found, values, err_msg=name)


ARRAY = st.sampled_from(
    [
        None, 3, "text", [], [[1], [1, 2]], np.zeros(5), np.zeros((6, 0)), np.full(6, np.nan), np.full(6, np.inf), {},
        np.arange(6), np.arange(6) - 3, np.ones((6, 2)), np.ones((6, 2, 2)), np.array(list("abcdef")),
        np.full(6, 1e300),
        np.arange(6).astype("datetime64[s]"), np.ones(6, bool), np.full(6, 2**62), np.ones(6, complex), [None] * 6,
        np.full(6, np.datetime64("NaT", "s")), {"x": np.zeros(6)}, {"x": np.zeros((6, 2))},
        np.full(6, 2**64 - 1, np.uint64),
    ]
)  # fmt: skip
CELL_ROLES = st.sampled_from(
    ["observation", "next_observation", "action", "reward", "terminated", "truncated", "episode", "step", "time",
     "propensity", "action_mask", "next_action_mask", "weight"]
)  # fmt: skip


@given(st.dictionaries(CELL_ROLES, ARRAY, min_size=1, max_size=3))
def test_any_array_for_any_role_is_a_log_or_a_report(change: dict[str, Any]) -> None:
    clean = {"observation": np.arange(6.0), "action": np.array([0, 1] * 3), "reward": np.arange(6.0)}
    try:
        log = Log.from_arrays(**{**clean, **change})
    except TidelogError:
        return
    assert log.steps == 6
    assert log.statistics().steps == 6
    assert log.fingerprint()
