"""`train` and `judge` judge all that could be deployed; `act`, `export` and `serve` take a simple rule."""

import json
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import call
from tests.shared import shared
from tidelog import runtime
from tidelog.cli import judge
from tidelog.ope import rules

COLUMNS = """\
observation = ["age", "village"]
categorical = ["village"]
action = "treatment"
reward = "recovered"
terminated = true
propensity = "p"
"""
WORDS = np.asarray(["east", "north", "west"])
TREATMENTS = np.asarray(["A", "B", "C"])
SMALL = ["--hidden", 8, "--steps", 60, "--preset", "none", "--quiet"]
QUICK = ["--replicates", 1000, "--model", "tabular"]


def rows(count, seed=0, effect=0.6):
    """A randomised trial of three treatments: A is best for the young, B in the north, C elsewhere."""
    generator = np.random.default_rng(seed)
    age, village = 10 * generator.integers(2, 7, count), generator.integers(0, 3, count)
    action = generator.integers(0, 3, count)
    best = np.where(age < 40, 0, np.where(village == 1, 1, 2))
    recovered = (generator.random(count) < 0.2 + effect * (action == best)).astype(int)
    return pl.DataFrame({
        "age": age, "village": WORDS[village], "treatment": TREATMENTS[action], "recovered": recovered,
        "p": np.full(count, 1 / 3),
    })  # fmt: skip


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A table, its mapping, and a run that `train` judged."""
    folder = tmp_path_factory.mktemp("trial")
    rows(2_000).write_csv(folder / "trial.csv")
    (folder / "columns.toml").write_text(COLUMNS)
    words = ["--data", folder / "trial.csv", "--columns", folder / "columns.toml", "--held-out", 0.3]
    assert call("train", "bc", *words, *SMALL, "--out", folder / "run", "--judge") == 0
    return folder


@pytest.fixture
def here(folder, monkeypatch):
    monkeypatch.chdir(folder)
    return folder


def table(words, tidelog):
    done = tidelog("judge", *words, *QUICK, "--json")
    assert done.code == 0, done.said
    return json.loads(done.out), done.err


def test_train_judges_every_way_and_the_rules_and_judge_is_the_same_look(here, tidelog):
    assert {path.name.rpartition("-")[0] for path in (here / "run" / "verdicts").iterdir()} >= {
        "policy-deterministic", "policy-sampled", "best-single-action", "small-rule",
    }  # fmt: skip
    assert sorted(path.name for path in (here / "run" / "rules").iterdir()) == ["constant.json", "tree.json"]
    again = tidelog("judge", "run")
    assert "Use small rule (if age < 40: A; else if village is north: B; else C): it is better than" in again.said
    assert "4 policies judged at once" in again.said
    assert "judged once before" not in again.said, "the look of the training's end"
    assert "\nbest single action: always " in again.out
    assert "next: tidelog export run --rule tree" in again.out
    part = json.loads(tidelog("judge", "run", "--mode", "--json").out)
    whole = json.loads(tidelog("judge", "run", "--json").out)
    assert part["difference"] == whole["verdicts"]["likeliest actions"]["difference"]
    shown = tidelog("judge", "run", "--looks").said
    assert "1 look(s)" in shown
    assert "4 policies" in shown or "several" in shown


def test_training_ends_with_what_to_do(here, tidelog):
    words = ["train", "bc", "--data", "trial.csv", "--columns", "columns.toml", *SMALL[:-1], "--overwrite"]
    done = tidelog(*words, "--out", "told", "--judge")
    assert done.code == 0, done.err
    said = done.out
    assert (
        said.index("run folder: told")
        < said.index("Use small rule (if age < 40")
        < said.index("then: tidelog act told --rule tree --data NEW_ROWS.csv")
    )
    assert "next: tidelog judge" not in said
    facts = json.loads(tidelog(*words, "--out", "told", "--judge", "--json").out)
    assert facts["judged"]["recommended"] == "small rule"
    assert "verdicts" not in facts["judged"]
    alone = tidelog(*words, "--out", "told", "--no-judge")
    assert "next: tidelog judge told" in alone.out
    assert "judged" not in json.loads(tidelog(*words, "--out", "told", "--no-judge", "--json").out)
    none = tidelog(*words, "--out", "told", "--held-out", 0, "--judge")
    assert "next: tidelog judge told --data OTHER_LOG" in none.out, "without held-out episodes there is no verdict"


@pytest.mark.full
@pytest.mark.parametrize(
    ("table", "mapping", "rule"),
    [
        pytest.param("uplift.csv", "uplift.toml", None, marks=pytest.mark.slow),
        pytest.param("reward_offset.csv", "reward_offset.toml", "always compact", marks=pytest.mark.slow),
        ("reward_offset.csv", "reward_offset_z.toml", "always compact"),
    ],
)
def test_trials_where_one_action_is_better_for_everybody_are_not_kept_as_they_are(
    table, mapping, rule, tidelog, tmp_path, monkeypatch
):
    """The judge's estimates were right where the learner's defaults lost the value: a rule stands beside them."""
    monkeypatch.chdir(tmp_path)
    words = ["--data", shared(f"cases/learn/{table}"), "--columns", shared(f"cases/learn/{mapping}")]
    done = tidelog("train", "iql", *words, "--held-out", 0.5, "--out", "run", "--judge", "--json")
    assert done.code == 0, done.err
    judged = json.loads(done.out)["judged"]
    assert judged["recommended"] is not None
    assert judged["better"]
    if rule is not None:
        assert json.loads((tmp_path / "run" / "rules" / "constant.json").read_text())["sentence"] == rule


def test_a_run_that_cannot_be_judged_is_trained_all_the_same(here, tidelog, monkeypatch):
    def refuse(options):
        raise tl.errors.MemoryLimitError("judging needs more memory. fix: free memory")

    monkeypatch.setattr(judge, "judge_and_show", refuse)
    words = ["--data", "trial.csv", "--columns", "columns.toml", *SMALL, "--out", "whole", "--overwrite", "--judge"]
    done = tidelog("train", "bc", *words)
    assert done.code == 0
    assert "note: the run was not judged: judging needs more memory" in done.err
    assert "`tidelog judge whole --quiet` judges it" in done.err
    told = tidelog("train", "bc", *(word for word in words if word != "--quiet")).out
    assert "\nto test the policy beside what you have: tidelog act whole --data NEW_ROWS.csv" in told


def test_the_best_way_is_declared_and_the_gate_is_about_the_policy(here, tidelog):
    content, _ = table(["run"], tidelog)
    assert content["recommended"] == "small rule"
    decisions = {name: one["decision"] for name, one in content["verdicts"].items()}
    assert decisions["small rule"] == "better"
    policy = tl.load_run("run").policy()
    ways = {"mode": "likeliest actions", "sample": "sampled actions"}
    carried = policy.verdict
    assert carried["decision"] == decisions[ways[policy.acting]]
    best = max(("worse", "no difference shown", "better").index(decisions[one]) for one in ways.values()
               if decisions[one] != "unsupported")  # fmt: skip
    assert carried["decision"] == ("worse", "no difference shown", "better")[best]
    code = tidelog("judge", "run", *QUICK, "--gate").code
    assert code == (0 if carried["decision"] == "better" else 3)
    assert carried["decision"] != "better", "as the next line needs it"


def test_two_runs_share_their_rules_and_runs_of_other_episodes_do_not(here, tidelog):
    words = ["train", "bc", "--data", "trial.csv", "--columns", "columns.toml", *SMALL, "--overwrite", "--no-judge"]
    assert tidelog(*words, "--held-out", 0.3, "--out", "twin").code == 0
    content, _ = table(["run", "twin"], tidelog)
    assert list(content["verdicts"]) == [
        "run: likeliest actions", "run: sampled actions",
        "twin: likeliest actions", "twin: sampled actions", "best single action", "small rule",
    ]  # fmt: skip
    rows(1_500, seed=9).write_csv("other.csv")
    assert tidelog(*words, "--held-out", 0.2, "--out", "half").code == 0
    content, _ = table(["run", "half", "--data", "other.csv", "--columns", "columns.toml"], tidelog)
    assert list(content["verdicts"])[4:] == [
        "run: best single action", "run: small rule", "half: best single action", "half: small rule",
    ]  # fmt: skip


def test_the_rules_of_a_run_are_learnt_once_and_are_the_same_each_time(here, tidelog, monkeypatch):
    stored = {path.name: path.read_text() for path in (here / "run" / "rules").iterdir()}
    calls, learn = [], tl.simple_rules
    monkeypatch.setattr(rules, "simple_rules", lambda *how, **more: calls.append(how) or learn(*how, **more))
    assert tidelog("judge", "run", *QUICK).code == 0
    assert calls == []
    record = rules.Record.read(here / "run")
    for path in (here / "run" / "rules").iterdir():
        path.unlink()
    (here / "run" / "rules").rmdir()
    rules.rules_of_run(here / "run", record)
    assert len(calls) == 1
    assert calls[0][0].steps == 1_400, "the training episodes alone"
    assert {path.name: path.read_text() for path in (here / "run" / "rules").iterdir()} == stored


def test_a_run_whose_log_is_gone_is_judged_without_rules(tmp_path, tidelog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows(600).write_csv("trial.csv")
    (tmp_path / "columns.toml").write_text(COLUMNS)
    log = tl.read_log("trial.csv", "columns.toml")
    log.save("log")
    words = ["--data", "log", *SMALL, "--out", "run", "--no-judge"]
    assert tidelog("train", "bc", *words).code == 0
    rows(600, seed=4).write_csv("later.csv")
    tl.read_log("later.csv", "columns.toml").save("later")
    (tmp_path / "log").rename(tmp_path / "gone")
    done = tidelog("judge", "run", "--data", "later", *QUICK)
    assert done.code == 0, done.err
    assert "note: no simple rules stand beside run: " in done.out
    assert "2 policies judged at once" in done.said


def test_act_export_and_runtimes_take_the_rule(here, tidelog):
    assert tidelog("act", "run", "--data", "trial.csv", "--rule", "--out", "acted.csv", "--overwrite").code == 0
    frame = pl.read_csv("acted.csv")
    young, north = frame["age"] < 40, frame["village"] == "north"
    expected = np.where(young, "A", np.where(north, "B", "C"))
    assert (frame["action"].to_numpy() == expected).all()
    done = tidelog("export", "run", "--rule", "--out", "rule.json", "--overwrite")
    assert (done.code, "small rule: if age < 40" in done.out, "Use it: it is better" in done.said) == (0, True, True)
    for one in (runtime.load("rule.json"), tl.load_policy("rule.json")):
        assert (one(frame).labels == expected).all()
        assert one.verdict["decision"] == "better"
    other = frame.head(4).with_columns(village=pl.lit("south"), age=pl.lit(50)).drop("action")
    other.write_csv("south.csv")
    assert tidelog("act", "rule.json", "--data", "south.csv", "--out", "acted.csv", "--overwrite").code == 0
    assert set(pl.read_csv("acted.csv")["action"]) == {"C"}
    words = ["act", "rule.json", "--data", "south.csv", "--out", "acted.csv", "--overwrite", "--skip-unknown", "no.csv"]
    assert tidelog(*words).code == 0, "an other word is read"
    (here / "no.csv").unlink()
    other.with_columns(age=pl.lit(None)).write_csv("south.csv")
    assert "column 'age' is empty" in tidelog("act", "rule.json", "--data", "south.csv", "--out", "b.csv").said
    done = tidelog("act", "run", "--rule", "constant", "--data", "trial.csv", "--out", "acted.csv", "--overwrite")
    assert (done.code, pl.read_csv("acted.csv")["action"].n_unique()) == (0, 1)
    judged = tidelog(
        "judge", "rule.json", "--data", "trial.csv", "--columns", "columns.toml", "--ledger", "off", *QUICK
    )
    assert "the policy learnt from" in judged.said, "a rule carries what it learnt from"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["export", "run", "--rule", "--to", "zip"], "--to zip has no effect on a rule"),
        (["export", "run", "--rule", "--sample"], "--sample has no effect on a rule"),
        (["export", "run", "--rule", "--out", "rule.zip"], "expected a path that ends in .json"),
        (["export", "run", "--rule", "--out", "columns.toml"], "expected a path that ends in .json"),
        (["act", "run", "--rule", "--sample", "--data", "trial.csv", "--out", "x.csv"], "--rule has no members"),
        (["act", "trial.csv", "--rule", "--data", "trial.csv", "--out", "x.csv"], "is not a run folder"),
        (["export", "run", "--rule=deep"], "invalid choice"),
    ],
)
def test_refusals_of_a_rule(here, tidelog, words, message):
    done = tidelog(*words)
    assert done.code == 2
    assert message in done.said
    assert not (here / "x.csv").exists()


def test_a_rule_is_not_written_over_another_file(here, tidelog):
    (here / "own.json").write_text("{}")
    done = tidelog("export", "run", "--rule", "--out", "own.json", "--overwrite")
    assert (done.code, (here / "own.json").read_text()) == (2, "{}")


def test_continuous_actions_are_sampled_where_nobody_declared_a_way(tmp_path, tidelog, monkeypatch):
    monkeypatch.chdir(tmp_path)
    generator = np.random.default_rng(0)
    seen, action = generator.standard_normal((150, 1)), generator.uniform(-1, 1, (150, 1))
    tl.Log.from_arrays(
        observation=seen.astype(np.float32), action=action.astype(np.float32), terminated=np.ones(150, bool),
        reward=(1 - np.abs(action - np.tanh(seen))[:, 0]).astype(np.float32), propensity=np.full(150, 0.5),
        bounds=((-1.0,), (1.0,)),
    ).save("log")  # fmt: skip
    words = ["--data", "log", "--hidden", 8, "--steps", 60, "--preset", "none", "--quiet", "--out", "run", "--no-judge"]
    assert tidelog("train", "iql", *words).code == 0
    done = tidelog("judge", "run", "--replicates", 1000, "--json")
    assert done.code == 0, done.err
    content = json.loads(done.out)
    assert content["context"]["sample"] is True
    assert not (tmp_path / "run" / "rules").exists()


@pytest.mark.parametrize(("verdicts", "words"), [
    ({"recommended": "b: member-2"}, "runs/b --member 2"),
    ({"recommended": "a", "safest": "b: member-2"}, "runs/a"),
    ({"safest": "b: member-2", "decision": "better if randomised"}, "runs/b/verdicts/policy-1.policy"),
    ({"safest": "b: member-2", "part": None, "decision": "unsupported"}, None),
    ({"decision": "better if randomised"}, "runs/a"),
    ({"decision": "no difference shown"}, None),
])  # fmt: skip
def test_what_the_verdicts_say_to_use_is_what_the_next_command_names(verdicts, words):
    runs = [SimpleNamespace(name=name, run=Path("runs", name[0]), short=name.partition(": ")[2], policy=None)
            for name in ("a", "b: member-2")]  # fmt: skip
    row = SimpleNamespace(name="a", decision=verdicts.get("decision", "better"))

    class Result(list):
        recommended, safest, answer = verdicts.get("recommended"), verdicts.get("safest"), SimpleNamespace(row=row)

    parts = [SimpleNamespace(safe_policy=part) for part in (None, verdicts.get("part", "a policy"))]
    assert judge._words_to_use(Result(parts), runs, [one.run / "verdicts" / "policy-1.json" for one in runs]) == words
