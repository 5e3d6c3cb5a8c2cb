"""`tidelog config RUN` writes a file; `tidelog train --config` with it gives the same weights."""

import json

import pytest

import tidelog as tl
from tests.algorithms.players import tiny
from tests.cli.conftest import SMALL
from tests.training.runs import bc, begin, finish, write_record
from tidelog.cli import config
from tidelog.policies.named_arrays import fingerprint


def weights(folder):
    """The weights of every member, in the order of the members."""
    run = tl.load(folder)
    return [fingerprint(run.policy(member=one.index).params) for one in run.members]


@pytest.fixture(scope="module")
def origin(saved):
    return tl.open_log(saved)


def test_the_file_repeats_a_run_of_a_table(run, here, tidelog):
    done = tidelog("config", run, "--out", "again.toml")
    assert done.code == 0, done.said
    assert "settings: again.toml (with again-columns.json)" in done.out
    assert "next: tidelog train bc --config again.toml" in done.out
    trained = tidelog("train", "bc", "--config", "again.toml", "--out", "again", "--quiet")
    assert trained.code == 0, trained.said
    assert weights("again") == weights(run)
    first, second = (json.loads((folder / "run.json").read_text()) for folder in (run, here / "again"))
    assert (first["configs"], first["options"]) == (second["configs"], second["options"])


def test_flags_that_were_set_are_in_it(clinic, here, tidelog):
    words = ["--held-out", 0.4, "--best", "max:entropy", "--patience", 9, "--dropout", 0.1, "--scale", "none"]
    words += ["--learning-rate", 0.01, "--data-share", 0.9, "--split-seed", 3]
    columns = ["--data", here / "visits.csv", "--columns", "columns.toml"]
    trained = tidelog("train", "bc", *columns, "--steps", 10, "--out", "one", "--quiet", *words, *SMALL)
    assert trained.code == 0, trained.said
    facts = json.loads(tidelog("config", "one", "--json").out)
    assert facts == {
        "config": "one.toml",
        "columns": "one-columns.json",
        "command": "tidelog train bc --config one.toml",
    }
    text = (here / "one.toml").read_text()
    for line in ("held_out = 0.4", 'best = "max:entropy"', "patience = 9", "dropout = 0.1", 'scale = "none"',
                 "learning_rate = 0.01", "data_share = 0.9", "split_seed = 3", "hidden = [8, 8]"):  # fmt: skip
        assert f"{line}\n" in text, line
    assert tidelog("train", "bc", "--config", "one.toml", "--out", "two", "--quiet").code == 0
    assert weights("one") == weights("two")
    refused = tidelog("config", "one")
    assert refused.code == 2
    assert "one.toml exists, nothing was written. fix: choose another name, or add --overwrite" in refused.said
    assert tidelog("config", "one", "--overwrite", "--quiet").out == "settings: one.toml (with one-columns.json)\n"


@pytest.mark.full
def test_a_run_in_an_environment_is_repeated(here, tidelog):
    algorithm = tiny()
    tl.learn(algorithm, "jax:CartPole-v1", 64, out="ppg", progress=False)
    done = tidelog("config", "ppg")
    assert done.code == 0, done.said
    assert 'env = "jax:CartPole-v1"\n' in (here / "ppg.toml").read_text()
    assert tidelog("train", "ppg", "--config", "ppg.toml", "--out", "again", "--quiet").code == 0
    assert weights("again") == weights("ppg")


