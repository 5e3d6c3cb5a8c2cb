"""Answers to a client: those of the NumPy runtime, and for all else a status and a sentence."""

import json
import os
import threading
import time
import tracemalloc
from types import SimpleNamespace

import anyio
import httpx
import numpy as np
import pytest

from tests.serving.bodies import BODIES, JSON, ROW
from tidelog import runtime
from tidelog.cli import serve
from tidelog.errors import SpecError
from tidelog.runtime import networks
from tidelog.runtime.rule import Question, Rule
from tidelog.serving.app import ActEndpoint, ActRequest, Bounds, application, example
from tidelog.types import Codes, Continuous, Discrete, Spec, Vector


def asked(policy, *requests, bounds=None, hosts=None):
    """Return the answers of a server to (method, path, options), one after the other."""

    async def go():
        transport = httpx.ASGITransport(application(policy, bounds, hosts))
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return [await client.request(method, path, **options) for method, path, options in requests]

    return anyio.run(go)


def act(policy, body, **options):
    return asked(policy, ("POST", "/act", {"json": body}), **options)[0]


def test_a_rule_is_served_as_a_policy(tmp_path):
    spec = Spec({"numeric": Vector(1, ("age",)), "words": Codes((2,), ("village",), (("north", "west"),))},
                Discrete(2, ("A", "B")))  # fmt: skip
    tree = Question(("numeric", 0), 40.0, None, 0, Question(("words", 0), None, 0, 1, 0))
    policy = runtime.load(Rule(tree, spec, (1, 0), "small rule").save(tmp_path / "rule.json"))
    rows = [{"age": 39, "village": "north"}, {"age": 40, "village": "north"}, {"age": 40, "village": "south"}]
    answer = act(policy, {"observations": rows})
    assert answer.json() == {"actions": ["A", "B", "A"], "codes": [0, 1, 0]}
    assert act(policy, {"observation": rows[0], "mask": [False, True]}).json()["action"] == "B"
    assert act(policy, {"observation": {"age": None, "village": "west"}}).status_code == 422
    assert act(policy, example(policy)).status_code == 200
    (described,) = asked(policy, ("GET", "/policy", {}))
    facts = described.json()
    assert (facts["algorithm"], facts["rule"]) == ("small rule", "if age < 40: A; else if village is north: B; else A")


def test_one_observation_and_a_batch_are_answered_as_numpy_answers(plain):
    policy = plain["iql, choice"]
    other = ROW | {"ward": "c", "dose": None}
    rows = [ROW, other] * 20
    one, many = act(policy, {"observation": other}), act(policy, {"observations": rows})
    assert one.status_code == many.status_code == 200
    numbers = {name: [np.nan if r[name] is None else r[name] for r in rows] for name in ROW}
    wanted = policy(numbers)
    assert one.json() == {"action": wanted[1], "code": wanted.codes[1]}
    assert many.json() == {"actions": wanted.tolist(), "codes": wanted.codes.tolist()}
    masks = [[False, False, True, False, False]] * 40
    assert act(policy, {"observations": rows, "masks": masks}).json()["codes"] == [2] * 40
    by_leaf = {"numeric": policy_numbers(policy), "categorical": [1, 1]}
    assert act(policy, {"observation": by_leaf}).json()["action"] == policy(ROW)


def policy_numbers(policy):
    return [{**ROW, "dose missing": 0.0}[name] for name in policy.spec.observation["numeric"].names]


def test_samples_come_with_their_propensity(plain):
    policy = plain["iql, choice"]
    answer = act(policy, {"observation": ROW, "seed": 3}).json()
    batch = {name: [value] for name, value in ROW.items()}
    drawn, chance = policy.sample_with_propensity(batch, 3)
    assert answer["action"] == drawn[0]
    assert answer["propensity"] == pytest.approx(chance[0])
    assert act(plain["bc, point"], {"observation": ROW, "seed": 3}).json()["propensity"] is None


def test_a_memory_goes_to_the_client_and_back(plain):
    policy = plain["iql, memory"]
    first = act(policy, {"observation": ROW}).json()
    second = act(policy, {"observation": ROW, "state": first["state"]}).json()
    state = policy.initial_state(1)
    batch = {name: [value] for name, value in ROW.items()}
    for answer in (first, second):
        assert answer["action"] == policy(batch, state=state)[0]
        np.testing.assert_allclose(answer["state"], state.carry[0], rtol=1e-6)
    assert act(policy, {"observation": ROW, "state": [0.0]}).status_code == 422


