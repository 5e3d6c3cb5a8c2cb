"""Logs joined in memory are the log of all their episodes, and logs that differ are refused by what differs."""

from typing import Any

import numpy as np
import pytest

import tidelog as tl
from tests.data.visits import NEXT, mapping, visits, with_next
from tidelog.data.read import read_log
from tidelog.errors import LogError

ROWS = 24
RNG = np.random.default_rng(3)


def arrays(**changes: Any) -> dict[str, Any]:
    return {
        "observation": RNG.normal(size=(ROWS, 2)).astype(np.float32), "action": np.arange(ROWS) % 3, "actions": 3,
        "reward": np.ones(ROWS, np.float32), "episode": np.repeat(np.arange(12), 2),
        "terminated": np.arange(ROWS) % 2 == 1,
    } | changes  # fmt: skip


@pytest.mark.parametrize("followed", [False, True])
def test_joined_parts_are_the_whole(followed: bool) -> None:
    more = {"who": visits()["patient"], "w": visits()["p"], "t": visits()["hour"], "x": visits()["r"]}
    frame = with_next(visits()).with_columns(**more)
    roles: dict[str, Any] = {"cluster": "who", "weight": "w", "time": "t", "extra": ["x"]}
    roles |= {"next_observation": NEXT} if followed else {}
    columns = mapping(**roles, vocabularies={"ward": ["er", "hall, east", "home", "icu"]})
    whole = read_log(frame, columns)
    cuts = np.flatnonzero(frame["hour"].to_numpy() == 0)[[4, 9]]
    logs = [read_log(part, columns) for part in (frame[: cuts[0]], frame[cuts[0] : cuts[1]], frame[cuts[1] :])]
    joined = tl.concat(logs)
    assert joined.fingerprint() == whole.fingerprint()
    assert joined.origin is None
    for name, values in joined.columns().items():
        assert values.dtype == whole.columns()[name].dtype
    np.testing.assert_array_equal(joined.transitions.next_observation["numeric"],
                                  whole.transitions.next_observation["numeric"])  # fmt: skip
    assert tl.concat(logs[:1]) is logs[0]
    assert joined.report.rows == whole.steps


def test_identifiers_that_both_logs_use_are_numbered_anew_and_said() -> None:
    one, other = tl.Log.from_arrays(**arrays()), tl.Log.from_arrays(**arrays(cluster=None))
    joined = tl.concat([one, other])
    assert joined.episode_ids.tolist() == list(range(24))
    assert "12 identifiers of episodes that several logs use" in joined.report.notes[-1].found
    apart = tl.concat([one, tl.Log.from_arrays(**arrays(episode=np.repeat(np.arange(12), 2) + 50))])
    assert apart.episode_ids.tolist() == [*range(12), *range(50, 62)]
    assert [problem for problem in apart.report.problems if "identifiers" in problem.found] == []


def test_clusters_of_different_logs_are_different() -> None:
    cluster = np.repeat(np.arange(3), 8)
    logs = [tl.Log.from_arrays(**arrays(cluster=cluster)) for _ in range(2)]
    assert np.unique(tl.concat(logs).clusters).tolist() == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"actions": 4}, "spec.action.n is 3 in log 0"),
        ({"observation": np.zeros((ROWS, 3), np.float32)}, "spec.observation.observation.size"),
        ({"propensity": np.full(ROWS, 0.5)}, "column 'propensity' is absent in log 0"),
        ({"weight": np.ones(ROWS)}, "column 'weight'"),
        ({"cluster": np.zeros(ROWS, int)}, "column 'cluster'"),
        ({"extra": {"x": np.ones(ROWS)}}, "extra column 'x' is absent"),
        ({"action_mask": np.ones((ROWS, 3), bool)}, "spec.masked is False"),
        ({"action": RNG.normal(size=(ROWS, 1)), "actions": None, "bounds": (-9, 9)}, "spec.action.kind is Discrete"),
    ],
)
def test_logs_that_differ_are_refused_by_what_differs(change: dict[str, Any], said: str) -> None:
    log = tl.Log.from_arrays(**arrays())
    with pytest.raises(LogError) as caught:
        tl.concat([log, tl.Log.from_arrays(**arrays(**change))])
    assert said in str(caught.value)
    assert "log 1" in str(caught.value)
    assert "fix: " in str(caught.value)


def test_times_of_two_kinds_and_what_is_no_log_are_refused() -> None:
    log = tl.Log.from_arrays(**arrays(time=np.arange(ROWS, dtype=float)))
    dated = tl.Log.from_arrays(**arrays(time=np.arange(ROWS).astype("datetime64[s]")))
    with pytest.raises(LogError, match="the type of 'time' is numbers in log 0"):
        tl.concat([log, dated])
    wrong: list[Any] = [[], log, [log, visits()]]
    for logs in wrong:
        with pytest.raises(LogError, match="fix:"):
            tl.concat(logs)
