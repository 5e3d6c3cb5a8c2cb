"""Policies on a stub of the Hugging Face Hub, through `huggingface_hub` itself."""

import importlib
import json
import os
import re
import subprocess
import sys

import numpy as np
import polars as pl
import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests import hub_stub
from tests.cli.conftest import call
from tests.runtime.cases import listing, policy
from tests.runtime.test_signing import pem
from tidelog import ConfigError, collect, hub, load_policy
from tidelog.cli.policies import open_policy
from tidelog.errors import CheckpointError
from tidelog.policies.model_card import model_card
from tidelog.policies.policy import fingerprint

package = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
REPOSITORY = "me/treatment"
VERDICT = {
    "decision": "better",
    "acting": "sample",
    "advice": "Use it.",
    "date": "2026-01-01T00:00:00",
    "caveat": "propensities were estimated",
    "difference": 0.25,
    "low": 0.125,
    "high": 0.375,
    "level": 0.95,
    "episodes": 4000,
}


@pytest.fixture
def stub(monkeypatch, tmp_path):
    """A Hub of the test's own, with its own cache."""
    one = hub_stub.start()
    constants = importlib.import_module("huggingface_hub.constants")
    monkeypatch.setattr(constants, "ENDPOINT", one.url)
    template = constants.HUGGINGFACE_CO_URL_TEMPLATE.replace("https://huggingface.co", one.url)
    monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("HF_TOKEN", "good")
    yield one
    one.stop()


def judged():
    one = policy("iql, choice").with_acting("sample")
    one.declare("sample", VERDICT)
    return one


def files(stub, repository=REPOSITORY):
    commits = stub.repositories[repository]
    return commits[list(commits)[-1]]


def test_a_policy_is_pushed_and_loaded_again(stub):
    one = judged()
    address = one.push_to_hub(REPOSITORY)
    assert sorted(files(stub)) == ["README.md", "manifest.json", "weights.safetensors"]
    assert address == f"hf://{REPOSITORY}@{list(stub.repositories[REPOSITORY])[-1]}"
    for text in (f"hf://{REPOSITORY}", address, f"hf://{REPOSITORY}@main"):
        again = load_policy(text)
        assert fingerprint(again.params) == fingerprint(one.params)
        assert (again.acting, again.verdict) == (one.acting, one.verdict)
    assert fingerprint(open_policy(f"hf://{REPOSITORY}").params) == fingerprint(one.params)


def test_a_revision_is_the_policy_of_that_commit(stub):
    first = policy("iql, choice").push_to_hub(REPOSITORY)
    second = policy("discrete bcq").push_to_hub(REPOSITORY, message="another one")
    assert type(load_policy(first).algorithm).__name__ == "IQL"
    assert type(load_policy(second).algorithm).__name__ == "DiscreteBCQ"
    assert type(load_policy(f"hf://{REPOSITORY}").algorithm).__name__ == "DiscreteBCQ"


def test_the_card_has_the_verdict_the_data_and_the_limits(stub):
    log = collect("treatment", episodes=20, seed=0)
    judged().push_to_hub(REPOSITORY, log=log, license="apache-2.0")
    card = files(stub)["README.md"].decode()
    parsed = package.ModelCard(card)
    assert parsed.data.library_name == "tidelog"
    assert parsed.data.license == "apache-2.0"
    assert parsed.data.tags == ["tidelog", "offline-reinforcement-learning", "iql"]
    for text in (
        "| decision | better |",
        "| difference from the logged decisions | +0.25 (+0.125 to +0.375) |",
        "| caveat | propensities were estimated |",
        "in 20 episodes",
        "an estimate from logged decisions, not an experiment",
        "The verdict depends on this: propensities were estimated.",
        f'tl.load_policy("hf://{REPOSITORY}")',
    ):
        assert text in card
    assert [line[3:] for line in card.splitlines() if line.startswith("## ")] == [
        "Use", "Verdict", "Observations and actions", "Data", "Limits", "Settings",
    ]  # fmt: skip


def test_the_card_of_a_policy_that_nobody_judged_says_so():
    card = model_card(policy("iql, box"), REPOSITORY)
    assert card.count("Nobody has judged this policy in this way: do not use it before") == 2
    assert "not an experiment" not in card
    assert "## Verdict" in model_card(listing("lists, mean"), REPOSITORY)


def test_an_unsupported_verdict_shows_no_number():
    one = judged()
    one.declare("sample", {**VERDICT, "decision": "unsupported"})
    card = model_card(one, REPOSITORY)
    assert "unknown: the log does not support a number" in card
    assert "0.25" not in card


def test_names_of_a_log_write_no_markup():
    facts = {"<script>alert(1)</script>": "a | b\n## heading\n[link](http://x)"}
    card = model_card(policy("iql, choice"), REPOSITORY, facts)
    assert "<script>" not in card
    assert "\n## heading" not in card
    assert r"a \| b \#\# heading \[link\](http://x)" in card


def test_a_signed_policy_is_checked_with_its_key(stub, tmp_path):
    keys = [pem(tmp_path / f"{name}.pem", ed25519.Ed25519PrivateKey.generate()) for name in ("own", "other")]
    publics = [key.with_suffix(".pub") for key in keys]
    judged().push_to_hub(REPOSITORY, key=keys[0])
    assert "signature.json" in files(stub)
    load_policy(f"hf://{REPOSITORY}", key=publics[0])
    with pytest.raises(CheckpointError, match="was made with the key"):
        load_policy(f"hf://{REPOSITORY}", key=publics[1])
    judged().push_to_hub("me/unsigned")
    with pytest.raises(CheckpointError, match=r"is not signed: it has no signature\.json"):
        load_policy("hf://me/unsigned", key=publics[0])


