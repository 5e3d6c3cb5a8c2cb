"""How often a verdict is wrong where an adversary chose the world, and whether it says what the log cannot show.

The worlds, their truth and the words that a verdict must contain are in `benchmarks/adversarial_worlds.py`. A cell is a
world's variant at one number of episodes. Promised for each cell: *better* where the policy is no better, and *worse*
where it is no worse, in at most 2.5% of logs up to the error of the simulation (an exact binomial test of that, at
1%: of a hundred cells that keep it about one may fail); or every wrong verdict says in its paragraph or reasons what
cannot be known from the log. Cells of `ties` and `ordinary` must be answered as well: a judge that answers nothing is
never wrong.

`python -m benchmarks adversarial [world ...] [--logs 200] [--workers 2] [--name NAME]`

Every ten logs are written down when they are judged, and a later run judges what is missing. Rows of another
state of the judge, or of other logs, are not used. Cells whose observations fit no table train networks for each log:
they get `FEW` logs, and none with `--logs-networks 0`. Intervals use 1,000 bootstrap samples.
"""

import hashlib
import os
import re
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from scipy.stats import binomtest

import tidelog as tl
from benchmarks.adversarial_worlds import WORDS, WORLDS, Cell, cells, fingerprint
from benchmarks.keep import keep, share
from benchmarks.spread import scratch, spread

PROMISED, CHANCE = 0.025, 0.01  # share of wrong verdicts on either side; level of the test that there are more
FIRST_SEED, LOGS, FEW, CHUNK = 40_000, 200, 6, 10  # seeds below 20,200 were looked at while the judge was made
REPLICATES = 1000
DECISIONS = ("better", "better if randomised", "worse", "no difference shown", "unsupported")


def judged(cell: Cell, seed: int) -> dict[str, Any]:
    """One verdict on the log of a seed; of several policies, the most favourable one."""
    began = time.perf_counter()
    drawn = cell.draw(seed)
    known = {"seed": seed, "limits": tl.Limits(replicates=REPLICATES), **drawn.arguments}
    with tempfile.TemporaryDirectory() as folder:
        os.environ["TIDELOG_STATE"] = folder  # looks are counted as for a user who sees this log for the first time
        if drawn.together:
            found = list(tl.judge(list(drawn.policies), drawn.log, **known))
        else:
            found = [tl.judge(policy, drawn.log, **known) for policy in drawn.policies]
    verdict = max(found, key=favour)
    text = " ".join([verdict.paragraph, *verdict.reasons])
    return {
        "seed": seed,
        "truth": drawn.truth,
        "decision": verdict.decision,
        "difference": [None if np.isnan(number) else float(number) for number in verdict.difference],
        "reason": verdict.reasons[0],
        "words": [name for name, expression in WORDS.items() if re.search(expression, text)],
        "seconds": time.perf_counter() - began,
    }


def favour(verdict: Any) -> tuple[int, float]:
    """How much a verdict speaks for a policy: by what it decides, then by the lower end of the difference."""
    order = ("unsupported", "worse", "no difference shown", "better if randomised", "better")
    return order.index(verdict.decision), float(np.nan_to_num(verdict.difference.low, nan=-np.inf))


def state() -> str:
    """A fingerprint of the judge, of what reads logs, and of the words: rows of another one are not counted."""
    package = Path(tl.__file__).parent
    files = [file for part in ("ope", "data") for file in sorted(package.joinpath(part).rglob("*.py"))]
    words = repr(sorted(WORDS.items())).encode()
    return hashlib.sha256(b"".join([words, *(file.read_bytes() for file in files)])).hexdigest()[:16]


def judge_some(cell: Sequence[Any], mark: str, first: int, last: int) -> list[dict[str, Any]]:
    """Judge the logs of some seeds, of a cell whose first log has this mark."""
    return [judged(Cell(*cell), seed) for seed in range(first, last + 1)]


def pieces(marks: dict[Cell, str], logs: dict[Cell, int]) -> list[tuple[Any, ...]]:
    """Calls that judge all logs; the first logs of every cell come first."""
    parts = [
        (judge_some, cell, marks[cell], first, min(first + CHUNK, FIRST_SEED + logs[cell]) - 1)
        for cell in marks
        for first in range(FIRST_SEED, FIRST_SEED + logs[cell], CHUNK)
    ]
    return sorted(parts, key=lambda part: part[3])


