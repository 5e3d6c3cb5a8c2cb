"""Collection before each round: one compiled scan in functional environments, NumPy buffers in host environments.

The compiled loop calls `rollout`, the engine `Host.rollout`. Both return the same columns, segments first. Actions are
sampled in the units of the policy, and clipped to the bounds of the environment. Letters: `W` copies, `T` decisions of
each.
"""

from __future__ import annotations

import zipfile
import zlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple, TypeAlias

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog import _files
from tidelog.algorithms import contract
from tidelog.algorithms.contract import Counting
from tidelog.algorithms.segments import Columns
from tidelog.data.export import declared_space
from tidelog.data.log import Log
from tidelog.data.storage import LOG
from tidelog.envs.functional import Functional, HostedCopies, advance, begin, look
from tidelog.envs.protocol import BatchObservation, Environment, Outcome, Resumable, step_copies
from tidelog.envs.registry import is_one_object, make
from tidelog.errors import CheckpointError, ConfigError
from tidelog.losses.td import discounted
from tidelog.types import Codes, Continuous, Hybrid, Image, Leaf, Spec

# The decisions collected in training, as a log: pieces on disk during the run, one log at its end.
#
# Actions in the log are the executed actions. `extra["cut"]` marks actions that the bounds changed. The propensity is
# the density of the unclipped policy at the executed action (as everywhere in tidelog), if the policy has a density.
# Episodes that are unfinished at the end of the run are truncated. Letters: `W` copies, `T` decisions of each, `N`
# rows.

Named = dict[str, np.ndarray[Any, Any]]
LearnerState: TypeAlias = Any  # that of `loop`, which imports this module


class CollectedLog:
    """Store the rollouts of all members and write them as one log."""

    def __init__(self, target: str | Path, spec: Spec, members: int) -> None:
        self.target, self._spec, self._members = Path(target), spec, members
        self._pieces = self.target.with_name(f"{self.target.name}.pieces")

    def check_free(self) -> None:
        """Raise ConfigError if the target exists already."""
        for path in (self.target, self._pieces):
            if path.exists():
                raise ConfigError(f"{path} exists already; nothing was written", fix="choose another path for the log")

    def add(self, member: int, round: int, columns: Named, begins: bool) -> None:
        """Store one rollout, leaves [W, T, ...]; `begins`: every copy was reset before it.

        CheckpointError if the earlier rollouts are a finished log already, as when a run continues from a checkpoint
        before its end.
        """
        if round and not self._piece(member, round - 1).exists():
            raise CheckpointError(
                f"the earlier rollouts are in the finished log {self.target}, which cannot be extended",
                fix="start a new run with another log_out",
            )

        def save(path: Path) -> None:
            with _files.stream_to(path) as file:
                np.savez(file, begins=np.asarray(begins), **columns)  # type: ignore[arg-type]

        _files.write_file(self._piece(member, round), save, parents=True)

    def delete_after(self, rounds: int) -> None:
        """Delete all rollouts after the first `rounds`, the last ones first."""
        if self._pieces.is_dir():
            _files.tidy(self._pieces)
            for path in sorted(self._pieces.glob("*.npz"), reverse=True):
                if path.stem.partition("-")[2].isdecimal() and int(path.stem.partition("-")[2]) >= rounds:
                    _files.delete(path)

    def write(self, rounds: int) -> None:
        """Write the log, then delete the pieces; a log that was written before is not written again."""
        if not self._pieces.is_dir():
            return
        if LOG.is_at(self.target):  # the process ended before it deleted the pieces
            _files.delete(self._pieces)
            return
        rows = [self._rows(member, rounds) for member in range(self._members)]
        episodes = np.cumsum([0, *(int(r["episode"][-1]) + 1 for r in rows)])
        for first, r in zip(episodes, rows, strict=False):
            r["episode"] = r["episode"] + first
        self._log({name: np.concatenate([r[name] for r in rows]) for name in rows[0]}).save(self.target)
        _files.delete(self._pieces)

    def _piece(self, member: int, round: int) -> Path:
        return self._pieces / f"{member}-{round:08d}.npz"

    def _rows(self, member: int, rounds: int) -> Named:
        """Return all decisions of one member, copy after copy, each in order of time; leaves [N, ...]."""
        pieces = [_read(self._piece(member, round)) for round in range(rounds)]
        steps = pieces[0]["reward"].shape[1]
        begins = np.repeat([bool(piece.pop("begins")) for piece in pieces], steps) & (
            np.arange(rounds * steps) % steps == 0
        )
        columns = {name: np.concatenate([piece[name] for piece in pieces], axis=1) for name in pieces[0]}
        ended = columns["terminated"] | columns["truncated"]
        cut = np.append(begins[1:], True) & ~ended  # ended by the run, not by the environment
        columns["truncated"] = columns["truncated"] | cut
        ended = ended | cut
        valid = columns["valid"].reshape(-1)
        flat = {name: leaf.reshape(-1, *leaf.shape[2:])[valid] for name, leaf in columns.items()}
        ends = ended.reshape(-1)[valid]
        return flat | {"episode": np.cumsum(ends) - ends}

    def _log(self, rows: Named) -> Log:
        space, masked = self._spec.action, self._spec.masked
        action, extra = rows["action"], {}
        density = rows.get("executed_log_probability")  # None: the policy has none
        if density is not None and isinstance(space, Continuous | Hybrid):
            density = density - space.log_volume()  # in the units of the actions
        if isinstance(space, Continuous | Hybrid):
            cut = space.cut(action)
            extra["cut"] = (cut != action).any(axis=-1)
            action = space.executed(cut).astype(np.float32)
        return Log.from_arrays(
            observation=_leaves(rows, "observation"),
            next_observation=_leaves(rows, "following"),
            action=space.unpack(action) if isinstance(space, Hybrid) else action,
            reward=rows["reward"],
            terminated=rows["terminated"],
            truncated=rows["truncated"],
            episode=rows["episode"],
            propensity=None if density is None else np.exp(density),
            action_mask=rows["mask"] if masked else None,
            next_action_mask=rows["following_mask"] if masked else None,
            elapsed=rows.get("elapsed"),
            elapsed_unit=self._spec.elapsed_unit,
            extra=extra or None,
            **declared_space(space),
        )


