"""Independent trainings in processes of their own, one core each.

Products of matrices this small lose by being split among threads, so each process is told not to.
"""

import os
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

ONE_CORE = "--xla_cpu_multi_thread_eigen=false"


def side_by_side(function: Callable[..., Any], tasks: Sequence[tuple]) -> list[Any]:
    """What the function returns for the arguments of every task, in their order."""
    with ProcessPoolExecutor(os.cpu_count(), get_context("spawn"), _keep_to_one_core) as pool:
        return [future.result() for future in [pool.submit(function, *task) for task in tasks]]


def _keep_to_one_core() -> None:
    """Before the first array is made, when XLA reads its flags."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} {ONE_CORE}".strip()
