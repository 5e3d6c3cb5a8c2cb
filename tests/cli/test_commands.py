"""Every command does its work and says what to do next."""

import dataclasses
import json
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import MAPPING, SMALL
from tests.training.runs import LOSS, bc, begin, stop_at
from tidelog import PPG
from tidelog.cli import COMMANDS
from tidelog.cli.evaluate import _parts
from tidelog.data.read import read_log
from tidelog.policies.batch_inference import act_on_table
from tidelog.policies.policy import fingerprint, remember
from tidelog.training.fit import EpisodeSplit
from tidelog.training.run import agreement

DATA = ["--data", "visits.csv", "--columns", "columns.toml"]


def test_without_words_the_commands_are_listed(tidelog):
    done = tidelog()
    assert done.code == 0
    assert all(f"tidelog {name}" in done.out for name in COMMANDS)
    assert tidelog("--help").out == tidelog("help").out == done.out
    assert tidelog("--version") == (0, f"tidelog {tl.__version__}\n", "")


def test_train_learns_and_says_what_to_do_next(here, tidelog):
    name, words = "bc", ["train", "bc", *DATA, "--steps", 28, "--eval-every", 14, "--evaluate", "treatment=2"]
    done = tidelog(*words, *SMALL)
    assert done.code == 0, done.err
    assert done.err == ""
    assert f"{name}: last metrics, update 28" in done.out
    assert "play/treatment" in done.out
    assert f"next: tidelog judge runs/{name}\nthen: tidelog act runs/{name} --data NEW_ROWS.csv" in done.out
    content = json.loads((here / "runs" / name / "run.json").read_text())
    assert content["options"]["scale"] == "standard"
    assert content["options"]["held_out"] == 0.5
    assert content["options"]["evaluate"] == {"treatment": 2}
    assert len(content["held_out_episodes"]) == 15
    assert content["data"]["origin"]["source"] == str(here / "visits.csv")
    assert tl.load_run(f"runs/{name}").finished
    again = tidelog(*words, *SMALL)
    assert f"run folder: runs/{name}-2" in again.out


def test_train_starts_parts_warm_and_keeps_the_best(here, run, tidelog):
    words = ["train", "bc", *DATA, "--steps", 28, "--eval-every", 14, "--patience", 9]
    words += ["--best-metric", "held_out/imitation_loss"]
    assert tidelog(*words, "--warm-start", f"actor={run}", "--out", "warm", *SMALL).code == 0
    assert tl.load_run("warm").best_policy().spec.action.n == 6


def test_resume_goes_on_where_a_run_was_stopped(here, tidelog):
    log = read_log("visits.csv", "columns.toml")
    stop_at(begin(bc(), log, "half", save_seconds=0.0), 1)
    done = tidelog("resume", "half")
    assert done.code == 0
    assert done.out.startswith("resuming half at update 10 of 42\n")
    assert "bc: last metrics, update 42" in done.out
    whole = begin(bc(), log, "whole")
    list(whole.stream())
    assert fingerprint(tl.load_run("half").learners()[0]) == fingerprint(whole.learners()[0])
    assert tidelog("resume", "half").out == "half is complete at update 42: there is nothing to resume\n"
    assert tidelog("resume", "half", "--checkpoint", 28).out.startswith("resuming half at update 28 of 42\n")
    again = tidelog("resume", "half", "--checkpoint", 28, "--quiet")
    assert (again.code, "resuming" in again.said) == (0, False)


def test_evaluate_plays_every_seed_and_keeps_every_return(run, tidelog):
    done = tidelog("evaluate", run, "--env", "treatment", "--episodes", 6, "--seed", 3)
    assert done.code == 0
    assert "treatment: 6 episodes per member, deterministic" in done.said
    assert {"member 0 (seed 0)", "member 1 (seed 1)", "all members"} <= {
        cell.strip() for line in done.out.split("\n") for cell in line.split("│")
    }
    kept = json.loads((run / "evaluations" / "treatment-deterministic-3.json").read_text())
    policies = [tl.load_run(run).policy(seed) for seed in (0, 1)]
    assert kept["returns"] == [tl.rollout(policy, "treatment", 6, 3).tolist() for policy in policies]
    drawn = tidelog("evaluate", run, "--env", "treatment", "--episodes", 2, "--sample")
    assert "2 episodes per member, sampled" in drawn.said
    assert (run / "evaluations" / "treatment-sampled-0.json").exists()


