"""Where observations are stored, what windows may reach, and how logs are taken apart, joined and shown as tables."""

from typing import Any

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.data.nstep import n_step
from tests.data.visits import LENGTHS, NEXT, mapping, visits, with_next
from tidelog.data.log import Log
from tidelog.data.read import read_log
from tidelog.errors import ConfigError, LogError
from tidelog.types import Codes, Continuous, Discrete, MultiDiscrete, Vector


def small(**changes: Any) -> Log:
    """Three episodes: 0-1 terminated, 2-3 truncated with a known next observation, 4-5 truncated without one.

    Next observations are given for all, and the last one differs by case.
    """
    given: dict[str, Any] = {
        "observation": np.arange(6, dtype=np.float32), "action": np.array([0, 1, 0, 1, 0, 1]),
        "reward": np.arange(6, dtype=np.float32), "episode": [7, 7, 8, 8, 9, 9],
        "terminated": [0, 1, 0, 0, 0, 0], "truncated": [0, 0, 0, 1, 0, 1],
    }  # fmt: skip
    return Log.from_arrays(**{**given, **changes})


def test_without_next_observations_rows_and_stored_observations_are_one() -> None:
    log = small()
    np.testing.assert_array_equal(log.position, np.arange(6))
    np.testing.assert_array_equal(log.next_position, [1, 1, 3, 3, 5, 5])
    np.testing.assert_array_equal(log.observation["observation"][:, 0], np.arange(6))
    np.testing.assert_array_equal(log.reach, [1, 1, 2, 2, 4, 4])  # truncated ends cannot be bootstrapped from
    np.testing.assert_array_equal(log.has_target, [True, True, True, False, True, False])
    np.testing.assert_array_equal(log.transitions.followed, [True, False, True, False, True, False])


def test_with_next_observations_each_episode_stores_one_more() -> None:
    log = small(next_observation=np.array([1, 10, 3, 11, 5, 12], np.float32))
    np.testing.assert_array_equal(log.observation["observation"][:, 0], [0, 1, 10, 2, 3, 11, 4, 5, 12])
    np.testing.assert_array_equal(log.position, [0, 1, 3, 4, 6, 7])
    np.testing.assert_array_equal(log.next_position, [1, 2, 4, 5, 7, 8])
    np.testing.assert_array_equal(log.reach, [1, 1, 3, 3, 5, 5])
    np.testing.assert_array_equal(log.transitions.next_observation["observation"][:, 0], [1, 10, 3, 11, 5, 12])
    np.testing.assert_array_equal(log.transitions[[3, 0]].next_observation["observation"][:, 0], [11, 1])
    np.testing.assert_array_equal(log.transitions[2:4].reward, [2, 3])


def test_rows_are_sorted_by_episode_and_step_and_end_in_the_same_log() -> None:
    frame = with_next(visits())
    ordered = read_log(frame, mapping(next_observation=NEXT))
    first_rows = frame.unique("patient", keep="first", maintain_order=True)  # keeps the episodes' order of appearance
    rest = frame.join(first_rows.select("patient", "hour"), on=["patient", "hour"], how="anti").sample(
        fraction=1.0, shuffle=True, seed=1
    )
    mixed = read_log(first_rows.vstack(rest), mapping(next_observation=NEXT))
    assert mixed.fingerprint() == ordered.fingerprint()
    assert mixed.episode_ids.tolist() == [f"p{ordinal}" for ordinal in range(12)]


def test_masks_are_stored_by_position_and_all_is_allowed_after_the_end() -> None:
    mask = np.array([[1, 1, 0], [0, 1, 1], [1, 0, 0], [0, 1, 0], [1, 1, 0], [1, 1, 1]], bool)
    following = np.array([1, 10, 3, 11, 5, 12], np.float32)
    log = small(action_mask=mask, next_observation=following)
    assert log.spec.masked
    np.testing.assert_array_equal(log.transitions.mask, mask)
    np.testing.assert_array_equal(log.transitions.next_mask[[1, 3, 5]], np.ones((3, 3), bool))
    after = np.roll(mask, -1, axis=0)
    after[[1, 3, 5]] = [[0, 0, 1], [0, 1, 0], [1, 0, 0]]
    log = small(action_mask=mask, next_action_mask=after, next_observation=following)
    np.testing.assert_array_equal(log.transitions.next_mask, after)


