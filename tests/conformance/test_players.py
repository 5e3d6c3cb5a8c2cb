"""Requirements of every algorithm that learns in an environment: the same suite, in rounds."""

import dataclasses
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.algorithms.players import (
    AUXILIARY_UPDATES,
    ENV,
    POLICY_UPDATES,
    ROUNDS,
    Dials,
    Doors,
    after,
    moved,
    players,
    replayed,
    replaying,
    tiny,
)
from tests.conformance.cases import check_field, differ, finite, same
from tidelog import PPG, ConfigError, OffPolicyPPG, SpecError, fit, learn
from tidelog.algorithms.off_policy_ppg import with_policy_inputs
from tidelog.algorithms.sampling import Sampler
from tidelog.envs.registry import functional
from tidelog.networks.phasic import Phasic
from tidelog.policies.policy import fill, named_arrays
from tidelog.training import engine
from tidelog.training.engine import Engine, fresh_collectors
from tidelog.training.loop import Position, as_arrays, report, unstack
from tidelog.types import Codes, Image, Spec


class Player(NamedTuple):
    """An algorithm that collects, small enough for a suite."""

    cls: type
    made: Callable[..., Any]  # with rates for visible effects after a few updates
    after: Callable[..., Any]  # the learner of one seed after this number of updates
    shows: int  # updates after which every number has an effect
    set: dict[str, float]  # numbers whose None removes computation: set, to share one program
    prepared: Callable[[Any, Any], Any]  # inputs of the policy phase from a rollout or a minibatch
    told: tuple[str, ...]  # extra metrics of its policy phase
    effects: dict[str, tuple[Any, Callable[..., Any]]]


def first_batch(learner, phase):
    """Return a minibatch of every store of a phase."""
    key, none = jax.random.key(0), jnp.zeros(())
    if isinstance(phase.samplers, Sampler):
        return phase.samplers.batch(learner.segments[phase.samplers.store], learner.orders[phase.name], key, none)[0]
    return {name: draw.batch(learner.segments[name], None, key, none)[0] for name, draw in phase.samplers.items()}


def estimated(h, learner):
    """Return advantages and targets of a rollout."""
    prepare, columns = h.phases()[0].prepare, learner.segments["fresh"].columns
    return eqx.filter_jit(lambda: prepare(h, learner.state, columns)[1])()


def traced(h, learner):
    """Return the policy loss's inputs from replayed segments."""
    batch = first_batch(learner, h.phases()[0])["policy"]
    return eqx.filter_jit(lambda: with_policy_inputs(h, learner.state, batch).data)()


# Results that fields affect.


def own(spec, key):
    """Return a custom network."""
    return PPG(hidden=(4,)).init(spec, key, 1).network


def learnt(player, **changes):
    """The state after rounds and their auxiliary phase; numbers share one program."""
    return player.after(player.shows, **player.set | changes).state


def built(player, **changes):
    """The initial state for every kind of observation."""
    seen = {"codes": Codes((3,)), "picture": Image(40, 40, 1)}
    return player.made(**changes).init(Spec(seen, functional(ENV).spec.action), jax.random.key(0), 6)


def planned(player, **changes):
    """The collected, stored and drawn data."""
    h = player.made(**changes)
    phases = [(p.name, p.samplers, [p.updates(h, i) for i in range(6)]) for p in h.phases()]
    return h.collection(), h.stores(functional(ENV).spec), phases


def prepared(player, **changes):
    """The inputs of the policy phase."""
    return player.prepared(player.made(**changes), player.after(POLICY_UPDATES))


def looked(player, **changes):
    """The outputs of new networks."""
    network = player.made(**changes).init(functional(ENV).spec, jax.random.key(0), 1).network
    return eqx.filter_jit(network.policy)({"observation": np.ones((1, 4), np.float32)})


def reported(player, **changes):
    """The metrics of an update, without a program."""
    algorithm = player.made(**changes)
    metrics = players((algorithm, 0)).learners[0].tallies["policy"].sums
    assert not [name for name in metrics if "stops" in name]  # a field of the network that is none
    return dict.fromkeys(metrics, jnp.zeros(()))


def rated(player, **changes):
    """The learning rate half-way."""
    return jax.jit(player.made(**changes).schedule)(0.5)


