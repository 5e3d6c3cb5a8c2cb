"""What a user gets wrong ends with code 2 and the mend, without a traceback and with nothing written."""

import dataclasses
import gzip
import json
import shutil
import sys
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

from tests.cli.conftest import MAPPING, SMALL, contents
from tests.runtime.cases import policy
from tidelog import BC, fit, load
from tidelog.cli import main
from tidelog.cli.flags import free_folder, read_config
from tidelog.cli.run_result import train_and_show
from tidelog.errors import CheckpointError, DivergenceError

TRAIN = ["train", "iql", "--steps", 2, *SMALL, "--out", "out", "--data"]


def put(frame, name, cells):
    column = frame[name].cast(pl.String).to_list()
    for row, value in cells.items():
        column[row - 1] = value
    return frame.with_columns(pl.Series(name, column, pl.String))


def doses(frame, worst):
    """The table with actions that are numbers."""
    dose = np.arange(frame.height) % 3
    dose[6] = worst
    return frame.with_columns(dose=pl.Series(dose), rate=pl.Series(dose[::-1] % 2))


def csv(change):
    return lambda frame, path: change(frame).write_csv(path)


NUMBERED = MAPPING.replace('"treatment"', '"dose"\nactions = 3')
TABLES = {
    "a missing column": (csv(lambda f: f.drop("strain")), MAPPING, ["missing column in 'strain'", "fix:"]),
    "a misnamed column": (
        csv(lambda f: f.rename({"strain": "strian"})),
        MAPPING,
        ["'strain'", "did you mean 'strian'"],
    ),
    "an empty cell": (
        csv(lambda f: put(f, "hour", {4: None})),
        MAPPING,
        [
            "missing value in 'hour', 1 row: 4",
            "expected: a value in every row",
            "fix: set missing = {",
            "or fill the cells",
        ],
    ),
    "NaN": (
        csv(lambda f: put(f, "hour", {4: "NaN", 9: "inf"})),
        MAPPING,
        ["NaN or infinity in 'hour', 2 rows: 4, 9", "expected: finite numbers"],
    ),
    "text among numbers": (
        csv(lambda f: put(f, "severity", {2: "bad"})),
        MAPPING,
        ["non-numeric text in 'severity', 1 row: 2", "found: 'bad'", "fix: correct the cells"],
    ),
    "an action out of range": (
        csv(lambda f: doses(f, 3)),
        NUMBERED,
        ["action out of range in 'dose', 1 row: 7", "whole numbers from 0 to 2"],
    ),
    "a step twice": (
        csv(lambda f: put(f, "visit", {2: "0"})),
        MAPPING,
        ["duplicate step in 'visit', 1 row: 2", "fix: remove"],
    ),
    "an empty file": (lambda f, path: path.write_text(""), MAPPING, ["an empty file", "text in UTF-8 with one header"]),
    "no rows": (csv(lambda f: f.head(0)), MAPPING, ["empty log", "at least one decision"]),
    "a cut line": (
        lambda f, path: path.write_text(f.write_csv()[:-25]),
        MAPPING,
        ["ragged rows", "11 fields in every"],
    ),
    "no table": (lambda f, path: path.write_bytes(bytes(range(256))), MAPPING, ["not UTF-8"]),
    "an unknown mapping key": (
        csv(lambda f: f),
        MAPPING + 'rewrd = "x"\n',
        ["unknown key 'rewrd' (did you mean 'reward'"],
    ),
    "a mapping that is none": (csv(lambda f: f), "observation = [", ["the mapping cannot be read"]),
}


@pytest.mark.parametrize("broken", TABLES)
@pytest.mark.sample(every=4)
def test_a_table_that_is_no_log_is_refused_with_column_rows_and_mend(broken, table, here, tidelog):
    make, mapping, parts = TABLES[broken]
    make(table, here / "visits.csv")
    (here / "columns.toml").write_text(mapping)
    before = contents(here)
    for words in (["data", "validate", "--data", "visits.csv"], [*TRAIN, "visits.csv"]):
        done = tidelog(*words, "--columns", "columns.toml")
        assert done.code == 2
        assert "Traceback" not in done.said
        for part in parts:
            assert part in done.said
    assert contents(here) == before


