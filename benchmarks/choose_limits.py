"""Which limits on support a verdict needs: the loosest that keep its promises, chosen on logs of their own.

The rule was set before any number was seen. Policies of known worth are judged from logs of seeds that no reported
figure uses, the evidence is kept, and every set of limits of `GRID` rules on it. The *standard* problems are those of
`benchmarks/calibration.py`; the *adversarial* worlds are those of `benchmarks/adversarial_worlds.py` in which a verdict
must not be wrong (where no judge can know better, the verdict says so whatever the limits are). A set is *admissible*
where

- the share of wrong *better* among the verdicts on policies of standard problems that are no better is at most 2.5%,
  and the upper end of its Wilson interval at most 5%; the same for *worse*;
- the 95% intervals of supported verdicts on standard problems do not cover the truth less often than 95%, up to
  sampling error (the upper end of Wilson's interval is at least 95%): over all of them, and for each problem with
  each kind of propensities;
- in no variant of an adversarial world is *better*, or *worse*, wrong in more than 2.5% of logs by an exact binomial
  test at 10%, nor in any of its sizes at 2%, and where it must be answered, the share that it asks for is.

Of the admissible sets those count that answer most often on the standard problems, up to one answer in a hundred; of
these the one is taken that is fewest steps of the grid away from the limits that stand, and of equals the tightest.

`python -m benchmarks.choose_limits [--again]`: `--again` chooses from the kept evidence, without judging anew.
"""

import argparse
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.stats import binomtest

from benchmarks.adversarial import PROMISED
from benchmarks.adversarial_worlds import WORLDS, Cell, cells
from benchmarks.calibration import NOTHING_KNOWN, SCRATCH, decision, done, evidence, exact, jobs, row, share, shown_of
from benchmarks.keep import keep, kept
from tidelog.ope.decide import (
    Undecided,
    apply_limits,
    few_episodes_finding,
    reported_difference,
    support_findings,
    unshown_share_findings,
)
from tidelog.ope.verdict import Limits

NAME = "calibration_limits"
COMMAND = "python -m benchmarks.choose_limits"
FIRST_SEED, LOGS, FEW = 5_000, 12, 2
SMALL, MANY = 600, 24  # episodes, where the limit on the number of effective ones is felt, and logs of so many
ADVERSARIAL_LOGS, ADVERSARIAL_FEW = 20, 3  # of each cell, and of each cell that trains networks;
BORDERLINE, MORE_LOGS = ("wrong propensities", "rare clicks"), 100  # worlds between whose limits 20 logs could not tell
WRONG, MOST_WRONG, LEVEL = 0.025, 0.05, 0.95
SPARED = 0.01  # of the most answers: no limit is changed for fewer
SUSPECT, SUSPECT_CELL = 0.1, 0.02  # p-values of "more than 2.5% are wrong" in a variant's logs, and in a size's
GRID: dict[str, tuple[float, ...]] = {  # from tight to loose
    "unsupported_mass": (0.02, 0.05, 0.1, 0.2, 0.3, 0.5, 1.0),
    "effective_episodes": (100.0, 50.0, 25.0),
    "effective_share": (0.1, 0.05, 0.02, 0.01, 0.0),
    "largest_weight": (0.05, 0.1, 0.2),
    "pareto_k": (0.5, 0.7, 1.0),  # above 1 weights have no mean, and nothing can be estimated
    "mean_weight_errors": (2.0, 2.5, 3.0, 4.0, 5.0),
    "unshown_share": (0.05, 0.1),  # no verdict should rest on more than a tenth that nobody ever saw
    "earning_episodes": (10.0, 8.0, 6.0, 5.0, 4.0, 0.0),
}
OPEN: dict[str, float] = {  # where a limit refuses nothing
    "unsupported_mass": 1.0, "effective_episodes": 1.0, "effective_share": 0.0, "largest_weight": 1.0,
    "pareto_k": np.inf, "mean_weight_errors": np.inf, "unshown_share": 1.0, "earning_episodes": 0.0,
}  # fmt: skip
SPECIFIED = {
    "unsupported_mass": 0.05, "effective_episodes": 50.0, "effective_share": 0.05, "largest_weight": 0.1,
    "pareto_k": 0.7, "mean_weight_errors": 3.0,
}  # fmt: skip
BEFORE = {  # the defaults until this choice
    "unsupported_mass": 0.3, "effective_episodes": 25.0, "effective_share": 0.01, "largest_weight": 0.2,
    "pareto_k": 0.5, "mean_weight_errors": 5.0, "unshown_share": 0.1, "earning_episodes": 8.0,
}  # fmt: skip
UNSUPPORTED, NOTHING, BETTER, WORSE = range(4)
CODES = {"unsupported": UNSUPPORTED, "no difference shown": NOTHING, "better": BETTER, "worse": WORSE}
ABSENT = "-"  # a value of the table that its row does not have
Flags = NDArray[np.bool_]


