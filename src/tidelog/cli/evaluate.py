"""`tidelog evaluate RUN ... --env NAME | --data LOG`: returns of runs' policies, or a comparison with a log.

Several runs play, or answer, the same episodes; the differences between them are paired by episode.
`tidelog collect` plays an environment and saves the log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import tyro

from tidelog._files import write_json
from tidelog.cli.flags import (
    Env,
    File,
    Folder,
    OutputFlags,
    Repeated,
    RunFolder,
    check_targets,
    parse,
    present,
    print_details,
    print_line,
    print_notes,
    table,
)
from tidelog.cli.policies import in_chosen_way, log_for_runs, open_policy, refuse_lists
from tidelog.data.log import Log
from tidelog.data.raw import several_as_text
from tidelog.data.statistics import Sketch, episode_hashes
from tidelog.data.storage import is_saved_log
from tidelog.envs.registry import make
from tidelog.errors import ConfigError
from tidelog.policies.rollout import collect, leaf_pairs, rollout
from tidelog.policies.statistics import bootstrap_interval, iqm, mean, simultaneous_differences
from tidelog.runtime.way_of_acting import DOES
from tidelog.training.record import Record
from tidelog.training.run import agreement_by_step, member_policy
from tidelog.types import Image, Spec

Values = np.ndarray[Any, Any]
MOST_COPIES = 256  # of an environment, stepped together


@dataclass
class Evaluate(OutputFlags):
    """Play every member of runs in an environment, or compare them with a log."""

    runs: tyro.conf.Positional[tuple[RunFolder, ...]]
    """the run folders; several play the same episodes, and their differences have intervals"""
    env: Env | None = None
    """a built-in environment or a gymnasium id"""
    episodes: int = 50
    """episodes per seed"""
    sample: bool = False
    """with --env: sample actions from the policy's distribution; default: its declared way, else the most likely
    actions"""
    mode: bool = False
    """with --env: take the most likely actions"""
    seed: int = 0
    """random seed of the play"""
    data: Repeated = ()
    """a log: a table, a folder of tables or a glob (with --columns; repeat the flag for several), a saved log, an .npz
    or .hdf5 (D4RL, robomimic) file, or the id of a Minari data set"""
    columns: File | None = None
    """for tables: the mapping file; default: the columns of the runs' log"""


def run(words: list[str]) -> int:
    """Evaluate runs."""
    options = parse(Evaluate, words, "evaluate")
    if (options.env is None) == (not options.data):
        raise ConfigError("expected exactly one of --env NAME (play) and --data LOG (compare)", fix="set one of them")
    runs = {Path(name): Record.read(Path(name)) for name in options.runs}
    if not runs or len({folder.resolve() for folder in runs}) < len(options.runs):
        raise ConfigError("expected one run folder, or several different ones", fix="name each of them once")
    if options.data and (options.sample or options.mode):
        raise ConfigError(
            "--sample and --mode change nothing with --data: a comparison with a log reads the most "
            "likely actions and the probabilities of the logged ones",
            fix="drop the flag",
        )
    if len(runs) > 1 and options.env is not None and options.episodes < 2:
        raise ConfigError("--episodes 1: a comparison of runs needs at least 2", fix="use --episodes 50")
    for folder, record in runs.items():
        refuse_lists(folder, record, "evaluate")
    if len(runs) > 1 and options.env is not None and not (options.sample or options.mode):
        ways = {str(folder): member_policy(folder, record, 0).acting or "mode" for folder, record in runs.items()}
        if len(set(ways.values())) > 1:
            each = ", ".join(f"{folder} {DOES[way]}" for folder, way in ways.items())
            raise ConfigError(
                f"the runs act in different ways ({each}), so their difference would be that of the ways",
                fix="add --mode or --sample, for all of them",
            )
    return present(options, lambda _: _evaluate(options, runs))


def _evaluate(options: Evaluate, runs: dict[Path, Record]) -> dict[str, Any]:
    """Play or compare every run, then all pairs of runs, and return the returns or measures."""
    scores: dict[Path, dict[str, Values]] = {}
    log = None if options.env else log_for_runs(options.data, options.columns, [*runs.values()])
    parts = {} if log is None else _parts(log, runs.values())
    results: list[dict[str, Any]] = []
    for folder, record in runs.items():
        if len(runs) > 1:
            print_line(f"{folder}:")
        result, scores[folder] = (
            _play(options, folder, record, len(runs) > 1)
            if log is None
            else _compare(options, folder, record, log, parts)
        )
        results.append(result)
    if len(runs) == 1:
        return results[0]
    whole = dict(zip(map(str, runs), results, strict=True))
    return {"runs": whole, "differences": _differences(scores, log is None, next(iter(parts), ""))}


