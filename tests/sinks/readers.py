"""What each tracker wrote, read by its own package or from its files: runs by name, with everything in order."""

import importlib
import json
import struct
import time
from pathlib import Path
from typing import NamedTuple

WHOLE, LAST, EMPTY = 1, 4, 0  # kinds of chunks in a log of LevelDB
BLOCK, HEAD = 32768, struct.Struct("<IHB")
PACKAGES = {"mlflow": ("mlflow", "alembic"), "tensorboard": ("tensorboardX", "tensorboard"), "wandb": ("wandb",)}


class Shown(NamedTuple):
    """A run in a tracker."""

    name: str
    parameters: dict[str, str]
    metrics: dict[str, list[tuple[int, float]]]  # `member-0/loss`: pairs of update and value in the order of writing
    verdict: str  # everything that it says about verdicts
    page: str | None


def expected(rows):
    """The metrics of a run that is shown whole."""
    found = {}
    for row in rows:
        for name in [*row][3:]:
            found.setdefault(f"member-{row['member']}/{name}", []).append((row["update"], row[name]))
    return found


def shown(sink, folder):
    """The runs that a tracker shows of what was written while this was the working folder."""
    return READERS[sink](Path(folder))


def _mlflow(folder):
    client = importlib.import_module("mlflow").MlflowClient()
    experiment = client.get_experiment_by_name("tidelog")
    for run in [] if experiment is None else client.search_runs([experiment.experiment_id]):
        metrics = {
            key: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
            for key in run.data.metrics
        }
        pages = [Path(run.info.artifact_uri) / "report.html"]
        verdict = json.dumps({key: value for key, value in run.data.tags.items() if key.startswith("verdict")})
        yield Shown(run.info.run_name, run.data.params, metrics, verdict, _text(pages))


def _tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    for run in sorted(folder.rglob("tensorboard")):
        metrics, texts = {}, {}
        for place in sorted({path.parent for path in run.rglob("events*")}):
            events = EventAccumulator(str(place), purge_orphaned_data=False)
            events.Reload()
            for tag in events.Tags()["scalars"]:
                metrics[f"{place.name}/{tag}"] = [(one.step, one.value) for one in events.Scalars(tag)]
            for tag in events.Tags()["tensors"]:
                texts[tag] = [one.tensor_proto.string_val[0].decode() for one in events.Tensors(tag)]
        rows = [line.split(" | ") for line in texts.get("parameters/text_summary", [""])[0].split("\n")[2:]]
        verdict = json.dumps({tag: text for tag, text in texts.items() if tag.startswith("verdict")})
        parameters = {name.strip("| "): value.strip("| ") for name, value in rows}
        yield Shown(run.parent.name, parameters, metrics, verdict, _text([run / "report.html"]))


def _wandb(folder):
    proto = importlib.import_module("wandb.proto.wandb_internal_pb2")
    runs = {}
    for path in sorted(folder.rglob("wandb/offline-run-*/run-*.wandb")):
        run = runs.setdefault(path.stem, {"name": "", "config": {}, "metrics": {}, "summary": {}, "pages": []})
        run["pages"].append(path.parent / "files" / "report.html")
        records, before, since = [], -1, time.monotonic()
        # a process of its own still writes, or was killed
        while not (records and records[-1].WhichOneof("record_type") == "exit") and time.monotonic() < since + 5:
            content = path.read_bytes()
            since = since if len(content) == before else time.monotonic()
            before, records = len(content), [proto.Record.FromString(text) for text in _records(content)]
            time.sleep(0.01)
        for record in records:
            if record.WhichOneof("record_type") == "run":
                run["name"] = record.run.display_name
                run["config"] |= {one.key: str(json.loads(one.value_json)) for one in record.run.config.update}
            if record.WhichOneof("record_type") == "summary":
                run["summary"] |= {one.key or "/".join(one.nested_key): one.value_json for one in record.summary.update}
            if record.WhichOneof("record_type") == "history":
                for one in record.history.item:
                    name = one.key or "/".join(one.nested_key)
                    if name.startswith("member-"):
                        pair = (record.history.step.num, json.loads(one.value_json))
                        run["metrics"].setdefault(name, []).append(pair)
    for run in runs.values():
        verdict = {name: json.loads(text) for name, text in run["summary"].items() if name.startswith("verdict")}
        yield Shown(run["name"], run["config"], run["metrics"], json.dumps(verdict), _text(run["pages"]))


READERS = {"mlflow": _mlflow, "tensorboard": _tensorboard, "wandb": _wandb}


def _records(content):
    """The records of a LevelDB log, whose first seven bytes are W&B's own."""
    at, record = 7, b""
    while at + HEAD.size <= len(content):
        left = BLOCK - at % BLOCK
        if left < HEAD.size:
            at += left
            continue
        _, length, kind = HEAD.unpack_from(content, at)
        if kind == EMPTY:
            return
        if at + HEAD.size + length > len(content):
            return
        record += content[at + HEAD.size : at + HEAD.size + length]
        at += HEAD.size + length
        if kind in (WHOLE, LAST):
            yield record
            record = b""


def _text(paths):
    return next((path.read_text() for path in reversed(paths) if path.is_file()), None)