def flat_columns(columns: dict[str, Any]) -> Named:
    """Return columns with flat names, as `observation/<leaf>`."""
    flat: Named = {}
    for name, value in columns.items():
        leaves = (
            {f"{name}/{leaf}": array for leaf, array in value.items()} if isinstance(value, dict) else {name: value}
        )
        flat |= {path: np.asarray(array) for path, array in leaves.items()}
    return flat


def _leaves(rows: Named, name: str) -> Named:
    return {path.split("/", 1)[1]: leaf for path, leaf in rows.items() if path.startswith(f"{name}/")}


def _read(path: Path) -> Named:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as content:
            return {name: content[name] for name in content.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, zlib.error) as error:
        raise CheckpointError(
            f"{path} is missing or damaged: {error}", fix="restore the file, or start a new run with another log_out"
        ) from error


RECORDED = (
    "observation", "action", "reward", "elapsed", "terminated", "truncated", "valid", "following", "mask",
    "following_mask", "executed_log_probability",
)  # fmt: skip
NEEDED = ("reward", "terminated", "truncated", "valid")  # the columns that count episodes


class EpisodeCarry(NamedTuple):
    """The recurrent state of a policy between decisions."""

    carry: Any  # leaves [W, ...]
    first: jax.Array  # [W] bool: copies whose next decision starts an episode, and which reset the carry


class CollectionState(NamedTuple):
    """The collection state of a learner: environment states of functional environments, and the current episodes."""

    env_states: Any  # leaves [W, ...], or None for a host environment
    sums: jax.Array  # [2 W]: the return so far of every copy, then the length so far of every copy
    decisions: jax.Array  # int32: decisions so far, in all copies
    rounds: jax.Array  # int32: rollouts so far
    carried: EpisodeCarry | None = None  # for recurrent policies


def initial_collection_state(
    source: Functional | None, count: int, key: jax.Array, carry: Any = None
) -> CollectionState:
    """Return the collection state before the first decision; `carry` is the initial state of a recurrent policy."""
    env_states = None if source is None else begin(source, count, key)
    carried = None if carry is None else EpisodeCarry(carry, jnp.ones(count, bool))
    return CollectionState(env_states, jnp.zeros(2 * count), jnp.int32(0), jnp.int32(0), carried)


# One decision of all copies.


