"""Kinds of events have names at every entrance: numbers alone are refused, those of a log are read by its names."""

from dataclasses import replace

import numpy as np
import polars as pl
import pytest

from tests.algorithms.recommenders import described
from tests.runtime.cases import listing
from tests.serving.test_app import asked
from tidelog import Histories, SpecError, runtime
from tidelog.recommend.evaluate import Markov, RuleLists
from tidelog.recommend.tables import recommend_for_table
from tidelog.types import HistoryArrays, HistoryNames

NUMBERS = np.array([[4, 5]], np.int32)  # i3, i4
ITEMS, EVENTS = [["i3", "i4"]], [["click", "buy"]]
ONE_BY_ONE = {  # the same kinds of events, counted as three logs would
    "of the policy": ([2, 1], ("buy", "click")),
    "the other way": ([1, 2], ("click", "buy")),
    "with one more": ([3, 2], ("add", "buy", "click")),
}


def arrays(kinds, words):
    names = None if words is None else HistoryNames(described().items, words)
    return HistoryArrays(NUMBERS, np.array([kinds], np.int32), names=names)


@pytest.fixture(scope="module")
def entrances(tmp_path_factory):
    """Functions from kinds of events, by name, to a list of four items."""
    policy, folder = listing("lists, gru"), tmp_path_factory.mktemp("lists")
    plain = runtime.load(policy.save(folder / "policy"))

    def http(events):
        body = {"history": ITEMS[0], "events": events[0], "k": 4, "exclude_seen": False}
        answer, *_ = asked(plain, ("POST", "/recommend", {"json": body}))
        if answer.status_code == 422:
            raise SpecError(answer.json()["error"])
        return answer.json()["items"]

    def command(events):
        table = pl.DataFrame({"u": ["a", "a"], "i": ITEMS[0], "kind": events[0]})
        return recommend_for_table(plain, table, user="u", item="i", event="kind", k=4, exclude_seen=False)[
            "i"
        ].to_list()

    def by_ranker(ranker):
        return lambda events: [f"i{item - 1}" for item in ranker.rank(Histories(ITEMS, events), 4)[0][0]]

    found = {
        "recommend": lambda events: policy.recommend(Histories(ITEMS, events), 4, False).items[0].tolist(),
        "NumPy": lambda events: plain.recommend(Histories(ITEMS, events), 4, False).items[0].tolist(),
        "ranker": by_ranker(policy.ranker()),
        "NumPy's ranker": by_ranker(plain.ranker()),
        "HTTP": http,
        "command": command,
    }
    return policy, plain, found


def test_every_entrance_reads_kinds_of_events_by_name_and_refuses_numbers(entrances):
    policy, plain, found = entrances
    wanted = found["recommend"](EVENTS)
    assert wanted != found["recommend"]([["buy", "click"]])
    assert {name: function(EVENTS) for name, function in found.items()} == dict.fromkeys(found, wanted)
    for name, function in found.items():
        with pytest.raises(SpecError, match=r"unknown event '?2"):
            pytest.fail(f"{name} accepts a number: {function([[2, 1]] if name != 'command' else [['2', '1']])}")
    for ranker in (policy.ranker(), plain.ranker()):
        for kinds, words in ONE_BY_ONE.values():
            assert [f"i{item - 1}" for item in ranker.rank(arrays(kinds, words), 4)[0][0]] == wanted
        with pytest.raises(SpecError, match=r"numbers without names: expected names, of buy, click. fix: tl.Histories"):
            ranker.rank(arrays([2, 1], None), 4)
        with pytest.raises(SpecError, match="unknown event 'add'"):
            ranker.rank(arrays([1, 2], ("add", "buy", "click")), 4)
        with pytest.raises(SpecError, match=r"events have 3: expected kinds 0 \(none\) to 2"):
            ranker.rank(arrays([3, 1], ("click", "buy")), 4)


def test_histories_of_other_items_or_users_are_refused():
    log, policy = described(), listing("lists, users")
    rows = np.array([5, 9])
    same = policy.ranker().rank(log.histories(rows), 3)[0]
    np.testing.assert_array_equal(policy.ranker().rank(log.split().test.histories(rows), 3)[0], same)
    for what, other in (
        ("items", replace(log, items=log.items[::-1])),
        ("items", replace(log, items=np.append(log.items, "i10"))),
        ("users", replace(log, users=log.users[::-1])),
    ):
        with pytest.raises(SpecError, match=f"the {what} of these histories are not those of the policy"):
            policy.ranker().rank(other.histories(rows), 3)
    listing("lists, gru").ranker().rank(replace(log, users=log.users[::-1]).histories(rows), 3)  # it knows no users


def test_counting_rules_read_kinds_of_events_by_name():
    log, item = described(), np.array([[4]], np.int32)
    rule, lists = Markov.of(log, by_event=True), RuleLists(log, "last-event-markov")
    wanted = {word: rule.rank(HistoryArrays(item, np.array([[1 + log.events.index(word)]]), names=None), 3)[0].tolist()
              for word in log.events}  # fmt: skip
    assert wanted["buy"] != wanted["click"]
    for words in (("buy", "click"), ("click", "buy"), ("add", "click", "buy")):
        for word in ("buy", "click"):
            seen = HistoryArrays(item, np.array([[1 + words.index(word)]]), names=HistoryNames(log.items, words))
            assert rule.rank(seen, 3)[0].tolist() == lists.ranker().rank(seen, 3)[0].tolist() == wanted[word]
            assert lists.ranker().rank(Histories([["i3"]], [[word]]), 3)[0].tolist() == wanted[word]
    with pytest.raises(SpecError, match="numbers without names"):
        lists.ranker().rank(HistoryArrays(item, item // 4), 3)
