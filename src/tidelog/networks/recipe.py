"""Networks as a recipe's nodes: plain values and the networks' own arrays, which `tidelog.runtime` computes with NumPy.

A network of the user's own has no node: ExportError says which part it is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tidelog.errors import ExportError
from tidelog.networks import actor, phasic
from tidelog.networks.actor import Actor, GaussianHead, PointHead, StateGaussianHead
from tidelog.networks.convolution import Residual, Shape, Stack
from tidelog.networks.critic import Critic
from tidelog.networks.encode import Encoder, Picture
from tidelog.networks.memory import GRU
from tidelog.networks.mlp import ACTIVATIONS, MLP, LayerNorm, Linear
from tidelog.networks.perturbation import Perturbation
from tidelog.networks.phasic import LogitsHead, MeanHead, Phasic, Trunk
from tidelog.networks.vae import Generator

Node = dict[str, Any]


def foreign(part: Any) -> ExportError:
    """What to raise about a part that has no node."""
    return ExportError(
        f"{type(part).__name__} is no network of tidelog's: only JAX can compute it, so that it cannot be exported"
    )


def linear(layer: Linear) -> Node:
    """A dense layer."""
    return {"kind": "linear", "weight": layer.weight, "bias": layer.bias}


def mlp(body: MLP) -> Node:
    """Dense layers with what is between them."""
    names = [name for name, function in ACTIVATIONS.items() if function is body.activation]
    if not names:
        raise foreign(body.activation)
    return {
        "kind": "mlp",
        "layers": [linear(layer) for layer in body.layers],
        "norms": [norm(one) for one in body.norms],
        "activation": names[0],
        "activate_last": body.activate_last,
    }


def norm(layer: LayerNorm) -> Node:
    """A layer norm."""
    return {"kind": "norm", "scale": layer.scale, "shift": layer.shift}


def encoder(eyes: Encoder) -> Node:
    """What makes features of observations."""
    leaves = [
        {
            "kind": "leaf",
            "name": name,
            "tables": list(eyes.tables.get(name, ())),
            "picture": _picture(eyes.pictures[name]) if name in eyes.pictures else None,
        }
        for name in eyes.leaves
    ]
    return {"kind": "encoder", "leaves": leaves, "memory": None if eyes.memory is None else gru(eyes.memory)}


def _picture(part: Picture) -> Node:
    shaped = zip(part.convolutions.layers, part.convolutions.shapes, strict=True)
    return {"kind": "picture", "layers": [_convolution(*one) for one in shaped], "dense": linear(part.dense)}


def _convolution(layer: Linear | Residual, shape: Shape) -> Node:
    if isinstance(layer, Residual):
        blocks = [{"kind": "block", "first": linear(first), "second": linear(second)} for first, second in layer.blocks]
        return {"kind": "stack", "first": linear(layer.first), "blocks": blocks}
    if isinstance(shape, Stack):
        raise foreign(layer)
    return {**linear(layer), "kind": "convolution", "kernel": shape.kernel, "stride": shape.stride}


def gru(unit: GRU) -> Node:
    """A gated recurrent unit."""
    arrays = {name: getattr(unit, name) for name in ("inward", "recurrent", "bias", "candidate_bias")}
    return {"kind": "gru", **arrays}


def network(part: Any) -> Node:
    """A critic, a generator (what it decodes with), or a perturbation."""
    if isinstance(part, Generator):
        return {"kind": "network", "encoder": encoder(part.encoder), "body": mlp(part.outward)}
    if not isinstance(part, Critic | Perturbation):
        raise foreign(part)
    return {"kind": "network", "encoder": encoder(part.encoder), "body": mlp(part.body)}


def imitator(part: Any) -> Node:
    """An actor as it is asked for logits."""
    if not isinstance(part, Actor) or not isinstance(part.head, Linear):
        raise foreign(part)
    made = {"kind": "logits", "linear": linear(part.head)}
    return {"kind": "imitator", "encoder": encoder(part.encoder), "trunk": mlp(part.trunk), "head": made}


def likely(part: Any, epsilon: Any = None) -> Node:
    """The policy that an actor, or a phasic network, makes of observations."""
    eyes, trunk, head = _actor(part)
    spared = None if epsilon is None else float(epsilon)
    return {"kind": "likely", "encoder": encoder(eyes), "trunk": mlp(trunk), "head": _head(head), "epsilon": spared}


def _actor(part: Any) -> tuple[Encoder, MLP, Any]:
    if isinstance(part, Actor):
        return part.encoder, part.trunk, part.head
    if isinstance(part, Phasic) and isinstance(part.trunk, Trunk):
        return part.trunk.encoder, part.trunk.body, part.head
    raise foreign(part)


def _head(head: Any) -> Node:
    if isinstance(head, Linear):
        return {"kind": "logits", "linear": linear(head)}
    if isinstance(head, LogitsHead):
        made = {"kind": "logits", "linear": linear(head.linear)}
        return {**made, "kind": "several", "sizes": list(head.sizes)} if head.several else made
    if isinstance(head, PointHead):
        return {"kind": "point", "mean": linear(head.mean)}
    if isinstance(head, GaussianHead | StateGaussianHead | MeanHead):
        spread = linear(head.log_std) if isinstance(head, StateGaussianHead) else head.log_std
        limits = phasic.LOG_STD_RANGE if isinstance(head, MeanHead) else actor.LOG_STD_RANGE
        squashed = not isinstance(head, MeanHead)
        return {
            "kind": "gaussian",
            "mean": linear(head.mean),
            "log_std": spread,
            "squashed": squashed,
            "range": list(limits),
        }
    raise foreign(head)


def smallest(critics: Any, weights: list[float] | None = None) -> Node:
    """The smallest of several critics' values of every discrete action; `weights` [K] of several rewards."""
    return {"kind": "smallest", "critics": [network(critic) for critic in critics], "weights": weights}


def whole(act: Node, values: Node | None = None, carry: int | None = None) -> Node:
    """A policy's recipe: how it acts, how it rates all actions, and how much it carries from step to step."""
    return {"kind": "recipe", "act": act, "values": values, "carry": carry or 0}


def named(node: Any, owner: Any) -> Any:
    """A recipe whose arrays are replaced by their names in the pytree that owns them."""
    paths = jax.tree_util.tree_flatten_with_path(owner)[0]
    names = {id(leaf): jax.tree_util.keystr(path) for path, leaf in paths}
    return _named(node, names)


def _named(node: Any, names: Mapping[int, str]) -> Any:
    if isinstance(node, Mapping):
        return {key: _named(value, names) for key, value in node.items()}
    if isinstance(node, list):
        return [_named(item, names) for item in node]
    if isinstance(node, jax.Array | np.ndarray):
        if id(node) not in names:
            raise ExportError("a recipe names an array that the policy's acting part does not hold")
        return {"array": names[id(node)]}
    return node
