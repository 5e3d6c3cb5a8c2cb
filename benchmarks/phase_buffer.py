"""What the phase memory takes at the paper's shapes, on the device (here the same memory), the host, and on disk.

`python -m benchmarks.phase_buffer`. 64 environments, 256 steps, pictures of 64 x 64 x 3 bytes, 15 actions; one process
a case, which plays `policy_iterations` rounds and one auxiliary epoch. The network is a dense layer on coarse pictures:
what is measured is memory, not learning. Memory is that of the process beyond what it had before the run: its own
pages, and pages of mapped files.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import equinox as eqx
import jax
import jax.numpy as jnp

import tidelog as tl
from benchmarks.keep import keep
from tidelog.envs.functional import CopyStep
from tidelog.networks.distributions import Categorical
from tidelog.training.engine.offload_storage import FOLDER, store_bytes
from tidelog.training.engine.plan import planned_stores
from tidelog.types import Discrete, Image, Spec

COMMAND = "python -m benchmarks.phase_buffer"
CASES = [(place, rounds) for place in ("device", "host", "disk") for rounds in (2, 4)] + [("host", 8), ("disk", 8)]
STATED = (32, 16, 8, 4, 2)  # policy_iterations whose size is said without being tried


@dataclass(frozen=True)
class Pictures:
    """Pictures as large as Procgen's, each step another grey."""

    name: ClassVar[str] = "pictures"
    spec: ClassVar[Spec] = Spec({"picture": Image(64, 64, 3)}, Discrete(15))

    def start(self, key):
        return jax.random.randint(key, (), 0, 100)

    def observe(self, world):
        return {"picture": jnp.full((64, 64, 3), world % 256, jnp.uint8)}

    def mask(self, world):
        return None

    def step(self, world, action, key):
        return CopyStep(world + 1, (action == world % 15).astype(jnp.float32), world > 150, jnp.zeros((), bool))


class Coarse(eqx.Module):
    """Policy and value by one dense layer on every sixteenth row and column."""

    weight: jax.Array  # [48, 17]

    def _seen(self, observation):
        coarse = observation["picture"][..., ::16, ::16, :]
        made = (coarse.reshape(*coarse.shape[:-3], 48) / 255.0) @ self.weight
        return Categorical(made[..., :15]), made[..., 15], made[..., 16]

    def __call__(self, observation, mask=None):
        return self._seen(observation)[:2]

    def both_values(self, observation, mask=None):
        return self._seen(observation)

    def policy(self, observation, mask=None):
        return self._seen(observation)[0]

    def worth(self, observation):
        return self._seen(observation)[1]


def coarse(spec: Spec, key: jax.Array) -> Coarse:
    """A fresh one."""
    return Coarse(0.01 * jax.random.normal(key, (48, 17)))


def paper(rounds: int) -> tl.PPG:
    """The paper's shapes with so many policy iterations."""
    return tl.PPG(policy_iterations=rounds, auxiliary_epochs=1, network=coarse)


def stated(rounds: int) -> int:
    """Bytes of the whole phase memory, with the frozen policy in it."""
    h = tl.PPG(policy_iterations=rounds, network=coarse)
    state = h.init(Pictures.spec, jax.random.key(0), 1)
    return store_bytes(*planned_stores(h, state, Pictures.spec)["memory"])


class Watched:
    """The most memory that this process had while it was watched, in bytes, beyond what it had before."""

    def __init__(self) -> None:
        self.own = self.mapped = 0
        self._before, self._going = _resident(), True
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while self._going:
            own, mapped = (now - before for now, before in zip(_resident(), self._before, strict=True))
            self.own, self.mapped = max(self.own, own), max(self.mapped, mapped)
            time.sleep(0.02)

    def stop(self) -> None:
        """Look no longer."""
        self._going = False
        self._thread.join()


def _resident() -> tuple[int, int]:
    told = Path("/proc/self/status").read_text()
    own, mapped = (int(re.search(rf"{name}:\s+(\d+) kB", told)[1]) * 1024 for name in ("RssAnon", "RssFile"))
    return own, mapped


def one(place: str, rounds: int) -> dict:
    """One case, in this process."""
    h, size = paper(rounds), 64 * 256
    with tempfile.TemporaryDirectory() as folder:
        run = tl.learn(
            h,
            Pictures(),
            rounds * size,
            out=f"{folder}/run",
            every=rounds * size,
            phase_buffer=place,
            save_seconds=1e9,
            train=False,
        )
        watched, peaks, begin = Watched(), {}, time.monotonic()
        for _ in run.stream():
            phase = "auxiliary" if run.update > rounds * h.minibatches else "policy"
            peaks[phase] = {"own": watched.own, "mapped": watched.mapped}
        watched.stop()
        last = sorted((run.folder / "checkpoints").iterdir())[-1]
        return {
            "place": place,
            "policy_iterations": rounds,
            "memory": store_bytes(*planned_stores(h, run.learners()[0].state, Pictures.spec)["memory"]),
            "own": watched.own,
            "mapped": watched.mapped,
            "policy_phase": peaks["policy"],
            "checkpoint": sum(path.stat().st_size for path in last.iterdir()),
            "pieces_left": sum(path.stat().st_size for path in (run.folder / FOLDER).rglob("*.npy")),
            "seconds": time.monotonic() - begin,
        }


def study() -> dict:
    """Every case in a process of its own."""
    rows = []
    for place, rounds in CASES:
        command = [sys.executable, "-m", "benchmarks.phase_buffer", place, str(rounds)]
        rows.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
        print(rows[-1], flush=True)
    content = {"environments": 64, "steps": 256, "stated": {rounds: stated(rounds) for rounds in STATED}}
    keep("phase_buffer", COMMAND, content, rows=rows)
    return content | {"rows": rows}


if __name__ == "__main__":
    if sys.argv[1:]:
        print(json.dumps(one(sys.argv[1], int(sys.argv[2]))))
    else:
        study()
