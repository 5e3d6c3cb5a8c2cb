"""Collectors as actors of a Ray cluster: the messages of `messages.py` travel as NumPy arrays of bytes.

What an actor imports at its start does not import JAX: it keeps to its processor core first.
"""

from __future__ import annotations

import os
import platform
import time
from typing import Any, NamedTuple

import msgspec
import numpy as np

from tidelog.errors import ConfigError
from tidelog.ray_cluster import ADDRESS, cause_of_loss, connect, installed, last_line, refuse_other_versions, this_node
from tidelog.schema import decode
from tidelog.training.online.collectors.transport import Lost

Bytes = np.ndarray[Any, np.dtype[np.uint8]]
STEPS_SECONDS = 5.0  # between two questions for the steps of a rollout
SENT = ("JAX_", "XLA_FLAGS")  # beginnings of variables that decide what is compiled


class About(msgspec.Struct):
    """What an actor says of itself."""

    node: str
    host: str
    cores: list[int] | None  # that it may use
    versions: dict[str, str]


class Actor:
    """One collector; `steps` answers while a rollout is collected."""

    def __init__(self) -> None:
        self._collector: Any = None

    def describe(self, packages: list[str]) -> str:
        """Return an `About`, with the versions of some packages."""
        cores = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else None
        return msgspec.json.encode(About(this_node(), platform.node(), cores, installed(packages))).decode()

    def begin(self, plan: Bytes, core: int | None, variables: dict[str, str]) -> Bytes:
        """Make the collector on this core, and return its first reply."""
        os.environ.update(variables)
        os.environ["JAX_PLATFORMS"] = "cpu"
        if core is not None:
            for thread in os.listdir("/proc/self/task"):  # later ones follow the thread that starts them
                os.sched_setaffinity(int(thread), [core])
        from tidelog.training.online.collectors.collector import begin

        self._collector, reply = begin(plan.tobytes())
        return _array(reply)

    def rollouts(self, request: Bytes) -> Bytes:
        """Return the reply to a request."""
        return _array(self._collector.answer(request.tobytes()))

    def steps(self) -> int:
        """Return the steps so far."""
        return 0 if self._collector is None else int(self._collector.steps)


class _Slot:
    """The actor of a block."""

    def __init__(self, actor: Any) -> None:
        self.actor = actor
        self.about: About | None = None
        self.place = 0  # among the collectors of its node
        self.ready = False
        self.request: Bytes | None = None  # that waits until the actor is ready
        self.steps = -1


class _Call(NamedTuple):
    block: int
    what: str