def _play(options: Evaluate, folder: Path, record: Record, paired: bool) -> tuple[dict[str, Any], dict[str, Values]]:
    """Play every member; return the returns, and the mean over members of each episode's return [episodes]."""
    seeds, count = record.options.seeds, len(record.configs) * len(record.options.seeds)
    members = (member_policy(folder, record, i) for i in range(count))
    policies = [in_chosen_way(policy, options.sample, options.mode) for policy in members]
    _print_order(record.spec, str(options.env))
    if len({policy.acting for policy in policies}) > 1:
        raise ConfigError(
            f"the members of {folder} were declared to act in different ways", fix="add --sample or --mode"
        )
    sampled = policies[0].acting == "sample"
    copies = min(options.episodes, MOST_COPIES) if paired else None  # first episodes begin alike under every policy
    returns = [rollout(policy, options.env, options.episodes, options.seed, num_envs=copies) for policy in policies]
    rows = [[f"member {i} (seed {seeds[i % len(seeds)]})", *_cells(r)] for i, r in enumerate(returns)]
    rows += [["all members", *_cells(np.stack(returns))]] if count > 1 else []
    how = "sampled" if sampled else "deterministic"
    title = f"{options.env}: {options.episodes} episodes per member, {how}"
    table(title, ["", "mean return", "95% interval", "IQM"], rows)
    path = folder / "evaluations" / f"{Path(str(options.env)).name}-{how}-{options.seed}.json"
    content = {"env": options.env, "sampled": sampled, "seed": options.seed, "returns": [r.tolist() for r in returns]}
    write_json(path, content, ConfigError)
    print_details(f"all returns: {path}")
    return content, {"mean return": np.mean(returns, axis=0)}


def _print_order(spec: Spec, name: str) -> None:
    """Print how the features of a table are matched with an environment's observation that has no names for them."""
    environment = make(name, 1)
    try:
        pairs = leaf_pairs(spec, environment.spec)
    finally:
        environment.close()
    for ours, theirs in pairs.items():
        leaf, other = spec.observation[ours], environment.spec.observation[theirs]
        if ours != theirs and not isinstance(leaf, Image) and leaf.names and not getattr(other, "names", ()):
            print_notes([f"{name} has no names of features: its '{theirs}' is read as {', '.join(leaf.names)}"])


def _cells(returns: np.ndarray) -> list[str]:
    """Mean, interval and IQM of returns, [episodes] or [members, episodes]."""
    interval = bootstrap_interval(returns, mean, whole_runs=returns.ndim == 2)
    return [f"{interval.estimate:.4g}", f"{interval.low:.4g} to {interval.high:.4g}", f"{iqm(returns):.4g}"]


def _parts(log: Log, records: Iterable[Record]) -> dict[str, Values]:
    """Return the episodes of a log by their use in training, {name: [E] bool}, those that no run learnt from first.

    A policy imitates the decisions that it was trained on better than others: both together rank by overfitting.
    """
    trained, known, used = np.zeros(len(log.episode_ids), bool), True, "training episodes"
    for record in records:
        chosen = record.options.selection_share < 1.0  # the episodes that chose the policy are not left for the judge
        used = "training and selection episodes" if chosen else used
        sketch = record.sketches.get("learnt_from")
        learnt_from = None if sketch is None else Sketch.from_json(sketch)
        if log.fingerprint() == record.data.fingerprint:
            trained |= ~np.isin(log.episode_ids, np.asarray(record.held_out))
        elif learnt_from is None or not learnt_from.exact:
            known = False
        if learnt_from is not None:  # also the episodes of warm starts, and those of the log under another mapping
            hashes = episode_hashes(log, rewards=learnt_from.rewards)
            trained |= np.isin(hashes, learnt_from.smallest)
            if chosen:
                trained |= np.isin(hashes, Sketch.from_json(record.sketches["held_out"]).smallest)
    parts = {"held-out episodes" if known else "other episodes": ~trained, used: trained}
    return {name: episodes for name, episodes in parts.items() if episodes.any()}


