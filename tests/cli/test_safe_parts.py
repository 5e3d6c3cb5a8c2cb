"""`tidelog judge` of a run whose whole has no support: the part that it keeps, and every verb that takes it."""

import json

import pytest

from tests.ope.test_ladder import shop
from tidelog import DiscreteBCQ, Log, fit


@pytest.fixture(scope="module")
def judged(tmp_path_factory):
    """The folder with a run on the shop's log, and that log."""
    folder = tmp_path_factory.mktemp("shop")
    shop(3, count=6_000).save(folder / "log")
    algorithm = DiscreteBCQ(hidden=(32,), threshold=0.0)
    fit(algorithm, Log.load(folder / "log"), 1_000, out=folder / "run", held_out=0.5, progress=False)
    return folder


def test_a_run_keeps_the_policy_of_its_safe_part(judged, tidelog, tmp_path):
    code, out, _ = tidelog("judge", judged / "run", "--mode", "--ledger", "off", "--details")
    assert code == 0
    verdict = next((judged / "run" / "verdicts").glob("*.json"))
    steps = json.loads(verdict.read_text())["ladder"]
    share = max(one["share"] for one in steps if one["decision"] == "better")
    assert f"Use it only where the log shows its actions ({share:.0%} of decisions)" in out.replace("\n", " ")
    part = verdict.with_suffix(".policy")
    assert str(part) in out

    shop(9).save(tmp_path / "new")
    for log, decision in ((judged / "log", "UNSUPPORTED"), (tmp_path / "new", "BETTER")):  # it learnt from the first
        code, out, err = tidelog("judge", part, "--data", log, "--quiet")
        assert code == 0, err
        assert decision in out
    code, out, _ = tidelog("export", part, "--to", "folder", "--out", tmp_path / "exported", "--no-onnx")
    assert code == 0
    assert json.loads((tmp_path / "exported" / "manifest.json").read_text())["algorithm"] == "part"
    code, out, _ = tidelog("report", judged / "run", "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Use a part of it" in page
    assert "Parts of the policy" in page
    assert f"{share:.0%} of decisions" in page


def test_several_ways_of_acting_lead_with_the_best_part(judged, tidelog):
    code, out, _ = tidelog("judge", judged / "run", "--ledger", "off")
    assert code == 0
    assert "As a whole, none of the policies is shown to be better." in out
    code, out, _ = tidelog("judge", judged / "run", "--ledger", "off", "--json")
    assert code == 0
    advice = json.loads(out)["advice"]  # also what training prints at its end
    assert "Use it only where the log shows its actions" in advice
    assert "Keep what you have" not in advice
