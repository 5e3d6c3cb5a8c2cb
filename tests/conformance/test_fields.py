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
from tests.conformance.cases import BUILT_IN, CASES, differ
from tidelog import ConfigError, fit
from tidelog.algorithms.hyperparameters import from_config, to_config
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
SHARED = {
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
}
VALUES = {
    "discount": (0.5, learnt),
    "tau": (0.5, learnt),
    "critic_loss": ("huber", stepped),
    "n_step": (3, stepped),
    "priority_exponent": (0.6, learnt),
    "priority_correction": (1.0, ranked, None, {"priority_exponent": 0.9}),
    "reward_scaling": ("minus-one", scaled),
    "critic_network": (own_critic, stepped),
}
NETWORKS = {
    name: SHARED[name]
    for name in (
        "batch_size",
        "optimiser",
        "gradient_clip",
        "debug_metrics",
        "matmul_precision",
        "hidden",
        "embedding",
        "layer_norm",
        "activation",
        "convolutions",
        "picture_shift",
    )
}
TWIN = (
    VALUES
    | NETWORKS
    | {
        "policy_noise": (0.5, learnt),
        "noise_clip": (0.1, learnt),
        "policy_delay": (3, stepped),
        "num_critics": (3, built),
        "actor_learning_rate": (0.02, learnt),
        "critic_learning_rate": (0.02, learnt),
        "actor_schedule": ("linear", stepped),
        "critic_schedule": ("linear", stepped),
        "dropout": (0.5, stepped),
        "actor_network": (own_actor, stepped),
    }
)
EFFECTS = {
    "cql": VALUES
    | NETWORKS
    | {
        "alpha": (0.5, learnt),
        "samples": (2, stepped),
        "entropy_weight": (0.5, stepped),
        "target_entropy": (5.0, stepped),
        "num_critics": (3, built),
        "actor_learning_rate": (0.02, learnt),
        "critic_learning_rate": (0.02, learnt),
        "entropy_learning_rate": (0.02, learnt),
        "actor_schedule": ("linear", stepped),
        "critic_schedule": ("linear", stepped),
        "actor_head": ("gaussian", built),
        "epsilon": (0.0, acted),
        "actor_network": (own_actor, stepped),
    },
    "fql": VALUES
    | NETWORKS
    | {
        "alpha": (0.1, learnt),
        "normalise_q": (True, stepped),
        "flow_steps": (2, stepped),
        "q_aggregate": ("min", stepped),
        "num_critics": (3, built),
        "layer_norm": (False, built),
        "learning_rate": (0.02, learnt),
        "schedule": ("linear", stepped),
        "flow_network": (own_flow, stepped),
        "policy_network": (own_policy, stepped),
    },
    "discrete-cql": VALUES
    | NETWORKS
    | {
        "alpha": (0.1, learnt),
        "critic_loss": ("squared", stepped),
        "learning_rate": (0.02, learnt),
        "schedule": ("linear", stepped),
        "epsilon": (0.2, acted),
        "critic_network": (own_ratings, stepped),
    },
    "td3-bc": TWIN | {"alpha": (0.5, learnt)},
    "rebrac": TWIN
    | {
        "layer_norm": (False, built),
        "actor_penalty": (1.0, learnt),
        "critic_penalty": (1.0, learnt),
        "normalise_q": (False, stepped),
    },
    "bcq": {
        name: SHARED[name]
        for name in (
            "batch_size",
            "optimiser",
            "gradient_clip",
            "debug_metrics",
            "matmul_precision",
            "hidden",
            "activation",
            "embedding",
            "recurrent_size",
            "window",
            "burn_in",
        )
    }
    | {
        "phi": (1.0, learnt),
        "mix": (0.0, learnt),
        "kl_weight": (5.0, learnt),
        "kl_reduction": ("sum", stepped),
        "latent": (2, built),
        "latent_clip": (0.1, learnt),
        "target_samples": (5, learnt),
        "samples": (9, acted),
        "policy_delay": (2, stepped),
        "discount": (0.5, learnt),
        "tau": (0.5, learnt),
        "num_critics": (3, built),
        "critic_loss": ("huber", stepped),
        "n_step": (3, stepped),
        "generator_learning_rate": (0.02, learnt),
        "critic_learning_rate": (0.02, learnt),
        "perturbation_learning_rate": (0.02, learnt),
        "generator_schedule": ("linear", stepped),
        "critic_schedule": ("linear", stepped),
        "perturbation_schedule": ("linear", stepped),
        "generator_hidden": ((8, 8), built),
        "perturbation_hidden": ((8, 8), built),
        "convolutions": ("small", seen),
        "picture_shift": SHARED["picture_shift"],
        "priority_exponent": (0.6, learnt),
        "priority_correction": (1.0, ranked, None, {"priority_exponent": 0.9}),
        "reward_scaling": ("minus-one", scaled),
        "generator_network": (own_generator, stepped),
        "perturbation_network": (own_perturbation, stepped),
        "critic_network": (own_critic, stepped),
    },
    "discrete-bcq": {
        name: SHARED[name]
        for name in (
            "batch_size",
            "optimiser",
            "gradient_clip",
            "debug_metrics",
            "matmul_precision",
            "hidden",
            "embedding",
            "layer_norm",
            "activation",
            "convolutions",
            "picture_shift",
            "recurrent_size",
            "window",
            "burn_in",
        )
    }
    | {
        "threshold": (1.0, learnt),
        "logit_penalty": (5.0, learnt),
        "discount": (0.5, learnt),
        "tau": (0.5, learnt),
        "copy_period": (2, stepped, None, {"tau": None}),
        "double": (False, stepped, None, {"tau": 0.0, "threshold": 0.0, "learning_rate": 0.1}),
        "critic_loss": ("squared", stepped),
        "n_step": (3, stepped),
        "learning_rate": (0.02, learnt),
        "schedule": ("linear", stepped),
        "shared": ("always", stepped),
        "epsilon": (0.2, acted),
        "priority_exponent": (0.6, learnt),
        "priority_correction": (1.0, ranked, None, {"priority_exponent": 0.9}),
        "reward_scaling": ("minus-one", scaled),
        "critic_network": (own_ratings, stepped),
        "imitator_network": (own_actor, stepped),
    },
    "bc": SHARED | {"learning_rate": (0.02, learnt), "schedule": ("linear", stepped)},
    "iql": SHARED
    | {
        "expectile": (0.9, learnt),
        "temperature": (0.5, learnt),
        "max_weight": (1.0, learnt),
        "discount": (0.5, learnt),
        "tau": (0.5, learnt),
        "target_update_period": (2, stepped),
        "num_critics": (3, built),
        "critic_loss": ("huber", stepped),
        "n_step": (3, stepped),
        "actor_learning_rate": (0.02, learnt),
        "critic_learning_rate": (0.02, learnt),
        "value_learning_rate": (0.02, learnt),
        "actor_schedule": ("constant", stepped),
        "critic_schedule": ("linear", stepped),
        "value_schedule": ("linear", stepped),
        "reward_scaling": ("minus-one", scaled),
        "critic_network": (own_critic, stepped),
        "value_network": (own_value, stepped),
        "priority_exponent": (0.6, learnt),
        "priority_correction": (1.0, ranked, None, {"priority_exponent": 0.9}),
        "reward_weights": ((1.0, 0.1), several),
        "discounts": ((0.5, 0.99), several),
        "returns": ("td-lambda", stepped),
        "trace_lambda": (0.1, learnt, None, {"returns": "td-lambda"}),
    },
}
FIELDS = [(name, field.name) for name in BUILT_IN for field in dataclasses.fields(ALGORITHMS[name])]


