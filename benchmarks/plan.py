"""How often a planned number of episodes shows an effect, in fresh logs of exact worlds, beside the stated probability.

From each of several pilot logs of a world, `tl.plan` plans the number of episodes with which a policy, whose true
difference is known exactly, is *better* with a probability of 80%. Fresh logs of that size from the world itself are
then judged: with the present logging, with a share of decisions drawn evenly, and with the designed logging. Promised:
*better* in 80% of them, within 5 points, over all pilot logs of a world. One worker needs about 15 minutes.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

import tidelog as tl
from benchmarks.adversarial import state
from benchmarks.adversarial_worlds import Bandit, normal
from benchmarks.calibration import evidence
from benchmarks.keep import by_key, keep, share
from benchmarks.problems import Floats, Table, state_finder, table_log
from benchmarks.spread import scratch, spread
from tidelog.envs import Tabular
from tidelog.ope.decide import decide

COMMAND = "python -m benchmarks plan"
PROBABILITY, POINTS, SHARE = 0.8, 0.05, 0.3
PILOTS, CONTINUED = 5, 40  # pilot logs of each world, and fresh logs of each planned number of episodes
SIMULATIONS = 150  # of each plan, half as many as by default: five plans are averaged


class Planned(NamedTuple):
    """A world with a policy of known worth: logs of any size, with another logging where that can be."""

    draw: Callable[[int, int, Floats | None], tl.Log]  # episodes, seed and a logging [C, A], None: the present one
    policy: Any
    effect: float  # the policy's true difference from the present logging
    pilot: int  # episodes of the pilot log
    practice: Floats | None = None  # [C, A]: the present logging; None for sequences
    estimated: bool = False


def _bandit(world: Bandit, pilot: int, estimated: bool = False) -> Planned:
    def draw(episodes: int, seed: int, logging: Floats | None) -> tl.Log:
        chances = None if logging is None else logging[None]
        rows = world.rows(np.random.default_rng(seed), episodes, chances)
        known = "estimated" if estimated and logging is None else "recorded"
        return world.drawn(rows, known).log

    practice = world.behavior_policy[0]
    return Planned(draw, Table(world.target), world.truth, pilot, practice, estimated)


def treatments(move: float, noise: float) -> Bandit:
    """Six contexts and three treatments; the policy moves a part of each context's decisions to its best treatment."""
    generator = np.random.default_rng(5)
    practice = generator.dirichlet(np.full(3, 4.0), 6)
    worth = generator.normal(0.0, 0.5, (6, 3)) + np.linspace(0.0, 1.0, 6)[:, None]
    target = (1.0 - move) * practice + move * np.eye(3)[worth.argmax(1)]
    return Bandit(practice[None], target, worth[None], normal(noise))


class Clicks(Bandit):
    """The reward is 1 with the worth of an action, else 0."""

    def rows(self, generator: np.random.Generator, n: int, policy: Floats | None = None) -> dict[str, NDArray[Any]]:
        """Rows whose rewards are drawn."""
        rows = super().rows(generator, n, policy)
        chance = self.worth[rows["cause"], rows["context"], rows["action"]]
        return {**rows, "reward": (generator.random(n) < chance).astype(np.float64)}


def router() -> Bandit:
    """Twelve actions in ten contexts, clicked in 1 to 8 of 100 cases; the policy takes the clicked ones more often."""
    generator = np.random.default_rng(6)
    practice = generator.dirichlet(np.full(12, 3.0), 10)
    practice = 0.8 * practice + 0.2 / 12.0
    worth = generator.uniform(0.01, 0.08, (10, 12))
    pull = practice * np.exp(12.0 * worth)
    return Clicks(practice[None], pull / pull.sum(1, keepdims=True), worth[None], normal(0.0))


def chain() -> Tabular:
    """Four states in a row and an end; the second of two actions more often leads on, towards larger rewards."""
    states, actions = 5, 2
    moves, reward = np.zeros((states, actions, states)), np.zeros((states, actions))
    for here in range(4):
        for action, onward in enumerate((0.3, 0.7)):
            moves[here, action, min(here + 1, 3)] += 0.9 * onward
            moves[here, action, here] += 0.9 * (1.0 - onward)
            moves[here, action, 4] = 0.1
        reward[here] = here * np.array([0.5, 0.45])
    moves[4, :, 4] = 1.0
    start = np.array([1.0, 0.0, 0.0, 0.0, 0.0])
    return Tabular(moves, reward, start, final=np.arange(states) == 4, horizon=5)


