"""What a user gets wrong ends with code 2 and the mend, without a traceback and with nothing written."""

import dataclasses
import json
import re
import shlex
import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.cli.conftest import MAPPING, SMALL, contents
from tests.runtime.cases import policy
from tests.training.runs import write_record
from tidelog import BC, fit
from tidelog.cli import main
from tidelog.cli.flags import free_folder, read_config
from tidelog.cli.run_result import train_and_show
from tidelog.errors import CheckpointError, DivergenceError

FLAGS = {
    "DATA": "--data visits.csv",
    "MAPPED": "--data visits.csv --columns columns.toml",
    "TRAIN": "train iql --data visits.csv --columns columns.toml --steps 2 --hidden 8 8 --embedding 2 --out out",
    "SWEEP": "sweep bc --data visits.csv --columns columns.toml --steps 4 --eval-every 2 --hidden 8 8 --out out",
    "CLICKS": "--data clicks.csv --user u --item i --time t",
}
FILES = {"REWARDLESS": MAPPING.replace('reward = "recovered"\n', "")}


def cases():
    """Every case of `refusals.txt`: its folder, its files, its command, and what must be said."""
    found, folder, files = [], "", {}
    for line in (Path(__file__).parent / "refusals.txt").read_text().splitlines():
        if line.startswith("["):
            folder = line[1:-1]
        elif line.startswith("$ tidelog"):
            found.append((folder, files, line.removeprefix("$ tidelog").strip(), []))
            files = {}
        elif name := re.match(r"(\w+\.toml): ?(.*)", line):
            files = {name[1]: name[2].replace("\\n", "\n")}
        elif line and not line.startswith("#"):
            found[-1][-1].append(line)
    return [pytest.param(*one, id=f"{number}-{one[2]}") for number, one in enumerate(found)]


