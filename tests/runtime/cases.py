"""Small untrained policies of every kind that an artefact supports, and artefacts of them."""

import importlib.util
from functools import cache

import jax
import jax.numpy as jnp
import numpy as np

from tests.algorithms.recommenders import described, fresh, small
from tidelog import BC, BCQ, CQL, FQL, IQL, PPG, TD3BC, DiscreteBCQ, DiscreteCQL, OffPolicyPPG, ReBRAC
from tidelog.algorithms.part import PolicyPart
from tidelog.data.statistics import Scaler
from tidelog.networks.pictures import Stack
from tidelog.policies.policy import Policy
from tidelog.types import Codes, Continuous, Discrete, Hybrid, Image, MultiDiscrete, Spec, Vector

LISTS = {
    "lists, gru": {},
    "lists, mean": {"encoder": "mean", "q_weight": 1.0},
    "lists, attention": {"encoder": "attention", "heads": 2},
    "lists, imagined": {"generator": "vae"},
    "lists, users": {"user_embedding": True},
    "lists, features": {"content": True, "threshold": 0.0},
    "lists, counted": {"successors": 3},
    "lists, plain": {"memory": 0, "profile": False},
}
ONNX = all(importlib.util.find_spec(name) for name in ("jax2onnx", "onnx", "onnxruntime"))
SCORES = {"rtol": 1e-6, "atol": 2e-6}  # float32 log-likelihoods near 0: differences of numbers up to about 10
WITHOUT = "the extra [onnx] is not installed"
SMALL = {"hidden": (8, 8), "embedding": 2}
NARROW = {**SMALL, "generator_hidden": (8,), "perturbation_hidden": (8,), "samples": 20}

NAMES = ("age", "dose", "pressure", "dose missing")
NUMBERS = Vector(4, NAMES, (("dose", 1.5), ("pressure", 0.5)))  # one flagged, one carried forward
WORDS = Codes((3, 2), ("ward", "sex"), (("a", "b", "c"), ("f", "m")))
SEEN = {"categorical": WORDS, "numeric": NUMBERS}
PICTURED = {"picture": Image(9, 8, 2), "x": Vector(2)}
FIVE, DIALS = Discrete(5, ("stay", "up", "down", "left", "right")), MultiDiscrete((2, 3))
REMEMBERS = DiscreteBCQ(**SMALL, recurrent_size=3)
BOX = Continuous((-1.0, -2.0), (1.0, 6.0))
PARTS = Hybrid((("go/where", BOX), ("go/how", FIVE), ("dials", DIALS)))
CHOICES = Hybrid((("dials", DIALS), ("how", FIVE)))

