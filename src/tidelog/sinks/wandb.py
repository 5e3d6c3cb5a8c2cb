"""Weights & Biases: curves by update, the verdict in the summary, and the report page as a file."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from tidelog.disk import write_file
from tidelog.errors import ConfigError
from tidelog.sinks.tracker import Judged, MetricsRow, Tracker, named_metrics, verdict_values

PROJECT = "tidelog"


class WandB(Tracker):
    """A Weights & Biases run; further keywords are passed to `wandb.init`. Needs the extra `wandb`.

    Its files are in the run folder, unless `WANDB_DIR` names another one. With `WANDB_MODE=offline` nothing is sent;
    `wandb sync` uploads the files later.
    """

    name: ClassVar[str] = "wandb"
    package: ClassVar[str] = "wandb"

    def __init__(self, project: str = PROJECT, **settings: Any) -> None:
        super().__init__()
        self._settings = {"project": project, **settings}
        self._tool: Any = None

    @property
    def target(self) -> str:
        """The project."""
        return str(self._settings["project"])

    def _open(self, run: str | None) -> str:
        folder = self._facts.folder
        settings = {"name": self._facts.name, "config": dict(self._facts.parameters)}
        settings |= {} if run is None else {"id": run, "resume": "allow"}
        settings |= {} if folder is None or "WANDB_DIR" in os.environ else {"dir": str(folder)}
        self._tool = self._module.init(**settings, **self._settings)
        return str(self._tool.id)

    def _log(self, row: MetricsRow) -> None:
        self._tool.log({**named_metrics(row), "update": row["update"]}, step=row["update"])

    def _show(self, name: str, verdict: Judged) -> None:
        values = {**verdict_values(name, verdict, "/"), f"verdict/{name}/paragraph": verdict.paragraph}
        self._tool.summary.update(values)

    def _attach(self, page: Path) -> None:
        folder = Path(self._tool.dir)  # a file has no step; W&B refuses values of an earlier step
        write_file(folder / page.name, page.read_bytes(), ConfigError)
        self._tool.save(str(folder / page.name), base_path=str(folder), policy="now")

    def _end(self, finished: bool | None) -> None:
        self._tool.finish(exit_code=int(finished is False))
