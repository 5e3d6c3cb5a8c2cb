"""Whether observations predict the action: the level of the test, what it finds, and what it says about itself."""

from typing import Any

import numpy as np
import pytest

from tidelog.data.columns import known_probabilities
from tidelog.data.dependence import BEFORE, TOTALS, Observed, balance_of


def columns(generator: Any, rows: int) -> list[Observed]:
    return [
        Observed("age", generator.normal(size=rows), False),
        Observed("income", generator.exponential(size=rows), False),
        Observed("village", generator.integers(0, 8, rows), True),
        Observed("word", generator.zipf(1.5, rows).clip(0, 200), True),
    ]


def share_rejected(p_values: list[float], level: float) -> float:
    return float(np.mean(np.asarray(p_values) < level))


@pytest.mark.parametrize("rows", [40, 400])
@pytest.mark.parametrize("kind", ["shares", "known", "by row", "strata", "clusters"])
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
            seen.append(Observed("of strata", stratum, True))
            known["stratum"] = stratum
        if kind == "clusters":  # drawn for each cluster, whose rows are alike
            cluster = np.arange(rows) // 8
            units = rows // 8
            action = generator.integers(0, 2, units)[cluster]
            seen = [Observed("age", generator.normal(size=units)[cluster], False)]
            known["clusters"] = cluster
        found = balance_of(seen, action, 3 if kind in ("shares", "known") else 2, **known)
        p_values.append(1.0 if found is None else found.p_value)
    assert share_rejected(p_values, 0.05) < 0.05 + 2.5 * np.sqrt(0.05 * 0.95 / 200)
    assert share_rejected(p_values, 0.001) <= 2 / 200


def test_rows_of_a_cluster_without_clusters_would_look_unbalanced() -> None:
    rejected = []
    for seed in range(60):
        generator = np.random.default_rng(seed)
        cluster = np.arange(400) // 20
        action, age = generator.integers(0, 2, 20)[cluster], generator.normal(size=20)[cluster]
        found = balance_of([Observed("age", age, False)], action, 2)
        rejected.append(found is not None and found.p_value < 0.05)
    assert np.mean(rejected) > 0.4


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
    found = balance_of([Observed("age", age, False)], action, 2)
    assert found is not None
    assert found.p_value < 0.001
    assert not found.is_broken


def test_shares_that_differ_from_the_declared_ones_are_named() -> None:
    generator = np.random.default_rng(3)
    action = (generator.random(500) < 0.7).astype(int)
    seen = [Observed("age", generator.normal(size=500), False)]
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
    found = balance_of([Observed("age", generator.normal(size=400), False)], action, 2, before=before)
    assert found is not None
    assert found.is_broken
    assert [one.name for one in found.named] == [BEFORE]


def test_the_imbalance_that_a_log_would_have_shown_is_found_as_often_as_it_says() -> None:
    generator = np.random.default_rng(5)
    half = np.arange(600) % 2
    quiet = balance_of([Observed("half", half, True)], generator.integers(0, 2, 600), 2)
    assert quiet is not None
    hits = 0
    for seed in range(200):
        chance = 0.5 + (half - 0.5) * quiet.detectable
        action = (np.random.default_rng(seed).random(600) < chance).astype(int)
        found = balance_of([Observed("half", half, True)], action, 2)
        hits += found is not None and found.p_value < 0.05
    assert 0.7 < hits / 200 < 0.9
    larger = balance_of([Observed("half", np.tile(half, 4), True)], generator.integers(0, 2, 2_400), 2)
    assert larger is not None
    assert larger.detectable == pytest.approx(quiet.detectable / 2, rel=0.02)


def test_an_action_that_cannot_be_taken_and_rare_ones_hide_no_imbalance() -> None:
    generator = np.random.default_rng(6)
    village = generator.integers(0, 4, 1_000)
    often = np.array([0.2, 0.4, 0.6, 0.8])[village]
    action = (generator.random(1_000) < often).astype(int)
    action[:3] = 2  # very rare
    for known in (None, np.array([0.499, 0.499, 0.002, 0.0])):
        found = balance_of([Observed("village", village, True)], action, 4, chances=known)
        assert found is not None
        assert found.is_broken
        right = np.stack([1.0 - often, often, 0.0 * often, 0.0 * often], axis=1)
    fitting = balance_of([Observed("village", village, True)], np.minimum(action, 1), 4, chances=right)
    assert fitting is not None
    assert fitting.p_value > 0.01


def test_nothing_is_tested_with_one_action_or_without_columns_that_vary() -> None:
    assert balance_of([Observed("age", np.arange(100.0), False)], np.zeros(100, int), 2) is None
    assert balance_of([Observed("age", np.ones(100), False)], np.arange(100) % 2, 2) is None
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
