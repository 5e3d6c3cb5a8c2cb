"""The unit of rewards changes no policy: b r in every log, a + b r where a constant cannot matter."""

import dataclasses
from functools import cache

import jax
import numpy as np
import pytest

import tidelog as tl
from tests.algorithms import recommenders
from tests.algorithms.worlds import KINDS, small, world
from tidelog import runtime
from tidelog.algorithms.names import learns_online, ranks
from tidelog.algorithms.short_form import ALGORITHMS
from tidelog.data.statistics import LoggedRewards, Scaler, by_return_deviation
from tidelog.policies.policy import named_arrays
from tidelog.training.fit import EpisodeSplit

equal, close = np.testing.assert_array_equal, np.testing.assert_allclose
UPDATES = 24
OFFLINE = [
    (name, kind)
    for name, cls in ALGORITHMS.items()
    if cls.__module__.startswith("tidelog.") and not learns_online(cls) and not ranks(cls)
    for kind, space in KINDS.items()
    if space in cls.takes
]
ROWS = 120
ENDS = {  # the columns of an episode's end, by what makes a constant matter or not
    "single": (np.ones(ROWS, bool), np.ones(ROWS, bool)),
    "one length": (np.arange(ROWS) % 4 == 3, np.arange(ROWS) % 4 == 3),
    "no end": (np.zeros(ROWS, bool), np.isin(np.arange(ROWS), (6, 30, 31, 80, ROWS - 1))),
    "uneven": (np.isin(np.arange(ROWS), (6, 30, 31, 80, ROWS - 1)),) * 2,
}  # fmt: skip


def cases(*ends: str) -> list:
    """Algorithms and ends: rewards are scaled before an algorithm reads them, the later ones are shown by one end."""
    early = ("iql", "discrete-bcq")
    return [pytest.param(name, kind, end, marks=[pytest.mark.slow] * (name not in early and end != ends[0]))
            for name, kind in OFFLINE for end in ends]  # fmt: skip


@cache
def log_of(kind: str, ends: str, factor: float = 1.0, constant: float = 0.0) -> tl.Log:
    """Whole rewards, which float32 holds in every unit of the tests."""
    rng = np.random.default_rng(0)
    terminated, last = ENDS[ends]
    action = {"action": rng.integers(0, 3, ROWS), "actions": 3}
    if kind == "continuous":
        action = {"action": rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32), "bounds": ([-1.0] * 2, [1.0] * 2)}
    if kind == "hybrid":
        parts = {"numbers": rng.uniform(-1, 1, (ROWS, 2)).astype(np.float32), "code": rng.integers(0, 3, ROWS)}
        action = {"action": parts, "bounds": {"numbers": ([-1.0] * 2, [1.0] * 2)}, "actions": {"code": 3}}
    return tl.Log.from_arrays(
        observation=rng.standard_normal((ROWS, 3)).astype(np.float32),
        reward=constant + factor * rng.integers(0, 6, ROWS),
        episode=np.append(0, np.cumsum(last)[:-1]),
        terminated=terminated,
        truncated=last & ~terminated,
        **action,
    )


