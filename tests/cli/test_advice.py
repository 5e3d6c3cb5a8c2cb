"""Advice of the commands is followed as it is written: what it says to run, runs, and what it says to change, helps."""

import re
import shlex
import shutil

import pytest

import tidelog as tl
from tests.cli.conftest import SMALL

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]
JUDGED = ["--ledger", "off", "--replicates", 1000, "--model", "tabular"]


def quoted(text):
    """The commands of tidelog that a text has between backticks, each as a list of words."""
    return [shlex.split(one)[1:] for one in re.findall(r"`(tidelog [^`]+)`", " ".join(text.split()))]


def listed(text):
    """The commands of tidelog that stand on lines of their own, after `next:` or `then:` or alone."""
    return [shlex.split(one) for one in re.findall(r"^(?:next: |then: |  )tidelog (.+)$", text, re.MULTILINE)]


def named(words, **values):
    """A command with values in place of its words in capitals."""
    return [values.get(word, word) for word in words]


@pytest.fixture
def refused(tidelog):
    def get(*words):
        done = tidelog(*words)
        assert done.code == 2, done.said
        return done.said

    return get


@pytest.mark.full
def test_a_table_without_a_mapping_gets_one_and_is_learnt_from(here, tidelog, refused):
    """From the first error to a run, by what each command says."""
    (inspect,) = quoted(refused("train", "bc", "--data", "visits.csv"))
    shown = tidelog(*inspect)
    assert shown.code == 0
    write, validate, train = listed(shown.out)
    (here / "columns.toml").unlink()
    assert tidelog(*write).code == 0
    assert tidelog(*validate).code == 0
    assert tidelog(*train, "--steps", 2, *SMALL).code == 0


@pytest.mark.full
def test_what_comes_after_training_can_be_run(here, tidelog):
    done = tidelog("train", "bc", *DATA, "--steps", 2, *SMALL)
    judge, act = listed(done.out)
    assert tidelog(*judge, *JUDGED).code == 0
    assert tidelog(*named(act, **{"NEW_ROWS.csv": "visits.csv"})).code == 0
    assert (here / "actions.csv").exists()
    assert tidelog("train", "bc", *DATA, "--steps", 2, "--held-out", 0, "--out", "all", *SMALL).code == 0
    assert "fix: use a log with other episodes (--data)" in tidelog("judge", "all", *JUDGED).said
    assert tidelog("collect", "--env", "treatment", "--episodes", 30, "--seed", 7, "--out", "other").code == 0
    assert tidelog("judge", "all", "--data", "other", *JUDGED).code == 0


@pytest.mark.parametrize(("words", "message", "more"), [
    (["judge", "policy"], "fix: name a log with --data", DATA),
    (["judge", "run", "--columns", "columns.toml"], "fix: name the table with --data", ["--data", "visits.csv"]),
    (["report", "run", "--columns", "columns.toml"], "fix: name the table with --data", ["--data", "visits.csv"]),
    (["export", "policy", "--no-onnx"], "fix: name the output with --out", ["--out", "other"]),
    (["log", "check", "--data", "visits.csv", "--quarantine", "bad.csv"], "fix: add --columns", DATA[2:]),
    (["act", "run", "--data", "visits.csv", "--out", "there.csv"], "add --overwrite", ["--overwrite"]),
    (["train", "bc", *DATA, "--steps", 2, "--patience", 3, "--out", "new", *SMALL], "patience needs best_metric=",
     ["--best-metric", "held_out/imitation_loss"]),
])  # fmt: skip
def test_what_is_missing_helps_when_it_is_added(words, message, more, here, run, refused, tidelog):
    shutil.copytree(run, "run")
    tl.load_run("run").policy().save("policy")
    (here / "there.csv").write_text("old")
    judged = JUDGED if words[0] == "judge" else []
    assert message in refused(*words, *judged)
    done = tidelog(*words, *more, *judged)
    assert done.code == 0, done.said


