"""A sweep in a Ray cluster of this machine while workers, nodes and the driver are killed, and one node is frozen.

    python -m benchmarks ray_kills           # needs the extra ray

The nodes are raylets of `ray.cluster_utils.Cluster`, on the loopback interface. A kill is a SIGKILL of a worker that
trains, of a raylet (its workers end with it, and another node is added), or of the driver (which is started again by
`tidelog resume DIR --on ray`), at random moments. One node is stopped by SIGSTOP, its raylet and its workers, and goes
on when the stall watch has moved its trial. At the end every trial's learners and metrics equal those of the same sweep
on `here`, each report is in its run once, and no file below `out` is a `.pkl`.

Results: benchmarks/results/ray_kills.json.
"""

import contextlib
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}  # before Ray is imported
os.environ |= {"RAY_AUTH_MODE": "disabled", "RAY_TMPDIR": tempfile.mkdtemp(prefix="ray")}  # and short: it holds sockets

import psutil
from ray.cluster_utils import Cluster

import tidelog as tl
from benchmarks.keep import keep
from tidelog.policies.policy import fingerprint
from tidelog.sweeps.job import trial_folder
from tidelog.sweeps.plan import newest_attempt, read_status
from tidelog.training.checkpoints import LOCK

NODE = {"num_cpus": 1, "object_store_memory": 100_000_000, "include_dashboard": False}
WORKER = "ray::_in_cluster"
MOST_ENDS = 10  # of drivers by themselves, with an error


def study(
    trials: int = 8,
    steps: int = 300_000,
    kills: int = 15,
    nodes: int = 3,
    pause: float = 8.0,
    stall: float = 45.0,
    seed: int = 0,
) -> dict[str, Any]:
    """Kill at most so many, `pause` seconds apart on average; a trial without a report for `stall` seconds is moved."""
    options = SimpleNamespace(**locals())
    work = Path(tempfile.mkdtemp(prefix="ray-kills"))
    try:
        content = undisturbed_and_disturbed(options, work)
    finally:
        shutil.rmtree(work)
        shutil.rmtree(os.environ["RAY_TMPDIR"], ignore_errors=True)
    words = " ".join(f"--{name} {value}" for name, value in vars(options).items())
    keep("ray_kills", f"python -m benchmarks ray_kills {words}", content)
    if content["different"] or content["repeated_reports"] or content["pkl_files"]:
        raise SystemExit(json.dumps(content, indent=1))
    return content


def undisturbed_and_disturbed(options: SimpleNamespace, work: Path) -> dict[str, Any]:
    """The same sweep on `here`, and on Ray under kills."""
    tl.collect("treatment", episodes=30, seed=0).save(work / "log.tidelog")
    log = tl.Log.load(work / "log.tidelog")
    rates = [1e-4 * 1.2**number for number in range(options.trials)]
    trials = tl.grid(tl.BC(hidden=(8, 8), embedding=2, batch_size=32), learning_rate=rates)

    def written(name: str) -> Path:
        return tl.sweep(
            trials, log, options.steps, out=work / name, every=options.steps // 6, best="held_out/imitation_loss",
            save_seconds=0.5, stall_seconds=options.stall, train=False, progress=False,
        ).folder  # fmt: skip

    begun = time.monotonic()
    whole = tl.resume(written("here"), progress=False)
    seconds_here = time.monotonic() - begun
    folder = written("ray")
    begun = time.monotonic()
    counts = disturb(folder, options)
    seconds = time.monotonic() - begun
    disturbed = tl.Sweep(folder)
    return {
        "trials": options.trials,
        "nodes": options.nodes,
        **counts,
        "steps": options.steps,
        "seconds": round(seconds),
        "seconds_here": round(seconds_here),
        "states": sorted({row["state"] for row in disturbed.table}),
        "attempts": [newest_attempt(trial_folder(folder, trial)) for trial in range(options.trials)],
        "different": [trial for trial in range(options.trials) if state(disturbed, trial) != state(whole, trial)],
        "repeated_reports": [trial for trial in range(options.trials) if repeated(disturbed, trial)],
        "pkl_files": [str(path) for path in folder.rglob("*") if path.suffix in (".pkl", ".pickle")],
    }


def state(sweep: Any, trial: int) -> Any:
    """What an undisturbed and a disturbed trial share: learners, metrics, and the policy of the best report."""
    run = tl.load_run(sweep.run_folder(trial))
    metrics = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in run.metrics]
    return [fingerprint(one) for one in run.learners()], metrics, fingerprint(run.best_policy().params)


