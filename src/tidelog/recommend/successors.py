"""Counted successors: items that often followed the last item are more likely, as the counts say.

The probability of a counted successor is multiplied by `1 + exp(x)`, where `x` is the logarithm of its share of what
followed the last item, plus a trust that depends on the number of counts, a part for the kind of the last event and a
part for the state. So a list in a large catalogue begins where a last-item Markov rule stands, and the history encoder
learns what counts do not say; models of both kinds are joined in Rendle, Freudenthaler, Schmidt-Thieme 2010,
doi:10.1145/1772690.1772773, and He and McAuley 2016, arXiv:1609.09152. As a place of its item (`repeats.py`) a
successor has the score `logit + x`: the sum of both exponentials is that product.

What a training predicts is in the counts already. Without correction a pair that the log has once would look certain,
so the targets of an update are taken out of their counts.

Letters: `B` windows, `A` states of a window, `T` targets of a state, `N` items, `M` successors of an item, `D` item
vector size.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.networks.arrays import float32, int32, zeros
from tidelog.networks.recipe import Node
from tidelog.recommend.interactions.log import Interactions
from tidelog.recommend.networks import Items
from tidelog.recommend.repeats import Places
from tidelog.runtime.history_encoders import NO_PLACE, TRUSTS
from tidelog.types import same_shape


class SuccessorCounts(NamedTuple):
    """How often items followed each item in the log; row 0 has none."""

    items: jax.Array  # [N + 1, M] int32, the commonest first; 0 for none
    counts: jax.Array  # [N + 1, M]
    totals: jax.Array  # [N + 1]: counts of all that followed

    @classmethod
    def of(cls, log: Interactions, most: int) -> SuccessorCounts:
        """Count every event after the one before it of the same user; a basket follows the event before the basket."""
        from scipy import sparse

        begin = log.baskets[0] if log.has_baskets else np.arange(len(log))
        follows = begin > log.starts[log.user]
        size = len(log.items) + 1
        pairs = (log.item[begin[follows] - 1], log.item[follows])
        counted = sparse.csr_matrix((np.ones(len(pairs[0])), pairs), shape=(size, size))  # equal pairs are summed
        rows = np.repeat(np.arange(size), np.diff(counted.indptr))
        order = np.lexsort((counted.indices, -counted.data, rows))
        place = np.arange(len(rows)) - counted.indptr[rows]
        kept = place < most
        items, counts = np.zeros((size, most), np.int32), np.zeros((size, most), np.float32)
        items[rows[kept], place[kept]] = counted.indices[order][kept]
        counts[rows[kept], place[kept]] = counted.data[order][kept]
        return cls(int32(items), float32(counts), float32(np.asarray(counted.sum(axis=1)).ravel()))

    @classmethod
    def none(cls, items: int, most: int) -> SuccessorCounts:
        """Return counts of 0 for N items."""
        size = items + 1
        return cls(jnp.zeros((size, most), jnp.int32), zeros(size, most), zeros(size))


class Successors(eqx.Module):
    """Scores of the counted successors of the last item, in a state."""

    trust: jax.Array  # [TRUSTS], by the binary logarithm of the number of counts
    kind: jax.Array  # [kinds + 1]: of the last event
    gate: jax.Array  # [D]

    @classmethod
    def create(cls, size: int, kinds: int, items: int) -> Successors:
        """Return a trust that gives all successors together about as much probability as the untrained catalogue."""
        return cls(jnp.full(TRUSTS, np.log(items), jnp.float32), zeros(kinds + 1), zeros(size))

    def __call__(
        self,
        states: jax.Array,
        last: jax.Array,
        kinds: jax.Array,
        counted: SuccessorCounts,
        table: Callable[[jax.Array], Items],
        targets: jax.Array | None = None,
    ) -> Places:
        """Return successors and scores [B, A, M] in states [B, A, D] after last items and their kinds of event [B, A].

        `table` returns vectors and biases of items. `targets` [B, A, T] are taken out of the counts, 0 for none; None
        takes nothing out.
        """
        items, counts, totals = counted.items[last], counted.counts[last], counted.totals[last]
        if targets is not None:
            counts = counts - jnp.sum(items[..., None] == targets[..., None, :], axis=-1)
            totals = totals - jnp.sum(targets > 0, axis=-1)
        same_shape(items=items, counts=counts)
        there = (items > 0) & (counts > 0.5)
        totals = jnp.maximum(totals, 1.0)
        group = jnp.clip(jnp.log2(totals) + 1e-4, 0, TRUSTS - 1).astype(jnp.int32)
        part = self.trust[group] + self.kind[kinds] + states @ self.gate - jnp.log(totals)
        found = table(items)
        logits = jnp.einsum("bad,bamd->bam", states, found.vectors) + found.bias
        scores = logits + part[..., None] + jnp.log(jnp.where(there, counts, 1.0))
        return Places(items, jnp.where(there, scores, NO_PLACE))


def joined(first: Places | None, second: Places | None) -> Places | None:
    """Return the places [..., L] and [..., M] of the same states as one."""
    if first is None or second is None:
        return second if first is None else first
    items = jnp.broadcast_to(first.items, first.scores.shape)
    return Places(
        jnp.concatenate([items, second.items], axis=-1), jnp.concatenate([first.scores, second.scores], axis=-1)
    )


def successors_node(part: Successors, counted: SuccessorCounts) -> Node:
    """Return the node of a recipe."""
    counts = {"items": counted.items, "counts": counted.counts, "totals": counted.totals}
    return {"kind": "successors", "trust": part.trust, "event": part.kind, "gate": part.gate} | counts


def with_new_rows(counted: SuccessorCounts, count: int) -> SuccessorCounts:
    """Return the counts with `count` new items, which nothing followed."""
    longer: Any = jax.tree.map(lambda part: jnp.pad(part, ((0, count), *((0, 0),) * (part.ndim - 1))), counted)
    return SuccessorCounts(*longer)
