"""Settings that follow a log: each rule by hand, what may not decide, and who takes part."""

import re
from dataclasses import replace

import numpy as np
import pytest

import tidelog as tl
from benchmarks.vault import vault
from tests.data.clicks import interactions
from tests.ope.played import treated
from tidelog.algorithms import hyperparameters as fields
from tidelog.algorithms.hyperparameters import hyperparameters
from tidelog.auto import settings as auto
from tidelog.auto import sharpness
from tidelog.auto.settings import DECISIONS, preset_of
from tidelog.errors import ConfigError, SpecError
from tidelog.networks import native
from tidelog.types import Continuous, Discrete, Image, MultiDiscrete, Spec, Vector

HELD_OUT = 0.2


@pytest.fixture(scope="module")
def log():
    return treated(1_000)


@pytest.fixture(autouse=True)
def short_search(monkeypatch):
    """Which temperature is best is not asked here (test_sharpness.py)."""
    monkeypatch.setattr(sharpness, "MOST_UPDATES", 50)


def truncated(log):
    last = np.isin(np.arange(log.steps), log.starts[1:] - 1)
    return replace(log, terminated=np.zeros(log.steps, bool), truncated=last)


def test_alternatives_are_the_other_algorithms_for_such_actions(log):
    found = tl.suggest(tl.DiscreteBCQ, log, threshold=0.3).alternatives
    assert set(found) == {"bc", "iql", "discrete-cql"}
    assert found["discrete-cql"] == tl.DiscreteCQL.suits
    box = replace(log.spec, action=Continuous((-1.0,), (1.0,)))
    assert set(auto.alternatives_to(tl.IQL, box)) == {"bc", "bcq", "td3-bc", "rebrac", "cql", "fql"}


def test_a_small_table_with_short_episodes(log):
    found = tl.suggest(tl.IQL, log, held_out=HELD_OUT, temperature=5.0)
    train, _ = log.split(1 - HELD_OUT, 0)
    rate = 1e-3
    assert found.algorithm == tl.IQL(
        temperature=5.0,
        discount=1.0,
        hidden=(64, 64),
        actor_learning_rate=rate,
        critic_learning_rate=rate,
        value_learning_rate=rate,
    )
    assert found.steps == 4_000  # 400 passes over 2,750 decisions are 4,300 updates, rounded
    lines = found.lines()
    assert f"over {train.steps:,} training decisions" in lines[0]
    assert "actor_learning_rate, critic_learning_rate, value_learning_rate 0.001: fewer than 100,000" in "\n".join(
        lines
    )
    assert [line.split()[0] for line in found.lines(["steps", "discount"])] == ["steps", "discount"]


@pytest.mark.parametrize(
    ("episodes", "length", "share"),
    [
        (40, 1, 0.5),
        (40, 100, 0.5),
        (100_000, 1, 0.5),
        (125_000, 1, 0.4),
        (250_000, 1, 0.2),
        (300_000, 1, 0.2),
        (40, 101, 0.2),
    ],
)
def test_few_short_episodes_judge_with_half_of_them(episodes, length, share):
    rows = episodes * length
    ends = (np.arange(rows) + 1) % length == 0
    log = tl.Log.from_arrays(
        observation=np.zeros((rows, 1), np.float32), action=np.arange(rows) % 2, reward=np.zeros(rows, np.float32),
        terminated=ends, episode=np.repeat(np.arange(episodes), length),
    )  # fmt: skip
    found = auto.held_out_share(log)
    assert found.value == share
    assert found.reason == (
        f"{share * episodes:,.0f} of {episodes:,} episodes judge what is learnt from the others"
        if length <= 100
        else "episodes of up to 101 decisions"
    )


def test_a_share_that_follows_the_log_is_an_option_of_the_training(log):
    found = tl.suggest(tl.BC, log, held_out=None)
    assert found.options == {"held_out": 0.5}
    assert replace(found.algorithm) == tl.suggest(tl.BC, log, held_out=0.5).algorithm
    assert found.steps == tl.suggest(tl.BC, log, held_out=0.5).steps
    assert "held_out" not in tl.suggest(tl.BC, log, held_out=0.5).settings


