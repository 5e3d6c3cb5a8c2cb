"""Next-item prediction: windows of interactions, facts of the catalogue, and the cross-entropy.

Each window ends at one event of a user and includes earlier events, across sessions. Its last `targets` events are the
training targets; windows follow each other, and every event is a target in exactly one of them.

Letters: `M` events, `W` windows, `B` batch, `H` history length, `T` targets, `N` items, `D` item vector size, `S` items
of a slate or of a sample, `U` users, `F` features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from tidelog.algorithms.core.sampling import Batch, Gathered
from tidelog.errors import ConfigError
from tidelog.losses.imitation import pick
from tidelog.networks.arrays import float32, from_host, int32
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.networks import HistoryEncoder, Items, Table
from tidelog.types import same_shape

InitialVectors: TypeAlias = Callable[[Interactions, int, int], Any]  # (log, D, seed) -> rows [N, D] of the table, None
EXAMINED = 16  # windows whose most likely item is computed in a large catalogue
PARTS = 2**31 - 1  # largest sum of the integer probabilities: 32-bit fractions are too coarse for a million items
POWER = 0.75  # exponent of popularity for sampled items (Mikolov et al. 2013)


# Windows.


class StoredInteractions(NamedTuple):
    """Interactions on the device."""

    item: jax.Array  # [M] int32
    event: jax.Array  # [M] int32
    reward: jax.Array  # [M]
    terminated: jax.Array  # [M] bool
    start: jax.Array  # [M] int32: the first event of its user
    ends: jax.Array  # [W] int32: the last events of windows
    scored: jax.Array | None = None  # [M] bool: events that count; None: all
    slate: jax.Array | None = None  # [M, S] int32
    user: jax.Array | None = None  # [M] int32: the event's user, counted from 0
    users: jax.Array | None = None  # [U, F]: features of each user


def store_interactions(log: Interactions, targets: int, slates: bool, users: bool = False) -> StoredInteractions:
    """Return a store of interactions whose windows have this number of targets, with slates and user features."""
    last = log.starts[1:][log.user] - 1
    ends = (last - np.arange(len(log))) % targets == 0
    if log.scored is not None:  # only windows with a scored event
        counted = np.append(0, np.cumsum(log.scored))
        begin = np.maximum(np.arange(len(log)) - targets + 1, log.starts[log.user])
        ends &= counted[1:] > counted[begin]

    return StoredInteractions(
        item=int32(log.item),
        event=int32(log.event),
        reward=float32(log.reward),
        terminated=from_host(log.terminated),
        start=int32(log.starts[log.user]),
        ends=int32(np.flatnonzero(ends)),
        scored=None if log.scored is None else from_host(log.scored),
        slate=None if log.slate is None or not slates else int32(log.slate),
        user=int32(log.user) if users else None,
        users=from_host(log.user_features) if users else None,
    )


def most_items_of_a_user(store: StoredInteractions, least: int = 0) -> int:
    """Return the largest number of different items in one user's events.

    Where no user has more than `least` events, return the largest number of events: an upper bound that costs less.
    """
    start, item = np.asarray(store.start), np.asarray(store.item)
    longest = int(np.bincount(start).max())
    if longest <= least:
        return longest
    pairs = np.unique(start.astype(np.int64) * (int(item.max()) + 1) + item)
    return int(np.unique(pairs // (int(item.max()) + 1), return_counts=True)[1].max())


class HistoryWindows(NamedTuple):
    """Windows of `H + 1` events; a short one begins with zeros. The last `T` columns are the targets."""

    items: jax.Array  # [B, H + 1] int32
    events: jax.Array  # [B, H + 1] int32
    reward: jax.Array  # [B, T]
    discount: jax.Array  # [B, T]: 0 where the session ended
    slate: jax.Array | None  # [B, T, S] int32
    user: jax.Array | None = None  # [B, F]

    @property
    def chosen(self) -> jax.Array:
        """The selected items [B, T] of the target steps."""
        return self.items[:, -self.reward.shape[1] :]

    def states(self, encoded: jax.Array) -> jax.Array:
        """Return the states [B, T, D] in which those items were selected, out of all columns' states."""
        return encoded[:, -self.reward.shape[1] - 1 : -1]

    def next_states(self, encoded: jax.Array) -> jax.Array:
        """Return the states [B, T, D] after them."""
        return encoded[:, -self.reward.shape[1] :]