def _chain() -> Planned:
    problem = chain()
    practice = np.tile([0.5, 0.5], (problem.states, 1))
    target = np.tile([0.44, 0.56], (problem.states, 1))

    def draw(episodes: int, seed: int, logging: Floats | None) -> tl.Log:
        return table_log(problem, practice, episodes, seed, 200)

    gain = float(problem.value_of(target) - problem.value_of(practice))
    return Planned(draw, Table(target, state_finder(problem)), gain, 2_000)


WORLDS: dict[str, Callable[[], Planned]] = {
    "treatments, recorded propensities": lambda: _bandit(treatments(0.3, 2.0), 2_000),
    "treatments, estimated propensities": lambda: _bandit(treatments(0.7, 0.9), 1_000, estimated=True),
    "router of rare clicks": lambda: _bandit(router(), 10_000),
    "chain of five decisions": _chain,
}


@cache
def world(name: str) -> Planned:
    """A world by name."""
    return WORLDS[name]()


def planned(name: str, pilot: int, continued: int) -> list[dict[str, Any]]:
    """The plan of one pilot log, and what the judge says of fresh logs of its sizes; a row for each logging."""
    here = world(name)
    propensities = "estimated" if here.estimated else None
    log = here.draw(here.pilot, 50_000 + pilot, None)
    found = tl.plan(
        here.policy, log, here.effect, PROBABILITY, True, propensities, pilot, explore=(SHARE,), model="tabular",
        simulations=SIMULATIONS, progress=False,
    )  # fmt: skip
    rows = []
    for position, one in enumerate(found.loggings):
        logging: Floats | None = None
        if one.logging != "present" and here.practice is not None and one.share is not None:
            other = here.policy.chances if one.logging == "designed" else 1.0 / here.practice.shape[1]
            logging = (1.0 - one.share) * here.practice + one.share * other
        decisions = []
        for number in range(continued if one.episodes is not None else 0):
            seed = 1_000_000 + 10_000 * pilot + 1_000 * position + number
            fresh = here.draw(int(one.episodes or 0), seed, logging)
            asked = propensities if logging is None else None
            seen = evidence({"policy": here.policy}, fresh, seed, propensities=asked, model="tabular")["policy"]
            decisions.append("unsupported" if seen is None else decide(seen).decision)
        about = {"world": name, "logging": one.logging, "pilot": pilot, "effect": here.effect, "cost": one.cost}
        rows.append({**about, "episodes": one.episodes, "obstacle": one.obstacle, "decisions": decisions})
    return rows


def summary(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """For each world and logging the share of *better* beside the stated probability."""
    cells = []
    for (name, logging), some in by_key(rows, lambda row: (row["world"], row["logging"])):
        said = [decision for row in some for decision in row["decisions"]]
        sizes = [row["episodes"] for row in some if row["episodes"] is not None]
        better = share(said.count("better"), len(said))
        cell = {"world": name, "logging": logging, "effect": some[0]["effect"], "pilots": len(some), "better": better}
        cell |= {"without_plan": len(some) - len(sizes), "decisions": {one: said.count(one) for one in sorted({*said})}}
        if sizes:
            cell["episodes"] = [min(sizes), int(np.median(sizes)), max(sizes)]
            cell["within"] = abs(better["share"] - PROBABILITY) <= POINTS
        cells.append(cell)
    return cells


def study(pilots: int = PILOTS, continued: int = CONTINUED, workers: int = 1) -> dict:
    """Plan from every pilot log, judge the fresh logs, and keep the counts; a stopped study goes on where it was."""
    calls = [(planned, name, pilot, continued) for pilot in range(pilots) for name in WORLDS]
    rows = [row for part in spread(calls, scratch("plan") / state(), workers) for row in part]
    content = {"probability": PROBABILITY, "points": POINTS, "share": SHARE, "continued": continued}
    content["cells"] = summary(rows)
    keep("plan", f"{COMMAND} --pilots {pilots} --continued {continued}", content, plans=rows)
    return content
