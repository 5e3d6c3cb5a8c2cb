"""Environments of the host: which copies a process steps, rollouts in a thread, throughput."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.contract import Counting
from tidelog.algorithms.segments import Columns
from tidelog.envs.functional import Functional, Hosted
from tidelog.envs.protocol import Environment
from tidelog.envs.registry import is_one_object, make
from tidelog.errors import ConfigError, EnvironmentFailure
from tidelog.networks.layers import duplicate
from tidelog.training.collection import Host, Named, RecurrentState
from tidelog.training.loop import LearnerState, Member, RoundStep, collection_key
from tidelog.types import Spec

# The assignment of environments to members: one functional environment for all, or one host environment each.


@dataclass
class EnvAssignment:
    """One functional environment for all members, or one host environment per member."""

    spec: Spec
    source: Functional | None
    hosts: Sequence[Host] = field(default_factory=list)


def assign_environments(env: Any, count: int, seeds: Sequence[int], recorded: bool) -> EnvAssignment:
    """Assign `count` copies of an environment to one member per seed; ConfigError if one object would be shared."""
    first = make(env, count)
    if isinstance(first, Hosted):
        return EnvAssignment(first.spec, first.functional)
    if is_one_object(env) and len(seeds) > 1:
        raise ConfigError(
            f"env: one {first.name} object cannot serve {len(seeds)} members",
            "one per member",
            "pass its name, or a function that creates it",
        )
    environments = [first, *(make(env, count) for _ in seeds[1:])]
    return EnvAssignment(
        first.spec, None, [Host(one, seed, recorded) for one, seed in zip(environments, seeds, strict=True)]
    )


def environment_name(env: Any, assignment: EnvAssignment) -> str:
    """Return the name of the environment."""
    if isinstance(env, str):
        return env
    source: Functional | Environment = assignment.source or assignment.hosts[0].environment
    return source.name


def restore_environments(
    assignment: EnvAssignment,
    algorithms: Sequence[Any],
    learners: Sequence[LearnerState],
    environments: Sequence[Named],
) -> list[LearnerState]:
    """Restore learners and their host environments from a checkpoint; environments without a saved state are reset."""
    restored_learners = list(learners)
    for i, host in enumerate(assignment.hosts):
        host.restore(environments[i] or None)
        if not environments[i]:  # the copies are reset, and with them the sums of their episodes
            restored_learners[i] = with_new_episodes(algorithms[i], restored_learners[i])
    return restored_learners


def with_new_episodes(algorithm: Any, learner: LearnerState) -> LearnerState:
    """Return the learner whose copies were all reset: sums of their episodes begin again."""
    collection_state, state = learner.collection_state, learner.state
    state = algorithm.with_new_episodes(state) if isinstance(algorithm, Counting) else state
    sums = jnp.zeros_like(collection_state.sums)
    return learner._replace(state=state, collection_state=collection_state._replace(sums=sums))


# Rollouts in host environments: collected at the start of each round, or one round ahead.
#
# With `ahead`, a thread collects the next rollout while the members learn from the current one. It uses the policy of
# exactly one round before; the first rollout uses the current policy. The thread reads only constant values, therefore
# the bits do not depend on its speed. A checkpoint holds that policy, and the environments before the rollout; a
# resumed run collects the rollout again.


class PendingRollout:
    """A rollout of every member that is collected ahead."""

    def __init__(self, round: int, params: list[Any], carried: list[Any]) -> None:
        """Copy `params` and `carried` of each member, because the learners' buffers are donated."""
        self.round, self.params, self.carried = round, _copy(params), _copy(carried)
        self.future: Future[list[Rollout]] | None = None


class Rollout(NamedTuple):
    """The rollout of one member."""

    columns: Columns
    carried: RecurrentState | None  # the recurrent state after it
    was_reset: bool  # whether every copy was reset first


