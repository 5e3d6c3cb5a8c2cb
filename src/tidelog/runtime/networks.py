"""Network computations from a recipe's nodes: mappings of plain values and arrays.

`xp` is NumPy, or `jax.numpy` where the same lines are traced for ONNX. Letters: `B` batch, `F` features, `H` width of a
recurrent unit, `C` channels; leading axes before the last are free.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import numpy as np

from tidelog.errors import CheckpointError, SpecError, nearest
from tidelog.types import Continuous, Discrete, Hybrid, Spec

Array: TypeAlias = Any
Node: TypeAlias = Mapping[str, Any]

ACTIVATIONS: Mapping[str, Callable[[Any, Array], Array]] = {
    "relu": lambda xp, x: xp.maximum(x, 0.0),
    "tanh": lambda xp, x: xp.tanh(x),
    "gelu": lambda xp, x: 0.5 * x * (1.0 + xp.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * x * x * x))),
    "silu": lambda xp, x: x * _sigmoid(xp, x),
    "elu": lambda xp, x: xp.maximum(x, 0.0) + (xp.exp(xp.minimum(x, 0.0)) - 1.0),
    "leaky-relu": lambda xp, x: xp.maximum(x, 0.01 * x),
}


# Work that ends when nobody waits for its result: long loops call `end_if_stopped`, and who starts them may stop them.

_HERE = threading.local()


class StoppedError(Exception):
    """The work was stopped; it has no result."""


@contextmanager
def stoppable(stop: threading.Event) -> Iterator[None]:
    """Let `end_if_stopped` raise StoppedError in this thread once the event is set."""
    before = getattr(_HERE, "stop", None)
    _HERE.stop = stop
    try:
        end_if_stopped()
        yield
    finally:
        _HERE.stop = before


def end_if_stopped() -> None:
    """Raise StoppedError if the work of this thread was stopped."""
    stop = getattr(_HERE, "stop", None)
    if stop is not None and stop.is_set():
        raise StoppedError


class FiniteNumbers(np.errstate):
    """Raise SpecError where NumPy computes a number that is not finite."""

    def __init__(self) -> None:
        super().__init__(over="raise", invalid="raise", divide="raise")

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        super().__exit__(kind, error, trace)
        if isinstance(error, FloatingPointError):
            raise SpecError(
                f"the policy computes numbers that are not finite ({error})",
                "observations like those of its log",
                "correct values that are far too large",
            ) from error


def linear(node: Node, x: Array) -> Array:
    """`x @ weight + bias`: [..., in] -> [..., out]."""
    if x.ndim == 2:
        return x @ node["weight"] + node["bias"]
    flat = x.reshape(-1, x.shape[-1]) @ node["weight"] + node["bias"]
    return flat.reshape(*x.shape[:-1], flat.shape[-1])


def layer_norm(xp: Any, node: Node, x: Array) -> Array:
    """Normalise the last axis, then scale and shift it."""
    centred = x - xp.mean(x, axis=-1, keepdims=True)
    variance = xp.mean(xp.square(centred), axis=-1, keepdims=True)
    return centred / xp.sqrt(variance + 1e-6) * node["scale"] + node["shift"]


def mlp(xp: Any, node: Node, x: Array) -> Array:
    """Dense layers, each followed by layer norm (where there is one) and activation: [..., in] -> [..., out]."""
    last = len(node["layers"]) - 1
    for i, layer in enumerate(node["layers"]):
        x = linear(layer, x)
        if i == last and not node["activate_last"]:
            return x
        if node["norms"]:
            x = layer_norm(xp, node["norms"][i], x)
        x = ACTIVATIONS[node["activation"]](xp, x)
    return x


def gru(xp: Any, node: Node, carry: Array, x: Array) -> Array:
    """One step of a gated recurrent unit: carry [B, H] and features [B, F] -> the new carry [B, H]."""
    width = node["recurrent"].shape[0]
    inward, recurrent = x @ node["inward"] + node["bias"], carry @ node["recurrent"]
    reset = _sigmoid(xp, inward[:, :width] + recurrent[:, :width])
    update = _sigmoid(xp, inward[:, width : 2 * width] + recurrent[:, width : 2 * width])
    candidate = xp.tanh(inward[:, 2 * width :] + reset * (recurrent[:, 2 * width :] + node["candidate_bias"]))
    return update * carry + (1.0 - update) * candidate


def _sigmoid(xp: Any, x: Array) -> Array:
    return 0.5 * (xp.tanh(0.5 * x) + 1.0)  # no overflow on either side


def picture(xp: Any, node: Node, pixels: Array) -> Array:
    """Convolutions and a dense layer, each with ReLU: uint8 [B, height, width, C] -> [B, F]."""
    x = pixels.astype(xp.float32) / 255.0
    for layer in node["layers"]:
        if layer["kind"] != "stack":
            x = xp.maximum(linear(layer, _views(xp, x, layer["kernel"], layer["stride"])), 0.0)
            continue
        x = _pool(xp, _same(xp, layer["first"], x))  # half as high and wide
        for block in layer["blocks"]:
            inner = _same(xp, block["first"], xp.maximum(x, 0.0))
            x = x + _same(xp, block["second"], xp.maximum(inner, 0.0))
    return xp.maximum(linear(node["dense"], xp.maximum(x, 0.0).reshape(x.shape[0], -1)), 0.0)


def _same(xp: Any, node: Node, x: Array) -> Array:
    """A 3 by 3 convolution that keeps the picture's size."""
    return linear(node, _views(xp, xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0))), 3, 1))