def test_evaluate_compares_with_a_log(here, run, tidelog):
    compared = ["evaluate", run, "--data", "visits.csv", "--columns", "columns.toml"]
    assert "--sample and --mode change nothing with --data" in tidelog(*compared, "--sample").err
    done = tidelog(*compared)
    assert "steps, most likely actions" in done.out
    assert done.code == 0
    assert "share of equal actions" in done.out
    one, log = tl.load_run(run), read_log("visits.csv", "columns.toml")
    equal = one.policy()(log.transitions.observation).codes == log.action
    held_out = np.isin(log.episode_ids, one.record.held_out)
    rows = np.repeat(held_out, np.diff(log.starts))
    assert 0 < rows.sum() < len(rows)
    text = " ".join(done.said.split())
    assert 0 < text.index(f"{held_out.sum()} held-out episodes") < text.index(f"{(~held_out).sum()} training episodes")
    found = json.loads(tidelog(*compared, "--json").out)
    assert [part["steps"] for part in found["parts"]] == [rows.sum(), (~rows).sum()]
    shares = [part["members"][0]["share of equal actions"] for part in found["parts"]]
    assert shares == pytest.approx([equal[rows].mean(), equal[~rows].mean()])
    assert found["members"] == found["parts"][0]["members"]
    # the same episodes in a log of its own: their fingerprints tell which were trained on
    pl.read_csv("visits.csv").filter(pl.col("patient").is_in(log.episode_ids[~held_out].tolist())).write_csv("old.csv")
    old = tidelog("evaluate", run, "--data", "old.csv", "--columns", "columns.toml")
    assert f"{(~held_out).sum()} training episodes: {(~rows).sum():,} steps" in " ".join(old.said.split())
    assert "all of these episodes were trained on" in old.said
    assert "held-out" not in old.said
    log.take_episodes(np.flatnonzero(held_out)).save("new")
    new = tidelog("evaluate", run, "--data", "new")
    assert f"{held_out.sum()} held-out episodes: {rows.sum():,} steps" in " ".join(new.said.split())
    assert "trained on" not in new.said


@pytest.mark.full
def test_several_runs_are_compared_on_the_same_episodes(here, run, tidelog):
    for name in ("one", "twin"):
        shutil.copytree(run, here / name)
    words = ["train", "bc", "--data", "visits.csv", "--columns", "columns.toml", "--steps", 2, "--out", "other", *SMALL]
    assert tidelog(*words).code == 0
    done = tidelog("evaluate", "one", "twin", "other", "--env", "treatment", "--episodes", 8, "--sample", "--json")
    assert done.code == 0, done.err
    found = json.loads(done.out)
    returns = {name: np.mean(found["runs"][name]["returns"], axis=0) for name in ("one", "twin", "other")}
    differences = {(one["one"], one["other"]): one for one in found["differences"]}
    assert set(differences) == {("one", "twin"), ("one", "other"), ("twin", "other")}
    same = differences["one", "twin"]
    assert (same["estimate"], same["low"], same["high"]) == (0.0, 0.0, 0.0), "the same policies, seeds and episodes"
    assert differences["one", "other"]["estimate"] == pytest.approx((returns["one"] - returns["other"]).mean())
    assert "no difference was shown between one and twin" in done.err
    assert (
        "over the same 8 episodes, started from the same seeds; the intervals hold for all 3 pairs at once" in done.err
    )
    logged = tidelog("evaluate", "one", "other", "--data", "visits.csv", "--columns", "columns.toml", "--json")
    (likely,) = [one for one in json.loads(logged.out)["differences"] if "log-probability" in one["measure"]]
    log, name = read_log("visits.csv", "columns.toml"), "mean log-probability of logged actions"
    runs = (tl.load_run("one"), tl.load_run("other"))
    unseen = log.take_episodes(
        np.flatnonzero(np.logical_and.reduce([np.isin(log.episode_ids, run.record.held_out) for run in runs]))
    )
    means = [np.mean([agreement(run.policy(seed), unseen)[name] for seed in run.record.options.seeds]) for run in runs]
    assert likely["estimate"] == pytest.approx(means[0] - means[1])
    assert likely["low"] < likely["estimate"] < likely["high"]
    assert "one has a higher mean log-probability of logged actions than other" in logged.err