def changed(content):
    return content[:-1] + bytes([content[-1] ^ 1])


def renamed(content):
    return content.replace(b"weights.safetensors", b"../safetensors.bin")


HOSTILE = {
    "a changed weight": ("weights.safetensors", changed, "checksum"),
    "a changed manifest": ("manifest.json", lambda text: text.replace(b'"iql"', b'"bcq"'), "checksum differs"),
    "a manifest that is no JSON": ("manifest.json", lambda text: b"{", "incomplete or cannot be read"),
    "a path outside": ("manifest.json", renamed, "manifest.json"),
    "a larger file": ("weights.safetensors", lambda content: content + b"x", "truncated or changed"),
    "a shorter file": ("weights.safetensors", lambda content: content[:-4], "truncated or changed"),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("what", HOSTILE)
def test_what_the_hub_sends_is_not_trusted(what, stub, tmp_path):
    name, change, message = HOSTILE[what]
    judged().push_to_hub(REPOSITORY)
    stub.commit(REPOSITORY, {name: change(files(stub)[name])})
    with pytest.raises(CheckpointError, match=message) as raised:
        load_policy(f"hf://{REPOSITORY}")
    assert "fix: " in str(raised.value)


def test_only_the_files_of_a_policy_are_fetched(stub):
    judged().push_to_hub(REPOSITORY)
    stub.commit(REPOSITORY, {"setup.py": b"raise SystemExit", "more/weights.safetensors": b"x"})
    load_policy(f"hf://{REPOSITORY}")
    fetched = {re.sub(r".*/resolve/[^/]+/", "", path) for command, path in stub.requests if "/resolve/" in path}
    assert fetched == {"manifest.json", "weights.safetensors"}


REFUSED = {
    "no repository": ("hf://me/nothing", CheckpointError, r"hf://me/nothing cannot be fetched: .*fix: check the name"),
    "no revision": (f"hf://{REPOSITORY}@v9", CheckpointError, "@v9 cannot be fetched"),
    "no policy": ("hf://me/other", CheckpointError, r"hf://me/other has no manifest\.json: it is not a policy"),
    "no name": ("hf://treatment", ConfigError, "fix: write hf://USER/NAME"),
    "dots": ("hf://me/../x", ConfigError, "fix: write hf://USER/NAME"),
}


@pytest.mark.sample(every=4)
@pytest.mark.parametrize("what", REFUSED)
def test_addresses_without_a_policy_are_refused(what, stub):
    address, kind, message = REFUSED[what]
    judged().push_to_hub(REPOSITORY)
    stub.commit("me/other", {"README.md": b"# other"})
    with pytest.raises(kind, match=message):
        load_policy(address)


def test_a_push_that_the_hub_refuses_names_the_fix(stub, monkeypatch):
    with pytest.raises(ConfigError, match=r"'treatment' is not a repository .*fix: write USER/NAME"):
        judged().push_to_hub("treatment")
    monkeypatch.setenv("HF_TOKEN", "wrong")
    with pytest.raises(ConfigError, match=r"hf://me/treatment was not written: .*401.*fix: check the name, the token"):
        judged().push_to_hub(REPOSITORY)
    assert stub.repositories == {}


def test_without_the_package_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    for use in (lambda: judged().push_to_hub(REPOSITORY), lambda: load_policy(f"hf://{REPOSITORY}")):
        with pytest.raises(ConfigError, match=r"this needs the package huggingface_hub .*fix: "):
            use()


def test_parts_of_addresses():
    assert hub.parse("hf://me/a.b-c@refs/pr/1") == ("me/a.b-c", "refs/pr/1")
    assert str(hub.parse("hf://me/a")) == "hf://me/a"
    assert not hub.is_address("policy")


def test_commands_take_an_address(stub, tmp_path, capsys):
    judged().push_to_hub(REPOSITORY)
    table = pl.DataFrame({"age": [1.0], "dose": [2.0], "pressure": [0.5], "ward": ["a"], "sex": ["f"]})
    table.write_csv(tmp_path / "rows.csv")
    words = ["act", f"hf://{REPOSITORY}", "--data", tmp_path / "rows.csv", "--out", tmp_path / "actions.csv"]
    assert call(*words, "--mode") == 0
    assert pl.read_csv(tmp_path / "actions.csv")["action"].to_list() == judged().with_acting("mode")(table).tolist()
    assert call("verify", f"hf://{REPOSITORY}") == 0
    assert "all 1 have the checksums of the manifest" in capsys.readouterr().out
    assert call("verify", "hf://me/nothing") != 0
    assert "hf://me/nothing cannot be fetched" in " ".join(capsys.readouterr().err.replace("│", " ").split())


@pytest.mark.full
def test_a_program_with_the_usual_variables(stub, tmp_path):
    """As users set it: HF_ENDPOINT, HF_HOME and HF_TOKEN, with warnings as errors."""
    judged().save(tmp_path / "policy")
    script = """
import sys, numpy as np, tidelog as tl
one = tl.load_policy(sys.argv[1])
again = tl.load_policy(one.push_to_hub("me/other"))
seen = dict(age=1.0, dose=2.0, pressure=0.5, ward="a", sex="f")
print(again.verdict["decision"], np.asarray(again.probabilities(seen)).tolist())
"""
    variables = {"HF_ENDPOINT": stub.url, "HF_HOME": str(tmp_path / "home"), "HF_TOKEN": "good"}
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", script, str(tmp_path / "policy")],
        env={**os.environ, **variables}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    decision, _, numbers = done.stdout.strip().partition(" ")
    one = {"age": 1.0, "dose": 2.0, "pressure": 0.5, "ward": "a", "sex": "f"}
    assert decision == "better"
    np.testing.assert_allclose(json.loads(numbers), judged().probabilities(one), rtol=1e-5)
