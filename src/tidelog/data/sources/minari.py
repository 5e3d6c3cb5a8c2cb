"""Minari data sets: T + 1 observations per episode, all of them stored.

A folder is checked before Minari opens it: Minari would follow links to other files, open pictures of any format, and
import the module that a stored environment names.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tidelog.data.core.order import Values
from tidelog.data.core.raw import Finding, RawLog
from tidelog.data.core.registry import unreadable
from tidelog.data.parsing.arrays import from_arrays
from tidelog.data.parsing.column import MOST_PIXELS
from tidelog.data.sources.hdf5_datasets import check_memory, own_datasets
from tidelog.input_files import check_regular, parse_json, read_regular
from tidelog.memory import shortage

_BROKEN = (
    OSError,
    ValueError,
    LookupError,
    TypeError,
    AttributeError,
    AssertionError,
    RuntimeError,
    ArithmeticError,
    MemoryError,
    ImportError,
)
_DATA_SET = "a Minari data set"
_LARGEST_METADATA = 1 << 26  # bytes
_LARGEST_CODE = 2**31 - 1
_FIELDS = {"reward": "rewards", "terminated": "terminations", "truncated": "truncations"}
_INFO_NAMES = ("propensity", "weight", "cluster", "action_mask")


def raw_minari(source: Any) -> RawLog:
    """Read all episodes of a data set as arrays; LogError if it is missing, broken, or of an unsupported kind."""
    dataset = _dataset(source)
    spaces = dict(_flat_space("", dataset.observation_space, str(source)))
    space = dataset.action_space
    kind = type(space).__name__
    box = kind == "Box" and len(space.shape) <= 1 and space.dtype.kind == "f"
    if not (box or kind == "Discrete" or (kind == "MultiDiscrete" and space.nvec.ndim == 1)):
        fix = "use Discrete, MultiDiscrete, or a flat Box of floats"
        raise unreadable(source, f"actions of type {kind}", _DATA_SET, fix)
    try:
        episodes = list(dataset.iterate_episodes())
        if not episodes:
            raise ValueError("the data set is empty")
        leaves = [dict(_flat_values("", episode.observations)) for episode in episodes]
        observation, following = _both_sides(episodes, leaves, spaces)
        actions = _joined(episode.actions for episode in episodes)
        lengths = [len(episode.rewards) for episode in episodes]
        columns: dict[str, Any] = {
            name: _joined(getattr(episode, field) for episode in episodes) for name, field in _FIELDS.items()
        }
        columns |= _infos(episodes, lengths)
        if kind != "Box" and actions.dtype.kind not in "iub":
            raise ValueError(f"actions of {actions.dtype} in a space of codes")
    except _BROKEN as error:
        found = f"episodes that cannot be read ({error})"
        raise unreadable(source, found, _DATA_SET, "download or create it again") from error
    declared, action, note = _action(space, actions)
    raw = from_arrays(
        f"minari data set {dataset.id}",
        observation=observation,
        next_observation=following,
        action=action,
        episode=np.repeat([int(episode.id) for episode in episodes], lengths),
        sizes={name: kind.sizes for name, kind in spaces.items() if kind.sizes},
        **declared,
        **columns,
    )
    return raw if note is None else replace(raw, found=(*raw.found, ("converted", note)))


class _Leaf:
    """The layout of one leaf: `sizes` and `start` of codes (None for numbers),
    or the shape of an image.
    """

    def __init__(
        self,
        sizes: tuple[int, ...] | None = None,
        start: Values | int = 0,
        image: tuple[int, ...] | None = None,
    ) -> None:
        self.sizes = sizes
        self.start = start
        self.image = image

    def column(self, values: Values) -> Values:
        if values.dtype.kind == "c":
            raise ValueError(f"observations of {values.dtype}, which a space of real numbers or codes cannot hold")
        if self.image is not None:
            return values.reshape(len(values), *self.image)
        if self.sizes is not None:
            return (values.reshape(len(values), -1) - self.start).astype(np.int64)
        return values if values.dtype.kind == "f" else values.astype(np.float64)


def _dataset(source: Any) -> Any:
    if hasattr(source, "iterate_episodes"):
        return source
    import minari
    from gymnasium.error import Error
    from minari.storage import get_dataset_path

    if not Path(source).exists():
        source = str(source).removeprefix("minari:")  # the name of the target of `convert`
    try:
        folder = Path(source) if Path(source).exists() else get_dataset_path(str(source))
        if not folder.exists():
            raise FileNotFoundError(f"no data set at {folder}")
        folder = folder / "data" if (folder / "data").is_dir() else folder
        _check_folder(folder)
        return minari.MinariDataset(folder)
    except FileNotFoundError as error:
        if Path(source).is_dir():
            found, fix = "a folder without tables, and without a Minari data set", "name the files, or check the folder"
            raise unreadable(source, found, "tables in the folder, or a data set", fix) from error
        if not re.search(r"-v\d+$", str(source)):
            found, fix = "there is no such file or folder", "correct the path"
            raise unreadable(source, found, "a path, or a data set of Minari, as D4RL/door/human-v2", fix) from error
        fix = f"run `minari download {source}`, set MINARI_DATASETS_PATH, or pass the path of the folder"
        raise unreadable(source, f"the data set does not exist ({error})", _DATA_SET, fix) from error
    except (*_BROKEN, Error) as error:
        found = f"a data set that cannot be opened ({str(error) or type(error).__name__})"
        raise unreadable(source, found, _DATA_SET, "download or create it again") from error


def _check_folder(folder: Path) -> None:
    """OSError or ValueError unless a folder holds all of its data, and declares no more than it has."""
    import h5py
    from minari.serialization import deserialize_space

    metadata = parse_json(read_regular(folder / "metadata.json", _LARGEST_METADATA))
    if not isinstance(metadata, dict):
        raise ValueError("metadata.json is not an object")
    if metadata.get("data_format") != "hdf5":
        raise ValueError(f"data_format = {metadata.get('data_format')!r}: expected 'hdf5'")
    texts = [text for name in ("observation", "action") if isinstance(text := metadata.get(f"{name}_space"), str)]
    if len(texts) < 2:
        # Minari would build the environment of env_spec, which may name any module
        raise ValueError("the metadata do not hold the spaces of observations and actions")
    try:
        with np.errstate(over="raise", invalid="raise"):
            spaces = [deserialize_space(parse_json(text)) for text in texts]
    except FloatingPointError as error:
        raise ValueError(f"a bound of a space is beyond the numbers of its type ({error})") from error
    episodes = metadata.get("total_episodes")
    path = folder / "main_data.hdf5"
    check_regular(path)
    with h5py.File(path, "r") as file:
        if type(episodes) is not int or not 0 <= episodes <= len(file):
            raise ValueError(f"total_episodes = {episodes!r}, but the file holds {len(file):,}")
        check_memory(own_datasets(file).values())
        if metadata.get("jpeg_encoding", True):
            for number in range(episodes):
                episode = file[f"episode_{number}"]
                for name, space in zip(("observations", "actions"), spaces, strict=True):
                    _check_pictures(episode[name], space)


def _check_pictures(member: Any, space: Any) -> None:
    """ValueError unless encoded pictures are JPEG, and of the size of their space."""
    from minari.dataset.minari_storage import is_image_space
    from PIL import Image

    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        inner = space.spaces.items() if kind == "Dict" else enumerate(space.spaces)
        for key, below in inner:
            _check_pictures(member[str(key) if kind == "Dict" else f"_index_{key}"], below)
    elif is_image_space(space):
        frames, pixels = member[()], math.prod(space.shape)
        problem = shortage(3 * len(frames) * pixels)
        if pixels > 4 * MOST_PIXELS or problem is not None:
            raise ValueError(problem or f"pictures of shape {list(space.shape)}: expected at most {MOST_PIXELS} pixels")
        for frame in frames:
            with Image.open(io.BytesIO(frame), formats=("JPEG",)) as picture:
                if picture.size != (space.shape[1], space.shape[0]):
                    raise ValueError(f"a picture of size {picture.size} where the space has {list(space.shape)}")


def _flat_space(name: str, space: Any, source: str) -> Iterator[tuple[str, _Leaf]]:
    """Leaves of a space, named by Dict keys and Tuple indices joined by '/'."""
    kind = type(space).__name__
    if kind in ("Dict", "Tuple"):
        items = space.items() if kind == "Dict" else enumerate(space)
        for key, inner in items:
            yield from _flat_space(f"{name}/{key}" if name else str(key), inner, source)
    elif kind in ("Discrete", "MultiDiscrete") and int(np.max(space.n if kind == "Discrete" else space.nvec)) > (
        _LARGEST_CODE
    ):
        fix = "use floats for numbers that are no categories"
        raise unreadable(source, f"{space} in '{name or 'observation'}'", "at most 2^31 - 1 categories", fix)
    elif kind == "Discrete":
        yield name or "observation", _Leaf((int(space.n),), int(space.start))
    elif kind == "MultiDiscrete" and space.nvec.ndim == 1:
        yield name or "observation", _Leaf(tuple(map(int, space.nvec)), np.asarray(space.start))
    elif kind == "Box" and len(space.shape) == 3 and space.dtype == np.uint8:
        yield name or "observation", _Leaf(image=space.shape)
    elif kind in ("Box", "MultiBinary") and len(space.shape) <= 1:
        yield name or "observation", _Leaf()
    else:
        shape = f" of shape {list(space.shape)}" if getattr(space, "shape", None) else ""
        fix = "use a flat Box, Discrete, Dict, Tuple, or images [H, W, C] of uint8"
        raise unreadable(source, f"observations of type {kind}{shape}", _DATA_SET, fix)


def _flat_values(name: str, values: Any) -> Iterator[tuple[str, Values]]:
    if isinstance(values, dict | tuple):
        for key, inner in values.items() if isinstance(values, dict) else enumerate(values):
            yield from _flat_values(f"{name}/{key}" if name else str(key), inner)
    else:
        yield name or "observation", np.asarray(values)


def _both_sides(
    episodes: list[Any], leaves: list[dict[str, Values]], spaces: dict[str, _Leaf]
) -> tuple[dict[str, Values], dict[str, Values]]:
    """Observations 0 .. T-1 and 1 .. T of every episode; ValueError unless an episode has T + 1 observations."""
    for episode, named in zip(episodes, leaves, strict=True):
        for name, values in named.items():
            if len(values) != len(episode.rewards) + 1:
                counts = f"{len(values)} observations for {len(episode.rewards)} steps in '{name}'"
                raise ValueError(f"episode {episode.id}: {counts}")
    now = {name: leaf.column(_joined(named[name][:-1] for named in leaves)) for name, leaf in spaces.items()}
    then = {name: leaf.column(_joined(named[name][1:] for named in leaves)) for name, leaf in spaces.items()}
    return now, then


def _infos(episodes: list[Any], lengths: list[int]) -> dict[str, Values]:
    """The columns in the infos of every episode: propensities, weights, clusters, and masks of T + 1 rows."""
    present = {name for name in _INFO_NAMES if all(name in (episode.infos or {}) for episode in episodes)}
    pairs = list(zip(episodes, lengths, strict=True))
    columns = {
        name: _joined(episode.infos[name][:steps] for episode, steps in pairs) for name in present - {"action_mask"}
    }
    if "action_mask" in present:
        masks = [np.asarray(episode.infos["action_mask"]) for episode in episodes]
        columns["action_mask"] = _joined(mask[:steps] for mask, steps in zip(masks, lengths, strict=True))
        if all(len(mask) == steps + 1 for mask, steps in zip(masks, lengths, strict=True)):
            columns["next_action_mask"] = _joined(mask[1:] for mask in masks)
    return columns


def _action(space: Any, values: Values) -> tuple[dict[str, Any], Values, Finding | None]:
    """The declared sizes or bounds of the action, its values counted from 0, and a note if they were not."""
    if type(space).__name__ == "Box":
        finite = bool(np.isfinite(space.low).all() and np.isfinite(space.high).all())
        limits = [np.atleast_1d(end).tolist() for end in (space.low, space.high)]
        return {"bounds": limits if finite else None}, values, None
    start = np.asarray(space.start)
    sizes = int(space.n) if start.ndim == 0 else list(map(int, space.nvec))
    note = Finding("action", None, f"actions from {start}", "actions from 0", f"add {start} to the policy's actions")
    return {"actions": sizes}, values - start, note if start.any() else None


def _joined(parts: Any) -> Values:
    listed = [np.asarray(part) for part in parts]
    return np.concatenate(listed) if listed else np.zeros(0)