def learnt(algorithm: object, log: object, **options: object) -> tl.Run:
    return tl.fit(algorithm, log, UPDATES, eval_every=UPDATES // 2, held_out=0.25, progress=False, **options)


def policy_of(run: tl.Run) -> dict[str, np.ndarray]:
    """The arrays of the policy."""
    return named_arrays(run.policy().params)


@pytest.mark.sample(
    "bc-discrete-uneven", "iql-discrete-single", "iql-continuous-one length", "bcq-continuous-uneven",
    "discrete-bcq-discrete-no end",
)  # fmt: skip
@pytest.mark.parametrize(("name", "kind", "ends"), cases("uneven", "single", "one length", "no end"))
def test_a_factor_on_rewards_changes_no_policy(name, kind, ends):
    before = policy_of(learnt(small(name), log_of(kind, ends)))
    for part, array in policy_of(learnt(small(name), log_of(kind, ends, 2.0**-20))).items():
        equal(array, before[part], err_msg=part)  # a power of two changes no digit
    for part, array in policy_of(learnt(small(name), log_of(kind, ends, 100.0))).items():
        close(array, before[part], rtol=1e-4, atol=1e-4)


@pytest.mark.sample("iql-discrete-single", "iql-continuous-no end", "bcq-continuous-one length")
@pytest.mark.parametrize(("name", "kind", "ends"), cases("no end", "single", "one length"))
def test_a_constant_changes_no_policy_where_it_cannot_matter(name, kind, ends):
    before = policy_of(learnt(small(name), log_of(kind, ends)))
    for factor, constant in ((1.0, 1e6), (48.0, -485.0)):
        for part, array in policy_of(learnt(small(name), log_of(kind, ends, factor, constant))).items():
            close(array, before[part], rtol=1e-4, atol=1e-4)


def test_a_constant_matters_where_a_policy_can_collect_it_more_often():
    one, two = (Scaler.fit(log_of("discrete", "uneven", 1.0, c), rewards=_scale("uneven", c)) for c in (0.0, 100.0))
    assert one.reward_shift == two.reward_shift == 0.0
    assert one.starts_at_mean
    # the returns of long episodes differ most by the constant
    assert two.reward_scale < one.reward_scale / 2


def _scale(ends, constant=0.0):
    return by_return_deviation(LoggedRewards.of(log_of("discrete", ends, 1.0, constant)))


def test_the_scale_by_hand():
    log = tl.Log.from_arrays(
        observation=np.zeros((6, 1), np.float32), action=[0, 1, 0, 1, 0, 1], reward=[1.0, 2.0, 3.0, 5.0, 6.0, 7.0],
        episode=[0, 0, 0, 1, 1, 2], terminated=True,
    )  # fmt: skip
    scale = by_return_deviation(LoggedRewards.of(log))
    # returns 6, 11, 7: mean 8, variance (4 + 9 + 1) / 3; mean length 2
    assert scale.scale == pytest.approx(2.0 / np.sqrt(14 / 3))
    assert scale[1:] == (0.0, None, True)
    scaler = Scaler({}, {}, *scale)
    # returns to come at discount 1/2: 1 + 1 + 3/4 = 2.75, 2 + 1.5 = 3.5, 3 | 5 + 3 = 8, 6 | 7: mean 30.25 / 6
    start = scaler.initial_value(LoggedRewards.of(log), 0.5)
    assert float(start) == pytest.approx(30.25 / 6 * scale.scale)
    assert float(scaler.initial_value(LoggedRewards.of(log), 1.0)) == pytest.approx(
        (6 + 5 + 3 + 11 + 6 + 7) / 6 * scale.scale
    )
    assert scaler.value_unit(0.5) == (1.0 / scale.scale, 0.0)

    single = by_return_deviation(LoggedRewards.of(dataclasses.replace(log, **_single())))
    assert single.scale == pytest.approx(1.0 / np.std([1, 2, 3, 5, 6, 7]))
    assert single.shift == pytest.approx(-4.0 / np.std([1, 2, 3, 5, 6, 7]))
    assert single[2:] == (1, False)
    assert Scaler({}, {}, *single).value_unit(0.9) == pytest.approx((1.0 / single.scale, 4.0))


def _single():
    return {"episode": np.arange(6, dtype=np.int32), "terminated": np.ones(6, bool), "episode_ids": np.arange(6)}


@pytest.mark.parametrize(
    ("steps", "discount", "times"),
    [(1, 0.9, 1.0), (0, 0.9, 10.0), (0, 1.0, 0.0), (3, 1.0, 2.0), (3, 0.5, (1 + 1.5 + 1.75) / 3), (None, 0.9, 0.0)],
)
def test_a_subtracted_mean_is_added_to_values_once_for_each_reward_to_come(steps, discount, times):
    scaler = Scaler(reward_scale=0.5, reward_shift=-3.0, reward_steps=steps)  # rewards less 6, over 2
    assert scaler.value_unit(discount) == pytest.approx((2.0, 6.0 * times))
    several = Scaler(reward_scale=0.5, reward_shift=(-3.0, -1.0), reward_steps=steps)
    assert several.value_unit(discount, (1.0, 10.0)) == pytest.approx((2.0, 26.0 * times))


def test_rewards_that_do_not_differ_have_the_deviation_1():
    def of(reward, ends="uneven"):
        log = dataclasses.replace(log_of("discrete", ends), reward=np.asarray(reward, np.float32))
        return by_return_deviation(LoggedRewards.of(log))

    assert of(np.zeros(ROWS)).scale == 1.0
    for reward in (0.1, 0.3, 1e6 / 3.0):
        assert of(np.full(ROWS, reward), "one length").scale == 1.0
        assert of(np.full(ROWS, reward), "single").scale == 1.0
    last = np.asarray(log_of("discrete", "uneven").terminated)
    assert of(7.0 * last).scale == pytest.approx(1.0 / (7.0 * last).std())  # all returns are 7


def test_several_rewards_have_one_factor_and_a_mean_each():
    log = world("discrete")
    rng = np.random.default_rng(0)
    reward = rng.integers(0, 5, (log.steps, 2)).astype(np.float32)
    single = {
        "terminated": np.ones(log.steps, bool), "truncated": np.zeros(log.steps, bool),
        "episode": np.arange(log.steps, dtype=np.int32), "episode_ids": np.arange(log.steps),
    }  # fmt: skip
    ends = {"single": single, "uneven": {}}
    weights = (1.0, 0.5)
    for case, columns in ends.items():
        one, two, three = (
            dataclasses.replace(
                log, spec=dataclasses.replace(log.spec, rewards=2), reward=r.astype(np.float32), **columns
            )
            for r in (reward, 8.0 * reward, reward + np.asarray([1000.0, -3.0]))
        )
        runs = [learnt(small("iql", reward_weights=weights), part) for part in (one, two, three)]
        first, second, third = (policy_of(run) for run in runs)
        jax.tree.map(equal, first, second)
        if case == "single":
            jax.tree.map(lambda a, b: close(a, b, rtol=1e-4, atol=1e-4), first, third)
        scaler = runs[0].record.scaler
        total = EpisodeSplit(one, 0.25, 0).rewards(small("iql", reward_weights=weights)).total
        assert len(scaler.reward_shift) == 2
        if case == "single":
            assert scaler.reward_scale == pytest.approx(1.0 / total.std())


@pytest.mark.parametrize("ends", ["single", "uneven", "no end"])
def test_a_log_on_disk_gives_the_same_policy_in_every_unit(ends, tmp_path):
    log = log_of("discrete", ends, 2.0, 0.0 if ends == "uneven" else 1e6)
    log.save(tmp_path / "log")
    mapped = tl.Log.load(tmp_path / "log", memory_map=True)
    one, two = (policy_of(learnt(small("iql"), part)) for part in (log, mapped))
    jax.tree.map(equal, one, two)


def test_rewards_far_from_0_keep_their_digits():
    reward = np.asarray([1e6, 1e6 + 1, 1e6 + 1, 1e6, 1e6], np.float32)
    log = tl.Log.from_arrays(
        observation=np.zeros((5, 1), np.float32), action=[0, 1, 0, 1, 1], reward=reward, terminated=True
    )
    scaler = Scaler.fit(log, rewards=by_return_deviation(LoggedRewards.of(log)))
    plain = (reward - 1e6).astype(np.float64)
    close(scaler.reward(log.reward), (plain - plain.mean()) / plain.std(), rtol=1e-6)
    assert scaler.reward(log.reward).dtype == np.float32


@pytest.mark.parametrize("name", ["iql", "discrete-bcq"])
def test_values_and_metrics_are_in_the_log_s_own_unit(name, tmp_path):
    plain, other = (learnt(small(name), log_of("discrete", "single", *unit)) for unit in ((1.0, 0.0), (8.0, 500.0)))
    seen = log_of("discrete", "single").transitions.observation
    one, two = (run.policy().q_values(seen) for run in (plain, other))
    close(two, 500.0 + 8.0 * one, rtol=1e-5)
    assert 0.0 < one.mean() < 5.0  # rewards are 0 to 5
    saved = other.policy().save(tmp_path / "policy")
    close(runtime.load(saved).q_values(seen), two, rtol=1e-6)
    equal(tl.load_policy(saved).q_values(seen), two)
    for before, now in zip(plain.metrics, other.metrics, strict=True):
        for metric in {"q_mean", "v_mean", "target_q"} & set(before):
            assert now[metric] == pytest.approx(500.0 + 8.0 * before[metric], rel=1e-5)
        for metric in {"advantage_std", "advantage_mean", "target_gap"} & set(before):
            assert now[metric] == pytest.approx(8.0 * before[metric], rel=1e-3, abs=1e-4)
        for metric in (metric for metric in before if metric.endswith("loss")):
            assert now[metric] == pytest.approx(before[metric], rel=1e-3)


@pytest.mark.sample("iql-discrete", "iql-hybrid", "bcq-continuous", "discrete-bcq-discrete", "td3-bc-continuous")
@pytest.mark.parametrize(("name", "kind"), [pair for pair in OFFLINE if pair[0] != "bc"])
def test_values_start_at_the_mean_return_where_rewards_are_not_centred(name, kind):
    factor, constant = 10.0, 300.0
    log = log_of(kind, "uneven", factor, constant)
    run = tl.fit(small(name, discount=0.9), log, UPDATES, train=False)
    wanted = Scaler.initial_value(run.record.scaler, LoggedRewards.of(log), 0.9)
    assert wanted > 3.0
    state = run.learners()[0].state
    plain = small(name, discount=0.9).init(log.spec, jax.random.key(0), UPDATES)
    for part in {"critic", "target_critic", "value"} & set(state._fields):
        before, now = named_arrays(getattr(plain, part)), named_arrays(getattr(state, part))
        for array in (one for one in now if one.endswith("layers[1].bias")):
            close(now[array] - before[array], wanted, rtol=1e-5)
            continue
        moved = [one for one in now if one.endswith("bias") and np.abs(now[one] - before[one]).max() > 1.0]
        assert len(moved) == len(getattr(getattr(state, part), "members", [None]))  # the last layer of each
    optimiser = jax.tree.leaves(getattr(state, "opt_states", getattr(state, "opt_state", None)))
    assert all(float(np.abs(np.asarray(leaf)).max(initial=0.0)) == 0.0 for leaf in optimiser)
    assert (
        tl.fit(small(name), log_of(kind, "single", factor, constant), 1, train=False).record.scaler.starts_at_mean
        is False
    )


def test_a_warm_start_converts_values_between_units(tmp_path):
    seen = log_of("discrete", "single").transitions.observation
    source = learnt(small("iql"), log_of("discrete", "single"), out=tmp_path / "source", scale="none")
    warm = tl.fit(
        small("iql"), log_of("discrete", "single", 8.0, 500.0), 1, held_out=0.25, split_seed=5, train=False,
        scale="none", warm_start={"critic": tmp_path / "source"},
    )  # fmt: skip
    close(warm.policy().q_values(seen), source.policy().q_values(seen), rtol=1e-4, atol=1e-3)  # the same values


def test_a_resumed_run_keeps_its_scale(tmp_path):
    log = log_of("discrete", "uneven", 10.0, 300.0)
    whole = learnt(small("iql"), log)
    run = tl.fit(small("iql"), log, UPDATES, eval_every=UPDATES // 2, held_out=0.25, out=tmp_path / "run", train=False)
    for _ in run.stream(until=UPDATES // 2):
        pass
    again = tl.load_run(tmp_path / "run", log)
    assert again.record.scaler.to_json() == whole.record.scaler.to_json()
    jax.tree.map(equal, policy_of(again.train(False)), policy_of(whole))


@pytest.mark.sample("changes0")
@pytest.mark.parametrize("changes", [{}, {"generator": "vae"}, {"negative_weight": 0.5}])
def test_the_unit_of_rewards_changes_no_list(changes):
    log = recommenders.described()
    reward = np.random.default_rng(0).integers(0, 4, len(log)).astype(np.float32)

    def of(worth, **columns):
        part = dataclasses.replace(log, reward=np.asarray(worth, np.float32), **columns)
        run = tl.fit(recommenders.small(q_weight=1.0, **changes), part, 6, held_out=0.3, progress=False)
        return run, policy_of(run)

    _, before = of(reward)
    jax.tree.map(equal, of(4.0 * reward)[1], before)
    jax.tree.map(lambda a, b: close(a, b, rtol=1e-3, atol=1e-4), of(100.0 * reward)[1], before)
    endless = {"terminated": np.zeros(len(log), bool), "truncated": np.append(log.user[1:] != log.user[:-1], True)}
    if "negative_weight" in changes:  # items that were not selected have the reward 0, which a constant moves away from
        run, _ = of(reward, **endless)
        assert run.record.scaler.reward_shift == 0.0
        return
    run, before = of(reward, **endless)
    again, after = of(1e6 + 2.0 * reward, **endless)
    jax.tree.map(lambda a, b: close(a, b, rtol=1e-3, atol=1e-4), after, before)
    one, two = (part.metrics[-1]["main/q_mean"] for part in (run, again))
    assert two == pytest.approx(1e6 / (1.0 - 0.99) + 2.0 * one, rel=1e-6)
