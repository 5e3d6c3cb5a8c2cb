"""`tidelog judge`: on which episodes, what it says, what it keeps, and how a gate closes."""

import dataclasses
import json
import re
import shlex
import shutil

import numpy as np
import polars as pl
import pytest

import tidelog as tl
from tests.cli.conftest import SMALL
from tests.ope.cases import best_treatments, mostly, treated
from tests.ope.made import evidence_of
from tests.report.crafted import verdict as crafted
from tests.training.runs import write_record
from tidelog.cli.judge import _export_command, _NamedPolicy, _show
from tidelog.data.statistics import Sketch
from tidelog.ope import rules
from tidelog.ope.risk import risk_of
from tidelog.ope.verdict import Verdicts
from tidelog.policies.statistics import Interval


@pytest.fixture(scope="session")
def kept_log(tmp_path_factory):
    """A saved log that lets one see a difference."""
    folder = tmp_path_factory.mktemp("judged") / "log"
    treated(mostly(best_treatments(), 0.5), 120).save(folder)
    return folder


@pytest.fixture(scope="session")
def trained(kept_log):
    """A run of two members that held half of that log out."""
    folder = kept_log.parent / "run"
    log = tl.Log.load(kept_log)
    algorithm = tl.BC(hidden=(8, 8), embedding=2, batch_size=32)
    tl.fit(algorithm, log, 20, 2, folder, held_out=0.5, eval_every=10, progress=False)
    rules.rules_of_run(folder, rules.Record.read(folder))  # every verdict on a copy reads them
    return folder


@pytest.fixture
def run(trained, kept_log, tmp_path):
    """A copy of that run of one's own, without verdicts, and a log that nobody has looked at."""
    (kept_log / "looks.jsonl").unlink(missing_ok=True)
    shutil.copytree(trained, tmp_path / "run", ignore=shutil.ignore_patterns("verdicts"))
    return tmp_path / "run"


QUICK = ["--replicates", 1000, "--model", "tabular"]


