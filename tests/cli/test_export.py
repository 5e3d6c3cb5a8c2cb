"""Exporting a run, checking what was exported, and leaving rows out of a table."""

import importlib.util
import json

import numpy as np
import polars as pl
import pytest

from tidelog import load_policy, runtime
from tidelog.cli import export
from tidelog.policies import export as artefact
from tidelog.runtime.artefact import SavedPolicy
from tidelog.training import metrics

ONNX = all(importlib.util.find_spec(name) for name in ("jax2onnx", "onnx", "onnxruntime"))


@pytest.mark.full
def test_a_run_is_exported_with_its_metrics_and_checked(tidelog, run, clinic, tmp_path):
    out = tmp_path / "policy.zip"
    done = tidelog("export", run, "--to", "zip", "--out", out, "--member", 1)
    assert done.code == 0, done.err
    assert "numpy, logged" in done.said
    manifest = SavedPolicy(out).manifest
    assert manifest["metrics"]["update"] == 42
    assert manifest["metrics"]["seed"] == 1
    assert manifest["origin"]["data"] == json.loads((run / "run.json").read_text())["data"]["fingerprint"]
    assert manifest["parity"]["numpy"]["holds"]
    assert manifest["parity"]["rows"]["logged"] > 50
    assert (manifest["onnx"] is not None) == ONNX
    rows = pl.read_csv(clinic / "visits.csv").head(20)
    np.testing.assert_array_equal(runtime.load(out)(rows), load_policy(out)(rows))
    again = tidelog("export", out, "--check", "--data", clinic / "visits.csv", "--columns", clinic / "columns.toml")
    assert again.code == 0, again.err
    assert "gives the same answers in all runtimes" in again.said
    folder = tidelog("export", out, "--out", tmp_path / "policy", "--no-onnx")
    assert folder.code == 0, folder.err
    assert {path.name for path in (tmp_path / "policy").iterdir()} == {"manifest.json", "weights.safetensors"}


def test_an_export_names_its_steps_and_keeps_an_older_policy(tidelog, run, here, monkeypatch):
    steps = []
    monkeypatch.setattr(metrics.Progress, "update", lambda screen, doing, share: steps.append(doing))
    words = ["export", run, "--to", "zip", "--out", "policy.zip", "--no-onnx"]
    assert tidelog(*words).code == 0
    assert steps == ["reading the log for the comparison", artefact.COMPARING, "writing"]
    monkeypatch.setattr(export, "has_onnx", lambda: False)
    log = ["--data", "visits.csv", "--columns", "columns.toml"]
    done = tidelog("export", run, "--to", "zip", "--out", "other.zip", *log)
    assert done.code == 0, done.err
    assert "no ONNX file. fix: pip install 'jax2onnx" in done.said
    assert SavedPolicy(here / "other.zip").manifest["parity"]["rows"]["logged"] > 50


def test_act_leaves_unknown_words_out_where_it_is_told_to(tidelog, run, here):
    table = pl.read_csv(here / "visits.csv").head(10)
    table.with_columns(kidneys=pl.Series(["odd", *table["kidneys"].to_list()[1:]])).write_csv(here / "new.csv")
    refused = tidelog("act", run, "--data", "new.csv", "--out", "actions.csv")
    assert refused.code == 2
    done = tidelog("act", run, "--data", "new.csv", "--out", "actions.csv", "--skip-unknown", "skipped.csv")
    assert done.code == 0, done.err
    assert pl.read_csv("actions.csv").height == 9
    assert pl.read_csv("skipped.csv")["unknown"].to_list() == ["kidneys: odd"]


def test_all_unreadable_columns_of_new_rows_are_listed_and_the_verdict_only_with_actions(tidelog, run, here):
    frame = pl.read_csv("visits.csv").with_columns(pl.col("severity").cast(pl.String), pl.col("hour").cast(pl.String))
    frame[100, "severity"], frame[7, "hour"], frame[3, "kidneys"] = "many", "", "helthy"
    frame.write_csv("new.csv")
    done = tidelog("act", run, "--data", "new.csv", "--out", "acted.csv")
    assert done.code == 2
    for part in (
        "'severity' is 'many' in 1 row(s) (101), expected a number",
        "'hour' is",
        "'kidneys' is 'helthy' in 1",
    ):
        assert part in done.err
    assert "fix: correct the cells, leave the rows out, or pass the log's mapping (--columns)" in done.err
    assert "most likely action" not in done.out
    assert not (here / "acted.csv").exists()
