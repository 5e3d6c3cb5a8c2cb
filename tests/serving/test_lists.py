"""Lists over HTTP: answers of the NumPy runtime, and for all else a status and a sentence."""

import json
import threading
import time
import tracemalloc

import anyio
import numpy as np
import pytest

from tests.runtime.cases import SCORES, listing
from tests.serving.test_app import asked
from tidelog import runtime
from tidelog.runtime import networks
from tidelog.runtime.recommender import Histories, diverse
from tidelog.serving.app import Bounds, application


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    return runtime.load(listing("lists, gru").save(tmp_path_factory.mktemp("lists") / "policy"))


def recommend(policy, body, **options):
    return asked(policy, ("POST", "/recommend", {"json": body}), **options)[0]


def test_one_user_and_several_are_answered_as_numpy_answers(plain):
    one = recommend(plain, {"history": ["i1", "i2"], "k": 3})
    many = recommend(plain, {"histories": [["i1", "i2"], []] * 9, "k": 3, "exclude": ["i4"], "exclude_seen": False})
    assert one.status_code == many.status_code == 200
    assert one.json()["items"] == plain.recommend([["i1", "i2"]], 3).items[0].tolist()
    wanted = plain.recommend([["i1", "i2"], []] * 9, 3, exclude=["i4"], exclude_seen=False)
    assert many.json()["items"] == wanted.items.tolist()
    np.testing.assert_allclose(many.json()["scores"], wanted.scores, **SCORES)
    told = recommend(plain, {"history": ["i1"], "events": ["buy"], "candidates": ["i2", "i3"], "k": 2}).json()
    assert set(told["items"]) == {"i2", "i3"}
    for body, skipped in (({"history": ["i77", "i1"]}, [["i1"]]), ({"histories": [["i1"], ["i77"]]}, [["i1"], []])):
        found = recommend(plain, {**body, "k": 3, "unknown": "skip"}).json()["items"]
        wanted = plain.recommend(skipped, 3).items.tolist()
        assert found == (wanted[0] if "history" in body else wanted)


def test_what_is_known_of_users_is_answered_as_numpy_answers(plain):
    users = [{"age": 245, "likes": ["a"]}, None]
    wanted = plain.recommend(Histories([["i1"], []], users=users), 3)
    many = recommend(plain, {"histories": [["i1"], []], "users": users, "k": 3}).json()
    assert many["items"] == wanted.items.tolist()
    np.testing.assert_allclose(many["scores"], wanted.scores, **SCORES)
    one = recommend(plain, {"history": ["i1"], "user": users[0], "k": 3}).json()
    np.testing.assert_allclose(one["scores"], wanted.scores[0], **SCORES)
    assert np.abs(wanted.scores - plain.recommend([["i1"], []], 3).scores)[0].max() > 1e-3


def test_diversity_and_reasons_are_answered_as_numpy_answers(plain):
    body = {"k": 3, "diversity": 0.5, "explain": True}
    one = recommend(plain, {"history": ["i1", "i2"], **body}).json()
    wanted = plain.recommend([["i1", "i2"]], 3, diversity=0.5)
    assert one["items"] == wanted.items[0].tolist()
    reasons = plain.explain([["i1", "i2"]], wanted.items)
    assert one["explain"] == reasons.items[0].tolist()
    np.testing.assert_allclose(one["times_likelier"], reasons.times[0], **SCORES)
    many = recommend(plain, {"histories": [["i1", "i2"], []], **body}).json()
    assert many["explain"] == [one["explain"], [None] * 3]


BODIES = {
    "diversity": ({"history": [], "diversity": 2}, 422, "Expected `float` <= 1.0 - at `$.diversity`"),
    "explain": ({"history": [], "explain": 1}, 422, "Expected `bool`, got `int` - at `$.explain`"),
    "nothing": ({}, 422, 'the body needs {\"history\"'),
    "a field": ({"history": [], "kk": 2}, 422, "unknown field 'kk': did you mean 'k'?"),
    "no rows": ({"histories": []}, 422, "'histories' has no rows: expected at least one. fix: send [...]"),
    "a user id": ({"history": [], "user_id": 1.5}, 422, "Expected `int | str | null`, got `float` - at `$.user_id`"),
    "no lists": ({"histories": ["i1"]}, 422, "Expected `array`, got `str` - at `$.histories[0]`"),
    "no id": ({"histories": [["i1"], [1.5]]}, 422, "Expected `int | str`, got `float` - at `$.histories[1][0]`"),
    "an item": ({"history": ["i77"]}, 422, "history 0 has the unknown item 'i77'; did you mean 'i7'?"),
    "an event": ({"history": ["i1"], "events": ["buys"]}, 422, "has the unknown event 'buys': did you mean 'buy'?"),
    "events": ({"history": ["i1"], "events": []}, 422, "history 0 has 1 items and 0 events"),
    "k": ({"history": ["i1"], "k": "3"}, 422, "Expected `int`, got `str` - at `$.k`"),
    "too long": ({"history": ["i1"], "k": 30, "exclude_seen": True}, 422, "k = 30, but history 0 has only 9 candidates "
                 '(1 history has fewer than 30). fix: lower k, allow more candidates, or let lists contain items'),
    "enormous": ({"histories": [["i1"]] * 2, "k": 10**9}, 413, "items per answer"),
    "unknown": ({"history": ["i77"], "unknown": "pass"}, 422, "Invalid enum value 'pass' - at `$.unknown`"),
    "no user": ({"history": ["i1"], "user": [3]}, 422, "got `array` - at `$.user`"),
    "no users": ({"histories": [["i1"]], "users": {}}, 422, "got `object` - at `$.users`"),
    "a user": ({"histories": [["i1"]], "users": [{"agee": 3}]}, 422, "users[0]['agee'] is an unknown column"),
    "a word": ({"history": ["i1"], "user": {"plan": "x"}}, 422, "has 'x', unknown in the log"),
    "too many": ({"histories": [[]] * 4}, 413, "'histories' has 4 rows, at most 3 are allowed"),
}  # fmt: skip