@pytest.mark.parametrize(("words", "drop"), [
    (["act", "policy", "--data", "visits.csv", "--out", "a.csv", "--member", "1"], 2),
    (["act", "run", "--data", "visits.csv", "--out", "a.csv", "--seed", "1"], 2),
    (["evaluate", "run", "--env", "treatment", "--episodes", 2, "--sample", "--mode"], 1),
    (["log", "inspect", *DATA, "--write", "b.toml"], 2),
    (["train", "bc", *DATA, "--steps", 2, "--out", "new", *SMALL, "--preset", "antmaze"], 2),
])  # fmt: skip
def test_what_is_too_much_helps_when_it_is_dropped(words, drop, here, run, refused, tidelog):
    shutil.copytree(run, "run")
    tl.load_run("run").policy().save("policy")
    said = refused(*words)
    assert re.search(rf"fix: drop .*({words[-drop]}|one)", said)
    done = tidelog(*words[:-drop])
    assert done.code == 0, done.said


@pytest.mark.full
def test_members_that_act_in_different_ways_are_played_in_one(here, run, refused, tidelog):
    shutil.copytree(run, "run")
    assert tidelog("judge", "run", "--sample", "--member", 0, *JUDGED).code == 0
    assert tidelog("judge", "run", "--mode", "--member", 1, *JUDGED).code == 0
    play = ["evaluate", "run", "--env", "treatment", "--episodes", 2]
    assert "fix: add --sample or --mode" in refused(*play)
    assert tidelog(*play, "--sample").code == tidelog(*play, "--mode").code == 0


@pytest.mark.full
def test_a_log_that_is_to_stay_on_disk_is_converted(here, refused, tidelog):
    train = ["train", "bc", "--steps", 2, "--memory-map", *SMALL]
    (convert,) = quoted(refused(*train, *DATA))
    assert "--columns FILE for a table" in refused(*train, *DATA)
    assert tidelog(*named(convert, **{"NAME.tidelog": "log.tidelog"}), "--columns", "columns.toml").code == 0
    assert tidelog(*train, "--data", "log.tidelog").code == 0


def test_a_run_is_no_saved_policy_until_it_is_exported(here, run):
    shutil.copytree(run, "run")
    with pytest.raises(tl.errors.CheckpointError) as error:
        tl.load_policy("run")
    assert "tidelog.load_run('run').policy()" in str(error.value)
    tl.load_run("run").policy()
    assert quoted(str(error.value)) == [["export", "run"]]


@pytest.mark.full
@pytest.mark.parametrize("name", ["bc", "iql"])
def test_algorithms_of_logs_are_given_a_log_of_the_environment(name, here, refused, tidelog):
    """A log is collected and learnt from: what is advised fits every such algorithm, also one that cannot go on."""
    collect, train = quoted(refused("train", name, "--env", "treatment"))
    assert tidelog(*named(collect, NAME="treatment", LOG="log.tidelog")).code == 0
    assert tidelog(*named(train, LOG="log.tidelog"), "--steps", 2, *SMALL).code == 0


def test_a_ranker_is_not_sent_to_an_environment(refused):
    assert quoted(refused("train", "bc", "--env", "treatment"))[1] == ["train", "bc", "--data", "LOG"]
    said = refused("train", "recommender-bcq", "--env", "treatment")
    assert "fix: name a table of interactions with --data" in said
    assert "collect" not in said


@pytest.mark.full
def test_what_learnt_from_the_log_goes_on_in_an_environment(here, refused, tidelog):
    learn, tune = quoted(refused("train", "ppg", *DATA))
    tl.collect("treatment", episodes=20, seed=0).save("log")
    assert tidelog(*named(learn, LOG="log"), "--steps", 2, *SMALL).code == 0
    done = tidelog(*named(tune, NAME="treatment"), "--steps", 20)
    assert done.code == 0, done.said
