"""Next-item prediction: windows of interactions, facts of the catalogue, and the states before each target.

A window holds events of one user that follow each other, across sessions. In a log of single events its last `targets`
events are the training targets, each selected in the state before it. In a log of baskets the targets are up to
`targets` events of one basket, all of them selected in the state before the basket. Windows follow each other, and
every event is a target in exactly one of them.

Letters: `M` events, `W` windows, `B` batch, `L` events of a window, `A` states of a window, `T` targets, `N` items, `D`
item vector size, `S` items of a slate or of a sample, `U` users, `F` features.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.sampling import Batch, SampleData
from tidelog.errors import ConfigError
from tidelog.networks.layers import float32, from_host, int32
from tidelog.recommend.interactions import Interactions
from tidelog.recommend.networks import (
    HistoryEncoder,
    Items,
    ItemTable,
    Places,
    Repeats,
    SuccessorCounts,
    Successors,
    UserTable,
    joined,
    log_score,
    log_total,
)
from tidelog.types import HistoryArrays

InitialVectors: TypeAlias = Callable[[Interactions, int, int], Any]  # (log, D, seed) -> rows [N, D] of the table, None
PARTS = 2**31 - 1  # largest sum of the integer probabilities: 32-bit fractions are too coarse for a million items
USER_DROPOUT = 1 << 20  # number of the random key that hides users
POWER = 0.75  # exponent of popularity for sampled items (Mikolov et al. 2013)


# Windows.


class Baskets(NamedTuple):
    """The first and the last event of each event's basket, both [M] int32."""

    first: jax.Array
    last: jax.Array


class StoredInteractions(NamedTuple):
    """Interactions on the device."""

    item: jax.Array  # [M] int32
    event: jax.Array  # [M] int32
    reward: jax.Array  # [M]
    terminated: jax.Array  # [M] bool
    start: jax.Array  # [M] int32: the first event of its user
    ends: jax.Array  # [W] int32: the last target of windows
    scored: jax.Array | None = None  # [M] bool: events that count; None: all
    baskets: Baskets | None = None  # None: events are targets one by one
    slate: jax.Array | None = None  # [M, S] int32
    user: jax.Array | None = None  # [M] int32: the event's user, counted from 0
    users: jax.Array | None = None  # [U, F]: features of each user


