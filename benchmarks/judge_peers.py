"""Judging the judges: the same logs of known truth, judged by tidelog and by other packages for off-policy evaluation.

Problems are one size of each table-sized world of `benchmarks/adversarial_worlds.py` whose policy is one table of
probabilities, and the treatment problem of `benchmarks/calibration.py` with four of its policies. Logs that nobody can
judge rightly are among them, and are counted apart: `possible` and `impossible` in the results. Kept for each judge are
the share of logs that it answered (*unsupported*, a log that it cannot read and an error are no answers), how often it
said *better* of policies that are no better (of all such logs, and of those that it answered), *worse* of those that
are no worse, and *better* of those that are.

Other packages run in an environment of their own under `--peers`, made by this command with pip, and read logs as .npz
files; `peer_scripts/peer_judges.py` says how each is asked. What does not install is written into the results.

`python -m benchmarks judge_peers [--logs 20] [--peers FOLDER]` draws docs/figures/judge_peers.svg as well.
"""

import hashlib
import json
import os
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from matplotlib.backends.backend_svg import FigureCanvasSVG
from matplotlib.figure import Figure

import tidelog as tl
from benchmarks import adversarial_worlds
from benchmarks.adversarial import REPLICATES, state
from benchmarks.adversarial_worlds import WORLDS, Cell, Drawn
from benchmarks.keep import keep, share
from benchmarks.problems import Table, state_finder, table_log
from benchmarks.spread import SINGLE, own_python, scratch, spread
from tidelog.envs.treatment import clinician, treatment

NAME, LOGS = "judge_peers", 20
PEERS, SCRATCH = scratch("peers"), scratch("judge-peers")
PICTURE = Path(__file__).resolve().parents[1] / "docs/figures/judge_peers.svg"
TORCH, NUMPY = "torch==2.13.0", "numpy<2"
NEEDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {  # installed with what they need, and without
    "obp": (("obp==0.4.1", NUMPY, TORCH), ()),
    "sb-obp": (("sb-obp==0.5.10", "scikit-learn==1.3.2", TORCH), ()),  # its propensity model fails on later ones
    "scope-rl": (
        (NUMPY, "pandas<3", "scipy", "scikit-learn", "matplotlib", "seaborn", "gym", "gymnasium==1.0.0", "hydra-core",
         TORCH, "structlog", "dataclasses-json", "h5py", "colorama", "tqdm", "click"),
        ("d3rlpy==2.8.1", "pytorch-revgrad==0.2.0", "scope-rl==0.2.1"),
    ),
    "skdr-eval": (("skdr-eval==0.12.0",), ()),
}  # fmt: skip
TREATMENT, TARGETS = 2_500, ("the logger itself", "a fifth optimal", "a fifth even chances", "even chances")


class Problem(NamedTuple):
    """Logs of one kind."""

    name: str
    possible: bool  # whether the log can tell
    cell: Cell | None  # None: the treatment problem,
    target: str = ""  # and which of its policies

    def draw(self, seed: int) -> Drawn:
        if self.cell is not None:
            return self.cell.draw(seed)
        return treated(self.target, seed)


def treated(target: str, seed: int) -> Drawn:
    """A log of the treatment problem, whose episodes differ in length, and one of its policies; values are exact."""
    problem, behavior_policy = treatment(), clinician()
    best, even = problem.optimal()[1], np.full(behavior_policy.shape, 1.0 / behavior_policy.shape[1])
    chances = {
        "the logger itself": behavior_policy,
        "a fifth optimal": 0.8 * behavior_policy + 0.2 * best,
        "a fifth even chances": 0.8 * behavior_policy + 0.2 * even,
        "even chances": even,
    }[target]
    truth = float(problem.value_of(chances) - problem.value_of(behavior_policy))
    log = table_log(problem, behavior_policy, TREATMENT, seed)
    return Drawn(log, (Table(chances, state_finder(problem)),), truth, {})


