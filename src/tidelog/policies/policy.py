"""The policy: raw observations in, actions in their own units out, as NumPy arrays; loading and saving.

It holds an algorithm's acting parameters, the spec, and the scaler of its training log. Letters: `B` batch, `A` number
of actions or action size.
"""

from __future__ import annotations

import dataclasses
import hashlib
import itertools
import json
import platform
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any, TypeVar, cast

import equinox as eqx
import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load_file, save

from tidelog import hub
from tidelog._files import check_regular, write_json
from tidelog._text import count_of
from tidelog.algorithms.contract import Portable, without_scale
from tidelog.algorithms.hyperparameters import from_config, to_config
from tidelog.algorithms.names import PART, algorithm_class, algorithm_name
from tidelog.algorithms.part import PolicyPart
from tidelog.algorithms.short_form import discount_of
from tidelog.data.statistics import Scaler, ValueUnit
from tidelog.errors import CheckpointError, ConfigError, ExportError, SpecError
from tidelog.networks.layers import float32, fold_in, from_host, new_key
from tidelog.networks.recipe import named
from tidelog.recommend.ranking import ranker
from tidelog.runtime.artefact import WEIGHTS, SavedPolicy, spec_notes, write
from tidelog.runtime.observations import RawBatch, blank, read_action, read_mask, read_observation
from tidelog.runtime.policy import RecurrentState, as_written, carry_of, unbatched
from tidelog.runtime.ranking import Ranker
from tidelog.runtime.recommender import Profiles, Recommends
from tidelog.runtime.rule import Rule, is_rule_file, load_rule
from tidelog.runtime.way_of_acting import Acting, BasePolicy, P
from tidelog.schema import decode_file
from tidelog.types import Catalogue, Continuous, Discrete, Hybrid, Spec

# Pytrees as files of named arrays: safetensors, never pickle. The name of an array is its path in the pytree.

Tree = TypeVar("Tree")
Named = dict[str, np.ndarray[Any, Any]]


def named_arrays(tree: Any) -> Named:
    """Return every array of a pytree by its path; random keys as their data."""
    arrays = {}
    for path, leaf in jax.tree_util.tree_flatten_with_path(tree)[0]:
        if eqx.is_array(leaf):
            arrays[jax.tree_util.keystr(path)] = np.asarray(jax.random.key_data(leaf) if _is_key(leaf) else leaf)
    return arrays


def _is_key(leaf: Any) -> bool:
    return isinstance(leaf, jax.Array) and jnp.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def array_file(tree: Any) -> bytes:
    """Return a pytree's arrays as the content of a safetensors file."""
    return bytes(save({name: np.array(array, order="C") for name, array in named_arrays(tree).items()}))


def read_arrays(path: Path) -> Named:
    """Return the arrays of a safetensors file; CheckpointError for another file."""
    try:
        check_regular(path)
        return dict(load_file(path))
    except (SafetensorError, OSError, KeyError, ValueError) as error:
        raise CheckpointError(f"{path} is not a valid safetensors file: {error}", fix="save it again") from error


def fill(template: Tree, arrays: Mapping[str, np.ndarray[Any, Any]], where: str) -> Tree:
    """Replace the template's arrays by those of a file; CheckpointError unless names and shapes are equal."""
    paths, structure = jax.tree_util.tree_flatten_with_path(template)
    expected = {jax.tree_util.keystr(path) for path, leaf in paths if eqx.is_array(leaf)}
    if expected != set(arrays):
        different = sorted(expected.symmetric_difference(arrays))
        raise CheckpointError(
            f"{where} has {len(arrays)} arrays",
            f"{len(expected)} for this algorithm; first differences: {', '.join(different[:3])}",
            "pass the algorithm with the settings of this file",
        )
    leaves = []
    for path, leaf in paths:
        name = jax.tree_util.keystr(path)
        if name not in arrays:  # no array, such as an activation
            leaves.append(leaf)
            continue
        array, wanted = arrays[name], jax.random.key_data(leaf) if _is_key(leaf) else leaf
        if array.shape != wanted.shape or array.dtype != wanted.dtype:
            raise CheckpointError(
                f"{where}: {name} is {array.dtype}{list(array.shape)}",
                f"{wanted.dtype}{list(wanted.shape)}",
                "pass the algorithm with the settings of this file",
            )
        leaves.append(jax.random.wrap_key_data(from_host(array)) if _is_key(leaf) else from_host(array))
    filled: Tree = jax.tree_util.tree_unflatten(structure, leaves)
    return filled


