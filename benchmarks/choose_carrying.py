"""How many episodes must carry a difference by ratios of visits: policies of known worth on logs of their own seeds.

Double reinforcement learning is not bound to the returns of a log. Where a policy often comes to states that the log
hardly knows, ratios of visits and the model are wrong together, and the interval can lie far from the truth. The
effective number of episodes behind the difference's variance shows that (`Case.earning`). For each least number of a
grid: how many verdicts are answered, how many of their intervals cover the truth, and how often *better* or *worse* is
wrong. The rule: the smallest number at which no interval of a policy covers the truth less often than 95%, up to an
exact binomial test at 1%, and no *better* or *worse* is wrong more often than 2.5%, tested likewise.

ICU-Sepsis, 10,000 episodes: the policies of the calibration study, and some that are worse than the logger, equal to it
or between; the CartPole of that study. The seeds (500 on) are in no other study.

`python -m benchmarks.choose_carrying`, and `--report` for verdicts at the defaults on fresh logs (seeds from 3,000).
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
from scipy.stats import binomtest

from benchmarks.calibration import Table, cartpole, decision, evidence, lookup, made_log, row, shown_of, summary, world
from benchmarks.keep import keep
from benchmarks.side_by_side import side_by_side
from tidelog.ope.verdict import Limits

COMMAND = "python -m benchmarks.choose_carrying"
GRID = (0.0, 4.0, 6.0, 8.0, 10.0, 12.0, 16.0, 20.0, 30.0)
FIRST, FRESH, LOGS, EPISODES, LEVEL = 500, 3_000, 20, 10_000, 0.01


def policies() -> dict[str, np.ndarray]:
    """Policies of ICU-Sepsis by name, [S, A]."""
    here = world("icu-sepsis")
    problem, logger, targets = here.problem, here.logger, dict(here.targets)
    opposite = replace(problem, reward=-np.asarray(problem.reward))
    for least in (0.3, 0.6):
        within = logger >= least * logger.max(1, keepdims=True)
        targets[f"the worst above {least:g} of the likeliest"] = opposite.optimal(allowed=within)[1]
        choice = (np.random.default_rng(0).random(logger.shape) * within).argmax(1)
        targets[f"any one above {least:g} of the likeliest"] = np.eye(logger.shape[1])[choice]
    best = targets["the best within its support"]
    return targets | {
        f"{part:g} of the best within its support": (1 - part) * logger + part * best for part in (0.5, 0.8)
    }


def sepsis(seed: int, asked: str | None, names: Sequence[str] | None = None) -> list[dict]:
    """What is shown of policies (None: all) from one log, with recorded (None) or estimated propensities."""
    here, log = world("icu-sepsis"), made_log("icu-sepsis", EPISODES, seed)
    about = {"problem": "icu-sepsis", "episodes": EPISODES, "propensities": asked or "recorded", "seed": seed}
    made = {name: chances for name, chances in policies().items() if names is None or name in names}
    find = lookup("icu-sepsis")
    tables = {name: Table(chances, find) for name, chances in made.items()}
    found = evidence(tables, log, seed, propensities=asked, model="tabular")
    worth = {
        name: here.problem.value_of(chances) - here.problem.value_of(here.logger) for name, chances in made.items()
    }
    return [{**about, "target": name, **row(seen, float(worth[name]))} for name, seen in found.items()]


def counted(rows: list[dict], least: float) -> dict:
    """Verdicts of these rows where so many episodes must carry a difference by visits, and returns may be any."""
    limits = Limits(carrying_episodes=least)
    said = [(one, decision(without_range(one["shown"]), limits)[0]) for one in rows]
    answered = [(one, what) for one, what in said if what != "unsupported"]
    covered = sum(one["interval"][1] <= one["truth"] <= one["interval"][2] for one, _ in answered)
    wrong = sum(
        (what == "better" and one["truth"] <= 0) or (what == "worse" and one["truth"] >= 0) for one, what in answered
    )
    return {"verdicts": len(rows), "answered": len(answered), "covered": covered, "wrong": wrong}


def without_range(kept: dict) -> dict:
    """What was shown, except that an estimate lies beyond all returns of the log: most rewards have no such bound."""
    return {**kept, "unable": [rule for rule in kept["unable"] if rule != "range"]}


def keeps(one: dict) -> bool:
    """Whether a policy's intervals cover often enough, and its verdicts are wrong seldom enough."""
    if not one["answered"]:
        return True
    covers = binomtest(one["covered"], one["answered"], 0.95, alternative="less").pvalue >= LEVEL
    return covers and binomtest(one["wrong"], one["verdicts"], 0.025, alternative="greater").pvalue >= LEVEL


def grouped(rows: list[dict]) -> dict[str, list[dict]]:
    """Rows by problem, propensities and policy."""
    groups: dict[str, list[dict]] = {}
    for one in rows:
        groups.setdefault(" | ".join((one["problem"], one["propensities"], one["target"])), []).append(one)
    return groups


def study(logs: int) -> dict:
    """Judge all logs and try every number of the grid."""
    seeds = range(FIRST, FIRST + logs)
    rows = judged(sepsis, [(seed, how) for seed in seeds for how in (None, "estimated")])
    rows += judged(cartpole, [(300, seed) for seed in seeds[: logs // 2]])
    groups, tried = grouped(rows), []
    for least in GRID:
        each = {name: counted(group, least) for name, group in groups.items()}
        tried.append({"least": least, "keeps": all(map(keeps, each.values())), **counted(rows, least), "each": each})
    chosen = next((one["least"] for one in tried if one["keeps"]), None)
    shares = (0.0, 0.1, 0.5, 0.9)
    carrying = {
        name: np.quantile([shown_of(one["shown"]).earning for one in group], shares).tolist()
        for name, group in groups.items()
    }
    return {"logs": logs, "first_seed": FIRST, "chosen": chosen, "tried": tried, "carrying": carrying}


def report(logs: int) -> dict:
    """Verdicts at the defaults on fresh logs, of the policies that the calibration study does not have."""
    names = [name for name in policies() if name not in world("icu-sepsis").targets]
    seeds = range(FRESH, FRESH + logs)
    rows = judged(sepsis, [(seed, how, names) for seed in seeds for how in (None, "estimated")])
    each = {name: {"truth": group[0]["truth"], **summary(group)} for name, group in grouped(rows).items()}
    return {"logs": logs, "first_seed": FRESH, "summary": summary(rows), "each": each}


def judged(function: Callable[..., list[dict]], tasks: Sequence[tuple]) -> list[dict]:
    """Rows of all tasks."""
    return [one for part in side_by_side(function, tasks) for one in part]


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--logs", type=int, default=LOGS)
    parser.add_argument("--report", action="store_true", help="judge fresh logs at the defaults instead")
    given = parser.parse_args()
    if given.report:
        found = report(given.logs)
        keep("carrying_report", f"{COMMAND} --report", found)
        print(*found["each"].items(), sep="\n")
        return
    found = study(given.logs)
    keep("choose_carrying", COMMAND, found)
    for one in found["tried"]:
        print({name: value for name, value in one.items() if name != "each"})
    print(found["chosen"], *found["carrying"].items(), sep="\n")


if __name__ == "__main__":
    main()
