import pytest

from benchmarks import recommender
from tidelog.recommend.evaluate import Markov, Popularity


def stub(log, study, seed):
    return {recommender.BCQ: Markov.of(log), recommender.ENCODER: Popularity.of(log)}


def made():
    """A small log of the simulator's, its last fifth held out."""
    log = recommender.logged_visits(0)
    split = log.split(share=0.2)
    return split.train, recommender.next_events(log, split.test.targets).with_history


def test_the_simulators_study_plays_whatever_ranks(monkeypatch):
    monkeypatch.setattr(recommender, "LEARNT", (stub,))
    monkeypatch.setattr(recommender, "VISITS", 300)
    monkeypatch.setattr(recommender, "PLAYED", 300)
    found = recommender.satiation_study("satiation", [recommender.satiation_seed("satiation", 0)])
    assert found["values"][recommender.BCQ] == found["values"]["last-item Markov"]
    assert found["values"][recommender.ENCODER] == found["values"]["popularity"]
    # Popularity shows one item again and again, the editor's favourite: its user is bored by it and tired.
    assert found["values"]["popularity"][0] < found["exact"]["logger"]  # 0 of 40 other seeds fail
    assert found["exact"]["best within support 0.3"] == pytest.approx(7.36, abs=5e-3)


def test_a_table_has_baselines_and_what_is_learnt(monkeypatch):
    monkeypatch.setattr(recommender, "LEARNT", (stub,))
    monkeypatch.setattr(recommender, "VISITS", 500)
    log, cases = made()
    monkeypatch.setitem(recommender.REAL, "made", lambda: (log, cases, log.events))
    monkeypatch.setitem(recommender.STEPS, "made", 1)
    monkeypatch.setitem(recommender.SETTINGS, "made", {})
    found = recommender.real_study("made", [recommender.real_seed("made", seed) for seed in (0, 1)])
    names = [{row["ranker"] for row in found["rows"] if row["seed"] == seed} for seed in (0, 1)]
    assert names[1] == {recommender.BCQ, recommender.ENCODER}
    counted = {"popularity", "last-item Markov", "last item and event", "item-kNN", "own frequency", "TIFU-kNN"}
    assert names[0] == names[1] | counted
    gains = {(row["over"], row["measure"]): row["gain"] for row in found["together"] if row["seed"] == 1}
    assert {other for other, _ in gains} == counted | {recommender.ENCODER}
    assert gains["last-item Markov", "ndcg"] == [0.0, 0.0, 0.0]  # the stub of BCQ
    assert found["differences"][0] == found["differences"][1]
    assert set(found["differences"][0]) == {"all", "clicked", "shown"}


def test_what_was_learnt_is_compared_seed_by_seed():
    found = {recommender.BCQ: [8.0, 9.0, 10.0], recommender.ENCODER: [6.0, 7.0, 8.0]}
    said = recommender.beside(found, {"logger": 6.0, "best within support 0.2": 9.0})
    assert said["minus encoder alone"] == [2.0, 2.0, 2.0]
    assert said["minus logger"][0] == 3.0
    assert said["share of best within support"][0] == pytest.approx(1.0)
