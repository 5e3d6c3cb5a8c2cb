"""What a prompt or a notebook prints: one short paragraph, without arrays."""

from dataclasses import replace
from html.parser import HTMLParser

import numpy as np
import pytest

from tests.ope.cases import best_treatments, mostly, treated
from tests.report.crafted import verdict
from tests.training.runs import bc, begin, finish
from tidelog import BC, IQL, judge
from tidelog._text import facts_table, rows_table
from tidelog.ope.estimators import Estimates
from tidelog.runtime.recommender import Recommendations

MOST = 1500  # characters
HOSTILE = "<script>alert('x')</script>&\"<img src=x onerror=y>"


def test_an_algorithm_is_printed_as_it_was_written():
    assert repr(IQL()) == "IQL()"
    assert repr(IQL(temperature=10.0, hidden=(8, 8))) == "IQL(temperature=10.0, hidden=(8, 8))"
    assert eval(repr(BC(learning_rate=0.5)), {"BC": BC}) == BC(learning_rate=0.5)


def test_a_run_and_its_policy_are_one_sentence_each(log, tmp_path):
    run = finish(begin(bc(), log, tmp_path / "run", seeds=[0, 1]))
    assert repr(run) == f"Run of bc, 2 members (2 seeds), 42 of 42 updates, in {tmp_path / 'run'}"
    policy = run.policy()
    assert repr(policy).startswith("Policy of BC(")
    assert "numeric Vector, categorical Codes -> 6 actions (" in repr(policy)
    assert repr(policy).endswith("it always takes its most likely action; no verdict: nobody has judged this policy in "
                                 "this way. fix: tidelog judge")  # fmt: skip


@pytest.fixture(scope="module")
def policies():
    log = treated(mostly(best_treatments(), 0.5), 60)
    named = {name: finish(begin(bc(learning_rate=rate), log)).policy() for name, rate in (("a", 0.1), (HOSTILE, 0.2))}
    return named, judge(named, log, sample=True, model="tabular", ledger=False)


def test_a_verdict_is_its_paragraph(policies):
    policies, verdicts = policies
    one = verdicts["a"]
    assert repr(one) == f"Verdict: {one.decision}. {one.advice} {one.paragraph}"
    assert len(repr(one)) < MOST
    assert len(repr(policies["a"])) < MOST
    advice, *table = repr(verdicts).splitlines()
    assert advice == verdicts.advice
    assert table[0] == "Verdicts on 2 policies, differences from the behaviour policy, 95% simultaneous"
    assert table[1].startswith("  a: ")
    assert len(table) == 3


class Tables(HTMLParser):
    """The tags of a piece of HTML, and its text."""

    def __init__(self, source):
        super().__init__()
        self.tags, self.text = set(), ""
        self.feed(source)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        assert all(name == "style" for name, _ in attrs)

    def handle_data(self, data):
        self.text += f" {data}"


def test_notebooks_show_small_tables(policies, log, tmp_path):
    policies, verdicts = policies
    run = finish(begin(bc(), log, tmp_path / "run", seeds=[0, 1]))
    for shown, parts in (
        (run, ["Run of bc", "2 members (2 seeds)", "42 of 42 updates", str(tmp_path / "run"), "last imitation_loss"]),
        (run.policy(), ["Policy of BC(", "numeric Vector", "6 actions", "always takes its most likely action"]),
        (verdicts["a"], [f"Verdict: {verdicts['a'].decision}", verdicts["a"].paragraph[:40], "60", "behaviour policy"]),
        (verdicts, ["Verdicts on 2 policies", verdicts["a"].decision]),
        (log, [f"{log.steps:,} in {len(log.episodes):,} episodes", "numeric: Vector", "mean reward of a step"]),
    ):
        found = Tables(shown._repr_html_())
        assert found.tags <= {"p", "b", "table", "tr", "th", "td"}
        for part in parts:
            assert part in found.text


def test_specs_estimates_and_lists_are_tables(log):
    estimates, items = verdict().estimates, np.array([["a", HOSTILE], ["b", "c"]] + [["x", "y"]] * 12)
    lists = Recommendations(items, np.linspace(1.0, 0.0, 28, dtype=np.float32).reshape(14, 2))
    names = (HOSTILE, *log.spec.action.names[1:])
    spec = replace(log.spec, action=replace(log.spec.action, names=names), observation={**log.spec.observation,
                   HOSTILE: log.spec.observation["numeric"]})  # fmt: skip
    for shown, parts in (
        (spec, ["Spec", "observation: numeric", "Vector (", "Discrete (", "one number", HOSTILE]),
        (estimates, ["Estimates on", *(row.name for row in estimates), estimates.rows()[0][2]]),
        (Estimates([replace(estimates[0], note=HOSTILE)]), [HOSTILE]),
        (Estimates([]), ["No estimates"]),
        (lists, ["14 lists of 2 items; the first 10 lists", "a (1)", f"{HOSTILE} (0.963)"]),
    ):
        source = shown._repr_html_()
        found = Tables(source)
        assert found.tags <= {"p", "b", "table", "tr", "th", "td"}
        assert source.count("<tr>") <= 11 + (shown is estimates) * len(estimates)
        for part in parts:
            assert part in found.text


@pytest.mark.parametrize("place", range(5))
def test_every_cell_of_a_table_is_escaped(place):
    title, name, value, head, cell = (HOSTILE if i == place else "plain" for i in range(5))
    for source in (facts_table(title, {name: value}), rows_table(title, (head, "b"), [(name, cell)])):
        assert "<script" not in source
        assert "<img" not in source
        assert source.count("<table>") == source.count("</table>") == 1
