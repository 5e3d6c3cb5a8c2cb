"""What every algorithm must do, of those that learn in an environment: the suite's questions, asked in rounds."""

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
    after,
    moved,
    players,
    tiny,
)
from tests.conformance.cases import differ, finite, same
from tidelog import PPG, ConfigError, SpecError, fit, learn
from tidelog.acting.arrays import fill, named_arrays
from tidelog.algorithms.hyper import from_config, to_config
from tidelog.envs.registry import functional
from tidelog.networks.phasic import Phasic
from tidelog.training.learner import as_arrays
from tidelog.training.rounds import Rounds, fresh_players
from tidelog.training.trainer import Position
from tidelog.types import Codes, Image, Spec

# Numbers whose None removes computation are set, so that all numbers share one program.
SET = {"divergence_weight": 0.1, "gradient_clip": 1.0, "value_clip": 0.5}


def own(spec, key):
    """A network of the user's own."""
    return PPG(hidden=(4,)).init(spec, key, 1).network


def learnt(**changes):
    """The state after two rounds and their auxiliary phase; numbers share one program."""
    return after(ROUNDS, **SET, **changes).state


def built(**changes):
    """The fresh state for every kind of observation."""
    seen = {"codes": Codes((3,)), "picture": Image(40, 40, 1)}
    return tiny(**changes).init(Spec(seen, functional(ENV).spec.action), jax.random.key(0), 6)


def planned(**changes):
    """What is collected, kept and drawn, and how often."""
    h = tiny(**changes)
    phases = [(p.name, p.reads.size, p.reads.unit, [p.updates(h, i) for i in range(6)]) for p in h.phases()]
    return h.collection(), h.stores(functional(ENV).spec), phases


def prepared(**changes):
    """What the policy phase makes of a rollout."""
    h, learner = tiny(**changes), after(POLICY_UPDATES)
    prepare, columns = h.phases()[0].prepare, learner.segments["fresh"].columns
    return eqx.filter_jit(lambda: prepare(h, learner.state, columns)[1])()


def looked(**changes):
    """What fresh networks say."""
    network = tiny(**changes).init(functional(ENV).spec, jax.random.key(0), 1).network
    return network.policy({"observation": jnp.ones((1, 4))})


def rated(**changes):
    """The learning rate half-way."""
    h = tiny(**changes)
    return jnp.asarray(h.schedule(jnp.asarray(0.5)))


EFFECTS = {
    "policy_iterations": (4, planned),
    "policy_epochs": (3, planned),
    "value_epochs": (3, planned),
    "auxiliary_epochs": (3, planned),
    "beta_clone": (30.0, learnt),
    "clip": (0.01, learnt),
    "divergence_weight": (30.0, learnt),
    "entropy_bonus": (0.5, learnt),
    "value_weight": (0.05, learnt),
    "discount": (0.5, learnt),
    "gae_lambda": (0.2, learnt),
    "learning_rate": (2e-3, learnt),
    "auxiliary_learning_rate": (2e-3, learnt),
    "schedule": ("linear", rated),
    "optimiser": ("rmsprop", built),
    "gradient_clip": (0.01, learnt),
    "value_clip": (0.01, learnt),
    "environments": (8, planned),
    "rollout_steps": (32, planned),
    "minibatches": (1, planned),
    "pieces": (2, planned),
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


def changed(field, show):
    value = EFFECTS[field][0]
    if show is learnt and field in SET:
        return after(ROUNDS, **(SET | {field: value})).state
    return show(**{field: value})


@pytest.mark.parametrize("field", EFFECTS)
def test_every_field_has_an_effect(field):
    _, show = EFFECTS[field]
    if show is planned:
        assert changed(field, show) != show()
    else:
        assert differ(changed(field, show), show(), by=2e-5)


def test_the_table_names_every_field():
    assert set(EFFECTS) == {field.name for field in dataclasses.fields(PPG)}


@pytest.mark.parametrize("field", EFFECTS)
def test_wrong_values_are_refused_by_name_and_right_ones_survive_a_file(field):
    metadata = PPG.__dataclass_fields__[field].metadata
    wrong = ["no such thing", 1j, {"a": 1}]
    if metadata["leaf"]:
        least, most, open_ends = metadata["range"]
        wrong += [float("nan"), float("inf"), True, least - 0.1, most + 0.1, *((least, most) if open_ends else ())]
    elif metadata.get("least") is not None:
        wrong += [metadata["least"] - 1, metadata["least"] + 0.5, True]
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"PPG\.{field} = "):
            PPG(**{field: value})
    made = tiny(**{field: EFFECTS[field][0]})
    if field == "network":
        with pytest.raises(ConfigError, match="network was 'own', a part of your own"):
            from_config(PPG, to_config(made))
    else:
        assert from_config(PPG, to_config(made)) == made != tiny()


