"""Networks as nodes of a recipe: plain values and the networks' own arrays; `tidelog.runtime` computes them with NumPy.

A custom module has no node: ExportError names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import jax
import numpy as np

from tidelog.errors import ExportError
from tidelog.networks import actors, phasic
from tidelog.networks.actors import Actor, GaussianHead, JointHead, LogitsHead, PointHead, StateGaussianHead
from tidelog.networks.critics import Critic, Flow, Generator, Perturbation
from tidelog.networks.encoder import Encoder, Picture
from tidelog.networks.layers import ACTIVATIONS, GRU, MLP, LayerNorm, Linear
from tidelog.networks.phasic import MeanHead, Phasic, Trunk
from tidelog.networks.pictures import Residual, Shape, Stack

Node = dict[str, Any]


def foreign(part: Any) -> ExportError:
    """Return the error for a module without a node."""
    return ExportError(
        f"{type(part).__name__} is a custom module; only the JAX runtime can run it, export does not support it",
        fix="use the networks of tidelog",
    )


def linear(layer: Linear) -> Node:
    """Return the node of a dense layer."""
    return {"kind": "linear", "weight": layer.weight, "bias": layer.bias}


def mlp(body: MLP) -> Node:
    """Return the node of dense layers with their norms and activation."""
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
    """Return the node of a layer norm."""
    return {"kind": "norm", "scale": layer.scale, "shift": layer.shift}


def encoder(part: Encoder) -> Node:
    """Return the node of an encoder."""
    leaves = [
        {
            "kind": "leaf",
            "name": name,
            "tables": list(part.tables.get(name, ())),
            "picture": _picture(part.pictures[name]) if name in part.pictures else None,
        }
        for name in part.leaves
    ]
    return {"kind": "encoder", "leaves": leaves, "gru": None if part.recurrent is None else gru(part.recurrent)}


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
    """Return the node of a gated recurrent unit."""
    arrays = {name: getattr(unit, name) for name in ("inward", "recurrent", "bias", "candidate_bias")}
    return {"kind": "gru", **arrays}


def network(part: Any) -> Node:
    """Return the node of a critic, a generator (its decoder), a perturbation, or a flow."""
    if isinstance(part, Generator):
        return {"kind": "network", "encoder": encoder(part.encoder), "body": mlp(part.outward)}
    if not isinstance(part, Critic | Perturbation | Flow):
        raise foreign(part)
    return {"kind": "network", "encoder": encoder(part.encoder), "body": mlp(part.body)}


def imitator(part: Any) -> Node:
    """Return the node of an actor's logits."""
    if not isinstance(part, Actor) or not isinstance(part.head, Linear):
        raise foreign(part)
    logits = {"kind": "logits", "linear": linear(part.head)}
    return {"kind": "imitator", "encoder": encoder(part.encoder), "trunk": mlp(part.trunk), "head": logits}


def likely(part: Any, epsilon: Any = None) -> Node:
    """Return the node of the policy of an actor or a phasic network."""
    encode, trunk, head = _actor(part)
    rate = None if epsilon is None else float(epsilon)
    return {"kind": "likely", "encoder": encoder(encode), "trunk": mlp(trunk), "head": _head(head), "epsilon": rate}


def _actor(part: Any) -> tuple[Encoder, MLP, Any]:
    if isinstance(part, Actor):
        return part.encoder, part.trunk, part.head
    if isinstance(part, Phasic) and isinstance(part.trunk, Trunk):
        trunk, own = part.trunk.body, part.policy_body  # layers of the policy follow those of the trunk
        if own is not None:
            trunk = MLP((*trunk.layers, *own.layers), (*trunk.norms, *own.norms), own.activation, activate_last=True)
        return part.trunk.encoder, trunk, part.head
    raise foreign(part)


def _head(head: Any) -> Node:
    if isinstance(head, Linear):
        return {"kind": "logits", "linear": linear(head)}
    if isinstance(head, LogitsHead):
        logits = {"kind": "logits", "linear": linear(head.linear)}
        return {**logits, "kind": "several", "sizes": list(head.sizes)} if head.several else logits
    if isinstance(head, JointHead):
        return {"kind": "joint", "parts": [_head(one) for one in head.heads]}
    if isinstance(head, PointHead):
        return {"kind": "point", "mean": linear(head.mean)}
    if isinstance(head, GaussianHead | StateGaussianHead | MeanHead):
        log_std = linear(head.log_std) if isinstance(head, StateGaussianHead) else head.log_std
        limits = phasic.LOG_STD_RANGE if isinstance(head, MeanHead) else actors.LOG_STD_RANGE
        squashed = not isinstance(head, MeanHead)
        return {
            "kind": "gaussian",
            "mean": linear(head.mean),
            "log_std": log_std,
            "squashed": squashed,
            "range": list(limits),
        }
    raise foreign(head)


def smallest(critics: Any, weights: list[float] | None = None) -> Node:
    """Return the node of the smallest critic's values of every discrete action; `weights` [K] of several rewards."""
    return {"kind": "smallest", "critics": [network(critic) for critic in critics], "weights": weights}


def values(critic: Any, weights: tuple[float, ...] | None = None) -> Node | None:
    """Return the node of `smallest_values` of a critic or an ensemble; None for continuous actions and without one."""
    members = getattr(critic, "members", (critic,))
    if not all(getattr(member, "actions", None) for member in members):
        return None
    several = members[0].rewards
    return smallest(members, None if several is None else [1.0] * several if weights is None else list(weights))


def greedy(critics: Any, epsilon: Any) -> Node:
    """Return the node of the best allowed action by the smallest critic; samples are uniform at rate `epsilon`."""
    return {"kind": "greedy", "values": smallest(critics), "epsilon": float(epsilon)}


def whole(act: Node, values: Node | None = None, carry: int | None = None) -> Node:
    """Return a policy's recipe: acting, values of all actions, and the size of the recurrent state."""
    return {"kind": "recipe", "act": act, "values": values, "carry": carry or 0}


def named(node: Any, owner: Any) -> Any:
    """Replace the recipe's arrays by their names in the pytree that owns them."""
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
            raise ExportError("a recipe uses an array outside policy_params", fix="add it to policy_params()")
        return {"array": names[id(node)]}
    return node