def test_flags_stay_apart() -> None:
    both = small(truncated=[0, 1, 0, 1, 0, 1])
    np.testing.assert_array_equal(both.terminated, [0, 1, 0, 0, 0, 0])
    np.testing.assert_array_equal(both.truncated, [0, 0, 0, 1, 0, 1])
    none = small(terminated=None, truncated=None)
    np.testing.assert_array_equal(none.truncated, [0, 1, 0, 1, 0, 1])
    every = small(terminated=True, truncated=None)
    np.testing.assert_array_equal(every.terminated, [0, 1, 0, 1, 0, 1])
    ignored = small(terminations="ignore")
    assert not ignored.terminated.any()
    np.testing.assert_array_equal(ignored.truncated, [0, 1, 0, 1, 0, 1])


def test_kinds_follow_from_the_arrays() -> None:
    assert small().spec.observation == {"observation": Vector(1)}
    assert small().spec.action == Discrete(2)
    assert small(observation=np.array([[0, 2]] * 6)).spec.observation == {"observation": Codes((1, 3))}
    assert small(observation=np.array([[0, 2]] * 6), categorical=False).spec.observation == {"observation": Vector(2)}
    leaves = small(observation={"a": np.zeros((6, 3)), "b": ["x", "y"] * 3}).spec.observation
    assert leaves == {"a": Vector(3), "b": Codes((2,), (), (("x", "y"),))}
    assert small(action=np.array([[0, 2]] * 6)).spec.action == MultiDiscrete((1, 3))
    assert small(action=np.array([[0, 2]] * 6), actions=[2, 4]).spec.action == MultiDiscrete((2, 4))
    assert small(action=np.linspace(-1, 1, 6)).spec.action == Continuous((-1.0,), (1.0,))
    assert small(action=np.zeros((6, 2)), bounds=(-1, 1)).spec.action == Continuous((-1.0, -1.0), (1.0, 1.0))
    box = np.full(2, -1, np.float32), np.full(2, 1, np.float32)
    assert small(action=np.zeros((6, 2)), bounds=box).spec.action == Continuous((-1.0, -1.0), (1.0, 1.0))
    assert small(action=["up", "down"] * 3).spec.action == Discrete(2, ("down", "up"))
    assert small(reward=np.zeros((6, 2))).spec.rewards == 2
    assert small(reward=None).reward is None


def test_next_words_share_the_vocabulary() -> None:
    log = small(observation=list("abcdef"), next_observation=list("bZdYfX"))
    assert log.spec.observation["observation"] == Codes((9,), (), (tuple("XYZabcdef"),))
    words = np.array(list("XYZabcdef"))
    assert "".join(words[log.transitions.next_observation["observation"][:, 0]]) == "bZdYfX"


def test_dtypes_are_the_promised_ones() -> None:
    log = read_log(with_next(visits()), mapping(next_observation=NEXT))
    kinds = {name: str(values.dtype) for name, values in log.columns().items() if name != "episode_ids"}
    assert kinds == {
        "observation/numeric": "float32", "observation/categorical": "int32", "position": "int32",
        "next_position": "int32", "action": "int32", "terminated": "bool", "truncated": "bool", "episode": "int32",
        "step": "int32", "reward": "float32", "propensity": "float32", "action_mask": "bool",
    }  # fmt: skip
    assert str(log.reach.dtype) == "int32"


