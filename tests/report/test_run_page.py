"""The page of runs: what stands on it, that it is alone and escaped, and what is refused."""

import json
import os
import re
import shutil

import numpy as np
import pytest

from tests.ope.made import evidence_of
from tests.report.crafted import estimate, played, put, verdict
from tests.report.pages import Page, alone
from tests.training.runs import EVERY, write_record
from tidelog._text import three_digits, with_ends
from tidelog.errors import CheckpointError, ConfigError, LogError, TidelogError
from tidelog.ope.decide import NOTHING
from tidelog.ope.estimators import Estimates
from tidelog.ope.risk import risk_of
from tidelog.ope.verdict import NO_CHECKS, GroupDifference, RuleCheck
from tidelog.policies.statistics import Interval
from tidelog.report.page import report_of
from tidelog.training.record import Record
from tidelog.training.run import agreement, member_policy


def page_of(folders, out, **options):
    """The text of a report, checked to be well formed and alone, and what it says as running text."""
    text = report_of(folders, out, **options).read_text(encoding="utf-8")
    page = Page(text)
    alone(page, text)
    pictures = [attributes for tag, attributes in page.tags if tag == "svg"]
    assert all(picture["role"] == "img" and len(picture["aria-label"]) > 15 for picture in pictures)
    assert not {"nan", "inf", "NaN"} & set(re.split(r"[^\w]+", " ".join(page.said)))
    return text, page, " ".join(" ".join(page.said).split())


def in_order(said, *words):
    places = [said.index(word) for word in words]
    assert places == sorted(places)


@pytest.mark.parametrize("decision", ["better", "worse", "no difference shown", "unsupported"])
def test_the_verdict_comes_first_in_words_with_its_reasons_and_numbers(decision, runs):
    put(runs / "bc", "now", verdict(decision))
    _, page, said = page_of([runs / "bc"], runs / "report.html")
    in_order(said, verdict(decision).advice, "Judged on",
             f"A paragraph about {decision}.", f"the first reason for {decision}", "the second reason",
             "policy minus behaviour policy", "mean return up to the recorded end", "algorithm", "91.2 of 200",
             "Losses", "hyper-parameters", "Versions and")  # fmt: skip
    given = verdict(decision).difference
    assert f"policy minus behaviour policy {with_ends(given)}" in said
    short = f"{three_digits(given.estimate, sign=True)} per episode compared with the behaviour policy (95% interval: "
    assert (short in said) == (decision != "unsupported")
    assert "This was the first look at these held-out episodes" in said
    assert ("Do not use these numbers" in said) == (decision == "unsupported")
    assert len({attributes.get("class") for tag, attributes in page.tags if tag == "p"} & {
        "banner better", "banner worse", "banner same", "banner unknown"}) == 1  # fmt: skip
    assert "All 1 candidates" not in said


def test_the_page_names_the_unit_the_date_and_the_file_of_the_judged_episodes(runs):
    context = {"name": "seed 3", "sample": True, "date": "2026-01-05T09:00:00+00:00", "judged_before": 0}
    log = {"fingerprint": "x", "source": "/data/clinic/visits.csv"}
    put(runs / "bc", "now", verdict("better", reward_unit="EUR", context={**context, "log": log}))
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    in_order(said, "+0.08 EUR (+0.03 to +0.13) per episode", "difference from the logged decisions in EUR",
             "seed 3, sampled: +0.08 EUR per episode compared with the behaviour policy (95% interval: +0.03 to "
             "+0.13). Judged on 2026-01-05 on 200 episodes of visits.csv.", "difference in mean return per episode in "
             "EUR", "mean return per episode in EUR", "mean return in EUR")  # fmt: skip
    put(runs / "bc", "now", verdict("better", context=context))
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert "seed 3, sampled: +0.08 per episode compared" in said
    assert "on 200 episodes of treatment.tidelog." in said  # as the run names it
    assert "EUR" not in said


