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

from tidelog.algorithms.core import contract
from tidelog.algorithms.core.segments import Columns
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


class Carried(NamedTuple):
    """What a policy with a memory carries from decision to decision."""

    carry: Any  # leaves [W, ...]
    first: jax.Array  # [W] bool: the copies whose episode begins with the next decision, which forget it


class Played(NamedTuple):
    """Where a learner stands in its environment: worlds where they are functions, and the episodes under way."""

    worlds: Any  # leaves [W, ...], or None where the environment lives on the host
    sums: jax.Array  # [2 W]: of every copy the return so far, then the length so far
    decisions: jax.Array  # int32: taken so far, in all copies
    rounds: jax.Array  # int32: rollouts so far
    carried: Carried | None = None  # where the policy has a memory


def unplayed(source: Functional | None, count: int, key: jax.Array, carry: Any = None) -> Played:
    """Before the first decision; `carry` is what a policy with a memory starts from."""
    worlds = None if source is None else begin(source, count, key)
    carried = None if carry is None else Carried(carry, jnp.ones(count, bool))
    return Played(worlds, jnp.zeros(2 * count), jnp.int32(0), jnp.int32(0), carried)


# One decision of all copies.


def decide(
    algorithm: Any,
    params: Any,
    spec: Spec,
    observation: Any,
    mask: Any,
    key: jax.Array,
    recorded: bool,
    carried: Carried | None = None,
) -> tuple[dict[str, Any], Any]:
    """Sampled actions, what the environment gets, and the log-probabilities of both; leaves [W, ...].

    That of what the environment gets, `likely`, is for logs alone: the density is the uncut one there. A policy without
    a density has neither. A policy with a memory also says what it carried into this decision, and which episodes
    begin; what it carries on comes second.
    """
    begins, before = {}, None
    if carried is not None:
        before = _begun(algorithm.start(params, carried.first.shape[0]), carried)
        begins = {"carry": before, "first": carried.first}
    act = algorithm.act(params, observation, mask=mask, key=key, carry=before)
    row = {"action": act.action, "log_probability": act.log_probability, "executed": act.action}
    likely = act.log_probability
    if isinstance(spec.action, Continuous):
        cut = jnp.clip(act.action, -1.0, 1.0)
        row["executed"] = spec.action.executed(cut)
        policy = algorithm.distribution(params, observation, mask, before) if recorded else None
        likely = None if policy is None else policy.log_probability(cut)
    row |= {"likely": likely} if recorded else {}
    return {name: leaf for name, leaf in row.items() if leaf is not None} | begins, act.carry


def _begun(start: Any, carried: Carried) -> Any:
    """What is carried, or where episodes begin what every one of them starts from."""

    def one(fresh: jax.Array, carry: jax.Array) -> jax.Array:
        return jnp.where(carried.first.reshape(-1, *[1] * (carry.ndim - 1)), fresh, carry)

    return jax.tree.map(one, start, carried.carry)


def rollout(
    source: Functional,
    algorithm: Any,
    params: Any,
    played: Played,
    key: jax.Array,
    steps: int,
    names: Collection[str],
    pieces: int = 1,
) -> tuple[Played, Columns]:
    """`steps` decisions in every copy of a functional environment: where they led, and columns [W, T, ...].

    Besides what counting episodes needs, only the columns of these names are kept. `carry` is that into each of `P`
    pieces, [W, P, ...].
    """
    wanted = {*names, *NEEDED}

    def one(now: tuple[Any, Any], key: jax.Array) -> tuple[Any, dict[str, Any]]:
        worlds, carried = now
        deciding, moving = jax.random.split(key)
        observation, mask = look(source, worlds)
        row, carry = decide(algorithm, params, source.spec, observation, mask, deciding, "likely" in wanted, carried)
        moved = advance(source, worlds, row.pop("executed"), moving)
        row |= {"observation": observation, "mask": mask, "reward": moved.reward, "terminated": moved.terminated}
        row |= {"truncated": moved.truncated, "valid": jnp.ones_like(moved.terminated)}
        row |= {"following": moved.following, "following_mask": moved.following_mask}
        carried = None if carried is None else Carried(carry, moved.terminated | moved.truncated)
        return (moved.world, carried), {name: leaf for name, leaf in row.items() if name in wanted and leaf is not None}

    keys = jax.random.split(key, steps)
    (worlds, carried), rows = jax.lax.scan(one, (played.worlds, played.carried), keys)
    columns = jax.tree.map(lambda leaf: jnp.swapaxes(leaf, 0, 1), rows)
    return played._replace(worlds=worlds, carried=carried), _into_pieces(columns, pieces)