def test_what_is_held_out_decides_nothing(log, monkeypatch):
    monkeypatch.setattr(sharpness, "MOST_UPDATES", 50)
    _, judged = log.split_ordinals(1 - HELD_OUT, 0)
    rows = np.isin(np.asarray(log.episode), judged)
    other = replace(log, reward=np.where(rows, 1e6, log.reward).astype(np.float32))
    assert tl.suggest(tl.IQL, other, held_out=HELD_OUT) == tl.suggest(tl.IQL, log, held_out=HELD_OUT)
    assert tl.suggest(tl.IQL, other).settings != tl.suggest(tl.IQL, log).settings


@pytest.mark.parametrize(
    ("decisions", "batch", "updates"),
    [(500, 256, 1_000), (2_750, 256, 4_000), (10_000, 256, 5_000), (50_000, 256, 10_000), (10**7, 256, 100_000)],
)
def test_updates_are_passes_within_limits(log, decisions, batch, updates):
    facts = auto.facts_of(log, 0.0, 0)._replace(decisions=decisions)
    assert auto.updates_of(facts, batch).value == updates


@pytest.mark.parametrize(
    ("decisions", "updates"), [(200, 500), (1_000, 500), (5_000, 1_000), (8_000, 1_600), (50_000, 9_800)]
)
def test_single_decisions_are_read_fewer_times(log, decisions, updates):
    facts = auto.facts_of(log, 0.0, 0)._replace(decisions=decisions, longest=1)
    assert auto.updates_of(facts, 256).value == updates


def test_the_updates_of_a_recommender_follow_its_events():
    log = interactions()
    found = tl.suggest(tl.RecommenderBCQ, log, size=8)
    assert found.steps == 500
    assert found.algorithm == tl.RecommenderBCQ(size=8)
    assert found.lines() == [f"steps 500: {500 * 1280 / log.steps:,.0f} passes over {log.steps:,} events"]
    train = log.split(share=0.5).train.steps
    assert f"passes over {train:,} events" in tl.suggest(tl.RecommenderBCQ, log, held_out=0.5).lines()[0]
    assert train < log.steps
    assert found.options == {}  # nothing is held out that could stop it
    stopped = tl.suggest(tl.RecommenderBCQ, log, held_out=0.5)
    assert stopped.options == {"best_metric": "held_out/ndcg@10", "patience": 3}
    assert "patience 3: reports without a better held_out/ndcg@10 stop the training" in stopped.lines()
    with pytest.raises(SpecError, match=r"IQL does not learn from interactions\. fix: use tl.RecommenderBCQ"):
        tl.suggest(tl.IQL, log)


def test_large_logs_have_the_defaults_of_networks(log):
    facts = auto.facts_of(log, 0.0, 0)._replace(decisions=100_000)
    assert auto.RULES["widths"](facts) is None
    assert auto.RULES["learning rate"](facts) is None


@pytest.mark.parametrize(("level", "decisions", "value"), [
    (native.BFLOAT16, auto.SMALL, "bfloat16"), (native.BFLOAT16, auto.SMALL - 1, None), (native.FLOAT32, 10**6, None),
    (0, 10**6, None),
])  # fmt: skip
def test_wide_layers_are_rounded_where_native_layers_multiply_bfloat16(log, monkeypatch, level, decisions, value):
    monkeypatch.setattr(native, "level", lambda: level)
    setting = auto.precision(auto.facts_of(log, 0.0, 0)._replace(decisions=decisions))
    assert (None if setting is None else setting.value) == value
    monkeypatch.setattr(auto, "SMALL", 0)
    assert tl.suggest(tl.BC, log).algorithm.matmul_precision == ("float32" if level < native.BFLOAT16 else "bfloat16")
    assert tl.suggest(tl.BC, log, matmul_precision="float32").algorithm.matmul_precision == "float32"