class HostRollouts:
    """The host environments of all members, and the rollouts that the members' policies collect in them."""

    def __init__(
        self,
        assignment: EnvAssignment,
        members: Sequence[Member],
        algorithms: Sequence[Any],
        learners: Sequence[LearnerState],
        ahead: bool,
        coming: PendingRollout | None,
    ) -> None:
        """`algorithms` have their numbers as arrays; `coming` is the pending rollout of a checkpoint."""
        self._hosts, self._members, self._algorithms = assignment.hosts, members, algorithms
        self._collection = algorithms[0].collection()
        self._keys = [duplicate(learner.key) for learner in learners]  # copies: learners' buffers are donated
        self._ahead, self._coming = ahead, coming
        self._failed = False  # whether a rollout failed, and its environments must be restored first
        self.was_reset = [False] * len(members)  # whether the last rollout reset every copy first

    def begin(self) -> None:
        """Start the thread that collects the pending rollout, unless it runs or has finished."""
        coming = self._coming
        if coming is not None and coming.future is None:
            self._remember()
            thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-play")
            coming.future = thread.submit(self._collect, coming.round, coming.params, coming.carried)
            thread.shutdown(wait=False)

    def rollouts(
        self, round: int, learners: Sequence[LearnerState], last: bool
    ) -> list[tuple[Columns, RecurrentState | None]]:
        """Return a rollout of every member for the current round; with `ahead`, start the next one, if there is one.

        Raises EnvironmentFailure if an environment fails; another call collects the rollout again.
        """
        params = [
            algorithm.policy_params(learner.state)
            for algorithm, learner in zip(self._algorithms, learners, strict=True)
        ]
        carried = [learner.collection_state.carried for learner in learners]
        rollouts = self._await_thread() if self._coming is not None else self._collect_now(round, params, carried)
        self.was_reset = [one.was_reset for one in rollouts]
        if self._ahead and not last:
            self._coming = PendingRollout(round + 1, params, [one.carried for one in rollouts])
            self.begin()
        return [(one.columns, one.carried) for one in rollouts]

    def _collect_now(self, round: int, params: list[Any], carried: list[Any]) -> list[Rollout]:
        self._remember()
        return self._collect(round, params, carried)

    def _await_thread(self) -> list[Rollout]:
        self.begin()
        coming: Any = self._coming
        future, coming.future = coming.future, None
        rollouts: list[Rollout] = future.result()
        self._coming = None
        return rollouts

    def _collect(self, round: int, params: list[Any], carried: list[Any]) -> list[Rollout]:
        """Collect a rollout of every member; EnvironmentFailure names the member's seed."""
        collection = self._collection

        def one(index: int) -> Rollout:
            host = self._hosts[index]
            key = collection_key(self._keys[index], round)
            algorithm, arguments = self._algorithms[index], (params[index], key, round, collection.steps)
            try:
                columns, now = host.rollout(algorithm, *arguments, carried[index], collection.pieces)
            except EnvironmentFailure as error:
                self._failed = True
                raise EnvironmentFailure(
                    f"{error.problem} (seed {self._members[index].seed})", fix=error.fix
                ) from error
            return Rollout(columns, now, host.was_reset)

        return on_threads(one, len(self._hosts), round > 0)

    def _remember(self) -> None:
        for host in self._hosts:
            if self._failed:
                host.restore(host.before())
            host.remember()
        self._failed = False

    def wait(self) -> None:
        """Wait until the thread has finished; its rollout stays available."""
        if self._coming is not None and self._coming.future is not None:
            wait([self._coming.future])

    def pending_params(self) -> list[Any]:
        """Return the policy params of the rollout that is collected ahead, of each member; empty if there is none."""
        return [] if self._coming is None else self._coming.params

    def environments(self) -> list[Named]:
        """Return the states of the environments for a checkpoint; {} for one that cannot be saved."""
        if self._coming is not None and self._coming.future is not None:
            return self.environments_before()
        return [host.save() or {} for host in self._hosts]

    def environments_before(self) -> list[Named]:
        """Return the states of the environments before the rollout that failed or is being collected."""
        return [host.before() or {} for host in self._hosts]


def on_threads(function: Callable[[int], Any], count: int, at_once: bool = True) -> list[Any]:
    """Return the results of a function for 0 to `count - 1`; `at_once` runs them on a pool of threads."""
    if count == 1 or not at_once:
        return [function(i) for i in range(count)]
    with ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, range(count)))


def _copy(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: duplicate(leaf) if eqx.is_array(leaf) else leaf, tree)


# Throughput of rounds, and the share of time of each stage.


class Throughput:
    """Decisions per second, and the time of each stage: one visit of each stage per report is timed alone."""

    def __init__(self) -> None:
        self._seconds: dict[str, float] = {}  # per update or rollout, at the last timed visit
        self._amounts: dict[str, int] = {}  # updates or rollouts since the last report
        self._fresh: set[str] = set()  # stages timed since the last report
        self._active, self._decisions = 0.0, 0  # seconds in chunks, and completed decisions, since the last report
        self._rate = 0.0

    def add_chunk(self, seconds: float, decisions: int) -> None:
        """Add a chunk's seconds and completed decisions."""
        self._active += seconds
        self._decisions += decisions
        if self._decisions:
            self._rate = self._decisions / max(self._active, 1e-9)

    def rate(self) -> float:
        """Return decisions per second, without the time of reports and checkpoints."""
        return self._rate

    def count(self, steps: list[RoundStep], names: tuple[str, ...]) -> None:
        """Add the updates and rollouts of round steps that are about to run."""
        for name, part in [stage for step in steps for stage in step.stages(names)]:
            self._amounts[name] = self._amounts.get(name, 0) + (sum(part.updates) or 1)

    def needs_timing(self, steps: list[RoundStep], names: tuple[str, ...]) -> bool:
        """Return whether these round steps have a stage that was not timed since the last report."""
        return any(name not in self._fresh for step in steps for name, _ in step.stages(names))

    def time_stage(self, name: str, amount: int, function: Callable[[], Any]) -> Any:
        """Return the result of a function, and record its time per update or rollout; `amount` is their number."""
        begin = time.monotonic()
        result = function()
        self._seconds[name] = (time.monotonic() - begin) / amount
        self._fresh.add(name)
        return result

    def report(self, members: int) -> dict[str, float]:
        """Return decisions per second of all members, and the share of time of each stage."""
        times = {name: self._seconds[name] * self._amounts.get(name, 0) for name in self._seconds}
        total = sum(times.values()) or 1.0
        rate = {"time/decisions_per_second": members * self.rate()}
        self._amounts, self._fresh = {}, set()
        self._active, self._decisions = 0.0, 0
        return rate | {f"time/{name}_share": seconds / total for name, seconds in times.items()}
