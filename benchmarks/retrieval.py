"""The ten best of 1,000,000 x 64 for batches of 256: ours against faiss's flat index, in turns in one process.

Once with one thread each and once with all cores. Beside them stand the inner products alone, without a search: the
bound of an exact one. faiss is measured where it is installed (`pip install faiss-cpu`), and then an index of 256
lists, of which 32 are searched, with its recall.
"""

import os
import time
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.keep import keep
from benchmarks.spread import called
from tidelog.runtime.ranking import top_k

COMMAND = "python -m benchmarks retrieval"
ROWS, WIDTH, BATCH, K, REPEATS = 1_000_000, 64, 256, 10, 3
CHUNK, LISTS = 2048, 256  # rows of the table in a block; of the approximate index
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS")


def measure() -> dict[str, Any]:
    """Seconds of each search in this process, the least of `REPEATS` in turns."""
    generator = np.random.default_rng(0)
    table = generator.standard_normal((ROWS, WIDTH), dtype=np.float32)
    queries = generator.standard_normal((BATCH, WIDTH), dtype=np.float32)
    searches: dict[str, Callable[[], Any]] = {
        "ours": lambda: top_k(queries, table, K),
        "products alone": lambda: products(queries, table),
    }
    found: dict[str, Any] = {}
    if find_spec("faiss"):
        import faiss

        flat = faiss.IndexFlatIP(WIDTH)
        quick = faiss.IndexIVFFlat(faiss.IndexFlatIP(WIDTH), WIDTH, LISTS, faiss.METRIC_INNER_PRODUCT)
        quick.train(table)
        quick.nprobe = LISTS // 8
        for index in (flat, quick):
            index.add(table)
        searches |= {"faiss flat": lambda: flat.search(queries, K), "approximate": lambda: quick.search(queries, K)}
        found |= {"faiss": faiss.__version__}
    taken: dict[str, list[float]] = {name: [] for name in searches}
    answers: dict[str, Any] = {}
    for _ in range(REPEATS):
        for name, search in searches.items():
            begin = time.perf_counter()
            answers[name] = search()
            taken[name].append(time.perf_counter() - begin)
    if "faiss flat" in answers:
        places = answers["ours"][0]
        near = (places[:, :, None] == answers["approximate"][1][:, None, :]).any(2)
        found |= {"same": float((places == answers["faiss flat"][1]).mean()), "recall": float(near.mean())}
    return found | {"seconds": {name: min(times) for name, times in taken.items()}}


def products(queries: Any, table: Any) -> None:
    """All inner products and nothing else, in blocks as `top_k` has them: no exact search in float32 can be faster."""
    scores = np.empty((BATCH, CHUNK), np.float32)
    for first in range(0, ROWS, CHUNK):
        part = table[first : first + CHUNK]
        np.matmul(queries, part.T, out=scores[:, : len(part)] if len(part) == CHUNK else None)


def study() -> dict[str, Any]:
    """One thread, and all cores, each in a process of its own."""
    found: dict[str, Any] = {"rows": ROWS, "width": WIDTH, "batch": BATCH, "k": K}
    for name, threads in (("one thread", 1), ("all cores", os.cpu_count() or 1)):
        found[name] = called(measure, **dict.fromkeys(THREADS, str(threads))) | {"threads": threads}
        print(name, found[name]["seconds"])
    keep("retrieval", COMMAND, found)
    return found