def test_the_future_counts_less_where_it_may_not_end(log):
    assert tl.suggest(tl.IQL, truncated(log), temperature=3.0).algorithm.discount == 0.99
    facts = auto.facts_of(log, 0.0, 0)
    assert auto.discount(facts._replace(longest=100)).value == 1.0
    assert auto.discount(facts._replace(longest=101)) is None


def test_own_settings_win_and_wrong_ones_are_refused(log):
    found = tl.suggest(tl.IQL, log, temperature=7.0, batch_size=1024)
    assert found.algorithm.temperature == 7.0
    assert "temperature" not in found.settings
    assert found.steps < tl.suggest(tl.IQL, log, temperature=7.0).steps
    with pytest.raises(ConfigError, match="did you mean 'temperature'"):
        tl.suggest(tl.IQL, log, temprature=7.0)
    with pytest.raises(SpecError, match="PPG learns in an environment"):
        tl.suggest(tl.PPG, log)


def test_an_algorithm_of_ones_own_takes_part_by_its_declarations(log):
    @hyperparameters
    class Own:
        rate: float = fields.learning_rate(3e-4)
        gain: float = 2.0

    assert tl.suggest(Own, log).algorithm == Own(rate=1e-3)
    assert tl.suggest(Own, log, rate=0.1).algorithm == Own(rate=0.1)


def test_a_log_without_rewards_is_for_cloning(log):
    found = tl.suggest(tl.BC, replace(log, reward=None))
    assert found.algorithm == tl.BC(hidden=(64, 64), learning_rate=1e-3)


def test_the_discount_allows_a_small_share_of_episodes_that_were_cut_off(log):
    """As the end of training does, which cuts off the last episode of each copy."""

    def with_cuts(count):
        terminated, last = np.array(log.terminated), np.asarray(log.starts[1:] - 1)
        terminated[last[-count:]] = False
        return replace(log, terminated=terminated)

    few, many = (int(len(log.episode_ids) * share) for share in (0.04, 0.06))
    found = tl.suggest(tl.IQL, with_cuts(few), temperature=3.0)
    assert found.algorithm.discount == 1.0
    shares = re.search(r"the environment ends ([0-9.]+)% of the episodes", found.settings["discount"].reason)
    assert float(shares[1]) == pytest.approx(100 * (1 - few / len(log.episode_ids)), abs=0.1)
    assert tl.suggest(tl.IQL, with_cuts(many), temperature=3.0).algorithm.discount == 0.99


PICTURE, FRAME = ({"screen": Image(height, height, 3)} for height in (64, 84))
NUMBERS = {"state": Vector(3)}


@pytest.mark.parametrize(
    ("cls", "observation", "action", "name"),
    [
        (tl.PPG, NUMBERS, Discrete(2), "classic-control"),
        (tl.PPG, NUMBERS, MultiDiscrete((2, 3)), "classic-control"),
        (tl.PPG, NUMBERS, Continuous((-1.0,), (1.0,)), "mujoco"),
        (tl.PPG, PICTURE | NUMBERS, Discrete(2), "procgen"),
        (tl.PPG, FRAME, Discrete(2), "atari"),
        (tl.OffPolicyPPG, NUMBERS, Continuous((-1.0,), (1.0,)), "classic-control"),
        (tl.OffPolicyPPG, PICTURE, Discrete(2), None),
        (tl.IQL, NUMBERS, Discrete(2), None),
    ],
)
def test_an_environment_has_the_preset_of_its_kind(cls, observation, action, name):
    preset = preset_of(cls, Spec(observation, action))
    assert (None if preset is None else preset.name) == name


def test_an_algorithm_is_suggested_for_an_environment(log):
    suggestion = tl.suggest(tl.PPG, "CartPole-v1", learning_rate=1e-3)
    assert suggestion.algorithm == replace(tl.PPG.preset("classic-control"), learning_rate=1e-3)
    assert suggestion.steps == DECISIONS
    assert "learning_rate" not in suggestion.settings
    assert tl.suggest(tl.OffPolicyPPG, vault()).settings == {}  # pictures
    with pytest.raises(SpecError, match="learns"):
        tl.suggest(tl.PPG, log)