def test_split_is_by_episode_deterministic_and_never_empty() -> None:
    log = read_log(with_next(visits()), mapping(next_observation=NEXT))
    train, held_out = log.split(0.75, seed=3)
    assert (len(train.episodes), len(held_out.episodes)) == (9, 3)
    assert not set(train.episode_ids) & set(held_out.episode_ids)
    assert train.fingerprint() == log.split(0.75, seed=3)[0].fingerprint()
    assert train.fingerprint() != log.split(0.75, seed=4)[0].fingerprint()
    assert [len(part.episodes) for part in log.split(0.999)] == [11, 1]
    assert [len(part.episodes) for part in log.split(0.001)] == [1, 11]
    with pytest.raises(LogError, match="at least 2"):
        train.take_episodes([0]).split()
    with pytest.raises(LogError, match="between 0 and 1"):
        log.split(1.5)


def test_taken_episodes_are_the_same_episodes() -> None:
    log = read_log(with_next(visits()), mapping(next_observation=NEXT, truncated=None))
    assert log.take_episodes(range(12)).fingerprint() == log.fingerprint()
    taken = log.take_episodes([5, 2, 5])
    for place, ordinal in enumerate((5, 2, 5)):
        mine, theirs = taken.episodes[place], log.episodes[ordinal]
        assert mine.id == theirs.id
        for name in mine.observation:
            np.testing.assert_array_equal(mine.observation[name], theirs.observation[name])
        np.testing.assert_array_equal(mine.action_mask, theirs.action_mask)
        np.testing.assert_array_equal(mine.reward, theirs.reward)
    with pytest.raises(LogError, match="out of range: expected 0 to 11"):
        log.take_episodes([12])


def test_the_fingerprint_sees_every_column() -> None:
    log = small(propensity=np.full(6, 0.5), weight=np.ones(6), time=np.arange(6.0), extra={"note": list("abcdef")})
    assert (
        log.fingerprint()
        == small(
            propensity=np.full(6, 0.5), weight=np.ones(6), time=np.arange(6.0), extra={"note": list("abcdef")}
        ).fingerprint()
    )
    for name in log.columns():
        changed = small(
            propensity=np.full(6, 0.5), weight=np.ones(6), time=np.arange(6.0), extra={"note": list("abcdef")}
        )
        values = changed.columns()[name]
        values[0] = "z" if values.dtype.kind == "U" else ~values[0] if values.dtype.kind == "b" else values[0] + 1
        assert changed.fingerprint() != log.fingerprint(), name


def test_statistics() -> None:
    statistics = small().statistics()
    assert (statistics.episodes, statistics.steps, statistics.observations) == (3, 6, 6)
    assert statistics.returns == {"min": 1.0, "mean": 5.0, "median": 5.0, "max": 9.0}
    assert statistics.lengths == {"min": 2.0, "mean": 2.0, "median": 2.0, "max": 2.0}
    assert statistics.actions == {"counts": {"0": 3, "1": 3}}
    assert statistics.without_target == 2
    assert statistics.missing_propensities == 1.0
    assert statistics.features["observation[0]"]["mean"] == 2.5
    clinic = read_log(visits(), mapping()).statistics()
    assert sum(clinic.categories["ward"].values()) == sum(LENGTHS)
    assert clinic.propensities is not None


@pytest.mark.parametrize(
    ("arrays", "found", "fix"),
    [
        ({"rewrad": [1.0]}, "Log.from_arrays has no array 'rewrad': did you mean 'reward'?", ""),
        ({"observation": [[1.0]], "action": [0]}, "no array 'reward'", "pass reward=None for a log without rewards"),
        ({"action": [0], "reward": None}, "no array 'observation'", "pass observation="),
    ],
)
def test_names_of_arrays_are_known_and_complete(arrays: Any, found: str, fix: str) -> None:
    with pytest.raises(ConfigError) as error:
        Log.from_arrays(**arrays)
    assert (error.value.found, error.value.fix) == (found, fix)