EFFECTS = {  # for every common field: another value, and the affected result
    "auxiliary_epochs": (3, planned),
    "beta_clone": (30.0, learnt),
    "clip": (0.01, learnt),
    "entropy_bonus": (0.5, learnt),
    "value_weight": (0.05, learnt),
    "discount": (0.5, learnt),
    "gae_lambda": (0.2, learnt),
    "learning_rate": (2e-3, learnt),
    "auxiliary_learning_rate": (2e-3, learnt),
    "schedule": ("linear", rated),
    "optimiser": ("rmsprop", built),
    "gradient_clip": (0.01, learnt),
    "debug_metrics": (True, reported),
    "rollout_steps": (32, planned),
    "auxiliary_minibatch": (4, planned),
    "reward_normalisation": (False, built),
    "reward_discount": (0.5, learnt),
    "reward_clip": (0.05, learnt),
    "value_normalisation": (True, built),
    "advantage_normalisation": (False, prepared),
    "architecture": ("shared", built),
    "hidden": ((5,), built),
    "policy_hidden": ((5,), built),
    "value_hidden": ((5,), built),
    "value_clip": (0.01, learnt),
    "recurrent_size": (3, built),
    "activation": ("relu", looked),
    "layer_norm": (True, built),
    "embedding": (3, built),
    "convolutions": ("small", built),
    "picture_width": (3, built),
    "network": (own, built),
}
ON_POLICY = {
    "policy_iterations": (4, planned),
    "policy_epochs": (3, planned),
    "value_epochs": (3, planned),
    "divergence_weight": (30.0, learnt),
    "num_envs": (8, planned),
    "minibatches": (1, planned),
    "num_chunks": (2, planned),
    "observation_normalisation": (True, planned),
    "target_kl": (1e-9, built),
}
REPLAYING = {
    "update_per_collect": (3, planned),
    "minibatch": (3, planned),
    "policy_capacity": (5, planned),
    "value_capacity": (7, planned),
    "policy_max_use": (5, planned),
    "value_max_use": (5, planned),
    "policy_max_staleness": (4, planned),
    "value_max_staleness": (4, planned),
    "aux_every": (3, planned),
    "proximal_decay": (0.0, learnt),
    "most_weight": (0.5, learnt),
    "rho_bar": (0.5, learnt),
    "c_bar": (0.2, learnt),
    "num_envs": (5, planned),
}
STALE = ("effective_share", "ratio_mean", "truncated_share", "staleness", "value_staleness")
PLAYERS = {
    "ppg": Player(
        PPG,
        tiny,
        after,
        ROUNDS,
        {"divergence_weight": 0.1, "gradient_clip": 1.0, "value_clip": 0.5},
        estimated,
        (),
        EFFECTS | ON_POLICY,
    ),
    "off-policy-ppg": Player(
        OffPolicyPPG,
        replaying,
        replayed,
        ROUNDS + 2,
        {"gradient_clip": 1.0, "value_clip": 0.5},
        traced,
        STALE,
        EFFECTS | REPLAYING,
    ),
}
FIELDS = [(name, field) for name, player in PLAYERS.items() for field in player.effects]


def tiered(name, field):
    """A case of the default tier if it needs no program but PPG's of the usual settings, otherwise of the full one."""
    player = PLAYERS[name]
    _, show = player.effects[field]
    shared = show is learnt and (field in player.set or player.cls.__dataclass_fields__[field].default is not None)
    shared = shared and name == "ppg"
    quick = shared or show in (built, planned, looked, rated, reported)
    return (name, field) if quick else pytest.param(name, field, marks=pytest.mark.full)


@cache
def usual(name, show):
    """Return what a player's usual settings give: it is compared with for every field."""
    return show(PLAYERS[name])


@pytest.mark.parametrize(("name", "field"), [tiered(*one) for one in FIELDS])
def test_every_field_has_an_effect(name, field):
    player = PLAYERS[name]
    value, show = player.effects[field]
    if show is planned:
        assert show(player, **{field: value}) != usual(name, show)
    else:
        assert differ(show(player, **{field: value}), usual(name, show), by=2e-5)


@pytest.mark.parametrize("player", PLAYERS.values(), ids=PLAYERS)
def test_the_table_names_every_field(player):
    assert set(player.effects) == {field.name for field in dataclasses.fields(player.cls)}


@pytest.mark.parametrize("player", PLAYERS.values(), ids=PLAYERS)
def test_wrong_values_are_refused_by_name_and_right_ones_survive_a_file(player):
    usual = {field.name: getattr(player.made(), field.name) for field in dataclasses.fields(player.cls)}
    for field, (value, _) in player.effects.items():
        check_field(player.cls, field, value, usual)


@pytest.mark.parametrize("player", PLAYERS.values(), ids=PLAYERS)
def test_unknown_fields_and_presets_are_refused_with_the_nearest(player):
    with pytest.raises(ConfigError, match=r"no hyper-parameter 'beta_clon': did you mean 'beta_clone'"):
        player.cls(beta_clon=1.0)
    with pytest.raises(ConfigError, match="did you mean 'classic-control'"):
        player.cls.preset("classic_control")
    for name in player.cls.presets:
        assert isinstance(player.cls.preset(name), player.cls)


# Bits.


@pytest.fixture(scope="module", params=PLAYERS.values(), ids=PLAYERS)
def player(request):
    return request.param


