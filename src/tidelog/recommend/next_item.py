"""Next-item prediction: facts of the catalogue, history encoding, and the cross-entropy.

Letters: `B` batch, `H` history length, `T` targets, `N` items, `D` item vector size, `S` sampled items, `F` features.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, TypeAlias

import jax
import jax.numpy as jnp
import numpy as np
from scipy import sparse

from tidelog.algorithms.core.sampling import Batch
from tidelog.errors import ConfigError
from tidelog.losses.next_item_losses import next_item_error, sampled_error
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.networks.catalogue import Items, Table
from tidelog.recommend.networks.sequence import Reader
from tidelog.recommend.windows import Visit

Begin: TypeAlias = Callable[[Interactions, int, int], Any]  # (log, D, seed) -> rows [N, D] of the table, or None
LOOKED = 16  # windows whose most likely item is computed in a large catalogue
PARTS = 2**31 - 1  # largest sum of the integer probabilities: 32-bit fractions are too coarse for a million items
POWER = 0.75  # exponent of popularity for sampled items (Mikolov et al. 2013)


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


class NextItemModel(NamedTuple):
    """The parts that only the cross-entropy trains."""

    table: Table
    reader: Reader


def facts(counts: np.ndarray[Any, Any], features: np.ndarray[Any, Any] | None) -> ItemFacts:
    """Return facts of items from their counts [N + 1]; each count is increased by one: no item has probability 0."""
    often = counts[1:].astype(np.float64) + 1.0
    parts = np.maximum(np.rint(often**POWER / (often**POWER).sum() * (PARTS - len(often))), 1.0)
    cumulative, drawn = (
        np.cumsum(parts),
        parts / parts.sum(),
    )  # the rounded probabilities are the sampling probabilities

    def log_array(share: np.ndarray[Any, Any]) -> jax.Array:
        return jnp.asarray(np.append(0.0, np.log(share)).astype(np.float32))

    feature_rows = None if features is None else jnp.asarray(features)
    return ItemFacts(
        log_array(often / often.sum()), log_array(drawn), jnp.asarray(cumulative.astype(np.int32)), feature_rows
    )


def read(recall: NextItemModel, known: ItemFacts, visit: Visit, dropout: Any = None, key: Any = None) -> jax.Array:
    """Encode windows [B, H + 1] into the states [B, H + 1, D] after each of their steps."""
    vectors = recall.table(visit.items, known.features).vectors
    return recall.reader(vectors, visit.events, dropout, key, user=visit.user)


def likelihoods(states: jax.Array, items: Items) -> jax.Array:
    """Return logits [..., N + 1] of all items in states [..., D]; -inf for no item."""
    return (states @ items.vectors.T + items.bias).at[..., 0].set(-jnp.inf)


def recall_loss(
    recall: NextItemModel, config: Any, batch: Batch, known: ItemFacts, key: jax.Array | None
) -> tuple[jax.Array, dict[str, jax.Array]]:
    """Return the cross-entropy of the next items, over all items or over a sample; also the metrics."""
    visit: Visit = batch.data
    noise, drawn = (None, jax.random.key(0)) if key is None else jax.random.split(key)
    states = visit.states(read(recall, known, visit, config.dropout, noise))
    if len(known.cumulative) <= config.full_softmax:
        logits = likelihoods(states, recall.table(None, known.features))
        error, first, looked = next_item_error(logits, visit.chosen), jnp.argmax(logits, axis=-1), batch.valid
    else:
        error = _sampled(recall, config, visit, states, known, drawn)
        first = jnp.argmax(likelihoods(states[:LOOKED, -1], recall.table(None, known.features)), axis=-1)
        looked = jnp.ones_like(first, bool)
    coverage, entropy = variety(first, looked, len(known.cumulative))
    loss = batch.mean(error)
    return loss, {"imitation_loss": loss, "coverage": coverage, "entropy": entropy}


def _sampled(
    recall: NextItemModel, config: Any, visit: Visit, states: jax.Array, known: ItemFacts, key: jax.Array
) -> jax.Array:
    drawn = known.draw(key, (config.sampled_items,))
    positive, negative = (recall.table(items, known.features) for items in (visit.chosen, drawn))
    logit = jnp.sum(states * positive.vectors, axis=-1) + positive.bias
    expected = known.log_drawn[drawn] + jnp.log(float(config.sampled_items))
    hit = visit.chosen[..., None] == drawn
    return sampled_error(logit, states @ negative.vectors.T + negative.bias, expected, hit)


def variety(items: jax.Array, counted: jax.Array | None, catalogue: int) -> tuple[jax.Array, jax.Array]:
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


BEGINNINGS: Mapping[str, Begin] = {"random": at_random, "factors": from_factors}


def recall_from(recall: NextItemModel, rows: Any) -> NextItemModel:
    """Return the table with the user's own rows [N, D]; ConfigError where their shape differs."""
    count, size = recall.table.weight.shape
    vectors = np.asarray(rows, np.float32)
    if vectors.shape != (count - 1, size) or not np.isfinite(vectors).all():
        raise ConfigError(
            f"item vectors are {vectors.dtype}{vectors.shape}, expected finite [{count - 1}, {size}]. fix: one per item"
        )
    whole = jnp.asarray(np.concatenate([np.zeros((1, size), np.float32), vectors]))
    return recall._replace(table=Table(whole, recall.table.bias, recall.table.tower))