class Actors:
    """An actor for each block, each on a processor core, spread over the nodes of the cluster.

    ConfigError as `ray_cluster.connect`, and where a node has other versions than this process.
    """

    def __init__(self, plans: list[bytes], stall_seconds: float, insecure: bool = False) -> None:
        from tidelog.training.runs.record import PACKAGES

        self._plans, self._insecure, self._packages = plans, insecure, list(PACKAGES)
        self._asked = 0.0  # when the actors were asked for their steps
        self._slots: dict[int, _Slot] = {}
        self._calls: dict[Any, _Call] = {}
        self._variables = {
            name: value for name, value in os.environ.items() if name.startswith(SENT) and name != "JAX_PLATFORMS"
        }
        self._connect()

    def _connect(self) -> None:
        alone = os.environ.get(ADDRESS, "") in ("", "local")
        self._ray, self._own = connect(len(self._plans) if alone else None, self._insecure)
        self._cores = int(sum(node["Resources"].get("CPU", 0) for node in self._ray.nodes() if node["Alive"]))
        # where there are fewer cores than collectors, these share them
        cpus = 1 if self._cores >= len(self._plans) else 0
        self._actors = self._ray.remote(
            num_cpus=cpus, max_restarts=0, max_task_retries=0, max_concurrency=2, scheduling_strategy="SPREAD"
        )(Actor)

    def cores(self) -> int:
        """The number of processor cores of the cluster."""
        return self._cores

    def start(self, block: int) -> None:
        """Start the actor of a block, in place of an earlier one."""
        if self._ray is None:
            self._connect()
        self.stop(block)
        slot = self._slots[block] = _Slot(self._actors.remote())
        self._calls[slot.actor.describe.remote(self._packages)] = _Call(block, "describe")

    def running(self, block: int) -> bool:
        """Whether the actor of a block was started, and not found lost."""
        return block in self._slots

    def send(self, block: int, message: bytes) -> None:
        """Send a request to the actor of a block, at the latest when it is ready."""
        slot = self._slots[block]
        slot.request = _array(message)
        if slot.ready:
            self._send(block, slot)

    def _send(self, block: int, slot: _Slot) -> None:
        if slot.request is not None:
            self._calls[slot.actor.rollouts.remote(slot.request)] = _Call(block, "rollouts")
            slot.request = None

    def wait(self, seconds: float) -> list[tuple[int, bytes | Lost]]:
        """Return the replies that have come, by block, after at most some seconds."""
        self._ask_for_steps()
        waited = [one for one, call in self._calls.items() if call.what != "steps"]
        if waited:
            self._ray.wait(waited, num_returns=1, timeout=seconds)
        done, _ = (
            self._ray.wait(list(self._calls), num_returns=len(self._calls), timeout=0) if self._calls else ([], [])
        )
        heard: list[tuple[int, bytes | Lost]] = []
        for reference in done:
            call = self._calls.pop(reference, None)  # None: of an actor that was found lost in this loop
            if call is not None:
                heard += self._heard(reference, call)
        return heard

    def _heard(self, reference: Any, call: _Call) -> list[tuple[int, bytes | Lost]]:
        from tidelog.training.online.collectors.messages import Reply, pack

        slot, errors = self._slots[call.block], self._ray.exceptions
        try:
            answer = self._ray.get(reference)
        except errors.RayTaskError as error:
            raise ConfigError(
                f"a collector of the Ray cluster cannot start: {last_line(error)}. fix: install the same tidelog and "
                "Ray on all nodes"
            ) from error
        except errors.RayError as error:
            host = "" if slot.about is None else f" on node {slot.about.host}"
            self.stop(call.block)
            return [(call.block, Lost(f"{cause_of_loss(error)}{host}"))]
        if call.what == "describe":
            self._begin(call.block, slot, decode(answer, About, "the answer of a collector"))
            return []
        if call.what == "steps":
            before, slot.steps = slot.steps, int(answer)
            return [(call.block, pack(Reply("step")))] if slot.steps > before else []
        if call.what == "begin":
            slot.ready = True
            self._send(call.block, slot)
        return [(call.block, answer.tobytes())]

    def _begin(self, block: int, slot: _Slot, about: About) -> None:
        refuse_other_versions(about.host, about.versions, self._packages)
        taken = {one.place for one in self._slots.values() if one.about is not None and one.about.node == about.node}
        slot.about, slot.place = about, next(number for number in range(len(taken) + 1) if number not in taken)
        # the first core by the node, as several nodes may be on one machine
        core = None if about.cores is None else about.cores[(int(about.node, 16) + slot.place) % len(about.cores)]
        begun = slot.actor.begin.remote(_array(self._plans[block]), core, self._variables)
        self._calls[begun] = _Call(block, "begin")

    def _ask_for_steps(self) -> None:
        if time.monotonic() - self._asked < STEPS_SECONDS:
            return
        self._asked = time.monotonic()
        asked = {call.block for call in self._calls.values() if call.what == "steps"}
        busy = {call.block for call in self._calls.values() if call.what == "rollouts"}
        for block in busy - asked:
            self._calls[self._slots[block].actor.steps.remote()] = _Call(block, "steps")

    def stop(self, block: int) -> None:
        """Kill the actor of a block, which ends a frozen one too."""
        slot = self._slots.pop(block, None)
        if slot is not None:
            self._ray.kill(slot.actor)
            self._calls = {one: call for one, call in self._calls.items() if call.block != block}

    def close(self) -> None:
        """End all actors, and Ray if this run has started it."""
        if self._ray is None or not self._ray.is_initialized():
            return
        for block in list(self._slots):
            self.stop(block)
        if self._own:
            self._ray.shutdown()
        self._ray = None


def _array(message: bytes) -> Bytes:
    return np.frombuffer(message, np.uint8)
