"""envpool's environments: compiled, multi-threaded, and seeded only at construction.

envpool restarts a copy in the step after its end, according to its metadata; those rows are not decisions
(`Outcome.valid`). Only pools that return all copies in each step are supported.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any

import numpy as np

from tidelog.envs.channels import channels_last
from tidelog.envs.protocol import positive
from tidelog.envs.vector import VectorGymnasium
from tidelog.errors import ConfigError


class Pool(VectorGymnasium):
    """All copies of one pool, rebuilt by `maker(seed)` at each reset because its seed is fixed at construction."""

    def __init__(self, maker: Callable[[int], Any], name: str | None = None) -> None:
        self._maker = maker
        super().__init__(maker(0), name)

    def _reset_source(self, seed: int) -> Any:
        self._source.close()
        self._source = self._maker(seed % 2**31)  # envpool's seeds are 32-bit and signed
        return self._call("reset", 2)

    def _call(self, what: str, parts: int, *args: Any, **kwargs: Any) -> Any:
        returned = super()._call(what, parts, *args, **kwargs)
        order = returned[-1].get("env_id")
        if order is not None and not np.array_equal(order, np.arange(self.count)):
            raise self._batch().failure(None, f"{what} returned the copies {order}. fix: set batch_size to num_envs")
        return returned


def pool(name: str, count: int) -> Pool:
    """Make `count` copies of one of envpool's environments; ConfigError if envpool or the name is missing."""
    try:
        import envpool
    except ImportError as error:
        raise ConfigError(f"envpool cannot be imported: {error}. fix: pip install 'tidelog[envpool]'") from error
    known = envpool.list_all_envs()
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f": did you mean {' or '.join(map(repr, close))}?" if close else ""
        raise ConfigError(f"envpool has no environment {name!r}{hint}")
    copies = positive("count", count)

    def maker(seed: int) -> Any:
        return channels_last(envpool.make_gymnasium(name, num_envs=copies, seed=seed))

    return Pool(maker, f"envpool:{name}")
