"""What collectors cost and gain: a round in this process, with 2 local collectors, and with 2 actors of Ray.

`python -m benchmarks.collectors`. PPO with one epoch, 16 copies of 128 decisions. The ways take turns, round by
round, and only ratios of neighbours are compared: other work may share the machine. Processor seconds are those of this
process and of the processes that a way has started.
"""

import os
import time
from pathlib import Path
from statistics import median
from typing import Any

import tidelog as tl
from benchmarks.keep import keep
from tidelog.training.learn import learn

COMMAND = "python -m benchmarks.collectors"
COPIES, STEPS, COLLECTORS = 16, 128, 2
SIZE = COPIES * STEPS
WARM = 2
ROUNDS = {"CartPole-v1": 12, "Hopper-v5": 5, "benchmarks.slow_environment:Slow-v0": 3}
WAYS = {"in process": {}, "2 collectors": {"collectors": 2}, "2 actors of Ray": {"collectors": 2, "on": "ray"}}


def processes(root: int) -> list[int]:
    """A process and all below it."""
    parents = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                fields = (folder / "stat").read_text().rsplit(")", 1)[1].split()
            except OSError:
                continue
            parents[int(folder.name)] = int(fields[1])
    found = [root]
    for one in found:
        found += [child for child, parent in parents.items() if parent == one]
    return found


def seconds(process: int) -> float:
    """The processor seconds of a process so far."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def used(ways: dict[str, list[int]]) -> dict[str, float]:
    """The processor seconds of each way's processes."""
    return {way: sum(map(seconds, several)) for way, several in ways.items()}


def advance(run: Any) -> tuple[float, float]:
    """Take a round; return its wall seconds and the processor seconds of this process."""
    engine = run._engine
    until, begun, before = run.done + SIZE, time.perf_counter(), time.process_time()
    while run.done < until:
        engine.advance(10**9, until - run.done)
    return time.perf_counter() - begun, time.process_time() - before


def collect(run: Any) -> float:
    """Collect a rollout that nobody learns from; return its wall seconds."""
    engine, begun = run._engine, time.perf_counter()
    engine._hosts.rollouts(engine.position.round, engine._learners, True)
    return time.perf_counter() - begun


def measured(env: str, rounds: int) -> dict:
    """Rounds of all ways that are here, in turns."""
    algorithm = tl.PPO(
        environments=COPIES, rollout_steps=STEPS, hidden=(64, 64), policy_epochs=1, value_epochs=1, minibatches=4
    )
    runs, below = {}, {}
    for way, options in WAYS.items():
        before = set(processes(os.getpid()))
        try:
            runs[way] = learn(algorithm, env, 10_000 * SIZE, every=10_000 * SIZE, train=False, **options)
        except tl.ConfigError as error:  # Ray is an extra
            if not options:
                raise
            print(env, way, error)
            continue
        runs[way]._engine.compile()
        for _ in range(WARM):
            advance(runs[way])
        below[way] = sorted(set(processes(os.getpid())) - before)
    found = {way: {"round": [], "collect": [], "processor": []} for way in runs}
    for _ in range(rounds):
        for way, run in runs.items():
            others = used(below)[way]
            wall, own = advance(run)
            found[way]["round"].append(wall)
            found[way]["processor"].append(own + used(below)[way] - others)
            found[way]["collect"].append(collect(run))
    made = {way: run._engine._assignment.collectors for way, run in runs.items()}
    facts = {}
    for way, several in found.items():
        facts[way] = {name: median(values) for name, values in several.items()}
        for name, values in several.items():
            ratios = sorted(a / b for a, b in zip(values, found["in process"][name], strict=True))
            quarter = len(ratios) // 4
            facts[way][f"{name}_ratio"] = [median(ratios), ratios[quarter], ratios[-1 - quarter]]
        if made[way] is not None:
            facts[way]["payload_bytes"] = made[way].payload / (WARM + 2 * rounds)
    for run in runs.values():
        run._engine.close()
    return facts


def main() -> None:
    """Measure, keep and print."""
    found = {}
    loads = [os.getloadavg()[0]]
    for env, rounds in ROUNDS.items():
        try:
            found[env] = measured(env, rounds)
        except tl.ConfigError as error:  # MuJoCo is an extra
            print(env, error)
            continue
        for way, facts in found[env].items():
            print(env, way, facts)
        loads.append(os.getloadavg()[0])
    settings = {"copies": COPIES, "steps": STEPS, "warm_rounds": WARM, "rounds": ROUNDS}
    cores = len(os.sched_getaffinity(0))
    keep("collectors", COMMAND, {**settings, "cores": cores, "loads": loads, "environments": found})


if __name__ == "__main__":
    main()
