"""Policies on a stub of the Hugging Face Hub, through `huggingface_hub` itself."""

import importlib
import re
import sys
import tempfile
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric import ed25519

from tests import hub_stub
from tests.runtime.cases import policy
from tests.runtime.test_signing import pem
from tidelog import ConfigError, hub, load_policy
from tidelog.cli.policies import open_policy
from tidelog.errors import CheckpointError
from tidelog.policies.policy import artefact_contents, fingerprint
from tidelog.runtime.artefact import write

package = pytest.importorskip("huggingface_hub", reason="needs the extra hub")
REPOSITORY = "me/treatment"


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


def files(stub, repository=REPOSITORY):
    commits = stub.repositories[repository]
    return commits[list(commits)[-1]]


def push(stub, one, repository=REPOSITORY, key=None):
    """The address of a commit with the files of a policy, as `upload_folder` of `huggingface_hub` sends them."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary) / "policy"
        write(folder, *artefact_contents(one), key)
        package.HfApi(token="good").create_repo(repository, exist_ok=True)
        commit = package.HfApi(token="good").upload_folder(repo_id=repository, folder_path=folder)
    return f"hf://{repository}@{commit.oid}"


def test_a_policy_is_pushed_and_loaded_again(stub):
    one = policy("iql, choice")
    address = push(stub, one)
    for text in (f"hf://{REPOSITORY}", address, f"hf://{REPOSITORY}@main"):
        assert fingerprint(load_policy(text).params) == fingerprint(one.params)
    assert fingerprint(open_policy(f"hf://{REPOSITORY}").params) == fingerprint(one.params)


def test_a_revision_is_the_policy_of_that_commit(stub):
    first, second = (push(stub, policy(name)) for name in ("iql, choice", "discrete bcq"))
    assert type(load_policy(first).algorithm).__name__ == "IQL"
    for text in (second, f"hf://{REPOSITORY}"):
        assert type(load_policy(text).algorithm).__name__ == "DiscreteBCQ"


def test_a_signed_policy_is_checked_with_its_key(stub, tmp_path):
    keys = [pem(tmp_path / f"{name}.pem", ed25519.Ed25519PrivateKey.generate()) for name in ("own", "other")]
    publics = [key.with_suffix(".pub") for key in keys]
    push(stub, policy("iql, choice"), key=keys[0])
    assert "signature.json" in files(stub)
    load_policy(f"hf://{REPOSITORY}", key=publics[0])
    with pytest.raises(CheckpointError, match="was made with the key"):
        load_policy(f"hf://{REPOSITORY}", key=publics[1])
    push(stub, policy("iql, choice"), "me/unsigned")
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
    push(stub, policy("iql, choice"))
    stub.commit(REPOSITORY, {name: change(files(stub)[name])})
    with pytest.raises(CheckpointError, match=message) as raised:
        load_policy(f"hf://{REPOSITORY}")
    assert "fix: " in str(raised.value)


def test_only_the_files_of_a_policy_are_fetched(stub):
    push(stub, policy("iql, choice"))
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
    push(stub, policy("iql, choice"))
    stub.commit("me/other", {"README.md": b"# other"})
    with pytest.raises(kind, match=message):
        load_policy(address)


def test_without_the_package_the_fix_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ConfigError, match=r"this needs the package huggingface_hub .*fix: "):
        load_policy(f"hf://{REPOSITORY}")


def test_parts_of_addresses():
    assert hub.parse("hf://me/a.b-c@refs/pr/1") == ("me/a.b-c", "refs/pr/1")
    assert hub.parse("hf://me/a") == ("me/a", None)
    assert not hub.is_address("policy")