# What is judged to choose by.


def chosen_jobs() -> list[tuple]:
    """A function and its arguments each."""
    small = [(exact, "treatment", SMALL, seed, "recorded") for seed in range(FIRST_SEED, FIRST_SEED + MANY)]
    return [*small, *jobs(FIRST_SEED, LOGS, FEW), *adversarial_jobs()]


def adversarial_jobs() -> Iterator[tuple]:
    """Cells in which a verdict must not be wrong; worlds of many looks rest on no limit."""
    for cell in cells():
        if cell.form.words is None and cell.world != "looks":
            logs = MORE_LOGS if cell.world in BORDERLINE else ADVERSARIAL_LOGS
            logs = ADVERSARIAL_FEW if cell.form.networks else logs
            yield adversarial, *cell, FIRST_SEED, logs


def adversarial(world: str, variant: str, episodes: int, first: int, logs: int) -> list[dict]:
    """What logs of a cell show of its policy."""
    cell, rows = Cell(world, variant, episodes), []
    for seed in range(first, first + logs):
        drawn = cell.draw(seed)
        how = {name: value for name, value in drawn.arguments.items() if name != "learnt_from"}
        how["limits"] = Limits(effective_episodes=min(GRID["effective_episodes"]))
        (found,) = evidence({"policy": drawn.policies[0]}, drawn.log, seed, **how).values()
        rows.append({"world": world, "variant": variant, "episodes": episodes, "seed": seed, **row(found, drawn.truth)})
    return rows


# What sets of limits make of it.


class Rulings:
    """Decisions on the same evidence under any set of limits of the grid, by looking up which limit fails where."""

    def __init__(self, rows: Sequence[dict]) -> None:
        seen = [None if one["shown"] is None else shown_of(one["shown"]) for one in rows]
        lenient = Limits(**OPEN)
        self.refused = np.array([decision(one["shown"], lenient)[0] == "unsupported" for one in rows])
        self.side = np.array([UNSUPPORTED if one is None else CODES[one.side] for one in seen])
        self.against = np.array([one is not None and _always_against(one, lenient) for one in seen])
        self.by_visits = np.array([one is not None and bool(one.against_by_visits) for one in seen])
        self.by_products = np.array([one is not None and bool(one.against_by_products) for one in seen])
        every = [(name, value) for name, values in GRID.items() for value in {*values, getattr(Limits(), name)}]
        every += list(SPECIFIED.items())
        failing = {one: [_fails(found, replace(lenient, **{one[0]: one[1]})) for found in seen] for one in every}
        self.fails = {one: np.array(flags).T for one, flags in failing.items()}  # each [3, rows]

    def of(self, limits: Limits) -> NDArray[np.int64]:
        """The decisions [rows], as codes."""
        fails: Flags = np.logical_or.reduce([self.fails[name, getattr(limits, name)] for name in GRID])
        own, visits, products = fails
        against = self.against | (self.by_visits & ~visits) | (self.by_products & ~products)
        return np.where(self.refused | own, UNSUPPORTED, np.where(against, NOTHING, self.side))


def _always_against(found: Undecided, lenient: Limits) -> bool:
    """Whether something speaks against the side whatever the limits are."""
    alone = found._replace(against_by_visits=[], against_by_products=[])
    return apply_limits(alone, lenient, NOTHING_KNOWN)[0] == "no difference shown" != found.side


def _fails(found: Undecided | None, limits: Limits) -> tuple[bool, bool, bool]:
    """Whether these limits refuse what decides, ratios of visits, and products of ratios."""
    if found is None:
        return True, True, True
    own = found.able and bool(
        support_findings(found.support, limits, visits=found.visits, estimated=found.estimated)
        or few_episodes_finding(found.earning, limits, visits=found.visits, rare=True)
        or unshown_share_findings(found, limits)
    )
    visits = found.by_visits is None or bool(
        support_findings(found.by_visits, limits, visits=True, estimated=found.estimated)
    )
    products = found.by_products is None or bool(support_findings(found.by_products, limits, estimated=found.estimated))
    return own, visits, products