def test_pictures_are_whole_numbers_to_255(plain):
    policy = plain["discrete bcq, pictures"]
    picture = np.random.default_rng(0).integers(0, 256, (9, 8, 2))
    seen = {"picture": picture.astype(np.uint8), "x": np.asarray([0.5, 1.0])}
    answer = act(policy, {"observation": {"picture": picture.tolist(), "x": [0.5, 1.0]}})
    assert answer.json()["action"] == policy(seen)
    wrong = {"a number": [[[256]]], "half a number": [[[0.5]]], "another shape": [[[0]], [[0], [1]]]}
    texts = {name: act(policy, {"observation": {"picture": one, "x": [0, 0]}}) for name, one in wrong.items()}
    assert [answer.status_code for answer in texts.values()] == [422] * 3
    assert "Expected `int` <= 255 - at `$.observation.picture[0][0][0]`" in texts["a number"].text
    assert "rows of different lengths" in texts["another shape"].text


@pytest.mark.parametrize("name", BODIES)
def test_what_does_not_fit_is_named(name, plain):
    body, status, message = BODIES[name]
    answer = act(plain["iql, choice"], body, bounds=Bounds(rows=3))
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


RAW = {
    "no JSON": (b"{", JSON, 400, "the body is not JSON"),
    "not even text": (b"\xff\xfe\x00", JSON, 400, "the body is not JSON"),
    "NaN": (b'{"observation": {"age": NaN}}', JSON, 400, "nan is not finite. fix: send valid JSON, with null"),
    "twice": (b'{"observation": {"age": 1, "age": 2}}', JSON, 400, "the key 'age' is repeated in one object"),
    "a tower": (b"[" * 20_000, JSON, 400, "nested too deeply"),
    "a giant": (b'{"observation": {"age": ' + b"9" * 9_000 + b"}}", JSON, 400, "the body is not JSON"),
    "a form": (b"age=1", {"content-type": "application/x-www-form-urlencoded"}, 415, "expected application/json"),
    "no type": (b"{}", {}, 415, "expected application/json"),
    "large": (b" " * 30_001, JSON, 413, "larger than 30,000 bytes"),
}  # fmt: skip


@pytest.mark.parametrize("name", RAW)
def test_bytes_that_are_no_request_are_refused(name, plain):
    content, headers, status, message = RAW[name]
    request = ("POST", "/act", {"content": content, "headers": headers})
    (answer,) = asked(plain["iql, choice"], request, bounds=Bounds(body=30_000))
    assert (answer.status_code, message in answer.json()["error"]) == (status, True), answer.text


def test_a_body_that_does_not_come_and_an_answer_that_takes_long(plain, monkeypatch):
    async def stuck():
        yield b"{"
        await anyio.sleep(30)

    quick = Bounds(seconds=0.05)
    request = ("POST", "/act", {"content": stuck(), "headers": {**JSON, "content-length": "99"}})
    assert asked(plain["iql, choice"], request, bounds=quick)[0].status_code == 408
    monkeypatch.setattr(ActEndpoint, "compute", lambda acts, asked: __import__("time").sleep(0.5))
    assert act(plain["iql, choice"], {"observations": [ROW] * 20}, bounds=quick).status_code == 503


def test_the_rest_of_many_rows_is_not_computed_when_nobody_waits(plain, monkeypatch):
    policy, stop, computed = plain["iql, choice"], threading.Event(), []
    rows = {name: np.asarray([value] * 4) for name, value in ROW.items()}

    def outputs(self, seen):
        computed.append(len(next(iter(seen.leaves.values()))))
        stop.set()
        return whole(self, seen)

    whole = type(policy).outputs
    monkeypatch.setattr(type(policy), "outputs", outputs)
    monkeypatch.setattr(policy, "_chunk", 2)
    with networks.stoppable(stop), pytest.raises(networks.StoppedError):
        policy.act(rows)
    assert computed == [2]


def test_what_goes_wrong_within_is_a_500_without_details(plain, monkeypatch):
    def broken(server, asked):
        raise RuntimeError("secret")

    monkeypatch.setattr(ActEndpoint, "compute", broken)

    async def go(raised):
        transport = httpx.ASGITransport(application(plain["iql, choice"]), raise_app_exceptions=raised)
        async with httpx.AsyncClient(transport=transport, base_url="http://test") as client:
            return await client.post("/act", json={"observation": ROW})

    answer = anyio.run(go, False)
    assert answer.status_code == 500
    assert answer.json() == {"error": "the answer failed. fix: see the server's log"}
    with pytest.raises(RuntimeError, match="secret"):  # uvicorn writes what the application raises into its log
        anyio.run(go, True)