@pytest.fixture(scope="module")
def whole(player):
    """Return everything after two rounds and a half."""
    return moved(players((player.made(), 0)), ROUNDS + 3)


@pytest.mark.sample("ppg-1")
@pytest.mark.bits
@pytest.mark.parametrize("most", [1, 5])
def test_bits_do_not_depend_on_cuts(player, whole, most):
    cut = moved(players((player.made(), 0)), ROUNDS + 3, most)
    same(whole.learners[0], cut.learners[0])
    assert whole.position == cut.position == Position(2, 0, 3)


@pytest.mark.sample("ppg-4")
@pytest.mark.bits
@pytest.mark.parametrize("at", [2, POLICY_UPDATES, 2 * POLICY_UPDATES + 3, ROUNDS])
def test_a_run_saved_in_the_middle_of_a_phase_goes_on_bit_equal(player, whole, at):
    first = moved(players((player.made(), 0)), at)
    saved = named_arrays(first.learners[0])
    spec, source = functional(ENV).spec, functional(ENV)
    assert set(first.learners[0].segments) == set(player.made().stores(spec))
    (template,) = fresh_collectors(first.members, spec, source, 10_000, False)
    second = Engine(
        first.members, [fill(template, saved, "memory")], 10_000, assignment=first._assignment, position=first.position
    )
    moved(second, ROUNDS + 3 - at, most=5)
    same(whole.learners[0], second.learners[0])


@pytest.mark.full
def test_seeds_side_by_side_are_seeds_alone(player, whole, monkeypatch):
    threads = players((player.made(), 0), (player.made(), 1))
    together = players((player.made(), 0), (player.made(), 1), vmap=True)
    for training in (threads, together):
        moved(training, POLICY_UPDATES)
    for one, two in zip(together.learners, threads.learners, strict=True):
        same(one.state.network, two.state.network, atol=1e-4)  # later a last bit can decide a sampled action
        same(*({name: store.lives for name, store in learner.segments.items()} for learner in (one, two)))
    assert differ(together.learners[0].state, together.learners[1].state, by=0.01)
    same(together.state(1), together.learners[1].state)
    told, copied = [report(learner) for learner in together.learners], []
    monkeypatch.setattr(engine, "unstack", lambda whole, i: copied.append(whole) or unstack(whole, i))
    assert together.peek() == told[0]
    assert not together.failures()
    assert all(row | mine == row for row, mine in zip(together.report(), told, strict=True))
    assert copied
    assert not any(
        one.segments or one.state or one.collection_state.env_states for one in copied
    )  # little memory for each validation
    for training in (threads, together):
        moved(training, ROUNDS + 3 - POLICY_UPDATES)
        assert [int(learner.collection_state.decisions) for learner in training.learners] == [3 * 64, 3 * 64]
        assert all(finite(learner.state) for learner in training.learners)
    same(threads.learners[0], whole.learners[0])


@pytest.mark.full
def test_compiled_is_what_is_not_compiled(player):
    h, learner = player.made(), player.after(2 * POLICY_UPDATES)
    phase = h.phases()[0]
    batch = first_batch(learner, phase)
    state, feedback = eqx.filter_jit(phase.step)(as_arrays(h), learner.state, batch)
    plain_state, plain_feedback = phase.step(as_arrays(h), learner.state, batch)
    same(state, plain_state, rtol=1e-4, atol=1e-5)
    same(feedback, plain_feedback, rtol=1e-4, atol=1e-5)
    told = phase.losses(as_arrays(h), learner.state, batch, jax.random.key(0))
    assert {"policy_loss", "value_loss"} <= set(told)
    same(told, {name: plain_feedback.metrics[name] for name in told}, rtol=1e-4, atol=1e-5)


ENVS = {
    "ppg": [ENV, "jax:Pendulum-v1", "treatment", Doors()],
    "off-policy-ppg": ["jax:Pendulum-v1", Dials(), Doors()],
}


@pytest.mark.full
@pytest.mark.parametrize(
    ("name", "env"), [pytest.param(n, env, id=f"{n} {getattr(env, 'name', env)}") for n in ENVS for env in ENVS[n]]
)
def test_updates_move_every_part_and_stay_finite(name, env):
    player = PLAYERS[name]
    learner = player.after(ROUNDS, env=env)
    spec = players((player.made(), 0), env=env)._assignment.spec
    fresh = player.made().init(spec, jax.random.key(0), 1)
    assert finite(learner.state)
    assert int(learner.failed) == -1
    assert int(learner.state.step) == ROUNDS
    for part in ("trunk", "head", "auxiliary", "value_trunk", "value"):
        assert differ(getattr(learner.state.network, part), getattr(fresh.network, part), by=1e-4), part