@pytest.mark.full
def test_interactions_and_their_session_gap_are_repeated(here, tidelog):
    rows = [f"u{user},i{(user + step) % 5},{1_600_000_000 + 4_000 * step + user},{'buy' if step % 3 else 'view'}"
            for user in range(30) for step in range(9)]  # fmt: skip
    (here / "events.csv").write_text("\n".join(["u,i,t,kind", *rows]))
    words = ["--user", "u", "--item", "i", "--time", "t", "--event", "kind", "--reward", "buy=2", "view=0.5"]
    small = [
        "--size",
        4,
        "--history",
        4,
        "--memory",
        4,
        "--targets",
        2,
        "--batch-size",
        8,
        "--hidden",
        4,
        "--generator-hidden",
        4,
    ]
    small += ["--perturbation-hidden", 4, "--session-gap", "2h", "--steps", 4]
    trained = tidelog(
        "train", "recommender-bcq", "--data", here / "events.csv", *words, *small, "--out", "one", "--quiet"
    )
    assert trained.code == 0, trained.said
    assert tidelog("config", "one").code == 0
    text = (here / "one.toml").read_text()
    assert 'session_gap = "2h"\n' in text
    assert 'reward = ["buy=2.0", "view=0.5"]\n' in text
    assert tidelog("train", "recommender-bcq", "--config", "one.toml", "--out", "two", "--quiet").code == 0
    assert weights("one") == weights("two")


@pytest.mark.full
def test_what_no_flag_can_name_is_refused_and_writes_nothing(run, origin, log, here, tidelog):
    finish(begin(bc(), log, "memory"))
    finish(begin([bc(), bc(learning_rate=0.1)], origin, "population", steps=7, every=7))
    finish(begin(bc(), origin, "seeds", steps=7, every=7, seeds=[3]))
    finish(begin(bc(), origin.split(0.5)[0], "part", steps=7, every=7))
    finish(begin(bc(), origin, "together", steps=7, every=7, together=True))
    tl.refit("seeds", "refit", progress=False)
    cases = {
        ("memory",): "was created in memory, which no flag can name. fix: save it with log.save(folder)",
        ("population",): "is a population of 2 settings, and a file has one. fix: name a member with --member",
        ("population", "--member", 2): "--member 2: the run has 2 member(s), counted from 0",
        ("seeds",): "the seeds of the run are [3], and --seeds N means 0 to N - 1",
        ("part",): "is a part of a file, which no flag can name",
        ("together",): "no flag can repeat together of the run. fix: repeat it in Python",
        ("refit",): "is a refit. fix: repeat it with `tidelog refit",
        ("nothing",): "is no run folder",
        (str(run), "--out", "run.json"): "expected a path that ends in .toml",
    }
    before = sorted(here.iterdir())
    for words, expected in cases.items():
        done = tidelog("config", *words)
        assert done.code == 2, words
        assert expected in done.said, words
    assert sorted(here.iterdir()) == before
    assert tidelog("config", "population", "--member", 1, "--out", "one.toml").code == 0
    assert "learning_rate = 0.1\n" in (here / "one.toml").read_text()


def test_a_fine_tuned_run_and_a_start_policy_are_named(run, here, tidelog):
    content = json.loads((run / "run.json").read_text())
    folder = here / "changed"
    folder.mkdir()
    tuned = content["data"] | {"finetuned": True, "finetuned_from": "runs/offline", "environment": "A", "named": True}
    begun = {"algorithm": "PPG", "decisions": 1, "updates": 1, "divergence": [0.1]}
    cases = {
        "`tidelog finetune runs/offline --env ...`": tuned,
        "began with a start policy": content["data"] | {"environment": "A", "named": True, "start": begun},
        "has an environment without a registered name": content["data"] | {"environment": "A"},
    }
    for expected, data in cases.items():
        write_record(folder, content | {"data": data})
        done = tidelog("config", folder)
        assert done.code == 2
        assert expected in done.said


def test_own_functions_that_only_measure_are_left_out_with_a_note(origin, here, tidelog):
    finish(begin(bc(), origin, "own", steps=7, every=7, evaluate={"charm": lambda policy: 1.0}))
    done = tidelog("config", "own")
    assert done.code == 0
    assert "the run's own functions are left out, they only measure: charm" in done.said
    assert "charm" not in (here / "own.toml").read_text()


def test_settings_that_the_flags_refuse_are_not_written(run, here, tidelog, monkeypatch):
    def refused(cls, options):
        raise tl.ConfigError("BC.learning_rate = 7")

    monkeypatch.setattr(config, "algorithm_of", refused)
    done = tidelog("config", run)
    assert done.code == 2
    assert "the settings of the run cannot be read as flags: BC.learning_rate = 7. fix: repeat it" in done.said
    assert not (here / "run.toml").exists()