def problems() -> Iterator[Problem]:
    """Every problem that some peer can read."""
    for world, here in WORLDS.items():
        for variant, form in here.variants.items():
            sizes = form.sizes or here.sizes
            cell = Cell(world, variant, sizes[len(sizes) // 2])
            if form.networks or world == "looks":
                continue
            yield Problem(cell.name, form.words is None, cell)
    for target in TARGETS:
        yield Problem(f"treatment__{target}".replace(" ", "-"), True, None, target)


def columns(drawn: Drawn) -> dict[str, np.ndarray]:
    """What a peer reads of a log: arrays without Python objects."""
    log, policy = drawn.log, drawn.policies[0]
    seen = {name: np.asarray(leaf) for name, leaf in log.transitions.observation.items()}
    rows = np.concatenate([leaf.reshape(len(leaf), -1).astype(np.float64) for leaf in seen.values()], axis=1)
    different, which = np.unique(rows, axis=0, return_inverse=True)
    found = {
        "context": np.eye(len(different))[which.reshape(-1)],
        "action": np.asarray(log.action, np.int64),
        "reward": np.asarray(log.reward, np.float64),
        "target": np.asarray(policy.probabilities(seen, None), np.float64),
        "episode": np.asarray(log.episode, np.int64),
        "step": np.asarray(log.step, np.int64),
    }
    return found if log.propensity is None else {**found, "propensity": np.asarray(log.propensity, np.float64)}


def write_logs(chosen: list[Problem], logs: int, folder: Path) -> dict[str, float]:
    """Write what peers read; the truth of each problem."""
    folder.mkdir(parents=True, exist_ok=True)
    truth = {}
    for problem in chosen:
        for seed in range(logs):
            path = folder / f"{problem.name}__{seed:03d}.npz"
            if seed and path.exists():
                continue
            drawn = problem.draw(seed)
            truth[problem.name] = drawn.truth
            if not path.exists():
                np.savez_compressed(path, **columns(drawn))
    return truth


# Asking.


def ask_peer(judge: str, peers: Path, folder: Path, out: Path) -> str:
    """Let a peer judge every log; why it could not, or nothing."""
    fitting, alone = NEEDS[judge]
    try:
        python = own_python(peers / judge, *fitting, alone=alone)
    except RuntimeError as error:
        return str(error)
    script = Path(__file__).with_name("peer_scripts") / "peer_judges.py"
    with out.with_suffix(".log").open("w") as said:
        command = [str(python), str(script), judge, str(folder), str(out)]
        ran = subprocess.run(command, stdout=said, stderr=subprocess.STDOUT, env={**os.environ, **SINGLE})
    if ran.returncode:
        return f"ended with {ran.returncode}: {out.with_suffix('.log').read_text()[-300:]}"
    return ""


def verdict_on(problem: Problem, seed: int) -> dict[str, Any]:
    """The verdict of tidelog on one log."""
    drawn, began = problem.draw(seed), time.perf_counter()
    limits = tl.Limits(replicates=REPLICATES)
    verdict = tl.judge(drawn.policies[0], drawn.log, seed=seed, limits=limits, **drawn.arguments)
    row = {"log": f"{problem.name}__{seed:03d}", "version": tl.__version__, "decision": verdict.decision}
    return {**row, "seconds": time.perf_counter() - began}


def ask_tidelog(chosen: list[Problem], logs: int, out: Path) -> None:
    """The verdicts of tidelog on the same logs."""
    calls = [(verdict_on, one, seed) for one in chosen for seed in range(logs)]
    rows = spread(calls, out.with_suffix(""), workers=2)
    out.write_text("".join(f"{json.dumps(row)}\n" for row in rows))


# Counting.


def summary(rows: list[dict[str, Any]], truth: dict[str, float], decision: str = "decision") -> dict[str, Any]:
    """Counts over logs; shares have Wilson's 95% intervals."""
    said = [(row.get(decision, row["decision"]), truth[row["log"].rpartition("__")[0]]) for row in rows]
    answers = ("better", "worse", "no difference shown")
    no_better, no_worse = [one for one, worth in said if worth <= 1e-9], [one for one, worth in said if worth >= -1e-9]
    better = [one for one, worth in said if worth > 1e-9]
    given = [one for one in no_better if one in answers]
    return {
        "logs": len(said),
        "answered": share(sum(one in answers for one, _ in said), len(said)),
        "better_though_not": share(no_better.count("better"), len(no_better)),
        "better_though_not_of_answered": share(given.count("better"), len(given)),
        "worse_though_not": share(no_worse.count("worse"), len(no_worse)),
        "better_and_is": share(better.count("better"), len(better)),
        "no_answers": {one: sum(a == one for a, _ in said) for one in ("unsupported", "unreadable", "error")},
        "seconds": float(np.median([row["seconds"] for row in rows])),
    }


def counted(judge: str, out: Path, chosen: list[Problem], logs: int, truth: dict[str, float]) -> dict[str, Any]:
    """What came of one judge (two, where a package gives an interval and advice of its own)."""
    wanted = {f"{problem.name}__{seed:03d}": problem for problem in chosen for seed in range(logs)}
    rows = [row for row in map(json.loads, out.read_text().splitlines()) if row["log"] in wanted]
    found = {}
    for name, decision in ((judge, "decision"), (f"{judge}, its advice", "advised")):
        if decision != "decision" and not any(decision in row for row in rows):
            continue
        parts = {
            label: [row for row in rows if wanted[row["log"]].possible is possible]
            for label, possible in (("possible", True), ("impossible", False))
        }
        by_problem = {}
        for problem in chosen:
            mine = [row for row in rows if wanted[row["log"]] == problem]
            decisions = [row.get(decision, row["decision"]) for row in mine]
            by_problem[problem.name] = {one: decisions.count(one) for one in sorted(set(decisions))}
        found[name] = {
            "version": rows[0]["version"],
            **{label: summary(part, truth, decision) for label, part in parts.items()},
            "why_not": sorted({row["why"] for row in rows if "why" in row})[:8],
            "problems": by_problem,
        }
    return found


def study(logs: int = LOGS, peers: Path = PEERS) -> dict[str, Any]:
    """Ask every judge, keep what came of it, and draw it."""
    chosen = list(problems())
    folder = SCRATCH / hashlib.sha256(Path(adversarial_worlds.__file__).read_bytes()).hexdigest()[:16]
    truth = write_logs(chosen, logs, folder)
    out = folder / f"tidelog{state()}.jsonl"
    ask_tidelog(chosen, logs, out)
    found, failed = counted("tidelog", out, chosen, logs, truth), {}
    for judge in NEEDS:
        out = folder / f"{judge}.jsonl"
        if why := ask_peer(judge, peers, folder, out):
            failed[judge] = why
        else:
            found |= counted(judge, out, chosen, logs, truth)
    content = {
        "logs_of_a_problem": logs,
        "impossible": [problem.name for problem in chosen if not problem.possible],
        "failed": failed,
        "truth": truth,
        "judges": found,
    }
    keep(NAME, f"python -m benchmarks judge_peers --logs {logs}", content)
    draw(found)
    return {name: {part: one[part] for part in ("possible", "impossible")} for name, one in found.items()} | failed


def draw(judges: dict[str, Any]) -> None:
    """Error of *better* among answers against the share answered, for logs that can be judged and for the others."""
    figure = Figure(figsize=(9, 4.2), layout="constrained")
    FigureCanvasSVG(figure)
    titles = {"possible": "logs that can be judged", "impossible": "logs that cannot, whatever one does"}
    for place, (part, title) in enumerate(titles.items(), 1):
        axes = figure.add_subplot(1, 2, place)
        for name, found in sorted(judges.items()):
            wrong, answered = found[part]["better_though_not_of_answered"], found[part]["answered"]
            if "share" not in wrong:
                continue
            error = [[wrong["share"] - wrong["low"]], [wrong["high"] - wrong["share"]]]
            axes.errorbar(answered["share"], wrong["share"], error, fmt="o", capsize=3, label=name)
        axes.axhline(0.025, color="grey", linewidth=1, linestyle="--")
        axes.set(xlim=(0, 1.03), ylim=(0, None), xlabel="share of logs answered", title=title)
        axes.set_ylabel("'better' of policies that are no better, of answers" if place == 1 else "")
    axes.legend(frameon=False, fontsize=8)
    figure.savefig(PICTURE, metadata={"Date": None})