def test_what_the_verdict_rests_on_is_folded_and_the_deciding_estimator_has_its_difference(runs):
    put(runs / "bc", "now", verdict("better"))
    text, _, _ = page_of([runs / "bc"], runs / "report.html")
    (how,) = re.findall(r"<details><summary>How it was judged</summary>(.*?)</details>", text)
    for words in ("mean return up to the recorded end", "weighted doubly robust (wdr)", "limits largest weight"):
        assert words in how
    assert NO_CHECKS in how
    rule = RuleCheck("effective_sample_size", "passed", 212.0, "at least", 50.0, "effective_episodes")
    shown = verdict("better", checks=(rule,))
    put(runs / "bc", "now", shown)
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert "effective sample size: 212 episodes, at least 50 (effective_episodes): passed" in said
    in_order(said, *shown.explanation.basis, *shown.explanation.lines, *shown.explanation.end)
    (deciding,) = re.findall(r"<caption>The deciding estimator and its difference</caption>(.*?)</table>", text)
    rows = [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row) for row in deciding.split("</tr>")[1:] if "<tr" in row]
    assert rows[0] == ["policy, by weighted doubly robust (wdr)", "0.7 (0.65 to 0.75)",
                       "+0.08 (+0.03 to +0.13), 95% interval", "91.2 of 200"]  # fmt: skip
    assert rows[1][:3] == ["behaviour policy, as recorded", "0.62 (0.57 to 0.67)", "0"]
    (wide,) = re.findall(r"<details><summary>All 3 estimators with their support, [^<]*</summary>(.*?)</details>", text)
    assert "a note" in wide


def test_the_difference_of_each_group_is_a_picture(runs):
    groups = (
        GroupDifference("old", 120, "worse", Interval(-0.2, -0.3, -0.1), 80.0),
        GroupDifference("young", 80, "unsupported", NOTHING),
    )
    put(runs / "bc", "now", verdict("better", groups=groups, context={"by": "age group"}))
    text, _, said = page_of([runs / "bc"], runs / "report.html")
    in_order(said, "For whom: the difference by age group, with 95% intervals for all groups at once",
             "The policy is better on average, and worse for 'age group' old: -0.2 (-0.3 to -0.1).",
             "The log cannot tell for 'age group' young.", "How it was judged")  # fmt: skip
    assert "old (120 episodes) -0.2 (-0.3 to -0.1); young (80 episodes) cannot tell" in text
    put(runs / "bc", "now", verdict("better"))
    assert "For whom" not in page_of([runs / "bc"], runs / "report.html")[2]


def test_worst_episodes_stand_beside_the_behaviors(runs):
    steps = np.random.default_rng(0).normal(0.0, 1.0, 200)
    chance = np.where(steps > 0, 0.7, 0.3)
    log = evidence_of([1] * 200, reward=steps, target=chance, behaviour=np.full(200, 0.5))
    risk = risk_of(log, bad_outcome=-1.5)
    put(runs / "bc", "now", verdict("better", risk=risk))
    text, _, said = page_of([runs / "bc"], runs / "report.html")
    in_order(said, "A paragraph about better.", "Worst episodes", "In the worst 10% of its episodes",
             "mean of the worst 10% (CVaR)", "probability of -1.5 or less", "50% of episodes earn at most",
             "Distribution of returns")  # fmt: skip
    assert with_ends(risk.cvar.policy) in said
    picture = text[text.index("Distribution of returns") :]
    band = '<use[^>]* fill="var\\(--{}\\)" fill-opacity="0.2"'
    assert re.search(band.format("c0"), picture).start() < re.search(band.format("c1"), picture).start()
    assert "behaviour policy (dashed)" in said
    put(runs / "bc", "now", verdict("unsupported", risk_reason="the log does not support it"))
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert "No distribution of returns: the log does not support it." in said
    put(runs / "bc", "now", verdict("better"))
    assert "Worst episodes" not in page_of([runs / "bc"], runs / "report.html")[2]
    damaged = verdict("better", risk=risk).to_json()
    damaged["risk"]["policy"]["low"] = "none"
    (runs / "bc" / "verdicts" / "now.json").write_text(json.dumps(damaged))
    with pytest.raises(CheckpointError, match="is not a verdict, or it is damaged"):
        report_of([runs / "bc"], runs / "report.html")


def test_the_page_begins_with_the_best_member_that_is_better(runs):
    """Each member acts as it was judged last: an earlier, better verdict on another way of acting does not count."""
    for file, name, decision, hour in (
        ("member-0-sampled-1", "member-0", "better", "09"),
        ("member-0-deterministic-1", "member-0", "unsupported", "12"),
        ("member-1-sampled-1", "member-1", "better", "10"),
        ("member-2-sampled-1", "member-2", "worse", "13"),
    ):
        context = {"name": name, "log": {"fingerprint": "x"}, "date": f"2026-01-05T{hour}:00:00+00:00"}
        put(runs / "bc", file, verdict(decision, context={**context, "sample": "sampled" in file}))
    text, _, said = page_of([runs / "bc"], runs / "report.html")
    assert "banner better" in text
    assert "Policy: member-1, samples its actions, judged on" in said
    assert "on 2026-01-05" in said