def _pool(xp: Any, x: Array) -> Array:
    """Maximum over 3 by 3, stride 2."""
    lowest = xp.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)), constant_values=-3e38)
    down, right = x.shape[1], x.shape[2]
    largest = lowest[:, 0:down:2, 0:right:2]
    for i in range(3):
        for j in range(3):
            largest = xp.maximum(largest, lowest[:, i : i + down : 2, j : j + right : 2])
    return largest


def _views(xp: Any, x: Array, kernel: int, stride: int) -> Array:
    """Inputs of every kernel position: [B, H, W, C] -> [B, H', W', kernel * kernel * C]."""
    down, right = (size - kernel + 1 for size in x.shape[1:3])
    seen = [x[:, i : i + down : stride, j : j + right : stride] for i in range(kernel) for j in range(kernel)]
    return xp.concatenate(seen, axis=-1)


def encode(xp: Any, node: Node, leaves: Mapping[str, Array], carry: Array | None) -> tuple[Array, Array | None]:
    """Return features [B, F] of scaled observations, and the new recurrent state [B, H]."""
    parts: list[Array] = []
    for leaf in node["leaves"]:
        seen = leaves[leaf["name"]]
        if leaf["tables"]:
            parts += [table[seen[:, c]] for c, table in enumerate(leaf["tables"])]
        else:
            parts.append(seen if leaf["picture"] is None else picture(xp, leaf["picture"], seen))
    features = parts[0] if len(parts) == 1 else xp.concatenate(parts, axis=-1)
    if node["gru"] is None:
        return features, None
    carried = gru(xp, node["gru"], carry, features)
    return carried, carried


# Policies from a recipe's nodes, one function for each kind of policy.
#
# `xp` is NumPy, or `jax.numpy` where the same lines are traced for ONNX. Continuous actions are in [-1, 1]. `noise`
# changes the deterministic action into a sample: standard normal numbers for a Gaussian, Gumbel numbers for choices,
# latents for candidates; zeros (for candidates: the recipe's own latents) give the deterministic action.
#
# Letters: `B` batch, `A` number of actions or action size, `C` candidates, `L` latent size, `K` rewards.


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
    parts: tuple[PolicyOutputs, ...] = ()  # of several choices, or of the parts of an action


