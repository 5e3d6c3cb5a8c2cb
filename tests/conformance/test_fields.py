"""Every hyper-parameter has an effect: a changed value changes a result. A new field needs a line here."""

import dataclasses
from functools import cache

import equinox as eqx
import jax
import numpy as np
import pytest

from tests.algorithms.own import (
    own_actor,
    own_critic,
    own_flow,
    own_generator,
    own_perturbation,
    own_policy,
    own_ratings,
    own_value,
)
from tests.conformance.cases import BUILT_IN, CASES, check_field, differ
from tidelog import ConfigError, fit
from tidelog.algorithms.short_form import ALGORITHMS
from tidelog.training.loop import as_arrays
from tidelog.types import Image


def learnt(case):
    """The state after three updates, compiled: for numbers, which share one program."""
    return case.after(3)


def stepped(case):
    """The state after three updates, not compiled: for fields that would each need a program."""
    state = case.init()
    for update in range(3):
        state, _ = case.phase.step(as_arrays(case.algorithm), state, case.batch(update))
    return state


def built(case):
    """The initial state."""
    return case.init()


def acted(case):
    """Samples of the initial policy."""
    return case.act(case.init(), seed=0).action


def scaled(case):
    """The scaled rewards of a run."""
    scaler = fit(case.algorithm, case.log, 1, train=False).record.scaler
    return jax.numpy.array([scaler.reward_scale, scaler.reward_shift])


def seen(case):
    """The initial state for observations with a picture."""
    spec = dataclasses.replace(case.log.spec, observation={"picture": Image(40, 40, 1)})
    return case.algorithm.init(spec, jax.random.key(0), 6)


def ranked(case):
    """The state after six updates whose samples are drawn by priority."""
    trainer = case.trainer((case.algorithm, 0))
    trainer.advance(6)
    return trainer.learners[0].state


def several(case):
    """The state after three updates on a log with two rewards."""
    log = case.log
    reward = np.stack([log.reward, -2.0 * log.reward + 1.0], axis=1).astype(np.float32)
    twice = dataclasses.replace(log, reward=reward, spec=dataclasses.replace(log.spec, rewards=2))
    state = case.algorithm.init(twice.spec, jax.random.key(0), 6)
    for update in range(3):
        state, _ = case.phase.step(as_arrays(case.algorithm), state, case.batch(update, twice))
    return state


def pictured(case):
    """The state after an update on a log of pictures."""
    picture = np.random.default_rng(0).integers(0, 256, (len(next(iter(case.log.observation.values()))), 16, 16, 1))
    log = dataclasses.replace(
        case.log, observation={"picture": picture.astype(np.uint8)},
        spec=dataclasses.replace(case.log.spec, observation={"picture": Image(16, 16, 1)}),
    )  # fmt: skip
    state = case.algorithm.init(log.spec, jax.random.key(0), 6)
    return eqx.filter_jit(case.phase.step)(as_arrays(case.algorithm), state, case.batch(0, log))[0]


def told(case):
    """The metrics of an update."""
    state = case.init()
    return eqx.filter_jit(case.phase.step)(as_arrays(case.algorithm), state, case.batch())[1].metrics