class RowFacts:
    """What is known of the rows: their truth, their groups, and whether the interval covers."""

    def __init__(self, rows: Sequence[dict]) -> None:
        truth = np.array([one["truth"] for one in rows])
        self.standard = np.array(["problem" in one for one in rows])
        self.not_better, self.not_worse = truth <= 1e-9, truth >= -1e-9
        ends = np.array([(np.nan, np.nan) if one["shown"] is None else _ends(shown_of(one["shown"])) for one in rows])
        self.inside = (ends[:, 0] <= truth) & (truth <= ends[:, 1])
        names = [f"{one['problem']}, {one['propensities']}" if "problem" in one else "" for one in rows]
        self.problems = {name: np.array(names) == name for name in dict.fromkeys(names) if name}
        places = [(one["world"], one["variant"]) if "world" in one else None for one in rows]
        sizes = [one["episodes"] if "world" in one else None for one in rows]
        self.variants = _groups(places)
        self.cells = _groups(
            [None if place is None else (*place, size) for place, size in zip(places, sizes, strict=True)]
        )


def _groups(places: Sequence[tuple | None]) -> dict[tuple, Flags]:
    """Which rows are at each place."""
    return {place: np.array([one == place for one in places]) for place in dict.fromkeys(places) if place is not None}


def _ends(found: Undecided) -> tuple[float, float]:
    """Both ends of the interval that an answer tells; a bound that does not stand makes it "no difference shown"."""
    return reported_difference(found, "no difference shown")[1:]


def judged(facts: RowFacts, said: NDArray[np.int64], *, short: bool = False) -> dict:
    """What decisions come to, and whether they are admissible; `short` stops at the first broken promise."""
    supported = facts.standard & (said != UNSUPPORTED)
    sides = {"better": (BETTER, facts.not_better), "worse": (WORSE, facts.not_worse)}
    wrong = {
        name: _share((said == code) & facts.standard, none & facts.standard) for name, (code, none) in sides.items()
    }
    if short and not all(_honest(one) for one in wrong.values()):
        return {"admissible": False}
    covered = {"all": _share(facts.inside, supported)}
    covered |= {name: _share(facts.inside, supported & rows) for name, rows in facts.problems.items()}
    covers = all(one["high"] >= LEVEL for one in covered.values() if one["of"])
    if short and not covers:
        return {"admissible": False}
    broken = []
    for place, rows in (*facts.variants.items(), *facts.cells.items()):
        (world, variant), level = place[:2], SUSPECT if len(place) == 2 else SUSPECT_CELL
        wrongs = {name: int(((said == code) & none & rows).sum()) for name, (code, none) in sides.items()}
        answered = float((said[rows] != UNSUPPORTED).mean())
        asked = WORLDS[world].variants[variant].answered or 0.0
        if answered < asked or any(_more(count, int(rows.sum())) < level for count in wrongs.values()):
            broken.append({"place": place, **wrongs, "of": int(rows.sum()), "answered": answered})
            if short:
                return {"admissible": False}
    adversarial = ~facts.standard
    return {
        "answered": int(supported.sum()),
        "of": int(facts.standard.sum()),
        "wrong": wrong,
        "covered": covered,
        "adversarial": {
            "verdicts": int(adversarial.sum()),
            "answered": int((adversarial & (said != UNSUPPORTED)).sum()),
            **{f"wrong_{name}": int(((said == code) & no & adversarial).sum()) for name, (code, no) in sides.items()},
            "broken": broken,
        },
        "admissible": all(_honest(one) for one in wrong.values()) and covers and not broken,
    }  # fmt: skip


def _honest(one: dict) -> bool:
    return one["share"] <= WRONG and one["high"] <= MOST_WRONG


def _share(true: Flags, among: Flags) -> dict:
    return dict(_cached_share(int((true & among).sum()), int(among.sum())))


_cached_share = cache(share)


@cache
def _more(count: int, of: int) -> float:
    """The p-value of the test that no more than the promised share is wrong."""
    return float(binomtest(count, of, PROMISED, "greater").pvalue)


def sets() -> list[Limits]:
    """Every set of limits of the grid, tight ones first."""
    return [Limits(**dict(zip(GRID, values, strict=True))) for values in itertools.product(*GRID.values())]


def looseness(limits: Limits) -> int:
    """How many steps of the grid a set is away from the tightest."""
    return sum(values.index(getattr(limits, name)) for name, values in GRID.items())


