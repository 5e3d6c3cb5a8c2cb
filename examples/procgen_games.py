"""Procgen's games (Cobbe et al. 2019), from the package procgen-mirror: a file to copy.

    tl.learn(tl.PPG.preset("procgen"), procgen("coinrun-easy", 64), steps=25_000_000, out="runs/coinrun")
    tl.resume("runs/coinrun", env=procgen("coinrun-easy", 64))

Every episode has a new random level, of all levels of a mode. procgen-mirror has the games built for current Pythons,
gym3 loads them, and cffi and imageio are imports of gym3. The packages require NumPy below 2 and `gym`, which is
discontinued. They run without either: they are installed without their requirements, and a temporary stub replaces
`gym` during the import and ignores its registrations.

A copy that ends is restarted within the same step, and its last image is not available; `next_observation` repeats the
image before it. Procgen does not separate terminations from time limits: every end is a termination, as in the
published results.
"""

from __future__ import annotations

import difflib
import importlib
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tidelog.envs.protocol import BatchObservation, BatchReader, Outcome, Saved, check_action, check_saved, positive
from tidelog.errors import ConfigError, EnvironmentFailure
from tidelog.types import Discrete, Image, Spec

INSTALL = "pip install 'cffi<2' imageio && pip install --no-deps procgen-mirror gym3"
MODES = ("easy", "hard")
PICTURE, ACTIONS = Image(64, 64, 3), Discrete(15)
_STAND_INS = ("gym", "gym.envs", "gym.envs.registration")


class Procgen:
    """`count` copies of one game, all levels of a mode; EnvironmentFailure for unusable observations."""

    def __init__(self, game: str, mode: str, count: int) -> None:
        self.name = f"procgen/{game}-{mode}"
        self.count = positive("count", count)
        self.spec = Spec({"observation": PICTURE}, ACTIONS)
        self._game, self._mode = game, mode
        self._source: Any = None
        self._steps = 0
        self._shown = BatchObservation({})

    def reset(self, seed: int) -> BatchObservation:
        """Restart every copy, in levels that depend only on this seed."""
        self._begin(int(np.random.SeedSequence(seed).generate_state(1)[0]) % 2**31)
        return self._look()

    def step(self, action: NDArray[Any]) -> Outcome:
        """Step every copy, `[W]`; EnvironmentFailure before the first reset."""
        source, before = self._started(), self._shown
        source.act(check_action(self.spec, action, self.count))
        self._steps += 1
        earned, _, first = source.observe()
        reward = self._batch().numbers("the reward", earned, ())
        ended = self._batch().flags("the first steps of episodes", first)
        shown = self._look()
        last = np.where(ended[:, None, None, None], before.observation["observation"], shown.observation["observation"])
        following = BatchObservation({"observation": last}) if ended.any() else shown
        return Outcome(reward, ended, np.zeros(self.count, bool), following, shown)

    def close(self) -> None:
        """Release the games."""
        self._source = None

    def save_state(self) -> Saved:
        """The serialised games, concatenated, and the length of each."""
        written = self._started().get_state()
        lengths = np.asarray([len(one) for one in written], np.int64)
        return {
            "games": np.frombuffer(b"".join(written), np.uint8).copy(),
            "lengths": lengths,
            "steps": np.asarray(self._steps),
        }

    def restore_state(self, saved: Mapping[str, NDArray[Any]]) -> BatchObservation:
        """Restore a state of `save_state`; ConfigError for the state of another problem or count."""
        like = {"games": None, "lengths": np.zeros(self.count, np.int64), "steps": np.asarray(0)}
        arrays = check_saved(saved, like, self.name)
        ends = np.cumsum(arrays["lengths"])
        if (arrays["lengths"] <= 0).any() or ends[-1] != arrays["games"].size:
            total = int(ends[-1])
            raise ConfigError(f"{self.name}: the saved games have {arrays['games'].size} bytes: expected {total}")
        self._begin(0)
        written = arrays["games"].tobytes()
        parts = zip(ends - arrays["lengths"], ends, strict=True)
        self._source.set_state([written[begin:end] for begin, end in parts])
        self._steps = int(arrays["steps"])
        return self._look()

    def _begin(self, seed: int) -> None:
        kind = _imported().ProcgenGym3Env
        self._source = kind(
            num=self.count, env_name=self._game, distribution_mode=self._mode, rand_seed=seed, num_threads=0
        )
        self._steps = 0

    def _look(self) -> BatchObservation:
        _, shown, _ = self._started().observe()
        image = self._batch().leaf("the observation", shown["rgb"], PICTURE).copy()
        self._shown = BatchObservation({"observation": image})
        return self._shown

    def _started(self) -> Any:
        if self._source is None:
            raise EnvironmentFailure(f"{self.name} was not reset. fix: call reset(seed) before the first step")
        return self._source

    def _batch(self) -> BatchReader:
        return BatchReader(self.name, self.count, self._steps)


def procgen(name: str, count: int) -> Procgen:
    """Make `count` copies of a game by its name, such as "coinrun-easy".

    ConfigError, with the install command, if the package is missing, and with the nearest name if the name is
    unknown.
    """
    known = [f"{game}-{mode}" for game in _imported().ENV_NAMES for mode in MODES]
    if name not in known:
        close = difflib.get_close_matches(name, known, n=3, cutoff=0.5)
        hint = f"did you mean {' or '.join(map(repr, close))}?" if close else ", ".join(known)
        raise ConfigError(f"there is no game {name!r}: {hint}")
    game, _, mode = name.rpartition("-")
    return Procgen(game, mode, count)


def _imported() -> Any:
    """The module `procgen.env`; ConfigError if it cannot be imported."""
    if "procgen.env" in sys.modules:
        return sys.modules["procgen.env"]
    try:
        with _gym_stub():
            return importlib.import_module("procgen.env")
    except ImportError as error:
        raise ConfigError(f"Procgen cannot be imported: {error}. fix: {INSTALL}") from error


@contextmanager
def _gym_stub() -> Iterator[None]:
    """Replace `gym` by a stub that ignores registrations while Procgen is imported; then restore everything."""
    before = {name: sys.modules.pop(name, None) for name in _STAND_INS}
    path = list(sys.path)  # procgen-mirror appends a folder of its author
    sys.modules.update({name: ModuleType(name) for name in _STAND_INS})
    sys.modules[_STAND_INS[-1]].register = lambda **options: None  # type: ignore[attr-defined]
    try:
        yield
    finally:
        sys.path[:] = path
        for name, module in before.items():
            del sys.modules[name]
            if module is not None:
                sys.modules[name] = module