@dataclass(frozen=True)
class Windows:
    """The last `targets` events of windows, each after at least `length - targets + 1` events where they exist."""

    length: int
    targets: int
    discount: Any = 0.0  # float, or a tracer in a population

    def rows(self, store: StoredInteractions) -> tuple[int, jax.Array]:
        """Return all windows."""
        return store.ends.shape[0], store.ends

    def gather(self, store: StoredInteractions, rows: jax.Array) -> Gathered:
        """Return windows that end at `rows` [B]."""
        grid = rows[:, None] + jnp.arange(-self.length, 1)
        exists = grid >= store.start[rows][:, None]
        within = jnp.where(exists, grid, rows[:, None])
        late, valid = within[:, -self.targets :], exists[:, -self.targets :]
        continues = 1.0 - store.terminated[late].astype(jnp.float32)
        data = HistoryWindows(
            items=jnp.where(exists, store.item[within], 0),
            events=jnp.where(exists, store.event[within], 0),
            reward=store.reward[late],
            discount=self.discount * continues,
            slate=None if store.slate is None else store.slate[late],
            user=None if store.users is None else store.users[store.user[rows]],  # type: ignore[index]
        )
        return Gathered(data, None, valid if store.scored is None else valid & store.scored[late])


# The catalogue and the model.


class ItemFacts(NamedTuple):
    """Fixed facts of the catalogue."""

    log_share: jax.Array  # [N + 1]: log of the item's share of all events
    log_drawn: jax.Array  # [N + 1]: log of the sampling probability of the item
    cumulative: jax.Array  # [N] int32: cumulative probabilities, in parts of the last entry
    features: jax.Array | None  # [N + 1, F]

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return random items, counted from 1."""
        place = jax.random.randint(key, shape, 0, self.cumulative[-1])
        return jnp.searchsorted(self.cumulative, place, side="right").astype(jnp.int32) + 1


def item_facts(counts: np.ndarray[Any, Any], features: np.ndarray[Any, Any] | None) -> ItemFacts:
    """Return facts of items from their counts [N + 1]; each count is increased by one: no item has probability 0."""
    often = counts[1:].astype(np.float64) + 1.0
    parts = np.maximum(np.rint(often**POWER / (often**POWER).sum() * (PARTS - len(often))), 1.0)
    share, drawn = (  # the rounded probabilities are the sampling probabilities
        float32(np.append(0.0, np.log(one))) for one in (often / often.sum(), parts / parts.sum())
    )
    known_features = None if features is None else from_host(features)
    return ItemFacts(share, drawn, int32(np.cumsum(parts)), known_features)


class NextItemModel(NamedTuple):
    """The parts that only the cross-entropy trains."""

    table: Table
    reader: HistoryEncoder


def encode_windows(
    model: NextItemModel, facts: ItemFacts, windows: HistoryWindows, dropout: Any = None, key: Any = None
) -> jax.Array:
    """Encode windows [B, H + 1] into the states [B, H + 1, D] after each of their steps."""
    vectors = model.table(windows.items, facts.features).vectors
    return model.reader(vectors, windows.events, dropout, key, user=windows.user)


def item_logits(states: jax.Array, items: Items) -> jax.Array:
    """Return logits [..., N + 1] of all items in states [..., D]; -inf for no item."""
    return (states @ items.vectors.T + items.bias).at[..., 0].set(-jnp.inf)


def next_item_error(logits: jax.Array, item: jax.Array) -> jax.Array:
    """Negative log-likelihood of the next item: logits [..., N + 1], item [...] counted from 1 -> [...].

    Index 0 is no item: its logit is excluded from the sum.
    """
    items = logits.at[..., 0].set(-jnp.inf)
    return jax.nn.logsumexp(items, axis=-1) - pick(logits, item)


def sampled_error(logit: jax.Array, others: jax.Array, log_expected: jax.Array, hit: jax.Array) -> jax.Array:
    """Sampled negative log-likelihood: the item's logit [...], those of sampled items [..., S] -> [...].

    `log_expected` [S] is the log of the expected count of each sampled item in the sample; it is subtracted, and the
    sum then estimates the whole catalogue (Bengio and Senecal 2008). `hit` [..., S] marks sampled items that equal the
    item; they count only once.
    """
    same_shape(others=others, hit=hit)
    corrected = jnp.where(hit, -jnp.inf, others - log_expected)
    return jnp.logaddexp(logit, jax.nn.logsumexp(corrected, axis=-1)) - logit


def next_item_loss(
    model: NextItemModel, config: Any, batch: Batch, facts: ItemFacts, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the cross-entropy of the next items, over all items or over a sample; also the metrics."""
    windows: HistoryWindows = batch.data
    noise, sample = (None, jax.random.key(0)) if key is None else jax.random.split(key)
    states = windows.states(encode_windows(model, facts, windows, config.dropout, noise))
    if len(facts.cumulative) <= config.full_softmax:
        logits = item_logits(states, model.table(None, facts.features))
        error = next_item_error(logits, windows.chosen)
        top, examined = jnp.argmax(logits, axis=-1), batch.valid
    else:
        drawn = facts.draw(sample, (config.sampled_items,))
        positive, negative = (model.table(items, facts.features) for items in (windows.chosen, drawn))
        logit = jnp.sum(states * positive.vectors, axis=-1) + positive.bias
        expected = facts.log_drawn[drawn] + jnp.log(float(config.sampled_items))
        others = states @ negative.vectors.T + negative.bias
        error = sampled_error(logit, others, expected, hit=windows.chosen[..., None] == drawn)
        top = jnp.argmax(item_logits(states[:EXAMINED, -1], model.table(None, facts.features)), axis=-1)
        examined = jnp.ones_like(top, bool)
    coverage, entropy = coverage_and_entropy(top, examined, len(facts.cumulative))
    loss = batch.mean(error)
    return loss, {"imitation_loss": loss, "coverage": coverage, "entropy": entropy}


