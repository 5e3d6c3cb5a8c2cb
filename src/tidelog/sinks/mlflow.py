"""MLflow: parameters, metrics by update, the record and the report page as artefacts, the verdict as tags."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any, ClassVar

from tidelog.errors import ConfigError, install
from tidelog.sinks.tracker import (
    Judged,
    MetricsRow,
    Tracker,
    first_line,
    last_updates,
    named_metrics,
    verdict_values,
    without_password,
)

EXPERIMENT = "tidelog"
BATCH = 100  # parameters in one request, MLflow's limit
RUNS = ("run.json", "metrics.jsonl")  # of the run folder, as artefacts
_REFUSED = re.compile(r"[^\w\-. /:]")  # characters that names in MLflow do not have


class MLflow(Tracker):
    """An MLflow run; `uri` is a tracking server or database, by default what MLflow itself uses.

    Needs the extra `mlflow`. `experiment` is created if it does not exist.
    """

    name: ClassVar[str] = "mlflow"
    package: ClassVar[str] = "mlflow"

    def __init__(self, uri: str | None = None, *, experiment: str = EXPERIMENT) -> None:
        super().__init__()
        self._uri, self._experiment = uri or self._module.get_tracking_uri(), experiment
        try:
            self._client = self._module.MlflowClient(self._uri)
        except (self._module.MlflowException, ImportError) as error:
            raise ConfigError(
                f"MLflow does not open {self.target}: {first_line(error)}. fix: use a database, as in "
                f"sqlite:///mlflow.db, or the address of a tracking server; {install(self.name)}"
            ) from error
        self._status = "FINISHED"

    @property
    def target(self) -> str:
        """The address without a password."""
        return without_password(self._uri)

    def _open(self, run: str | None) -> str:
        if run is not None:
            self._status = self._client.get_run(run).info.status
            self._client.update_run(run, status="RUNNING")
            return run
        found = self._client.get_experiment_by_name(self._experiment)
        identity = self._client.create_experiment(self._experiment) if found is None else found.experiment_id
        run = str(self._client.create_run(identity, run_name=self._facts.name).info.run_id)
        values = [(_allowed(name), str(value)) for name, value in self._facts.parameters.items()]
        parameters = [self._module.entities.Param(name, value) for name, value in values]
        for begin in range(0, len(parameters), BATCH):
            self._client.log_batch(run, params=parameters[begin : begin + BATCH])
        return run

    def _last_updates(self) -> dict[int, int]:
        """Ask MLflow: a row is one request, which is written whole or not at all."""
        keys = self._client.get_run(self._run).data.metrics
        return last_updates(
            (key, metric.step) for key in keys for metric in self._client.get_metric_history(self._run, key)
        )

    def _log(self, row: MetricsRow) -> None:
        now = int(1000 * time.time())
        metrics = [
            self._module.entities.Metric(_allowed(name), value, now, row["update"])
            for name, value in named_metrics(row).items()
        ]
        self._client.log_batch(self._run, metrics=metrics)

    def _show(self, name: str, verdict: Judged) -> None:
        tags = {**verdict_values(name, verdict, "."), f"verdict.{name}.paragraph": verdict.paragraph}
        entries: list[Any] = [self._module.entities.RunTag(_allowed(key), str(value)) for key, value in tags.items()]
        self._client.log_batch(self._run, tags=entries)

    def _attach(self, page: Path) -> None:
        self._client.log_artifact(self._run, str(page))

    def _end(self, finished: bool | None) -> None:
        folder = self._facts.folder
        for name in RUNS if folder is not None else ():
            if (folder / name).is_file():  # type: ignore[operator]
                self._client.log_artifact(self._run, str(folder / name))  # type: ignore[operator]
        status = {True: "FINISHED", False: "KILLED", None: self._status}[finished]
        self._client.set_terminated(self._run, status)


def _allowed(name: str) -> str:
    return _REFUSED.sub("_", name)
