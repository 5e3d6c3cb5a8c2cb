"""The report's part about recommenders: a table beside baselines, what Q adds, and collapses that cannot be missed."""

import json
import re
import shutil

import pytest

from tests.data.clicks import ROLES
from tests.report.pages import Page, alone
from tests.training.runs import write_record
from tidelog.number_text import three_digits
from tidelog.recommend.interactions.held_out import next_events
from tidelog.recommend.interactions.readers import read_interactions
from tidelog.recommend.metrics.baselines import Popularity
from tidelog.recommend.metrics.ranked_lists import compare
from tidelog.report.run_page import report_of
from tidelog.training.runs.policies import policy_of_run


@pytest.fixture
def run(shop, tmp_path):
    shutil.copytree(shop / "run", tmp_path / "run")
    return tmp_path / "run"


def said_of(run):
    text = report_of([run], run.parent / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    alone(page, text)
    return " ".join(" ".join(page.said).split())


@pytest.mark.full
def test_lists_stand_beside_baselines_with_intervals(shop, run):
    said = said_of(run)
    log = read_interactions(shop / "clicks.csv", **ROLES, session_gap=59.0)
    split = log.split(share=0.3)
    cases = next_events(split.test, split.test.targets)
    popular = compare({"popularity": Popularity.of(split.train)}, cases, split.train.counts, 8).row("popularity")
    low, high = popular.scores["ndcg"][1:]
    assert f"popularity all {len(cases)}" in said
    assert f"{popular.scores['ndcg'].estimate:.3g} ({low:.3g} to {high:.3g})" in said
    for name in ("last-item Markov", "item-kNN", "own frequency", "run", "run, encoder alone"):
        assert f"{name} all {len(cases)}" in said
        assert f"{name} buy" in said
    assert "run: discounted reward" in said
    assert "No collapse" in said
    assert "tidelog judge" not in said  # judging is for decisions
    assert "events in the log" in said


@pytest.mark.full
def test_a_collapse_is_named_with_its_update(run):
    file = run / "metrics.jsonl"
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    rows[-1]["held_out/coverage"] = rows[0]["held_out/coverage"] / 5
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    said = said_of(run)
    assert "No collapse" not in said
    assert "Collapse run, seed 0: held_out/coverage fell to" in said
    assert f"at update {rows[-1]['update']}" in said


@pytest.mark.full
def test_without_the_log_the_report_is_made_and_says_what_is_lacking(shop, run):
    record = json.loads((run / "run.json").read_text())
    record["data"]["origin"]["source"] = str(run / "gone.csv")
    write_record(run, record)
    assert "is no longer at" in said_of(run)


@pytest.mark.full
def test_the_page_leads_with_one_sentence_and_one_picture(shop, run):
    text = report_of([run], run.parent / "report.html").read_text(encoding="utf-8")
    lead, picture = re.search(r'<h2>Lists</h2><p class="short">(.*?)</p><figure>(.*?)</figure>', text).groups()
    assert lead.count(". ") == 0
    log = read_interactions(shop / "clicks.csv", **ROLES, session_gap=59.0)
    split = log.split(share=0.3)
    cases = next_events(split.test, split.test.targets)
    rankers = {"run": policy_of_run(run).ranker(), "popularity": Popularity.of(split.train)}
    rate = compare(rankers, cases, split.train.counts, 8).row("run").scores["hit rate"].estimate
    assert f"In {three_digits(100 * rate)} % of {len(cases)} held-out events the list of 8 items by run" in lead
    rules = dict(re.findall(r'class="haloed">([a-zA-Z -]+)</text><text [^>]*>([\d.]+) \(', picture))
    best = max(("popularity", "last-item Markov", "item-kNN", "own frequency"), key=lambda name: float(rules[name]))
    assert f"in {rules[best]} % that of the best counting rule, {best} (" in lead
    assert ">% of the held-out events whose item is among the 8 listed</text>" in picture
    assert "Verdict" not in text


@pytest.mark.full
def test_the_page_leads_with_the_policy_that_is_recommended(run):
    """A run that selected its best policy recommends by that one; the page shows it first."""
    file = run / "run.json"
    record = json.loads(file.read_text())
    record["options"]["best"] = "held_out/main/critic_loss"
    file.write_text(json.dumps(record))
    assert "the list of 8 items by run, best policy contains" in said_of(run)
