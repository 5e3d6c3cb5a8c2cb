"""The same questions, asked of what learns from segments again and again."""

import dataclasses

import equinox as eqx
import jax
import jax.numpy as jnp
import pytest

from tests.algorithms.players import (
    AUXILIARY_UPDATES,
    ENV,
    POLICY_UPDATES,
    ROUNDS,
    Dials,
    Doors,
    moved,
    players,
    replayed,
    replaying,
)
from tests.conformance.cases import differ, finite, same
from tidelog import ConfigError, OffPolicyPPG
from tidelog.acting.arrays import fill, named_arrays
from tidelog.algorithms.hyper import from_config, to_config
from tidelog.algorithms.off_policy_ppg import judged
from tidelog.envs.registry import functional
from tidelog.training.learner import as_arrays
from tidelog.training.rounds import Rounds, fresh_players
from tidelog.training.trainer import Position
from tidelog.types import Codes, Image, Spec

SET = {"gradient_clip": 1.0}  # a number whose None removes computation: so that all numbers share one program


def own(spec, key):
    """A network of the user's own."""
    return OffPolicyPPG(hidden=(4,)).init(spec, key, 1).network


def learnt(**changes):
    """The state after two rounds and their auxiliary phase, and two updates more; numbers share one program."""
    return replayed(ROUNDS + 2, **SET, **changes).state


def built(**changes):
    """The fresh state for every kind of observation."""
    seen = {"codes": Codes((3,)), "picture": Image(40, 40, 1)}
    return replaying(**changes).init(Spec(seen, functional(ENV).spec.action), jax.random.key(0), 6)


def planned(**changes):
    """What is collected, kept and drawn, and how often."""
    h = replaying(**changes)
    phases = [(p.name, p.reads, [p.updates(h, i) for i in range(6)]) for p in h.phases()]
    return h.collection(), h.stores(functional(ENV).spec), phases


def prepared(**changes):
    """What the policy's loss reads of a minibatch."""
    h, learner = replaying(**changes), replayed(2 * POLICY_UPDATES)
    draw = h.phases()[0].reads["policy"]
    batch = draw.batch(learner.segments["policy"], None, jax.random.key(0), jnp.zeros(()))[0]
    return eqx.filter_jit(lambda: judged(h, learner.state, batch).data)()


def looked(**changes):
    """What fresh networks say."""
    network = replaying(**changes).init(functional(ENV).spec, jax.random.key(0), 1).network
    return network.policy({"observation": jnp.ones((1, 4))})


def rated(**changes):
    """The learning rate half-way."""
    return jnp.asarray(replaying(**changes).schedule(jnp.asarray(0.5)))


EFFECTS = {
    "update_per_collect": (3, planned),
    "minibatch": (3, planned),
    "policy_capacity": (5, planned),
    "value_capacity": (7, planned),
    "policy_max_use": (5, planned),
    "value_max_use": (5, planned),
    "policy_max_staleness": (4, planned),
    "value_max_staleness": (4, planned),
    "aux_every": (3, planned),
    "auxiliary_epochs": (3, planned),
    "beta_clone": (30.0, learnt),
    "clip": (0.01, learnt),
    "proximal_decay": (0.0, learnt),
    "most_weight": (0.5, learnt),
    "rho_bar": (0.5, learnt),
    "c_bar": (0.2, learnt),
    "entropy_bonus": (0.5, learnt),
    "value_weight": (0.05, learnt),
    "discount": (0.5, learnt),
    "gae_lambda": (0.2, learnt),
    "learning_rate": (2e-3, learnt),
    "auxiliary_learning_rate": (2e-3, learnt),
    "schedule": ("linear", rated),
    "optimiser": ("rmsprop", built),
    "gradient_clip": (0.01, learnt),
    "environments": (5, planned),
    "rollout_steps": (32, planned),
    "auxiliary_minibatch": (4, planned),
    "reward_normalisation": (False, built),
    "reward_discount": (0.5, learnt),
    "reward_clip": (0.05, learnt),
    "value_normalisation": (True, built),
    "advantage_normalisation": (False, prepared),
    "architecture": ("shared", built),
    "hidden": ((5,), built),
    "activation": ("relu", looked),
    "layer_norm": (True, built),
    "embedding": (3, built),
    "convolutions": ("small", built),
    "picture_width": (3, built),
    "network": (own, built),
}


@pytest.mark.parametrize("field", EFFECTS)
def test_every_field_has_an_effect(field):
    value, show = EFFECTS[field]
    if show is planned:
        assert show(**{field: value}) != show()
    elif show is learnt and field in SET:
        assert differ(replayed(ROUNDS + 2, **{field: value}).state, show(), by=2e-5)
    else:
        assert differ(show(**{field: value}), show(), by=2e-5)


def test_the_table_names_every_field():
    assert set(EFFECTS) == {field.name for field in dataclasses.fields(OffPolicyPPG)}


