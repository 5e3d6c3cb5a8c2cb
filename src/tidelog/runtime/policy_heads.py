"""Policies from a recipe's nodes, one function for each kind of policy.

`xp` is NumPy, or `jax.numpy` where the same lines are traced for ONNX. Continuous actions are in [-1, 1]. `noise`
changes the deterministic action into a sample: standard normal numbers for a Gaussian, Gumbel numbers for choices,
latents for candidates; zeros (for candidates: the recipe's own latents) give the deterministic action.

Letters: `B` batch, `A` number of actions or action size, `C` candidates, `L` latent size, `K` rewards.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from tidelog.runtime.networks import Array, Node, encode, linear, mlp


class PolicyInputs(NamedTuple):
    """The inputs of a policy."""

    leaves: Mapping[str, Array]  # [B, ...], in network units
    mask: Array | None = None  # [B, A] bool
    carry: Array | None = None  # [B, H]
    noise: Array | None = None  # [B, W], of candidates [C, B, L]; None: the deterministic action


class PolicyOutputs(NamedTuple):
    """The outputs of a policy."""

    action: Array  # [B], [B, M] or [B, A]
    probabilities: Array | None = None  # [B, A] of discrete actions when sampling
    mean: Array | None = None  # [B, A] of a Gaussian
    std: Array | None = None  # [B, A] its standard deviations
    carry: Array | None = None  # [B, H]


def likely(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the most likely action of a network's distribution."""
    features, carry = encode(xp, node["encoder"], seen.leaves, seen.carry)
    outputs = HEADS[node["head"]["kind"]](xp, node["head"], mlp(xp, node["trunk"], features), seen, node["epsilon"])
    return outputs._replace(carry=carry)