def store_interactions(log: Interactions, targets: int, columns: Collection[str] = ()) -> StoredInteractions:
    """Return a store of interactions with this number of targets a window, and the columns that a model reads.

    Columns are "slate", "user" (features of users) and "user_id"; see `StoreSpec`. The targets are baskets where most
    events of the log are in baskets.
    """
    first, last = log.starts[log.user], log.starts[1:][log.user] - 1
    if log.has_baskets:
        first, last = log.baskets
    ends = (last - np.arange(len(log))) % targets == 0
    if log.scored is not None:  # only windows with a scored event
        counted = np.append(0, np.cumsum(log.scored))
        ends &= counted[1:] > counted[np.maximum(np.arange(len(log)) - targets + 1, first)]

    return StoredInteractions(
        item=int32(log.item),
        event=int32(log.event),
        reward=float32(log.reward),
        terminated=from_host(log.terminated),
        start=int32(log.starts[log.user]),
        ends=int32(np.flatnonzero(ends)),
        scored=None if log.scored is None else from_host(log.scored),
        baskets=Baskets(int32(first), int32(last)) if log.has_baskets else None,
        slate=int32(log.slate) if log.slate is not None and "slate" in columns else None,
        user=int32(log.user) if "user" in columns or "user_id" in columns else None,
        users=from_host(log.user_features) if "user" in columns else None,
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
    """Events of users, the targets among them or after them; a short history begins with zeros.

    Without baskets the last `T` events are the targets. With baskets the events are those before the basket, and
    `after` holds those up to its end.
    """

    items: jax.Array  # [B, L] int32
    events: jax.Array  # [B, L] int32
    chosen: jax.Array  # [B, T] int32: the targets
    reward: jax.Array  # [B, T]
    discount: jax.Array  # [B, T]: 0 where the session ended
    after: HistoryArrays | None  # items and events [B, L] up to the end of the basket
    slate: jax.Array | None  # [B, T, S] int32
    user: jax.Array | None = None  # [B, F]
    user_index: jax.Array | None = None  # [B] int32: the user, counted from 1

    def before(self, around: jax.Array) -> jax.Array:
        """Return what belongs to the state before each target [B, T, ...], out of all states' [B, A, ...]."""
        return self._each(around[:, :-1])

    def following(self, around: jax.Array) -> jax.Array:
        """Return what belongs to the state after each target [B, T, ...], out of all states' [B, A, ...]."""
        return self._each(around[:, 1:])

    def _each(self, states: jax.Array) -> jax.Array:
        return jnp.broadcast_to(states, (*self.chosen.shape, *states.shape[2:]))


@dataclass(frozen=True)
class Windows:
    """Up to `targets` targets, each after at least `length - targets + 1` events where they exist."""

    length: int
    targets: int
    discount: Any = 0.0  # float, or a tracer in a population

    def rows(self, store: StoredInteractions) -> tuple[int, jax.Array]:
        """Return all windows."""
        return store.ends.shape[0], store.ends

    def gather(self, store: StoredInteractions, rows: jax.Array) -> SampleData:
        """Return windows whose last targets are `rows` [B]."""
        late = rows[:, None] + jnp.arange(1 - self.targets, 1)
        begin = start = store.start[rows]
        ends, after = late, None
        if store.baskets is None:
            items, events = _up_to(store, start, rows, self.length + 1)
        else:
            begin, last = store.baskets.first[rows], store.baskets.last[rows]
            items, events = _up_to(store, start, begin - 1, self.length)
            after = HistoryArrays(*_up_to(store, start, last, self.length))
            ends = jnp.broadcast_to(last[:, None], late.shape)
        valid = late >= begin[:, None]
        late, ends = jnp.where(valid, late, rows[:, None]), jnp.where(valid, ends, rows[:, None])
        data = HistoryWindows(
            items=items,
            events=events,
            chosen=store.item[late],
            reward=store.reward[late],
            discount=self.discount * (1.0 - store.terminated[ends].astype(jnp.float32)),
            after=after,
            slate=None if store.slate is None else store.slate[late],
            user=None if store.users is None else store.users[store.user[rows]],  # type: ignore[index]
            user_index=None if store.user is None else store.user[rows] + 1,
        )
        return SampleData(data, None, valid if store.scored is None else valid & store.scored[late])


def _up_to(store: StoredInteractions, start: jax.Array, last: jax.Array, length: int) -> tuple[jax.Array, jax.Array]:
    """Return items and events [B, length] up to events `last` [B], of users with first events `start` [B]."""
    grid = last[:, None] + jnp.arange(1 - length, 1)
    exists = grid >= start[:, None]
    within = jnp.where(exists, grid, 0)
    return jnp.where(exists, store.item[within], 0), jnp.where(exists, store.event[within], 0)


# The catalogue and the model.


class ItemFacts(NamedTuple):
    """Fixed facts of the catalogue."""

    log_share: jax.Array  # [N + 1]: log of the item's share of all events
    log_drawn: jax.Array  # [N + 1]: log of the sampling probability of the item
    cumulative: jax.Array  # [N] int32: cumulative probabilities, in parts of the last entry
    features: jax.Array | None  # [N + 1, F]
    repeat_share: jax.Array  # share of events whose item the user had before
    successors: SuccessorCounts | None = None  # what followed each item, where the model reads it

    def draw(self, key: jax.Array, shape: tuple[int, ...]) -> jax.Array:
        """Return random items, counted from 1."""
        position = jax.random.randint(key, shape, 0, self.cumulative[-1])
        return jnp.searchsorted(self.cumulative, position, side="right").astype(jnp.int32) + 1


def item_facts(
    counts: np.ndarray[Any, Any],
    features: np.ndarray[Any, Any] | None,
    repeat_share: float = 0.0,
    successors: SuccessorCounts | None = None,
) -> ItemFacts:
    """Return facts of items from their counts [N + 1]; each count is increased by one: no item has probability 0."""
    often = counts[1:].astype(np.float64) + 1.0
    parts = np.maximum(np.rint(often**POWER / (often**POWER).sum() * (PARTS - len(often))), 1.0)
    share, drawn = (  # the rounded probabilities are the sampling probabilities
        float32(np.append(0.0, np.log(one))) for one in (often / often.sum(), parts / parts.sum())
    )
    known_features = None if features is None else from_host(features)
    return ItemFacts(share, drawn, int32(np.cumsum(parts)), known_features, jnp.float32(repeat_share), successors)


class NextItemModel(NamedTuple):
    """The parts that only the cross-entropy trains."""

    table: ItemTable
    encoder: HistoryEncoder
    repeats: Repeats | None  # None: an item's probability does not depend on its own earlier events
    users: UserTable | None = None  # None: who the user is has no effect
    successors: Successors | None = None  # None: an item's probability does not depend on counts of what followed

    def user_vectors(self, users: jax.Array | None) -> jax.Array | None:
        """Return the vectors [B, D] of users [B]; None without such vectors. TypeError for no users."""
        if self.users is None:
            return None
        if users is None:
            raise TypeError("user_index is None, but the model has vectors of users")
        return self.users(users)


class WindowStates(NamedTuple):
    """States of windows, the events before them, and the places of items beside the catalogue."""

    states: jax.Array  # [B, A, D]
    items: jax.Array  # [B, A, L] int32: of the events up to each state, 0 for none
    places: Places | None  # [B, A, L + M]: earlier events, then counted successors; either may be absent


def read_windows(
    model: NextItemModel,
    facts: ItemFacts,
    config: Any,
    windows: HistoryWindows,
    dropout: Any = None,
    key: Any = None,
    *,
    around: bool = False,
    counted: jax.Array | None = None,
) -> WindowStates:
    """Return the states before the targets; with `around` also the state after the last one.

    `A` is the number of targets, or 1 before a basket; one more with `around`. `counted` [B, T] are the targets that
    the log's counts of successors contain, 0 for none: they are taken out. None: the counts are of another log.
    """
    index, targets = windows.user_index, windows.chosen.shape[1]
    if model.users is not None and index is not None and key is not None:  # as an unknown user
        known = jax.random.bernoulli(jax.random.fold_in(key, USER_DROPOUT), 1.0 - config.user_dropout, index.shape)
        index = jnp.where(known, index, 0)
    seen = HistoryArrays(windows.items, windows.events, windows.user, index)
    if windows.after is None:
        width = windows.items.shape[1]
        columns = np.arange(width - targets - 1, width if around else width - 1)
        own = None if counted is None else jnp.pad(counted, ((0, 0), (0, len(columns) - targets)))[..., None]
        return read_states(model, facts, config.history + 1, seen, columns, own, dropout, key)
    last = np.array([windows.items.shape[1] - 1])
    own = None if counted is None else counted[:, None]
    before = read_states(model, facts, config.history, seen, last, own, dropout, key)
    if not around:
        return before
    later = windows.after._replace(users=windows.user, user_index=index)
    after = read_states(model, facts, config.history, later, last, None, dropout, key)
    parts: WindowStates = jax.tree.map(lambda one, two: jnp.concatenate([one, two], axis=1), before, after)
    return parts


def read_states(
    model: NextItemModel,
    facts: Any,
    length: int,
    seen: HistoryArrays,
    columns: np.ndarray[Any, Any],
    own: jax.Array | None = None,
    dropout: Any = None,
    key: Any = None,
) -> WindowStates:
    """Return the states after some columns of events [B, L]; the encoder reads the last `length` ones only.

    `facts` has the features of items and what followed each; `own` [B, A, T] are targets to be taken out of the counts
    of successors, 0 for none.
    """
    width = seen.items.shape[1]
    vectors = model.table(seen.items, facts.features).vectors
    read = slice(max(0, width - length), width)
    states = model.encoder(
        vectors[:, read], seen.events[:, read], dropout, key,
        user=seen.users, user_vectors=model.user_vectors(seen.user_index),
        steps=slice(columns[0] - read.start, columns[-1] + 1 - read.start),  # the columns follow each other
    )  # fmt: skip
    ages = columns[:, None] + 1 - np.arange(width)[None]  # [A, L]
    items = jnp.where(ages > 0, seen.items[:, None], 0)
    places = successors = None
    if model.repeats is not None:
        places = Places(items, model.repeats(states, vectors, seen.events, jnp.asarray(ages)))
    if model.successors is not None and facts.successors is not None:
        last, kinds = seen.items[:, columns], seen.events[:, columns]
        table = partial(model.table, features=facts.features)
        successors = model.successors(states, last, kinds, facts.successors, table, own)
    return WindowStates(states, items, joined(places, successors))


def targets_of(batch: Batch) -> jax.Array:
    """Return the valid targets [B, T] of windows, 0 for none."""
    chosen: jax.Array = batch.data.chosen
    return chosen if batch.valid is None else jnp.where(batch.valid, chosen, 0)


def item_logits(states: jax.Array, items: Items) -> jax.Array:
    """Return logits [..., N + 1] of all items in states [..., D]; -inf for no item."""
    return (states @ items.vectors.T + items.bias).at[..., 0].set(-jnp.inf)


# Initial rows of the table.


def at_random(log: Interactions, size: int, seed: int) -> None:
    """Return None: random directions."""
    return


def from_factors(log: Interactions, size: int, seed: int) -> np.ndarray[Any, Any]:
    """Return the singular vectors [N, D] of the user-item matrix; items with the same users are similar."""
    from scipy import sparse

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
            f"item vectors are {vectors.dtype}{vectors.shape}", f"finite [{count - 1}, {size}]", "one per item"
        )
    weight = float32(np.concatenate([np.zeros((1, size)), vectors]))
    return model._replace(table=ItemTable(weight, model.table.bias, model.table.tower))