@pytest.mark.full
def test_runs_that_act_in_different_ways_are_not_compared(here, run, tidelog):
    for name in ("mode", "sampled"):
        shutil.copytree(run, here / name)
    for seed in tl.load_run(run).record.options.seeds:
        policy = tl.load_run("sampled").policy(seed)
        policy.declare("sample", None)
        remember(here / "sampled", policy)
    refused = tidelog("evaluate", "mode", "sampled", "--env", "treatment", "--episodes", 2)
    assert refused.code == 2
    assert "the runs act in different ways (mode always takes its most likely action, sampled" in refused.err
    assert "fix: add --mode or --sample, for all of them" in refused.err
    shutil.copytree(run, here / "alike")
    assert tidelog("evaluate", "mode", "alike", "--env", "treatment", "--episodes", 2).code == 0


def test_act_writes_the_action_of_every_row(here, run, tidelog):
    done = tidelog("act", run, "--data", "visits.csv", "--out", "actions.csv")
    assert done.code == 0
    policy = tl.load_run(run).policy()
    wanted = act_on_table(policy, here / "visits.csv")
    assert pl.read_csv("actions.csv")["action"].to_list() == wanted["action"].to_list()
    assert done.out.splitlines() == [
        "no verdict: nobody has judged this policy in this way. fix: tidelog judge",
        "the policy always takes its most likely action",
        f"{len(wanted)} rows with their actions: actions.csv",
    ]
    policy.save("policy")
    assert tidelog("act", "policy", "--data", "visits.csv", "--out", "again.parquet").code == 0
    assert pl.read_parquet("again.parquet")["action"].to_list() == wanted["action"].to_list()
    assert tidelog("act", run, "--data", "visits.csv", "--out", "one.csv", "--member", 1).code == 0
    one = act_on_table(tl.load_run(run).policy(1), here / "visits.csv")
    assert pl.read_csv("one.csv")["action"].to_list() == one["action"].to_list()


def test_act_writes_the_actions_of_arrays(here, run, log, tidelog):
    np.savez("new.npz", **{f"observation/{name}": leaf for name, leaf in log.transitions.observation.items()})
    done = tidelog("act", run, "--data", "new.npz", "--out", "actions.npz")
    assert done.code == 0
    codes, last = done.out.splitlines()[-2:]
    assert last == f"{log.steps} rows with their actions: actions.npz"
    assert codes.startswith("note: actions are codes: 0 = high, 1 = high+support, ")
    with np.load("actions.npz", allow_pickle=False) as written:
        assert written["action"].tolist() == tl.load_run(run).policy().act(log.transitions.observation)[0].tolist()
    for words, said in (
        (("--out", "actions.csv"), "expected both to end in .npz"),
        (("--out", "actions.npz"), "actions.npz exists, nothing was written"),
        (("--out", "b.npz", "--data", "visits.csv"), "--data names several files: expected one .npz file"),
        (("--out", "b.npz", "--columns", "columns.toml"), "--columns has no effect on arrays"),
        (("--out", "b.npz", "--csv-safe"), "--csv-safe has no effect on arrays"),
    ):
        refused = tidelog("act", run, "--data", "new.npz", *words)
        assert (refused.code, said in refused.err) == (2, True), refused.err
    assert not (here / "b.npz").exists()


def test_collect_makes_a_log_by_chance_or_by_a_run(here, run, log, tidelog):
    done = tidelog("collect", "--env", "treatment", "--episodes", 30, "--out", "random")
    assert done.code == 0
    assert done.out.startswith(f"{log.steps} steps in 30 episodes, mean return ")
    assert tl.Log.load("random").fingerprint() == log.fingerprint()
    assert tidelog("collect", "--env", "treatment", "--steps", 20, "--policy", run, "--out", "made").code == 0
    made = tl.Log.load("made")
    assert made.steps >= 20
    assert made.spec.action.names == log.spec.action.names
    assert made.propensity is not None
    words = ["--env", "treatment", "--episodes", 4, "--policy", run, "--mode", "--out", "mode"]
    assert tidelog("collect", *words).code == 0
    np.testing.assert_array_equal(tl.Log.load("mode").propensity, 1.0)