# field: (another value, affected result, kind of action if only one has an effect, other required settings)
COMMON = {  # of every algorithm that has the field
    "batch_size": (1, learnt),
    "optimiser": ("rmsprop", stepped),
    "gradient_clip": (0.01, stepped),
    "debug_metrics": (True, told),
    "matmul_precision": ("bfloat16", ranked),
    "dropout": (0.5, stepped),
    "hidden": ((8, 8), built),
    "embedding": (3, built),
    "layer_norm": (True, built),
    "activation": ("tanh", stepped),
    "actor_head": ("deterministic", built, "continuous"),
    "epsilon": (0.0, acted),
    "actor_network": (own_actor, stepped),
    "convolutions": ("small", seen),
    "picture_shift": (2, pictured),
    "recurrent_size": (4, built),
    "window": (2, learnt, None, {"recurrent_size": 4}),
    "burn_in": (2, learnt, None, {"recurrent_size": 4}),
    "discount": (0.5, learnt),
    "tau": (0.5, learnt),
    "critic_loss": ("huber", stepped),
    "n_step": (3, stepped),
    "priority_exponent": (0.6, learnt),
    "priority_correction": (1.0, ranked, None, {"priority_exponent": 0.9}),
    "reward_scaling": ("minus-one", scaled),
    "critic_network": (own_critic, stepped),
    "num_critics": (3, built),
    "policy_noise": (0.5, learnt),
    "noise_clip": (0.1, learnt),
    "policy_delay": (3, stepped),
    "learning_rate": (0.02, learnt),
    "actor_learning_rate": (0.02, learnt),
    "critic_learning_rate": (0.02, learnt),
    "schedule": ("linear", stepped),
    "actor_schedule": ("linear", stepped),
    "critic_schedule": ("linear", stepped),
    "alpha": (0.5, learnt),
}
RATED = {"critic_loss": ("squared", stepped), "epsilon": (0.2, acted), "critic_network": (own_ratings, stepped)}
OWN = {  # what one algorithm alone has, or has with another default
    "bc": {},
    "td3-bc": {},
    "cql": {
        "samples": (2, stepped),
        "entropy_weight": (0.5, stepped),
        "target_entropy": (5.0, stepped),
        "entropy_learning_rate": (0.02, learnt),
        "actor_head": ("gaussian", built),
    },
    "fql": {
        "alpha": (0.1, learnt),
        "normalise_q": (True, stepped),
        "flow_steps": (2, stepped),
        "q_aggregate": ("min", stepped),
        "layer_norm": (False, built),
        "flow_network": (own_flow, stepped),
        "policy_network": (own_policy, stepped),
    },
    "discrete-cql": RATED | {"alpha": (0.1, learnt)},
    "rebrac": {
        "layer_norm": (False, built),
        "actor_penalty": (1.0, learnt),
        "critic_penalty": (1.0, learnt),
        "normalise_q": (False, stepped),
    },
    "bcq": {
        "phi": (1.0, learnt),
        "mix": (0.0, learnt),
        "kl_weight": (5.0, learnt),
        "kl_reduction": ("sum", stepped),
        "latent": (2, built),
        "latent_clip": (0.1, learnt),
        "target_samples": (5, learnt),
        "samples": (9, acted),
        "policy_delay": (2, stepped),
        "generator_learning_rate": (0.02, learnt),
        "perturbation_learning_rate": (0.02, learnt),
        "generator_schedule": ("linear", stepped),
        "perturbation_schedule": ("linear", stepped),
        "generator_hidden": ((8, 8), built),
        "perturbation_hidden": ((8, 8), built),
        "generator_network": (own_generator, stepped),
        "perturbation_network": (own_perturbation, stepped),
    },
    "discrete-bcq": RATED
    | {
        "threshold": (1.0, learnt),
        "logit_penalty": (5.0, learnt),
        "copy_period": (2, stepped, None, {"tau": None}),
        "double": (False, stepped, None, {"tau": 0.0, "threshold": 0.0, "learning_rate": 0.1}),
        "shared": ("always", stepped),
        "imitator_network": (own_actor, stepped),
    },
    "iql": {
        "expectile": (0.9, learnt),
        "temperature": (0.5, learnt),
        "max_weight": (1.0, learnt),
        "target_update_period": (2, stepped),
        "value_learning_rate": (0.02, learnt),
        "actor_schedule": ("constant", stepped),
        "value_schedule": ("linear", stepped),
        "value_network": (own_value, stepped),
        "reward_weights": ((1.0, 0.1), several),
        "discounts": ((0.5, 0.99), several),
        "returns": ("td-lambda", stepped),
        "trace_lambda": (0.1, learnt, None, {"returns": "td-lambda"}),
    },
}
FIELDS = [(name, field.name) for name in BUILT_IN for field in dataclasses.fields(ALGORITHMS[name])]


def effect(name, field):
    """Another value of a field, the result that it affects, a kind of action or None, and other settings."""
    value, show, kind, others = (*(OWN[name].get(field) or COMMON[field]), None, None)[:4]
    return value, show, kind, others or {}


# The contract and the samplers read these fields, and no page does: one algorithm of each kind of page shows the effect
# in the full tier, and the slow tier shows it for all.
OF_THE_CONTRACT = {"optimiser", "gradient_clip", "matmul_precision", "debug_metrics", "n_step", "picture_shift",
                   "priority_exponent", "priority_correction", "schedule", "actor_schedule", "critic_schedule",
                   "generator_schedule", "perturbation_schedule", "window", "burn_in", "activation"}  # fmt: skip
SHOWN_BY = ("bc", "iql")


def tiered(name, field):
    """A case of the default tier if it needs no program of its own, otherwise of the full one."""
    _, show, _, others = effect(name, field)
    known = ALGORITHMS[name].__dataclass_fields__[field]
    shared = show is learnt and known.metadata["leaf"] and known.default is not None and not others
    if shared or show in (built, scaled):
        return name, field
    tier = "slow" if field in OF_THE_CONTRACT and name not in SHOWN_BY else "full"
    return pytest.param(name, field, marks=getattr(pytest.mark, tier))


@cache
def usual(show, case):
    """Return what a case gives unchanged: it is compared with for every field."""
    return show(case)


@pytest.mark.parametrize(("name", "field"), [tiered(*one) for one in FIELDS])
def test_every_field_has_an_effect(name, field):
    value, show, kind, others = effect(name, field)
    (case, *_) = [case for case in CASES if case.name == name and kind in (None, case.kind)]
    case = case.but(**others)
    changed = case.but(**{field: value})
    assert getattr(changed.algorithm, field) != getattr(case.algorithm, field)
    assert differ(show(changed), usual(show, case), by=2e-5)


def test_the_tables_name_no_field_that_is_gone():
    assert {(name, field) for name, own in OWN.items() for field in own} <= set(FIELDS)
    assert set(COMMON) <= {field for _, field in FIELDS}


@pytest.mark.parametrize("name", BUILT_IN)
def test_wrong_values_are_refused_by_name_and_right_ones_survive_a_file(name):
    for field in dataclasses.fields(ALGORITHMS[name]):
        value, _, _, others = effect(name, field.name)
        check_field(ALGORITHMS[name], field.name, value, others)


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_unknown_field_is_refused_with_the_nearest_name(name):
    with pytest.raises(ConfigError, match=r"no hyper-parameter 'batchsize': did you mean 'batch_size'\?"):
        ALGORITHMS[name](batchsize=3)
    with pytest.raises(ConfigError, match=r"known names: .*batch_size"):
        ALGORITHMS[name](zzzz=3)
    with pytest.raises(ConfigError, match="keyword arguments only"):
        ALGORITHMS[name](3)
    with pytest.raises(ConfigError, match=rf"{ALGORITHMS[name].__name__}\.optimiser = 'adan': did you mean 'adam'\?"):
        ALGORITHMS[name](optimiser="adan")