def coverage_and_entropy(items: jax.Array, counted: jax.Array | None, catalogue: int) -> tuple[jax.Array, jax.Array]:
    """Return the number of different counted items as a share of the possible number, and their entropy in nats."""
    counts = jnp.ones_like(items, bool) if counted is None else counted
    often = jnp.zeros(catalogue + 1).at[items.reshape(-1)].add(counts.reshape(-1).astype(jnp.float32)).at[0].set(0.0)
    total = jnp.maximum(jnp.sum(often), 1.0)
    entropy = -jnp.sum(jax.scipy.special.xlogy(often / total, often / total))
    return jnp.sum(often > 0) / jnp.minimum(total, catalogue), entropy


# Initial rows of the table.


def at_random(log: Interactions, size: int, seed: int) -> None:
    """Return None: random directions."""
    return


def from_factors(log: Interactions, size: int, seed: int) -> np.ndarray[Any, Any]:
    """Return the singular vectors [N, D] of the user-item matrix; items with the same users are similar."""
    users, items = len(log.users), len(log.items)
    matrix = sparse.csr_matrix((np.ones(len(log)), (log.user, log.item - 1)), shape=(users, items))
    matrix.data = np.log1p(matrix.data)
    rank = min(size, users - 1, items - 1)
    rows = np.zeros((items, size))
    if rank >= 1:
        start = np.random.default_rng(seed).standard_normal(min(users, items))
        _, values, directions = sparse.linalg.svds(matrix, k=rank, v0=start)
        rows[:, :rank] = directions.T * np.sqrt(np.maximum(values, 0.0))
    none = ~rows.any(axis=1)  # a row of zeros has no direction and an unbounded gradient
    rows[none] = np.random.default_rng(seed).standard_normal((int(none.sum()), size)) / np.sqrt(size)
    return rows


INITIAL_VECTORS: Mapping[str, InitialVectors] = {"random": at_random, "factors": from_factors}


def with_item_vectors(model: NextItemModel, rows: Any) -> NextItemModel:
    """Return the model with these rows [N, D] in its table; ConfigError where their shape differs."""
    count, size = model.table.weight.shape
    vectors = np.asarray(rows, np.float32)
    if vectors.shape != (count - 1, size) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"item vectors are {vectors.dtype}{vectors.shape}, expected finite [{count - 1}, {size}]. fix: one per item"
        )
    weight = float32(np.concatenate([np.zeros((1, size)), vectors]))
    return model._replace(table=Table(weight, model.table.bias, model.table.tower))
