"""Episodes that belong together: the column through every storage, whole clusters in every part, and who is warned."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest

from tests.data.visits import mapping, visits
from tidelog.data.dependence import cluster_candidates, intraclass_correlation, kind_of, permutation_moments
from tidelog.data.inspect import describe_table
from tidelog.data.log import Log
from tidelog.data.read import open_log, read_log, validate
from tidelog.errors import ConfigError, LogError

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


def test_words_numbers_and_shuffled_rows_give_the_same_clusters() -> None:
    frame = clinic()
    log = read_log(frame, mapping(cluster="place"))
    numbers = {"a": 7, "b": -3, "c": 2**40}
    coded = frame.with_columns(place=pl.col("place").replace_strict(numbers))
    assert read_log(coded, mapping(cluster="place")).fingerprint() == log.fingerprint()
    arrays = log.to_arrays() | {"cluster": np.asarray(WARDS)[PATIENT]}
    np.testing.assert_array_equal(Log.from_arrays(**arrays).cluster, log.cluster)
    shuffled = frame.sample(fraction=1.0, shuffle=True, seed=1)
    again = read_log(shuffled, mapping(cluster="place"))
    names = dict(zip(log.episode_ids.tolist(), log.clusters.tolist(), strict=True))
    pairs = {(names[one], code) for one, code in zip(again.episode_ids.tolist(), again.clusters.tolist(), strict=True)}
    assert len(pairs) == 3


def test_the_column_survives_every_storage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = read_log(clinic(), mapping(cluster="place"))
    log.save(tmp_path / "log")
    for memory_map in (False, True):
        again = open_log(tmp_path / "log", memory_map)
        assert again.fingerprint() == log.fingerprint()
        np.testing.assert_array_equal(again.clusters, log.clusters)
        assert again.take_episodes([5, 2]).fingerprint() == log.take_episodes([5, 2]).fingerprint()
    parquet = read_log(tmp_path / "a.parquet", log.to_parquet(tmp_path / "a.parquet"))
    assert parquet.fingerprint() == log.fingerprint()
    log.to_npz(tmp_path / "a.npz")
    np.testing.assert_array_equal(read_log(tmp_path / "a.npz").cluster, log.cluster)
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path / "minari"))
    ended = log.take_episodes(np.flatnonzero(log.terminated[log.starts[1:] - 1]))
    ended.to_minari("ours/clinic-v0")
    found = read_log("ours/clinic-v0", format="minari")
    np.testing.assert_array_equal(found.cluster, ended.cluster)
    assert found.cluster is not None
    assert found.cluster.dtype == np.int32


def test_one_step_logs_name_a_cluster_in_every_row() -> None:
    log = Log.from_arrays(**users(extra=None), cluster=np.repeat([f"u{one}" for one in range(40)], 25))
    assert len(log.episodes) == 1000
    assert log.clusters.max() == 39
    np.testing.assert_array_equal(np.bincount(log.clusters), np.full(40, 25))


@pytest.mark.parametrize(
    ("cluster", "check"),
    [
        (np.full(12, np.nan), "NaN or infinity"),
        (np.arange(11), "wrong length"),
        (np.ones(12, bool), "non-numeric text"),
        (np.ones((12, 2)), "changing shapes"),
        (np.arange(12), "cluster changes within an episode"),
    ],
)
def test_arrays_that_are_no_clusters_are_refused(cluster: Any, check: str) -> None:
    given = {"observation": np.arange(12.0), "action": np.arange(12) % 2, "reward": np.arange(12.0)}
    with pytest.raises(LogError, match=check) as caught:
        Log.from_arrays(**given, episode=np.repeat(np.arange(6), 2), terminated=None, cluster=cluster)
    assert [one.column for one in caught.value.report.errors] == ["cluster"]


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


def test_columns_that_change_within_episodes_are_no_clusters() -> None:
    given = users(0.0, extra={"session_id": np.repeat(np.arange(100), 10), "user_id": np.arange(1000) % 50})
    log = Log.from_arrays(**given | {"episode": np.repeat(np.arange(500), 2), "terminated": None})
    assert warned(log) == ["session_id"]
    assert [one.values for one in cluster_candidates(log)] == [100]


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


@pytest.mark.parametrize("ending", ["frame", "csv", "parquet", "jsonl", "pandas"])
def test_unused_columns_are_looked_at_by_name(ending: str, tmp_path: Path) -> None:
    frame = table()
    writers = {"csv": frame.write_csv, "parquet": frame.write_parquet, "jsonl": frame.write_ndjson}
    if ending in writers:
        writers[ending](tmp_path / f"log.{ending}")
    source = {"frame": frame, "pandas": pd.DataFrame(frame.to_dict(as_series=False))}.get(
        ending, tmp_path / f"log.{ending}"
    )
    log = read_log(source, ROLES)
    assert warned(log) == ["CustomerID"]
    assert log.report.warnings[-1].found.startswith("40 different values")
    named = read_log(source, {**ROLES, "cluster": "CustomerID"})
    assert not warned(named)
    assert named.clusters.max() == 39


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