def test_the_server_tells_of_itself(plain):
    policy = plain["iql, choice"]
    answers = asked(
        policy, ("GET", "/health", {}), ("GET", "/policy", {}), ("POST", "/act", {"json": {"observations": [ROW] * 3}}),
        ("POST", "/act", {"json": {}}), ("GET", "/act", {}), ("GET", "/elsewhere", {}),
    )  # fmt: skip
    assert [answer.status_code for answer in answers] == [200, 200, 200, 422, 405, 404]
    assert answers[0].json() == {"status": "ok"}
    assert answers[1].json()["spec"]["action"]["names"] == list(policy.spec.action.names)
    assert "GET /policy" in answers[5].json()["error"]


def test_random_bodies_are_answered(plain):
    from tests.serving.bodies import random_body

    generator = np.random.default_rng(0)
    requests = [("POST", "/act", {"content": random_body(generator), "headers": JSON}) for _ in range(400)]
    answers = asked(plain["iql, choice"], *requests, ("GET", "/health", {}))
    statuses = {answer.status_code for answer in answers}
    assert statuses <= {200, 400, 413, 422}
    assert {200, 400, 422} <= statuses  # 0 of 17 other seeds fail
    assert all("error" in json.loads(answer.text) for answer in answers if answer.status_code != 200)


def test_letters_and_numbers_beyond_what_fits_are_answered_in_json(plain):
    policy, state = plain["iql, choice"], plain["iql, memory"]
    odd = asked(policy, ("POST", "/act", {"content": b'{"observation": {"age": 1, "\\ud800": 1}}', "headers": JSON}))[0]
    assert odd.status_code == 422
    assert "unknown feature" in odd.json()["error"]
    text = b'{"observation": {"numeric": [1, 2, "\\ud800", 0], "categorical": [0, 0]}}'
    half = asked(policy, ("POST", "/act", {"content": text, "headers": JSON}))[0]
    assert (half.status_code, half.json()["error"][:30]) == (422, "a text has half of a character")
    assert act(policy, {"observation": ROW | {"ward": "b\0"}}).status_code == 422
    far = act(state, {"observation": ROW, "state": [1e300] * state.initial_state().carry.shape[1]})
    assert far.status_code == 422
    assert "expected finite numbers of shape" in far.json()["error"]
    beyond = act(policy, {"observation": ROW | {"age": 3e38}, "seed": 1})
    assert beyond.status_code == 422 or np.isfinite(beyond.json()["propensity"])


def test_many_fields_given_twice_are_found_quickly(plain):
    names = ",".join(f'"{n}":0' for n in range(60_000))
    begin = time.perf_counter()
    answer = asked(plain["iql, choice"], ("POST", "/act", {"content": f'{{{names},"z":0,"z":0}}', "headers": JSON}))[0]
    assert "the key 'z' is repeated in one object" in answer.json()["error"]
    assert time.perf_counter() - begin < 10  # one by one against all: a minute


def test_one_long_word_does_not_widen_every_row(plain):
    rows = [ROW] * 500 + [ROW | {"ward": "x" * 100_000}]
    tracemalloc.start()
    answer = act(plain["iql, choice"], {"observations": rows})
    most = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert answer.status_code == 422
    assert most < 30_000_000


def test_the_example_of_a_policy_is_answered(plain):
    body = example(plain["iql, choice"])
    assert set(body["observation"]) == set(ROW)
    assert act(plain["iql, choice"], body).status_code == 200
    assert example(plain["discrete bcq, pictures"]) is None
    assert serve._example(plain["discrete bcq, pictures"], "http://here/act") == []


def test_a_body_of_unknown_length_is_refused(plain):
    """A million chunks of one byte would take the time of all others."""

    async def chunks():
        yield b"{"
        yield b"}"

    answer = asked(plain["iql, choice"], ("POST", "/act", {"content": chunks(), "headers": JSON}))[0]
    assert answer.status_code == 411
    assert answer.json()["error"] == "the length of the body is unknown. fix: send it whole, with Content-Length"


@pytest.mark.parametrize(("host", "status"), [
    ("localhost", 200), ("LOCALHOST:8000", 200), ("[::1]:80", 200), ("[::1]", 200), ("ward.example.org", 200),
    ("rebound.example", 400), ("", 400), ("localhost.evil", 400), ("localhost@evil", 400), ("localhost x", 400),
])  # fmt: skip
def test_other_hosts_are_refused(host, status, plain):
    """Names that point to this machine, but are not its own, are how a page of another site reaches it."""
    request = ("GET", "/health", {"headers": {"Host": host}})
    answer = asked(plain["iql, choice"], request, hosts=("localhost", "[::1]", "*.example.org"))[0]
    assert answer.status_code == status


