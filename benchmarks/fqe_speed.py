"""Updates a second of fitted Q evaluation beside IQL's critic part alone, at paper size, in one process, in turn.

Both take batches of 256 through networks of 2 x 256: one critic forward and backward, one network forward on what
followed (the target critic here, V there), one slow copy. The log is the one of `python -m benchmarks.speed`.
"""

import statistics
from dataclasses import dataclass
from typing import Any

import jax
import numpy as np

import tidelog as tl
from benchmarks.keep import keep
from benchmarks.speed import rate_of, synthetic_log
from tidelog.algorithms.contract import Feedback, Phase
from tidelog.algorithms.short_form import follow_targets, gradient_steps
from tidelog.data.scaling import Scaler
from tidelog.ope.evidence import Target
from tidelog.ope.networks import FQE, evaluation_log
from tidelog.training.engine import Engine
from tidelog.training.loop import Member
from tidelog.training.stores import stores_of

COMMAND = "python -m benchmarks.fqe_speed"
REPEATS = 5


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class CriticPart:
    """IQL whose actor and V stand still."""

    iql: Any  # with the methods that `register` adds

    def stores(self, spec: Any) -> Any:
        return self.iql.stores(spec)

    def init(self, spec: Any, key: Any, updates: int) -> Any:
        return self.iql.init(spec, key, updates)

    def phases(self) -> tuple[Phase, ...]:
        (phase,) = self.iql.phases()
        return (Phase("critic", phase.samplers, critic_step, phase.losses),)


def critic_step(part: CriticPart, state: Any, batch: Any) -> Any:
    """The third and fourth line of IQL's update."""
    state, metrics = gradient_steps(part.iql, state, batch, state.key, ["critic"])
    moved = follow_targets(part.iql, state)
    return moved._replace(step=state.step + 1), Feedback({"critic_loss": metrics["critic_loss"]})


def trainer_of(algorithm: Any, log: tl.Log) -> Engine:
    """A compiled trainer of one member."""
    trainer = Engine.fresh([Member(0, algorithm, 0)], log.spec, stores_of(algorithm, log, Scaler()), 10**9)
    trainer.advance(20)
    return trainer


def answered(log: tl.Log) -> tl.Log:
    """The derived log of a policy that acts at random."""
    rng, stored = np.random.default_rng(0), len(log.observation["observation"])
    if hasattr(log.spec.action, "n"):
        target = Target(np.zeros(len(log)), rng.dirichlet(np.ones(log.spec.action.n), stored))
    else:
        target = Target(np.zeros(len(log)), actions=rng.uniform(-1, 1, (stored, 1, 6)).astype(np.float32))
    return evaluation_log(log, [target], 0.99, np.arange(len(log.episodes))).log


def measure() -> dict[str, Any]:
    """Rates of both, and their ratio, by kind of action."""
    found = {}
    for kind in ("continuous", "discrete"):
        log = synthetic_log(kind == "discrete")
        critic = trainer_of(CriticPart(tl.IQL(critics=1)), log)
        fqe = trainer_of(FQE(hidden=(256, 256), discount=0.99), answered(log))
        rates = [(rate_of(fqe), rate_of(critic)) for _ in range(REPEATS)]
        ratio = statistics.median(one / other for one, other in rates)
        found[kind] = {
            "fqe": [round(one, 1) for one, _ in rates],
            "iql_critic_part": [round(other, 1) for _, other in rates],
            "ratio": round(ratio, 3),
        }
    return found


if __name__ == "__main__":
    result = measure()
    keep("fqe_speed", COMMAND, result)
    print(result)
