"""Clusters, copies, columns that tell the reward, and actions that are predicted: what is named, and what is not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.data.visits import mapping, visits
from tidelog.data.columns import known_probabilities
from tidelog.data.dependence import (
    BEFORE,
    TOTALS,
    DecisionRewards,
    ObservedColumn,
    balance_of,
    cluster_candidates,
    intraclass_correlation,
    kind_of,
    leak_of,
    permutation_moments,
)
from tidelog.data.inspect import describe_table
from tidelog.data.log import Log
from tidelog.data.read import read_log, validate
from tidelog.errors import ConfigError, LogError

# Episodes that belong together: the column through every storage, whole clusters in every part, and who is warned.


WARDS = ["b", "a", "b", "c", "a", "b", "c", "c", "a", "b", "a", "c"]  # of the twelve episodes of `visits`
PATIENT = np.repeat(np.arange(12), (3, 5, 1, 4) * 3)


def clinic() -> pl.DataFrame:
    return visits().with_columns(place=pl.Series([WARDS[one] for one in PATIENT]))


def users(correlation: float = 0.5, people: int = 40, each: int = 25, seed: int = 0, **extra: Any) -> dict[str, Any]:
    """One-step events of people whose rewards correlate within a person, in random order."""
    rng = np.random.default_rng(seed)
    who = rng.permutation(np.repeat(np.arange(people), each))
    rows = len(who)
    reward = np.sqrt(correlation) * rng.normal(size=people)[who] + np.sqrt(1 - correlation) * rng.normal(size=rows)
    return {
        "observation": rng.normal(size=(rows, 2)).astype(np.float32), "action": rng.integers(0, 3, rows), "actions": 3,
        "reward": reward.astype(np.float32), "terminated": True, "extra": {"user_id": who},
    } | extra  # fmt: skip


def warned(log: Log) -> list[str | None]:
    return [one.column for one in log.report.warnings if one.check == "possible cluster column"]


def test_clusters_are_numbered_by_their_first_episode() -> None:
    log = read_log(clinic(), mapping(cluster="place"))
    assert log.cluster is not None
    assert log.cluster.dtype == np.int32
    expected = [0, 1, 0, 2, 1, 0, 2, 2, 1, 0, 1, 2]
    np.testing.assert_array_equal(log.clusters, expected)
    assert log.clusters.dtype == np.int64
    np.testing.assert_array_equal(log.cluster, np.asarray(expected)[PATIENT])
    part = log.take_episodes([3, 1, 0])
    np.testing.assert_array_equal(part.clusters, [0, 1, 2])
    np.testing.assert_array_equal(part.cluster, np.repeat([0, 1, 2], (4, 5, 3)))


def test_without_the_column_every_episode_is_its_own_cluster_and_nothing_else_changes() -> None:
    log = read_log(visits(), mapping())
    assert log.cluster is None
    assert "cluster" not in log.columns()
    np.testing.assert_array_equal(log.clusters, np.arange(12))
    assert log.clusters.dtype == np.int64
    other = read_log(clinic(), mapping(cluster="place"))
    assert other.fingerprint() != log.fingerprint()
    # written by the version before clusters
    assert log.fingerprint() == "0689c500e88f6578fbff8b02c5e1246948ae683d62a07d1e449725044c2d63ff"


def test_rows_of_an_episode_with_other_clusters_are_named_with_both_words() -> None:
    frame = clinic().with_columns(place=pl.when(pl.col("hour") == 1).then(pl.lit("z")).otherwise("place"))
    problem = validate(frame, mapping(cluster="place")).errors[0]
    assert (problem.check, problem.column, problem.count) == ("cluster changes within an episode", "place", 9)
    assert problem.rows[:2] == (2, 5)
    assert problem.found.startswith("z in episodes whose first row has b")
    with pytest.raises(ConfigError, match=r"cluster = .*: expected the name of one column"):
        mapping(cluster=["place", "ward"])


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("fraction", [0.1, 0.5, 0.8])
@pytest.mark.sample(every=7)
def test_no_cluster_is_on_both_sides(seed: int, fraction: float) -> None:
    rng = np.random.default_rng(seed)
    sizes = rng.integers(1, 30, 25)
    who = rng.permutation(np.repeat(np.arange(25), sizes))
    log = Log.from_arrays(observation=rng.normal(size=len(who)), action=who % 2, reward=rng.normal(size=len(who)),
                          terminated=True, cluster=who)  # fmt: skip
    first, second = log.split_ordinals(fraction, seed)
    assert not set(log.clusters[first]) & set(log.clusters[second])
    np.testing.assert_array_equal(np.sort(np.concatenate([first, second])), np.arange(len(who)))
    assert abs(len(first) - fraction * len(who)) <= sizes.max() / 2 + 1
    again = log.split_ordinals(fraction, seed)
    assert all(np.array_equal(one, two) for one, two in zip((first, second), again, strict=True))
    one, two = log.split(fraction, seed)
    assert len(one.episodes) == len(first)
    assert one.clusters.max() + 1 + two.clusters.max() + 1 == 25


def test_clusters_of_one_episode_split_as_logs_without_clusters_do() -> None:
    given = users(people=101, each=1, extra=None)
    plain, clustered = Log.from_arrays(**given), Log.from_arrays(**given, cluster=np.arange(101)[::-1])
    for seed, fraction in ((0, 0.8), (3, 0.5), (7, 0.013), (1, 0.999)):
        for one, two in zip(
            plain.split_ordinals(fraction, seed), clustered.split_ordinals(fraction, seed), strict=True
        ):
            np.testing.assert_array_equal(one, two)


def test_a_split_without_clusters_is_the_permutation_of_episodes_that_it_was() -> None:
    log = Log.from_arrays(**users(extra=None))
    shuffled = np.random.default_rng(5).permutation(1000)
    first, second = log.split_ordinals(0.73, 5)
    np.testing.assert_array_equal(first, np.sort(shuffled[:730]))
    np.testing.assert_array_equal(second, np.sort(shuffled[730:]))


@pytest.mark.parametrize("seed", range(6))
def test_one_large_cluster_leaves_both_sides_some(seed: int) -> None:
    who = np.repeat([0, 1, 2], [10, 10, 980])
    log = Log.from_arrays(observation=np.arange(1000.0), action=who % 2, reward=np.arange(1000.0), terminated=True,
                          cluster=who)  # fmt: skip
    first, second = log.split_ordinals(0.8, seed)
    assert len(first) in (980, 990)
    assert len(first) + len(second) == 1000
    assert len(log.split_ordinals(0.001, seed)[0]) == 10


def test_one_cluster_cannot_be_split() -> None:
    log = Log.from_arrays(**users(extra=None), cluster=np.zeros(1000, int))
    with pytest.raises(LogError, match=r"1 cluster \(1,000 episodes\): expected at least 2 for a split by .* fix: "):
        log.split(0.8)


def test_the_estimate_is_that_of_the_analysis_of_variance() -> None:
    """Groups (1, 3), (5, 7): between 16, within 2 a group of freedom: F = 8, (16 - 2) / (16 + 2) = 7 / 9."""
    correlation, _ = intraclass_correlation(np.array([0, 0, 1, 1]), np.array([1.0, 3.0, 5.0, 7.0]))
    assert correlation == pytest.approx(7 / 9)


def test_moments_over_all_assignments_are_those_of_all_assignments() -> None:
    from itertools import permutations

    values, sizes = np.array([0.5, -2.0, 3.0, 1.0, -1.5, 6.0]), np.array([1.0, 2.0, 3.0])
    values -= values.mean()
    groups = np.repeat([0, 1, 2], [1, 2, 3])
    sums = np.array([np.bincount(groups, values[list(order)]) for order in permutations(range(6))])
    squares = (sums**2 / sizes).sum(axis=1)
    np.testing.assert_allclose(permutation_moments(values, sizes), [squares.mean(), squares.var()], rtol=1e-10)


@pytest.mark.parametrize(
    "rewards",
    [
        lambda rng, rows: rng.normal(size=rows),
        lambda rng, rows: (rng.random(rows) < 0.01).astype(float),
        lambda rng, rows: np.exp(3.0 * rng.normal(size=rows)),
    ],
    ids=["normal", "rare", "heavy tails"],
)
@pytest.mark.parametrize(("rows", "groups"), [(600, 150), pytest.param(8_000, 4_000, marks=pytest.mark.full)])
@pytest.mark.sample("600-150-heavy tails")
def test_chance_is_found_as_seldom_as_promised(rewards: Any, rows: int, groups: int) -> None:
    """Of 200 logs without correlation 2 are expected at 1%; 9 or more happen once in 3,000 times, as do 5 of 60."""
    rng = np.random.default_rng(1)
    found = [
        intraclass_correlation(rng.integers(0, groups, rows), rewards(rng, rows))[1] < 0.01
        for _ in range(200 if rows < 1_000 else 60)
    ]
    assert sum(found) <= (8 if rows < 1_000 else 4)


def test_correlated_people_are_found_with_their_numbers() -> None:
    log = Log.from_arrays(**users(people=200))
    (found,) = cluster_candidates(log)
    assert (found.name, found.values, found.named) == ("user_id", 200, True)
    # 5.5 standard errors: a right estimate fails for 2 in 100 million seeds
    assert 0.35 < found.correlation < 0.65
    assert found.p_value <= 0.002
    assert 'cluster = "user_id"' in found.fix
    assert warned(log) == ["user_id"]
    (problem,) = (one for one in log.report.warnings if one.check == "possible cluster column")
    assert problem.found.startswith("200 different values over the episodes; returns correlate within a value: 0.4")
    assert problem.fix == found.fix


def test_a_log_with_clusters_is_not_warned() -> None:
    given = users()
    log = Log.from_arrays(**given, cluster=given["extra"]["user_id"])
    assert not cluster_candidates(log)
    assert not warned(log)


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.sample(every=4)
def test_ids_and_days_are_clusters_only_where_rewards_correlate(seed: int) -> None:
    """At 1% over both columns; the eight logs without correlation were drawn once: 2 of 208 others fail."""
    rng = np.random.default_rng(seed)
    days = np.datetime64("2024-01-01T08:00") + (rng.integers(0, 30, 1000) * 1440).astype("timedelta64[m]")
    null = users(0.0, seed=seed, time=days, extra={"query_id": rng.integers(0, 50, 1000)})
    log = Log.from_arrays(**null)
    assert not warned(log)
    assert not cluster_candidates(log)
    effect = np.random.default_rng(99).normal(size=50)
    query = Log.from_arrays(**{**null, "reward": null["reward"] + effect[null["extra"]["query_id"]].astype(np.float32)})
    assert warned(query) == ["query_id"]
    assert not cluster_candidates(query)[0].named
    day = (days - np.datetime64("2024-01-01")).astype("timedelta64[D]").astype(int)
    daily = Log.from_arrays(**{**null, "reward": null["reward"] + effect[day].astype(np.float32)})
    assert warned(daily) == ["time (calendar day)"]
    assert [one.values for one in cluster_candidates(daily)] == [len(np.unique(day))]
    seconds = days.astype("datetime64[s]").astype(np.int64)
    assert warned(Log.from_arrays(**{**null, "reward": daily.reward, "time": seconds})) == ["time (calendar day)"]


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("user_id", np.arange(1000)),  # never repeats
        ("user_id", np.arange(1000) % 700),  # repeats too seldom
        ("user_id", np.arange(1000) % 4),  # too few
        ("user_age", np.arange(1000) % 40),  # no identity
        ("day_of_week", np.arange(1000) % 7),
        ("user_id", np.arange(1000) % 40 + 0.5),  # no whole numbers
    ],
)
def test_columns_that_are_no_clusters_are_left_alone(name: str, values: Any) -> None:
    log = Log.from_arrays(**users(0.0, extra={name: values}))
    assert not warned(log)
    assert not cluster_candidates(log)


def test_a_column_that_repeats_the_action_is_no_cluster() -> None:
    rng = np.random.default_rng(0)
    action = rng.integers(0, 12, 2000)
    reward = action + rng.normal(size=2000)
    log = Log.from_arrays(observation=rng.normal(size=2000), action=action, reward=reward, terminated=True,
                          extra={"item_id": 100 + action // 2, "store_id": 100 + action})  # fmt: skip
    assert not warned(log)
    assert not cluster_candidates(log)


def table(rows: int = 1000) -> pl.DataFrame:
    """A table in which 'zip_code' is taken for a cluster by chance, at 1%: 2 of 326 other seeds fail."""
    rng = np.random.default_rng(0)
    who = rng.integers(0, 40, rows)
    return pl.DataFrame(
        {"x": rng.normal(size=rows), "a": rng.integers(0, 3, rows),
         "r": rng.normal(size=rows) + rng.normal(size=40)[who], "CustomerID": [f"c{one}" for one in who],
         "note": ["n"] * rows, "zip_code": rng.integers(0, 30, rows)}
    )  # fmt: skip


ROLES = {"observation": "x", "action": "a", "reward": "r", "terminated": True, "actions": 3}


def test_empty_cells_of_unused_columns_are_passed_over() -> None:
    frame = table().with_columns(CustomerID=pl.when(pl.col("a") == 0).then(None).otherwise("CustomerID"))
    log = read_log(frame, ROLES)
    assert warned(log) == ["CustomerID"]
    assert log.steps == 1000
    numbers = frame.with_columns(CustomerID=pl.col("CustomerID").str.strip_prefix("c").cast(pl.Float64))
    assert warned(read_log(numbers, ROLES)) == ["CustomerID"]


def test_inspect_proposes_the_cluster() -> None:
    described = describe_table(table())  # an episode column is proposed first: a customer's rows are one episode
    assert described.proposed is not None
    assert described.proposed.episode == "CustomerID"
    frame = table().with_columns(session_id=pl.Series(np.arange(1000) // 2), store_id=pl.Series(np.arange(1000) // 50))
    described = describe_table(frame.drop("CustomerID"))
    assert described.proposed is not None
    assert (described.proposed.episode, described.proposed.cluster) == ("session_id", "store_id")
    assert 'cluster = "store_id"' in described.toml
    assert described.report is not None
    assert described.report.ok
    crossed = frame.drop("CustomerID").with_columns(store_id=pl.Series(np.arange(1000) % 50))
    described = describe_table(crossed)
    assert described.proposed is not None
    assert described.proposed.cluster is None


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("user_id", "group"), ("userid", "group"), ("CustomerID", "group"), ("patient", "group"),
        ("store_key", "group"), ("customer_no", "group"), ("visit_no", "identity"),
        ("session_number", "identity"), ("item_id", "identity"),
        ("day", "period"), ("order_date", "period"), ("weekday", None), ("day_of_week", None), ("user_type", None),
        ("store_size", None), ("user_feature_0", None), ("timestamp", None), ("age", None), ("device", None),
    ],
)  # fmt: skip
def test_names_say_what_a_column_may_be(name: str, kind: str | None) -> None:
    assert kind_of(name) == kind


# Copies of rows and of episodes are said; rows that repeat because there are few of them are not.


Given = dict[str, Any]


def events(rows: int = 1000, seed: int = 0) -> Given:
    """One-step events with continuous contexts and rewards of 0 and 1."""
    rng = np.random.default_rng(seed)
    return {
        "observation": rng.normal(size=(rows, 3)).astype(np.float32), "action": rng.integers(0, 4, rows),
        "reward": (rng.random(rows) < 0.3).astype(np.float32), "propensity": np.full(rows, 0.25, np.float32),
    }  # fmt: skip


def few(rows: int = 1000, seed: int = 0, cells: int = 5, chances: float = 0.4) -> Given:
    """One-step events with few contexts, two actions and rewards of 0 and 1."""
    rng = np.random.default_rng(seed)
    return {
        "observation": rng.integers(0, cells, rows), "action": rng.integers(0, 2, rows),
        "reward": (rng.random(rows) < chances).astype(np.float32),
    }  # fmt: skip


def taken(given: Given, rows: Any) -> Given:
    return {name: values[rows] for name, values in given.items()}


def said(given: Given, **more: Any) -> list[Any]:
    log = Log.from_arrays(**{"terminated": True, "actions": 4, **given, **more})
    return [one for one in log.report.warnings if one.check == "duplicated rows"]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("make", [events, lambda: few(200, cells=100_000)])
def test_each_row_repeated_five_times_is_said(make: Any, shuffled: bool) -> None:
    given = make()
    rows = np.repeat(np.arange(len(given["reward"])), 5)
    (problem,) = said(taken(given, np.random.default_rng(1).permutation(rows) if shuffled else rows))
    count = len(rows) // 5
    assert problem.count == 4 * count  # two of the 200 rows are alike by chance for 1 in 20 seeds
    assert problem.found.startswith(f"{4 * count:,} of {5 * count:,} rows are exact copies of earlier ones")
    assert problem.found.endswith("5 times")
    assert "cluster=" in problem.fix
    if not shuffled:
        assert problem.rows == (2, 3, 4, 5, 7, 8, 9, 10, 12, 13)


def test_a_part_of_five_copies_is_said() -> None:
    """Four of five rows of a log whose rows stand there five times: three, four or five are left of most."""
    rows = np.random.default_rng(1).permutation(np.repeat(np.arange(400), 5))[:1600]
    assert said(taken(events(), rows))


def test_a_few_copies_are_said_where_rewards_or_times_hardly_repeat() -> None:
    rows, rng = np.concatenate([np.arange(1000), np.arange(8)]), np.random.default_rng(0)
    given = events()
    assert not said(taken(given, rows))  # contexts and 0 or 1 alone may come again
    continuous = given | {"reward": rng.normal(size=1000).astype(np.float32)}
    (problem,) = said(taken(continuous, rows))
    assert problem.count == 8
    moments = given | {"time": np.datetime64("2024-01-01") + rng.integers(0, 10**12, 1000).astype("timedelta64[us]")}
    assert said(taken(moments, rows))[0].count == 8


@pytest.mark.sample(every=10)
@pytest.mark.parametrize("seed", range(10))
@pytest.mark.parametrize(
    "make",
    [
        lambda seed: few(1_000, seed),
        lambda seed: few(200, seed, 3),
        lambda seed: few(20_000, seed, 12, 0.02),
        lambda seed: few(3_000, seed, 2_000),  # few rows a context
        lambda seed: few(1_000, seed, 20_000, 0.0),  # hardly any, and no other reward
        lambda seed: taken(events(400, 1), np.random.default_rng(seed).integers(0, 400, 1000)),  # a pool of contexts
        lambda seed: taken(events(20, 1), np.random.default_rng(seed).integers(0, 20, 1000)),
        lambda seed: taken(events(2_000, 1), np.random.default_rng(seed).zipf(1.3, 3_000) % 2_000),  # unevenly drawn
        lambda seed: {**few(2_000, seed), "time": np.random.default_rng(seed).integers(0, 86_400, 2_000) * 1.0},
        lambda seed: {**few(3_000, seed), "reward": np.random.default_rng(seed).integers(0, 5_000, 3_000) * 0.01},
        lambda seed: events(1000, seed),
        lambda seed: few(60_000, seed, 500),
    ],
    ids=["contexts", "fewer", "rare rewards", "many contexts", "birthdays", "pool", "small pool", "uneven pool",
         "times", "rounded rewards", "continuous", "long"],
)  # fmt: skip
def test_rows_that_repeat_by_chance_are_not_said(make: Any, seed: int) -> None:
    assert not said(make(seed))  # 0 of 3,600 other logs fail


def walk(episodes: int, seed: int = 0, kind: Any = np.float32) -> Given:
    """Episodes of one to six steps."""
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 7, episodes)
    rows = int(lengths.sum())
    return {
        "observation": rng.normal(size=(rows, 2)).astype(kind), "action": rng.integers(0, 3, rows),
        "reward": rng.normal(size=rows).astype(np.float32), "lengths": lengths,
    }  # fmt: skip


def repeated(given: Given, ordinals: Any) -> Given:
    """These episodes of a walk one after another, each under a name of its own."""
    starts = np.append(0, np.cumsum(given["lengths"]))
    rows = np.concatenate([np.arange(starts[one], starts[one + 1]) for one in ordinals])
    lengths = given["lengths"][ordinals]
    return taken({name: given[name] for name in ("observation", "action", "reward")}, rows) | {
        "episode": np.repeat(np.arange(len(ordinals)), lengths)
    }


def test_copied_episodes_are_said() -> None:
    given = walk(300)
    ordinals = np.concatenate([np.arange(300), np.arange(30)])
    (problem,) = said(repeated(given, ordinals), terminated=None)
    assert problem.found.startswith("30 of 330 episodes are exact copies of earlier ones")
    assert problem.count == int(given["lengths"][:30].sum())
    (problem,) = said(repeated(given, np.repeat(np.arange(60), 5)), terminated=None)
    assert problem.found.startswith("240 of 300 episodes")
    assert not said(repeated(given, np.arange(300)), terminated=None)


@pytest.mark.parametrize("seed", range(5))
def test_equal_short_episodes_of_a_small_world_are_not_said(seed: int) -> None:
    rng = np.random.default_rng(seed)
    lengths = rng.integers(1, 4, 500)
    rows = int(lengths.sum())
    given = {"observation": rng.integers(0, 3, rows), "action": rng.integers(0, 2, rows),
             "reward": (rng.random(rows) < 0.2).astype(np.float32)}  # fmt: skip
    # 0 of 150 other logs fail
    assert not said(given, terminated=None, episode=np.repeat(np.arange(500), lengths))


def test_copies_within_a_cluster_are_not_said() -> None:
    given = events(200)
    rows = np.repeat(np.arange(200), 5)
    assert not said(taken(given, rows), cluster=rows)
    (problem,) = said(taken(given, rows), cluster=np.tile(np.arange(5), 200))
    assert problem.count == 800


def test_copied_pictures_are_compared_in_every_pixel() -> None:
    rng = np.random.default_rng(0)
    pictures = rng.integers(0, 255, (100, 16, 16, 3)).astype(np.uint8)
    given = {"observation": pictures, "action": rng.integers(0, 2, 100), "reward": np.zeros(100, np.float32)}
    rows = np.repeat(np.arange(100), 2)
    assert said(taken(given, rows))[0].count == 100
    near = taken(given, rows)
    near["observation"][1::2, 5, 5, 1] ^= 1  # a pixel that no hash looks at
    assert not said(near)


@pytest.mark.parametrize("copied", [False, True])
def test_long_logs_are_looked_at_in_part_and_counted_whole(copied: bool) -> None:
    given = events(150_000)
    rows = np.concatenate([np.arange(150_000), np.arange(30_000 if copied else 0)])
    found = said(taken(given, rows))
    assert [one.count for one in found] == ([30_000] if copied else [])


# Outcomes among the observations: which columns are named, and that columns known before a decision are not.


CHECK = "outcome among observations"


def named(log: tl.Log) -> dict[str | None, str]:
    """Columns that look like outcomes, and why."""
    return {one.column: one.found for one in log.report.warnings if one.check == CHECK}


def mailings(rows: int = 3_000, seed: int = 0) -> pl.DataFrame:
    """A randomised experiment: mail leads to visits, a visit in ten to a conversion, and a conversion to spending."""
    rng = np.random.default_rng(seed)
    segment, recency = rng.integers(0, 3, rows), rng.integers(1, 13, rows)
    visit = rng.random(rows) < np.asarray([0.1, 0.2, 0.3])[segment]
    conversion = visit & (rng.random(rows) < 0.15)
    return pl.DataFrame({
        "recency": recency,
        "channel": rng.choice(["web", "phone"], rows),
        "history": np.round(rng.exponential(200, rows), 2),
        "segment": np.asarray(["none", "mail A", "mail B"])[segment],
        "visit": visit.astype(int),
        "conversion": conversion.astype(int),
        "spend": np.where(conversion, np.round(rng.exponential(100, rows) + 1, 2), 0.0),
        "p": np.full(rows, 1 / 3),
    })  # fmt: skip


MAILINGS: dict[str, Any] = {
    "action": "segment", "reward": "conversion", "propensity": "p", "terminated": True, "categorical": ["channel"],
    "observation": ["recency", "channel", "history", "visit", "spend"],
}  # fmt: skip


def test_what_follows_a_decision_is_named_and_what_precedes_it_is_not() -> None:
    log = read_log(mailings(), MAILINGS)
    conversions = int(mailings()["conversion"].sum())
    share = mailings()["visit"].mean()
    assert named(log) == {
        "visit": f"it tells the reward 'conversion': all {conversions} rewards other than 0 are among the {share:.1%} "
        "of the rows with another value than its usual one",
        "spend": "it tells the reward 'conversion': another value than its usual one is in exactly the "
        f"{conversions} rows with rewards other than 0",
    }


def test_what_follows_a_decision_is_not_proposed_and_that_is_said() -> None:
    after = describe_table(mailings())
    assert after.proposed is not None
    assert list(after.proposed.observation) == ["recency", "channel", "history"]
    assert any(note.startswith("'visit', 'spend': after the action in the table") for note in after.notes)
    described = describe_table(mailings().select("visit", "spend", pl.exclude("visit", "spend")))
    assert described.proposed is not None
    assert described.proposed.reward == "conversion"
    assert list(described.proposed.observation) == ["recency", "channel", "history"]
    notes = [note for note in described.notes if "is not proposed as an observation: it tells the reward" in note]
    assert [note.split("'")[1] for note in notes] == ["visit", "spend"]
    assert not described.report.warnings


def test_words_that_are_the_reward_are_named() -> None:
    """The status is known after the month whose treatment it rewards, and tells the reward in episodes too."""
    rng = np.random.default_rng(0)
    table = pl.DataFrame({
        "subject": np.repeat(np.arange(60), 4),
        "arm": rng.choice(["drug", "placebo"], 240),
        "status": rng.choice(["good", "poor"], 240),
        "age": np.repeat(rng.integers(20, 60, 60), 4),
    })  # fmt: skip
    mapping = {"episode": "subject", "action": "arm", "observation": ["age", "status"], "categorical": ["status"],
               "reward": "status", "reward_values": {"good": 1.0, "poor": 0.0}}  # fmt: skip
    assert named(read_log(table, mapping)) == {"status": "the column of the reward"}
    copied = table.with_columns(state=pl.col("status").replace({"good": "up", "poor": "down"}))
    found = named(read_log(copied, mapping | {"observation": ["age", "state"], "categorical": ["state"]}))
    assert found == {
        "state": "it tells the reward 'status': each of its values goes with one reward, and each reward with one value"
    }


@pytest.mark.parametrize(
    ("reward", "column", "how"),
    [
        (lambda x: x, lambda x: 1.7 - 3.0 * x, "rewards rise, or fall, with it without an exception beyond rounding"),
        (
            lambda x: x,
            lambda x: np.round(5.0 * x, 2),
            "rewards rise, or fall, with it without an exception beyond rounding",
        ),
        (lambda x: x > 1.0, lambda x: np.exp(x), "rewards rise, or fall, with it without an exception beyond rounding"),
        (lambda x: np.abs(np.round(2 * x)), lambda x: np.round(2 * x), "each of its values goes with one reward"),
    ],
    ids=["another unit", "rounded", "a threshold", "a table"],
)
def test_other_units_thresholds_and_tables_of_the_reward_are_named(reward: Any, column: Any, how: str) -> None:
    rng = np.random.default_rng(0)
    x = rng.normal(size=3_000)
    observation = np.stack([rng.normal(size=3_000), column(x)], axis=1).astype(np.float32)
    log = tl.Log.from_arrays(
        observation=observation, action=rng.integers(0, 2, 3_000), reward=reward(x).astype(np.float32), terminated=True
    )
    assert named(log) == {"observation[1]": f"it tells the reward 'reward': {how}"}


def test_a_policy_that_reads_an_outcome_is_told_which_column() -> None:
    """The probabilities are right; visits depend on the mail, so that they predict it, and the judge names them."""
    train, held_out = (read_log(mailings(seed=seed), MAILINGS) for seed in (0, 1))
    policy = tl.fit(tl.BC(hidden=(8,)), train, steps=20).policy()
    verdict = tl.judge(policy, held_out, sample=True, learnt_from="other data", ledger=False, model="tabular")
    assert verdict.decision == "unsupported"
    assert "'visit' and 'spend' look like outcomes of the decision" in verdict.reasons[0]
    assert "take 'visit' and 'spend' out of the observations" in verdict.next_step
    assert "propensity column" not in verdict.next_step


def test_names_of_what_follows_a_decision_are_asked_about(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    names = ["sex", "dose_kg", "mood_after", "arm", "reward"]
    table = pl.DataFrame({name: rng.random(300) for name in names}).with_columns(
        sex=pl.Series(rng.choice(["f", "m"], 300)), arm=pl.Series(rng.choice(["a", "b"], 300))
    )
    described = describe_table(table)
    assert described.proposed is not None
    assert list(described.proposed.observation) == ["sex", "dose_kg"]
    assert any(note.startswith("'mood_after': named like what follows the decision") for note in described.notes)
    mapping = {"action": "arm", "reward": "reward", "observation": ["sex", "mood_after"], "categorical": ["sex"],
               "terminated": True}  # fmt: skip
    assert named(read_log(table, mapping)) == {"mood_after": "named like what follows the decision"}


# Columns that are known before the decision, which must not be named.


@pytest.mark.parametrize("share", [0.05, 0.3, 0.5])
@pytest.mark.parametrize("base", [0.005, 0.05, 0.5])
@pytest.mark.sample(every=4)
def test_a_column_that_predicts_the_reward_well_is_not_named(base: float, share: float) -> None:
    """Columns with an odds ratio of 20, which few columns have, in small and large logs: none of 60 is named."""
    rng = np.random.default_rng(0)
    for rows in (50, 300, 3_000):
        for _ in range(20):
            column = rng.random(rows) < share
            odds = base / (1.0 - base) * np.where(column, 20.0, 1.0)
            reward = (rng.random(rows) < odds / (1.0 + odds)).astype(np.float32)
            rewards = DecisionRewards.of(reward, rng.integers(0, 3, rows), single=True)
            assert leak_of(column.astype(np.float32), rewards) is None


@pytest.mark.parametrize("levels", [2, 5, 50, 400])
def test_a_column_with_few_or_many_levels_is_not_named(levels: int) -> None:
    """Levels with rare rewards are mostly without any; levels of one row each have one reward."""
    rng = np.random.default_rng(0)
    for base in (0.002, 0.02, 0.5):
        rewards = DecisionRewards.of((rng.random(800) < base).astype(np.float32), rng.integers(0, 3, 800), single=True)
        assert leak_of(rng.integers(0, levels, 800), rewards, words=True) is None
        assert leak_of(rng.permutation(800), rewards, words=True) is None


def test_what_decides_the_action_that_decides_the_reward_is_not_named() -> None:
    """The behaviour policy treats the old, and the treatment works always: age tells the treatment, not the reward."""
    rng = np.random.default_rng(0)
    age = rng.integers(20, 80, 1_000)
    treated = age > 50
    assert leak_of(age, DecisionRewards.of(treated.astype(np.float32), treated.astype(np.int64), single=True)) is None
    dose = (age - 20) // 5  # one of 12 by age, and each has its effect
    assert leak_of(age, DecisionRewards.of(dose.astype(np.float64) ** 2, dose, single=True)) is None
    works = treated & (rng.random(1_000) < 0.7)  # only the treated, all of whom are old, have a reward
    assert (
        leak_of(age > 50, DecisionRewards.of(works.astype(np.float32), treated.astype(np.int64), single=True)) is None
    )


@pytest.mark.parametrize("share", [1.0, 0.4])
def test_a_state_that_earns_a_reward_is_not_named_in_episodes(share: float) -> None:
    """A goal among 16 cells, and an open door, tell the reward of their step; that is what a state is for."""
    rng = np.random.default_rng(0)
    cell, door = rng.integers(0, 16, 2_000), rng.random(2_000) < 0.3
    reward = ((cell == 15) if share == 1.0 else door) & (rng.random(2_000) <= share)
    log = tl.Log.from_arrays(
        observation=np.stack([cell, door], axis=1).astype(np.float32), action=rng.integers(0, 4, 2_000),
        reward=reward.astype(np.float32), episode=np.arange(2_000) // 20,
    )  # fmt: skip
    assert not named(log)


def test_a_log_that_is_too_large_for_all_its_rows_gives_the_same_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    table = mailings(rows=30_000)
    small = named(read_log(table, MAILINGS))
    monkeypatch.setattr("tidelog.data.dependence.SCREEN", 1_000)
    assert named(read_log(table, MAILINGS)) == small
    assert list(small) == ["visit", "spend"]


def test_a_column_is_taken_out_with_its_next_one() -> None:
    """In episodes, a score that is the reward in another unit is not proposed; others keep theirs."""
    rng = np.random.default_rng(0)
    table = pl.DataFrame({
        "episode": np.repeat(np.arange(30), 4), "step": np.tile(np.arange(4), 30), "score": rng.normal(size=120),
        "x": rng.normal(size=120), "next_score": rng.normal(size=120), "next_x": rng.normal(size=120),
        "action": rng.choice(["a", "b"], 120),
    }).with_columns(reward=5.0 - pl.col("score"))  # fmt: skip
    described = describe_table(table)
    assert described.proposed is not None
    assert (list(described.proposed.observation), list(described.proposed.next_observation or ())) == (
        ["x"],
        ["next_x"],
    )
    assert not [one for one in described.report.warnings if one.check == CHECK]


# Whether observations predict the action: the level of the test, what it finds, and what it says about itself.


def columns(generator: Any, rows: int) -> list[ObservedColumn]:
    return [
        ObservedColumn("age", generator.normal(size=rows), False),
        ObservedColumn("income", generator.exponential(size=rows), False),
        ObservedColumn("village", generator.integers(0, 8, rows), True),
        ObservedColumn("word", generator.zipf(1.5, rows).clip(0, 200), True),
    ]


def share_rejected(p_values: list[float], level: float) -> float:
    return float(np.mean(np.asarray(p_values) < level))


@pytest.mark.parametrize("rows", [40, 400])
@pytest.mark.parametrize("kind", ["shares", "known", "by row", "strata", "clusters"])
@pytest.mark.sample("shares-40", "known-40", "by row-40", "strata-40", "clusters-400")
def test_balanced_logs_are_rejected_no_more_often_than_the_level_says(rows: int, kind: str) -> None:
    p_values = []
    for seed in range(200):
        generator = np.random.default_rng(seed)
        seen, known = columns(generator, rows), dict[str, Any]()
        action = generator.choice(3, rows, p=[0.6, 0.3, 0.1])
        if kind == "known":
            known["chances"] = np.array([0.6, 0.3, 0.1])
        if kind == "by row":
            often = generator.uniform(0.1, 0.9, rows)
            action = (generator.random(rows) < often).astype(int)
            known["chances"] = np.stack([1.0 - often, often], axis=1)
        if kind == "strata":
            stratum = generator.integers(0, 4, rows)
            action = (generator.random(rows) < np.array([0.2, 0.4, 0.6, 0.8])[stratum]).astype(int)
            seen.append(ObservedColumn("of strata", stratum, True))
            known["stratum"] = stratum
        if kind == "clusters":  # drawn for each cluster, whose rows are alike
            cluster = np.arange(rows) // 8
            units = rows // 8
            action = generator.integers(0, 2, units)[cluster]
            seen = [ObservedColumn("age", generator.normal(size=units)[cluster], False)]
            known["clusters"] = cluster
        found = balance_of(seen, action, 3 if kind in ("shares", "known") else 2, **known)
        p_values.append(1.0 if found is None else found.p_value)
    assert share_rejected(p_values, 0.05) < 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)
    assert share_rejected(p_values, 0.001) <= 2 / 200


def test_the_columns_that_predict_the_action_are_named() -> None:
    generator = np.random.default_rng(1)
    seen = columns(generator, 1_000)
    often = generator.uniform(0.2, 0.8, 8)[seen[2].values]
    found = balance_of(seen, (generator.random(1_000) < often).astype(int), 2)
    assert found is not None
    assert found.is_broken
    assert next(one.name for one in found.named) == "village"
    assert found.explained > 0.03


def test_a_small_imbalance_of_a_large_log_is_no_material_one() -> None:
    generator = np.random.default_rng(2)
    age = generator.normal(size=40_000)
    action = (generator.random(40_000) < 0.5 + 0.02 * np.sign(age)).astype(int)
    found = balance_of([ObservedColumn("age", age, False)], action, 2)
    assert found is not None
    assert found.p_value < 0.001
    assert not found.is_broken


def test_shares_that_differ_from_the_declared_ones_are_named() -> None:
    generator = np.random.default_rng(3)
    action = (generator.random(500) < 0.7).astype(int)
    seen = [ObservedColumn("age", generator.normal(size=500), False)]
    found = balance_of(seen, action, 2, chances=np.array([0.5, 0.5]))
    assert found is not None
    assert found.is_broken
    assert [one.name for one in found.named] == [TOTALS]
    fitting = balance_of(seen, action, 2, chances=np.array([0.3, 0.7]))
    assert fitting is not None
    assert fitting.p_value > 0.05


def test_a_decision_that_was_drawn_for_a_whole_episode_shows_in_the_decision_before() -> None:
    generator = np.random.default_rng(4)
    action = np.repeat(generator.integers(0, 2, 100), 4)
    before = np.where(np.arange(400) % 4 == 0, -1, np.roll(action, 1))
    found = balance_of([ObservedColumn("age", generator.normal(size=400), False)], action, 2, before=before)
    assert found is not None
    assert found.is_broken
    assert [one.name for one in found.named] == [BEFORE]


def test_the_imbalance_that_a_log_would_have_shown_is_found_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    half = np.arange(600) % 2
    quiet = balance_of([ObservedColumn("half", half, True)], generator.integers(0, 2, 600), 2)
    assert quiet is not None
    hits = 0
    for seed in range(200):
        chance = 0.5 + (half - 0.5) * quiet.detectable
        action = (np.random.default_rng(seed).random(600) < chance).astype(int)
        found = balance_of([ObservedColumn("half", half, True)], action, 2)
        hits += found is not None and found.p_value < 0.05
    assert 0.7 < hits / 200 < 0.9
    larger = balance_of([ObservedColumn("half", np.tile(half, 4), True)], generator.integers(0, 2, 2_400), 2)
    assert larger is not None
    assert larger.detectable == pytest.approx(quiet.detectable / 2, rel=0.02)


def test_an_action_that_cannot_be_taken_and_rare_ones_hide_no_imbalance() -> None:
    generator = np.random.default_rng(6)
    village = generator.integers(0, 4, 1_000)
    often = np.array([0.2, 0.4, 0.6, 0.8])[village]
    action = (generator.random(1_000) < often).astype(int)
    action[:3] = 2  # very rare
    for known in (None, np.array([0.499, 0.499, 0.002, 0.0])):
        found = balance_of([ObservedColumn("village", village, True)], action, 4, chances=known)
        assert found is not None
        assert found.is_broken
        right = np.stack([1.0 - often, often, 0.0 * often, 0.0 * often], axis=1)
    fitting = balance_of([ObservedColumn("village", village, True)], np.minimum(action, 1), 4, chances=right)
    assert fitting is not None
    assert fitting.p_value > 0.01


def test_nothing_is_tested_with_one_action_or_without_columns_that_vary() -> None:
    assert balance_of([ObservedColumn("age", np.arange(100.0), False)], np.zeros(100, int), 2) is None
    assert balance_of([ObservedColumn("age", np.ones(100), False)], np.arange(100) % 2, 2) is None
    assert balance_of([], np.arange(100) % 2, 2) is None


def test_probabilities_of_all_actions_follow_from_those_of_two_or_from_constant_ones() -> None:
    two = known_probabilities(np.array([0, 1, 0]), np.array([0.9, 0.2, 0.5]), 2)
    assert two is not None
    assert two == pytest.approx(np.array([[0.9, 0.1], [0.8, 0.2], [0.5, 0.5]]))
    action = np.array([0, 1, 2, 0, 1, 2])
    constant = known_probabilities(action, np.array([0.5, 0.3, 0.2] * 2), 3)
    assert constant is not None
    assert constant[0] == pytest.approx([0.5, 0.3, 0.2])
    words = np.array([0, 0, 0, 1, 1, 0])
    by_word = known_probabilities(np.array([0, 1, 2, 0, 1, 2]), np.array([0.5, 0.3, 0.2, 0.6, 0.4, 0.2]), 3, [words])
    assert by_word is not None
    assert by_word[3] == pytest.approx([0.6, 0.4, 0.0])


def test_probabilities_of_all_actions_are_not_known_where_one_may_be_hidden() -> None:
    action = np.array([0, 1, 0, 1])
    assert known_probabilities(action, np.array([0.5, 0.3, 0.5, 0.3]), 3) is None  # 0.2 of somebody
    assert known_probabilities(np.array([0, 1, 2]), np.array([0.5, 0.3, 0.9]), 3) is None
    assert known_probabilities(np.array([0, 1, 2, 0]), np.array([0.5, 0.3, 0.2, 0.4]), 3) is None  # not constant