def test_reports_have_every_metric_of_the_spec_by_phase(player):
    training = moved(players((player.made(), 0)), ROUNDS + AUXILIARY_UPDATES)
    (row,) = training.report()
    policy = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance")
    wanted = {f"policy/{name}" for name in (*policy, *player.told, "advantage_max", "learning_rate")}
    wanted |= {f"auxiliary/{name}" for name in ("aux_value_loss", "value_loss", "clone_kl", "learning_rate")}
    wanted |= {"after auxiliary/clone_kl_after", "collect/return", "collect/length", "decisions"}
    wanted |= {"time/decisions_per_second"}
    assert set(row) == wanted
    assert row["collect/return"] == row["collect/length"] > 1  # CartPole earns 1 a step; 0 of 14 other seeds fail below
    if player.told is STALE:
        assert 0.0 < row["policy/effective_share"] <= 1.0
        assert row["policy/ratio_mean"] == pytest.approx(1.0, abs=0.2)
        assert 0.0 < row["policy/staleness"] < ROUNDS


# Draws.


@pytest.mark.sample("jax:CartPole-v1")
@pytest.mark.parametrize("env", [ENV, "treatment"])
def test_every_round_step_and_copy_draws_for_itself(env):
    """The initial policy has nearly uniform actions: equal keys would give equal actions."""
    first, second = (np.asarray(after(n * POLICY_UPDATES, env=env).segments["fresh"].columns["action"]) for n in (1, 2))
    pairs = {"rounds": (first, second), "steps": (first[:, 1:], first[:, :-1]), "copies": (first[1:], first[:-1])}
    alike = {name: float(np.mean(one == two)) for name, (one, two) in pairs.items()}
    # a half of 48, 60 and 64 pairs, or less: right draws fail for 1 in 2,000 seeds
    assert max(alike.values()) < 0.75, alike


@pytest.mark.full
def test_choices_at_once_are_learnt():
    h = tiny(
        learning_rate=3e-2,
        auxiliary_learning_rate=1e-3,
        entropy_bonus=0.0,
        hidden=(32,),
        num_envs=16,
        auxiliary_minibatch=8,
    )
    training = moved(players((h, 0), env=Dials()), ROUNDS)
    (first,) = training.report()
    moved(training, 29 * ROUNDS)
    training.report()
    moved(training, 2 * ROUNDS)
    assert first["collect/return"] < 3.0  # of 9 steps; at random one in six; 0 of 14 other seeds fail, here and below
    assert training.report()[0]["collect/return"] > 6.0
    assert finite(training.learners[0].state)


# Stores after a phase.


@pytest.mark.full
def test_epochs_apart_have_optimisers_of_their_own():
    learner = after(3 * POLICY_UPDATES, value_epochs=4)
    assert isinstance(learner.state.network, Phasic)
    assert learner.state.opt_states.value is not None
    assert int(learner.tallies["value"].updates) == 2 * POLICY_UPDATES
    assert int(learner.tallies["policy"].updates) == POLICY_UPDATES
    assert finite(learner.state)


def test_the_memory_holds_the_rounds_targets_and_is_emptied_after_the_auxiliary_phase():
    one, two = after(POLICY_UPDATES), after(2 * POLICY_UPDATES)
    first, memory = one.segments["phase_buffer"], two.segments["phase_buffer"]
    assert (int(first.filled), int(memory.filled)) == (4, 8)
    same(jax.tree.map(lambda leaf: leaf[:4], memory.columns["target"]), one.segments["fresh"].columns["target"])
    same(jax.tree.map(lambda leaf: leaf[4:], memory.columns["target"]), two.segments["fresh"].columns["target"])
    same(memory.columns["observation"]["observation"][4:], two.segments["fresh"].columns["observation"]["observation"])
    assert int(after(ROUNDS).segments["phase_buffer"].filled) == 0


@pytest.mark.full
def test_an_auxiliary_phase_over_a_store_that_is_not_full_reads_what_is_there():
    learner = replayed(2 * POLICY_UPDATES + AUXILIARY_UPDATES, value_capacity=40)
    assert int(learner.segments["value"].live.sum()) == 8
    assert learner.segments["value"].columns["old"].logits.shape == (40, 16, 2)
    assert finite(learner.state)
    h = replaying(value_capacity=40)
    assert [h.phases()[1].updates(h, round) for round in (0, 1, 3, 9, 19)] == [0, 8, 16, 40, 40]


# Sources of learning.


def test_what_learns_in_an_environment_is_refused_a_log_and_the_other_way_round(case):
    fix = "fix: use an algorithm that learns"
    with pytest.raises(SpecError, match=rf"PPG learns in an environment, with tl.learn. {fix} from a log, .* iql"):
        fit(PPG(), case.log, 10)
    with pytest.raises(SpecError, match=rf"learns from a log, with tl.fit. {fix} in an environment, .*: .*ppg"):
        learn(case.algorithm, ENV, 10)
