"""Parts of a log know where they are from: what was learnt from one is resumed and judged without passing it."""

import json

import numpy as np
import pytest

from tests.cli.conftest import call, table_of
from tests.training.runs import LOSS, bc, begin, finish, stop_at, untimed
from tidelog import Columns, Log, load_run, read_log, resume
from tidelog.recommend.read import reopen_any

COLUMNS = Columns(
    episode="patient", step="visit", terminated="ended", action="treatment", reward="recovered",
    observation=["severity", "strain", "toxicity", "hour", "kidneys"], propensity="propensity",
)  # fmt: skip


@pytest.fixture
def read(log, tmp_path):
    """A log from a file."""
    table_of(log).write_csv(tmp_path / "visits.csv")
    return read_log(tmp_path / "visits.csv", COLUMNS)


def again(part: Log) -> Log:
    """The same part, from what a run's record holds of it."""
    return reopen_any(json.loads(json.dumps(part.origin)))


def test_parts_of_parts_are_taken_again(read):
    train, held_out = read.split(0.7, seed=3)
    few = train.take_episodes(np.asarray([4, 1, 2]))
    inner = train.split(0.5, seed=1)[1].take_episodes([0])
    for part in (read, train, held_out, few, inner):
        assert again(part).fingerprint() == part.fingerprint()
    assert len({part.fingerprint() for part in (read, train, held_out, few, inner)}) == 5


def test_a_part_of_a_log_in_memory_has_no_origin(log):
    assert log.split()[0].origin is None
    assert log.take_episodes([0]).origin is None


def test_a_run_over_a_split_is_resumed_and_judged_from_the_shell(read, tmp_path, capsys):
    train, _ = read.split(0.8, seed=0)
    whole = finish(begin(bc(), train, tmp_path / "whole", best_metric=LOSS))
    stop_at(begin(bc(), train, tmp_path / "run", best_metric=LOSS, save_seconds=0.0), 14)
    assert call("resume", tmp_path / "run") == 0
    assert untimed(load_run(tmp_path / "run").metrics) == untimed(whole.metrics)
    assert call("judge", tmp_path / "run", "--sample", "--replicates", 1000, "--model", "tabular") == 0
    assert "the run held out of its own log" in capsys.readouterr().out


def test_a_file_that_changed_is_not_taken_for_the_part(read, tmp_path):
    train, _ = read.split(0.8, seed=0)
    stop_at(begin(bc(), train, tmp_path / "run", best_metric=LOSS), 14)
    lines = (tmp_path / "visits.csv").read_text().splitlines()
    (tmp_path / "visits.csv").write_text("\n".join(lines[:-2]) + "\n")
    with pytest.raises(Exception, match="fix: pass the log that the run was trained on"):
        resume(tmp_path / "run", progress=False)