@pytest.mark.parametrize(
    ("verdicts", "newest", "words"),
    [
        (
            [("better", "x", 6, None), ("unsupported", "x", 0, None), ("worse", "x", 5, None)],
            "better",
            "6 times before",
        ),
        # counts of earlier uses are comparable on the same episodes only: here the file that was written last counts
        ([("better", "x", 4, None), ("worse", "y", 0, None)], "worse", "first look"),
        # judging the same policy again is the same look: the count of looks before stays what it was
        (
            [("worse", "x", 2, "09"), ("better", "x", 2, "11"), ("unsupported", "x", 2, "10")],
            "better",
            "2 times before",
        ),
    ],
    ids=["by looks", "other episodes", "by date"],
)
def test_of_several_verdicts_the_newest_counts(verdicts, newest, words, runs):
    for place, (decision, log, before, hour) in enumerate(verdicts):
        date = {} if hour is None else {"date": f"2026-01-05T{hour}:00:00+00:00"}
        context = {"log": {"fingerprint": log}, "judged_before": before, **date}
        file = put(runs / "bc", str(place), verdict(decision, before=before, context=context))
        os.utime(file, ns=(place + 1, place + 1))
    text, _, said = page_of([runs / "bc"], runs / "report.html")
    assert f"banner {newest}" in text
    assert words in said


def test_the_headline_is_the_recommendation_of_the_newest_set_of_policies(runs):
    """A later verdict on another policy is listed; a later one on the recommended policy counts."""
    rows = [
        {"name": f"member-{place}", "decision": decision, "difference": 0.08, "low": 0.01, "high": 0.15}
        for place, decision in enumerate(("worse", "better", "unsupported"))
    ]
    told = "Use member-1: it is better than the logged decisions."
    together = {"level": 0.95, "rows": rows}

    def judged(member, decision, before, **more):
        context = {"name": f"member-{member}", "sample": False, "judged_before": before, **more}
        put(runs / "bc", f"{member}-{before}", verdict(decision, context=context))

    for member, row in enumerate(rows):
        judged(member, row["decision"], 0, together=together)
    judged(0, "unsupported", 1)
    text, _, said = page_of([runs / "bc"], runs / "report.html")
    assert f'<p class="banner better"><span class="sign" aria-hidden="true">▲</span><span><b>{told}</b>' in text
    in_order(said, told, "+0.08 (+0.01 to +0.15) per episode", "It is the only one of 3", "All 3 candidates", "All 4 v")
    (table,) = re.findall(r"<caption>All 3 candidates</caption>(.*?)</table>", text)
    assert re.findall(r'<tr class="marked"><th scope="row">(.*?)</th>', table) == ["member-1"]
    assert "unsupported</td><td>unknown</td><td>unknown" in re.sub(r"<td[^>]*>", "<td>", table)
    _, _, both = page_of([runs / "bc", runs / "iql"], runs / "both.html")
    in_order(both, told, "The runs of this report")
    judged(1, "unsupported", 2)
    text, _, said = page_of([runs / "bc"], runs / "report.html")
    assert told not in text.partition("banner")[2].partition("</p>")[0], "it acts in the way that was judged last"


def test_policies_of_a_run_that_were_judged_apart_are_all_candidates(runs):
    """Each by its newest verdict, with the advice to judge them at once."""
    for place, (name, decision) in enumerate((("member-0", "better"), ("member-1", "worse"), ("member-1", "better"))):
        context = {"name": name, "sample": False, "judged_before": place, "log": {"fingerprint": "x"}}
        put(runs / "bc", f"{place}", verdict(decision, context=context))
        text, _, said = page_of([runs / "bc"], runs / "report.html")
        assert ("were judged apart, each look at a stricter level; judge them at once" in said) == (place > 0)
        rows = re.findall(r"<caption>(?:All 2 candidates|The candidate)</caption>(.*?)</table>", text)[0]
        shown = re.findall(r'<th scope="row">(.*?)</th><td[^>]*>(.*?)</td>', rows)
        assert shown == [("member-0, deterministic", "better"), ("member-1, deterministic", decision)][: place + 1]


