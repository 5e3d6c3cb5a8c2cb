"""Signatures of saved policies: Ed25519 over the bytes of the manifest, which holds the checksum of every file.

The keys are PEM files, as `openssl genpkey -algorithm ed25519` writes them. Signing and verifying need the extra `sign`
(the package `cryptography`).
"""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError, ConfigError, install
from tidelog.input_files import parse_saved

SIGNATURE = "signature.json"
METHOD = "ed25519"
LARGEST_KEY = 10_000  # bytes


class Signature(NamedTuple):
    """A signature and the fingerprint of the key that belongs to it."""

    key: str  # SHA-256 of the public key's 32 bytes, in hexadecimal
    signature: bytes


def sign(manifest: bytes, key: Path) -> bytes:
    """Return the content of a signature file for the bytes of a manifest; ConfigError for an unusable private key."""
    private = _key(key, private=True)
    content = {
        "method": METHOD,
        "key": _fingerprint(private.public_key()),
        "signature": base64.b64encode(private.sign(manifest)).decode(),
    }
    return json.dumps(content, indent=1).encode()


def read_signature(content: bytes, where: str) -> Signature:
    """Parse a signature file; CheckpointError if it is not one."""
    try:
        data = parse_saved(content)
        if set(data) != {"method", "key", "signature"} or data["method"] != METHOD:
            raise ValueError(f"expected method {METHOD}, key and signature")
        return Signature(str(data["key"]), base64.b64decode(data["signature"], validate=True))
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{where} is not a signature: {error}. fix: sign the policy again") from error


def verify(manifest: bytes, signature: Signature, key: Path, where: str) -> str:
    """Return the fingerprint of the public key; CheckpointError if the signature is not of this key and manifest."""
    from cryptography.exceptions import InvalidSignature

    public = _key(key, private=False)
    fingerprint = _fingerprint(public)
    if signature.key != fingerprint:
        raise CheckpointError(
            f"{where} was made with the key {signature.key[:16]}, expected {fingerprint[:16]} of {key}. fix: use the "
            "signer's public key, or do not trust this policy"
        )
    try:
        public.verify(signature.signature, manifest)
    except InvalidSignature:
        raise CheckpointError(
            f"{where} does not belong to the manifest: one was changed after signing. fix: fetch the policy again"
        ) from None
    return fingerprint


def _key(path: Path, *, private: bool) -> Any:
    """Read a PEM file with an Ed25519 key."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError(f"signatures need the package cryptography. fix: {install('sign')}") from None
    kind = "private" if private else "public"
    make = f"openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out {kind}.pem"
    try:
        if not path.is_file():
            raise ConfigError(f"{path} is not a file: expected a PEM file with the {kind} key. fix: {make}")
        with path.open("rb") as file:
            content = file.read(LARGEST_KEY)
        load: Any = serialization.load_pem_private_key if private else serialization.load_pem_public_key
        key = load(content, password=None) if private else load(content)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} is not a {kind} key in PEM without a password: {error}. fix: {make}") from error
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise ConfigError(f"{path} holds a {type(key).__name__}: expected an Ed25519 {kind} key. fix: {make}")
    return key


def _fingerprint(public: Any) -> str:
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()