@pytest.mark.parametrize("field", EFFECTS)
def test_wrong_values_are_refused_by_name_and_right_ones_survive_a_file(field):
    metadata = OffPolicyPPG.__dataclass_fields__[field].metadata
    wrong = ["no such thing", 1j, {"a": 1}]
    if metadata["leaf"]:
        least, most, open_ends = metadata["range"]
        wrong += [float("nan"), float("inf"), True, least - 0.1, most + 0.1, *((least, most) if open_ends else ())]
    elif metadata.get("least") is not None:
        wrong += [metadata["least"] - 1, metadata["least"] + 0.5, True]
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"OffPolicyPPG\.{field} = "):
            OffPolicyPPG(**{field: value})
    made = replaying(**{field: EFFECTS[field][0]})
    if field == "network":
        with pytest.raises(ConfigError, match="network was 'own', a part of your own"):
            from_config(OffPolicyPPG, to_config(made))
    else:
        assert from_config(OffPolicyPPG, to_config(made)) == made != replaying()


def test_presets_are_settings_and_others_are_refused():
    with pytest.raises(ConfigError, match="did you mean 'classic-control'"):
        OffPolicyPPG.preset("classic_control")
    for name in OffPolicyPPG.presets:
        assert isinstance(OffPolicyPPG.preset(name), OffPolicyPPG)


# Bits.


def player():
    return players((replaying(), 0))


@pytest.fixture(scope="module")
def whole():
    """Everything after two rounds and a half."""
    return moved(player(), ROUNDS + 3)


@pytest.mark.parametrize("most", [1, 5])
def test_bits_do_not_depend_on_cuts(whole, most):
    cut = moved(player(), ROUNDS + 3, most)
    same(whole.learners[0], cut.learners[0])
    assert whole.position == cut.position == Position(2, 0, 3)


@pytest.mark.parametrize("at", [2, POLICY_UPDATES + 1, 2 * POLICY_UPDATES + 3, ROUNDS])
def test_a_run_saved_in_the_middle_of_a_phase_goes_on_bit_equal(whole, at):
    first = moved(player(), at)
    saved = named_arrays(first.learners[0])
    assert set(first.learners[0].segments) == {"policy", "value", "fresh"}
    source = functional(ENV)
    (template,) = fresh_players(first.members, source.spec, source, 10_000, False)
    second = Rounds(first.members, first._places, [fill(template, saved, "memory")], 10_000, first.position)
    moved(second, ROUNDS + 3 - at, most=5)
    same(whole.learners[0], second.learners[0])


def test_seeds_side_by_side_are_seeds_alone(whole):
    together = players((replaying(), 0), (replaying(), 1), together=True)
    moved(together, POLICY_UPDATES)
    alone = moved(player(), POLICY_UPDATES)
    same(together.learners[0].state.network, alone.learners[0].state.network, atol=1e-4)
    same(together.learners[0].segments["policy"].lives, alone.learners[0].segments["policy"].lives)
    assert differ(together.learners[0].state, together.learners[1].state, by=0.01)


def test_compiled_is_what_is_not_compiled():
    h, learner = replaying(), replayed(2 * POLICY_UPDATES)
    phase = h.phases()[0]
    draws = phase.reads.items()
    batch = {n: d.batch(learner.segments[n], None, jax.random.key(0), jnp.zeros(()))[0] for n, d in draws}
    one = eqx.filter_jit(phase.step)(as_arrays(h), learner.state, batch)
    two = phase.step(as_arrays(h), learner.state, batch)
    same(one, two, rtol=1e-4, atol=1e-5)
    told = phase.losses(as_arrays(h), learner.state, batch, jax.random.key(0))
    same(told, {name: two[1].metrics[name] for name in told}, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("env", ["jax:Pendulum-v1", Dials(), Doors()], ids=lambda env: getattr(env, "name", env))
def test_updates_move_every_part_and_stay_finite(env):
    learner = replayed(ROUNDS, env=env)
    fresh = replaying().init(players((replaying(), 0), env=env)._places.spec, jax.random.key(0), 1)
    assert finite(learner.state)
    assert int(learner.failed) == -1
    assert int(learner.state.step) == ROUNDS
    for part in ("trunk", "head", "auxiliary", "value_trunk", "value"):
        assert differ(getattr(learner.state.network, part), getattr(fresh.network, part), by=1e-4), part


def test_reports_have_every_metric_of_the_spec_by_phase():
    training = moved(player(), ROUNDS + AUXILIARY_UPDATES)
    (row,) = training.report()
    policy = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance")
    others = ("effective_share", "ratio_mean", "truncated_share", "staleness", "value_staleness")
    wanted = {f"policy/{name}" for name in (*policy, *others, "advantage_max", "learning_rate")}
    wanted |= {f"auxiliary/{name}" for name in ("aux_value_loss", "value_loss", "clone_kl", "learning_rate")}
    wanted |= {"after auxiliary/clone_kl_after", "collect/return", "collect/length", "decisions"}
    assert {name for name in row if not name.startswith("time/")} == wanted
    assert 0.0 < row["policy/effective_share"] <= 1.0
    assert row["policy/ratio_mean"] == pytest.approx(1.0, abs=0.2)
    assert 0.0 < row["policy/staleness"] < ROUNDS


def test_an_auxiliary_phase_over_a_store_that_is_not_full_reads_what_is_there():
    learner = replayed(2 * POLICY_UPDATES + AUXILIARY_UPDATES, value_capacity=40)
    assert int(learner.segments["value"].live.sum()) == 8
    assert learner.segments["value"].columns["old"].logits.shape == (40, 16, 2)
    assert finite(learner.state)
    h = replaying(value_capacity=40)
    assert [h.phases()[1].updates(h, round) for round in (0, 1, 3, 9, 19)] == [0, 8, 16, 40, 40]
