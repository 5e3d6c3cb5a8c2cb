"""The run's side of its collectors: requests, replies, and processes that are lost.

The state of each block's environments comes with its rollout, where it can be saved. A process that ends or freezes is
replaced, its environments are restored to the beginning of the rollout, and the rollout is repeated: it is equal to the
last bit. Environments that cannot be saved are all reset then. Letters: `W` copies, `T` decisions of each.
"""

from __future__ import annotations

import sys
import time
import weakref
from collections.abc import Callable, Sequence
from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np

from tidelog.algorithms.core.contract import Collection
from tidelog.algorithms.core.hyperparameters import to_config
from tidelog.algorithms.core.segments import Columns
from tidelog.algorithms.names import algorithm_name
from tidelog.envs.protocol import Environment, Resumable
from tidelog.envs.registry import module_of
from tidelog.errors import ConfigError, EnvironmentFailure
from tidelog.ray_cluster import check_engine_name
from tidelog.training.engine.learner import as_arrays
from tidelog.training.engine.members import Member
from tidelog.training.online.collection import Named, RecurrentState, shapes
from tidelog.training.online.collectors.collector import ERRORS, SETTINGS
from tidelog.training.online.collectors.here import Here
from tidelog.training.online.collectors.messages import (
    Begin,
    Plan,
    Reply,
    Request,
    in_order,
    named,
    numbered,
    pack,
    unpack,
)
from tidelog.training.online.collectors.transport import Lost, Transport
from tidelog.types import Spec

STALL_SECONDS = 300.0  # without a step of an environment, then a process counts as frozen
MOST_LOSSES = 3  # of one block, without a complete rollout
WAIT_SECONDS = 1.0


