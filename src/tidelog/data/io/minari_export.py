"""Export a log as a Minari data set that Minari and `read_minari` can read."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from tidelog.data.core.log_columns import LogColumns
from tidelog.data.core.order import Values
from tidelog.errors import LogError
from tidelog.types import Codes, Continuous, Discrete, Image, Leaf

if TYPE_CHECKING:
    import gymnasium

INFOS = ("propensity", "weight", "cluster")


def to_minari(log: LogColumns, dataset_id: str, overwrite: bool = False) -> None:
    """Write a data set under Minari's folder; LogError if it exists, or a truncated episode has no final observation.

    A terminated episode with an unknown final observation repeats its last one. Masks, propensities, weights and
    clusters are stored in `infos`; episode names, times and extra columns are not stored.
    """
    import minari

    if log.reward is None:
        raise LogError("the log has no rewards: Minari needs them. fix: write the log to Parquet", log.report)
    last = log.starts[1:] - 1
    unknown = ~log.terminated[last] & (log.next_position[last] == log.position[last])
    if unknown.any():
        raise LogError(
            f"{int(unknown.sum()):,} episodes are truncated without a known final observation: Minari needs one more "
            "observation than steps. fix: write the log to Parquet, or add next observations",
            log.report,
        )
    try:
        if dataset_id in minari.list_local_datasets():
            if not overwrite:
                raise LogError(f"the Minari data set {dataset_id} exists. fix: choose another id, or overwrite=True")
            minari.delete_dataset(dataset_id)
        try:
            _write(log, dataset_id)
        except (OSError, ValueError):
            shutil.rmtree(minari.storage.get_dataset_path(dataset_id), ignore_errors=True)
            raise
    except (OSError, ValueError) as error:
        raise LogError(f"the Minari data set {dataset_id} cannot be written: {error}") from error


def _write(log: LogColumns, dataset_id: str) -> None:
    """Write through Minari's storage, which keeps images unchanged and needs no environment."""
    import minari
    from minari.dataset.minari_dataset import parse_dataset_id
    from minari.dataset.minari_storage import MinariStorage
    from minari.namespace import create_namespace, list_local_namespaces
    from minari.storage import get_dataset_path

    namespace = parse_dataset_id(dataset_id)[0]
    if namespace is not None and namespace not in list_local_namespaces():
        create_namespace(namespace)
    folder = get_dataset_path(dataset_id) / "data"
    folder.mkdir(parents=True)
    storage = MinariStorage.new(
        folder,
        observation_space=_observation_space(log.spec.observation),
        action_space=_action_space(log),
        jpeg_encoding=False,
    )
    described = {"description": f"written by tidelog from {log.report.source}", "minari_version": minari.__version__}
    storage.update_metadata({"dataset_id": dataset_id, **described})
    storage.update_episodes(_buffers(log))


def _buffers(log: LogColumns) -> Iterator[Any]:
    from minari.data_collector import EpisodeBuffer

    for place, (first, after) in enumerate(zip(log.starts[:-1], log.starts[1:], strict=True)):
        rows = slice(int(first), int(after))
        stored = np.append(log.position[rows], log.next_position[after - 1])
        infos = {name: getattr(log, name)[rows] for name in INFOS if getattr(log, name) is not None}
        if log.action_mask is not None:
            infos["action_mask"] = log.action_mask[stored]
        yield EpisodeBuffer(
            id=place,
            observations=_nested({name: leaf[stored] for name, leaf in log.observation.items()}),
            actions=log.action[rows],
            rewards=None if log.reward is None else log.reward[rows],
            terminations=log.terminated[rows],
            truncations=log.truncated[rows],
            infos=infos or None,
        )


def _nested(leaves: Mapping[str, Values]) -> Any:
    """The single leaf `observation` itself, or nested dictionaries by the parts of the leaf names."""
    if list(leaves) == ["observation"]:
        return leaves["observation"]
    nested: dict[str, Any] = {}
    for name, leaf in leaves.items():
        *outer, inner = name.split("/")
        place = nested
        for part in outer:
            place = place.setdefault(part, {})
        place[inner] = leaf
    return nested


def _observation_space(leaves: Mapping[str, Leaf]) -> gymnasium.Space[Any]:
    return _space(_nested({name: _leaf_space(leaf) for name, leaf in leaves.items()}))


def _space(nested: Any) -> gymnasium.Space[Any]:
    import gymnasium

    if isinstance(nested, dict):
        return gymnasium.spaces.Dict({name: _space(inner) for name, inner in nested.items()})
    space: gymnasium.Space[Any] = nested
    return space


def _leaf_space(leaf: Leaf) -> Any:
    from gymnasium import spaces

    if isinstance(leaf, Image):
        return spaces.Box(0, 255, (leaf.height, leaf.width, leaf.channels), np.uint8)
    if isinstance(leaf, Codes):
        return spaces.MultiDiscrete(list(leaf.sizes))
    return spaces.Box(-np.inf, np.inf, (leaf.size,), np.float32)


def _action_space(log: LogColumns) -> Any:
    from gymnasium import spaces

    space = log.spec.action
    if isinstance(space, Discrete):
        return spaces.Discrete(space.n)
    if isinstance(space, Continuous):
        return spaces.Box(np.asarray(space.low, np.float32), np.asarray(space.high, np.float32), dtype=np.float32)
    return spaces.MultiDiscrete(list(space.sizes))
