"""Random valid logs survive every round trip; random damage is caught or harmless, and never a stack trace."""

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.data.nstep import n_step
from tests.data.visits import NEXT, mapping, visits, with_next
from tidelog.data.log import Log
from tidelog.data.read import open_log, read_log, validate
from tidelog.errors import TidelogError

CLEAN = with_next(visits()).write_csv().encode()


@st.composite
def arrays(draw: st.DrawFn) -> dict[str, Any]:
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
@given(arrays())
def test_valid_logs_survive_saving(given: dict[str, Any]) -> None:
    log = Log.from_arrays(**given)
    with tempfile.TemporaryDirectory() as folder:
        log.save(Path(folder) / "log")
        for memory_map in (False, True):
            assert open_log(Path(folder) / "log", memory_map).fingerprint() == log.fingerprint()
    assert log.take_episodes(range(len(log.episodes))).fingerprint() == log.fingerprint()


@given(arrays())
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


@given(arrays(), st.integers(1, 4))
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


@given(arrays())
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


@given(st.lists(st.tuples(st.integers(0, len(CLEAN) - 1), st.integers(0, 255)), min_size=1, max_size=4), st.booleans())
def test_damaged_text_is_caught_or_harmless(damage: list[tuple[int, int]], cut: bool) -> None:
    content = bytearray(CLEAN)
    for place, byte in damage:
        content[place] = byte
    content = content[: damage[0][0]] if cut else content
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.csv"
        path.write_bytes(bytes(content))
        columns = mapping(next_observation=NEXT)
        report = validate(path, columns)
        if report.ok:
            assert read_log(path, columns).report == report
        assert report.text()


@given(st.integers(0, 10**6), st.integers(0, 255), st.booleans(), st.booleans())
def test_a_damaged_folder_is_caught_or_harmless(place: int, byte: int, cut: bool, memory_map: bool) -> None:
    with tempfile.TemporaryDirectory() as folder:
        log = read_log(visits(), mapping())
        log.save(Path(folder) / "log")
        files = sorted((Path(folder) / "log").iterdir())
        file = files[place % len(files)]
        content = bytearray(file.read_bytes())
        content[place % len(content)] = byte
        file.write_bytes(bytes(content[: place % len(content)] if cut else content))
        try:
            again = open_log(Path(folder) / "log", memory_map)
        except TidelogError:
            return
        assert memory_map or again.fingerprint() == log.fingerprint()


VALUES = st.one_of(st.none(), st.floats(width=64), st.integers(-(2**63), 2**63 - 1), st.text(max_size=5), st.booleans())


@pytest.mark.full
@given(st.sampled_from(with_next(visits()).columns), st.lists(VALUES, min_size=1, max_size=3), st.booleans())
def test_any_value_in_any_cell_is_a_report(name: str, values: list[Any], everywhere: bool) -> None:
    frame = with_next(visits())
    cells = frame[name].cast(pl.String).to_list()
    texts = [None if value is None else str(value) for value in values]
    for row in range(len(cells) if everywhere else len(texts)):
        cells[row] = texts[row % len(texts)]
    report = validate(frame.with_columns(pl.Series(name, cells, pl.String)), mapping(next_observation=NEXT))
    if report.ok:
        read_log(frame.with_columns(pl.Series(name, cells, pl.String)), mapping(next_observation=NEXT))


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
ROLES = st.sampled_from(
    ["observation", "next_observation", "action", "reward", "terminated", "truncated", "episode", "step", "time",
     "propensity", "action_mask", "next_action_mask", "weight"]
)  # fmt: skip


@given(st.dictionaries(ROLES, ARRAY, min_size=1, max_size=3))
def test_any_array_for_any_role_is_a_log_or_a_report(change: dict[str, Any]) -> None:
    clean = {"observation": np.arange(6.0), "action": np.array([0, 1] * 3), "reward": np.arange(6.0)}
    try:
        log = Log.from_arrays(**{**clean, **change})
    except TidelogError:
        return
    assert log.steps == 6
    assert log.statistics().steps == 6
    assert log.fingerprint()