def logits(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """One choice; with an epsilon, sampling draws with this probability and otherwise takes the most likely one."""
    scores = _allowed(xp, linear(node["linear"], features), seen.mask)
    best, chances = xp.argmax(scores, axis=-1), _softmax(xp, scores)
    if epsilon is not None:
        chances = epsilon * chances + (1.0 - epsilon) * _only(xp, best, scores)
    return PolicyOutputs(_drawn(xp, best, chances, seen.noise), chances)


def several(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """Several choices at once, [B, M]."""
    scores, chosen, start = linear(node["linear"], features), [], 0
    for size in node["sizes"]:
        part = scores[:, start : start + size]
        noise = None if seen.noise is None else seen.noise[:, start : start + size]
        chosen.append(_drawn(xp, xp.argmax(part, axis=-1), _softmax(xp, part), noise))
        start += size
    return PolicyOutputs(xp.stack(chosen, axis=-1))


def gaussian(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """Return the mean; the standard deviation is from an array [A] or a layer."""
    mean, source = linear(node["mean"], features), node["log_std"]
    mean = xp.tanh(mean) if node["squashed"] else mean
    log_std = linear(source, features) if isinstance(source, Mapping) else source
    std = xp.broadcast_to(xp.exp(xp.clip(log_std, *node["range"])), mean.shape)
    return PolicyOutputs(mean if seen.noise is None else mean + std * seen.noise, mean=mean, std=std)


def point(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """Return one action, independent of the noise."""
    return PolicyOutputs(xp.tanh(linear(node["mean"], features)))


def supported(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the action of highest value among the supported and allowed ones."""
    critic, imitator = node["critic"], node["imitator"]
    one, two = _parts(seen.carry, 2)
    features, one = encode(xp, critic["encoder"], seen.leaves, one)
    values = mlp(xp, critic["body"], features)
    features, two = encode(xp, imitator["encoder"], seen.leaves, two)
    scores = linear(imitator["head"]["linear"], mlp(xp, imitator["trunk"], features))
    most_likely = xp.max(_allowed(xp, scores, seen.mask), axis=-1, keepdims=True)
    threshold = node["threshold"]
    is_supported = scores - most_likely >= (math.log(threshold) if threshold > 0 else -math.inf)
    is_supported = is_supported if seen.mask is None else is_supported & seen.mask
    carry = None if one is None else xp.concatenate([one, two], axis=-1)
    return _epsilon_greedy(xp, values, is_supported, node["epsilon"], seen.noise)._replace(carry=carry)


def greedy(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the allowed action of highest value."""
    values = smallest(xp, node["values"], seen.leaves)
    allowed = values > -xp.inf if seen.mask is None else seen.mask
    return _epsilon_greedy(xp, values, allowed, node["epsilon"], seen.noise)


def _epsilon_greedy(xp: Any, values: Array, allowed: Array, epsilon: float, noise: Array | None) -> PolicyOutputs:
    """Return the best of the allowed actions [B, A]; probabilities mix it with a uniform one of them."""
    best = xp.argmax(xp.where(allowed, values, -xp.inf), axis=-1)
    uniform = allowed / xp.sum(allowed, axis=-1, keepdims=True)
    chances = (epsilon * uniform + (1.0 - epsilon) * _only(xp, best, values)).astype(xp.float32)
    return PolicyOutputs(_drawn(xp, best, chances, noise), chances)


def candidates(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the generated and perturbed candidate with the highest value of the critic."""
    names = ("generator", "perturbation", "critic")
    encodings = [
        encode(xp, node[n]["encoder"], seen.leaves, c) for n, c in zip(names, _parts(seen.carry, 3), strict=True)
    ]
    latents = node["latents"] if seen.noise is None else seen.noise
    latents = latents[:, None, :] if latents.ndim == 2 else latents
    count, rows = latents.shape[0], encodings[0][0].shape[0]
    latents = latents + xp.zeros((count, rows, 1), xp.float32)  # a sum, to broadcast one row in ONNX too

    def with_features(features: Array, others: Array) -> Array:
        tiled = xp.broadcast_to(features[None], (count, rows, features.shape[-1]))
        return xp.concatenate([tiled, others], axis=-1)

    actions = xp.tanh(mlp(xp, node["generator"]["body"], with_features(encodings[0][0], latents)))
    direction = xp.tanh(mlp(xp, node["perturbation"]["body"], with_features(encodings[1][0], actions)))
    actions = xp.clip(actions + node["reach"] * direction, -1.0, 1.0)
    values = mlp(xp, node["critic"]["body"], with_features(encodings[2][0], actions))[..., 0]
    first = xp.arange(count)[:, None] == xp.argmax(values, axis=0)[None]
    action = xp.sum(xp.where(first[..., None], actions, 0.0), axis=0)
    return PolicyOutputs(
        action, carry=None if seen.carry is None else xp.concatenate([c for _, c in encodings], axis=-1)
    )


def smallest(xp: Any, node: Node, leaves: Mapping[str, Array]) -> Array:
    """Return the smallest critic's values of every discrete action [B, A]; for `K` rewards their weighted sum."""
    members = []
    for critic in node["critics"]:
        values = mlp(xp, critic["body"], encode(xp, critic["encoder"], leaves, None)[0])
        if node["weights"] is not None:
            parts = values.reshape(values.shape[0], len(node["weights"]), -1)
            values = xp.sum(parts * xp.asarray(node["weights"], xp.float32)[:, None], axis=1)
        members.append(values)
    return xp.min(xp.stack(members), axis=0)


Kind = Callable[[Any, Node, PolicyInputs], PolicyOutputs]
KINDS: Mapping[str, Kind] = {"likely": likely, "supported": supported, "greedy": greedy, "candidates": candidates}
HEADS: Mapping[str, Callable[[Any, Node, Array, PolicyInputs, float | None], PolicyOutputs]] = {
    "logits": logits,
    "several": several,
    "gaussian": gaussian,
    "point": point,
}


def _allowed(xp: Any, values: Array, mask: Array | None) -> Array:
    return values if mask is None else xp.where(mask, values, -xp.inf)


def _softmax(xp: Any, scores: Array) -> Array:
    raised = xp.exp(scores - xp.max(scores, axis=-1, keepdims=True))
    return raised / xp.sum(raised, axis=-1, keepdims=True)


def _only(xp: Any, best: Array, like: Array) -> Array:
    """Return 1 at the best action and 0 elsewhere: [B] -> [B, A]."""
    return (xp.arange(like.shape[-1]) == best[:, None]).astype(xp.float32)


def _drawn(xp: Any, best: Array, chances: Array, noise: Array | None) -> Array:
    """Choose an action by Gumbel noise [B, A] with its probability; zeros choose the best one."""
    if noise is None:
        return best
    logs = xp.log(xp.maximum(chances, 1e-38))
    drawn = xp.argmax(xp.where(chances > 0, logs + noise, -xp.inf), axis=-1)
    return xp.where(xp.any(noise != 0, axis=-1), drawn, best)


def _parts(carry: Array | None, count: int) -> list[Any]:
    if carry is None:
        return [None] * count
    width = carry.shape[-1] // count
    return [carry[:, i * width : (i + 1) * width] for i in range(count)]
