"""The report's part about recommenders: a table beside baselines, what Q adds, and collapses that cannot be missed."""

import json
import re
import shutil

import numpy as np
import polars as pl
import pytest

from tests.algorithms.recommenders import small
from tests.data.clicks import ROLES
from tests.report.pages import Page, alone
from tests.training.runs import begin, finish, write_record
from tidelog._text import three_digits
from tidelog.ope.intervals import Confidence
from tidelog.recommend import evaluate
from tidelog.recommend.evaluate import (
    RULES,
    OwnFrequency,
    Popularity,
    advise,
    advise_lists,
    best_rule,
    compare,
    counting_rules,
)
from tidelog.recommend.interactions import Cases, next_events
from tidelog.recommend.read import read_interactions
from tidelog.report.lists import _lead
from tidelog.report.page import report_of
from tidelog.training.run import policy_of_run
from tidelog.types import HistoryArrays


@pytest.fixture
def run(shop, tmp_path):
    shutil.copytree(shop / "run", tmp_path / "run")
    return tmp_path / "run"


def said_of(run):
    text = report_of([run], run.parent / "report.html").read_text(encoding="utf-8")
    page = Page(text)
    alone(page, text)
    return " ".join(" ".join(page.said).split())


@pytest.fixture(scope="module")
def whole(shop, tmp_path_factory):
    """The page of that run as HTML and as running text, and what was said while it was made."""
    told, out = [], tmp_path_factory.mktemp("whole") / "report.html"
    text = report_of([shop / "run"], out, progress=lambda *now: told.append(now)).read_text(encoding="utf-8")
    alone(Page(text), text)
    return text, " ".join(" ".join(Page(text).said).split()), told


@pytest.mark.full
def test_lists_stand_beside_baselines_with_intervals(shop, whole):
    _, said, _ = whole
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


def test_the_page_leads_with_advice_where_a_rule_is_better():
    """Users repeat the item of their history; a learnt ranker lists the same items for everybody."""
    users = np.arange(40, dtype=np.int32)
    history = (1 + users % 12).reshape(-1, 1).astype(np.int32)
    ones = np.ones_like(history)
    cases = Cases(users, HistoryArrays(history, ones), history, ones.astype(np.float32), ones[:, 0])

    class Constant:
        def __init__(self, first):
            self.first = first

        def rank(self, histories, k, allowed=None):
            return np.tile(np.arange(self.first, self.first + k, dtype=np.int32), (len(histories.items), 1)), np.zeros(
                k
            )

    own = OwnFrequency(21)
    few = Confidence(replicates=50)
    rules = {"popularity": Constant(15), "last-item Markov": Constant(15), "item-kNN": Constant(15)}
    mistaken = compare({"shop": own, **rules}, cases, np.ones(21), 5, confidence=few)
    advice = advise(mistaken, "shop", "events")  # 32 of 40 users have items that the other rules do not list
    assert advice.rule == "popularity"
    assert advice.decision == (
        "Use these lists: they contain the item that was taken more often than those of the counting rule popularity."
    )
    for learnt, advised in ((Constant(13), True), (own, False)):
        rankers = {"shop": learnt, **rules, "own frequency": own}
        compared = compare(rankers, cases, np.ones(21), 5, confidence=few)
        lead = _lead(compared, {"shop": learnt}, "baskets")
        assert lead.startswith('<p class="banner worse">' if advised else '<p class="banner same">')
        advice = "<b>Do not use these lists: the counting rule own frequency is better than shop. Use"
        assert (advice in lead) == advised
        same = "<b>Do not use these lists yet: no gain over the counting rule own frequency is shown."
        assert (same in lead) != advised
        assert "held-out baskets the list of 5 items by shop contains an item of the basket" in lead