def test_unknown_fields_and_presets_are_refused_with_the_nearest():
    with pytest.raises(ConfigError, match=r"no hyper-parameter 'beta_clon': did you mean 'beta_clone'"):
        PPG(beta_clon=1.0)
    with pytest.raises(ConfigError, match="did you mean 'mujoco'"):
        PPG.preset("mujocco")
    for name in PPG.presets:
        assert isinstance(PPG.preset(name), PPG)


# Bits.


@pytest.fixture(scope="module")
def whole():
    """Everything after two rounds and a half."""
    return moved(players(), ROUNDS + 3)


@pytest.mark.parametrize("most", [1, 3, 7])
def test_bits_do_not_depend_on_cuts(whole, most):
    cut = moved(players(), ROUNDS + 3, most)
    same(whole.learners[0], cut.learners[0])
    assert whole.position == cut.position == Position(2, 0, 3)


@pytest.mark.parametrize("at", [2, POLICY_UPDATES, 2 * POLICY_UPDATES, 2 * POLICY_UPDATES + 3, ROUNDS])
def test_a_run_saved_in_the_middle_of_a_phase_goes_on_bit_equal(whole, at):
    first = moved(players(), at)
    saved = named_arrays(first.learners[0])
    spec, source = functional(ENV).spec, functional(ENV)
    (template,) = fresh_players(first.members, spec, source, 10_000, False)
    second = Rounds(first.members, first._places, [fill(template, saved, "memory")], 10_000, first.position)
    moved(second, ROUNDS + 3 - at, most=5)
    same(whole.learners[0], second.learners[0])


@pytest.mark.parametrize("env", [ENV, "treatment"])
def test_every_round_step_and_copy_draws_for_itself(env):
    """A young policy finds all actions about equally likely: the same draw would be the same action."""
    first, second = (after(n * POLICY_UPDATES, env=env).segments["fresh"].columns["action"] for n in (1, 2))
    pairs = {"rounds": (first, second), "steps": (first[:, 1:], first[:, :-1]), "copies": (first[1:], first[:-1])}
    alike = {name: float(jnp.mean(one == two)) for name, (one, two) in pairs.items()}
    assert max(alike.values()) < 0.75, alike


def test_seeds_side_by_side_are_seeds_alone(whole):
    threads = players((tiny(), 0), (tiny(), 1))
    together = players((tiny(), 0), (tiny(), 1), together=True)
    for training in (threads, together):
        moved(training, POLICY_UPDATES)
    for one, two in zip(together.learners, threads.learners, strict=True):
        same(one.state.network, two.state.network, atol=1e-4)  # later a last bit can decide a sampled action
    assert differ(together.learners[0].state, together.learners[1].state, by=0.01)
    for training in (threads, together):
        moved(training, ROUNDS + 3 - POLICY_UPDATES)
        assert [int(learner.played.decisions) for learner in training.learners] == [3 * 64, 3 * 64]
        assert all(finite(learner.state) for learner in training.learners)
    same(threads.learners[0], whole.learners[0])


def test_compiled_is_what_is_not_compiled(whole):
    h, learner = tiny(), after(2 * POLICY_UPDATES)
    phase, store = h.phases()[0], learner.segments["fresh"]
    batch = phase.reads.batch(store, learner.orders["policy"], jax.random.key(0), jnp.zeros(()))[0]
    state, feedback = eqx.filter_jit(phase.step)(as_arrays(h), learner.state, batch)
    plain_state, plain_feedback = phase.step(as_arrays(h), learner.state, batch)
    same(state, plain_state, rtol=1e-4, atol=1e-5)
    same(feedback, plain_feedback, rtol=1e-4, atol=1e-5)