def _into_pieces(columns: Columns, pieces: int) -> Columns:
    """The columns with what was carried into each piece, of what was carried into every step."""
    if "carry" not in columns:
        return columns
    into = jax.tree.map(lambda leaf: leaf[:, :: leaf.shape[1] // pieces], columns["carry"])
    return columns | {"carry": into}


def shapes(algorithm: Any, params: Any, spec: Spec, collection: contract.Collection, recorded: bool) -> Columns:
    """The columns that a rollout brings, as shapes [W, T, ...] and types, whatever the environment is."""
    count, steps = collection.environments, collection.steps
    seen = {name: _blank(leaf, count) for name, leaf in spec.observation.items()}
    mask = jnp.ones((count, spec.action.n), bool) if spec.masked else None  # type: ignore[union-attr]
    carried = unplayed(None, count, jax.random.key(0), algorithm.start(params, count)).carried
    row, _ = jax.eval_shape(lambda: decide(algorithm, params, spec, seen, mask, jax.random.key(0), recorded, carried))
    row.pop("executed")
    carry = row.pop("carry", {})
    flag = jnp.zeros(count, bool)
    row |= {"observation": seen, "following": seen, "reward": jnp.zeros(count)}
    row |= dict.fromkeys(("terminated", "truncated", "valid"), flag)
    row |= {} if mask is None else {"mask": mask, "following_mask": mask}
    found = {name: jax.tree.map(lambda leaf: shaped(leaf, count, steps, *leaf.shape[1:]), row[name]) for name in row}
    into = jax.tree.map(lambda leaf: shaped(leaf, count, collection.pieces, *leaf.shape[1:]), carry)
    return found | ({} if carried is None else {"carry": into})


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
    after = played._replace(sums=sums, decisions=decisions, rounds=played.rounds + 1)
    return after, found, jnp.sum(ended, dtype=jnp.int32)


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

    def rollout(
        self,
        algorithm: Any,
        params: Any,
        key: jax.Array,
        round: int,
        steps: int,
        carried: Carried | None = None,
        pieces: int = 1,
    ) -> tuple[Columns, Carried | None]:
        """`steps` decisions in every copy: columns [W, T, ...] as NumPy arrays, and what is carried on.

        Steps in which a copy only restarts stand among them, unless it plays alone: then they are not counted. Raises
        EnvironmentFailure.
        """
        observed = self._begin(round)
        arrays, fixed = eqx.partition((algorithm, params), eqx.is_array)
        leaves, form = jax.tree.flatten(arrays)  # once, not in each of the calls
        if self._act is None:
            self._act = _decider(form, fixed, self.environment.spec, self._recorded)
        if carried is not None and self.began:
            carried = carried._replace(first=np.ones(self.environment.count, bool))  # type: ignore[arg-type]
        columns: Columns = {}
        step = asked = 0
        while step < steps:
            row, carry = self._act(leaves, observed.observation, observed.action_mask, key, asked, carried)
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
            if carried is not None:
                carried = Carried(carry, row["terminated"] | row["truncated"] | ~row["valid"])
        return _into_pieces(columns, pieces), jax.tree.map(jnp.asarray, carried)

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
        place = self.environment
        self._observed = place.restore_state(saved) if saved is not None and isinstance(place, Resumable) else None

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
    def act(
        leaves: list[Any], observation: Any, mask: Any, key: jax.Array, step: int, carried: Carried | None
    ) -> tuple[dict[str, Any], Any]:
        algorithm, params = eqx.combine(jax.tree.unflatten(form, leaves), fixed)
        return decide(algorithm, params, spec, observation, mask, jax.random.fold_in(key, step), recorded, carried)

    return act