@pytest.mark.full
def test_baskets_are_measured_as_baskets_and_repeats_name_the_flag(tmp_path):
    """Every user takes one item each day and a random other one, in an order that the file makes up."""
    rng = np.random.default_rng(0)
    rows = [(f"u{u}", f"i{n}", float(day)) for u in range(80) for day in range(10) for n in (u % 40, rng.integers(40))]
    frame = pl.DataFrame(rows, schema=["u", "i", "t"], orient="row")
    said = []
    for name, order in (("one", frame), ("two", frame.reverse().sort("u", "t", maintain_order=True))):
        order.write_csv(tmp_path / f"{name}.csv")
        log = read_interactions(tmp_path / f"{name}.csv", user="u", item="i", time="t")
        finish(begin(small(), log, tmp_path / name, steps=2, eval_every=2, held_out=0.3))
        said.append(said_of(tmp_path / name))
        assert "Lists of 10 items for the first held-out baskets of all 80 users from 6.3 on" in said[-1]
        assert "100.0% of the log's events have the same time as another event of their user" in said[-1]
        assert "Users take the same items again in" in said[-1]
        assert "--exclude-seen" in said[-1]
    for rule in ("popularity", "own frequency"):  # the order of the file changes neither
        assert len({re.search(rf"{rule} 80 (\S+ \(\S+ to \S+\))", one)[1] for one in said}) == 1
    assert "own frequency 80 1 (1 to 1)" in said[0]
    assert "Markov" not in said[0]


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
def test_the_page_leads_with_one_sentence_and_one_picture(shop, whole):
    text, *_ = whole
    found = re.search(r'<h2>Lists</h2><p class="banner (.*?)</p><p class="short">(.*?)</p><figure>(.*?)</figure>', text)
    advice, lead, picture = found.groups()
    assert "<b>Do not use these lists" in advice
    assert lead.count(". ") == 0
    log = read_interactions(shop / "clicks.csv", **ROLES, session_gap=59.0)
    split = log.split(share=0.3)
    cases = next_events(split.test, split.test.targets)
    rankers = {"run": policy_of_run(shop / "run").ranker(), "popularity": Popularity.of(split.train)}
    rate = compare(rankers, cases, split.train.counts, 8).row("run").scores["hit rate"].estimate
    assert f"In {three_digits(100 * rate)}% of {len(cases)} held-out events the list of 8 items by run" in lead
    rules = dict(re.findall(r">([a-zA-Z -]+)</text><text [^>]*>([\d.]+) \(", picture))
    best = max((name for name in rules if name in RULES), key=lambda name: (float(rules[name]), name))
    assert f"in {rules[best]}% that of the best counting rule, {best} (" in lead
    assert ">% of held-out events whose item is among the 8 listed</text>" in picture
    assert "Verdict" not in text


@pytest.mark.full
def test_the_page_leads_with_the_policy_that_is_recommended(run):
    """A run that selected its best policy recommends by that one; the page shows it first."""
    file = run / "run.json"
    record = json.loads(file.read_text())
    record["options"]["best_metric"] = "held_out/main/critic_loss"
    write_record(run, record)
    assert "the list of 8 items by run, best policy contains" in said_of(run)


def test_rules_that_begin_too_late_are_left_out_by_name(monkeypatch):
    rows = [(f"u{user}", f"i{user % 15}", float(day)) for user in range(30) for day in range(10)]
    frame = pl.DataFrame(rows, schema=["u", "i", "t"], orient="row")
    split = read_interactions(frame, user="u", item="i", time="t").split()
    now, told = [0.0], []
    monkeypatch.setattr(evaluate.time, "monotonic", lambda: now[0])

    def slow(name, share):
        told.append((name, share))
        now[0] += 4.0

    policy = OwnFrequency.of(split.train, filled=True)
    found = advise_lists(policy, split.train, split.test, seconds=10.0, progress=slow)
    assert found.left_out == ("item-kNN", "TIFU-kNN")
    assert told == [("popularity", 0.0), ("own frequency", 0.2), ("last-item Markov", 0.4)]
    now[0] = 0.0
    assert advise_lists(policy, split.train, split.test, seconds=0.0, progress=slow).rule == "popularity"
    now[0] = 0.0
    assert advise_lists(policy, split.train, split.test, progress=slow).left_out == ()


def test_a_rule_that_reads_the_kind_of_the_last_event_is_among_those_to_beat():
    """A purchase sends users one item forward and a look five: the item alone does not tell which one follows."""
    rng, rows = np.random.default_rng(0), []
    for user in range(60):
        item = user % 15
        for day in range(12):
            bought = bool(rng.random() < 0.5)
            rows.append((f"u{user}", f"i{item}", float(day), "buy" if bought else "look"))
            item = (item + (1 if bought else 5)) % 15
    frame = pl.DataFrame(rows, schema=["u", "i", "t", "kind"], orient="row")
    roles = {"user": "u", "item": "i", "time": "t"}
    split = read_interactions(frame, **roles, event="kind", reward={"buy": 1.0, "look": 0.0}).split()
    cases = next_events(split.test, split.test.targets)
    rules = counting_rules(split.train)
    compared = compare(rules, cases, split.train.counts, 1, confidence=Confidence(replicates=50))
    assert best_rule(compared) == "last-event Markov"
    assert compared.row("last-event Markov").scores["hit rate"].estimate > 0.95
    assert compared.row("last-item Markov").scores["hit rate"].estimate < 0.7
    alike = read_interactions(frame, **roles).split()
    assert "last-event Markov" not in counting_rules(alike.train)