def decide(
    algorithm: Any,
    params: Any,
    spec: Spec,
    observation: Any,
    mask: Any,
    key: jax.Array,
    recorded: bool,
    carried: EpisodeCarry | None = None,
) -> tuple[dict[str, Any], Any]:
    """Return sampled actions, executed actions, and the log-probabilities of both; leaves [W, ...].

    The log-probability of the executed action, `executed_log_probability`, is only for logs: it is the density of the
    unclipped policy. A policy without a density returns neither. A recurrent policy also returns its carry before this
    decision and which episodes begin; the second value is the carry after the decision.
    """
    begins, before = {}, None
    if carried is not None:
        before = _reset_carry(algorithm.initial_state(params, carried.first.shape[0]), carried)
        begins = {"carry": before, "first": carried.first}
    act = algorithm.act(params, observation, mask=mask, key=key, carry=before)
    row = {"action": act.action, "log_probability": act.log_probability, "executed": act.action}
    executed = act.log_probability
    if isinstance(spec.action, Continuous | Hybrid):
        cut = spec.action.cut(act.action)
        row["executed"] = spec.action.executed(cut)
        policy = algorithm.distribution(params, observation, mask, before) if recorded else None
        executed = None if policy is None else policy.log_probability(cut)
    row |= {"executed_log_probability": executed} if recorded else {}
    return {name: leaf for name, leaf in row.items() if leaf is not None} | begins, act.carry


def _reset_carry(start: Any, carried: EpisodeCarry) -> Any:
    """Return the carry, with the initial carry where an episode begins."""

    def one(fresh: jax.Array, carry: jax.Array) -> jax.Array:
        return jnp.where(carried.first.reshape(-1, *[1] * (carry.ndim - 1)), fresh, carry)

    return jax.tree.map(one, start, carried.carry)


def rollout(
    source: Functional,
    algorithm: Any,
    params: Any,
    collection_state: CollectionState,
    key: jax.Array,
    steps: int,
    names: Collection[str],
    num_chunks: int = 1,
) -> tuple[CollectionState, Columns]:
    """Take `steps` decisions in every copy of a functional environment; return its new state and columns [W, T, ...].

    The columns are those of `names` and those that count episodes. `carry` is the carry at the start of each of `P`
    pieces, [W, P, ...].
    """
    selected = {*names, *NEEDED}

    def one(now: tuple[Any, Any], key: jax.Array) -> tuple[Any, dict[str, Any]]:
        env_states, carried = now
        deciding, moving = jax.random.split(key)
        observation, mask = look(source, env_states)
        row, carry = decide(
            algorithm, params, source.spec, observation, mask, deciding, "executed_log_probability" in selected, carried
        )
        moved = advance(source, env_states, row.pop("executed"), moving)
        row |= {"observation": observation, "mask": mask, "reward": moved.reward, "terminated": moved.terminated}
        row |= {"truncated": moved.truncated, "valid": jnp.ones_like(moved.terminated)}
        row |= {"following": moved.next_observation, "following_mask": moved.next_mask, "elapsed": moved.elapsed}
        carried = None if carried is None else EpisodeCarry(carry, moved.terminated | moved.truncated)
        return (moved.world, carried), {
            name: leaf for name, leaf in row.items() if name in selected and leaf is not None
        }

    keys = jax.random.split(key, steps)
    (env_states, carried), rows = jax.lax.scan(one, (collection_state.env_states, collection_state.carried), keys)
    columns = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)
    return collection_state._replace(env_states=env_states, carried=carried), _into_chunks(columns, num_chunks)


