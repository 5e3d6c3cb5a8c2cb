"""Several processes that train one run: how they connect, what they agree on, and which of them writes.

Each process reads the log, holds the learners, and computes the gradients of its part of every batch. Process 0 writes
the run folder and measures; what depends on its clock, its files or its measurements is its decision for all. Decisions
are text in the key-value store of `jax.distributed`, apart from the programs of the devices: a process may wait for
another as long as a report takes.
"""

from __future__ import annotations

import inspect
import json
import socket
import time
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import jax
import msgspec
import numpy as np
from jax._src.distributed import global_state

from tidelog import errors
from tidelog._machine import this_machine
from tidelog.errors import ConfigError, ProcessError, TidelogError
from tidelog.policies.policy import fingerprint
from tidelog.training.record import Record, new_folder

T = TypeVar("T")
HEARTBEAT_SECONDS = 20  # a process without a sign of life for so long is lost
SHUTDOWN_SECONDS = 20
POLL_MILLISECONDS = 1_000  # between two looks at signals while a decision is awaited
AGAIN = "start all processes again with `tidelog resume` and the same flags"


class Processes:
    """The processes that train one run together; one process alone decides for itself."""

    def __init__(self, count: int, rank: int, client: Any) -> None:
        self.count, self.rank, self._client = count, rank, client
        self._decisions = 0

    def decide(self, value: Any, rule: Callable[[list[Any]], Any]) -> Any:
        """Return what a rule makes, in process 0, of the values of all processes: JSON, in the order of their ranks.

        Each process must call it equally often. ProcessError if another process is lost.
        """
        if self.count == 1:
            return rule([value])
        self._decisions += 1
        name = f"tidelog/{self._decisions}"
        try:
            self._client.key_value_set(f"{name}/{self.rank}", _text(value))
            if self.rank == 0:
                values = [json.loads(self._get(f"{name}/{rank}")) for rank in range(self.count)]
                self._client.key_value_set(f"{name}/decision", _text(rule(values)))
                self._client.key_value_delete(f"tidelog/{self._decisions - 1}/")  # all have read it
            return json.loads(self._get(f"{name}/decision"))
        except jax.errors.JaxRuntimeError as error:
            raise self.lost(error) from error

    def _get(self, key: str) -> str:
        while True:
            try:
                return str(self._client.blocking_key_value_get(key, POLL_MILLISECONDS))
            except jax.errors.JaxRuntimeError as error:
                if "DEADLINE_EXCEEDED" not in str(error):
                    raise

    def on_first(self, function: Callable[[], T], *, alone: bool = False) -> T:
        """Return what a function returns in process 0, in the form of JSON elsewhere; all raise its errors.

        `alone` returns None elsewhere: what it returns belongs to process 0.
        """
        if self.count == 1:
            return function()
        outcome: dict[str, Any] = {}
        result: Any = None
        failure: TidelogError | None = None
        if self.rank == 0:
            try:
                result = function()
                outcome = {"result": None if alone else result}
            except TidelogError as error:
                failure = error
                outcome = {"error": type(error).__name__, "fields": [error.found, error.expected, error.fix]}
        agreed = self.decide(outcome, lambda values: values[0])
        if failure is not None:
            raise failure
        if "error" in agreed:
            raise getattr(errors, agreed["error"], TidelogError)(*agreed["fields"])
        own: T = result if self.rank == 0 else agreed["result"]
        return own

    def lost(self, error: Exception) -> ProcessError:
        """Return the error for a failure of the connection to other processes."""
        line = str(error).splitlines()[0] if str(error) else type(error).__name__
        return ProcessError(
            f"rank {self.rank}: the connection to another of the {self.count} processes failed ({line})",
            fix=f"{AGAIN}; the run continues from its last checkpoint",
        )

    def check_same(self, facts: Mapping[str, str]) -> None:
        """Raise ConfigError, in all processes, if a fact of one differs from that of process 0."""
        found: list[str] = self.decide(dict(facts), _differences)
        if found:
            raise ConfigError(
                f"the processes do not train the same run: {'; '.join(found)}",
                fix="start all of them with the same command, versions and log",
            )


def _differences(values: Sequence[Mapping[str, str]]) -> list[str]:
    return [
        f"{name} of rank {rank} is {one.get(name)}, and {first} of rank 0"
        for name, first in values[0].items()
        for rank, one in enumerate(values)
        if one.get(name) != first
    ]


def _text(value: Any) -> str:
    def plain(number: Any) -> Any:
        if isinstance(number, np.generic | np.ndarray | jax.Array):
            return np.asarray(number).tolist()
        raise TypeError(f"{number!r} has no JSON form")

    return json.dumps(value, default=plain)


@cache
def _connected(client: Any) -> Processes:
    return Processes(jax.process_count(), jax.process_index(), client)


def connected() -> Processes:
    """Return the processes that this one is connected to; alone if there are none."""
    return Processes(1, 0, None) if global_state.client is None else _connected(global_state.client)