@pytest.fixture(scope="module")
def folders(table, log, saved, run, shop, ranker, tmp_path_factory):
    """The folders that the cases name; no case may write anything, so that all of them share these."""
    clinic, logs, survey, market = (tmp_path_factory.mktemp(name) for name in ("clinic", "logs", "survey", "shop"))
    fill_clinic(clinic, table, log, saved, run)
    (logs / "logs").mkdir()
    (logs / "made.parquet").mkdir()
    (logs / "columns.toml").write_text(MAPPING)
    shutil.copytree(run, logs / "run")
    for number in range(2):
        table[number::2].write_csv(logs / "logs" / f"part-{number}.csv")
    rng = np.random.default_rng(2)
    answers = {"age": rng.normal(40, 9, 120).round(1), "folder": rng.choice(["a", "b"], 120)}
    answers |= {"visit": rng.integers(0, 2, 120), "house": np.arange(120) // 3}
    pl.DataFrame(answers).write_csv(survey / "visits.csv")
    shutil.copy(shop / "clicks.csv", market)
    shutil.copytree(shop / "policy", market / "policy")
    shutil.copytree(ranker, market / "ranker")
    np.savez(market / "new.npz", observation=np.zeros((2, 3)))
    return {"clinic": clinic, "logs": logs, "survey": survey, "shop": market}


def fill_clinic(folder, table, log, saved, run):
    """Write a table, rows that do not fit, runs, policies, and files that are none of tidelog's."""
    dose = np.arange(table.height) % 3
    more = {"dose": dose, "rate": dose % 2, "amount": np.linspace(-1.0, 1.0, table.height)}
    table.with_columns(**{name: pl.Series(values) for name, values in more.items()}).write_csv(folder / "visits.csv")
    (folder / "columns.toml").write_text(MAPPING)
    table.drop("hour").write_csv(folder / "new.csv")
    words = table["kidneys"].to_list()
    table.with_columns(kidneys=pl.Series([*words[:2], "helthy", *words[3:]])).write_csv(folder / "odd.csv")
    table.head(3).with_columns(kidneys=pl.lit("odd")).write_csv(folder / "all-odd.csv")
    for name in ("run", "copy", "damaged"):
        shutil.copytree(run, folder / name)
    last = folder / "damaged" / "checkpoints" / "0000000042" / "member-0.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    fit(BC(hidden=(8,), embedding=2, batch_size=32), log, 2, out=folder / "memory", train=False)
    policy("iql, choice").save(folder / "policy")
    shutil.copytree(saved, folder / "saved")
    for name in ("taken/notes.txt", "taken.csv", "taken.html"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text("<p>mine</p>")
    for name in ("half", "cut"):
        (folder / name).mkdir()
    shutil.copy(run / "run.json", folder / "half")
    write_record(folder / "cut", {"schema": 1})


@pytest.mark.sample(every=4)
@pytest.mark.parametrize(("folder", "files", "command", "parts"), cases())
def test_what_is_wrong_is_refused_and_nothing_is_written(
    folder, files, command, parts, folders, tidelog, monkeypatch, request
):
    monkeypatch.chdir(folders[folder])
    monkeypatch.setitem(sys.modules, "wandb", None)
    for name, text in files.items():
        path, before = Path(name), Path(name).read_text() if Path(name).exists() else None
        actions = text.removeprefix("ACTIONS ")
        path.write_text(MAPPING.replace('"treatment"', actions) if text != actions else FILES.get(text, text))
        request.addfinalizer(lambda path=path, before=before: restore(folders[folder] / path, before))
    before = contents(".")
    for short, flags in FLAGS.items():
        command = re.sub(rf"\b{short}\b", flags, command)
    done = tidelog(*shlex.split(command))
    assert done.code == 2, done.said
    assert "Traceback" not in done.said
    for part in parts:
        assert part.lower() in done.said.lower()
    assert contents(".") == before


def restore(path, content):
    path.unlink() if content is None else path.write_text(content)


def test_known_endings_are_listed_once_and_a_near_one_is_named(here, tidelog):
    for name, near in (("visits.weird", False), ("visits.parquett", True)):
        (here / name).write_text("a,b\n1,2\n")
        said = tidelog("train", "bc", "--data", name, "--columns", "columns.toml").said
        assert said.count(".dsjson") == 1
        assert ("did you mean '.parquet'?" in said) is near


def test_divergence_ends_with_code_4_and_can_be_resumed(here, tidelog):
    words = ["train", "bc", "--data", "visits.csv", "--columns", "columns.toml", "--steps", 42, "--out", "run"]
    done = tidelog(*words, "--learning-rate", "1e30", *SMALL)
    assert done.code == 4
    assert "became NaN or infinite at update 1: expected finite numbers. fix:" in done.err
    assert "The last good checkpoint, at update 0, is in run" in done.err
    assert json.loads((here / "run" / "run.json").read_text())["algorithm"] == "bc"
    assert tidelog("resume", "run").code == 4


@pytest.mark.parametrize(("raised", "code"), [
    (KeyboardInterrupt(), 130), (SystemExit(143), 143), (DivergenceError("x"), 4), (SystemExit(0), 0),
])  # fmt: skip
def test_exit_codes(raised, code, tidelog, monkeypatch):
    def run(words):
        raise raised

    monkeypatch.setattr("tidelog.cli.resume.run", run)
    done = tidelog("resume", "x")
    assert done.code == code
    assert ("tidelog: interrupted" in done.err) == (code > 100)


def test_what_nobody_foresaw_is_not_hidden(monkeypatch):
    def run(words):
        raise ZeroDivisionError

    monkeypatch.setattr("tidelog.cli.resume.run", run)
    with pytest.raises(ZeroDivisionError):
        main(["resume", "x"])


def test_a_config_file_sets_switches_and_options_that_are_off(tmp_path):
    @dataclasses.dataclass
    class Flags:
        quiet: bool = False
        json: bool = False
        onnx: bool = True
        together: bool | None = None

    (tmp_path / "run.toml").write_text("quiet = true\njson = false\nonnx = false\ntogether = false\n")
    assert read_config(str(tmp_path / "run.toml"), Flags) == ["--quiet", "--no-onnx", "--no-together"]


def test_a_checkpoint_that_cannot_be_written_ends_with_code_4(capsys):
    def train(progress):
        raise CheckpointError("no space is left. fix: free some")

    assert train_and_show(SimpleNamespace(train=train)) == 4
    assert capsys.readouterr().err == "tidelog: no space is left. fix: free some\n"


def test_a_file_where_a_run_would_be_is_passed_over(tmp_path):
    (tmp_path / "iql").write_text("mine")
    (tmp_path / "iql-2").mkdir()
    assert free_folder("iql", str(tmp_path)) == tmp_path / "iql-2"
    assert free_folder("bc", str(tmp_path)) == tmp_path / "bc"