def repeated(sweep: Any, trial: int) -> bool:
    """Whether a report is in a run twice, or its status is of another attempt than the newest: two wrote into it."""
    folder = trial_folder(sweep.folder, trial)
    rows = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    seen = [(row["update"], row.get("member")) for row in rows]
    status = read_status(folder)
    return len(set(seen)) < len(seen) or status is None or status.attempt != newest_attempt(folder)


def disturb(folder: Path, options: SimpleNamespace) -> dict[str, Any]:
    """Train a sweep to its end under kills; return how many there were of each kind."""
    dice = random.Random(options.seed)
    cluster = Cluster(initialize_head=True, head_node_args={**NODE, "num_cpus": 0})
    nodes = [cluster.add_node(**NODE) for _ in range(options.nodes)]
    counts: dict[str, Any] = {"workers": 0, "nodes_lost": 0, "drivers": 0, "frozen": 0, "driver_ends": []}
    frozen: list[psutil.Process] = []
    thaw = freeze_at = 0.0
    driver = start(folder, cluster.address)
    kill_at = time.monotonic() + 2 * options.pause
    try:
        while True:
            time.sleep(0.1)
            code = driver.poll()
            if code is not None:
                counts["driver_ends"].append(code)
                if code == 0:
                    return counts
                if len(counts["driver_ends"]) > MOST_ENDS:
                    raise RuntimeError(f"drivers ended with {counts['driver_ends']}")
                driver = start(folder, cluster.address)
            now = time.monotonic()
            if frozen and now > thaw:
                for one in frozen:
                    with contextlib.suppress(psutil.NoSuchProcess):
                        one.resume()
                frozen = []
            done = counts["workers"] + counts["nodes_lost"] + counts["drivers"]
            if now < kill_at or done >= options.kills or not training(folder):
                continue
            kill_at = now + dice.uniform(0.3, 1.7) * options.pause
            if done >= options.kills // 3 and not counts["frozen"] and not freeze_at:
                at_work = training(folder)
                node = next((one for one in nodes if any(two.pid in at_work for two in workers_of(one))), None)
                if node is not None:
                    freeze_at, counts["frozen"] = now, 1
                    frozen = [*raylets(node), *workers_of(node)]
                    for one in frozen:
                        one.suspend()
                    thaw = now + 2 * options.stall
                    nodes.remove(node)
                    nodes.append(cluster.add_node(**NODE))
                    continue
            kind = dice.choices(("worker", "node", "driver"), (5, 3, 2))[0]
            if kind == "worker":
                one = dice.choice(training(folder))
                with contextlib.suppress(psutil.NoSuchProcess):
                    psutil.Process(one).kill()
                    counts["workers"] += 1
            elif kind == "node":
                node = nodes.pop(dice.randrange(len(nodes)))
                for one in raylets(node):
                    one.kill()
                nodes.append(cluster.add_node(**NODE))
                counts["nodes_lost"] += 1
            else:
                driver.kill()
                driver.wait()
                counts["drivers"] += 1
                driver = start(folder, cluster.address)
            print(f"{sum(map(int, (counts['workers'], counts['nodes_lost'], counts['drivers'])))} kills, last {kind}",
                  file=sys.stderr, flush=True)  # fmt: skip
    finally:
        driver.kill()
        for one in frozen:
            with contextlib.suppress(psutil.NoSuchProcess):
                one.resume()
        try:
            cluster.shutdown()
        except (RuntimeError, ValueError, AssertionError, psutil.Error) as error:  # of nodes that were killed
            print(f"the end of the cluster: {error}", file=sys.stderr)


def start(folder: Path, address: str) -> subprocess.Popen[bytes]:
    """Start a driver in a process of its own."""
    command = [sys.executable, "-m", "tidelog", "resume", str(folder), "--on", "ray", "--quiet"]
    return subprocess.Popen(command, env={**os.environ, "RAY_ADDRESS": address}, stdout=subprocess.DEVNULL)


def training(folder: Path) -> list[int]:
    """The living processes that hold a run's lock."""
    found = []
    for lock in folder.glob(f"trials/*/run/{LOCK}"):
        with contextlib.suppress(OSError, ValueError, KeyError, psutil.Error):
            process = json.loads(lock.read_text())["process"]
            if psutil.Process(process).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_STOPPED):
                found.append(process)
    return found


def raylets(node: Any) -> list[psutil.Process]:
    """The raylet of a node."""
    return [psutil.Process(one.process.pid) for one in node.all_processes["raylet"]]


def workers_of(node: Any) -> list[psutil.Process]:
    """The workers of a node that train."""
    found = []
    for raylet in raylets(node):
        with contextlib.suppress(psutil.NoSuchProcess):
            found += [one for one in raylet.children(recursive=True) if one.name().startswith(WORKER[:10])]
    return found