# Logs joined in memory are the log of all their episodes, and logs that differ are refused by what differs.


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
    joined = tl.Log.concat(logs)
    assert joined.fingerprint() == whole.fingerprint()
    assert joined.origin is None
    for name, values in joined.columns().items():
        assert values.dtype == whole.columns()[name].dtype
    np.testing.assert_array_equal(joined.transitions.next_observation["numeric"],
                                  whole.transitions.next_observation["numeric"])  # fmt: skip
    assert tl.Log.concat(logs[:1]) is logs[0]
    assert joined.report.rows == whole.steps


def test_identifiers_that_both_logs_use_are_numbered_anew_and_said() -> None:
    one, other = tl.Log.from_arrays(**arrays()), tl.Log.from_arrays(**arrays(cluster=None))
    joined = tl.Log.concat([one, other])
    assert joined.episode_ids.tolist() == list(range(24))
    assert "12 identifiers of episodes that several logs use" in joined.report.notes[-1].found
    apart = tl.Log.concat([one, tl.Log.from_arrays(**arrays(episode=np.repeat(np.arange(12), 2) + 50))])
    assert apart.episode_ids.tolist() == [*range(12), *range(50, 62)]
    assert [problem for problem in apart.report.problems if "identifiers" in problem.found] == []


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
        tl.Log.concat([log, tl.Log.from_arrays(**arrays(**change))])
    assert said in str(caught.value)
    assert "log 1" in str(caught.value)
    assert "fix: " in str(caught.value)


def test_times_of_two_kinds_and_what_is_no_log_are_refused() -> None:
    log = tl.Log.from_arrays(**arrays(time=np.arange(ROWS, dtype=float)))
    dated = tl.Log.from_arrays(**arrays(time=np.arange(ROWS).astype("datetime64[s]")))
    with pytest.raises(LogError, match="the type of 'time' is numbers in log 0"):
        tl.Log.concat([log, dated])
    wrong: list[Any] = [[], log, [log, visits()]]
    for logs in wrong:
        with pytest.raises(LogError, match="fix:"):
            tl.Log.concat(logs)


# The raw columns of observations, as estimators of scikit-learn are fitted on them.


TABLE = pl.DataFrame(
    {
        "visit": [0, 0, 1, 2], "hour": [0, 1, 0, 0], "age": [30.0, None, 50.0, 41.5], "ward": ["b", "a", "c", "a"],
        "zip": ["01", "2", "2", "2"], "kind": [3, -1, 3, 3], "pulse": [60.0, 70.0, 80.0, 90.0], "act": [0, 1, 1, 0],
        "reward": [0.0, 1.0, 0.0, 1.0], "age_after": [None, 31.0, 51.0, 42.0],
    }
)  # fmt: skip


def test_numbers_of_lists_have_names_without_brackets() -> None:
    """XGBoost and LightGBM refuse brackets; a column that has such a name already keeps it."""
    frame = pl.DataFrame({"v": [[1.0, 2.0], [3.0, 4.0]], "v_1": [5.0, 6.0], "a": [0, 1], "r": [0.0, 1.0]})
    mapping = {"observation": ["v", "v_1"], "action": "a", "reward": "r", "terminated": True}
    features = tl.read_log(frame, mapping).features()
    assert features.to_dict(as_series=False) == {"v_0": [1.0, 3.0], "v[1]": [2.0, 4.0], "v_1": [5.0, 6.0]}


