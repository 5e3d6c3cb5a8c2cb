"""Rollouts in host environments: collected at the start of each round, or one round ahead.

With `ahead`, a thread collects the next rollout while the members learn from the current one. It uses the policy of
exactly one round before; the first rollout uses the current policy. The thread reads only constant values, therefore
the bits do not depend on its speed. A checkpoint holds that policy, and the environments before the rollout; a resumed
run collects the rollout again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import equinox as eqx
import jax

from tidelog.algorithms.core.segments import Columns
from tidelog.errors import EnvironmentFailure
from tidelog.networks.arrays import duplicate
from tidelog.training.engine.learner import LearnerState
from tidelog.training.engine.members import Member
from tidelog.training.engine.plan import collection_key
from tidelog.training.online.collection import Named, RecurrentState
from tidelog.training.online.env_assignment import EnvAssignment


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
                raise EnvironmentFailure(f"{error} (seed {self._members[index].seed})") from error
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
