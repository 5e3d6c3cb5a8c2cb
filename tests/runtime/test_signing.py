"""Signed policies: every changed byte is named, and the manifest says where they are from."""

import json
import shutil

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from tests.training.logs import log, origin, saved
from tests.training.runs import bc, begin, finish
from tidelog import judge
from tidelog._files import checksum
from tidelog.cli import main
from tidelog.ope.verdict import held_out_part, store_verdict
from tidelog.policies.policy import fingerprint, load_policy, remember
from tidelog.runtime.artefact import SavedPolicy
from tidelog.training.record import Record
from tidelog.training.run import policy_of_run

__all__ = ["log", "origin", "saved"]


def pem(path, private):
    path.write_bytes(
        private.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    public = private.public_key().public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    path.with_suffix(".pub").write_bytes(public)
    return path


@pytest.fixture(scope="module")
def made(origin, tmp_path_factory):
    """A judged run, a key, another one, and its policy signed as a folder and as a zip."""
    folder = tmp_path_factory.mktemp("signed")
    run = finish(begin(bc(), origin, folder / "run", steps=14))
    policy = policy_of_run(folder / "run")
    verdict = judge(policy, held_out_part(folder / "run", run.record, None)[0], True, ledger=False, progress=False)
    store_verdict(verdict, folder / "run", "member-0")
    remember(folder / "run", policy)
    key = pem(folder / "key.pem", ed25519.Ed25519PrivateKey.generate())
    pem(folder / "other.pem", ed25519.Ed25519PrivateKey.generate())
    for to in ("folder", "zip"):
        words = ["export", folder / "run", "--to", to, "--no-onnx", "--sign", key]
        assert main([*map(str, words)]) == 0
    shutil.move(folder / "run" / "policy", folder / "policy")
    shutil.move(folder / "run" / "policy.zip", folder / "policy.zip")
    return folder


def verify(capsys, *words):
    capsys.readouterr()
    code = main(["verify", *map(str, words)])
    said = capsys.readouterr()
    return code, " ".join((said.out + said.err).split())


@pytest.mark.parametrize("name", ["policy", "policy.zip"])
def test_a_signed_policy_is_verified(name, made, capsys):
    code, said = verify(capsys, made / name, "--key", made / "key.pub")
    assert code == 0, said
    assert "files: all 1 have the checksums of the manifest" in said
    assert "signature: valid, by the key" in said
    assert "not checked. fix: name the signer's public key with --key" in verify(capsys, made / name)[1]
    assert verify(capsys, made / name, "--quiet")[1].endswith(": complete, signature not checked")
    assert verify(capsys, made / name, "--quiet", "--key", made / "key.pub")[1].endswith("complete, valid signature")


@pytest.mark.slow
@pytest.mark.parametrize("stride", [301, pytest.param(11, marks=pytest.mark.full)])
@pytest.mark.parametrize("name", ["policy", "policy.zip"])
def test_every_flipped_byte_is_named(name, stride, made, tmp_path, capsys):
    target = tmp_path / name
    files = [made / name] if name.endswith(".zip") else sorted((made / name).iterdir())
    for file in files:
        content = file.read_bytes()
        for at in [*range(0, len(content), min(stride, len(content) // 8)), len(content) - 1]:
            shutil.rmtree(target) if target.is_dir() else target.unlink(missing_ok=True)
            copy = shutil.copytree if (made / name).is_dir() else shutil.copy
            copy(made / name, target)
            changed = bytearray(content)
            changed[at] ^= 1
            (target if target.is_file() else target / file.name).write_bytes(bytes(changed))
            code, said = verify(capsys, target, "--key", made / "key.pub")
            assert code == 2, (file.name, at)
            assert str(target) in said, (file.name, at, said)
            assert "CRC-32" not in said


def test_other_keys_and_unsigned_policies_are_refused(made, tmp_path, capsys):
    code, said = verify(capsys, made / "policy", "--key", made / "other.pub")
    assert code == 2
    assert "was made with the key" in said
    shutil.copytree(made / "policy", tmp_path / "bare")
    (tmp_path / "bare" / "signature.json").unlink()
    code, said = verify(capsys, tmp_path / "bare", "--key", made / "key.pub")
    assert code == 2
    assert "is not signed: it has no signature.json. fix: export it again with --sign KEY" in said
    code, said = verify(capsys, tmp_path / "bare")
    assert code == 0
    assert "signature: none, so nobody vouches for this policy" in said
    rsa_key = pem(tmp_path / "rsa.pem", rsa.generate_private_key(65537, 2048))
    (tmp_path / "text").write_text("no key")
    reasons = {
        rsa_key: "expected an Ed25519 private key",
        tmp_path / "text": "is not a private key in PEM",
        tmp_path / "nowhere": "is not a file",
    }
    target = tmp_path / "x.zip"
    for key, reason in reasons.items():
        assert main(["export", str(made / "run"), "--to", "zip", "--out", str(target), "--sign", str(key)]) == 2
        said = " ".join(capsys.readouterr().err.split())
        assert reason in said
        assert "openssl genpkey -algorithm ed25519" in said
        assert not target.exists()
    assert main(["export", str(made / "run"), "--to", "onnx", "--sign", str(made / "key.pem")]) == 2
    assert "an .onnx file has none" in " ".join(capsys.readouterr().err.split())


def test_the_manifest_has_the_checksums_of_what_the_policy_is_from(made):
    provenance, run = SavedPolicy(made / "policy").manifest["provenance"], made / "run"
    assert provenance["log"]["fingerprint"] == Record.read(run).data.fingerprint
    assert provenance["run"]["sha256"] == checksum(run / "run.json")
    for link, file in (("checkpoint", "checkpoints/0000000014/manifest.json"), ("verdict", "verdicts/member-0-1.json")):
        assert provenance[link] == {"file": file, "sha256": checksum(run / file)}
    assert provenance["weights"] == fingerprint(load_policy(made / "policy").params)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda data: data | {"signature": _spare_bits(data["signature"])}, "spare bits of the signature"),
        (lambda data: data | {"key": "valid\n\x1b[2J"}, "no fingerprint of 64 hexadecimal digits"),
        (lambda data: data | {"key": {"a": 1}}, "no fingerprint of 64 hexadecimal digits"),
    ],
)
def test_a_signature_has_one_form(change, words, made, tmp_path, capsys):
    policy = shutil.copytree(made / "policy", tmp_path / "policy")
    file = policy / "signature.json"
    file.write_text(json.dumps(change(json.loads(file.read_text()))))
    code, said = verify(capsys, policy, "--key", made / "key.pub")
    assert (code, "is not a signature" in said, words in said) == (2, True, True), said


def _spare_bits(text):
    """Set one of the last four bits, which base64 of 64 bytes does not use."""
    letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/"
    body = text.rstrip("=")
    return body[:-1] + letters[letters.index(body[-1]) + 1] + "=" * (len(text) - len(body))


def test_a_signed_folder_holds_nothing_that_the_signature_does_not_cover(made, tmp_path, capsys):
    policy = shutil.copytree(made / "policy", tmp_path / "policy")
    (policy / "README.md").write_text("take this policy")
    code, said = verify(capsys, policy, "--key", made / "key.pub")
    assert code == 2
    assert "holds 'README.md', which its signature does not cover. fix: move it to another folder" in said
