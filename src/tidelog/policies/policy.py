"""The policy: NumPy in, NumPy out, raw observations in, actions in their own units out.

It holds an algorithm's acting part, the spec, and the scaler of the log that it was trained on. Letters: `B` batch,
`A` number of actions or action size.
"""

from __future__ import annotations

import dataclasses
import itertools
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms import algorithm_class
from tidelog.algorithms.core.hyperparameters import from_config
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError, ConfigError, SpecError
from tidelog.policies.export.manifest import contents
from tidelog.policies.named_arrays import fill
from tidelog.recommend.policy.ranker import ranker
from tidelog.runtime.artefact_files import Saved, write
from tidelog.runtime.memory import Memory, carried
from tidelog.runtime.observations import Intake, read_action, read_mask, read_observation
from tidelog.runtime.ranking import Ranker
from tidelog.runtime.recommend import Recommendations, Vocabulary, recommend
from tidelog.types import Catalogue, Continuous, Discrete, Spec

NumpyArray = np.ndarray[Any, Any]


CHUNK = 16384  # rows in one call of a compiled program
SPARE = 1 << 24  # weights of networks that learning has and acting has not

# Compiled once for each kind of algorithm and batch size; all take (algorithm, acting, leaves, mask, action, key,
# carry) and return a result and what is carried on.


@eqx.filter_jit
def _mode(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: None, carry: Any) -> Any:
    act = algorithm.act(params, leaves, mask=mask, carry=carry)
    return act.action, act.carry


@eqx.filter_jit
def _sample(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: Any, carry: Any) -> Any:
    act = algorithm.act(params, leaves, mask=mask, key=key, carry=carry)
    return act.action, act.carry


@eqx.filter_jit
def _probabilities(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: None, carry: Any) -> Any:
    return algorithm.distribution(params, leaves, mask, carry).probabilities(), None


@eqx.filter_jit
def _log_probability(algorithm: Any, params: Any, leaves: Any, mask: Any, action: Any, key: None, carry: Any) -> Any:
    policy = algorithm.distribution(params, leaves, mask, carry)
    return (None if policy is None else policy.log_probability(action)), None


@eqx.filter_jit
def _q_values(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: None, carry: None) -> Any:
    return algorithm.q_values(params, leaves), None