ENVS = [ENV, "jax:Pendulum-v1", "treatment", Doors()]


@pytest.mark.parametrize("env", ENVS, ids=lambda env: getattr(env, "name", env))
def test_updates_move_every_part_and_stay_finite(env):
    learner = after(ROUNDS, env=env)
    fresh = tiny().init(players(env=env)._places.spec, jax.random.key(0), 1)
    assert finite(learner.state)
    assert int(learner.failed) == -1
    assert int(learner.state.step) == ROUNDS
    for part in ("trunk", "head", "auxiliary", "value_trunk", "value"):
        assert differ(getattr(learner.state.network, part), getattr(fresh.network, part), by=1e-4), part


def test_choices_at_once_are_learnt():
    h = tiny(
        learning_rate=3e-2,
        auxiliary_learning_rate=1e-3,
        entropy_bonus=0.0,
        hidden=(32,),
        environments=16,
        auxiliary_minibatch=8,
    )
    training = moved(players((h, 0), env=Dials()), ROUNDS)
    (first,) = training.report()
    moved(training, 29 * ROUNDS)
    training.report()
    moved(training, 2 * ROUNDS)
    assert first["collect/return"] < 3.0  # of 9 steps; by chance one in six
    assert training.report()[0]["collect/return"] > 6.0
    assert finite(training.learners[0].state)


def test_epochs_apart_have_optimisers_of_their_own():
    learner = after(3 * POLICY_UPDATES, value_epochs=4)
    assert isinstance(learner.state.network, Phasic)
    assert learner.state.optimisers.value is not None
    assert int(learner.tallies["value"].updates) == 2 * POLICY_UPDATES
    assert int(learner.tallies["policy"].updates) == POLICY_UPDATES
    assert finite(learner.state)


# What a phase leaves behind.


def test_the_memory_holds_the_rounds_targets_and_is_emptied_after_the_auxiliary_phase():
    one, two = after(POLICY_UPDATES), after(2 * POLICY_UPDATES)
    first, memory = one.segments["memory"], two.segments["memory"]
    assert (int(first.filled), int(memory.filled)) == (4, 8)
    same(jax.tree.map(lambda leaf: leaf[:4], memory.columns["target"]), one.segments["fresh"].columns["target"])
    same(jax.tree.map(lambda leaf: leaf[4:], memory.columns["target"]), two.segments["fresh"].columns["target"])
    same(memory.columns["observation"]["observation"][4:], two.segments["fresh"].columns["observation"]["observation"])
    assert int(after(ROUNDS).segments["memory"].filled) == 0


def test_reports_have_every_metric_of_the_spec_by_phase(whole):
    training = moved(players(), ROUNDS + AUXILIARY_UPDATES)
    (row,) = training.report()
    policy = ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance")
    wanted = {f"policy/{name}" for name in (*policy, "advantage_max", "learning_rate")}
    wanted |= {f"auxiliary/{name}" for name in ("aux_value_loss", "value_loss", "clone_kl", "learning_rate")}
    wanted |= {"after auxiliary/clone_kl_after", "collect/return", "collect/length", "decisions"}
    wanted |= {"time/decisions_per_second", *(f"time/{name}_share" for name in ("collect", "policy", "auxiliary"))}
    assert set(row) == wanted
    assert row["collect/return"] == row["collect/length"] > 1  # CartPole earns 1 a step
    shares = [value for name, value in row.items() if name.endswith("_share")]
    assert sum(shares) == pytest.approx(1.0)


# Who learns where.


def test_what_learns_in_an_environment_is_refused_a_log_and_the_other_way_round(case):
    with pytest.raises(SpecError, match=r"PPG learns in an environment, with tl.learn; what learns from a log, .* iql"):
        fit(PPG(), case.log, 10)
    with pytest.raises(SpecError, match=r"learns from a log, with tl.fit; what learns in an environment, .*: ppg"):
        learn(case.algorithm, ENV, 10)
