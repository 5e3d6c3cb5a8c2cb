"""trackio: curves by update, the verdict as a note with its numbers, and the report page."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any, ClassVar

from tidelog.sinks.tracker import Judged, MetricsRow, Tracker, last_updates, named_metrics, verdict_values

PROJECT = "tidelog"
SERVERS = ("space_id", "server_url")  # settings of another place than this machine


class Trackio(Tracker):
    """A trackio run; further keywords are passed to `trackio.init`. Needs the extra `trackio`."""

    name: ClassVar[str] = "trackio"
    package: ClassVar[str] = "trackio"

    def __init__(self, project: str = PROJECT, **settings: Any) -> None:
        super().__init__()
        self._settings = {"project": project, **settings}
        self._tool: Any = None

    @property
    def target(self) -> str:
        """The project."""
        return str(self._settings["project"])

    def _open(self, run: str | None) -> str:
        """Names identify runs in trackio, and folders of two runs may have the same one."""
        name = f"{self._facts.name}-{uuid.uuid4().hex[:8]}" if run is None else run
        self._tool = self._module.init(
            name=name,
            config=dict(self._facts.parameters),
            resume="never" if run is None else "allow",  # a process that was killed early has not written it yet
            **{"embed": False, **self._settings},
        )
        return name

    def _last_updates(self) -> dict[int, int] | None:
        """Ask trackio's database, in which a row is one record; None for a server of its own."""
        if any(self._settings.get(name) or os.environ.get(f"TRACKIO_{name.upper()}") for name in SERVERS):
            return None
        logs = self._module.SQLiteStorage.get_logs(self.target, self._run)
        return last_updates((name, log["step"]) for log in logs for name in log)

    def _log(self, row: MetricsRow) -> None:
        self._tool.log(named_metrics(row), step=row["update"])

    def _show(self, name: str, verdict: Judged) -> None:
        values = verdict_values(name, verdict, "/")
        numbers = {key: value for key, value in values.items() if isinstance(value, int | float)}
        text = f"**{verdict.summary['decision']}**: {verdict.paragraph}"
        self._tool.log({f"verdict/{name}": self._module.Markdown(text), **numbers}, step=self._step)

    def _attach(self, page: Path) -> None:
        self._tool.log({"report": self._module.Html(str(page))}, step=self._step)

    def _end(self, finished: bool | None) -> None:
        self._tool.finish()

    @property
    def _step(self) -> int:
        return max(self._written.values(), default=0)