class Policy:
    """Acts on raw observations: one, a batch, a mapping by name, or a data frame."""

    def __init__(
        self, algorithm: Any, spec: Spec, scaler: Scaler, params: Any, origin: Mapping[str, Any] | None = None
    ) -> None:
        self.algorithm = algorithm
        self.spec = spec
        self.scaler = scaler
        self.params = params
        self.origin = dict(origin or {})
        self.is_recurrent = (
            algorithm.start(params, 1) is not None
        )  # then `start` makes a memory, and every step takes it
        self._numbers = jax.tree.map(jnp.float32, algorithm)

    def start(self, count: int = 1) -> Memory:
        """A memory for `count` episodes side by side, at their start; SpecError where the policy has none."""
        carry = self.algorithm.start(self.params, count)
        if carry is None:
            raise SpecError(f"this {type(self.algorithm).__name__} policy has no memory: call it without one")
        return Memory(np.array(carry))

    def __call__(self, observation: Any, mask: Any = None, memory: Memory | None = None) -> NumpyArray:
        """The deterministic action of one observation, or actions [B, ...] of a batch; `mask` [A] or [B, A] bool.

        A policy with a memory is given one from `start` at every step of an episode, and moves it on.
        """
        intake = self._read(observation, mask)
        return self._give(self._apply(_mode, intake, memory), intake)

    def sample(self, observation: Any, seed: int = 0, mask: Any = None, memory: Memory | None = None) -> NumpyArray:
        """Random actions of the stochastic policy; the same seed and observations give the same actions."""
        return self.sample_with_propensity(observation, seed, mask, memory)[0]

    def sample_with_propensity(
        self, observation: Any, seed: int = 0, mask: Any = None, memory: Memory | None = None
    ) -> tuple[NumpyArray, NumpyArray | None]:
        """Random actions, and their probability or density [B] in the actions' own units (None without a density).

        Continuous samples are cut at the bounds; the density given is the uncut Gaussian's at the executed action.
        """
        intake = self._read(observation, mask)
        before = None if memory is None else Memory(memory.carry)
        given = self._give(self._apply(_sample, intake, memory, seed=seed), intake)
        likely = self._log_density(intake, given, before)
        return given, None if likely is None else _unbatched(np.exp(likely), intake)

    def probabilities(self, observation: Any, mask: Any = None, memory: Memory | None = None) -> NumpyArray:
        """Probabilities [A] or [B, A] of discrete actions when sampling; SpecError for continuous ones."""
        if not isinstance(self.spec.action, Discrete):
            raise SpecError("probabilities are for discrete actions: use log_probability(observation, action)")
        intake = self._read(observation, mask)
        return _unbatched(self._apply(_probabilities, intake, memory), intake)

    def log_probability(
        self, observation: Any, action: Any, mask: Any = None, memory: Memory | None = None
    ) -> NumpyArray | None:
        """Log-probability (or log-density, in the actions' own units) of given actions; None without a density."""
        intake = self._read(observation, mask)
        result = self._log_density(intake, action, memory)
        return None if result is None else _unbatched(result, intake)

    def _log_density(self, intake: Intake, action: Any, memory: Memory | None) -> Any:
        space = self.spec.action
        result = self._apply(_log_probability, intake, memory, read_action(intake, action, self.spec))
        if result is None:
            return None
        return result - (space.log_volume() if isinstance(space, Continuous) else 0.0)

    def q_values(self, observation: Any) -> NumpyArray:
        """The critic's values [A] or [B, A] of discrete actions, in scaled rewards; SpecError where there are none."""
        intake = self._read(observation, None)
        values = self._apply(_q_values, intake, None if not self.is_recurrent else self.start(intake.size))
        if values is None:
            raise SpecError(
                f"{type(self.algorithm).__name__} with {type(self.spec.action).__name__} actions rates no actions"
            )
        return _unbatched(values, intake)

    def recommend(
        self,
        histories: Any,
        k: int = 10,
        exclude_seen: bool = True,
        candidates: Any = None,
        exclude: Any = None,
        *,
        events: Any = None,
        users: Any = None,
        unknown: str = "error",
    ) -> Recommendations:
        """The best `k` items after each history, a list of item ids, the latest last; [] is a user without one.

        `exclude_seen` leaves out what a history holds; `candidates` are the only items to choose among, `exclude` are
        never chosen; `events` lists the kind of each step (default: the most frequent one); `users` is a mapping a
        history, from columns of the user features to values (None: nothing is known). The same input gives the same
        lists. SpecError where fewer than `k` items remain, or an id or a word is not known (`unknown="skip"` passes
        over it in histories and users).
        """
        return recommend(
            self._ranker, self._vocabulary, histories, k, exclude_seen, candidates, exclude, events, users, unknown
        )

    def ranker(self, supervised: bool = False) -> Ranker:
        """What ranks item indices; `supervised`: by likelihood alone. SpecError where the policy ranks no items."""
        Vocabulary(self.spec)
        return ranker(self.algorithm, self.params, supervised)

    @cached_property
    def _ranker(self) -> Ranker:
        return self.ranker()

    @cached_property
    def _vocabulary(self) -> Vocabulary:
        return Vocabulary(self.spec)

    def _apply(
        self,
        function: Any,
        intake: Intake,
        memory: Memory | None,
        action: NumpyArray | None = None,
        seed: int | None = None,
    ) -> Any:
        """Run a compiled function over at most `CHUNK` rows at a time, cut the padding off, move the memory on."""
        if seed is not None and not (isinstance(seed, int | np.integer) and 0 <= seed < 2**32):
            raise SpecError(f"seed = {seed!r}: expected a whole number from 0 to {2**32 - 1:,}")
        carry = self._carried(intake, memory)
        parts, carries = [], []
        for i, start in enumerate(range(0, intake.size + intake.padding, CHUNK)):
            rows = slice(start, start + CHUNK)
            leaves = {name: leaf[rows] for name, leaf in intake.leaves.items()}
            mask, given, state = (None if x is None else x[rows] for x in (intake.mask, action, carry))
            key = None if seed is None else jax.random.fold_in(jax.random.key(seed), i)
            part, moved = function(self._numbers, self.params, leaves, mask, given, key, state)
            parts.append(part)
            carries.append(moved)
        if memory is not None and carries[0] is not None:
            memory.carry = np.concatenate([np.asarray(moved) for moved in carries])[: intake.size]
        return None if parts[0] is None else np.concatenate([np.asarray(part) for part in parts])[: intake.size]

    def _carried(self, intake: Intake, memory: Memory | None) -> NumpyArray | None:
        carry = carried(memory, intake.size, self.is_recurrent)
        return None if carry is None else np.concatenate([carry, np.repeat(carry[-1:], intake.padding, axis=0)])

    def _read(self, observation: Any, mask: Any) -> Intake:
        if isinstance(self.spec.action, Catalogue):
            raise SpecError("this policy ranks items of a catalogue: call policy.recommend(histories, k)")
        intake = read_observation(observation, self.spec)
        return read_mask(intake._replace(leaves=self.scaler.observation(intake.leaves)), mask, self.spec)

    def _give(self, action: Any, intake: Intake) -> NumpyArray:
        raw = np.asarray(action)
        if isinstance(self.spec.action, Continuous):
            raw = self.spec.action.executed(raw).astype(np.float32)
        return _unbatched(raw, intake)

    def save(self, path: str | Path) -> Path:
        """Write the policy as a folder, or as one file where the path ends in .zip; replaces an older policy there.

        It holds weights, a manifest and checksums; `tl.export` adds ONNX and the record of parity.
        """
        target = Path(path)
        write(target, *contents(self))
        return target