# What came of it.


def summary(cell: Cell, rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Counts of a cell; shares have Wilson's 95% intervals."""
    form, truth = cell.form, rows[0]["truth"]
    said = Counter(row["decision"] for row in rows)
    wrong = [row for row in rows if is_wrong(row)]
    first = Counter(re.sub(r"[-+]?\d[\d,.]*", "#", row["reason"]) for row in rows).most_common(1)[0]
    found = {
        **cell._asdict(),
        "logs": len(rows),
        "truth": truth,
        "decisions": {decision: said[decision] for decision in DECISIONS},
        "wrong_better": promised_share(sum(row["decision"] == "better" for row in wrong), len(rows)),
        "wrong_worse": promised_share(sum(row["decision"] == "worse" for row in wrong), len(rows)),
        "first_reason": {"text": first[0], "logs": first[1]},
        "seconds": float(np.median([row["seconds"] for row in rows])),
        "networks": form.networks,
    }
    if form.words:
        both = sum(form.words in row["words"] for row in wrong)
        found |= {"words": form.words, "wrong": len(wrong), "said_where_wrong": both}
    if form.answered is not None:
        found["must_answer"] = form.answered
    found["promise"] = kept_by(found)
    return found


def is_wrong(row: dict[str, Any]) -> bool:
    """Whether *better* was said of a policy that is no better, or *worse* of one that is no worse."""
    nothing = 1e-9
    return (row["decision"] == "better" and row["truth"] <= nothing) or (
        row["decision"] == "worse" and row["truth"] >= -nothing
    )


def kept_by(found: dict[str, Any]) -> str:
    """How a cell's promise stands: "kept", "kept by its words", "broken", or "not answered"."""
    right = all(found[side]["more_than_promised"] >= CHANCE for side in ("wrong_better", "wrong_worse"))
    answered = 1.0 - found["decisions"]["unsupported"] / found["logs"]
    if answered < found.get("must_answer", 0.0):
        return "not answered"
    if right:
        return "kept"
    return "kept by its words" if found.get("said_where_wrong", -1) == found.get("wrong") else "broken"


def promised_share(count: int, of: int) -> dict[str, Any]:
    """A share with Wilson's interval, and the p-value of the test that it is as promised."""
    return share(count, of) | {"more_than_promised": float(binomtest(count, of, PROMISED, "greater").pvalue)}


def study(
    *worlds: str,
    logs: int = LOGS,
    logs_networks: int = FEW,
    workers: int = 2,
    name: str = "adversarial",
) -> str:
    """Judge these worlds, or all, and keep what came of them; `logs` of a cell, fewer where networks are trained."""
    unknown = [world for world in worlds if world not in WORLDS]
    if unknown:
        raise SystemExit(f"unknown world {unknown[0]!r}; expected one of {', '.join(WORLDS)}")
    marks = {cell: fingerprint(cell.draw(0)) for cell in cells(worlds)}
    calls = pieces(marks, {cell: logs_networks if cell.form.networks else logs for cell in marks})
    by_cell: dict[Cell, list[dict[str, Any]]] = {}
    for (_, cell, *_), rows in zip(calls, spread(calls, scratch("adversarial") / state(), workers), strict=True):
        by_cell.setdefault(cell, []).extend(rows)
    made = [summary(cell, rows) for cell, rows in by_cell.items()]
    content = {
        "promised": PROMISED,
        "replicates": REPLICATES,
        "logs": logs,
        "logs_of_networks": logs_networks,
        "state": state(),
        "worlds": {world: WORLDS[world].sentence for world in WORLDS if world in {cell.world for cell in marks}},
        "words": WORDS,
        "promises": dict(Counter(cell["promise"] for cell in made)),
    }
    named = " ".join(f"'{world}'" if " " in world else world for world in worlds)
    command = (
        f"python -m benchmarks adversarial {named + ' ' if named else ''}--logs {logs} --logs-networks {logs_networks}"
    )
    keep(name, command if name == "adversarial" else f"{command} --name {name}", content, cells=made)
    broken = [f"{cell['world']} / {cell['variant']} / {cell['episodes']}: {cell['promise']}" for cell in made]
    return "\n".join(line for line in broken if not line.endswith(("kept", "kept by its words")))