def _compare(
    options: Evaluate, folder: Path, record: Record, log: Log, parts: Mapping[str, Values]
) -> tuple[dict[str, Any], dict[str, Values]]:
    """Compare every member with the parts of a log; return the measures of each part.

    Also returns the share of each episode in the mean of the first part [episodes of the part].
    """
    count = len(record.configs) * len(record.options.seeds)
    by_step = [agreement_by_step(member_policy(folder, record, i), log) for i in range(count)]
    head, lengths = ["", *(f"member {i}" for i in range(count))], np.diff(log.starts)
    content: list[dict[str, Any]] = []
    for part, episodes in parts.items():
        rows = np.repeat(episodes, lengths)
        measures = [{name: float(np.mean(values[rows])) for name, values in one.items()} for one in by_step]
        counts = {"episodes": int(episodes.sum()), "steps": int(rows.sum())}
        table(
            f"{several_as_text(options.data)}, {counts['episodes']:,} {part}: {counts['steps']:,} steps, most likely "
            "actions",
            head,
            [[name, *(f"{measure[name]:.4g}" for measure in measures)] for name in measures[0]],
        )
        content.append({"part": part, **counts, "members": measures})
    if len(parts) > 1:
        print_details("the training episodes say how well a policy fits them, not how well it imitates other decisions")
    elif "training" in part:
        print_details("all of these episodes were trained on: a policy fits them better than other decisions")
    first = next(iter(parts.values()))
    scores = {}
    for name in by_step[0]:
        steps = np.mean([one[name] for one in by_step], axis=0)
        sums = np.add.reduceat(steps, log.starts[:-1])[first]
        mean = sums.sum() / lengths[first].sum()
        scores[name] = mean + (sums - mean * lengths[first]) / lengths[first].mean()  # episodes differ in length
    return {"steps": log.steps, **content[0], "parts": content}, scores


def _differences(scores: dict[Path, dict[str, Values]], played: bool, part: str = "") -> list[dict[str, Any]]:
    """Print and return the paired differences of all pairs of runs, by the measures that all of them have."""
    names, differences = [str(folder) for folder in scores], []
    shared = [name for name in next(iter(scores.values())) if all(name in one for one in scores.values())]
    for measure in shared:
        rows, sentences = [], []
        for one, other, interval in simultaneous_differences(np.stack([one[measure] for one in scores.values()])):
            pair = names[one], names[other]
            rows.append(
                [" minus ".join(pair), f"{interval.estimate:+.4g}", f"{interval.low:+.4g} to {interval.high:+.4g}"]
            )
            differences.append(
                {"measure": measure, "one": pair[0], "other": pair[1], "level": 0.95, **interval._asdict()}
            )
            if interval.low <= 0.0 <= interval.high:
                sentences.append(f"no difference was shown between {pair[0]} and {pair[1]}")
            else:
                high, low = pair if interval.estimate > 0 else pair[::-1]
                sentences.append(f"{high} has a higher {measure} than {low}, by {abs(interval.estimate):.3g}")
        table(f"differences: {measure}", ["", "difference", "95% interval"], rows)
        for sentence in sentences:
            print_line(f"- {sentence}")
    episodes = len(scores[Path(names[0])][shared[0]])
    pairs = len(names) * (len(names) - 1) // 2
    same = "started from the same seeds" if played else f"of the log ({part})"
    text = f"paired: each difference is over the same {episodes:,} episodes, {same}"
    text += f"; the intervals hold for all {pairs:,} pairs at once" if pairs > 1 else ""
    print_details(
        f"{text}. They compare these policies, the mean over the members of a run; other training seeds may differ"
    )
    return differences


# `tidelog collect --env NAME --out LOG`: play an environment and save the log.


@dataclass
class Collect(OutputFlags):
    """Play complete episodes and write them as a log, with propensities if known."""

    env: Env
    """a built-in environment or a gymnasium id"""
    out: Folder
    """the output folder of the log"""
    policy: Annotated[str, "RUN|POLICY|random"] = "random"
    """`random`, a saved policy, or a run folder"""
    episodes: int | None = None
    """number of episodes; alternatively use --steps"""
    steps: int | None = None
    """play complete episodes with at least this many decisions in total"""
    seed: int = 0
    """random seed of the play"""
    sample: bool = False
    """sample actions from the policy's distribution; default: its declared way, else a sample"""
    mode: bool = False
    """take the policy's most likely actions"""
    overwrite: bool = False
    """replace the log in the folder of --out"""


def run_collect(words: list[str]) -> int:
    """Collect a log."""
    return present(parse(Collect, words, "collect"), _collect)


def _collect(options: Collect) -> dict[str, Any]:
    """Play, save the log, and return what it has."""
    target, policy = Path(options.out), None
    check_targets(target, overwrite=options.overwrite, replaceable=is_saved_log)
    if options.policy != "random":
        policy = in_chosen_way(open_policy(options.policy), options.sample, options.mode, otherwise="sample")
    log = collect(options.env, policy, episodes=options.episodes, steps=options.steps, seed=options.seed)
    log.save(target, overwrite=options.overwrite)
    returns = log.statistics().returns or {}
    count = len(log.episodes)
    facts = "" if options.quiet else f"{log.steps:,} steps in {count:,} episodes, mean return {returns['mean']:.4g}: "
    print_line(f"{facts}{target}")
    return {"log": str(target), "steps": log.steps, "episodes": count, "returns": returns}