def load_policy(path: str | Path, algorithm: Any = None) -> Policy:
    """Read a saved policy; `algorithm` only where it was made with parts of your own.

    Raises CheckpointError where the folder or zip is missing, foreign, changed or cut.
    """
    saved = Saved(path)
    manifest, spec, arrays = saved.manifest, saved.spec, saved.arrays()
    _ = saved.scales  # refused where they do not fit the spec
    try:
        made_by = algorithm or from_config(algorithm_class(manifest["algorithm"]), manifest["config"])
        scaler, origin = Scaler.from_json(manifest["scaler"]), dict(manifest["origin"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError):
            raise
        raise CheckpointError(f"{saved.where} is not what a policy needs: {json.dumps(str(error))}") from error
    if algorithm is None:
        _check_widths(made_by, sum(array.size for array in arrays.values()), saved.where)
    try:
        template = made_by.policy_params(made_by.init(spec, jax.random.key(0), 1))
    except (MemoryError, OverflowError) as error:
        raise CheckpointError(f"{saved.where} speaks of networks that its weights were not made for") from error
    return Policy(made_by, spec, scaler, fill(template, arrays, str(path)), origin)


def _check_widths(algorithm: Any, weights: int, where: str) -> None:
    """Raise CheckpointError where layers beside each other would hold far more weights than there are."""
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        widths = value if isinstance(value, tuple) and all(type(one) is int for one in value) else ()
        if any(one * two > weights + SPARE for one, two in itertools.pairwise(widths)):
            raise CheckpointError(
                f"{where}: {field.name} = {list(value)} speaks of networks that {weights:,} weights were not made for"
            )


def _unbatched(values: NumpyArray, intake: Intake) -> NumpyArray:
    return values[0] if intake.single else values
