import pytest

from benchmarks import recommender
from tidelog.judging.rankers import Markov, Popularity


def stub(log, study, seed):
    return {recommender.BCQ: Markov.of(log), recommender.ENCODER: Popularity.of(log)}


def made():
    """A small log of the simulator's, its last fifth held out."""
    log = recommender.logged_visits(0)
    split = log.split(share=0.2)
    return split.train, recommender.next_events(log, split.test.targets).warm


def test_the_simulators_study_plays_whatever_ranks(monkeypatch):
    monkeypatch.setattr(recommender, "LEARNT", (stub,))
    monkeypatch.setattr(recommender, "VISITS", 300)
    monkeypatch.setattr(recommender, "PLAYED", 300)
    found = recommender.satiation_study(1)
    assert found["values"][recommender.BCQ] == found["values"]["last-item Markov"]
    assert found["values"][recommender.ENCODER] == found["values"]["popularity"]
    # Popularity shows one item again and again, the editor's favourite: its user is bored by it and tired.
    assert found["values"]["popularity"][0] < found["exact"]["logger"]
    assert found["exact"]["best within support 0.3"] == pytest.approx(7.36, abs=5e-3)


def test_a_table_has_baselines_and_what_is_learnt(monkeypatch):
    monkeypatch.setattr(recommender, "LEARNT", (stub,))
    monkeypatch.setattr(recommender, "VISITS", 500)
    log, cases = made()
    monkeypatch.setitem(recommender.REAL, "made", lambda: (log, cases, log.events))
    monkeypatch.setitem(recommender.STEPS, "made", 1)
    monkeypatch.setitem(recommender.SETTINGS, "made", {})
    found = recommender.real_study("made", 2)
    names = [{row["ranker"] for row in table["rows"]} for table in found["tables"]]
    assert names[1] == {recommender.BCQ, recommender.ENCODER}
    assert names[0] == names[1] | {"popularity", "last-item Markov", "last item and event", "item-kNN", "own frequency"}
    assert found["differences"][0] == found["differences"][1]
    assert set(found["differences"][0]) == {"all", "clicked", "shown"}