def likely(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the most likely action of a network's distribution."""
    features, carry = encode(xp, node["encoder"], seen.leaves, seen.carry)
    outputs = HEADS[node["head"]["kind"]](xp, node["head"], mlp(xp, node["trunk"], features), seen, node["epsilon"])
    return outputs if carry is None else outputs._replace(carry=carry)


def logits(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """One choice; with an epsilon, sampling draws with this probability and otherwise takes the most likely one."""
    scores = _allowed(xp, linear(node["linear"], features), seen.mask)
    best, chances = scores.argmax(axis=-1), softmax(xp, scores)
    if epsilon is not None:
        chances = epsilon * chances + (1.0 - epsilon) * _only(xp, best, scores)
    return PolicyOutputs(_drawn(xp, best, chances, seen.noise), chances)


def several(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """Several choices at once, [B, M]."""
    scores, parts, start = linear(node["linear"], features), [], 0
    for size in node["sizes"]:
        part = scores[:, start : start + size]
        noise, chances = None if seen.noise is None else seen.noise[:, start : start + size], softmax(xp, part)
        parts.append(PolicyOutputs(_drawn(xp, xp.argmax(part, axis=-1), chances, noise), chances))
        start += size
    return PolicyOutputs(xp.stack([part.action for part in parts], axis=-1), parts=tuple(parts))


def joint(xp: Any, node: Node, features: Array, seen: PolicyInputs, epsilon: float | None) -> PolicyOutputs:
    """The parts of an action, as one row [B, W]; `noise` has that of every part, side by side."""
    parts, start = [], 0
    for head in node["parts"]:
        width = noise_width(head)
        noise = None if seen.noise is None or not width else seen.noise[:, start : start + width]
        parts.append(HEADS[head["kind"]](xp, head, features, seen._replace(mask=None, noise=noise), None))
        start += width
    rows = [part.action[:, None] if part.action.ndim == 1 else part.action for part in parts]
    return PolicyOutputs(xp.concatenate([row.astype(xp.float32) for row in rows], axis=-1), parts=tuple(parts))


def noise_width(head: Node) -> int:
    """Return how many numbers of noise a head reads in a row."""
    if head["kind"] == "joint":
        return sum(map(noise_width, head["parts"]))
    if head["kind"] == "several":
        return sum(head["sizes"])
    layer = {"logits": "linear", "gaussian": "mean"}.get(head["kind"])
    return 0 if layer is None else int(head[layer]["bias"].shape[0])


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

    outputs, codes = mlp(xp, node["generator"]["body"], with_features(encodings[0][0], latents)), node.get("codes")
    actions = xp.tanh(outputs) if codes is None else _generated(xp, outputs, codes)
    direction = mlp(xp, node["perturbation"]["body"], with_features(encodings[1][0], _inputs(xp, actions, codes)))
    actions = _moved(xp, actions, node["reach"] * xp.tanh(direction), codes)
    values = mlp(xp, node["critic"]["body"], with_features(encodings[2][0], _inputs(xp, actions, codes)))[..., 0]
    first = xp.arange(count)[:, None] == xp.argmax(values, axis=0)[None]
    action = xp.sum(xp.where(first[..., None], actions, 0.0), axis=0)
    return PolicyOutputs(
        action, carry=None if seen.carry is None else xp.concatenate([c for _, c in encodings], axis=-1)
    )


def one_step(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the action [B, A] to which a one-step flow moves the noise, or without noise its origin."""
    features, _ = encode(xp, node["network"]["encoder"], seen.leaves, None)
    noise = node["origin"][None] if seen.noise is None else seen.noise
    noise = noise + xp.zeros((features.shape[0], 1), xp.float32)  # a sum, to broadcast one row in ONNX too
    moved = mlp(xp, node["network"]["body"], xp.concatenate([features, noise], axis=-1))
    return PolicyOutputs(xp.clip(moved, -1.0, 1.0))


def _generated(xp: Any, outputs: Array, codes: list[int]) -> Array:
    """Return actions [..., W]: the most likely of `codes` of each number, and numbers within [-1, 1] where it is 0."""
    columns, start = [], 0
    for n in codes:
        part = outputs[..., start : start + (n or 1)]
        columns.append(xp.argmax(part, axis=-1)[..., None].astype(xp.float32) if n else xp.tanh(part))
        start += n or 1
    return xp.concatenate(columns, axis=-1)


def _inputs(xp: Any, actions: Array, codes: list[int] | None) -> Array:
    """Return actions [..., W] as a network reads them: codes one-hot."""
    if codes is None:
        return actions
    columns = [
        (actions[..., i : i + 1] == xp.arange(n).astype(xp.float32)).astype(xp.float32)
        if n
        else actions[..., i : i + 1]
        for i, n in enumerate(codes)
    ]
    return xp.concatenate(columns, axis=-1)


def _moved(xp: Any, actions: Array, steps: Array, codes: list[int] | None) -> Array:
    """Return actions [..., W] whose continuous numbers are moved by steps [..., A] within [-1, 1]."""
    if codes is None:
        return xp.clip(actions + steps, -1.0, 1.0)
    columns, at = [], 0
    for i, n in enumerate(codes):
        own = actions[..., i : i + 1]
        columns.append(own if n else xp.clip(own + steps[..., at : at + 1], -1.0, 1.0))
        at += 0 if n else 1
    return xp.concatenate(columns, axis=-1)


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


def part(xp: Any, node: Node, seen: PolicyInputs) -> PolicyOutputs:
    """Return the policy's action where the present practice is likely enough to take it, else one more action."""
    mask = None if seen.mask is None else seen.mask[:, :-1] | ~xp.any(seen.mask[:, :-1], axis=-1, keepdims=True)
    own = KINDS[node["policy"]["kind"]](xp, node["policy"], PolicyInputs(seen.leaves, mask, seen.carry))
    chances: Array = own.probabilities if node["sampled"] else _only(xp, own.action, own.probabilities)
    follows = node["share"] + 0.0 * chances[:, :1]
    if seen.mask is not None:  # where none of its actions is allowed, the present practice is
        follows = xp.where(xp.any(seen.mask[:, :-1], axis=-1, keepdims=True), follows, 0.0)
    if node["practice"] is not None:
        scales = {one["name"]: one for one in node["rescaled"]}
        leaves = {n: x * scales[n]["scale"] + scales[n]["shift"] if n in scales else x for n, x in seen.leaves.items()}
        usual: Array = likely(xp, node["practice"], PolicyInputs(leaves, mask)).probabilities
        ratio = xp.max(chances / xp.maximum(usual, LEAST_CHANCE), axis=-1, keepdims=True)
        follows = xp.where(ratio <= node["largest_ratio"], follows, 0.0)
    chances = xp.concatenate([follows * chances, 1.0 - follows], axis=-1)
    return PolicyOutputs(_drawn(xp, xp.argmax(chances, axis=-1), chances, seen.noise), chances, carry=own.carry)


CANDIDATES = ("candidates", "mixed_candidates")  # kinds: of continuous actions, and of actions with parts
LEAST_CHANCE = 1e-12  # of the present practice, as a divisor
Kind = Callable[[Any, Node, PolicyInputs], PolicyOutputs]
KINDS: Mapping[str, Kind] = {
    "likely": likely,
    "supported": supported,
    "greedy": greedy,
    "candidates": candidates,
    "mixed_candidates": candidates,
    "one_step": one_step,
    "part": part,
}
HEADS: Mapping[str, Callable[[Any, Node, Array, PolicyInputs, float | None], PolicyOutputs]] = {
    "logits": logits,
    "several": several,
    "gaussian": gaussian,
    "point": point,
    "joint": joint,
}


def _allowed(xp: Any, values: Array, mask: Array | None) -> Array:
    return values if mask is None else xp.where(mask, values, -xp.inf)


def softmax(xp: Any, scores: Array) -> Array:
    """Return probabilities along the last axis."""
    raised = xp.exp(scores - scores.max(axis=-1, keepdims=True))
    return raised / raised.sum(axis=-1, keepdims=True)


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


# A recipe: the computation of a policy's actions, as plain nodes with named arrays. Unknown nodes are refused.
#
# In a manifest an array is `{"array": name}`; `restore_arrays` inserts the arrays of the weights file. Every other
# mapping is a node with a `kind`, and has exactly the fields of that kind.

NumpyArray = np.ndarray[Any, Any]
Recipe = Mapping[str, Any]

FIELDS: Mapping[str, frozenset[str]] = {
    kind: frozenset(fields.split())
    for kind, fields in {
        "recipe": "act values carry",
        "likely": "encoder trunk head epsilon",
        "supported": "critic imitator threshold epsilon",
        "greedy": "values epsilon",
        "candidates": "generator perturbation critic latents clip reach",
        "mixed_candidates": "generator perturbation critic latents clip reach codes",
        "one_step": "network origin",
        "part": "policy practice rescaled largest_ratio share sampled",
        "affine": "name scale shift",
        "smallest": "critics weights",
        "imitator": "encoder trunk head",
        "network": "encoder body",
        "ranking": "catalogue encoder repeats critic generation threshold history width q_weight repeat_share",
        "repeats": "age event gate match length",
        "catalogue": "weight bias tower features",
        "counted_catalogue": "weight bias tower features successors",
        "successors": "items counts totals trust event gate",
        "history_encoder": "events empty body norm profile",
        "user_encoder": "events empty body norm profile users",
        "mean": "linear",
        "recurrent": "unit linear",
        "attention": "positions blocks",
        "attention_block": "before queries keys values out between wide narrow heads",
        "pair": "state item body",
        "generation": "outward perturbation phi latents",
        "encoder": "leaves gru",
        "leaf": "name tables picture",
        "picture": "layers dense",
        "convolution": "weight bias kernel stride",
        "stack": "first blocks",
        "block": "first second",
        "gru": "inward recurrent bias candidate_bias",
        "mlp": "layers norms activation activate_last",
        "linear": "weight bias",
        "norm": "scale shift",
        "logits": "linear",
        "several": "linear sizes",
        "gaussian": "mean log_std squashed range",
        "point": "mean",
        "joint": "parts",
    }.items()
}


def _number(least: float, most: float) -> Callable[[Any], bool]:
    return lambda value: type(value) in (int, float) and least <= value <= most


def _whole(least: int, most: int) -> Callable[[Any], bool]:
    return lambda value: type(value) is int and least <= value <= most


def _array(dimensions: int) -> Callable[[Any], bool]:
    return lambda value: isinstance(value, np.ndarray) and value.dtype == np.float32 and value.ndim == dimensions


def _numbers(value: Any) -> bool:
    return isinstance(value, list) and all(_number(-1e9, 1e9)(one) for one in value) and len(value) > 0


VALUES: Mapping[str, Callable[[Any], bool]] = {  # checks of fields that are neither nodes nor lists of nodes
    **dict.fromkeys(("weight", "inward", "recurrent", "latents", "events", "positions", "match", "counts"), _array(2)),
    **dict.fromkeys(
        ("bias", "candidate_bias", "scale", "shift", "empty", "age", "event", "gate", "totals", "trust", "origin"),
        _array(1),
    ),
    "items": lambda value: isinstance(value, np.ndarray) and value.dtype == np.int32 and value.ndim == 2,
    **dict.fromkeys(("kernel", "stride", "heads"), _whole(1, 64)),
    **dict.fromkeys(("history", "width", "length"), _whole(1, 1 << 14)),
    **dict.fromkeys(("activate_last", "squashed", "sampled"), lambda value: type(value) is bool),
    **dict.fromkeys(("clip", "reach", "phi", "q_weight"), _number(0.0, 1e9)),
    "largest_ratio": _number(0.0, 1e300),
    "activation": lambda value: isinstance(value, str) and value in ACTIVATIONS,
    "carry": _whole(0, 1 << 20),
    "epsilon": lambda value: value is None or _number(0.0, 1.0)(value),
    "users": _array(2),
    **dict.fromkeys(("profile", "features"), lambda value: value is None or _array(2)(value)),
    "log_std": lambda value: isinstance(value, Mapping) or _array(1)(value),
    "name": lambda value: isinstance(value, str),
    "range": lambda value: _numbers(value) and len(value) == 2,
    "sizes": lambda value: isinstance(value, list) and all(_whole(1, 1 << 20)(one) for one in value) and len(value) > 0,
    "tables": lambda value: isinstance(value, list) and all(_array(2)(one) for one in value),
    **dict.fromkeys(("threshold", "repeat_share", "share"), _number(0.0, 1.0)),
    "weights": lambda value: value is None or _numbers(value),
    "codes": lambda value: isinstance(value, list) and all(_whole(0, 1 << 24)(one) for one in value) and len(value) > 0,
}


class SampleNoise(NamedTuple):
    """The noise of a policy's samples: `shape` of a row, or for candidates of the whole array."""

    kind: str  # "gumbel", "normal", "latents", or "joint": `parts` side by side
    shape: tuple[int, ...]
    clip: float = math.inf  # limit of latents
    parts: tuple[SampleNoise, ...] = ()

    @property
    def words(self) -> str:
        """What its numbers are."""
        if self.kind == "joint":
            return ", then ".join(f"{one.shape[0]} {one.words}" for one in self.parts)
        kind = "standard Gumbel" if self.kind == "gumbel" else "standard normal"
        return f"{kind} clipped at {self.clip:g}" if self.kind == "latents" else kind


def noise_of(recipe: Recipe, spec: Spec) -> SampleNoise | None:
    """Return the noise of a recipe's policy, or None."""
    act, space = recipe["act"], spec.action
    if act["kind"] in CANDIDATES:
        return SampleNoise("latents", tuple(act["latents"].shape), act["clip"])
    if act["kind"] == "one_step":
        return SampleNoise("normal", tuple(act["origin"].shape))
    if isinstance(space, Hybrid):
        heads = [head for head in act["head"]["parts"] if noise_width(head)]
        parts = [SampleNoise("normal" if h["kind"] == "gaussian" else "gumbel", (noise_width(h),)) for h in heads]
        return SampleNoise("joint", (sum(one.shape[0] for one in parts),), parts=tuple(parts)) if parts else None
    if isinstance(space, Continuous):
        return SampleNoise("normal", (space.size,)) if act["head"]["kind"] == "gaussian" else None
    return SampleNoise("gumbel", (space.n if isinstance(space, Discrete) else sum(space.sizes),))


def no_noise(recipe: Recipe, noise: SampleNoise) -> NumpyArray:
    """Return the noise of the most likely action, of one row: zeros, the origin of a one-step flow, or for candidates
    their own latents [C, 1, L].
    """
    if recipe["act"]["kind"] == "one_step":
        return np.asarray(recipe["act"]["origin"], np.float32)[None]
    if noise.kind == "latents":
        return np.asarray(recipe["act"]["latents"], np.float32)[:, None]
    return np.zeros((1, *noise.shape), np.float32)


def restore_arrays(node: Any, arrays: Mapping[str, NumpyArray], where: str) -> Any:
    """Return a node of a manifest with its arrays; CheckpointError names an unknown part."""
    if isinstance(node, list):
        return [restore_arrays(item, arrays, where) for item in node]
    if not isinstance(node, Mapping):
        return node
    if set(node) == {"array"}:
        if str(node["array"]) not in arrays:
            raise CheckpointError(
                f"{where} needs the array {node['array']!r}, not in the weights", fix="export the policy again"
            )
        return arrays[str(node["array"])]
    kind = str(node.get("kind"))
    if kind not in FIELDS:
        raise CheckpointError(
            f"{where} has a node of the unknown kind '{kind}': {nearest(kind, FIELDS)}", fix="export the policy again"
        )
    for field in FIELDS[kind].symmetric_difference(set(node) - {"kind"}):
        problem = "has no field" if field in FIELDS[kind] else "has the unknown field"
        raise CheckpointError(f"{where}: a node of kind '{kind}' {problem} '{field}'", fix="export it again")
    fields = {name: value if name == "kind" else restore_arrays(value, arrays, where) for name, value in node.items()}
    for name, value in fields.items():
        if name in VALUES and not VALUES[name](value):
            raise CheckpointError(
                f"{where}: invalid '{name}' in a node of kind '{kind}': {node[name]!r:.80}", fix="export it again"
            )
    return fields