def test_a_gzip_file_that_was_cut_off_is_refused(table, here, tidelog):
    content = gzip.compress(table.write_csv().encode())
    (here / "visits.csv.gz").write_bytes(content[: len(content) // 2])
    data = (["data", "validate", "--data"], ["data", "inspect", "--data"])
    for words in (*data, TRAIN, ["act", "nothing", "--out", "a.csv", "--data"]):
        done = tidelog(*words, "visits.csv.gz", *(["--columns", "columns.toml"] if words[0] != "act" else []))
        assert done.code == 2
        assert "the compressed file is truncated or damaged" in done.said or words[0] == "act"
    assert not (here / "out").exists()


def test_a_log_whose_actions_the_algorithm_cannot_take_is_refused(table, here, tidelog):
    doses(table, 2).write_csv(here / "visits.csv")
    (here / "columns.toml").write_text(MAPPING.replace('"treatment"', '["dose", "rate"]\nactions = [3, 2]'))
    done = tidelog(*TRAIN, "visits.csv", "--columns", "columns.toml")
    assert done.code == 2
    assert "IQL requires Continuous or Discrete actions, but this log has MultiDiscrete actions" in done.err
    assert not (here / "out").exists()


def test_a_mapping_that_is_missing_is_proposed_by_inspect(here, tidelog):
    done = tidelog(*TRAIN, "visits.csv", "--columns", "missing.toml")
    assert done.code == 2
    assert "there is no mapping missing.toml. fix: `tidelog data inspect --data LOG --write missing.toml`" in done.err


def test_an_environment_of_ones_own_is_asked_for_with_its_module(here, tidelog):
    done = tidelog("collect", "--env", "Shop-v0", "--episodes", "5", "--out", "new.tidelog")
    assert done.code == 2
    assert "name the module that registers an environment of your own (MODULE:Shop-v0)" in done.err
    assert "Hopper" not in done.err
    assert "did you mean 'CartPole-v1'" in tidelog("collect", "--env", "CartPol-v1", "--out", "new.tidelog").err


def test_a_log_without_rewards_is_refused_by_what_learns_from_them(here, tidelog):
    (here / "columns.toml").write_text(MAPPING.replace('reward = "recovered"\n', ""))
    done = tidelog(*TRAIN, "visits.csv", "--columns", "columns.toml")
    assert done.code == 2
    assert "this log has no reward column" in done.err
    assert not (here / "out").exists()


ROLES = ["--user", "patient", "--item", "strain", "--time", "visit"]
WORDS = {
    "an unknown command": (["trian"], "no command 'trian': did you mean 'train'"),
    "an unknown subcommand": (["data", "inspct", "x"], "no command 'data inspct': did you mean 'inspect'"),
    "data alone": (["data"], "all problems of a log"),
    "train alone": (["train"], "usage: tidelog train {bc,bcq,discrete-bcq,iql,recommender-bcq} --data LOG"),
    "flags before the algorithm": (["train", "--data", "x"], "the name of the algorithm is missing"),
    "an unknown algorithm": (["train", "iqll", "--data", "x"], "no algorithm 'iqll': did you mean 'iql'"),
    "an unknown flag": (["train", "bc", "--data", "x", "--stepz", "3"], "--steps NUMBER"),
    "another algorithm's flag": (["train", "bc", "--data", "x", "--expectile", "0.7"], "--expectile"),
    "no data": (["train", "bc"], "--data"),
    "no number": (["train", "bc", "--data", "x", "--steps", "many"], "Error parsing --steps"),
    "no choice": (["train", "bc", "--data", "x", "--scale", "minmax"], "Expected one of"),
    "no mapping": (["train", "bc", "--data", "visits.csv"], "`tidelog data inspect --data visits.csv` proposes"),
    "no mapping to validate by": (["data", "validate", "--data", "visits.csv"], "is a table without a mapping of its"),
    "a mapping too many": (["train", "bc", "--data", "log", "--columns", "columns.toml"], "files of arrays need no"),
    "no such mapping": (["train", "bc", "--data", "visits.csv", "--columns", "none.toml"], "there is no mapping none"),
    "no such table": (["train", "bc", "--data", "none.csv", "--columns", "columns.toml"], "the file does not exist"),
    "an odd ending": (["train", "bc", "--data", "columns.toml"], "has the unknown ending '.toml'"),
    "no such Minari data set": (["train", "bc", "--data", "pendulum/none-v0"], "`minari download pendulum/none-v0`"),
    "no such run": (["resume", "nowhere"], "nowhere is no run folder: it has no run.json"),
    "neither run nor policy": (["act", "nowhere", "--data", "visits.csv", "--out", "a.csv"], "nowhere does not exist"),
    "no run to evaluate": (["evaluate", "nowhere", "--env", "treatment"], "nowhere is no run folder"),
    "nothing to collect": (["collect", "--env", "treatment", "--out", "log"], "None: expected exactly one"),
    "no episodes": (["collect", "--env", "treatment", "--out", "log", "--episodes", "0"], "episodes = 0, steps"),
    "no environment": (["collect", "--env", "tretment", "--out", "log", "--steps", "5"], "did you mean 'treatment'"),
    "no patients": (["demo", "--patients", "0", "--out", "demo"], "expected patients, steps and episodes >= 2"),
    "no policy to judge": (["judge"], "there is no policy to judge. fix: name a run folder or a saved policy"),
    "a mapping for interactions": (
        ["train", "recommender-bcq", "--data", "visits.csv", *ROLES, "--columns", "columns.toml"],
        "interactions use --user, --item and --time. fix: drop --columns and --memory-map",
    ),
    "a mapping of interactions": (
        ["data", "inspect", "--data", "visits.csv", *ROLES, "--write", "new.toml"],
        "--columns and --write are not for interactions (--user, --item). fix: drop --columns and --write",
    ),
    "rows kept without a quarantine": (
        ["data", "validate", "--data", "visits.csv", "--columns", "columns.toml", "--keep", "good.csv"],
        "--keep writes what --quarantine leaves of a table. fix: add --quarantine FILE",
    ),
    "a run without a chain": (["verify", "policy", "--run", "x"], "--run is set without --chain. fix: add --chain, or"),
    "no demo": (["demo", "--seeds", "0", "--out", "demo"], "and seeds >= 1"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", WORDS)
@pytest.mark.sample(every=4)
def test_words_that_mean_nothing_are_refused(wrong, here, tidelog):
    words, message = WORDS[wrong]
    before = contents(here)
    done = tidelog(*words)
    assert done.code == 2
    assert message in done.said
    assert "Traceback" not in done.said
    assert contents(here) == before


def test_known_endings_are_listed_once_and_a_near_one_is_named(here, tidelog):
    for name, near in (("visits.weird", False), ("visits.parquett", True)):
        (here / name).write_text("a,b\n1,2\n")
        said = " ".join(tidelog("train", "bc", "--data", name, "--columns", "columns.toml").said.split())
        assert said.count(".dsjson") == 1
        assert ("did you mean '.parquet'?" in said) is near


SETTINGS = {
    "no steps": (["--steps", "0"], "steps = 0: expected 1 to"),
    "no seeds": (["--seeds", "0"], "seeds = 0: expected 1 to 10,000"),
    "all held out": (["--held-out", "1.0"], "held_out = 1.0: expected a share of the episodes in [0, 1)"),
    "no reports": (["--every", "0"], "every = 0: expected at least 1"),
    "evaluate": (["--evaluate", "treatment"], "'treatment': expected NAME=EPISODES, such as Pendulum-v1=10"),
    "evaluate never": (["--evaluate", "treatment=0"], "evaluate['treatment'] = 0: expected at least 1 episode"),
    "evaluate text": (["--evaluate", "treatment=x"], "'treatment=x': expected NAME=EPISODES"),
    "no environment": (["--evaluate", "Pendulm-v1=2"], "did you mean 'Pendulum-v1'"),
    "another environment": (
        ["--evaluate", "Pendulum-v1=2"],
        "Pendulum-v1 has the observations ['observation'], the policy",
    ),
    "best": (["--best", "held_out/loss"], "this run has no such metric; did you mean 'held_out/value_loss'"),
    "patience": (["--patience", "3"], "patience = 3: patience needs best="),
    "a number out of range": (["--expectile", "1.5"], "IQL.expectile = 1.5: expected a finite number in (0, 1)"),
    "warm": (["--warm-start", "critic=nowhere"], "has no complete checkpoint. fix: start the run again"),
    "warm part": (["--warm-start", "critc=nowhere"], "the state has no part 'critc'. fix: use one of actor, critic"),
    "preset": (["--preset", "antmase"], "IQL has no preset 'antmase': did you mean 'antmaze'"),
    "sink": (["--sink", "wandb"], "this needs the package wandb (import of wandb halted; None in sys.modules). fix: "),
    "no such sink": (["--sink", "mlfow:x"], "unknown sink 'mlfow': did you mean 'mlflow'"),
    "no config": (["--config", "none.toml"], "none.toml cannot be read as TOML"),
}  # fmt: skip


@pytest.mark.parametrize("wrong", SETTINGS)
@pytest.mark.sample(every=4)
def test_settings_that_cannot_be_meant_are_refused(wrong, here, tidelog, monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", None)
    words, message = SETTINGS[wrong]
    before = contents(here)
    done = tidelog(*TRAIN, "visits.csv", "--columns", "columns.toml", *words)
    assert done.code == 2
    assert message in done.said
    assert contents(here) == before


CONFIGS = {
    "an unknown key": ("stepz = 3", "run.toml has the unknown key 'stepz': did you mean 'steps'"),
    "another algorithm's key": ("dropuot = 0.1", "did you mean 'dropout'"),
    "a config in a config": ('config = "other.toml"', "run.toml has the unknown key 'config'"),
    "no TOML": ("steps = ", "run.toml cannot be read as TOML"),
    "text for a number": ('steps = "many"', "Error parsing --steps"),
    "half a step": ("steps = 4.5", "Error parsing --steps"),
    "text for a list": ('hidden = "wide"', "Error parsing --hidden"),
    "no choice": ('scale = "minmax"', "Expected one of"),
    "no preset": ('preset = "antmase"', "did you mean 'antmaze'"),
}


@pytest.mark.parametrize("wrong", CONFIGS)
def test_a_config_file_is_checked_like_flags(wrong, here, tidelog):
    text, message = CONFIGS[wrong]
    (here / "run.toml").write_text(text)
    before = contents(here)
    words = ["train", "iql", "--data", "visits.csv", "--columns", "columns.toml", "--out", "out"]
    done = tidelog(*words, "--config", "run.toml")
    assert done.code == 2
    assert message in done.said
    assert contents(here) == before


def test_a_preset_is_for_those_that_have_some(here, tidelog):
    done = tidelog("train", "bc", "--data", "visits.csv", "--preset", "antmaze")
    assert (done.code, done.err) == (2, "tidelog: BC has no presets. fix: drop --preset\n")


def test_what_exists_is_left_alone(here, run, tidelog):
    (here / "taken").mkdir()
    (here / "taken" / "notes.txt").write_text("mine")
    (here / "taken.csv").write_text("mine")
    before = contents(here)
    for words in (
        ["train", "bc", "--data", "visits.csv", "--columns", "columns.toml", "--out", "taken", *SMALL],
        ["collect", "--env", "treatment", "--episodes", 2, "--out", "taken"],
        ["act", run, "--data", "visits.csv", "--out", "taken.csv"],
        ["demo", "--out", "taken"],
    ):
        done = tidelog(*words)
        assert done.code == 2
        assert "exists" in done.err
        assert "nothing was written" in done.err
    assert contents(here) == before


def test_acting_on_what_does_not_fit_is_refused(table, here, run, tidelog):
    table.drop("hour").write_csv(here / "new.csv")
    put(table, "kidneys", {3: "helthy"}).write_csv(here / "odd.csv")
    before = contents(here)
    for words, message in (
        (["--data", "new.csv", "--out", "a.csv"], "has no column 'hour' (1 missing)"),
        (["--data", "odd.csv", "--out", "a.csv"], "column 'kidneys' is 'helthy' in 1 row(s) (3), unknown in the"),
        (["--data", "visits.csv", "--out", "a.xlsx"], "expected a path that ends in .csv or .parquet"),
        (["--data", "visits.csv", "--out", "a.csv", "--member", 7], "has 2 member(s). fix: use 0 to 1"),
        (
            ["--data", "visits.csv", "--out", "a.csv", "--probabilities", "--skip-unknown", "b.csv"],
            "--probabilities and --skip-unknown are both set. fix: set only one of them",
        ),
    ):  # fmt: skip
        done = tidelog("act", run, *words)
        assert done.code == 2
        assert message in done.err
    assert contents(here) == before


def test_a_saved_policy_has_no_seeds(here, run, tidelog):
    load(run).policy().save("policy")
    done = tidelog("act", "policy", "--data", "visits.csv", "--out", "a.csv", "--member", 1)
    assert done.code == 2
    assert "policy is a saved policy, which has no members. fix: drop --member" in done.err


def test_evaluating_what_does_not_fit_is_refused(here, run, saved, tidelog):
    before = contents(run)
    for words, message in (
        ([], "expected exactly one of --env NAME (play) and --data LOG (compare)"),
        (["--env", "treatment", "--data", saved], "expected exactly one of --env NAME (play) and --data LOG (compare)"),
        (["--env", "treatment", "--episodes", "0"], "at least 1"),
        (["--env", "Pendulum-v1"], "Pendulum-v1 has the observations ['observation'], the policy expects"),
        (["--data", saved], "expected the policy's"),  # its words stand in another order
    ):
        done = tidelog("evaluate", run, *words)
        assert done.code == 2
        assert message in done.err
    assert contents(run) == before


def test_runs_are_compared_over_several_episodes(here, run, tidelog):
    shutil.copytree(run, "copy")
    done = tidelog("evaluate", run, "copy", "--env", "treatment", "--episodes", "1")
    assert done.code == 2
    assert "--episodes 1: a comparison of runs needs at least 2. fix: use --episodes 50" in done.said
    done = tidelog("evaluate", run, "--data", "visits.csv", "--columns", "columns.toml", "--sample")
    assert (done.code, "--sample and --mode change nothing with --data" in done.said) == (2, True)


def test_a_damaged_run_is_refused(here, run, tidelog):
    shutil.copytree(run, "copy")
    last = here / "copy" / "checkpoints" / "0000000042" / "member-0.safetensors"
    last.write_bytes(last.read_bytes()[:-1])
    for words in (["resume", "copy"], ["evaluate", "copy", "--env", "treatment"], ["collect", "--policy", "copy"]):
        more = ["--env", "treatment", "--episodes", 2, "--out", "log"] if words[0] == "collect" else []
        done = tidelog(*words, *more)
        assert done.code == 2
        assert "it was truncated or changed" in done.err
    assert not (here / "log").exists()
    assert "or use the one before it, with checkpoint=0" in tidelog("resume", "copy").err


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


def test_a_run_is_not_fine_tuned_into_its_own_folder(here, run, tidelog):
    before = contents(run)
    done = tidelog("finetune", run, "--env", "treatment", "--out", run / ".." / run.name)
    assert (done.code, contents(run)) == (2, before)
    assert "is the run that is continued. fix: choose another folder" in done.said


def test_rows_of_which_none_can_be_read_give_no_table(table, here, run, tidelog):
    table.head(3).with_columns(kidneys=pl.lit("odd")).write_csv(here / "odd.csv")
    before = contents(here)
    done = tidelog("act", run, "--data", "odd.csv", "--out", "a.csv", "--skip-unknown", "skipped.csv")
    assert (done.code, contents(here)) == (2, before)
    assert "all 3 rows have a value that the policy cannot read, such as kidneys: odd. fix: correct" in done.said


def test_a_checkpoint_that_cannot_be_written_ends_with_code_4(capsys):
    def train(progress):
        raise CheckpointError("no space is left. fix: free some")

    assert train_and_show(SimpleNamespace(train=train)) == 4
    assert capsys.readouterr().err == "tidelog: no space is left. fix: free some\n"


def test_newer_rows_of_a_log_in_memory_have_no_columns(here, log, tidelog):
    fit(BC(hidden=(8,), embedding=2, batch_size=32), log, 2, out="run", train=False)
    done = tidelog("refit", "run", "--data", "visits.csv", "--out", "new")
    assert done.code == 2
    assert "--data: the run's log was created in memory, so that its columns are unknown. fix: use" in done.said
    assert not (here / "new").exists()


def test_a_file_where_a_run_would_be_is_passed_over(tmp_path):
    (tmp_path / "iql").write_text("mine")
    (tmp_path / "iql-2").mkdir()
    assert free_folder("iql", str(tmp_path)) == tmp_path / "iql-2"
    assert free_folder("bc", str(tmp_path)) == tmp_path / "bc"


def test_a_saved_policy_has_neither_members_nor_provenance(shelf, here, tidelog):
    done = tidelog("judge", shelf, "--data", "visits.csv", "--columns", "columns.toml", "--all-members")
    assert (done.code, "which has no members. fix: drop --member and --all-members" in done.said) == (2, True)
    done = tidelog("verify", shelf, "--chain")
    assert (done.code, "carries no provenance. fix: export it from its run again" in done.said) == (2, True)
    before = contents(shelf)
    for out in (shelf, shelf / ".." / shelf.name):
        done = tidelog("export", shelf, "--out", out, "--overwrite")
        assert (done.code, contents(shelf)) == (2, before)
        assert "is the exported policy itself. fix: choose another path" in done.said


@pytest.fixture(scope="module")
def shelf(tmp_path_factory):
    """A policy that was saved without a run."""
    return policy("iql, choice").save(tmp_path_factory.mktemp("shelf") / "policy")