CASES = {
    "iql, choice": (IQL(**SMALL, layer_norm=True), SEEN, FIVE),
    "iql, choice, several rewards, mixed": (IQL(**SMALL, epsilon=0.2, reward_weights=(1.0, 0.5)), SEEN, FIVE),
    "iql, memory": (IQL(**SMALL, recurrent_size=4, activation="gelu"), SEEN, FIVE),
    "iql, box": (IQL(**SMALL), SEEN, BOX),
    "iql, box, spread by state, mixed": (IQL(**SMALL, actor_head="state-gaussian", epsilon=0.3), SEEN, BOX),
    "bc, point": (BC(**SMALL, actor_head="deterministic"), SEEN, BOX),
    "bcq": (BCQ(**NARROW), SEEN, BOX),
    "bcq, memory": (BCQ(**NARROW, recurrent_size=3, activation="elu"), SEEN, BOX),
    "td3-bc": (TD3BC(**SMALL), SEEN, BOX),
    "rebrac": (ReBRAC(**SMALL), SEEN, BOX),
    "cql": (CQL(**SMALL), SEEN, BOX),
    "discrete cql": (DiscreteCQL(**SMALL, epsilon=0.1), SEEN, FIVE),
    "fql": (FQL(**SMALL), SEEN, BOX),
    "discrete bcq": (DiscreteBCQ(**SMALL, epsilon=0.1), SEEN, FIVE),
    "discrete bcq, memory": (DiscreteBCQ(**SMALL, recurrent_size=3), SEEN, FIVE),
    "discrete bcq, pictures": (DiscreteBCQ(**SMALL, activation="leaky-relu"), PICTURED, FIVE),
    "ppg, pictures in stacks": (PPG(**SMALL, convolutions=lambda image: (Stack(4, 1),)), PICTURED, FIVE),
    "ppg, dials": (PPG(**SMALL, activation="silu", policy_hidden=(5,), value_hidden=(4, 3)), SEEN, DIALS),
    "ppg, box": (PPG(**SMALL, activation="tanh"), SEEN, BOX),
    "ppg, choice": (PPG(**SMALL, architecture="shared"), SEEN, FIVE),
    "ppg, parts": (PPG(**SMALL), SEEN, PARTS),
    "bcq, parts": (BCQ(**NARROW), SEEN, PARTS),
    "iql, parts, mixed": (IQL(**SMALL, epsilon=0.2), SEEN, CHOICES),
    "iql, dials": (IQL(**SMALL, epsilon=0.2), SEEN, DIALS),
    "bc, parts, point, memory": (BC(**SMALL, actor_head="deterministic", recurrent_size=3), SEEN, PARTS),
    "ppg, memory": (PPG(**SMALL, recurrent_size=4), SEEN, FIVE),
    "off-policy ppg, choice": (OffPolicyPPG(**SMALL, architecture="single", recurrent_size=3), SEEN, FIVE),
    "part by support": (PolicyPart(DiscreteBCQ(**SMALL), BC(**SMALL), 3.0, 1.0, sampled=False, actions=4), SEEN, FIVE),
    "part, sampled": (PolicyPart(BC(**SMALL), BC(**SMALL), 3.0, 1.0, sampled=True, actions=4), SEEN, FIVE),
    "part by both": (PolicyPart(DiscreteBCQ(**SMALL), BC(**SMALL), 3.0, 0.4, sampled=False, actions=4), SEEN, FIVE),
    "part by share": (PolicyPart(IQL(**SMALL), None, 0.0, 0.3, sampled=True, actions=4), SEEN, FIVE),
    "part, memory": (PolicyPart(REMEMBERS, BC(**SMALL), 3.0, 1.0, sampled=False, actions=4), SEEN, FIVE),
}  # fmt: skip


def moved(params, generator):
    """Return the parameters, each with a random number added; indices stay."""

    def one(leaf):
        added = 0.3 * generator.standard_normal(leaf.shape, np.float32)
        return jax.device_put(np.asarray(leaf) + added) if np.issubdtype(leaf.dtype, np.floating) else leaf

    return jax.tree.map(one, params)


@cache
def policy(name):
    """A policy with scaling, nonzero biases, and larger heads than the initial ones."""
    algorithm, leaves, space = CASES[name]
    spec = Spec(leaves, space, rewards=2 if "several" in name else None)
    mean, std = np.asarray([1.0, -2.0, 0.5, 0.1], np.float32), np.asarray([2.0, 0.5, 1.5, 0.3], np.float32)
    scaler = Scaler({"numeric": mean}, {"numeric": std}) if "numeric" in leaves else Scaler()
    params = algorithm.policy_params(algorithm.init(spec, jax.random.key(len(name)), 1))
    generator = np.random.default_rng(len(name))
    return Policy(algorithm, spec, scaler, moved(params, generator), {"data": "none", "learnt_from": {"x": [1, 2]}})


@cache
def listing(name):
    """A policy that ranks ten items, far from the initial networks."""
    algorithm, log = small(**LISTS[name]), described()
    generator = np.random.default_rng(len(name))
    params = algorithm.policy_params(fresh(algorithm, log)._replace(q_updates=jnp.int32(1)))
    far = moved(params, generator)._replace(weight=params.weight, q_updates=params.q_updates)
    return Policy(algorithm, algorithm.spec_of(log), Scaler(), far, {"data": "none"})
