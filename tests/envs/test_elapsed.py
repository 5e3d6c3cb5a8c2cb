"""Environments whose decisions are unevenly spaced: the times that they return, and the discounts that follow."""

from dataclasses import dataclass, replace
from typing import ClassVar

import gymnasium
import jax.numpy as jnp
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import AutoresetMode, SyncVectorEnv

import tidelog as tl
from tests.envs.corridor import idle
from tidelog.envs import make, play
from tidelog.envs.functional import CartPole
from tidelog.envs.protocol import step_copies
from tidelog.errors import CheckpointError, EnvironmentFailure
from tidelog.policies.policy import fingerprint
from tidelog.types import Spec

PPG = {"num_envs": 4, "rollout_steps": 16, "hidden": (8,), "policy_iterations": 2, "minibatches": 2}
REPLAY = {"num_envs": 4, "rollout_steps": 16, "hidden": (8,), "minibatch": 4, "aux_every": 2}


class Visits(gymnasium.Env):
    """Three visits; the time until the next one is 2, 3 and 4 hours, half of it after action 1."""

    observation_space = spaces.Box(0, 9, (1,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, unit="hour", hours=(2.0, 3.0, 4.0), divided=True):
        self.metadata = {} if unit is None else {"elapsed_unit": unit}
        self.hours, self.divided = hours, divided

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.visit = 0
        return np.zeros(1, np.float32), {}

    def step(self, action):
        hours = self.hours[self.visit]
        self.visit += 1
        info = {} if hours is None else {"elapsed": hours / (1 + action) if self.divided else hours}
        return np.full(1, self.visit, np.float32), float(action), self.visit == 3, False, info


@dataclass(frozen=True)
class SlowCart(CartPole):
    """A cart whose steps take some hours; None: no times, as the cart itself."""

    hours: float | None = 2.0
    unit: str | None = "hour"
    name: ClassVar[str] = "slow cart"

    @property
    def spec(self):
        return replace(CartPole.spec, elapsed_unit=self.unit)

    def step(self, world, action, key):
        moved = super().step(world, action, key)
        return moved if self.hours is None else moved._replace(elapsed=jnp.float32(self.hours))


def weights(algorithm, env, steps=128):
    return fingerprint(tl.learn(algorithm, env, steps=steps, progress=False).policy().params)


@pytest.mark.parametrize("mode", [None, *AutoresetMode])
def test_the_time_after_each_decision_is_in_the_log(mode):
    env = Visits if mode is None else SyncVectorEnv([Visits] * 2, autoreset_mode=mode)
    log = tl.collect(env, episodes=4, num_envs=2, seed=1)
    hours = np.tile([2.0, 3.0, 4.0], 4) / (1 + log.action)
    np.testing.assert_allclose(log.elapsed, hours)
    assert log.elapsed_unit == log.discount_unit == "hour"
    assert log.spec.elapsed_unit is None  # that of a log is in the log


def test_the_log_of_a_run_has_the_times_and_the_policy_the_unit(tmp_path):
    run = tl.learn(tl.PPO(**PPG), SlowCart(), steps=64, out=tmp_path / "run", log_out=tmp_path / "log", progress=False)
    log = tl.read_log(tmp_path / "log")
    assert set(log.elapsed.tolist()) == {2.0}
    assert log.elapsed_unit == "hour"
    assert run.policy().origin["discount_unit"] == "hour"
    again = tl.load_run(tmp_path / "run", env=SlowCart())
    assert again.record.spec == SlowCart().spec == Spec.from_json(SlowCart().spec.to_json())
    with pytest.raises(CheckpointError, match="found an environment"):
        tl.load_run(tmp_path / "run", env=SlowCart(hours=None, unit=None))
    host = tl.learn(tl.PPO(**PPG), Visits, steps=64, log_out=tmp_path / "host", progress=False)
    assert host.record.data.discount_unit == "hour"
    visits = tl.read_log(tmp_path / "host")
    visit = visits.observation["observation"][visits.position, 0]
    np.testing.assert_allclose(visits.elapsed * (1 + visits.action), 2.0 + visit)


@pytest.mark.full
@pytest.mark.parametrize(("algorithm", "settings"), [(tl.PPG, PPG), (tl.OffPolicyPPG, REPLAY)], ids=["ppg", "replay"])
def test_one_hour_everywhere_learns_to_the_bit_as_without_and_two_hours_otherwise(algorithm, settings):
    plain = weights(algorithm(**settings, discount=0.9), SlowCart(hours=None, unit=None))
    assert weights(algorithm(**settings, discount=0.9), SlowCart(hours=1.0)) == plain
    assert weights(algorithm(**settings, discount=0.9), SlowCart(hours=2.0)) != plain
    ends = [
        tl.learn(algorithm(**settings, **other), env, steps=128, progress=False).metrics[-1]
        for other, env in (
            ({"discount": 0.9, "reward_discount": 0.8}, SlowCart()),
            ({"discount": 0.81, "reward_discount": 0.64}, SlowCart(hours=None, unit=None)),
        )
    ]
    losses = [{name: value for name, value in row.items() if name.endswith("loss")} for row in ends]
    assert losses[0]
    for name, value in losses[0].items():
        np.testing.assert_allclose(value, losses[1][name], rtol=1e-4, atol=1e-6, err_msg=name)


def test_finetuning_goes_on_where_log_and_environment_count_in_one_unit():
    run = tl.fit(tl.IQL(hidden=(8,), n_step=2), tl.collect(Visits, episodes=8), steps=2, progress=False)
    assert tl.finetune(run, Visits, steps=20, progress=False).done == 20
    with pytest.raises(tl.SpecError, match=r"a discount per hour.*expected one per day"):
        tl.finetune(run, lambda: Visits("day"), steps=20)
    with pytest.raises(tl.SpecError, match=r"a discount per hour.*expected one per step"):
        tl.finetune(run, lambda: Visits(None), steps=20)


CASES = {
    "a unit that is no word": (lambda: Visits(1.0), r"elapsed_unit.*is 1\.0: expected a unit of time"),
    "no time in a step": (lambda: Visits(hours=(2.0, None, 1.0)), "copy 0, step 2: the info has no elapsed time"),
    "a negative time": (lambda: Visits(hours=(2.0, 3.0, -4.0)), r"copy 0, step 3: elapsed is -4\.0"),
    "no number": (lambda: Visits(hours=(float("nan"), 1.0, 1.0)), "copy 0, step 1: elapsed is nan"),
    "times without a unit": (SlowCart(unit=None), "spec.elapsed_unit = None, but its steps have elapsed"),
    "a unit without times": (SlowCart(hours=None), "spec.elapsed_unit = 'hour', but its steps have no"),
}


@pytest.mark.parametrize("name", CASES)
def test_what_does_not_fit_is_refused(name):
    env, said = CASES[name]
    with pytest.raises((EnvironmentFailure, tl.SpecError), match=said):
        play(make(env, 2), idle, 2)


def test_a_vector_environment_and_one_of_ones_own_are_checked_too():
    for mode in AutoresetMode:
        broken = SyncVectorEnv([Visits, lambda: Visits(hours=(2.0, 3.0, None))], autoreset_mode=mode)
        with pytest.raises(EnvironmentFailure, match="copy 1, step 3: the info has no elapsed time"):
            play(make(broken, 2), idle, 2)
    own = make(CartPole(), 2)
    own.reset(0)
    own.spec = replace(own.spec, elapsed_unit="hour")
    with pytest.raises(EnvironmentFailure, match="elapsed_unit is 'hour'"):
        step_copies(own, np.zeros(2, np.int32))


class Odd(Visits):
    """Every episode after a reset with a time of its own, which is none; the first copy's times are whole numbers."""

    def reset(self, *, seed=None, options=None):
        return super().reset(seed=seed)[0], {"elapsed": float("nan")}


def test_what_a_reset_says_is_no_time_and_whole_numbers_would_cut_those_of_other_copies():
    for mode in AutoresetMode:
        log = tl.collect(SyncVectorEnv([Odd] * 2, autoreset_mode=mode), episodes=4, num_envs=2, seed=1)
        np.testing.assert_allclose(log.elapsed, np.tile([2.0, 3.0, 4.0], 4) / (1 + log.action))
        whole = SyncVectorEnv([lambda: Visits(hours=(2, 3, 4), divided=False), Visits], autoreset_mode=mode)
        with pytest.raises(EnvironmentFailure, match="elapsed is a whole number"):
            play(make(whole, 2), idle, 2)