def test_features_are_the_raw_columns_of_the_decisions():
    log = tl.read_log(
        TABLE.drop("age_after"),
        tl.Columns(
            episode="visit", step="hour", observation=["age", "ward", "zip", "kind", "pulse"], action="act",
            categorical=["ward", "zip", "kind"], reward="reward", missing={"age": "mean+flag"},
        ),
    )  # fmt: skip
    found = log.features()
    assert found.columns == ["age", "pulse", "ward", "zip", "kind"]
    assert log.spec.observation["numeric"].names == ("age", "pulse", "age missing")
    np.testing.assert_array_equal(found["age"], [30.0, np.nan, 50.0, 41.5])
    assert found["ward"].to_list() == TABLE["ward"].to_list()
    assert found["zip"].to_list() == TABLE["zip"].to_list()  # "01" is no number
    assert found["kind"].to_list() == TABLE["kind"].to_list()
    assert [str(kind) for kind in found.dtypes] == ["Float64", "Float64", "String", "String", "Int64"]
    second = log.take_episodes([2, 0]).features()
    assert second["pulse"].to_list() == [90.0, 60.0, 70.0]
    assert second["ward"].to_list() == ["a", "b", "a"]


def test_arrays_have_the_names_of_their_leaves_and_only_rows_of_decisions():
    log = tl.Log.from_arrays(
        observation={"z": np.arange(8.0).reshape(4, 2), "a": np.asarray([1, 0, 2, 1]), "z_0": np.arange(4.0) + 10},
        next_observation={"z": -np.ones((4, 2)), "a": np.zeros(4, int), "z_0": np.zeros(4)},
        action=[0, 1, 0, 1], reward=np.zeros(4), terminated=True,
    )  # fmt: skip
    assert len(log.observation["z"]) == 8
    found = log.features()
    assert found.columns == ["z_0", "z_1", "a", "z_0_"]
    assert found.to_numpy().tolist() == [[0, 1, 1, 10], [2, 3, 0, 11], [4, 5, 2, 12], [6, 7, 1, 13]]


def test_a_picture_is_no_table():
    log = tl.Log.from_arrays(
        observation=np.zeros((3, 4, 4, 1), np.uint8), action=[0, 1, 0], reward=np.zeros(3), terminated=True
    )
    with pytest.raises(tl.SpecError, match=r"'observation' is a picture: expected columns of a table. fix: pass an"):
        log.features()


# Windows against the definition, row by row.


def test_windows_stop_at_ends_and_discount_what_was_summed() -> None:
    # rewards 0..5; episode 0-1 terminated; 2-3 truncated, followed by 11; 4-5 truncated, followed by 12
    log = small(next_observation=np.array([1, 10, 3, 11, 5, 12], np.float32))
    windows = n_step(log, np.arange(6), 2, 0.5)
    np.testing.assert_array_equal(windows.m, [2, 1, 2, 1, 2, 1])
    np.testing.assert_array_equal(windows.reward, [0 + 0.5 * 1, 1, 2 + 0.5 * 3, 3, 4 + 0.5 * 5, 5])
    np.testing.assert_array_equal(windows.discount, [0, 0, 0.25, 0.5, 0.25, 0.5])
    after = log.observation["observation"][windows.next_position, 0]
    np.testing.assert_array_equal(after, [10, 10, 11, 11, 12, 12])


def test_a_truncated_end_without_next_observation_is_not_reached() -> None:
    log = small()
    windows = n_step(log, np.arange(6), 3, 0.5)
    np.testing.assert_array_equal(windows.m, [2, 1, 1, 0, 1, 0])
    np.testing.assert_array_equal(windows.reward, [0.5, 1, 2, 0, 4, 0])
    np.testing.assert_array_equal(windows.discount, [0, 0, 0.5, 0, 0.5, 0])
    np.testing.assert_array_equal(windows.next_position, [1, 1, 3, 3, 5, 5])


def test_one_step_is_the_transition() -> None:
    log = small(next_observation=np.array([1, 10, 3, 11, 5, 12], np.float32), reward=np.ones((6, 2)))
    windows = n_step(log, np.array([5, 0]), 1, 0.9)
    np.testing.assert_array_equal(windows.reward, np.ones((2, 2)))
    np.testing.assert_allclose(windows.discount, [0.9, 0.9])
    with pytest.raises(LogError, match="no rewards"):
        n_step(small(reward=None), np.arange(6), 1, 0.9)
