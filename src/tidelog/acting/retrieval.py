"""Exact search for the largest inner products, chunk by chunk. Letters: `B` queries, `N` rows, `D` size, `K` found."""

from __future__ import annotations

from typing import Any

import numpy as np

NumpyArray = np.ndarray[Any, Any]
CHUNK = 65_536  # rows whose scores are held at once


def top_k(
    queries: NumpyArray, table: NumpyArray, k: int, allowed: NumpyArray | None = None, chunk: int = CHUNK
) -> tuple[NumpyArray, NumpyArray]:
    """The `k` rows of a table [N, D] with the largest inner product with each query [B, D]: indices, scores [B, k].

    Largest first, ties by lowest index. `allowed` [B, N] bool; where fewer than `k` rows are allowed, the rest has the
    score -inf.
    """
    best = np.full((len(queries), 0), -np.inf, np.float32), np.zeros((len(queries), 0), np.int32)
    for begin in range(0, len(table), chunk):
        part = table[begin : begin + chunk]
        scores = (queries @ part.T).astype(np.float32)
        if allowed is not None:
            scores = np.where(allowed[:, begin : begin + chunk], scores, -np.inf)
        rows = np.broadcast_to(np.arange(begin, begin + len(part), dtype=np.int32), scores.shape)
        scores, rows = np.concatenate([best[0], scores], axis=1), np.concatenate([best[1], rows], axis=1)
        kept = min(k, scores.shape[1])
        order = np.lexsort((rows, -scores), axis=1)[:, :kept]
        best = np.take_along_axis(scores, order, axis=1), np.take_along_axis(rows, order, axis=1)
    return best[1], best[0]