class Collectors:
    """The collectors of a run: `blocks` processes, each with `copies` of every member's environments."""

    def __init__(
        self,
        environment: Environment,
        name: str,
        members: Sequence[Member],
        blocks: int,
        recorded: bool,
        transport: Callable[[list[bytes], float], Transport],
    ) -> None:
        """`environment` has the copies of one block; the processes make theirs by its `name`."""
        self._environment, self._blocks, self._recorded = environment, blocks, recorded
        self._resumable = isinstance(environment, Resumable)
        self._copies, self._seeds = environment.count, [member.seed for member in members]
        self._algorithm = as_arrays(members[0].algorithm)
        self._transport = transport([pack(one) for one in self._plans(name, members)], STALL_SECONDS)
        self._end = weakref.finalize(self, self._transport.close)  # also where Python ends
        self._heard, self._busy, self._losses = [0.0] * blocks, [False] * blocks, [0] * blocks
        self._live = [False] * blocks  # whether the environments of a block are in the state of `_states`
        self._states: list[list[Named]] = [[{} for _ in range(blocks)] for _ in members]
        self._forms: Any = None
        self.hosts = [MemberCopies(self, number, environment) for number in range(len(members))]
        self.payload = 0  # bytes that were sent and received

    def _plans(self, name: str, members: Sequence[Member]) -> list[Plan]:
        algorithm = members[0].algorithm
        modules = {type(algorithm).__module__, module_of(name)} - {None, "__main__"}
        return [
            Plan(
                environment=name,
                copies=self._copies,
                block=block,
                seeds=self._seeds,
                algorithm=algorithm_name(algorithm),
                configs=[to_config(member.algorithm) for member in members],
                recorded=self._recorded,
                modules=sorted(str(one) for one in modules if not str(one).startswith("tidelog.")),
                paths=[path for path in sys.path if path],
                settings={one: getattr(jax.config, one) for one in SETTINGS},
            )
            for block in range(self._blocks)
        ]

    def start(self) -> None:
        """Start all processes and wait until they are ready; ConfigError or SpecError if one cannot make its block."""
        waiting = {block for block in range(self._blocks) if not self._transport.running(block)}
        for block in waiting:
            self._start(block)
        try:
            while waiting:
                for block, _ in self._replies(waiting, self._start):
                    waiting.discard(block)
        except BaseException:
            self.close()
            raise

    def rollouts(
        self, round: int, params: Sequence[Any], keys: Sequence[jax.Array], carried: Sequence[RecurrentState | None]
    ) -> list[tuple[Columns, RecurrentState | None]]:
        """Collect a rollout of every member, columns [W, T, ...]; `keys` are those of the members in this round.

        EnvironmentFailure if an environment fails, or a process is lost again and again; the next call begins with the
        environments as they were.
        """
        live, self._live = self._live, [False] * self._blocks
        shared: Named = {}
        for member, (one, key) in enumerate(zip(params, keys, strict=True)):
            shared |= numbered(f"{member}/params", jax.device_get(jax.tree.leaves(eqx.filter(one, eqx.is_array))))
            shared[f"{member}/key"] = np.asarray(jax.random.key_data(key))
        leaves = [jax.device_get(jax.tree.leaves(one)) for one in carried]
        replies: dict[int, tuple[Reply, Named]] = {}
        reset = not self._resumable and not all(live)
        while len(replies) < self._blocks:
            try:
                replies = self._attempt(round, shared, leaves, live, reset)
            except _Again:
                reset = True  # of all copies: those of the lost process begin new episodes
        self._live = [True] * self._blocks
        self._forms = self._forms or self._structures(params[0], carried[0])
        return [self._joined(member, replies) for member in range(len(self._seeds))]

    def _structures(self, params: Any, carried: Any) -> tuple[Any, Any]:
        """Return the structures of a rollout's columns, and of the recurrent state."""
        collection: Collection = self._algorithm.collection()
        columns = shapes(self._algorithm, params, self._environment.spec, collection, self._recorded)
        return jax.tree.structure(columns), jax.tree.structure(carried)

    def _joined(self, member: int, replies: dict[int, tuple[Reply, Named]]) -> tuple[Columns, RecurrentState | None]:
        """Join the blocks of a member's rollout, and take over the states of its environments."""
        host = self.hosts[member]
        host.was_reset = all(reply.reset for reply, _ in replies.values())
        arrays = [replies[block][1] for block in range(self._blocks)]
        self._states[member] = [named(f"{member}/state", one) for one in arrays]
        columns, carried = (
            jax.tree.unflatten(form, [np.concatenate(parts) for parts in zip(*leaves, strict=True)])
            for form, leaves in (
                (form, [in_order(f"{member}/{part}", one) for one in arrays])
                for part, form in zip(("columns", "carried"), self._forms, strict=True)
            )
        )
        return columns, jax.tree.map(jnp.asarray, carried)

    def _attempt(
        self, round: int, shared: Named, carried: list[list[Any]], live: list[bool], reset: bool
    ) -> dict[int, tuple[Reply, Named]]:
        """Collect the rollout of every block; _Again if it must be repeated in all of them."""

        def send(block: int, goes_on: bool) -> None:
            rows = slice(block * self._copies, (block + 1) * self._copies)
            arrays, begin = dict(shared), _begin(goes_on, reset, bool(self._states[0][block]))
            for member, leaves in enumerate(carried):
                arrays |= numbered(f"{member}/carried", [leaf[rows] for leaf in leaves])
                state = self._states[member][block] if begin == "restore" else {}
                arrays |= {f"{member}/state/{name}": array for name, array in state.items()}
            message = pack(Request(round, begin), arrays)
            self.payload += len(message)
            self._heard[block], self._busy[block] = time.monotonic(), True
            self._transport.send(block, message)

        def again(block: int) -> None:
            self._start(block)
            if not self._resumable:
                raise _Again
            send(block, False)

        for block in range(self._blocks):
            if self._busy[block] or not self._transport.running(block):  # busy with a rollout that nobody waits for
                self._start(block)
                live[block] = False
            send(block, live[block])
        replies: dict[int, tuple[Reply, Named]] = {}
        while len(replies) < self._blocks:
            for block, message in self._replies(set(range(self._blocks)) - set(replies), again):
                reply, arrays = unpack(message, Reply)
                if reply.kind == "rollout":
                    replies[block] = reply, arrays
                    self._busy[block], self._losses[block] = False, 0
                    self.payload += len(message)
        return replies

    def _replies(self, waiting: set[int], lost: Callable[[int], None]) -> list[tuple[int, bytes]]:
        """Return what has come from these blocks, without signs of steps; `lost` is called where a process is lost."""
        found = []
        for block, message in self._transport.wait(WAIT_SECONDS):
            self._heard[block] = time.monotonic()
            if isinstance(message, Lost):
                self._count_loss(block, message.how)
                lost(block)
                continue
            reply, _ = unpack(message, Reply)
            if reply.kind == "error":
                raise self._error(block, reply)
            if reply.kind == "ready":
                self._check_spec(block, reply)
            if reply.kind != "step":
                found.append((block, message))
        for block in waiting - {one for one, _ in found}:
            silent = time.monotonic() - self._heard[block]
            if silent > STALL_SECONDS:
                self._transport.stop(block)
                self._count_loss(block, f"no step for {silent:.0f} seconds")
                lost(block)
        return found

    def _start(self, block: int) -> None:
        self._heard[block], self._busy[block] = time.monotonic(), False
        self._transport.start(block)

    def _count_loss(self, block: int, how: str) -> None:
        self._losses[block] += 1
        self._busy[block] = False
        if self._losses[block] >= MOST_LOSSES:
            losses, self._losses[block] = self._losses[block], 0
            raise EnvironmentFailure(
                f"{self._environment.name}: the process of {self._text(block)} was lost {losses} times without a "
                f"complete rollout, at last: {how}. fix: see what it printed; where memory runs out, use fewer "
                "environments or collectors"
            )

    def _error(self, block: int, reply: Reply) -> Exception:
        self._busy[block] = False
        seed = "" if reply.member is None else f" (seed {self._seeds[reply.member]})"
        if reply.error == EnvironmentFailure.__name__ and reply.member is not None:
            return EnvironmentFailure(f"{reply.text}{seed}")
        self._transport.stop(block)
        if reply.error in ERRORS:
            return ERRORS[reply.error](f"{self._text(block)}: {reply.text}{seed}")
        if reply.member is None:
            return ConfigError(
                f"{self._environment.name} cannot be made in the process of {self._text(block)}: {reply.text}. fix: "
                "its place is printed above; a process has no screen, and imports only modules that are named"
            )
        return EnvironmentFailure(
            f"{self._environment.name}: {self._text(block)} failed with {reply.text}{seed}. fix: its place is printed "
            "above"
        )

    def _check_spec(self, block: int, reply: Reply) -> None:
        if Spec.from_json(reply.spec) != self._environment.spec:
            raise ConfigError(
                f"{self._environment.name} of {self._text(block)} has {Spec.from_json(reply.spec)}, expected "
                f"that of this process, {self._environment.spec}. fix: install the same versions everywhere"
            )

    def _text(self, block: int) -> str:
        first = block * self._copies
        return f"collector {block} (copies {first} to {first + self._copies - 1})"

    def notes(self) -> list[str]:
        """Return a note where processes share a core."""
        cores = self._transport.cores()
        if self._blocks <= cores:
            return []
        return [f"{self._blocks} collectors share {cores} processor core(s): more than one on a core gain nothing"]

    def state(self, member: int) -> Named | None:
        """Return the state of a member's environments as arrays; None if they cannot be saved, or have not begun."""
        states = self._states[member]
        if not states[0]:
            return None
        return {f"{block}/{name}": array for block, state in enumerate(states) for name, array in state.items()}

    def restore(self, member: int, saved: Named | None) -> None:
        """Restore the state of a member's environments; without one, all are reset at the next rollout."""
        self._states[member] = [named(str(block), saved or {}) for block in range(self._blocks)]
        self._live = [False] * self._blocks

    def close(self) -> None:
        """End all processes; another rollout starts them again."""
        self._transport.close()
        self._live, self._busy = [False] * self._blocks, [False] * self._blocks


