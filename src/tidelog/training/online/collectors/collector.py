"""A collector: one block of the copies of every member, and the compiled program that acts in them.

A block has seeds of its own, and its own keys of actions, folded from the member's key of the round. What it collects
therefore depends on the number of blocks, and not on the process that collects it.
"""

from __future__ import annotations

import re
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import equinox as eqx
import jax
import numpy as np

from tidelog.algorithms.core.hyperparameters import from_config
from tidelog.algorithms.names import algorithm_class, load_plugin
from tidelog.envs.registry import make
from tidelog.errors import ConfigError, EnvironmentFailure, SpecError, TidelogError
from tidelog.networks.arrays import from_host
from tidelog.training.engine.cache import use_cache
from tidelog.training.engine.learner import as_arrays
from tidelog.training.online.collection import Host, initial_collection_state
from tidelog.training.online.collectors.messages import (
    Named,
    Plan,
    Reply,
    Request,
    in_order,
    named,
    numbered,
    pack,
    unpack,
)

ERRORS: dict[str, type[TidelogError]] = {one.__name__: one for one in (ConfigError, SpecError, EnvironmentFailure)}
SETTINGS = (
    "jax_enable_x64",
    "jax_default_matmul_precision",
    "jax_default_prng_impl",
    "jax_threefry_partitionable",
)


class Collector:
    """One block of every member's copies. `message` is its plan; `steps` counts the steps of its environments."""

    def __init__(self, message: bytes) -> None:
        plan, _ = unpack(message, Plan)
        sys.path += [path for path in plan.paths if path not in sys.path and Path(path).exists()]
        for name, value in plan.settings.items():
            jax.config.update(name, value)  # type: ignore[no-untyped-call]
        use_cache()
        for module in plan.modules:
            load_plugin(module, "a collector")
        self._plan, self.steps, self._member = plan, 0, 0
        self.on_step: Callable[[], None] | None = None  # called after each step
        self._hosts = []
        for seed in plan.seeds:
            host = Host(make(plan.environment, plan.copies), seed, plan.recorded, plan.block)
            host.on_step = self._count
            self._hosts.append(host)
        cls, spec = algorithm_class(plan.algorithm), self._hosts[0].environment.spec
        self.spec = spec
        algorithms = [from_config(cls, config) for config in plan.configs]
        params = algorithms[0].policy_params(algorithms[0].init(spec, jax.random.key(0), 1))
        arrays, self._static = eqx.partition(params, eqx.is_array)
        self._form = jax.tree.structure(arrays)
        carry = algorithms[0].start(params, plan.copies)
        self._carried = jax.tree.structure(
            initial_collection_state(None, plan.copies, jax.random.key(0), carry).carried
        )
        self._algorithms = [as_arrays(one) for one in algorithms]

    def _count(self) -> None:
        self.steps += 1
        if self.on_step is not None:
            self.on_step()

    def rollouts(self, message: bytes) -> bytes:
        """Collect a rollout of every member, and return the reply; EnvironmentFailure as in `Host.rollout`."""
        request, arrays = unpack(message, Request)
        reset, answer = False, Named()
        for member, host in enumerate(self._hosts):
            self._member = member
            answer |= self._rollout(member, request, arrays)
            reset |= host.was_reset
        return pack(Reply("rollout", reset=reset), answer)

    def _rollout(self, member: int, request: Request, arrays: Named) -> Named:
        host, algorithm = self._hosts[member], self._algorithms[member]
        if request.begin != "go on":
            host.restore(named(f"{member}/state", arrays) if request.begin == "restore" else None)
        leaves = [from_host(leaf) for leaf in in_order(f"{member}/params", arrays)]
        params = eqx.combine(jax.tree.unflatten(self._form, leaves), self._static)
        key = jax.random.fold_in(jax.random.wrap_key_data(from_host(arrays[f"{member}/key"])), self._plan.block)
        carried = jax.tree.unflatten(self._carried, map(from_host, in_order(f"{member}/carried", arrays)))
        collection = algorithm.collection()
        columns, carried = host.rollout(
            algorithm, params, key, request.round, collection.steps, carried, collection.pieces
        )
        answer = numbered(f"{member}/columns", jax.tree.leaves(columns))
        answer |= numbered(f"{member}/carried", jax.tree.leaves(carried))
        saved = host.save() or {}
        return answer | {f"{member}/state/{name}": np.asarray(array) for name, array in saved.items()}

    def ready(self) -> bytes:
        """Return the reply after the start."""
        return pack(Reply("ready", spec=self.spec.to_json()))

    def answer(self, message: bytes) -> bytes:
        """Return the reply to a request, or the error."""
        try:
            return self.rollouts(message)
        except Exception as error:  # whatever an environment raises
            return failure(error, self._member, self._renumbered(str(error)))

    def _renumbered(self, text: str) -> str:
        """Return an environment's message with the number of the copy among all copies."""
        begin, first = f"{self._hosts[0].environment.name}, copy ", self._plan.block * self._plan.copies
        return re.sub(rf"^{re.escape(begin)}(\d+)", lambda found: f"{begin}{first + int(found[1])}", text)


def begin(message: bytes) -> tuple[Collector | None, bytes]:
    """Return a collector with this plan and its first reply; None and the error if it cannot be made."""
    try:
        collector = Collector(message)
    except Exception as error:  # whatever a module of the user raises
        return None, failure(error)
    return collector, collector.ready()


def failure(error: Exception, member: int | None = None, text: str | None = None) -> bytes:
    """Return the reply that reports an error; one that is not tidelog's own is also printed with its place."""
    name = type(error).__name__
    if name not in ERRORS:
        traceback.print_exception(error)
        text = f"{name}: {error}"
    return pack(Reply("error", error=name, text=str(error) if text is None else text, member=member))