def test_runs_that_were_judged_apart_have_one_answer_and_the_better_one_stands_first(runs):
    """So have runs whose policies were judged at once: their rows are listed once."""
    put(runs / "bc", "now", verdict("unsupported", context={"name": "policy", "sample": True}))
    put(runs / "iql", "now", verdict("better", context={"name": "policy", "sample": True}))
    text, _, said = page_of([runs / "bc", runs / "iql"], runs / "report.html")
    assert text.count('class="banner') == 1
    in_order(said, "Use iql: policy, sampled", "All 2 candidates", "The runs of this report")
    rows = [
        {"name": f"{name}: sampled actions", "decision": decision, "difference": 0.08, "low": 0.01, "high": 0.15}
        for name, decision in (("bc", "worse"), ("iql", "better"))
    ]
    for row in rows:
        row["advice"] = f"Use it: {row['decision']}."
    for row in rows:
        name = row["name"].partition(":")[0]
        context = {"name": row["name"], "sample": True, "together": {"level": 0.95, "rows": rows}}
        put(runs / name, "now", verdict(row["decision"], context=context | {"deploy": f"tidelog export {name}"}))
    text, _, said = page_of([runs / "bc", runs / "iql"], runs / "report.html")
    assert "All 2 candidates" in said
    assert "<pre>tidelog export iql</pre>" in text
    assert "interval, 95% for all at once" in said


