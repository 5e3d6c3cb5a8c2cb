"""A log of local numbers, words for empty cells and no reward, from the file to the actions."""

import pytest

from tests.cli.conftest import SMALL
from tests.data.sources.test_arrays import hdf5

MAPPING = """\
episode = "visit"
observation = ["Gewicht", "Art"]
action = "Therapie"
decimal = ","
na_values = ["?"]
missing = "mean+flag"
"""


@pytest.mark.full
def test_a_run_reads_new_rows_as_it_read_its_log(tidelog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = [f"{row};{row / 4:.2f};{'?' if row % 5 else 'E1'};{'ab'[row % 2]}".replace(".", ",") for row in range(40)]
    (tmp_path / "a.csv").write_text("\n".join(["visit;Gewicht;Art;Therapie", *rows]) + "\n")
    (tmp_path / "a.toml").write_text(MAPPING)
    train = ["train", "bc", "--data", "a.csv", "--columns", "a.toml", "--steps", 2, "--out", "run", "--preset", "none"]
    done = tidelog(*train, "--held-out", 0.5, *SMALL)
    assert done.code == 0
    assert "tidelog judge" not in done.said  # a log without rewards has no verdict
    assert "tidelog act run --data NEW_ROWS.csv" in done.said
    assert tidelog("act", "run", "--data", "a.csv", "--out", "b.csv").code == 0
    assert (tmp_path / "b.csv").read_text().splitlines()[2].split(",")[2] == "?"  # rows are copied as they were
    assert tidelog("export", "run", "--to", "zip", "--no-onnx", "--out", "policy.zip").code == 0
    alone = tidelog("act", "policy.zip", "--data", "a.csv", "--out", "c.csv")
    assert alone.code == 2
    assert "pass the log's mapping (--columns)" in alone.said
    assert tidelog("act", "policy.zip", "--data", "a.csv", "--columns", "a.toml", "--out", "c.csv").code == 0
    assert (tmp_path / "b.csv").read_bytes() == (tmp_path / "c.csv").read_bytes()


@pytest.mark.full
@pytest.mark.parametrize("algorithm", ["bc", "bcq"])
def test_a_verdict_on_another_log_is_proposed_where_nothing_was_held_out(algorithm, tidelog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    hdf5(tmp_path / "walk.hdf5")
    small = ["--hidden", "8", "--batch-size", "8", "--steps", 2, "--preset", "none", "--held-out", "0"]
    done = tidelog("train", algorithm, "--data", "walk.hdf5", "--out", "run", *small)
    assert done.code == 0
    assert "next: tidelog judge run --data OTHER_LOG" in done.said
    assert "then: tidelog act run --data NEW_ROWS.npz --out actions.npz" in done.said


def test_act_names_the_conversion_of_files_of_arrays(tidelog, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = tidelog("act", "run", "--data", "my log.hdf5", "--out", "a.csv")
    assert done.code == 2
    assert "tidelog log convert --data 'my log.hdf5' --out rows.npz" in done.said
