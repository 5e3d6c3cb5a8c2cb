"""`tidelog verify POLICY --key PUB --chain`: whether a saved policy is complete, signed, and where it is from."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tyro

from tidelog.cli.flags import File, Folder, OutputFlags, RunOrPolicy, parse, present, print_details, print_line
from tidelog.errors import CheckpointError, ConfigError
from tidelog.hub import local
from tidelog.runtime.artefact import SIGNATURE, Saved, read_signature


@dataclass
class Verify(OutputFlags):
    """Check a saved policy: its files, its signature, and where it is from."""

    policy: tyro.conf.Positional[RunOrPolicy]
    """a saved policy: a folder, a zip, or hf://USER/NAME on the Hugging Face Hub"""
    key: File | None = None
    """the signer's public key, an Ed25519 key in PEM; without it nobody's word is checked"""
    chain: bool = False
    """also compare log, run, checkpoint, verdict and weights with what the policy says about them"""
    run: Folder | None = None
    """with --chain: the run folder, if it is not where it was at the export"""


def run(words: list[str]) -> int:
    """Check a policy, and print what was checked."""
    options = parse(Verify, words, "verify")
    if options.run is not None and not options.chain:
        raise ConfigError("--run is set without --chain", fix="add --chain, or drop --run")
    return present(options, lambda: _check(options))


def _check(options: Verify) -> dict[str, Any]:
    """Print each check, and return what was checked; CheckpointError for one that fails."""
    path = Path(local(options.policy))
    saved = Saved(path)
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
    chain = _check_chain(options, saved) if options.chain else None
    if options.quiet:
        print_line(f"{path}: {_checked(signature, chain)}")
    return {"policy": str(path), "files": len(saved.manifest["files"]), "signature": signature, "chain": chain}


def _checked(signature: Mapping[str, Any], chain: Mapping[str, str] | None) -> str:
    """What was checked and holds, in one line."""
    signed = {True: "valid signature", None: "signature not checked"}[signature["valid"]]
    signed = signed if signature["key"] else "not signed"
    return ", ".join(["complete", signed, *([] if chain is None else ["complete chain"])])


def _check_chain(options: Verify, saved: Saved) -> dict[str, str]:
    """Print and return each link; CheckpointError if one is broken."""
    from tidelog.policies.policy import load_learnt_policy  # JAX: only the chain reads weights
    from tidelog.training.record import broken_links

    provenance = saved.manifest.get("provenance")
    if provenance is None:
        raise CheckpointError(f"{saved.path} carries no provenance", fix="export it from its run again")
    folder = None if options.run is None else Path(options.run)
    links = broken_links(provenance, load_learnt_policy(saved.path), folder)
    print_details(*(f"{name}: {sentence}" for name, sentence, _ in links))
    broken = [name for name, _, holds in links if not holds]
    if broken:
        raise CheckpointError(
            f"{saved.path}: the chain is broken at {', '.join(broken)}",
            fix="export the policy again from a run that you trust",
        )
    return {name: sentence for name, sentence, _ in links}
