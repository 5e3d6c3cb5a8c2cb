"""Outcomes among the observations: which columns are named, and that columns known before a decision are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.shared import shared
from tidelog.data.dependence import DecisionRewards, leak_of
from tidelog.data.inspect import describe_table
from tidelog.data.read import read_log

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
    described = describe_table(mailings())
    assert described.proposed is not None
    assert described.proposed.reward == "conversion"
    assert list(described.proposed.observation) == ["recency", "channel", "history"]
    notes = [note for note in described.notes if "is not proposed as an observation: it tells the reward" in note]
    assert [note.split("'")[1] for note in notes] == ["visit", "spend"]
    assert not described.report.warnings


@pytest.mark.parametrize("name", ["uplift_leak.toml", "trial.toml"])
def test_the_cases_of_leaks_are_named(name: str) -> None:
    folder = shared("cases/learn")
    table, expected = {
        "uplift_leak.toml": ("uplift.csv", ["visit", "spend"]),
        "trial.toml": ("trial.csv", ["status"]),
    }[name]
    assert list(named(read_log(folder / table, folder / name))) == expected


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
    right = {**MAILINGS, "observation": ["recency", "channel", "history"]}
    train, held_out = (read_log(mailings(seed=seed), right) for seed in (0, 1))
    policy = tl.fit(tl.BC(hidden=(8,)), train, steps=20).policy()
    verdict = tl.judge(policy, held_out, sample=True, learnt_from="other data", ledger=False, model="tabular")
    assert "look like outcomes" not in " ".join([*verdict.reasons, verdict.paragraph])


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
    """The logger treats the old, and the treatment works always: age tells the treatment, not the reward."""
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