@pytest.mark.full
def test_the_demo_tells_its_story(here, tidelog):
    words = ["--patients", 60, "--steps", 3, "--seeds", 1, "--episodes", 20, "--out", "quiet", "--quiet"]
    quiet = tidelog("demo", *words)
    assert (quiet.code, quiet.err) == (0, "")
    assert [line.split(":")[0] for line in quiet.out.splitlines()] == [
        "iql, seed 0", "bc, seed 0", "policy", "report"]  # fmt: skip
    done = tidelog("demo", *words[:-2], "json", "--json")
    (low, high), *_ = re.findall(r"iql \(1 seed\).*?([\d.]+) to ([\d.]+)", done.err)
    assert float(low) < float(high), "the interval of one seed is over its patients"
    facts = json.loads(done.out)
    assert [one["name"] for one in facts["policies"]] == ["iql, seed 0", "bc, seed 0"]
    assert Path(facts["policy"]).exists()
    assert (here / "quiet" / "policy").exists()
    done = tidelog("demo", "--patients", 60, "--steps", 3, "--seeds", 2, "--episodes", 20, "--out", "demo")
    assert done.code == 0, done.err
    assert "iql (2 seeds)" in done.out
    assert "0.792" in done.out, "the best possible share, known exactly"
    assert {path.name for path in (here / "demo").iterdir()} == {
        "treatment.csv", "columns.toml", "iql", "bc", "policy", "report.html",
    }  # fmt: skip
    assert "of 4 intervals" in done.out
    assert len(list((here / "demo" / "iql" / "verdicts").iterdir())) == 2
    assert tl.load_policy(here / "demo" / "policy").spec.action.n == 6
    assert tidelog("log", "check", "--data", "demo/treatment.csv", "--columns", "demo/columns.toml").code == 0


def test_settings_come_from_a_file_and_flags_win(here, tidelog):
    config = ["steps = 6", "eval_every = 3", "seeds = 2", "hidden = [4, 4]", "learning-rate = 0.5", "batch_size = 8"]
    (here / "run.toml").write_text("\n".join([*config, 'data = "visits.csv"', 'columns = "columns.toml"']))
    words = ["train", "bc", "--config", "run.toml", "--out", "run"]
    done = tidelog(*words, "--seeds", 1, "--hidden", 8, 8)
    assert done.code == 0, done.said
    content = json.loads((here / "run" / "run.json").read_text())
    assert content["options"]["steps"] == 6
    assert content["options"]["seeds"] == [0]
    (config,) = content["configs"]
    assert config["learning_rate"] == 0.5
    assert config["batch_size"] == 8
    assert config["hidden"] == [8, 8]


@pytest.mark.sample("words0--0.9-10.0")
@pytest.mark.parametrize(("words", "config", "expectile", "temperature"), [
    (["--preset", "antmaze"], "", 0.9, 10.0), (["--preset=antmaze", "--temperature", "1"], "", 0.9, 1.0),
    ([], 'preset = "antmaze"\nexpectile = 0.6', 0.6, 10.0), (["--preset", "adroit"], 'preset = "antmaze"', 0.7, 0.5),
])  # fmt: skip
def test_presets_are_where_flags_and_files_start_from(words, config, expectile, temperature, here, tidelog):
    (here / "run.toml").write_text(config)
    every = ["--steps", 1, "--dropout", "None", "--reward-scaling", "none", "--config", "run.toml", *SMALL]
    assert tidelog("train", "iql", *DATA, "--out", "run", *every, *words).code == 0
    (found,) = json.loads((here / "run" / "run.json").read_text())["configs"]
    assert (found["expectile"], found["temperature"]) == (expectile, temperature)


def test_settings_follow_the_log_and_the_reasons_are_printed(here, tidelog):
    done = tidelog("train", "bc", *DATA, "--out", "run", "--steps", 3, "--batch-size", 16)
    assert done.code == 0, done.said
    (found,) = json.loads((here / "run" / "run.json").read_text())["configs"]
    assert (found["hidden"], found["learning_rate"]) == ([64, 64], 1e-3)
    said = done.out.splitlines()
    at = said.index("settings that follow the log (--preset none leaves the defaults):")
    assert said[at + 1].startswith("  held_out 0.5: 15 of 30 episodes judge what is learnt from the others")
    assert said[at + 2].startswith("  learning_rate 0.001: fewer than 100,000 decisions")
    assert said[at + 3].startswith("  hidden 64x64: ")
    assert not any(line.startswith("  steps") for line in said), "a flag decides it"


def test_training_says_how_many_episodes_have_an_unknown_reward(here, table, tidelog):
    known = pl.when(pl.col("patient") != 3).then("recovered")
    table.with_columns(recovered=known).write_csv("visits.csv")
    Path("columns.toml").write_text(MAPPING + 'missing_reward = "unknown"\n')
    done = tidelog("train", "iql", *DATA, "--steps", 2, "--held-out", 0, "--out", "run", *SMALL)
    assert done.code == 0, done.err
    assert "1 of 30 episodes have an unknown reward: training leaves them out" in done.said


