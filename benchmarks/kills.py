"""Runs killed by SIGKILL at random moments and resumed, against the same runs never interrupted: equal to the last bit.

Every kill is a real one, of a real command line, at a moment drawn from the whole life of the process (imports,
compilation, training, saving). A run is killed again and again until it gets through. `python -m benchmarks.kills [WORD
...]` runs the kinds whose name begins with one of the words, and keeps what was found of the others.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import tidelog as tl
from benchmarks.keep import RESULTS, keep, kept
from tidelog.policies.named_arrays import fingerprint

KILLS, LONGEST = 20, 5.0
COMMAND = "pytest -m slow tests/training/test_kills.py"
KINDS = {
    "iql": ["iql", "--steps", "20000"],
    "iql, 2 seeds, dropout, n-step": ["iql", "--steps", "8000", "--seeds", "2", "--dropout", "0.1", "--n-step", "3"],
    "iql, prioritised": ["iql", "--steps", "15000", "--priority-exponent", "0.6"],
    "iql, memory": [
        "iql",
        "--steps",
        "1500",
        "--recurrent-size",
        "8",
        "--window",
        "4",
        "--burn-in",
        "2",
        "--batch-size",
        "16",
    ],
    "bc": ["bc", "--steps", "30000"],
    "ppg, function": ["ppg", "--env", "jax:CartPole-v1", "--steps", "60000"],
    "ppg, memory, waiting on disk": [
        "ppg",
        "--env",
        "jax:CartPole-v1",
        "--steps",
        "30000",
        "--recurrent-size",
        "8",
        "--phase-buffer",
        "disk",
    ],
    "ppg, host, 2 seeds": ["ppg", "--env", "point-mass", "--steps", "12000", "--seeds", "2"],
}
PLAYING = [
    "--environments", "8", "--rollout-steps", "32", "--policy-iterations", "4", "--minibatches", "2", "--pieces", "1",
    "--auxiliary-minibatch", "4", "--best", "collect/return",
]  # fmt: skip


def study(kills: int = KILLS, words: tuple[str, ...] = ()) -> dict:
    """Kill at least `kills` times, over the kinds that begin with a word (or all), and compare the final states."""
    dice = random.Random(0)
    chosen = {kind: command for kind, command in KINDS.items() if kind.startswith(words or "")}
    before = kept("kills")["runs"] if words and (RESULTS / "kills.json").exists() else []
    found = []
    with tempfile.TemporaryDirectory() as folder:
        log = Path(folder) / "log.tidelog"
        _log().save(log)
        while sum(one["kills"] for one in found) < kills:
            for kind, command in chosen.items():
                place, begin = Path(folder) / f"run-{len(found)}", time.monotonic()
                whole = _whole(place.with_suffix(".whole"), command, log)
                longest = max(LONGEST, 1.2 * (time.monotonic() - begin))  # a busy machine must get through, too
                count = _killed_until_done(place, command, log, dice, longest)
                found.append({"kind": kind, "kills": count, "equal": _state(place) == whole})
    runs = [one for one in before if one["kind"] not in chosen] + found
    content = {"kills": sum(one["kills"] for one in runs), "equal": all(one["equal"] for one in runs), "runs": runs}
    keep("kills", COMMAND, content)
    return content


def _log() -> tl.Log:
    generator = np.random.default_rng(0)
    row = np.arange(4_000)
    return tl.Log.from_arrays(
        observation=generator.standard_normal((4_000, 5)).astype(np.float32),
        action=generator.uniform(-1, 1, (4_000, 2)).astype(np.float32),
        reward=generator.standard_normal(4_000).astype(np.float32),
        terminated=row % 80 == 79,
        episode=row // 40,
        truncated=row % 80 == 39,
        bounds=(-1.0, 1.0),
    )


def _words(place: Path, words: list[str], log: Path) -> list[str]:
    common = ["--out", str(place), "--hidden", "32", "32", "--save-seconds", "0.05"]
    source = PLAYING if "--env" in words else ["--data", str(log), "--best", "held_out/" + _loss(words[0])]
    return [sys.executable, "-m", "tidelog", "train", *words, *common, *source]


def _loss(name: str) -> str:
    return "imitation_loss" if name == "bc" else "critic_loss"


def _whole(place: Path, words: list[str], log: Path) -> tuple:
    subprocess.run(_words(place, words, log), check=True, capture_output=True)
    return _state(place)


def _killed_until_done(place: Path, words: list[str], log: Path, dice: random.Random, longest: float) -> int:
    kills, start = 0, _words(place, words, log)
    while True:
        resumable = (place / "run.json").exists() and any((place / "checkpoints").glob("[0-9]*"))
        if not resumable and place.exists():
            subprocess.run(["rm", "-r", str(place)], check=True)
        command = [sys.executable, "-m", "tidelog", "resume", str(place)] if resumable else start
        process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            process.wait(timeout=dice.uniform(0.5, longest))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            kills += 1
            continue
        if process.returncode != 0:
            raise RuntimeError(f"{command}: {process.stderr.read().decode()}")
        return kills


def _state(place: Path) -> tuple:
    """The final learners' bits, the metrics, and the best policies."""
    run = tl.load(place)
    best = [run.best_policy(member=member.index) for member in run.members]
    rows = [{name: value for name, value in row.items() if not name.startswith("time/")} for row in run.metrics]
    return [fingerprint(learner) for learner in run.learners()], rows, [fingerprint(p.params) for p in best]


if __name__ == "__main__":
    begin = time.time()
    print(study(words=tuple(sys.argv[1:])), f"{time.time() - begin:.0f} s")