def steps_from(present: Limits, limits: Limits) -> int:
    """How many steps of the grid a set is away from the limits that stand."""
    return sum(
        abs(values.index(getattr(limits, name)) - values.index(getattr(present, name))) for name, values in GRID.items()
    )


def preferred(admissible: Sequence[tuple[Limits, dict]], present: Limits) -> Limits:
    """Of the sets with the most answers, up to `SPARED`, the nearest to the present one; of these the tightest."""
    enough = (1.0 - SPARED) * max(one["answered"] for _, one in admissible)
    candidates = [limits for limits, one in admissible if one["answered"] >= enough]
    return min(candidates, key=lambda limits: (steps_from(present, limits), looseness(limits)))


def choose(rows: Sequence[dict]) -> dict:
    """The chosen limits, what speaks for them, and what each step further would do."""
    rulings, facts = Rulings(rows), RowFacts(rows)
    every = sets()
    found = [(limits, judged(facts, rulings.of(limits), short=True)) for limits in every]
    admissible = [one for one in found if one[1]["admissible"]]
    before = judged(facts, rulings.of(Limits(**BEFORE)))
    if not admissible:
        return {"grid": GRID, "verdicts": len(rows), "sets": len(every), "admissible": 0, "of_before": before}
    best = preferred(admissible, Limits())
    return {
        "grid": GRID,
        "verdicts": len(rows),
        "sets": len(every),
        "admissible": len(admissible),
        "chosen": named(best),
        "of_chosen": judged(facts, rulings.of(best)),
        "of_specified": judged(facts, rulings.of(Limits(**SPECIFIED))),
        "of_before": {"limits": BEFORE, **before},
        "one_step_looser": [
            {**one, **judged(facts, rulings.of(Limits(**{**named(best), **one})))} for one in _looser(best)
        ],
    }


def named(limits: Limits) -> dict:
    """The limits of the grid by name."""
    return {name: asdict(limits)[name] for name in GRID}


def _looser(limits: Limits) -> list[dict]:
    found = []
    for name, values in GRID.items():
        at = values.index(getattr(limits, name)) + 1
        found += [{name: values[at]}] if at < len(values) else []
    return found


# The evidence as a table: a file of dictionaries would be three times as large.


def rows_read() -> list[dict]:
    """The kept evidence; of the adversary's worlds the cells that count today."""
    file = kept(NAME)
    rows = [_nested(file["columns"], values) for values in file["evidence"]]
    counted = {(world, variant) for _, world, variant, *_ in adversarial_jobs()}
    return [one for one in rows if "problem" in one or (one["world"], one["variant"]) in counted]


def table(rows: Sequence[dict]) -> tuple[list[str], list[list]]:
    """Columns by path and a list of values a row; nothing of what was shown where no limits change the decision."""
    lenient = Limits(**OPEN)
    flat = [
        _flat({
            **{name: value for name, value in one.items() if name not in ("decision", "rule", "interval")},
            "shown": None if decision(one["shown"], lenient)[0] == "unsupported" else one["shown"],
        })
        for one in rows
    ]  # fmt: skip
    columns = list(dict.fromkeys(name for one in flat for name in one))
    return columns, [[one.get(name, ABSENT) for name in columns] for one in flat]


def _flat(value: dict, before: str = "") -> dict:
    found = {}
    for name, part in value.items():
        found |= _flat(part, f"{before}{name}/") if isinstance(part, dict) else {f"{before}{name}": part}
    return found


def _nested(columns: Sequence[str], values: Sequence) -> dict:
    found: dict = {}
    for column, value in zip(columns, values, strict=True):
        *path, name = column.split("/")
        if value != ABSENT:
            place = found
            for part in path:
                place = place.setdefault(part, {})
            place[name] = value
    return found


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--again", action="store_true", help="choose from the kept evidence")
    parser.add_argument("--workers", type=int, default=2, help="at the same time, each on one core")
    parser.add_argument("--scratch", type=Path, default=SCRATCH, help="where what is done is kept, to go on later")
    given = parser.parse_args()
    if given.again:
        rows = rows_read()
    else:
        rows = [one for part in done(chosen_jobs(), given.workers, given.scratch) for one in part]
    result = choose(rows)
    columns, evidence = table(rows)
    keep(NAME, COMMAND, {**result, "columns": columns}, evidence=evidence)
    print(*(f"{name}: {result.get(name)}" for name in ("admissible", "chosen", "of_chosen", "of_before")), sep="\n")


if __name__ == "__main__":
    main()