@pytest.mark.parametrize("name", BODIES)
def test_what_does_not_fit_is_named(name, plain):
    body, status, message = BODIES[name]
    answer = recommend(plain, body, bounds=Bounds(rows=3))
    assert answer.status_code == status
    assert message.replace("\\", "") in answer.json()["error"]


def test_a_fix_names_fields_of_the_request(plain):
    """It is the same for Python, the command line and a request: no word is of one of them alone."""
    asking = {
        "a word": {"history": ["i1"], "user": {"plan": "x"}},
        "a number": {"history": ["i1"], "user": {"age": "x"}},
        "infinite": {"history": ["i1"], "user": {"age": 1e300}},
        "k": {"history": ["i1"], "k": 30},
    }
    for name, body in asking.items():
        error = recommend(plain, body).json()["error"]
        assert not any(word in error for word in ("='", "=False", "--", "None")), (name, error)
    assert "set unknown to 'skip'" in recommend(plain, asking["a word"]).json()["error"]


def test_the_server_says_what_it_has(plain):
    elsewhere, policy = asked(plain, ("POST", "/act", {"json": {}}), ("GET", "/policy", {}))
    assert elsewhere.status_code == 404
    assert "POST /recommend" in elsewhere.json()["error"]
    assert policy.json()["algorithm"] == "recommender-bcq"
    assert policy.json()["is_recurrent"] is False


def test_one_long_history_does_not_widen_every_row(plain):
    tracemalloc.start()
    answer = recommend(plain, {"histories": [["i1"] * 20_000] + [[]] * 800, "k": 1})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == 200
    assert answer.json()["items"][0] == plain.recommend([["i1"] * 9], 1).items[0].tolist()
    assert most < 30_000_000


def test_long_lists_and_much_work_are_refused_before_it_begins(plain):
    assert recommend(plain, {"history": [], "k": 5}, bounds=Bounds(k=5)).status_code == 200
    refused = recommend(plain, {"history": [], "k": 6}, bounds=Bounds(k=5))
    assert (refused.status_code, refused.json()["error"]) == (
        400,
        "'k' is 6, at most 5 are allowed here. fix: send a smaller k",
    )
    items = plain.ranker().items
    limit = Bounds(scores=2 * items)
    allowed = [{"histories": [[], []]}, {"history": ["i1"]}]
    larger = [{"histories": [[]] * 3}, {"history": [], "explain": True}, {"history": [], "k": 3, "diversity": 0.5}]
    assert [recommend(plain, {"k": 3, **body}, bounds=limit).status_code for body in allowed] == [200, 200]
    for body, part in zip(larger, ("'histories'", "'explain'", "'k' with 'diversity'"), strict=True):
        answer = recommend(plain, {"k": 3, **body}, bounds=limit)
        assert (answer.status_code, part in answer.json()["error"]) == (400, True)
        assert f"at most {2 * items:,} are allowed here" in answer.json()["error"]


@pytest.fixture
def stopped(plain, monkeypatch):
    """What became of work that goes on for 20 s unless it is stopped."""
    ends = []

    def endless(self, *histories, **choices):
        begin = time.perf_counter()
        try:
            while time.perf_counter() - begin < 20.0:
                networks.end_if_stopped()
                time.sleep(0.001)
        except networks.StoppedError:
            ends.append("stopped")
            raise
        ends.append("done")

    monkeypatch.setattr(type(plain), "recommend", endless)
    return ends


def until(condition):
    begin = time.perf_counter()
    while not condition() and time.perf_counter() - begin < 10.0:
        time.sleep(0.01)
    return condition()


def test_work_stops_when_its_time_is_over(plain, stopped):
    assert recommend(plain, {"history": []}, bounds=Bounds(seconds=0.2)).status_code == 503
    assert until(lambda: stopped == ["stopped"])


@pytest.mark.parametrize("end", ["the client leaves", "the server stops"])
def test_work_stops_when_nobody_waits_for_it(plain, stopped, end):
    body = json.dumps({"history": []}).encode()
    head = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
    scope = {"type": "http", "method": "POST", "path": "/recommend", "query_string": b"", "headers": head}
    parts = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive():
        if parts:
            return parts.pop()
        await anyio.sleep(0.2 if end == "the client leaves" else 60.0)
        return {"type": "http.disconnect"}

    async def send(message):
        pass

    async def go():
        with anyio.move_on_after(60.0 if end == "the client leaves" else 0.2):  # the server cancels open requests
            await application(plain)(scope, receive, send)

    anyio.run(go)
    assert until(lambda: stopped == ["stopped"])


def test_lists_that_are_more_diverse_and_reasons_can_be_stopped(plain):
    stop = threading.Event()
    stop.set()
    works = [
        lambda: plain.recommend([["i1"]], 3),
        lambda: plain.explain([["i1"]], [["i2"]]),
        lambda: diverse(np.ones((1, 3), int), np.ones((1, 3)), np.eye(4), 2, 0.5),
    ]
    for work in works:
        work()
        with networks.stoppable(threading.Event()):
            networks._HERE.stop = stop
            with pytest.raises(networks.StoppedError):
                work()
