"""What members play on the host: each round before it is learnt from, or one round ahead.

Ahead, a thread plays the next rollout while this one is learnt from. It is then by the policy as it stood exactly one
round before; the first one is by the policy that learns from it. What a thread plays depends on nothing that moves
meanwhile, so that bits do not depend on who is faster. A checkpoint holds that policy, and environments as they stood
before the rollout: a resumed run plays it again.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp

from tidelog.algorithms.core.segments import Columns
from tidelog.errors import EnvironmentFailure
from tidelog.training.engine.learner import LearnerState
from tidelog.training.engine.members import Member
from tidelog.training.engine.plan import played_key
from tidelog.training.online.collection import Carried, Named
from tidelog.training.online.env_assignment import EnvAssignment


class Coming:
    """A rollout of every member that is played ahead."""

    def __init__(self, round: int, params: list[Any], carried: list[Any]) -> None:
        """`params` and `carried` of each member, in buffers of their own: learners' are taken over."""
        self.round, self.params, self.carried = round, _kept(params), _kept(carried)
        self.played: Future[list[Rollout]] | None = None


class Rollout(NamedTuple):
    """What one member has played."""

    columns: Columns
    carried: Carried | None  # what a policy with a memory carries on
    began: bool  # whether every copy started anew


class HostRollouts:
    """The environments of all members on the host, played with the acting part of each."""

    def __init__(
        self,
        places: EnvAssignment,
        members: Sequence[Member],
        algorithms: Sequence[Any],
        learners: Sequence[LearnerState],
        ahead: bool,
        coming: Coming | None,
    ) -> None:
        """`algorithms` have their numbers as arrays; `coming` was to be played when a checkpoint was written."""
        self._hosts, self._members, self._algorithms = places.hosts, members, algorithms
        self._collection = algorithms[0].collection()
        self._keys = [jnp.array(learner.key) for learner in learners]  # learners' own buffers are taken over
        self._ahead, self._coming = ahead, coming
        self._failed = False  # whether environments stand somewhere in a rollout that is to be played again
        self.began = [False] * len(members)  # whether the last rollout started every copy anew

    def begin(self) -> None:
        """Let a thread play what is to be played ahead, unless one does or has."""
        coming = self._coming
        if coming is not None and coming.played is None:
            self._remember()
            thread = ThreadPoolExecutor(1, thread_name_prefix="tidelog-play")
            coming.played = thread.submit(self._play, coming.round, coming.params, coming.carried)
            thread.shutdown(wait=False)

    def rollouts(
        self, round: int, learners: Sequence[LearnerState], last: bool
    ) -> list[tuple[Columns, Carried | None]]:
        """A rollout of every member for the round that begins; unless it is the last, the next one may begin too.

        Raises EnvironmentFailure where an environment broke, and plays anew if it is asked again.
        """
        params = [
            algorithm.policy_params(learner.state)
            for algorithm, learner in zip(self._algorithms, learners, strict=True)
        ]
        carried = [learner.played.carried for learner in learners]
        played = self._taken() if self._coming is not None else self._now(round, params, carried)
        self.began = [one.began for one in played]
        if self._ahead and not last:
            self._coming = Coming(round + 1, params, [one.carried for one in played])
            self.begin()
        return [(one.columns, one.carried) for one in played]

    def _now(self, round: int, params: list[Any], carried: list[Any]) -> list[Rollout]:
        self._remember()
        return self._play(round, params, carried)

    def _taken(self) -> list[Rollout]:
        self.begin()
        coming: Any = self._coming
        played, coming.played = coming.played, None
        found: list[Rollout] = played.result()
        self._coming = None
        return found

    def _play(self, round: int, params: list[Any], carried: list[Any]) -> list[Rollout]:
        """A rollout of every member; EnvironmentFailure says whose environment broke."""
        asked = self._collection

        def one(index: int) -> Rollout:
            host, key = self._hosts[index], played_key(self._keys[index], round)
            algorithm, mine = self._algorithms[index], (params[index], key, round)
            try:
                return Rollout(*host.rollout(algorithm, *mine, asked.steps, carried[index], asked.pieces), host.began)
            except EnvironmentFailure as error:
                self._failed = True
                raise EnvironmentFailure(f"{error} (seed {self._members[index].seed})") from error

        return on_threads(one, len(self._hosts), round > 0)

    def _remember(self) -> None:
        for host in self._hosts:
            if self._failed:
                host.restore(host.before())
            host.remember()
        self._failed = False

    def rest(self) -> None:
        """Wait until no thread plays; what was played stays."""
        if self._coming is not None and self._coming.played is not None:
            wait([self._coming.played])

    def waiting(self) -> list[Any]:
        """What acts in rollouts that are played ahead, of each member; nothing where none is."""
        return [] if self._coming is None else self._coming.params

    def environments(self) -> list[Named]:
        """What environments are, as checkpoints hold it; of each {} where it has nothing to offer."""
        if self._coming is not None and self._coming.played is not None:
            return self.environments_before()
        return [host.save() or {} for host in self._hosts]

    def environments_before(self) -> list[Named]:
        """The same as it was before the rollout that failed, or that a thread plays."""
        return [host.before() or {} for host in self._hosts]


def on_threads(function: Callable[[int], Any], count: int, at_once: bool = True) -> list[Any]:
    """What a function makes of 0 to `count - 1`, on a pool of threads if at once."""
    if count == 1 or not at_once:
        return [function(i) for i in range(count)]
    with ThreadPoolExecutor(min(count, os.cpu_count() or 1)) as pool:
        return list(pool.map(function, range(count)))


def _kept(tree: Any) -> Any:
    return jax.tree.map(lambda leaf: jnp.array(leaf) if eqx.is_array(leaf) else leaf, tree)