# The loss of next-item prediction: the cross-entropy over all items or over a sample.
#
# Letters: `B` batch, `A` states of a window, `T` targets, `N` items, `D` item vector size, `S` items of a sample.


@jax.custom_vjp
def catalogue_scores(
    states: jax.Array, vectors: jax.Array, bias: jax.Array, chosen: jax.Array
) -> tuple[jax.Array, jax.Array]:
    """Return the log of the summed exponentials of all logits, and the logits of chosen items.

    States [B, A, D] and chosen items [B, T], with `A = T` or `A = 1` -> [B, A], [B, T]. The gradient is written out:
    automatic differentiation makes several more passes over arrays of the size [B, A, N + 1]. With respect to the
    items it is one product, so that devices that share a batch add it up once.
    """
    found: tuple[jax.Array, jax.Array] = _scores_forward(states, vectors, bias, chosen)[0]
    return found


def _scores_forward(states: jax.Array, vectors: jax.Array, bias: jax.Array, chosen: jax.Array) -> tuple[Any, Any]:
    items = jnp.concatenate([vectors, bias.at[0].set(-jnp.inf)[:, None]], axis=-1)
    logits = _with_ones(states) @ items.T  # an added bias would be one more pass
    largest = jnp.max(logits, axis=-1, keepdims=True)
    exponentials = jnp.exp(logits - largest)
    total = jnp.sum(exponentials, axis=-1)
    logit = jnp.sum(states * vectors[chosen], axis=-1) + bias[chosen]
    return (largest[..., 0] + jnp.log(total), logit), (states, vectors, exponentials, total, chosen)


