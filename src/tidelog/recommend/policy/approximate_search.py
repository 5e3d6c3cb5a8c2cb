"""Approximate search in a large table, with its measured recall.

An inverted-file index of faiss (`pip install 'tidelog[faiss]'`): rows are clustered around `lists` centres, and a query
reads the rows of its `probes` nearest centres only. Johnson, Douze, Jegou 2017, arXiv:1702.08734.

Letters: `B` queries, `N` rows of the table, `D` width of vectors, `K` results.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from tidelog.errors import ConfigError
from tidelog.runtime.retrieval import Bools, Floats, Integers, top_k


@dataclass(frozen=True, eq=False)
class Approximate:
    """An index of a table `[N, D]`; `recall` is measured."""

    table: Floats  # [N, D]
    index: Any
    probes: int

    @classmethod
    def of(cls, table: Floats, lists: int | None = None, probes: int | None = None) -> Approximate:
        """Build the index: by default sqrt(N) lists and an eighth of them as probes. ConfigError without faiss."""
        faiss = _faiss()
        table = np.ascontiguousarray(table, np.float32)
        lists = max(1, round(len(table) ** 0.5)) if lists is None else lists
        probes = max(1, lists // 8) if probes is None else probes
        if not 1 <= probes <= lists <= len(table):
            raise ConfigError(
                f"probes = {probes}, lists = {lists}: expected 1 <= probes <= lists <= {len(table)}. fix: drop both"
            )
        index = faiss.IndexIVFFlat(faiss.IndexFlatIP(table.shape[1]), table.shape[1], lists, faiss.METRIC_INNER_PRODUCT)
        index.cp.min_points_per_centroid = 1  # no warning for small tables
        index.train(table)
        index.add(table)
        return cls(table, index, probes)

    def top_k(self, queries: Floats, k: int, allowed: Bools | None = None) -> tuple[Integers, Floats]:
        """Return rows and inner products [B, K], the best first, among the rows that a mask [N] allows.

        Where the searched lists hold too few rows, the last places are -1 with scores of minus infinity.
        """
        faiss = _faiss()
        selected = {} if allowed is None else {"sel": faiss.IDSelectorBatch(np.flatnonzero(allowed))}
        settings = faiss.SearchParametersIVF(nprobe=self.probes, **selected)
        queries = np.ascontiguousarray(queries, np.float32)
        scores, places = self.index.search(queries, k, params=settings)
        return places, np.where(places < 0, -np.inf, scores).astype(np.float32)

    def recall(self, queries: Floats, k: int, allowed: Bools | None = None) -> float:
        """Return the share of the exact best `k` of these queries [B, D] in the index's results."""
        exact, _ = top_k(queries, self.table, k, allowed)
        approximate, _ = self.top_k(queries, k, allowed)
        return float((exact[:, :, None] == approximate[:, None, :]).any(2).mean())


def _faiss() -> Any:
    try:
        import faiss
    except ImportError as missing:
        raise ConfigError("the approximate index requires faiss. fix: pip install 'tidelog[faiss]'") from missing
    return faiss
