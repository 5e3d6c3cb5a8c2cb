"""IQL at the limits of its other hyper-parameters; offline training changes every part."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.worlds import KINDS, compiled, drawn, small, stores, world
from tidelog import IQL, ConfigError, LogError, SpecError
from tidelog.algorithms.iql import traces
from tidelog.algorithms.sampling import NStep, Sampler, Window
from tidelog.algorithms.short_form import step
from tidelog.data.statistics import Scaler
from tidelog.networks.actors import HEADS, Categorical, EpsilonMode
from tidelog.training.loop import as_arrays
from tidelog.types import Hybrid, InBounds

stepped = compiled(step)
LOG = world("discrete")


def same(one, two, atol=0.0):
    for a, b in zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True):
        np.testing.assert_allclose(a, b, rtol=0, atol=atol)


def distance(one, two):
    pairs = zip(jax.tree.leaves(one), jax.tree.leaves(two), strict=True)
    return max(float(np.abs(np.asarray(a) - np.asarray(b)).max()) for a, b in pairs)


def fresh(h, spec=LOG.spec, seed=0):
    return h.init(spec, jax.random.key(seed), 10)


@pytest.mark.sample("discrete")
@pytest.mark.parametrize("kind", KINDS)
def test_temperature_0_is_behaviour_cloning(kind):
    log = world(kind)
    iql, bc = small("iql", temperature=0.0), small("bc", schedule="cosine")
    one, two = fresh(iql, log.spec), fresh(bc, log.spec)
    start, two = one.actor, two._replace(actor=one.actor)
    for seed in range(5):
        batch = drawn(iql, log, seed)
        one, found = stepped(iql, one, batch)
        two, wanted = stepped(bc, two, batch)
        np.testing.assert_allclose(found.metrics["actor_loss"], wanted.metrics["imitation_loss"], rtol=1e-6)
    same(one.actor, two.actor, atol=1e-6)
    assert distance(one.actor, start) > 1e-2


@pytest.mark.parametrize("name", ["bc", pytest.param("iql", marks=pytest.mark.full)])
def test_an_action_of_one_continuous_part_is_that_part(name):
    log, h = world("continuous"), small(name)
    space = log.spec.action
    spec = dataclasses.replace(log.spec, action=Hybrid((("dose", space),)))
    one, two = fresh(h, log.spec), fresh(h, spec)
    for seed in range(3):
        one, found = stepped(h, one, drawn(h, log, seed))
        two, wanted = stepped(h, two, drawn(h, dataclasses.replace(log, spec=spec), seed))
        assert {key: float(value) for key, value in found.metrics.items()} == pytest.approx(
            {key: float(value) for key, value in wanted.metrics.items()}, rel=1e-6
        )
    networks = [(getattr(one, part), getattr(two, part)) for part in ("actor", "critic") if hasattr(one, part)]
    same(*zip(*networks, strict=True), atol=1e-6)


def test_target_rate_0_holds_the_target_and_1_copies_the_critics():
    held, copied = small("iql", tau=0.0), small("iql", tau=1.0)
    batch = drawn(held, LOG)
    same(stepped(held, fresh(held), batch)[0].target_critic, fresh(held).target_critic)
    state, _ = stepped(copied, fresh(copied), batch)
    same(state.target_critic, state.critic, atol=1e-7)


@pytest.mark.sample("deterministic")
@pytest.mark.parametrize("head", HEADS)
def test_every_head_clones_one_action_of_one_state(head):
    h, log = small("bc", actor_head=head, learning_rate=0.05), world("continuous")
    state, batch = fresh(h, log.spec), drawn(h, log)
    one = jax.tree.map(lambda leaf: np.repeat(np.asarray(leaf)[:1], len(leaf), axis=0), batch)
    for _ in range(60):
        state, _ = stepped(h, state, one)
    found = eqx.filter_jit(h.act)(h.policy_params(state), one.data.observation).action
    # other seeds: 1, 7 and 2 of 20 fail (gaussian, state-gaussian, deterministic)
    np.testing.assert_allclose(found, one.data.action, atol=0.1)


def test_max_weight_0_leaves_the_actor_alone():
    h = small("iql", max_weight=0.0)
    same(stepped(h, fresh(h), drawn(h, LOG))[0].actor, fresh(h).actor)


def test_a_rate_of_0_leaves_its_network_alone():
    for part in ("actor", "critic", "value"):
        h = small("iql", **{f"{part}_learning_rate": 0.0})
        state, _ = stepped(h, fresh(h), drawn(h, LOG))
        for other in ("actor", "critic", "value"):
            assert (distance(getattr(state, other), getattr(fresh(h), other)) == 0.0) == (other == part)


def test_discount_0_looks_no_further_than_the_reward():
    h = small("iql", discount=0.0)
    batch = drawn(h, LOG)
    elsewhere = jax.tree.map(lambda leaf: np.asarray(leaf)[::-1], batch.data.next_observation)
    other = batch._replace(data=batch.data._replace(next_observation=elsewhere))
    same(stepped(h, fresh(h), batch)[0].critic, stepped(h, fresh(h), other)[0].critic)
    far = small("iql", discount=0.9)
    batch = drawn(far, LOG)
    other = batch._replace(data=batch.data._replace(next_observation=elsewhere))
    assert distance(stepped(far, fresh(far), batch)[0].critic, stepped(far, fresh(far), other)[0].critic) > 1e-4


@pytest.mark.parametrize("schedule", ["cosine", "linear"])
def test_a_schedule_ends_at_next_to_nothing(schedule):
    h = small("bc", schedule=schedule)
    state = fresh(h)._replace(step=jnp.int32(10))
    assert distance(stepped(h, state, drawn(h, LOG))[0].actor, state.actor) == 0.0


def test_one_step_windows_are_what_longer_windows_are_on_one_step_episodes():
    rows = len(LOG)
    single = world("discrete", episode=None, terminated=np.arange(rows) % 2 == 0, truncated=np.arange(rows) % 2 == 1)
    store = stores(small("iql"), single)["log"]
    usable = jnp.asarray(NStep(1, 0.9).rows(store)[1])
    one, five = (eqx.filter_jit(NStep(n, 0.9).gather)(store, usable).data for n in (1, 5))
    same(one, five)


def test_dropout_0_and_a_wide_clip_are_neither():
    plain, idle = small("bc"), small("bc", dropout=0.0, gradient_clip=1e6)
    batch = drawn(plain, LOG)
    same(stepped(plain, fresh(plain), batch)[0].actor, stepped(idle, fresh(idle), batch)[0].actor, atol=1e-6)


def test_dropout_differs_from_update_to_update():
    h = small("bc", dropout=0.5)
    later = fresh(h)._replace(step=jnp.int32(1))
    batch = drawn(h, LOG)
    assert distance(stepped(h, fresh(h), batch)[0].actor, stepped(h, later, batch)[0].actor) > 1e-3


def test_epsilon_1_is_the_policy_and_epsilon_0_its_mode():
    base = Categorical(np.array([[0.0, 1.0, 2.0]] * 500, np.float32))

    @eqx.filter_jit
    def said(base, epsilon):
        policy = EpsilonMode(base, epsilon)
        return policy.probabilities(), policy.sample(jax.random.key(0)), base.probabilities()

    (whole, sampled, of_base), (modes, chosen, _) = (map(np.asarray, said(base, jnp.float32(e))) for e in (1.0, 0.0))
    np.testing.assert_allclose(whole, of_base, rtol=1e-6)
    np.testing.assert_array_equal(modes[0], [0.0, 0.0, 1.0])
    assert set(sampled.tolist()) == {0, 1, 2}
    assert set(chosen.tolist()) == {2}


# Returns along windows. Letters: `B` windows, `T` steps.


def alike(one, two, atol):
    """Assert that two states have nearly equal networks."""
    same(one[:4], two[:4], atol)


def along(**changes):
    """IQL over windows, and one of its batches."""
    h = small("iql", **{"returns": "td-lambda", "window": 4, "priority_exponent": None, **changes})
    return h, drawn(h, LOG)


def test_lambda_0_is_one_step_and_lambda_1_all_steps_of_the_window():
    h, batch = along(trace_lambda=0.0)
    one = stepped(dataclasses.replace(h, returns="n-step"), fresh(h), batch)[0]
    alike(stepped(h, fresh(h), batch)[0], one, atol=1e-7)
    whole = dataclasses.replace(h, trace_lambda=1.0)
    four = dataclasses.replace(h, returns="n-step", n_step=4)
    sampler = Sampler("log", h.batch_size, Window(NStep(4, h.discount), 4))
    summed = eqx.filter_jit(sampler.batch)(stores(h, LOG)["log"], None, jax.random.key(0), jnp.zeros(()))[0]
    np.testing.assert_array_equal(summed.rows, batch.rows)
    most = stepped(whole, fresh(h), batch)[0]
    alike(most, stepped(four, fresh(h), summed)[0], atol=1e-6)
    assert distance(most.critic, one.critic) > 1e-3
    between = stepped(dataclasses.replace(h, trace_lambda=0.5), fresh(h), batch)[0]
    assert min(distance(between.critic, end.critic) for end in (one, most)) > 1e-3


@pytest.mark.parametrize("returns", ["td-lambda", "retrace"])
def test_windows_of_one_step_are_transitions(returns):
    log = dataclasses.replace(LOG, propensity=np.full(len(LOG), 0.25, np.float32))
    h, plain = (small("iql", returns=name, window=1) for name in (returns, "n-step"))
    batch = drawn(h, log)
    np.testing.assert_array_equal(batch.rows, drawn(plain, log).rows)
    alike(stepped(h, fresh(h), batch)[0], stepped(plain, fresh(h), drawn(plain, log))[0], atol=1e-6)


@pytest.mark.parametrize("kind", KINDS)
def test_retrace_cuts_where_the_policy_is_less_likely_than_the_behaviour_policy(kind):
    log = world(kind)
    chances = np.exp(np.random.default_rng(0).uniform(-4, 1, len(log))).astype(np.float32)
    log = dataclasses.replace(log, propensity=np.minimum(chances, 1.0))
    h = small("iql", returns="retrace", window=4, trace_lambda=0.8)
    batch, state = drawn(h, log), fresh(h, log.spec)
    row = batch.data._replace(real=None)
    found = np.asarray(eqx.filter_jit(traces)(h, state, row, batch.data.real))
    likely = np.asarray(eqx.filter_jit(state.actor)(row.observation, mask=row.mask).log_probability(row.action))
    action = log.spec.action  # its bounds' volume, in units of [-1, 1]
    volume = action.log_volume() if isinstance(action, InBounds) else 0.0
    np.testing.assert_allclose(stores(h, log)["log"].log_propensity, np.log(log.propensity) + volume, atol=1e-6)
    steps, mu = np.asarray(batch.data.real), np.exp(np.asarray(row.log_propensity))
    wanted = 0.8 * np.minimum(1.0, np.exp(likely) / mu) * steps
    np.testing.assert_allclose(found[:, :-1], wanted[:, 1:], rtol=2e-5)
    assert (found[:, -1] == 0).all()
    assert 0 < (found[:, :-1][steps[:, 1:]] < 0.79).mean() < 1
    if kind == "discrete":
        one, two = (stepped(each, state, batch)[0] for each in (h, dataclasses.replace(h, returns="td-lambda")))
        assert distance(one.critic, two.critic) > 1e-4


def test_returns_that_cannot_be_are_refused():
    with pytest.raises(ConfigError, match=r"returns = 'td-lambda' and IQL.n_step = 3.*fix: set n_step=1"):
        IQL(returns="td-lambda", n_step=3)
    with pytest.raises(LogError, match=r"no propensities.*fix: map a propensity column, .*td-lambda"):
        stores(IQL(returns="retrace"), LOG)
    box = world("continuous")
    box = dataclasses.replace(box, propensity=np.full(len(box), 0.25, np.float32))
    h = small("iql", returns="retrace", actor_head="deterministic")
    with pytest.raises(ConfigError, match=r"'retrace': expected a policy with a density. fix: use actor_head"):
        step(h, fresh(h, box.spec), drawn(h, box))
    with pytest.raises(ConfigError, match=r"discounts = \(1.5,\).*\[0, 1\]"):
        IQL(discounts=(1.5,))
    for log, wrong in ((LOG, (0.9,)), (twice(), (0.9,))):
        with pytest.raises(SpecError, match=r"discounts: 1 discounts"):
            IQL(discounts=wrong).stores(log.spec)


def twice():
    """The log with two rewards."""
    reward = np.stack([LOG.reward, -2.0 * LOG.reward + 1.0], axis=1).astype(np.float32)
    return dataclasses.replace(LOG, reward=reward, spec=dataclasses.replace(LOG.spec, rewards=2))


@pytest.mark.sample("n-step")
@pytest.mark.parametrize("changes", [{"n_step": 3}, {"returns": "td-lambda", "window": 3}], ids=["n-step", "lambda"])
def test_equal_discounts_of_two_rewards_are_one_discount(changes):
    log = twice()
    one, two = (small("iql", **changes, **more) for more in ({"discount": 0.9}, {"discounts": (0.9, 0.9)}))

    @eqx.filter_jit
    def batch(h, store):
        return h.phases()[0].samplers.batch(store, None, jax.random.key(0), jnp.zeros(()))[0]

    found = (batch(as_arrays(h), stores(h, log)["log"]).data for h in (one, two))  # numbers as in a run
    for a, b in zip(*map(jax.tree.leaves, found), strict=True):
        np.testing.assert_array_equal(np.broadcast_to(a[..., None], b.shape) if a.shape != b.shape else a, b)
    alike(*(stepped(h, fresh(h, log.spec), drawn(h, log))[0] for h in (one, two)), atol=1e-7)
    other = dataclasses.replace(two, discounts=(0.9, 0.1))
    assert distance(*(stepped(h, fresh(h, log.spec), drawn(h, log))[0].critic for h in (two, other))) > 1e-3


def test_each_reward_has_its_discount_in_sums_and_units():
    store = stores(IQL(), twice())["log"]
    found = eqx.filter_jit(NStep(2, (0.5, 0.1)).gather)(store, jnp.arange(len(LOG)))
    each = [eqx.filter_jit(NStep(2, d).gather)(store, jnp.arange(len(LOG))).data for d in (0.5, 0.1)]
    for k, one in enumerate(each):
        np.testing.assert_allclose(found.data.reward[:, k], one.reward[:, k], rtol=1e-6)
        np.testing.assert_allclose(found.data.discount[:, k], one.discount, rtol=1e-6)
    scaler = Scaler(reward_scale=0.5, reward_shift=(-1.0, -3.0), reward_steps=2)  # 2 and 6 were subtracted
    # two decisions: (1 + 1 + d) / 2 times; 1.25 * 2 and 1.05 * 6
    np.testing.assert_allclose(scaler.value_constant((0.5, 0.1)), [2.5, 6.3])