def fingerprint(tree: Any) -> str:
    """Return the SHA-256 of names, types, shapes and bits of all arrays of a pytree."""
    digest = hashlib.sha256()
    for name, array in sorted(named_arrays(tree).items()):
        digest.update(f"{name}{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()


NumpyArray = np.ndarray[Any, Any]
CHUNK = 16384  # rows in one call of a compiled program
SPARE = 1 << 24  # allowance for weights that only training has
PACKAGES = ("tidelog", "jax", "equinox", "numpy")  # their versions are in the manifest

# Compiled once for each kind of algorithm and batch size; all have the arguments (algorithm, params, leaves, mask,
# action, key, carry) and return a result and the new recurrent state.


@eqx.filter_jit
def _act(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: Any, carry: Any) -> Any:
    act = algorithm.act(params, leaves, mask=mask, carry=carry, **({} if key is None else {"key": key}))
    return act.action, act.carry


@eqx.filter_jit
def _probabilities(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: None, carry: Any) -> Any:
    policy = algorithm.distribution(params, leaves, mask, carry)
    return (None if policy is None else policy.probabilities()), None


@eqx.filter_jit
def _log_probability(algorithm: Any, params: Any, leaves: Any, mask: Any, action: Any, key: None, carry: Any) -> Any:
    policy = algorithm.distribution(params, leaves, mask, carry)
    return (None if policy is None else policy.log_probability(action)), None


@eqx.filter_jit
def _q_values(algorithm: Any, params: Any, leaves: Any, mask: Any, action: Any, key: None, carry: None) -> Any:
    return algorithm.q_values(params, leaves, *(() if action is None else (action,))), None


@eqx.filter_jit
def _imitation_logits(algorithm: Any, params: Any, leaves: Any, mask: Any, action: None, key: None, carry: Any) -> Any:
    return algorithm.imitation_logits(params, leaves, carry), None


class Policy(BasePolicy, Recommends):
    """Acts on raw observations: one, a batch, a mapping by name, or a data frame.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> policy = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy()
        >>> observation = {"severity": 3, "strain": 1, "toxicity": 0, "hour": 8, "kidneys": "impaired"}
        >>> policy.probabilities(observation).shape
        (6,)
        >>> print(policy(observation, mask=[True, False, False, False, False, False]))
        none
    """

    def __init__(
        self,
        algorithm: Any,
        spec: Spec,
        scaler: Scaler,
        params: Any,
        origin: Mapping[str, Any] | None = None,
        acting: Acting | None = None,
        verdict: Mapping[str, Any] | None = None,
    ) -> None:
        self.algorithm = algorithm
        self.spec = spec
        self.scaler = scaler
        self.params = params
        self.origin = dict(origin or {})
        self._is_recurrent = algorithm.initial_state(params, 1) is not None
        self._numbers = jax.tree.map(lambda number: float32(np.asarray(number)), algorithm)
        self.declare(acting, verdict)

    @property
    def _learner(self) -> str:
        return repr(self.algorithm)

    @property
    def is_recurrent(self) -> bool:
        """Whether every call needs a recurrent state from `initial_state`."""
        return self._is_recurrent

    def notes(self) -> list[str]:
        """Return notes for the user about this policy, also the algorithm's `policy_notes(params, origin)`."""
        notes = list(getattr(self.algorithm, "policy_notes", lambda params, origin: [])(self.params, self.origin))
        refit, new = self.origin.get("refit"), self.origin.get("new_items")
        if new is not None:
            notes.insert(0, f"known by their features alone, because training never saw them: {count_of(new, 'item')}")
        return notes if refit is None or self.verdict is not None else [str(refit), *notes]

    def initial_state(self, count: int = 1) -> RecurrentState:
        """Return the state of `count` parallel episodes at their start; SpecError for a feed-forward policy."""
        carry = self.algorithm.initial_state(self.params, count)
        if carry is None:
            raise SpecError(
                f"this {type(self.algorithm).__name__} policy is feed-forward", fix="call it without a state"
            )
        return RecurrentState(np.array(carry))

    def act(
        self, observation: Any, seed: int | None = None, mask: Any = None, state: RecurrentState | None = None
    ) -> tuple[NumpyArray, NumpyArray | None]:
        """Return actions for programs, codes of discrete ones, and the propensities of a sample, else None.

        A sample needs a seed; without one, these are the most likely actions, whatever way of acting is declared.
        """
        inputs = self._read(observation, mask)
        if seed is None:
            return self._to_action(self._apply(_act, inputs, state), inputs), None
        before = None if state is None else RecurrentState(state.carry)
        action = self._to_action(self._apply(_act, inputs, state, seed=seed), inputs)
        likely = self._log_density(inputs, action, before)
        return action, None if likely is None else unbatched(np.exp(likely), inputs)

    def probabilities(self, observation: Any, mask: Any = None, state: RecurrentState | None = None) -> NumpyArray:
        """Return probabilities [A] or [B, A] of sampled discrete actions; SpecError for continuous actions."""
        if not isinstance(self.spec.action, Discrete):
            kind = type(self.spec.action).__name__
            raise SpecError(
                f"{kind} actions have no list of probabilities", fix="use log_probability(observation, action)"
            )
        inputs = self._read(observation, mask)
        probabilities = self._apply(_probabilities, inputs, state)
        if probabilities is None:
            raise SpecError(
                f"{type(self.algorithm).__name__} has no probabilities of actions",
                fix="give it a method `distribution`",
            )
        return unbatched(probabilities, inputs)

    def log_probability(
        self, observation: Any, action: Any, mask: Any = None, state: RecurrentState | None = None
    ) -> NumpyArray | None:
        """Return the log-probability (or log-density, in own units) of given actions; None without a density."""
        inputs = self._read(observation, mask)
        result = self._log_density(inputs, action, state)
        return None if result is None else unbatched(result, inputs)

    def _log_density(self, inputs: RawBatch, action: Any, state: RecurrentState | None) -> Any:
        space = self.spec.action
        result = self._apply(_log_probability, inputs, state, read_action(inputs, action, self.spec))
        if result is None:
            return None
        return result - (space.log_volume() if isinstance(space, Continuous | Hybrid) else 0.0)

    def q_values(self, observation: Any, action: Any = None) -> NumpyArray:
        """Return the critic's values [A] or [B, A] of discrete actions, or of chosen actions, one number or [B].

        Actions are as in `log_probability`; continuous ones must be chosen. Of several critics it is the smallest
        value; BCQ's is that of its first critic, which acting reads. They are in the unit of the log's rewards: a mean
        that training subtracted is added again (`Scaler.value_constant`). SpecError without values.

        Example:
            >>> log = tl.collect("point-mass", episodes=50, seed=0)
            >>> policy = tl.fit(tl.IQL(hidden=(16,)), log, steps=20).policy()
            >>> policy.q_values(log.transitions.observation, log.action).shape == (len(log.action),)
            True
        """
        inputs = self._read(observation, None)
        chosen = None if action is None else read_action(inputs, action, self.spec)
        state = self.initial_state(inputs.size) if self.is_recurrent else None
        values = self._apply(_q_values, inputs, state, chosen)
        if values is None:
            name = f"{type(self.algorithm).__name__} with {type(self.spec.action).__name__} actions"
            if self.is_recurrent:
                raise SpecError(f"{name} and recurrent networks has no Q-values", fix="use a feed-forward policy")
            if action is None and hasattr(self.params, "critic"):
                raise SpecError(f"{name} has no Q-values of all actions", fix="use q_values(observation, action)")
            raise SpecError(f"{name} has no Q-values", fix="use a policy with a critic")
        return unbatched(value_unit(self.algorithm, self.scaler)(values), inputs)

    def imitation_logits(self, observation: Any, state: RecurrentState | None = None) -> NumpyArray:
        """Return the logits [A] or [B, A] of the imitator of discrete BCQ; SpecError for every other policy.

        They are of all actions, before any mask; the recurrent state does not change.
        """
        if not hasattr(self.algorithm, "imitation_logits"):
            return super().imitation_logits(observation, state)
        inputs = self._read(observation, None)
        return unbatched(self._apply(_imitation_logits, inputs, state), inputs)

    def with_items(self, ids: Sequence[Any], features: Sequence[Mapping[str, Any]]) -> Policy:
        """Return a policy that also ranks new items: their ids, and for each a mapping from columns to values.

        The columns are those of the log's item features; a missing number counts as the mean, a missing word as none.
        Training never saw these items, which a note says. The vectors of the log's items do not change.
        SpecError for a policy without item features, an id that it knows or that is named twice, or an invalid value.
        """
        catalogue: Any = self.spec.action
        if not isinstance(catalogue, Catalogue) or catalogue.profile is None:
            raise SpecError(
                "this policy does not know how item features are read",
                fix="train it again with item features and content=True (--content)",
            )
        added = tuple(one.item() if isinstance(one, np.generic) else one for one in ids)
        kind = type(catalogue.ids[0])
        known = set(catalogue.ids)
        wrong = [one for i, one in enumerate(added) if type(one) is not kind or one in known or one in added[:i]]
        if wrong or not added:
            found = f"{wrong[0]!r:.80}" if wrong else "no item"
            raise SpecError(f"new items: {found}", f"new ids of type {kind.__name__}", "name each new item once")
        encoded = Profiles(catalogue.profile, "features", ("new item", "new items")).read(features, len(added))
        action: Any = dataclasses.replace(catalogue, ids=(*catalogue.ids, *added))
        spec = dataclasses.replace(self.spec, action=action)
        params = self.algorithm.with_new_items(self.params, encoded)
        more = len(added) + int(self.origin.get("new_items", 0))
        return Policy(self.algorithm, spec, self.scaler, params, {**self.origin, "new_items": more}, self.acting)

    def ranker(self, supervised: bool = False) -> Ranker:
        """Return a ranker of item indices; `supervised`: by likelihood only. SpecError for a policy without items."""
        return ranker(self.algorithm, self.params, self._vocabulary, supervised)

    def _apply(
        self,
        function: Any,
        inputs: RawBatch,
        state: RecurrentState | None,
        action: NumpyArray | None = None,
        seed: int | None = None,
    ) -> Any:
        """Run a compiled function over at most `CHUNK` rows at a time, remove the padding, update the state."""
        carry = carry_of(state, inputs.size, self.is_recurrent)
        if carry is not None:
            carry = np.concatenate([carry, np.repeat(carry[-1:], inputs.padding, axis=0)])
        parts, carries = [], []
        for i, start in enumerate(range(0, inputs.size + inputs.padding, CHUNK)):
            rows = slice(start, start + CHUNK)
            leaves = {name: leaf[rows] for name, leaf in inputs.leaves.items()}
            mask, logged, before = (None if x is None else x[rows] for x in (inputs.mask, action, carry))
            key = None if seed is None else fold_in(new_key(seed), i)
            part, after = function(self._numbers, self.params, leaves, mask, logged, key, before)
            parts.append(part)
            carries.append(after)
        if state is not None and carries[0] is not None:
            state.carry = np.concatenate([np.asarray(after) for after in carries])[: inputs.size]
        return None if parts[0] is None else np.concatenate([np.asarray(part) for part in parts])[: inputs.size]

    def _read(self, observation: Any, mask: Any) -> RawBatch:
        if isinstance(self.spec.action, Catalogue):
            raise SpecError("this policy ranks items of a catalogue", fix="call policy.recommend(histories, k)")
        inputs = read_observation(observation, self.spec)
        return read_mask(inputs._replace(leaves=self.scaler.observation(inputs.leaves)), mask, self.spec)

    def _to_action(self, action: Any, inputs: RawBatch) -> Any:
        raw = np.asarray(action)
        if isinstance(self.spec.action, Continuous | Hybrid):
            raw = self.spec.action.executed(raw).astype(np.float32)
        return as_written(self.spec.action, raw, inputs.single)

    def save(self, path: str | Path) -> Path:
        """Write the policy as a folder, or as one file where the path ends in .zip; an older policy there is replaced.

        It holds weights, a manifest and checksums; `tl.export` adds ONNX and the parity record.
        """
        target = Path(path)
        write(target, *artefact_contents(self))
        return target


def value_unit(algorithm: Any, scaler: Scaler) -> ValueUnit:
    """Return the unit of an algorithm's values of scaled rewards, in that of the log's rewards."""
    return scaler.value_unit(discount_of(algorithm), getattr(algorithm, "reward_weights", None))


def load_policy(path: str | Path, algorithm: Any = None, *, key: str | Path | None = None) -> Policy:
    """Read a saved policy: a folder, a zip, or an address on the Hugging Face Hub, `hf://user/name[@revision]`.

    The file of a simple rule gives a `Rule`, which has the calls of a policy that acts, and no signature.

    `algorithm` is needed only for custom modules; `key` is the public key that must have signed the policy. Raises
    CheckpointError where it is missing, of another kind, changed, incomplete, or not signed with this key.

    Example:
        >>> log = tl.collect("treatment", episodes=200, seed=0)
        >>> path = tl.fit(tl.BC(hidden=(16,)), log, steps=20).policy().save("policy")
        >>> tl.load_policy("policy").spec.action.n
        6
    """
    if is_rule_file(path):
        if key is not None:
            raise CheckpointError(f"{path} is not signed: it is the file of a rule", fix="drop the key")
        return cast("Policy", load_rule(path))
    return load_learnt_policy(path, algorithm, key=key)


def load_learnt_policy(path: str | Path, algorithm: Any = None, *, key: str | Path | None = None) -> Policy:
    """Read a saved policy that an algorithm learnt, as `load_policy`; CheckpointError for the file of a rule."""
    saved = SavedPolicy(hub.download(path) if isinstance(path, str) and hub.is_address(path) else path)
    if key is not None:
        saved.check_signature(Path(key))
    manifest, spec, arrays = saved.manifest, saved.spec, saved.arrays()
    _ = saved.scales  # raises where they do not match the spec
    try:
        name, config = manifest["algorithm"], manifest["config"]
        if name == PART:
            owner = PolicyPart.from_config(config, algorithm_class)
        else:
            owner = algorithm or from_config(algorithm_class(name), config)
        scaler, origin = Scaler.from_json(manifest["scaler"]), dict(manifest["origin"])
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        if isinstance(error, ConfigError) and error.fix:
            raise
        raise CheckpointError(
            f"{saved.where} has an invalid manifest: {json.dumps(str(error))}", fix="save the policy again"
        ) from error
    if algorithm is None:
        _check_widths(owner, sum(array.size for array in arrays.values()), saved.where)
    try:
        template, _ = without_scale(owner.policy_params(owner.init(spec, new_key(0), 1)), scaler)
    except (MemoryError, OverflowError) as error:
        raise CheckpointError(
            f"{saved.where} has a configuration of larger networks than its weights", fix="save the policy again"
        ) from error
    try:
        return Policy(
            owner,
            spec,
            scaler,
            fill(template, arrays, str(path)),
            origin,
            manifest.get("acting"),
            manifest.get("verdict"),
        )
    except ConfigError as error:
        raise CheckpointError(f"{saved.where}: {error.found}", error.expected, error.fix) from error


def _check_widths(algorithm: Any, weights: int, where: str) -> None:
    """Raise CheckpointError where two adjacent layers would hold far more weights than the file."""
    for field in dataclasses.fields(algorithm):
        value = getattr(algorithm, field.name)
        if dataclasses.is_dataclass(value):  # of a part
            _check_widths(value, weights, where)
        widths = value if isinstance(value, tuple) and all(type(one) is int for one in value) else ()
        if any(one * two > weights + SPARE for one, two in itertools.pairwise(widths)):
            raise CheckpointError(
                f"{where}: {field.name} = {list(value)} needs more than the {weights:,} weights",
                fix="save the policy again",
            )


# The content of a saved policy: weights, and a manifest to run it with JAX, with NumPy, or as ONNX.


def artefact_contents(policy: Any) -> tuple[dict[str, bytes], dict[str, Any]]:
    """Return the files of a policy and its manifest, without ONNX, parity and metrics.

    The manifest's recipe has names of arrays in place of the arrays; it is None for a custom module.
    """
    versions, notes = {name: metadata.version(name) for name in PACKAGES}, policy.notes()
    try:
        recipe = named(recipe_of(policy), policy.params)
    except ExportError:
        recipe = None
    of_part = isinstance(policy.algorithm, PolicyPart)
    manifest = {
        "algorithm": algorithm_name(policy.algorithm),
        "config": policy.algorithm.to_config(algorithm_name) if of_part else to_config(policy.algorithm),
        "spec": policy.spec.to_json(),
        "scaler": policy.scaler.to_json(),
        "values": value_unit(policy.algorithm, policy.scaler)._asdict(),
        **spec_notes(policy.spec),
        "origin": {**policy.origin, **({"notes": notes} if notes else {})},
        "acting": policy.acting,
        "verdict": policy.verdict,
        "metrics": None,
        "versions": {**versions, "python": platform.python_version()},
        "recipe": recipe,
        "onnx": None,
        "parity": None,
    }
    return {WEIGHTS: array_file(policy.params)}, manifest


def has_density(policy: Any, spec: Spec) -> bool:
    """Return whether a policy of continuous numbers samples them with a known density, asked for an observation of 0.

    False for other actions.
    """
    if not isinstance(spec.action, Continuous | Hybrid):
        return False
    action, state = np.asarray([spec.action.low], np.float32), policy.initial_state(1) if policy.is_recurrent else None
    seen = {name: blank(leaf) for name, leaf in spec.observation.items()}
    return policy.log_probability(seen, action, None, state) is not None


def has_probabilities(policy: Any) -> bool:
    """Return whether a policy of discrete actions samples them with known probabilities; False for other actions."""
    if not isinstance(policy.spec.action, Discrete):
        return False
    seen = {name: blank(leaf) for name, leaf in policy.spec.observation.items()}
    try:
        policy.probabilities(seen, None, policy.initial_state(1) if policy.is_recurrent else None)
    except SpecError:  # its algorithm has no distribution
        return False
    return True


def recipe_of(policy: Any) -> Mapping[str, Any]:
    """Return the acting computation as nodes with arrays; ExportError for custom modules."""
    if not isinstance(policy.algorithm, Portable | PolicyPart):
        raise ExportError(
            f"{type(policy.algorithm).__name__} has no recipe(), only the JAX runtime can run it", fix="add recipe()"
        )
    return policy.algorithm.recipe(policy.params)


# The declared ways of acting of a run's policies and rules, in one file of its folder, by their fingerprints.

FILE = "acting.json"
FIX = "remove it and judge the run again"


class ActingDeclaration(msgspec.Struct, forbid_unknown_fields=True):
    """The declared way of acting of some weights, and the summary of the verdict on it."""

    acting: Acting | None
    verdict: dict[str, Any] | None


def remember(folder: Path, policy: Policy | Rule) -> None:
    """Write the policy's way of acting and its verdict to the file of a run folder, atomically."""
    path = folder / FILE
    known = {**_read(path), _mark(policy): ActingDeclaration(policy.acting, policy.verdict)}
    write_json(path, msgspec.to_builtins(known))


def as_declared(folder: Path, policy: P) -> P:
    """Return the policy in the way of acting that the run folder has for it, unchanged if it has none."""
    path = folder / FILE
    entry = _read(path).get(_mark(policy))
    if entry is not None:
        try:
            policy.declare(entry.acting, entry.verdict)
        except ConfigError as error:
            raise CheckpointError(f"{path} is damaged: {error.problem}", fix=FIX) from error
    return policy


def _mark(policy: Any) -> str:
    """What a file knows a policy by: its weights, or the questions and actions of a rule."""
    return policy.fingerprint if isinstance(policy, Rule) else fingerprint(policy.params)


def _read(path: Path) -> dict[str, ActingDeclaration]:
    if not path.exists():
        return {}
    return decode_file(path, dict[str, ActingDeclaration], fix=FIX, where=f"{path} is damaged", nan=True)