def test_pages_of_other_sites_get_nothing(plain):
    """A page may send plain text unasked, and JSON only after a question that nobody answers with permission."""
    origin = {"Origin": "http://evil.example"}
    plainly = ("POST", "/act", {"content": b"{}", "headers": {**origin, "content-type": "text/plain"}})
    question = ("OPTIONS", "/act", {"headers": {**origin, "Access-Control-Request-Method": "POST"}})
    reading = ("GET", "/policy", {"headers": origin})
    answers = asked(plain["iql, choice"], plainly, question, reading)
    assert [answer.status_code for answer in answers] == [415, 405, 200]
    assert not any("access-control" in name for answer in answers for name in answer.headers)


def test_a_body_that_is_longer_than_it_says_is_refused(plain):
    request = ("POST", "/act", {"content": b" " * 90_000, "headers": {**JSON, "content-length": "10"}})
    (answer,) = asked(plain["iql, choice"], request, bounds=Bounds(body=80_000))
    assert (answer.status_code, answer.json()["error"]) == (
        413,
        "the body is larger than 80,000 bytes, the server's limit. fix: send fewer rows",
    )


def test_small_requests_do_not_wait_for_large_ones(plain, monkeypatch):
    """As many large ones as there are threads, each of which ends when the small one has its answer."""
    compute, answered = ActEndpoint.compute, threading.Event()

    def slow(endpoint, request):
        if request.rows > 1:
            assert answered.wait(20)
        return compute(endpoint, request)

    monkeypatch.setattr(ActEndpoint, "compute", slow)

    async def go():
        transport = httpx.ASGITransport(application(plain["iql, choice"]))
        async with (
            httpx.AsyncClient(transport=transport, base_url="http://test") as client,
            anyio.create_task_group() as group,
        ):
            statuses = []

            async def ask(rows):
                statuses.append((await client.post("/act", json={"observations": [ROW] * rows})).status_code)

            for _ in range(os.cpu_count() or 1):
                group.start_soon(ask, 400)
            await anyio.sleep(0.1)
            await ask(1)
            answered.set()
        return statuses

    assert set(anyio.run(go)) == {200}


def test_an_answer_that_is_no_number_is_refused():
    policy = SimpleNamespace(
        spec=Spec({"x": Vector(2)}, Continuous((-1.0,), (1.0,))),
        acting=None,
        act=lambda *args: (np.asarray([[np.inf]]), None),
    )
    endpoint = ActEndpoint(policy, 10)
    one = ActRequest({"x": np.zeros((1, 2))}, 1, True)
    with pytest.raises(SpecError, match=r"the action is not finite, the observation is too large\. fix: send smaller"):
        endpoint.compute(one)


def reads(spec, *rows):
    """What an endpoint reads of observations in a body."""
    policy = SimpleNamespace(spec=spec, is_recurrent=False)
    return ActEndpoint(policy, 10).read(json.dumps({"observations": rows}).encode()).observation


def test_rows_by_position_are_those_of_the_only_leaf():
    np.testing.assert_array_equal(reads(Spec({"x": Vector(2)}, Discrete(2)), [1, 2.5], [3, 4])["x"], [[1, 2.5], [3, 4]])
    np.testing.assert_array_equal(reads(Spec({"x": Vector(1)}, Discrete(2)), 1, 2)["x"], [[1], [2]])


def test_whole_numbers_of_categories_by_leaf_are_codes_and_all_else_is_a_label():
    spec = Spec({"n": Vector(1, ("age",)), "c": Codes((2,), ("ward",), (("a", "b"),))}, Discrete(2))
    assert reads(spec, {"n": [1], "c": [1]})["c"].dtype == np.int64
    assert reads(spec, {"n": [1], "c": ["b"]})["c"].tolist() == [["b"]]
    assert reads(spec, {"n": 1, "c": 1.0})["c"].dtype == np.float64
    named = reads(spec, {"age": True, "ward": 3}, {"age": 2, "ward": "b"})
    assert (named["age"].tolist(), named["ward"].tolist()) == ([1.0, 2.0], ["3", "b"])
    with pytest.raises(SpecError, match=r"Expected `object`, got `array` - at `\$.observations\[1\]`"):
        reads(spec, {"n": [1], "c": [1]}, [1])