def _into_chunks(columns: Columns, num_chunks: int) -> Columns:
    """Reduce the carry of every step to the carry at the start of each piece."""
    if "carry" not in columns:
        return columns
    into = jax.tree.map(lambda leaf: leaf[:, :: leaf.shape[1] // num_chunks], columns["carry"])
    return columns | {"carry": into}


def shapes(algorithm: Any, params: Any, spec: Spec, collection: contract.Collection, recorded: bool) -> Columns:
    """Return the columns of a rollout as shapes [W, T, ...] and types, for any kind of environment."""
    count, steps = collection.num_envs, collection.steps
    observation = {name: _blank(leaf, count) for name, leaf in spec.observation.items()}
    mask = jnp.ones((count, spec.action.n), bool) if spec.masked else None  # type: ignore[union-attr]
    carried = initial_collection_state(None, count, jax.random.key(0), algorithm.initial_state(params, count)).carried
    row, _ = jax.eval_shape(
        lambda: decide(algorithm, params, spec, observation, mask, jax.random.key(0), recorded, carried)
    )
    row.pop("executed")
    carry = row.pop("carry", {})
    flag = jnp.zeros(count, bool)
    row |= {"observation": observation, "following": observation, "reward": jnp.zeros(count)}
    row |= dict.fromkeys(("terminated", "truncated", "valid"), flag)
    row |= {} if mask is None else {"mask": mask, "following_mask": mask}
    row |= {} if spec.elapsed_unit is None else {"elapsed": jnp.zeros(count)}
    columns = {
        name: jax.tree.map(lambda leaf: shape_of(leaf, count, steps, *leaf.shape[1:]), row[name]) for name in row
    }
    into = jax.tree.map(lambda leaf: shape_of(leaf, count, collection.num_chunks, *leaf.shape[1:]), carry)
    return columns | ({} if carried is None else {"carry": into})


def shape_of(leaf: Any, *shape: int) -> Any:
    """Return a shape with the type of a leaf, without values."""
    return jax.ShapeDtypeStruct(shape, leaf.dtype)  # type: ignore[no-untyped-call]


def _blank(leaf: Leaf, count: int) -> jax.Array:
    if isinstance(leaf, Image):
        return jnp.zeros((count, leaf.height, leaf.width, leaf.channels), jnp.uint8)
    return jnp.zeros((count, len(leaf.sizes)), jnp.int32) if isinstance(leaf, Codes) else jnp.zeros((count, leaf.size))


def count_episodes(
    collection_state: CollectionState, columns: Columns
) -> tuple[CollectionState, dict[str, jax.Array], jax.Array]:
    """Return the collection state after a rollout, sums over the episodes that ended in it, and their number."""
    ended = (columns["terminated"] | columns["truncated"]) & columns["valid"]
    reward, valid = columns["reward"], columns["valid"]
    both = jnp.concatenate([reward, jnp.ones_like(reward)])
    ends, counts = (jnp.concatenate([flags, flags]) for flags in (ended, valid))
    running, sums = discounted(collection_state.sums, both, ends, counts, 1.0)
    complete = jnp.where(ends, running, 0.0)
    count = reward.shape[0]
    totals = {"return": jnp.sum(complete[:count]), "length": jnp.sum(complete[count:])}
    decisions = collection_state.decisions + jnp.sum(valid, dtype=jnp.int32)
    after = collection_state._replace(sums=sums, decisions=decisions, rounds=collection_state.rounds + 1)
    return after, totals, jnp.sum(ended, dtype=jnp.int32)


def collection_key(key: jax.Array, round: jax.Array | int) -> jax.Array:
    """Return the key of the decisions of a round; it differs from all keys of updates."""
    return jax.random.fold_in(jax.random.fold_in(key, 2**31 - 2), round)


class Host:
    """A host environment with its current observation: one compiled call per step, one transfer per rollout."""

    def __init__(self, environment: Environment, seed: int, recorded: bool) -> None:
        self.environment, self._recorded, self._seed = environment, recorded, seed
        self._observed: BatchObservation | None = None
        self._act: Any = None
        self.before: Named | None = None  # the state before the last rollout, which may fail here or in another member
        self.was_reset = False  # whether the last rollout reset every copy first

    def rollout(
        self,
        algorithm: Any,
        params: Any,
        key: jax.Array,
        round: int,
        steps: int,
        carried: EpisodeCarry | None = None,
        num_chunks: int = 1,
    ) -> tuple[Columns, EpisodeCarry | None]:
        """Take `steps` decisions in every copy; return columns [W, T, ...] as NumPy arrays, and the new carry.

        Steps in which a copy only resets are included; with a single copy they are left out and not counted. Raises
        EnvironmentFailure.
        """
        observed = self._begin(round)
        arrays, fixed = eqx.partition((algorithm, params), eqx.is_array)
        leaves, form = jax.tree.flatten(arrays)  # once per rollout, not in each call
        if self._act is None:
            self._act = _decider(form, fixed, self.environment.spec, self._recorded)
        if carried is not None and self.was_reset:
            carried = carried._replace(first=np.ones(self.environment.count, bool))  # type: ignore[arg-type]
        columns: Columns = {}
        step = calls = 0
        while step < steps:
            row, carry = self._act(leaves, observed.observation, observed.action_mask, key, calls, carried)
            row = {name: np.asarray(leaf) for name, leaf in row.items()}
            outcome = step_copies(self.environment, row.pop("executed"))
            row |= _row(observed, outcome)
            if not columns:
                columns = jax.tree.map(lambda leaf: np.empty((leaf.shape[0], steps, *leaf.shape[1:]), leaf.dtype), row)
            if row["valid"].any() or len(row["valid"]) > 1:
                _put(columns, row, step)
                step += 1
            calls += 1
            self._observed = observed = outcome.current_observation.copied()
            if carried is not None:
                carried = EpisodeCarry(carry, row["terminated"] | row["truncated"] | ~row["valid"])
        return _into_chunks(columns, num_chunks), jax.tree.map(jnp.asarray, carried)

    def save(self) -> Named | None:
        """Return the environment's state as arrays, or None if it cannot be saved."""
        started = self._observed is not None
        return self.environment.save_state() if started and isinstance(self.environment, Resumable) else None

    def restore(self, saved: Named | None) -> None:
        """Restore a saved state; without one, all copies are reset at the next rollout."""
        env = self.environment
        self._observed = env.restore_state(saved).copied() if saved is not None and isinstance(env, Resumable) else None

    def _begin(self, round: int) -> BatchObservation:
        self.was_reset = self._observed is None
        if self._observed is None:
            seed = int(np.random.SeedSequence([self._seed, round]).generate_state(1)[0])
            self._observed = self.environment.reset(seed).copied()
        return self._observed


def _row(observed: BatchObservation, outcome: Outcome) -> dict[str, Any]:
    valid = np.ones_like(outcome.terminated) if outcome.valid is None else outcome.valid
    row = {
        "observation": observed.observation,
        "following": outcome.next_observation.observation,
        "reward": outcome.reward,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "valid": valid,
        "mask": observed.action_mask,
        "following_mask": outcome.next_observation.action_mask,
        "elapsed": outcome.elapsed,
    }
    return {name: column for name, column in row.items() if column is not None}


def _put(columns: Columns, row: dict[str, Any], step: int) -> None:
    for name, value in row.items():
        if isinstance(value, dict):
            _put(columns[name], value, step)
        else:
            columns[name][:, step] = value


def _decider(form: Any, fixed: Any, spec: Spec, recorded: bool) -> Any:
    """Return the compiled decision of one kind of algorithm; its arrays are arguments."""

    @jax.jit
    def act(
        leaves: list[Any], observation: Any, mask: Any, key: jax.Array, step: int, carried: EpisodeCarry | None
    ) -> tuple[dict[str, Any], Any]:
        algorithm, params = eqx.combine(jax.tree.unflatten(form, leaves), fixed)
        return decide(algorithm, params, spec, observation, mask, jax.random.fold_in(key, step), recorded, carried)

    return act


# The assignment of environments to members: one functional environment for all, or one host environment each.


@dataclass
class EnvAssignment:
    """One functional environment for all members, or one host environment per member."""

    spec: Spec
    source: Functional | None
    hosts: Sequence[Host] = field(default_factory=list)


def assign_environments(env: Any, count: int, seeds: Sequence[int], recorded: bool) -> EnvAssignment:
    """Assign `count` copies of an environment to one member per seed; ConfigError if one object would be shared."""
    first = make(env, count)
    if isinstance(first, HostedCopies):
        return EnvAssignment(first.spec, first.functional)
    if is_one_object(env) and len(seeds) > 1:
        raise ConfigError(
            f"env: one {first.name} object cannot serve {len(seeds)} members",
            "one per member",
            "pass its name, or a function that creates it",
        )
    environments = [first, *(make(env, count) for _ in seeds[1:])]
    return EnvAssignment(
        first.spec, None, [Host(one, seed, recorded) for one, seed in zip(environments, seeds, strict=True)]
    )


def environment_name(env: Any, assignment: EnvAssignment) -> str:
    """Return the name of the environment."""
    if isinstance(env, str):
        return env
    source: Functional | Environment = assignment.source or assignment.hosts[0].environment
    return source.name


def restore_environments(
    assignment: EnvAssignment,
    algorithms: Sequence[Any],
    learners: Sequence[LearnerState],
    environments: Sequence[Named],
) -> list[LearnerState]:
    """Restore learners and their host environments from a checkpoint; environments without a saved state are reset."""
    restored_learners = list(learners)
    for i, host in enumerate(assignment.hosts):
        host.restore(environments[i] or None)
        if not environments[i]:  # the copies are reset, and with them the sums of their episodes
            restored_learners[i] = with_new_episodes(algorithms[i], restored_learners[i])
    return restored_learners


def with_new_episodes(algorithm: Any, learner: LearnerState) -> LearnerState:
    """Return the learner whose copies were all reset: sums of their episodes begin again."""
    collection_state, state = learner.collection_state, learner.state
    state = algorithm.with_new_episodes(state) if isinstance(algorithm, Counting) else state
    sums = jnp.zeros_like(collection_state.sums)
    return learner._replace(state=state, collection_state=collection_state._replace(sums=sums))
