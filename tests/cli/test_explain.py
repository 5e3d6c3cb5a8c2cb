"""`tidelog explain`: a file, a table of several and a run folder are explained from what they hold."""

import json

import pytest

from tests.report.crafted import put, verdict
from tidelog.ope.verdict import Verdicts, write

NAMED = {"one": "better", "two": "unsupported"}


@pytest.fixture
def table(tmp_path):
    verdicts = tuple(verdict(decision, context={"name": name}) for name, decision in NAMED.items())
    write(Verdicts(tuple(NAMED), verdicts, 0.95), tmp_path / "table.json")
    return tmp_path / "table.json"


def test_a_table_explains_each_policy_or_the_one_that_is_named(table, tidelog):
    both = tidelog("explain", table)
    assert both.code == 0
    assert (
        both.out
        == "\n\n".join(
            f"{name}\n{verdict(decision, context={'name': name}).explain()}" for name, decision in NAMED.items()
        )
        + "\n"
    )
    one = tidelog("explain", table, "--policy", "two", "--json")
    said = json.loads(one.out)["verdicts"]
    assert {name: two["decision"] for name, two in said.items()} == {"two": "unsupported"}
    wrong = tidelog("explain", table, "--policy", "twoo")
    assert (wrong.code, "did you mean 'two'?" in wrong.err) == (2, True)


def test_a_run_folder_means_what_was_judged_last(tmp_path, tidelog):
    run = tmp_path / "run"
    run.mkdir()
    wrong = tidelog("explain", run)
    assert (wrong.code, "tidelog judge" in wrong.err) == (2, True)
    put(run, "old", verdict("worse", context={"name": "old", "date": "2026-01-05T09:00:00+00:00"}))
    put(run, "new", verdict("better", context={"name": "new", "date": "2026-01-06T09:00:00+00:00"}))
    assert tidelog("explain", run).out.startswith("Decision: better. ")


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"verdicts": {"a": {}}}', '{"verdicts": 3}'])
def test_what_is_no_verdict_is_refused(content, tmp_path, tidelog):
    (tmp_path / "other.json").write_text(content)
    said = tidelog("explain", tmp_path / "other.json")
    assert (said.code, "is not a verdict" in said.err, "fix: " in said.err, said.out) == (2, True, True, "")
    assert tidelog("explain", tmp_path / "nothing").code == 2