# The contract and the samplers read these fields, and no page does: one algorithm of each kind of page shows the effect
# in the full tier, and the slow tier shows it for all.
OF_THE_CONTRACT = {"optimiser", "gradient_clip", "matmul_precision", "debug_metrics", "n_step", "picture_shift",
                   "priority_exponent", "priority_correction", "actor_schedule", "critic_schedule", "window",
                   "burn_in", "activation"}  # fmt: skip
SHOWN_BY = ("bc", "iql")


def tiered(name, field):
    """A case of the default tier if it needs no program of its own, otherwise of the full one."""
    _, show, _, others = (*EFFECTS[name][field], None, None)[:4]
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
    value, show, kind, others = (*EFFECTS[name][field], None, None)[:4]
    (case, *_) = [case for case in CASES if case.name == name and kind in (None, case.kind)]
    case = case.but(**(others or {}))
    changed = case.but(**{field: value})
    assert getattr(changed.algorithm, field) != getattr(case.algorithm, field)
    assert differ(show(changed), usual(show, case), by=2e-5)


def test_the_table_names_no_field_that_is_gone():
    assert {(name, field) for name, fields in EFFECTS.items() for field in fields} == set(FIELDS)


@pytest.mark.parametrize("name", BUILT_IN)
def test_an_unknown_field_is_refused_with_the_nearest_name(name):
    with pytest.raises(ConfigError, match=r"no hyper-parameter 'batchsize': did you mean 'batch_size'\?"):
        ALGORITHMS[name](batchsize=3)
    with pytest.raises(ConfigError, match=r"known names: .*batch_size"):
        ALGORITHMS[name](zzzz=3)
    with pytest.raises(ConfigError, match="keyword arguments only"):
        ALGORITHMS[name](3)


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_value_of_a_wrong_type_is_refused_by_name(name, field):
    for wrong in ("no such thing", 1j, {"a": 1}):
        with pytest.raises(ConfigError, match=rf"{ALGORITHMS[name].__name__}\.{field} = "):
            ALGORITHMS[name](**{field: wrong})


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_number_out_of_range_is_refused_by_name(name, field):
    metadata = ALGORITHMS[name].__dataclass_fields__[field].metadata
    wrong = [float("nan"), float("inf"), True, "0.5"] if metadata["leaf"] else []
    if metadata["leaf"]:
        least, most, open_ends = metadata["range"]
        wrong += [least - 0.1, most + 0.1] + ([least, most] if open_ends else [])
    elif metadata["least"] is not None:
        wrong += [metadata["least"] - 1, metadata["least"] + 0.5, True]
    for value in wrong:
        with pytest.raises(ConfigError, match=rf"{ALGORITHMS[name].__name__}\.{field} = "):
            ALGORITHMS[name](**{field: value})


@pytest.mark.parametrize(("name", "field"), FIELDS)
def test_a_changed_value_survives_a_file(name, field):
    value, _, _, others = (*EFFECTS[name][field], None, None)[:4]
    changed = ALGORITHMS[name](**((others or {}) | {field: value}))
    if field.endswith("_network"):
        with pytest.raises(ConfigError, match=f"{field} is '{value.__name__}', your own function"):
            from_config(ALGORITHMS[name], to_config(changed))
    else:
        assert from_config(ALGORITHMS[name], to_config(changed)) == changed != ALGORITHMS[name]()


@pytest.mark.parametrize("name", BUILT_IN)
def test_a_misspelt_choice_is_refused_with_the_nearest(name):
    with pytest.raises(ConfigError, match=rf"{ALGORITHMS[name].__name__}\.optimiser = 'adan': did you mean 'adam'\?"):
        ALGORITHMS[name](optimiser="adan")
