"""`tidelog verify POLICY --key PUB`: whether a saved policy is complete and signed."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tidelog.cli.flags import File, OutputFlags, RunOrPolicy, parse, present, print_details, print_line
from tidelog.hub import local
from tidelog.runtime.artefact import SIGNATURE, SavedPolicy, read_signature


@dataclass
class Verify(OutputFlags):
    """Check a saved policy: its files and its signature."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a saved policy: a folder, a zip, or hf://USER/NAME on the Hugging Face Hub"""
    key: File | None = None
    """the signer's public key, an Ed25519 key in PEM; without it nobody's word is checked"""


def run(words: list[str]) -> int:
    """Check a policy, and print what was checked."""
    return present(parse(Verify, words, "verify"), _check)


def _check(options: Verify) -> dict[str, Any]:
    """Print each check, and return what was checked; CheckpointError for one that fails."""
    path = Path(local(options.policy))
    saved = SavedPolicy(path)
    for name in saved.manifest["files"]:
        saved.read(name)
    saved.check_bytes()
    print_details(f"files: all {len(saved.manifest['files'])} have the checksums of the manifest")
    content = saved.signature()
    signature: dict[str, Any] = {"key": None, "valid": None}  # None: nothing is signed, or no key checks it
    if options.key is not None:
        key = saved.check_signature(Path(options.key))
        signature = {"key": key, "valid": True}
        print_details(f"signature: valid, by the key {key[:16]}")
    elif content is None:
        print_details("signature: none, so nobody vouches for this policy")
    else:
        key = read_signature(content, f"{path}/{SIGNATURE}").key
        signature = {"key": key, "valid": None}
        print_details(f"signature: by the key {key[:16]}, not checked. fix: name the signer's public key with --key")
    if options.quiet:
        signed = {True: "valid signature", None: "signature not checked"}[signature["valid"]]
        print_line(f"{path}: complete, {signed if signature['key'] else 'not signed'}")
    return {"policy": str(path), "files": len(saved.manifest["files"]), "signature": signature}