def _scores_backward(saved: Any, slopes: Any) -> tuple[jax.Array, jax.Array, jax.Array, None]:
    states, vectors, exponentials, total, chosen = saved
    places = jnp.arange(states.shape[1]) if states.shape[1] == chosen.shape[1] else 0
    weights = jax.vmap(lambda row, item, slope: row.at[places, item].add(slope))(
        (slopes[0] / total)[..., None] * exponentials, chosen, slopes[1]
    )
    rows = _with_ones(states)
    # in the other order the weights would be transposed first
    to_items = rows.reshape(-1, rows.shape[-1]).T @ weights.reshape(-1, weights.shape[-1])
    return weights @ vectors, to_items[:-1].T, to_items[-1], None


def _with_ones(states: jax.Array) -> jax.Array:
    """States [..., D + 1]: what the last column is multiplied with is a bias."""
    return jnp.concatenate([states, jnp.ones_like(states[..., :1])], axis=-1)


catalogue_scores.defvjp(_scores_forward, _scores_backward)


def next_item_error(states: jax.Array, items: Items, chosen: jax.Array, places: Places | None = None) -> jax.Array:
    """Negative log-likelihood of the chosen items [B, T], counted from 1.

    The states [B, A, D] are those before each item (`A = T`), or one before all (`A = 1`); `items` are all. Index 0 is
    no item: its logit is excluded from the sum.
    """
    total, logit = catalogue_scores(states, *items, chosen)
    return log_total(total[..., None], places) - log_score(logit, chosen, places)


