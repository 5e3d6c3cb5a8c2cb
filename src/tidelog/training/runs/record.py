"""`run.json`: what a run was asked to do, on which data and machine, so that it can be resumed and understood."""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import jax

from tidelog.algorithms import algorithm_class, algorithm_name
from tidelog.algorithms.core.hyperparameters import from_config, to_config
from tidelog.data.log import Log
from tidelog.data.scaling import Scaler
from tidelog.errors import CheckpointError
from tidelog.recommend.interactions.log import Interactions
from tidelog.training.runs.options import Options
from tidelog.types import Spec

SCHEMA = 2
PACKAGES = ("tidelog", "jax", "jaxlib", "equinox", "optax", "numpy")


@dataclass(frozen=True)
class Record:
    """The content of `run.json`."""

    algorithm: str
    configs: list[dict[str, Any]]
    options: Options
    spec: Spec
    scaler: Scaler
    data: dict[
        str, Any
    ]  # of a log: fingerprint, origin, steps, episodes; played: environment, named, start, finetuned_from
    held_out: list[Any]  # ids of the held-out episodes
    machine: dict[str, Any]
    sketches: dict[str, Any] = field(
        default_factory=dict
    )  # of the episodes learnt from and held out; absent in old runs

    @classmethod
    def of(
        cls,
        algorithms: Sequence[Any],
        options: Options,
        log: Log | Interactions,
        scaler: Scaler,
        held_out: list[Any],
        sketches: dict[str, Any],
    ) -> Record:
        """The record of a run that is about to start."""
        data = {
            "fingerprint": log.fingerprint(),
            "origin": None if log.origin is None else dict(log.origin),
            "steps": log.steps,
            "episodes": len(log.episodes),
        }
        configs = [to_config(algorithm) for algorithm in algorithms]
        name, machine = algorithm_name(algorithms[0]), this_machine()
        return cls(name, configs, options, log.spec, scaler, data, held_out, machine, sketches)

    @classmethod
    def online(cls, algorithms: Sequence[Any], options: Options, spec: Spec, data: Mapping[str, Any]) -> Record:
        """The record of a run that is about to play; `data` says where: `environment`, `named`."""
        configs = [to_config(algorithm) for algorithm in algorithms]
        name = algorithm_name(algorithms[0])
        return cls(name, configs, options, spec, Scaler(), dict(data), [], this_machine())

    @property
    def environment(self) -> str | None:
        """The environment that the run plays in, or None where it learns from a log."""
        return self.data.get("environment")

    @property
    def is_finetuned(self) -> bool:
        """Whether the run learnt from a log and goes on in an environment."""
        return "finetuned_from" in self.data

    @property
    def beginning(self) -> str | None:
        """How the run began as a policy, in words, or None where it began fresh."""
        told = self.data.get("start")
        if told is None:
            return None
        return (
            f"began as the {told['algorithm']} policy: mean divergence {max(told['divergence']):.3g} nats after "
            f"{told['updates']:,} updates on {told['decisions']:,} of its decisions"
        )

    def write(self, folder: Path) -> None:
        """Write `run.json` into a new run folder, whole or not at all."""
        folder.mkdir(parents=True, exist_ok=True)
        content = {
            "schema": SCHEMA,
            "algorithm": self.algorithm,
            "configs": self.configs,
            "options": self.options.to_json(),
            "spec": self.spec.to_json(),
            "scaler": self.scaler.to_json(),
            "data": self.data,
            "held_out_episodes": self.held_out,
            "machine": self.machine,
            "sketches": self.sketches,
        }
        aside = folder / ".run.json"
        with aside.open("w", encoding="utf-8") as file:
            json.dump(content, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        aside.replace(folder / "run.json")

    @classmethod
    def read(cls, folder: Path) -> Record:
        """The record of a run folder; CheckpointError where it is none or cannot be understood."""
        path = folder / "run.json"
        if not path.exists():
            raise CheckpointError(f"{folder} is no run folder: it has no run.json")
        try:
            content = json.loads(path.read_text(encoding="utf-8"))
            if content["schema"] != SCHEMA:
                raise CheckpointError(f"{path} has schema {content['schema']!r}, this version reads {SCHEMA}")
            configs = [dict(config) for config in content["configs"]]
            if not configs:
                raise ValueError("it names no algorithm's numbers")
            return cls(
                content["algorithm"],
                configs,
                Options.from_json(content["options"]),
                Spec.from_json(content["spec"]),
                Scaler.from_json(content["scaler"]),
                content["data"],
                content["held_out_episodes"],
                content["machine"],
                content.get("sketches", {}),
            )
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(f"{path} cannot be understood: {error!r}") from error

    def algorithms(self, given: Any = None) -> list[Any]:
        """The algorithms of the run; `given` stands in where a part of the user's own is needed."""
        if given is not None:
            return list(given) if isinstance(given, Sequence) else [given]
        cls = algorithm_class(self.algorithm)
        return [from_config(cls, config) for config in self.configs]

    def origin(self, *, best: bool = False, **facts: Any) -> dict[str, Any]:
        """Where a policy of this run comes from: what judging has to know, and facts about the policy itself.

        `chosen_by` is the held-out metric that picked the policy, as the best one or as the one that patience ended at.
        """
        metric = (self.options.best or "").removeprefix("max:").removeprefix("min:")
        chosen = metric.startswith("held_out/") and (best or self.options.patience is not None)
        return {**facts, "data": self.data.get("fingerprint"), "chosen_by": metric if chosen else None, **self.sketches}

    def differences(self) -> list[str]:
        """What is different on this machine, so that a resumed run may not be bit-equal."""
        return [
            f"{k}: {self.machine.get(k)} then, {v} now" for k, v in this_machine().items() if self.machine.get(k) != v
        ]


def this_machine() -> dict[str, Any]:
    """Versions, device and thread count, on all of which the last bits depend."""
    return {
        **_versions(),
        "python": platform.python_version(),
        "device": f"{jax.default_backend()} ({jax.devices()[0].device_kind})",
        "threads": len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count(),
    }


@cache
def _versions() -> Mapping[str, str]:
    return {name: metadata.version(name) for name in PACKAGES}