class MemberCopies:
    """All copies of one member, in all collectors; what `collection.Host` is in this process."""

    def __init__(self, collectors: Collectors, member: int, environment: Environment) -> None:
        self.environment, self._collectors, self._member = environment, collectors, member
        self._before: Named | None = None
        self.was_reset = False  # whether the last rollout reset every copy first

    @property
    def resumable(self) -> bool:
        """Whether a resumed run continues in the middle of its episodes."""
        return isinstance(self.environment, Resumable)

    def save(self) -> Named | None:
        """Return the environments' state as arrays, or None if it cannot be saved."""
        return self._collectors.state(self._member)

    def remember(self) -> None:
        """Store the current state, because a rollout may fail, here or in another member's environment."""
        self._before = self.save()

    def before(self) -> Named | None:
        """Return the stored state."""
        return self._before

    def restore(self, saved: Named | None) -> None:
        """Restore a saved state; without one, all copies are reset at the next rollout."""
        self._collectors.restore(self._member, saved)


class _Again(Exception):
    """Every block must repeat its rollout."""


def _begin(goes_on: bool, reset: bool, saved: bool) -> Begin:
    if reset or not (goes_on or saved):
        return "reset"
    return "go on" if goes_on else "restore"


def collectors_of(
    env: Any,
    environment: Callable[[int], Environment],
    members: Sequence[Member],
    blocks: int,
    recorded: bool,
    on: str = "here",
    insecure: bool = False,
) -> Collectors:
    """Return the collectors of a run; `environment` makes copies in this process.

    ConfigError if the copies cannot be cut into so many blocks, or processes cannot make `env`.
    """
    check_engine_name(on, insecure)
    copies = members[0].algorithm.collection().environments
    if copies % blocks:
        near = [one for one in range(1, copies + 1) if copies % one == 0]
        fit = min(near, key=lambda one: (abs(one - blocks), one))
        raise ConfigError(
            f"collectors = {blocks}: the {copies} copies of a rollout cannot be cut into as many equal blocks, "
            f"expected a divisor of {copies}. fix: use collectors={fit}, or another number of environments"
        )
    if not isinstance(env, str):
        raise ConfigError(
            f"collectors = {blocks}: each process makes the environment by its name, found an object, "
            f"{type(env).__name__}. fix: register it with gymnasium in a module, and pass 'MODULE:NAME'"
        )
    for member in members:
        own = [name for name, value in to_config(member.algorithm).items() if isinstance(value, dict)]
        if own or type(member.algorithm).__module__ == "__main__":
            what = f"the {own[0]} of {type(member.algorithm).__name__}" if own else type(member.algorithm).__name__
            raise ConfigError(
                f"collectors = {blocks}: {what} is your own and has no name by which a process finds it, expected "
                "named settings of an algorithm in a module. fix: drop collectors"
            )
    transport: Callable[[list[bytes], float], Transport] = Here
    if on == "ray":
        from tidelog.training.online.collectors.ray import Actors

        transport = lambda plans, stall: Actors(plans, stall, insecure)  # noqa: E731
    return Collectors(environment(copies // blocks), env, members, blocks, recorded, transport)