def sampled_error(
    logit: jax.Array,
    others: jax.Array,
    log_expected: jax.Array,
    hit: jax.Array,
    items: jax.Array,
    places: Places | None = None,
) -> jax.Array:
    """Sampled negative log-likelihood of items [..., T]: their logits, those of sampled items [..., A, S] -> [..., T].

    `log_expected` [S] is the log of the expected count of each sampled item in the sample; it is subtracted, and the
    sum then estimates the whole catalogue (Bengio and Senecal 2008). `hit` [..., T, S] marks sampled items that equal
    the item; they count only once.
    """
    corrected = jnp.where(hit, -jnp.inf, others - log_expected)
    catalogue = jnp.concatenate([logit[..., None], corrected], axis=-1)
    return log_total(catalogue, places) - log_score(logit, items, places)


def softmax(
    model: NextItemModel,
    config: Any,
    batch: Batch,
    facts: ItemFacts,
    states: jax.Array,
    places: Places | None,
    key: jax.Array,
) -> jax.Array:
    """Return the cross-entropy over all items, or in a catalogue above `full_softmax` items over a sample."""
    chosen = batch.data.chosen
    if len(facts.cumulative) <= config.full_softmax:
        return next_item_error(states, model.table(None, facts.features), chosen, places)
    drawn = facts.draw(key, (config.sampled_items,))
    positive, negative = (model.table(items, facts.features) for items in (chosen, drawn))
    logit = jnp.sum(states * positive.vectors, axis=-1) + positive.bias
    expected = facts.log_drawn[drawn] + jnp.log(float(config.sampled_items))
    others = states @ negative.vectors.T + negative.bias
    hit = chosen[..., None] == drawn
    return sampled_error(logit, others, expected, hit, chosen, places)


def next_item_loss(
    model: NextItemModel, config: Any, batch: Batch, facts: ItemFacts, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the cross-entropy of the next items; also the metrics."""
    noise, sample = (None, jax.random.key(0)) if key is None else jax.random.split(key)
    counted = None if key is None else targets_of(batch)  # an update learns from the log that was counted
    states, _, places = read_windows(model, facts, config, batch.data, config.dropout, noise, counted=counted)
    loss = batch.mean(softmax(model, config, batch, facts, states, places, sample))
    return loss, {"imitation_loss": loss}
