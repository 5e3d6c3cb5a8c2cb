"""Playing before each round: one compiled scan where the environment is a function, NumPy buffers where it is not.

Both bring the same columns, segments first. An action is sampled in the units of the policy; the environment gets it
within its bounds. Letters: `W` copies, `T` decisions of each.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms import contract
from tidelog.algorithms.segments import Columns
from tidelog.envs.functional import Functional, advance, begin, look
from tidelog.envs.protocol import Environment, Observed, Outcome, Resumable
from tidelog.losses.returns import discounted
from tidelog.types import Codes, Continuous, Image, Leaf, Spec

Named = dict[str, np.ndarray[Any, Any]]
RECORDED = (
    "observation", "action", "reward", "terminated", "truncated", "valid", "following", "mask", "following_mask",
    "likely",
)  # fmt: skip
NEEDED = ("reward", "terminated", "truncated", "valid")  # for counting episodes


class Played(NamedTuple):
    """Where a learner stands in its environment: worlds where they are functions, and the episodes under way."""

    worlds: Any  # leaves [W, ...], or None where the environment lives on the host
    sums: jax.Array  # [2 W]: of every copy the return so far, then the length so far
    decisions: jax.Array  # int32: taken so far, in all copies
    rounds: jax.Array  # int32: rollouts so far


def unplayed(source: Functional | None, count: int, key: jax.Array) -> Played:
    """Before the first decision."""
    worlds = None if source is None else begin(source, count, key)
    return Played(worlds, jnp.zeros(2 * count), jnp.int32(0), jnp.int32(0))


# One decision of all copies.


def decide(
    algorithm: Any, acting: Any, spec: Spec, observation: Any, mask: Any, key: jax.Array, recorded: bool
) -> dict[str, Any]:
    """Sampled actions, what the environment gets, and the log-probabilities of both; leaves [W, ...].

    That of what the environment gets, `likely`, is for logs alone: the density is the uncut one there. A policy without
    a density has neither.
    """
    act = algorithm.act(acting, observation, mask=mask, key=key)
    row = {"action": act.action, "log_probability": act.log_probability, "executed": act.action}
    likely = act.log_probability
    if isinstance(spec.action, Continuous):
        cut = jnp.clip(act.action, -1.0, 1.0)
        row["executed"] = spec.action.from_unit(cut)
        policy = algorithm.distribution(acting, observation, mask) if recorded else None
        likely = None if policy is None else policy.log_probability(cut)
    row |= {"likely": likely} if recorded else {}
    return {name: leaf for name, leaf in row.items() if leaf is not None}


def rollout(
    source: Functional, algorithm: Any, acting: Any, worlds: Any, key: jax.Array, steps: int, names: Collection[str]
) -> tuple[Any, Columns]:
    """`steps` decisions in every copy of a functional environment: worlds after it, and columns [W, T, ...].

    Besides what counting episodes needs, only the columns of these names are kept.
    """
    wanted = {*names, *NEEDED}

    def one(worlds: Any, key: jax.Array) -> tuple[Any, dict[str, Any]]:
        deciding, moving = jax.random.split(key)
        observation, mask = look(source, worlds)
        row = decide(algorithm, acting, source.spec, observation, mask, deciding, "likely" in wanted)
        moved = advance(source, worlds, row.pop("executed"), moving)
        row |= {"observation": observation, "mask": mask, "reward": moved.reward, "terminated": moved.terminated}
        row |= {"truncated": moved.truncated, "valid": jnp.ones_like(moved.terminated)}
        row |= {"following": moved.following, "following_mask": moved.following_mask}
        return moved.world, {name: leaf for name, leaf in row.items() if name in wanted and leaf is not None}

    worlds, rows = jax.lax.scan(one, worlds, jax.random.split(key, steps))
    return worlds, jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)


def shapes(algorithm: Any, acting: Any, spec: Spec, collection: contract.Collection, recorded: bool) -> Columns:
    """The columns that a rollout brings, as shapes [W, T, ...] and types, whatever the environment is."""
    count, steps = collection.environments, collection.steps
    seen = {name: _blank(leaf, count) for name, leaf in spec.observation.items()}
    mask = jnp.ones((count, spec.action.n), bool) if spec.masked else None  # type: ignore[union-attr]
    row = jax.eval_shape(lambda: decide(algorithm, acting, spec, seen, mask, jax.random.key(0), recorded))
    row.pop("executed")
    flag = jnp.zeros(count, bool)
    row |= {"observation": seen, "following": seen, "reward": jnp.zeros(count)}
    row |= dict.fromkeys(("terminated", "truncated", "valid"), flag)
    row |= {} if mask is None else {"mask": mask, "following_mask": mask}
    return {name: jax.tree.map(lambda leaf: shaped(leaf, count, steps, *leaf.shape[1:]), row[name]) for name in row}


def shaped(leaf: Any, *shape: int) -> Any:
    """A shape with the type of a leaf, and no numbers."""
    return jax.ShapeDtypeStruct(shape, leaf.dtype)  # type: ignore[no-untyped-call]


def _blank(leaf: Leaf, count: int) -> jax.Array:
    if isinstance(leaf, Image):
        return jnp.zeros((count, leaf.height, leaf.width, leaf.channels), jnp.uint8)
    return jnp.zeros((count, len(leaf.sizes)), jnp.int32) if isinstance(leaf, Codes) else jnp.zeros((count, leaf.size))


def counted(played: Played, columns: Columns) -> tuple[Played, dict[str, jax.Array], jax.Array]:
    """Where the learner stands after a rollout; sums over the episodes that ended in it, and how many they are."""
    ended = (columns["terminated"] | columns["truncated"]) & columns["valid"]
    reward, valid = columns["reward"], columns["valid"]
    both = jnp.concatenate([reward, jnp.ones_like(reward)])
    ends, counts = (jnp.concatenate([flags, flags]) for flags in (ended, valid))
    along, sums = discounted(played.sums, both, ends, counts, 1.0)
    whole = jnp.where(ends, along, 0.0)
    count = reward.shape[0]
    found = {"return": jnp.sum(whole[:count]), "length": jnp.sum(whole[count:])}
    decisions = played.decisions + jnp.sum(valid, dtype=jnp.int32)
    return Played(played.worlds, sums, decisions, played.rounds + 1), found, jnp.sum(ended, dtype=jnp.int32)


class Host:
    """An environment on the host with what it shows now: one compiled call a step, one transfer a rollout."""

    def __init__(self, environment: Environment, seed: int, recorded: bool) -> None:
        self.environment, self._seed, self._recorded = environment, seed, recorded
        self._observed: Observed | None = None
        self._act: Any = None
        self._before: Named | None = None
        self.began = False  # whether the last rollout started every copy anew

    @property
    def resumable(self) -> bool:
        """Whether a resumed run goes on in the middle of its episodes."""
        return isinstance(self.environment, Resumable)

    def rollout(self, algorithm: Any, acting: Any, key: jax.Array, round: int, steps: int) -> Columns:
        """`steps` decisions in every copy; columns [W, T, ...] as NumPy arrays. Raises EnvironmentFailure.

        Steps in which a copy only restarts stand among them, unless it plays alone: then they are not counted.
        """
        observed = self._begin(round)
        arrays, fixed = eqx.partition((algorithm, acting), eqx.is_array)
        leaves, form = jax.tree.flatten(arrays)  # once, not in each of the calls
        if self._act is None:
            self._act = _decider(form, fixed, self.environment.spec, self._recorded)
        columns: Columns = {}
        step = asked = 0
        while step < steps:
            row = self._act(leaves, observed.observation, observed.action_mask, key, asked)
            row = {name: np.asarray(leaf) for name, leaf in row.items()}
            outcome = self.environment.step(row.pop("executed"))
            row |= _row(observed, outcome)
            if not columns:
                columns = jax.tree.map(lambda leaf: np.empty((leaf.shape[0], steps, *leaf.shape[1:]), leaf.dtype), row)
            if row["valid"].any() or len(row["valid"]) > 1:
                _put(columns, row, step)
                step += 1
            asked += 1
            self._observed = observed = outcome.current
        return columns

    def save(self) -> Named | None:
        """The environment's state as arrays, or None where it has none to offer."""
        started = self._observed is not None
        return self.environment.save_state() if started and isinstance(self.environment, Resumable) else None

    def remember(self) -> None:
        """Keep the present state: a rollout may fail, here or in another member's environment."""
        self._before = self.save()

    def before(self) -> Named | None:
        """The state that was kept."""
        return self._before

    def restore(self, saved: Named | None) -> None:
        """Go on from a saved state; without one, copies start anew at the next rollout."""
        if saved is not None and isinstance(self.environment, Resumable):
            self._observed = self.environment.restore_state(saved)

    def _begin(self, round: int) -> Observed:
        self.began = self._observed is None
        if self._observed is None:
            seed = int(np.random.SeedSequence([self._seed, round]).generate_state(1)[0])
            self._observed = self.environment.reset(seed)
        return self._observed


def _row(observed: Observed, outcome: Outcome) -> dict[str, Any]:
    valid = np.ones_like(outcome.terminated) if outcome.valid is None else outcome.valid
    row = {
        "observation": observed.observation,
        "following": outcome.following.observation,
        "reward": outcome.reward,
        "terminated": outcome.terminated,
        "truncated": outcome.truncated,
        "valid": valid,
        "mask": observed.action_mask,
        "following_mask": outcome.following.action_mask,
    }
    return {name: column for name, column in row.items() if column is not None}


def _put(columns: Columns, row: dict[str, Any], step: int) -> None:
    for name, value in row.items():
        if isinstance(value, dict):
            _put(columns[name], value, step)
        else:
            columns[name][:, step] = value


def _decider(form: Any, fixed: Any, spec: Spec, recorded: bool) -> Any:
    """The compiled decision of one kind of algorithm; its arrays are arguments."""

    @jax.jit
    def act(leaves: list[Any], observation: Any, mask: Any, key: jax.Array, step: int) -> dict[str, Any]:
        algorithm, acting = eqx.combine(jax.tree.unflatten(form, leaves), fixed)
        return decide(algorithm, acting, spec, observation, mask, jax.random.fold_in(key, step), recorded)

    return act