def test_returns_stand_beside_the_behaviors(runs, log):
    played(runs / "bc", "treatment", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    played(runs / "iql", "treatment", [[0.0, 0.0], [1.0, 0.0]])
    played(runs / "iql", "other", [[2.0, 2.0], [1.0, 0.5]], how="sampled")
    text, _, said = page_of([runs / "bc", runs / "iql"], runs / "report.html")
    (table,) = re.findall(r"<caption>Returns, treatment, deterministic</caption>.*?<tbody>(.*?)</tbody>", text)
    rows = [re.findall(r"<t[hd].*?>(.*?)</t[hd]>", row) for row in table.split("</tr>") if row]
    mean = np.add.reduceat(log.reward, log.starts[:-1]).mean()
    assert [row[:3] for row in rows] == [
        ["behavior_policy", "30", three_digits(mean)], ["bc (2 seeds)", "6", "0.833"],
        ["iql [temperature 1] (1 seed)", "2", "0"], ["iql [temperature 3] (1 seed)", "2", "0.5"]]  # fmt: skip
    assert rows[1][3] == "0.667 to 1"
    assert "other, sampled" in said


def test_actions_of_the_log_stand_beside_the_policies_choices(runs, log):
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert re.search(r"most likely actions, at all \d+ steps of the held-out episodes", said)
    record = Record.read(runs / "bc")
    held_out = log.take_episodes(np.flatnonzero(np.isin(log.episode_ids, record.held_out)))
    policies = [member_policy(runs / "bc", record, member) for member in (0, 1)]
    each = [agreement(policy, held_out)["share of equal actions"] for policy in policies]
    assert (
        f"the same action as the log at {np.mean(each):.1%} ({min(each):.1%} to {max(each):.1%} over 2 seeds)" in said
    )


def test_a_log_in_memory_is_asked_for_and_may_be_given(continuous, runs):
    folder, made = continuous
    _, _, said = page_of([folder], runs / "report.html")
    assert "in memory only and cannot be reopened. fix: pass it with --data" in said
    assert "action[0]" not in said
    text, _, said = page_of([folder], runs / "report.html", log=made)
    assert "mean distance to the logged actions" in said
    for name in ("action[0]", "action[1]"):
        (drawn,) = re.findall(rf"<figcaption><b>{re.escape(name)}</b></figcaption>(.*?)</svg>", text)
        assert re.search(r'<path d="M[^"]+" fill="var\(--log\)"', drawn)
        assert re.search(r'<path d="M[^"]+" fill="none" stroke="var\(--c0\)"', drawn)
    with pytest.raises(LogError, match="no run of the report learnt from this log of 6 steps"):
        report_of([folder], runs / "no.html", log=made.take_episodes([0]))


def test_a_report_is_made_without_the_log_and_without_checkpoints(runs, saved, tmp_path):
    record = json.loads((runs / "bc" / "run.json").read_text())
    record["data"]["origin"]["source"] = str(tmp_path / "gone.tidelog")
    write_record(runs / "bc", record)
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert f"The run's log is no longer at {tmp_path / 'gone.tidelog'}" in said
    shutil.rmtree(runs / "iql" / "checkpoints")
    _, _, said = page_of([runs / "iql"], runs / "report.html")
    assert "its policy cannot be loaded" in said
    assert "no complete checkpoint" in said


def test_a_log_that_changed_since_is_not_taken_for_the_runs(runs, log, tmp_path):
    log.take_episodes(np.arange(29, -1, -1)).save(tmp_path / "changed.tidelog")
    record = json.loads((runs / "bc" / "run.json").read_text())
    record["data"]["origin"]["source"] = str(tmp_path / "changed.tidelog")
    write_record(runs / "bc", record)
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert "changed.tidelog is not the run's log" in said


def test_numbers_that_are_none_are_said_in_words(runs):
    lost = Interval(float("nan"), float("nan"), float("nan"))
    rows = Estimates([estimate("wdr", float("nan")), estimate("huge", 1e9, 1e9)])
    empty = {"difference": lost, "behavior_policy": lost, "difference_from_bc": None}
    put(runs / "bc", "now", verdict("unsupported", estimates=rows, **empty))
    lines = (runs / "bc" / "metrics.jsonl").read_text().replace('"imitation_loss": ', '"imitation_loss": NaN, "x": ')
    (runs / "bc" / "metrics.jsonl").write_text(lines)
    _, _, said = page_of([runs / "bc"], runs / "report.html")
    assert "wdr (decides) no number: the log does not support it" in said
    assert "now: the log shows no reliable number for it." in said
    assert "never finite" in said


def test_words_of_others_stay_text(runs, log):
    evil = '"><script>alert(1)</script> & <img src=x onerror=alert(1)>'
    row = estimate(evil, note=evil)
    put(runs / "bc", "now", verdict("better", reasons=(evil,), outcome=evil, estimand=evil, deciding=evil,
                                    estimates=Estimates([row]), context={evil: evil, "x": {evil: [evil]}}))  # fmt: skip
    played(runs / "bc", evil, [[0.0, 1.0], [1.0, 1.0]])
    rows = (runs / "bc" / "metrics.jsonl").read_text().replace('"entropy"', json.dumps(evil))
    (runs / "bc" / "metrics.jsonl").write_text(rows)
    record = json.loads((runs / "bc" / "run.json").read_text())
    record["spec"]["action"]["names"] = [evil, *record["spec"]["action"]["names"][1:]]
    record["machine"][evil] = record["options"]["best_metric"] = evil
    write_record(runs / "bc", record)
    named = runs / evil.replace("/", "-")
    (runs / "bc").rename(named)
    text, _, said = page_of([named], runs / "report.html")
    assert said.count(" ".join(evil.split())) > 8
    assert evil not in text


METRICS, EVALUATION, VERDICT = "metrics.jsonl", "evaluations/x.json", "verdicts/now.json"


def with_line(number, change):
    """A change of one line of the metrics."""
    return lambda text: "\n".join(change(line) if at == number else line for at, line in enumerate(text.split("\n")))


def with_part(**changes):
    """A change of some parts of a verdict."""
    return lambda text: json.dumps(json.loads(text) | changes)


DAMAGES = {  # a file of the run, what becomes of its text (None: it is removed), and what is said
    "no run": ("run.json", None, "is no run folder"),
    "no report": (METRICS, lambda text: "", f"has no metrics yet.*first report is at update {EVERY}.*tidelog resume"),
    "a word for a number": (
        METRICS, with_line(0, lambda line: line.replace('"update": 14', '"update": "14"')),
        r"metrics.jsonl, line 1 is damaged \(expected an update"),
    "a member that there is not": (
        METRICS, with_line(0, lambda line: line.replace('"member": 0', '"member": 7')),
        "line 1: member = 7: expected a number below"),
    "an evaluation": (
        EVALUATION, lambda text: '{"env": "a", "sampled": true, "returns": [[0.0, null]]}', "x.json is not an eval"),
    "an unknown decision": (VERDICT, with_part(decision="best"), "expected one of better, .*, found 'best'"),
    "a missing part": (VERDICT, lambda text: text.replace('"pareto_k"', '"pareto"'), "pareto_k"),
}  # fmt: skip


@pytest.mark.parametrize("name", [*DAMAGES, "a record without its log"])
def test_what_is_damaged_is_refused_with_its_place_and_nothing_is_written(name, runs):
    put(runs / "bc", "now", verdict())
    if name in DAMAGES:
        file, change, message = DAMAGES[name]
        path = runs / "bc" / file
        path.parent.mkdir(exist_ok=True)
        text = path.read_text() if path.exists() else ""
        if change is None:
            path.unlink()
        else:
            path.write_bytes(change(text).encode(errors="surrogateescape"))
    else:
        record, message = (
            json.loads((runs / "bc" / "run.json").read_text()),
            "json does not name the log that",
        )
        write_record(runs / "bc", record | {"data": {"steps": 3}})
    before = sorted(runs.rglob("*"))
    with pytest.raises(TidelogError, match=message):
        report_of([runs / "iql", runs / "bc"], runs / "report.html")
    assert sorted(runs.rglob("*")) == before


def test_only_reports_are_written_over(runs, monkeypatch):
    out = report_of([runs / "bc"], runs / "report.html")
    first = out.read_text()
    report_of([runs / "iql"], out)
    assert out.read_text() != first
    (runs / "notes.html").write_text("<p>mine</p>")
    (runs / "folder").mkdir()
    for path, message in ((runs / "notes.html", "is not a report of tidelog"), (runs / "folder", "is a folder"),
                          (runs / "nowhere" / "report.html", "is not a folder")):  # fmt: skip
        with pytest.raises(ConfigError, match=f"{message}.*nothing was written"):
            report_of([runs / "bc"], path)
    assert (runs / "notes.html").read_text() == "<p>mine</p>"
    for folders, message in (([], "expected at least one"), ([runs / "bc", runs / "bc" / ".." / "bc"], "named twice")):
        with pytest.raises(ConfigError, match=message):
            report_of(folders, out)


def test_what_cannot_be_written_leaves_the_older_report(runs, monkeypatch):
    out = report_of([runs / "bc"], runs / "report.html")
    before = out.read_text()

    def full(self, target):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("pathlib.Path.replace", full)
    with pytest.raises(ConfigError, match=r"cannot be written: .*No space left"):
        report_of([runs / "iql"], out)
    assert out.read_text() == before
    assert sorted(path.name for path in runs.iterdir()) == ["bc", "iql", "report.html"]


def test_runs_of_one_name_are_told_apart(runs):
    shutil.copytree(runs / "bc", runs / "later" / "bc")
    _, _, said = page_of([runs / "bc", runs / "later" / "bc"], runs / "report.html")
    assert "later/bc" in said
    with pytest.raises(CheckpointError, match="is no run folder"):
        report_of([runs / "nowhere"], runs / "report.html")


def in_environment(run, name="treatment"):
    """Make a run one that learnt in an environment."""
    record = json.loads((run / "run.json").read_text())
    write_record(run, record | {"data": {"environment": name, "named": True}, "held_out_episodes": []})
    rows = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    rows = [row | {"decisions": 2 * row["update"], "collect/return": 0.5} for row in rows]
    (run / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_runs_that_learnt_in_an_environment_have_all_but_a_verdict(runs):
    shutil.rmtree(runs / "bc" / "checkpoints")  # so that the lengths of its metrics are not compared
    in_environment(runs / "bc")
    played(runs / "bc", "treatment", [[0.0, 1.0], [1.0, 1.0]])
    _, page, said = page_of([runs / "bc"], runs / "one.html")
    assert "84 of 42 decisions, from the environment treatment" in said
    assert "learnt in the environment treatment, so there is no log to judge it on" in said
    assert f"tidelog evaluate {runs / 'bc'} --env treatment" in said
    in_order(
        said, "Not judged yet", "Returns, treatment", "Evaluations during training", "collect/return", "hyper-param"
    )
    assert not {"data", "actions", "estimates"} & {
        attributes.get("id") for tag, attributes in page.tags if tag == "section"
    }
    _, _, said = page_of([runs / "bc", runs / "iql"], runs / "both.html")
    assert "none: learnt in an environment" in said
    in_order(said, "Not judged yet", "This run was not judged yet", "Actions of log and policy")