@pytest.mark.full
def test_the_first_steps_that_a_verdict_names_can_be_judged_where_long_stays_carry_the_weight(
    tidelog, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    visits = np.where(np.arange(800) % 133 == 17, 20, 1 + (np.arange(800) % 3 > 0))
    rows, stays = int(visits.sum()), np.repeat(visits == 20, visits)
    ill, equal = rng.integers(0, 2, rows), rng.random(rows) < np.where(stays, 1.0, 0.6)
    pl.DataFrame({
        "patient": np.repeat(np.arange(800), visits), "visit": np.concatenate([np.arange(one) for one in visits]),
        "ill": np.asarray(["no", "yes"])[ill], "treatment": np.asarray(["wait", "treat"])[ill ^ ~equal],
        "propensity": np.where(equal, 0.6, 0.4), "reward": 1.0 * equal,
    }).write_csv("visits.csv")  # fmt: skip
    assert tidelog("log", "inspect", "--data", "visits.csv", "--write", "columns.toml").code == 0
    small = ["--steps", 150, "--hidden", 16, "--out", "run", "--held-out", 0.5]
    assert tidelog("train", "bc", "--data", "visits.csv", "--columns", "columns.toml", *small).code == 0
    whole = tidelog("judge", "run", "--mode", *QUICK).said
    assert "policy: UNSUPPORTED" in whole
    assert "with 20 decisions" in whole.replace(" and ", " with ")
    (first,) = re.findall(r"first_steps=(\d), --first-steps \1\)", whole)
    followed = tidelog("judge", "run", "--mode", "--first-steps", first, *QUICK)
    assert "policy: BETTER" in followed.said
    assert f"use it for the first {first} decisions of an episode only" in followed.said.lower()


def test_a_run_is_judged_by_propensities_from_a_file_about_its_whole_log(run, kept_log, tidelog, tmp_path):
    tl.Log.load(kept_log).to_parquet(tmp_path / "log.parquet")
    file = tmp_path / "p.csv"
    pl.read_parquet(tmp_path / "log.parquet").select("episode", "step", "propensity").write_csv(file)
    done = tidelog("judge", run, "--member", 0, "--sample", "--propensities", file, *QUICK)
    assert done.code == 0, done.err
    assert f"the probabilities of the recorded decisions were read from {file}, as recorded; " in done.said
    content = json.loads((run / "verdicts" / "member-0-sampled-1.json").read_text())
    assert content["context"]["propensities_file"]["file"] == str(file)
    done = tidelog("judge", run, "--propensities", "tree", *QUICK)
    assert (done.code, "did you mean 'trees'?" in done.said) == (2, True)


def test_a_run_is_judged_on_what_it_held_out(run, tidelog):
    done = tidelog("judge", run, "--sample", *QUICK)
    assert done.code == 0, done.err
    assert done.out.split("\n")[1].startswith("member-0: ")
    assert "judged on the 60 episodes that the run held out of its own log" in done.out
    content = json.loads((run / "verdicts" / "member-0-sampled-1.json").read_text())
    assert content["context"]["overlap"]["learnt_from"] == {
        "share": 0.0, "known": 60, "shared": 0, "exact": True, "chance": 0.0
    }  # fmt: skip
    assert content["context"]["judged_before"] == 0
    assert content["context"]["sample"] is True
    assert content["episodes"] == 60
    assert done.out.split("\n")[0] == content["advice"]
    for reason in content["reasons"]:
        assert done.out.lower().count(reason.lower()) == 1, "each reason is said once"
    assert ("wdr decides" in done.said) == (content["decision"] != "unsupported")
    again = tidelog("judge", run, "--mode", *QUICK)
    assert "judged once before, with one policy: the interval is 1.4 times as long as at a first look" in again.said
    kept = json.loads((run / "verdicts" / "member-0-deterministic-1.json").read_text())
    assert kept["context"]["judged_before"] == 1
    assert tidelog("judge", run, "--sample", *QUICK).code == 0
    same = json.loads((run / "verdicts" / "member-0-sampled-2.json").read_text())
    assert {**same["context"], "date": None} == {**content["context"], "date": None}, "the same look again"
    assert same["difference"] == content["difference"]


def test_groups_are_printed_as_a_table_and_saved(run, tidelog):
    wrong = tidelog("judge", run, "--sample", "--by", "categoricl", *QUICK)
    assert (wrong.code, "did you mean 'categorical'?" in wrong.err) == (2, True)
    loose = ["--effective-episodes", 1, "--largest-weight", 1, "--mean-weight-errors", 99, "--pareto-k", 99]
    done = tidelog("judge", run, "--sample", "--by", "categorical", *QUICK, *loose, "--unsupported-mass", 1)
    assert done.code == 0, done.err
    assert "differences from the behaviour policy by 'categorical', simultaneous" in " ".join(done.out.split())
    content = json.loads((run / "verdicts" / "member-0-sampled-1.json").read_text())
    assert content["context"]["by"] == "categorical"
    assert sum(one["episodes"] for one in content["groups"]) == 60
    assert all(one["name"] in done.out for one in content["groups"])
    both = tidelog("judge", run, "--by", "categorical", *QUICK)
    assert "by 'categorical'" in " ".join(both.out.split())
    assert "cannot tell" in both.out


def test_another_log_is_taken_whole(run, tmp_path, tidelog):
    treated(mostly(best_treatments(), 0.5), 90, seed=5).save(tmp_path / "other")
    done = tidelog("judge", run, "--data", tmp_path / "other", "--member", 1, "--mode", "--seed", 3, *QUICK)
    assert done.code == 0, done.err
    assert "\nmember-1: " in done.out
    assert "judged on all 90 episodes of the log" in done.out
    content = json.loads((run / "verdicts" / "member-1-deterministic-1.json").read_text())
    assert content["context"]["seed"] == 3
    assert content["context"]["source"] == str(tmp_path / "other")


def test_the_command_after_a_choice_names_the_member(tmp_path):
    run = tmp_path / "the run"
    member = _NamedPolicy(f"{run}: member-7", "member-7", run, None, None)
    assert shlex.split(_export_command(member)) == ["tidelog", "export", str(run), "--member", "7", "--to", "zip"]
    saved = _NamedPolicy("policies/a", "a", None, None, None)
    assert _export_command(saved) == "tidelog export policies/a --to zip"


def test_all_members_are_judged_at_once(run, tmp_path, tidelog):
    done = tidelog("judge", run, "--all-members", "--sample", "--out", tmp_path / "all.json", *QUICK)
    assert done.code == 0, done.err
    assert {path.name for path in (run / "verdicts").iterdir()} == {f"member-{i}-sampled-1.json" for i in range(2)}
    assert "2 policies judged at once: differences from the behaviour policy" in done.said
    assert done.out.count("95% interval") == 1, "one table, and the details on request"
    whole = json.loads((tmp_path / "all.json").read_text())
    one = json.loads((run / "verdicts" / "member-1-sampled-1.json").read_text())
    assert whole["verdicts"]["member-1"] == one
    assert done.out.split("\n")[0] == whole["advice"] == one["context"]["together"]["advice"]
    assert whole["recommended"] is None
    assert ", of which the log shows most: " in done.out
    table = done.out[done.out.rindex("└") :].split("\n")[1:-1]
    assert len(table) <= 5, "the rest is printed with --details"
    assert next(line for line in done.out.split("\n") if line.startswith("Next: ")) in [
        verdict["paragraph"][verdict["paragraph"].index("Next: ") :] for verdict in whole["verdicts"].values()
    ]
    details = tidelog("judge", run, "--all-members", "--sample", "--details", *QUICK)
    assert "\nmember-0: " in details.out
    assert all(reason in details.out for reason in one["reasons"])
    assert [row["name"] for row in one["context"]["together"]["rows"]] == ["member-0", "member-1"]
    assert one["context"]["judged_before"] == 0
    after = tidelog("judge", run, "--sample", *QUICK)
    assert "2 policies were judged together" in after.said, "one of the table is the same look"
    assert "judged once before" not in after.said
    assert "judged once before, with 2 policies" in tidelog("judge", run, "--mode", *QUICK).said


def test_several_runs_and_saved_policies_are_judged_on_the_same_episodes(run, kept_log, tmp_path, tidelog):
    shutil.copytree(run, tmp_path / "twin")
    done = tidelog("judge", run, tmp_path / "twin", "--sample", *QUICK)
    assert done.code == 0, done.err
    assert f"{run}: member-0" in done.out.replace("\n", "") or "2 policies judged at once" in done.out
    assert "judged on the 60 episodes that the run held out" in done.out
    for folder in (run, tmp_path / "twin"):
        content = json.loads((folder / "verdicts" / "member-0-sampled-1.json").read_text())
        assert content["context"]["name"] == f"{folder}: member-0"
        assert (folder / "looks.jsonl").exists()
    tl.load_run(run).policy(1).save(tmp_path / "policy")
    words = ["judge", run, tmp_path / "policy", "--data", kept_log, "--sample", *QUICK]
    assert "judged on the 60 episodes that the run held out" in tidelog(*words).out
    record = json.loads((run / "run.json").read_text())
    write_record(run, {**record, "held_out_episodes": record["held_out_episodes"][:-1]})
    done = tidelog("judge", run, tmp_path / "twin")
    assert (done.code, "these runs held out different episodes" in done.said) == (2, True)
    done = tidelog("judge", run, run)
    assert (done.code, "appears twice" in done.said) == (2, True)


def test_looks_are_shown_and_counted_in_a_file_of_ones_choice(run, tmp_path, tidelog):
    done = tidelog("judge", run, "--looks")
    assert (done.code, "0 look(s) at the 60 episodes that the run held out" in done.said) == (0, True)
    file = tmp_path / "my-looks.jsonl"
    for member in (0, 1):
        assert tidelog("judge", run, "--member", member, "--ledger", file, *QUICK).code == 0
    assert not (run / "looks.jsonl").exists()
    shown = tidelog("judge", run, "--looks", "--ledger", file).said
    assert "2 look(s)" in shown
    assert shown.count("several") == 2, "both ways of acting and the simple rules"
    assert "100%" in shown
    done = tidelog("judge", run, "--ledger", "off", *QUICK)
    assert "note: earlier verdicts on these episodes were not counted" in done.said
    done = tidelog("judge", run, "--ledger", "off", "--mode", *QUICK)
    assert "judged before is unknown (ledger=False)" in done.said
    assert tidelog("judge", run, "--looks").said.startswith("0 look(s)")


def test_looks_of_one_run_are_known_to_another(run, tmp_path, tidelog):
    """A sweep leaves many runs with the same held-out episodes: the user's state folder knows of all of them."""
    shutil.copytree(run, tmp_path / "twin")
    tidelog("judge", run, "--member", 0, "--sample", *QUICK)
    done = tidelog("judge", tmp_path / "twin", "--member", 1, "--sample", *QUICK)
    assert "judged once before" in done.out


def test_looks_are_known_with_the_saved_log_itself(run, kept_log, tidelog, monkeypatch, tmp_path):
    """Another user, or another machine, has the log but not the ledger of the run."""
    assert tidelog("judge", run, "--sample", *QUICK).code == 0
    (run / "looks.jsonl").unlink()
    monkeypatch.setenv("TIDELOG_STATE", str(tmp_path / "another"))
    assert tidelog("judge", run, "--looks").said.startswith("1 look(s)")
    (kept_log / "looks.jsonl").unlink()
    assert tidelog("judge", run, "--looks").said.startswith("0 look(s)")


def test_a_gate_over_several_asks_for_all(run, tidelog, monkeypatch):
    for decision in ("better", "worse"):
        decided(decision, monkeypatch)
        assert tidelog("judge", run, "--all-members", "--gate").code == 3


def test_a_gate_opens_for_better_alone(run, tidelog, monkeypatch):
    for decision, code in {"better": 0, "worse": 3, "no difference shown": 3, "unsupported": 3}.items():
        decided(decision, monkeypatch)
        assert tidelog("judge", run, "--gate").code == code, decision
        assert tidelog("judge", run).code == 0
    decided("better", monkeypatch)
    done = tidelog("judge", run, "--gate", "--ledger", "off")
    assert done.code == 3, "one of many looks that nobody counts is better in the end"
    assert "the number of times these episodes were judged before is unknown" in done.said


def test_a_gate_may_ask_for_the_tail(run, tidelog, monkeypatch):
    decided("better", monkeypatch)
    done = tidelog("judge", run, "--gate", "--cvar", 0.1)
    assert done.code == 3, "a tail that cannot be judged opens no gate"
    assert (
        "the gate stays closed: - likeliest actions: the tail cannot be judged: the verdict is unsupported" in done.said
    )
    risk = risk_of(evidence_of([1] * 9, reward=range(9), target=[0.5] * 9, behaviour=[0.5] * 9))
    worse = dataclasses.replace(risk, cvar=risk.cvar._replace(difference=Interval(-1.0, -2.0, -0.5)))
    close = dataclasses.replace(risk, cvar=risk.cvar._replace(difference=Interval(-0.2, -1.0, 0.5)))
    for given, code in ((risk, 0), (worse, 3), (close, 3)):
        decided("better", monkeypatch, risk=given)
        done = tidelog("judge", run, "--gate", "--cvar", 0.2)
        assert done.code == code, (given.cvar, done.said)
        assert ("the gate stays closed" in done.said) == (code == 3)
        assert tidelog("judge", run, "--gate").code == 0, "the tail is asked for by --cvar alone"
    assert tidelog("judge", run, "--cvar", 1.5).code == 2


def test_worst_episodes_and_bad_outcomes_are_told(run, kept_log, tidelog, tmp_path):
    log = ("--data", kept_log, "--sample", "--out", tmp_path / "v.json", *QUICK, "--effective-episodes", 1)
    loose = ("--effective-share", 0, "--largest-weight", 1, "--pareto-k", 99, "--earning-episodes", 0,
             "--unsupported-mass", 1, "--mean-weight-errors", 99)  # fmt: skip
    done = tidelog("judge", run, *log, *loose, "--cvar", 0.25, "--bad-outcome", -0.5)
    assert done.code == 0, done.err
    risk = json.loads((tmp_path / "v.json").read_text())["risk"]
    assert (risk["alpha"], risk["bad_outcome"]) == (0.25, -0.5)
    for sentence in risk["sentences"]:
        assert " ".join(sentence.split()) in done.said
    assert "In the worst 25% of its episodes the policy earns" in done.said
    assert "A return of -0.5 or less has a probability of" in done.said


def decided(decision, monkeypatch, **changes):
    from tidelog.cli import judge as module

    real = tl.judge

    def fixed(policy, log, *rest, **more):
        def one(verdict):
            counted = {**verdict.context, "looks": {"counted": more.get("ledger") is not False}}
            return dataclasses.replace(verdict, **{"decision": decision, "context": counted, **changes})

        found = real(policy, log.take_episodes(range(5)), *rest, **{**more, "ledger": False})
        if not isinstance(found, Verdicts):
            return one(found)
        changed = [one(found[0]), *found.verdicts[1:]]
        return Verdicts(found.names, tuple(changed), found.level)

    monkeypatch.setattr(module, "judge", fixed)


def test_a_saved_policy_needs_a_log_and_keeps_nothing(run, kept_log, tmp_path, tidelog):
    tl.load_run(run).policy(1).save(tmp_path / "policy")
    assert Sketch.from_json(tl.load_policy(tmp_path / "policy").origin["learnt_from"]).episodes == 60
    done = tidelog("judge", tmp_path / "policy")
    assert (done.code, "name a log with --data" in done.said) == (2, True)
    done = tidelog("judge", tmp_path / "policy", "--data", kept_log, "--out", tmp_path / "v.json", *QUICK)
    assert done.code == 0, done.err
    assert done.out.split("\n")[1] == "policy: UNSUPPORTED"
    assert "the policy learnt from 50.0% of the episodes" in done.out
    assert json.loads((tmp_path / "v.json").read_text())["decision"] == "unsupported"
    assert not (tmp_path / "policy" / "verdicts").exists()


def test_limits_are_flags(run, tidelog):
    done = tidelog("judge", run, "--sample", "--effective-episodes", 1e6, *QUICK)
    assert "UNSUPPORTED" in done.out
    assert "at least 1,000,000 are needed" in done.said


@pytest.mark.parametrize(("words", "said"), [
    (["nowhere"], "nowhere does not exist"), (["RUN", "--columns", "c.toml"], "name the table with --data"),
    (["RUN", "--member", "2"], "has 2 member(s), counted from 0"), (["RUN", "--member", "-1"], "--member -1"),
    (["RUN", "--member", "0", "--all-members"], "--member and --all-members are both set"),
    (["RUN", "--out", "RUN/run.json"], "exists, nothing was written. fix: choose another name"),
    (["RUN", "--data", "no.csv"], "no.csv"),
    (["RUN", "--level", "3"], "level = 3"), (["RUN", "--discount", "7"], "discount = 7"),
    (["RUN", "--bandwith", "3"], "--bandwidth"),
])  # fmt: skip
def test_bad_words_are_answered(words, said, run, tidelog):
    done = tidelog("judge", *[word.replace("RUN", str(run)) for word in words])
    assert done.code == 2
    assert said in done.said
    assert "Traceback" not in done.said
    assert not (run / "verdicts").exists()


def test_runs_that_held_nothing_out_or_lost_their_log_say_so(run, kept_log, tmp_path, tidelog):
    record = json.loads((run / "run.json").read_text())
    write_record(run, {**record, "held_out_episodes": []})
    assert "held no episodes out" in tidelog("judge", run).said
    write_record(run, {**record, "data": {**record["data"], "origin": None}})
    assert "was in memory only" in tidelog("judge", run).said
    treated(mostly(best_treatments(), 0.5), 20, seed=7).save(tmp_path / "swapped")
    origin = {"source": str(tmp_path / "swapped"), "columns": None}
    write_record(run, {**record, "data": {**record["data"], "origin": origin}})
    done = tidelog("judge", run)
    assert (done.code, "is no longer the log" in done.said) == (2, True)


def test_the_best_policy_is_judged_where_one_was_kept(kept_log, tmp_path, tidelog):
    words = ["train", "bc", "--data", kept_log, "--steps", 20, "--eval-every", 10]
    words += ["--best-metric", "held_out/imitation_loss"]
    assert tidelog(*words, "--held-out", 0.5, "--out", tmp_path / "run", *SMALL).code == 0
    done = tidelog("judge", tmp_path / "run", "--sample", *QUICK)
    assert done.out.split("\n")[1].startswith("best: ")
    content = json.loads((tmp_path / "run" / "verdicts" / "best-sampled-1.json").read_text())
    assert content["context"]["overlap"]["chosen_by"] == "held_out/imitation_loss"
    assert content["context"]["overlap"]["held_out"]["share"] == 1.0


@pytest.mark.full
def test_numbers_are_printed_in_the_unit_of_the_log(kept_log, run, tidelog):
    log = dataclasses.replace(tl.Log.load(kept_log), reward_unit="EUR")
    log.save(run.parent / "named")
    done = tidelog("judge", run, "--sample", "--all-members", "--data", run.parent / "named", *QUICK)
    assert done.code == 0, done.err
    said = " ".join(done.said.split())
    details = tidelog("judge", run, "--sample", "--details", "--data", run.parent / "named", *QUICK).said
    assert "guesses outside the log in EUR: do not use them" in details or "estimates in EUR; wdr decides" in details
    assert "differences from the behaviour policy in EUR" in said
    assert " EUR (" in details.partition("the behaviour policy's own mean: ")[2]
    assert json.loads((run / "verdicts" / "member-0-sampled-1.json").read_text())["reward_unit"] == "EUR"


def test_a_verdict_is_saved_before_it_is_printed(run, tidelog, monkeypatch):
    """Whoever stops the output, as `head` does, loses no verdict."""

    def closed(text):
        raise KeyboardInterrupt

    monkeypatch.setattr("tidelog.cli.judge.print_line", closed)
    tidelog("judge", run, "--sample", *QUICK)
    assert (run / "verdicts" / "member-0-sampled-1.json").exists()
    assert json.loads((run / "acting.json").read_text())


def test_a_bad_outcome_that_cannot_be_reported_is_said(run, tidelog):
    done = tidelog("judge", run, "--sample", "--bad-outcome", 0.5, *QUICK)
    shown = "A return of 0.5 or less has a probability of" in done.said
    assert shown != ("--bad-outcome 0.5: no probability is reported, because the verdict is unsupported" in done.said)


def test_the_first_steps_are_judged_and_open_no_gate(run, tidelog):
    done = tidelog("judge", run, "--sample", "--first-steps", 2, "--gate", *QUICK)
    assert done.code == 3, done.said
    content = json.loads((run / "verdicts" / "member-0-sampled-1.json").read_text())
    assert content["context"]["first_steps"] == 2
    assert "over its first 2 decisions" in content["estimand"]
    assert "later decisions" in done.said
    assert "the gate stays closed" in done.out
    whole = tidelog("judge", run, "--sample", *QUICK)
    assert "these episodes were judged once before" in whole.said
    refused = tidelog("judge", run, "--sample", "--first-steps", 0, *QUICK)
    assert refused.code == 2
    assert "first_steps = 0: expected a whole number of at least 1. fix: use first_steps=5" in refused.said


def test_a_verdict_without_a_next_step_ends_with_what_it_was_judged_on(capsys):
    _show(crafted("better"), "seed 0", "6 episodes", False, None)
    alone = capsys.readouterr().out
    assert "- the second reason\n\njudged on 6 episodes; mean return" in alone
    _show(crafted("better", next_step="Next: keep it."), "seed 0", "6 episodes", False, None)
    assert "- the second reason\nNext: keep it.\n\njudged on 6 episodes" in capsys.readouterr().out
