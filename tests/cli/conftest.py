"""A table with its mapping, a run made from it by the command line, and a way to call commands."""

import json
import os
from pathlib import Path
from typing import NamedTuple

import numpy as np
import polars as pl
import pytest

from tests.data.clicks import clicks
from tests.runtime.cases import listing
from tests.training.logs import log, saved
from tidelog.algorithms.names import names
from tidelog.cli import main
from tidelog.ope import rules
from tidelog.training import metrics

__all__ = ["log", "saved"]

MAPPING = """\
episode = "patient"
step = "visit"
observation = ["severity", "strain", "toxicity", "hour", "kidneys"]
action = "treatment"
reward = "recovered"
terminated = "ended"
propensity = "propensity"
"""
ROLES = ["--user", "u", "--item", "i", "--time", "t", "--event", "kind", "--reward", "click=0.2", "buy=1"]
TINY = ["--size", "8", "--history", "6", "--targets", "3", "--batch-size", "8", "--hidden", "8", "--candidates", "4"]
TINY += ["--pretrain-share", "0.5"]
SMALL = ["--hidden", "8", "8", "--embedding", "2", "--batch-size", "32"]


class Done(NamedTuple):
    code: int
    out: str
    err: str

    @property
    def said(self):
        """Everything, as running text: boxes and line breaks taken out."""
        return " ".join((self.out + self.err).replace("│", " ").split())


def call(*words):
    """The exit code of a command line, run in this process; `train` judges only where a test says so, for speed."""
    words = [str(word) for word in words]
    learns = len(words) > 2 and words[0] == "train" and words[1] in names("a log")
    if learns and not {"--judge", "--no-judge", "--help"} & {*words}:
        words.append("--no-judge")
    try:
        return main(words)
    except SystemExit as leaving:
        return leaving.code


@pytest.fixture
def tidelog(capsys, monkeypatch):
    monkeypatch.setattr(metrics, "QUIET_SECONDS", 3600.0)  # a busy machine writes no lines of progress into a test
    monkeypatch.setattr(metrics, "LONGEST_PAUSE", 3600.0)

    def run(*words):
        capsys.readouterr()
        code = call(*words)
        return Done(code, *capsys.readouterr())

    return run


def table_of(log):
    """The log as a clinic would have it."""
    seen = log.transitions.observation
    numeric, codes = log.spec.observation["numeric"], log.spec.observation["categorical"]
    columns = {"patient": log.episode + 1, "visit": log.step}
    columns |= {name: seen["numeric"][:, i].astype(int) for i, name in enumerate(numeric.names)}
    columns["kidneys"] = np.asarray(codes.vocabularies[0])[seen["categorical"][:, 0]]
    columns["treatment"] = np.asarray(log.spec.action.names)[log.action]
    columns |= {"recovered": log.reward.astype(int), "ended": log.terminated.astype(int)}
    return pl.DataFrame(columns | {"propensity": np.full(log.steps, 0.1667)})


@pytest.fixture(scope="session")
def table(log):
    return table_of(log)


@pytest.fixture(scope="session")
def clinic(table, tmp_path_factory):
    """A folder with `visits.csv` and `columns.toml`."""
    folder = tmp_path_factory.mktemp("clinic")
    table.write_csv(folder / "visits.csv")
    (folder / "columns.toml").write_text(MAPPING)
    return folder


@pytest.fixture(scope="session")
def run(clinic):
    """The folder of a finished run with seeds 0 and 1, and its simple rules, which every verdict on a copy reads."""
    words = ["train", "bc", "--data", clinic / "visits.csv", "--columns", clinic / "columns.toml", "--seeds", 2]
    assert call(*words, "--steps", 42, "--eval-every", 14, "--out", clinic / "run", *SMALL) == 0
    rules.rules_of_run(clinic / "run", rules.Record.read(clinic / "run"))
    return clinic / "run"


@pytest.fixture(scope="session")
def shop(tmp_path_factory):
    """A folder with a table of clicks, and a policy for its items that has learnt nothing."""
    folder = tmp_path_factory.mktemp("shop")
    clicks(users=16).write_csv(folder / "clicks.csv")
    listing("lists, mean").save(folder / "policy")
    return folder


@pytest.fixture(scope="session")
def ranker(shop):
    """A run of a recommender that has learnt from the table a little."""
    words = ["train", "recommender-bcq", "--data", shop / "clicks.csv", *ROLES, *TINY, "--held-out", "0.3"]
    assert call(*words, "--steps", 4, "--eval-every", 4, "--out", shop / "run") == 0
    return shop / "run"


@pytest.fixture
def here(clinic, tmp_path, monkeypatch):
    """A working folder of one's own, with the table and the mapping in it."""
    for name in ("visits.csv", "columns.toml"):
        (tmp_path / name).write_bytes((clinic / name).read_bytes())
    monkeypatch.chdir(tmp_path)
    return tmp_path


def toy(folder, rows=60, **columns):
    """Write `log.csv` of episodes of three rows and its mapping; `columns` are observations or `action`."""
    at = np.arange(rows)
    observed = [name for name in columns if name != "action"]
    table = {"episode": at // 3} | columns | {"action": columns.get("action", at % 2), "reward": at % 2}
    pl.DataFrame(table | {"terminated": at % 3 == 2}).write_csv(folder / "log.csv")
    roles = [f'{name} = "{name}"' for name in ("episode", "action", "reward", "terminated")]
    words = [name for name in observed if isinstance(columns[name][0], str)]
    lines = [*roles, f"observation = {json.dumps(observed)}", f"categorical = {json.dumps(words)}"]
    (folder / "columns.toml").write_text("\n".join(lines))


def contents(folder):
    """Every file below a folder with its bytes."""
    folder = Path(folder)
    return {path.relative_to(folder): path.read_bytes() for path in folder.rglob("*") if path.is_file()} | {
        path.relative_to(folder): os.sep for path in folder.rglob("*") if path.is_dir()
    }