def test_without_a_preset_the_defaults_are_those_of_the_algorithm(here, tidelog):
    done = tidelog("train", "bc", *DATA, "--out", "run", "--steps", 1, "--preset", "none")
    assert done.code == 0, done.said
    (found,) = json.loads((here / "run" / "run.json").read_text())["configs"]
    assert (found["hidden"], found["learning_rate"]) == ([256, 256], 3e-4)
    assert "follow the log" not in done.out


@pytest.mark.full
def test_the_papers_settings_stand_where_a_preset_is_refused_or_does_not_fit(here, tidelog):
    small = ["--env", "treatment", "--steps", 128, "--hidden", 8, "--num-envs", 4, "--rollout-steps", 16]
    small += ["--policy-iterations", 2]
    plain = tidelog(
        "train", "ppg", *small, "--minibatches", 4, "--auxiliary-minibatch", 8, "--preset", "none", "--out", "plain"
    )
    assert (plain.code, "settings of" in plain.said) == (0, False), plain.said
    (found,) = json.loads((here / "plain" / "run.json").read_text())["configs"]
    assert found["learning_rate"] == PPG().learning_rate

    other = tidelog(
        "train", "ppg", *small, "--minibatches", 8, "--num-chunks", 2, "--rollout-steps", 16, "--out", "other"
    )
    assert (other.code, "settings of the preset" in other.said) == (0, True), other.said
    words = ["--env", "point-mass", "--steps", 64, "--num-envs", 4, "--rollout-steps", 16, "--policy-iterations", 2]
    words += ["--minibatches", 4, "--auxiliary-minibatch", 8, "--out", "unfit"]
    unfit = tidelog("train", "ppg", *words)
    assert unfit.code == 0, unfit.said
    assert "the paper's settings are used: the flags do not fit the preset mujoco" in unfit.said
    assert "num_chunks = 512 does not divide rollout_steps = 16" in unfit.said

    assert tidelog("train", "ppg", *small, "--out", "run").code == 0
    again = tidelog("train", "ppg", "--config", "run/run.toml", "--out", "again")  # nothing follows again
    assert (again.code, "settings of" in again.said) == (0, False), again.said
    first, second = (json.loads((here / name / "run.json").read_text())["configs"] for name in ("run", "again"))
    assert first == second


def test_refit_learns_from_the_whole_log_and_from_newer_rows(run, here, table, tidelog):
    done = tidelog("train", "--like", run, "--out", here / "final", "--member", 1)
    assert done.code == 0, done.said
    assert "a refit: it learnt from the whole log" in done.said
    assert "next: tidelog judge" in done.out
    assert "--data OTHER_LOG" in done.out
    acted = tidelog("act", here / "final", "--data", here / "visits.csv", "--out", here / "actions.csv")
    assert "No verdict is on the refit itself" in acted.said
    table.with_columns(pl.col("patient") + 1000).write_csv(here / "newer.csv")
    newer = tidelog("train", "--like", run, "--data", here / "newer.csv", "--out", here / "newer", "--json")
    facts = json.loads(newer.out)
    assert (newer.code, facts["done"], facts["finished"]) == (0, 42, True)
    content = json.loads((here / "newer" / "run.json").read_text())
    assert content["data"]["origin"]["source"] == str(here / "newer.csv")
    assert content["held_out_episodes"] == []
    table.rename({"strain": "load"}).write_csv(here / "other.csv")
    refused = tidelog("train", "--like", run, "--data", here / "other.csv", "--out", here / "other")
    assert refused.code == 2
    assert "strain" in refused.said
    assert not (here / "other").exists()


def test_episodes_are_grouped_by_what_every_run_knows_of_them(log):
    run = tl.fit(bc(), log, 2, held_out=0.4, best_metric=LOSS, selection_share=0.5, train=False)
    left = np.isin(log.episode_ids, run.record.held_out)
    selected = np.isin(np.arange(len(log.episode_ids)), EpisodeSplit(log, 0.4, 0, 0.5)._validation)
    assert left.sum() == selected.sum() == 6
    newer = log.take_episodes(np.arange(len(left)))  # the same episodes under another fingerprint
    newer = dataclasses.replace(newer, extra={"site": np.zeros(log.steps)})
    assert newer.fingerprint() != log.fingerprint()
    record = run.record
    found = _parts(newer, [record])
    assert list(found) == ["held-out episodes", "training and selection episodes"]
    np.testing.assert_array_equal(found["held-out episodes"], left)
    unknown = SimpleNamespace(options=record.options, sketches={}, data=record.data, held_out=record.held_out)
    found = _parts(newer, [unknown, record])
    assert list(found) == ["other episodes", "training and selection episodes"]
    np.testing.assert_array_equal(found["other episodes"], left)
