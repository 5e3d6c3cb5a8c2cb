"""Minari data sets made here: every observation of every episode is the recorded one, to the last bit."""

import warnings
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import gymnasium
import minari
import numpy as np
import pytest

from tidelog.data import formats
from tidelog.data.read import read_log
from tidelog.errors import LogError
from tidelog.types import Codes, Continuous, Discrete, Hybrid, Image, MultiDiscrete, Vector

LENGTHS = (3, 7, 1, 12, 5)


class Corridor(gymnasium.Env[Any, Any]):
    """Walk right along six cells; ends at the last. Observes the cell and, as double, how far it is."""

    def __init__(self) -> None:
        spaces = gymnasium.spaces
        where = spaces.Tuple((spaces.Box(0, 1, (2,), np.float64), spaces.MultiDiscrete([2, 7])))
        self.observation_space = spaces.Dict({"cell": spaces.Discrete(6, start=10), "where": where})
        self.action_space = spaces.Discrete(2, start=-1)

    def _seen(self) -> dict[str, Any]:
        far = np.array([self.cell / 7, 1 / (1 + self.cell)])
        return {"cell": np.int64(10 + self.cell), "where": (far, np.array([self.cell % 2, self.cell]))}

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        super().reset(seed=seed)
        self.cell = 0
        return self._seen(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        self.cell += int(action) + 1
        return self._seen(), float(self.cell), self.cell == 5, False, {}


def collect(env: Any, name: str, lengths: tuple[int, ...], declare: Any = None) -> tuple[Any, list[Any]]:
    """A data set, and what was really seen and done."""
    collector = minari.DataCollector(env, **(declare or {}))
    seen: list[Any] = []
    env.action_space.seed(0)
    for seed, length in enumerate(lengths):
        observations = [collector.reset(seed=seed)[0]]
        rows = []
        for _ in range(length):
            action = env.action_space.sample()
            observation, reward, terminated, truncated, _ = collector.step(action)
            observations.append(observation)
            rows.append((action, reward, terminated, truncated))
            if terminated or truncated:
                break
        seen.append((observations, rows))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # minari asks for descriptions, and leaves a temporary folder to the collector
        dataset = collector.create_dataset(
            name,
            algorithm_name="random",
            author="us",
            author_email="us@example.org",
            code_permalink="https://example.org",
        )
        collector._tmp_dir.cleanup()  # its close() leaves the finaliser, which warns
    return dataset, seen


@pytest.fixture
def datasets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    return tmp_path


def test_pendulum_is_equal_to_the_last_bit_in_every_episode(datasets: Path) -> None:
    dataset, seen = collect(gymnasium.make("Pendulum-v1", max_episode_steps=12), "pendulum/ours-v0", LENGTHS)
    for source in (dataset, "pendulum/ours-v0", datasets / "pendulum" / "ours-v0"):
        log = read_log(source, format="minari")
        assert log.spec.observation == {"observation": Vector(3)}
        assert log.spec.action == Continuous((-2.0,), (2.0,))
        assert [len(episode) for episode in log.episodes] == list(LENGTHS)
        for episode, (observations, rows) in zip(log.episodes, seen, strict=True):
            stored = episode.observation["observation"]
            assert stored.dtype == np.float32
            assert stored.tobytes() == np.stack(observations).astype(np.float32).tobytes()
            assert episode.action.tobytes() == np.stack([row[0] for row in rows]).tobytes()
            assert episode.reward is not None
            assert episode.reward.tobytes() == np.array([row[1] for row in rows]).astype(np.float32).tobytes()
            assert (episode.terminated, episode.truncated) == (False, True)
        assert log.has_target.all()
        transitions = log.transitions
        after = np.concatenate([np.stack(observations[1:]) for observations, _ in seen])
        np.testing.assert_array_equal(transitions.next_observation["observation"], after)


def test_nested_spaces_become_leaves(datasets: Path) -> None:
    _, seen = collect(Corridor(), "corridor/ours-v0", (20, 2, 20))
    log = read_log("corridor/ours-v0", format="minari")
    assert log.spec.observation == {"cell": Codes((6,)), "where/0": Vector(2), "where/1": Codes((2, 7))}
    assert log.spec.action == Discrete(2)
    assert [note.check for note in log.report.notes if note.column == "action"] == ["converted"]
    for episode, (observations, rows) in zip(log.episodes, seen, strict=True):
        cells = [int(observation["cell"]) - 10 for observation in observations]
        assert episode.observation["cell"][:, 0].tolist() == cells
        far = np.stack([observation["where"][0] for observation in observations]).astype(np.float32)
        np.testing.assert_array_equal(episode.observation["where/0"], far)
        assert episode.observation["where/1"][:, 1].tolist() == cells
        assert episode.action.tolist() == [int(row[0]) + 1 for row in rows]
        assert episode.terminated == (cells[-1] == 5)


def test_absent_and_broken_data_sets_are_refused(datasets: Path) -> None:
    with pytest.raises(LogError, match="minari download pendulum/none-v0"):
        read_log("pendulum/none-v0", format="minari")
    collect(gymnasium.make("Pendulum-v1"), "pendulum/broken-v0", (3,))
    file = datasets / "pendulum" / "broken-v0" / "data" / "main_data.hdf5"
    file.write_bytes(file.read_bytes()[:1500])
    with pytest.raises(LogError, match="unreadable file"):
        read_log("pendulum/broken-v0", format="minari")


def test_tables_of_numbers_are_refused_with_a_reason(datasets: Path) -> None:
    env = gymnasium.wrappers.ReshapeObservation(gymnasium.make("CartPole-v1"), (2, 2))
    collect(env, "cartpole/square-v0", (3,))
    with pytest.raises(LogError, match=r"Box of shape \[2, 2\]"):
        read_log("cartpole/square-v0", format="minari")


def test_masks_without_a_last_row_are_masks_of_the_decisions_only() -> None:
    def episode(rows: int) -> Any:
        return SimpleNamespace(infos={"action_mask": np.eye(rows, 3, dtype=bool)})

    found = formats._infos([episode(2), episode(3)], [2, 3])
    assert list(found) == ["action_mask"]
    np.testing.assert_array_equal(found["action_mask"], np.concatenate([np.eye(2, 3), np.eye(3)]))
    whole = formats._infos([episode(3), episode(4)], [2, 3])
    np.testing.assert_array_equal(whole["action_mask"], found["action_mask"])
    np.testing.assert_array_equal(whole["next_action_mask"], np.concatenate([np.eye(3)[1:], np.eye(4, 3)[1:]]))


def test_pictures_and_what_infos_hold_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MINARI_DATASETS_PATH", str(tmp_path))
    rng = np.random.default_rng(0)
    pictures = np.repeat(np.arange(5, dtype=np.uint8)[:, None, None, None], 6, axis=1).repeat(5, 2).repeat(3, 3)
    masks, weights = np.ones((5, 3), bool), np.arange(4.0)
    masks[2, 0] = False
    infos = {"propensity": np.full(4, 0.5), "weight": weights, "cluster": np.full(4, 7), "action_mask": masks}
    action, ends = np.array([0, 1, 2, 1]), np.array([0, 0, 0, 1], bool)
    buffer = minari.data_collector.EpisodeBuffer(
        id=0, observations={"eye": pictures, "speed": rng.normal(size=(5, 2)).astype(np.float32)}, actions=action,
        rewards=np.arange(4.0), terminations=ends, truncations=np.zeros(4, bool), infos=infos,
    )  # fmt: skip
    spaces = gymnasium.spaces
    shown = {"eye": spaces.Box(0, 255, (6, 5, 3), np.uint8), "speed": spaces.Box(-np.inf, np.inf, (2,), np.float32)}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a data set without an environment and an author
        minari.create_dataset_from_buffers(
            "ours/eyes-v0", [buffer], observation_space=spaces.Dict(shown), action_space=spaces.Discrete(3)
        )
    log = read_log("ours/eyes-v0", format="minari")
    assert log.spec.observation == {"eye": Image(6, 5, 3), "speed": Vector(2)}
    assert np.abs(log.observation["eye"].astype(int) - pictures).max() <= 2  # Minari's JPEG
    for name in ("propensity", "weight"):
        np.testing.assert_array_equal(getattr(log, name), infos[name])
    assert log.clusters.tolist() == [0]
    assert log.action_mask is not None
    np.testing.assert_array_equal(log.transitions.mask, masks[:4])
    np.testing.assert_array_equal(log.transitions.next_mask, masks[1:])


class Drive(Corridor):
    """The corridor with an action of parts, each counted from its own start."""

    def __init__(self) -> None:
        super().__init__()
        spaces = gymnasium.spaces
        more = spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([2, 3])))
        self.action_space = spaces.Dict({"go": spaces.Discrete(2, start=-1), "more": more})

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        return super().step(action["go"])


def test_actions_with_parts_are_those_that_were_taken(datasets: Path) -> None:
    dataset, seen = collect(Drive(), "made/parts-v0", (3, 4))
    log = read_log(dataset)
    assert log.spec.action == Hybrid(
        (("go", Discrete(2)), ("more/0", Continuous((-1.0, -1.0), (1.0, 1.0))), ("more/1", MultiDiscrete((2, 3))))
    )
    taken = [action for _, rows in seen for action, *_ in rows]
    found = log.spec.action.unpack(log.action)
    np.testing.assert_array_equal(found["go"], [one["go"] + 1 for one in taken])
    np.testing.assert_array_equal(found["more"]["0"], [one["more"][0] for one in taken])
    np.testing.assert_array_equal(found["more"]["1"], [one["more"][1] for one in taken])
    notes = [(one.column, one.found) for one in log.report.problems if one.check == "converted"]
    assert notes == [("action/go", "actions from -1")]