def connect_processes(
    coordinator: str | None = None, processes: int | None = None, rank: int | None = None, *, seconds: float = 300.0
) -> Processes:
    """Connect this process to the others that train the same runs; call it before anything else of JAX.

    `coordinator` is HOST:PORT of process 0, which all reach; the ranks of N processes are 0 to N - 1. Without
    arguments, Slurm, Open MPI and Kubernetes tell all three. Then `fit`, `learn` and `resume` share batches among the
    devices of all processes. Raises ConfigError, also where the others are not reached within some seconds.
    """
    named = (coordinator, processes, rank)
    if any(one is None for one in named) and any(one is not None for one in named):
        raise ConfigError(
            f"coordinator = {coordinator}, processes = {processes}, rank = {rank}",
            "all three or none",
            "name all three, or none under Slurm, Open MPI and Kubernetes",
        )
    if coordinator is not None and not (coordinator.rpartition(":")[0] and coordinator.rpartition(":")[2].isdigit()):
        raise ConfigError(f"coordinator = {coordinator!r}", "HOST:PORT of process 0", "use localhost:9000")
    if processes is not None and rank is not None and not 0 <= rank < processes:
        raise ConfigError(f"rank = {rank}", f"0 to {processes - 1} for {processes} process(es)", "count from 0")
    more: dict[str, Any] = {
        "heartbeat_timeout_seconds": HEARTBEAT_SECONDS,
        "shutdown_timeout_seconds": SHUTDOWN_SECONDS,
    }
    if coordinator is not None and rank:
        _wait_for(coordinator, rank, seconds)  # JAX would end the process
    known = inspect.signature(jax.distributed.initialize).parameters
    jax.config.update("jax_cpu_collectives_implementation", "gloo")  # type: ignore[no-untyped-call]
    try:
        jax.distributed.initialize(
            coordinator,
            processes,
            rank,
            initialization_timeout=int(seconds),
            **{k: v for k, v in more.items() if k in known},
        )
    except (RuntimeError, ValueError) as error:
        position = "the coordinator" if coordinator is None else coordinator
        line = str(error).splitlines()[0]
        raise ConfigError(
            f"rank {rank}: no connection through {position} within {seconds:g} seconds ({line})",
            fix=(
                "start all processes with the address of process 0, and a free port that the others reach; "
                "connect before anything else of JAX"
            ),
        ) from error
    return connected()


def _wait_for(coordinator: str, rank: int, seconds: float) -> None:
    """Wait until process 0 can be reached; ConfigError after some seconds."""
    host, _, port = coordinator.rpartition(":")
    until = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host.strip("[]"), int(port)), timeout=max(1.0, seconds)).close()
            return
        except (OSError, OverflowError) as problem:
            if time.monotonic() >= until:
                raise ConfigError(
                    f"rank {rank}: {coordinator} was not reached within {seconds:g} seconds ({problem})",
                    fix=(
                        "start rank 0 too, name its address and a free port that all reach, or wait longer "
                        "(--connect-seconds)"
                    ),
                ) from problem
            time.sleep(0.2)


def check_processes(record: Record, learners: Sequence[Any]) -> None:
    """Raise ConfigError, in all processes, unless they have the same log, settings, versions, devices and learners."""
    group = connected()
    if group.count == 1:
        return
    machine = {name: str(value) for name, value in this_machine().items() if name not in ("threads", "processor")}
    config = {f"the setting {name}": str([one.get(name) for one in record.configs]) for name in record.configs[0]}
    options = {f"the option {name}": str(value) for name, value in msgspec.to_builtins(record.options).items()}
    group.check_same(
        {
            **machine,
            "the log": str(record.data.fingerprint or record.data.environment)[:12],
            "the algorithm": record.algorithm,
            **config,
            **options,
            "the update": str(int(learners[0].update)),
            "the state": " ".join(fingerprint(learner)[:12] for learner in learners),
        }
    )


def shared_folder(out: str | Path | None, record: Record, overwrite: bool = False) -> Path | None:
    """Return the run folder, which process 0 creates with its record; None without `out`. Errors: `new_folder`."""
    connected().on_first(lambda: str(new_folder(out, record, overwrite)))
    return None if out is None else Path(out)


def check_alone(what: str) -> None:
    """Raise ConfigError for what only one process can do."""
    count = connected().count
    if count > 1:
        raise ConfigError(f"{what} does not support {count} processes", fix="do it in one process")


def devices_of_all(devices: Any) -> Any:
    """Return the devices of a run: by default, all devices of all processes share its batches.

    ConfigError for numbers that leave a process without a part of each batch.
    """
    group = connected()
    if group.count == 1:
        return devices
    if devices is None:
        return {"members": 1, "batch": jax.device_count()}
    batch = devices.get("batch", 1) if isinstance(devices, Mapping) else 1
    if isinstance(batch, int) and (batch < 1 or batch % group.count):
        raise ConfigError(
            f"devices = {devices}: {group.count} processes share each batch",
            f"a multiple of {group.count} as batch",
            f"use devices={{'batch': {jax.device_count()}}}, on the command line --devices "
            f"batch={jax.device_count()}, or train in one process",
        )
    return devices
