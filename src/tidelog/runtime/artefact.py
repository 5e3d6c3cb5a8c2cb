"""The files of a saved policy: their checksums, their schema, their signature."""

from __future__ import annotations

import base64
import hashlib
import io
import json
import math
import re
import shlex
import stat
import struct
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load

from tidelog._files import LARGEST, MANIFEST, Kind, parse_saved, replaced_copy, write_file
from tidelog.errors import CheckpointError, ConfigError, TidelogError, install, nearest
from tidelog.types import Discrete, Profile, Spec, Vector

# Signatures of saved policies: Ed25519 over the bytes of the manifest, which holds the checksum of every file.
#
# The keys are PEM files, as `openssl genpkey -algorithm ed25519` writes them. Signing and verifying need the extra
# `sign` (the package `cryptography`).

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
        signed = base64.b64decode(data["signature"], validate=True)
        if base64.b64encode(signed).decode() != data["signature"]:
            raise ValueError("spare bits of the signature are set")
        if not isinstance(data["key"], str) or not re.fullmatch("[0-9a-f]{64}", data["key"]):
            raise ValueError("the key is no fingerprint of 64 hexadecimal digits")
        return Signature(data["key"], signed)
    except (ValueError, TypeError, RecursionError) as error:
        raise CheckpointError(f"{where} is not a signature: {error}", fix="sign the policy again") from error


def verify(manifest: bytes, signature: Signature, key: Path, where: str) -> str:
    """Return the fingerprint of the public key; CheckpointError if the signature is not of this key and manifest."""
    from cryptography.exceptions import InvalidSignature

    public = _key(key, private=False)
    fingerprint = _fingerprint(public)
    if signature.key != fingerprint:
        raise CheckpointError(
            f"{where} was made with the key {signature.key[:16]}",
            f"{fingerprint[:16]} of {key}",
            "use the signer's public key, or do not trust this policy",
        )
    try:
        public.verify(signature.signature, manifest)
    except InvalidSignature:
        raise CheckpointError(
            f"{where} does not belong to the manifest: one was changed after signing", fix="fetch the policy again"
        ) from None
    return fingerprint


def _key(path: Path, *, private: bool) -> Any:
    """Read a PEM file with an Ed25519 key."""
    try:
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError:
        raise ConfigError("signatures need the package cryptography", fix=install("sign")) from None
    kind = "private" if private else "public"
    make = f"openssl genpkey -algorithm ed25519 -out key.pem; openssl pkey -in key.pem -pubout -out {kind}.pem"
    try:
        if not path.is_file():
            raise ConfigError(f"{path} is not a file", f"a PEM file with the {kind} key", make)
        with path.open("rb") as file:
            content = file.read(LARGEST_KEY)
        load: Any = serialization.load_pem_private_key if private else serialization.load_pem_public_key
        key = load(content, password=None) if private else load(content)
    except (OSError, ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise ConfigError(f"{path} is not a {kind} key in PEM without a password: {error}", fix=make) from error
    if not isinstance(key, ed25519.Ed25519PrivateKey if private else ed25519.Ed25519PublicKey):
        raise ConfigError(f"{path} holds a {type(key).__name__}", f"an Ed25519 {kind} key", make)
    return key


def _fingerprint(public: Any) -> str:
    return hashlib.sha256(public.public_bytes_raw()).hexdigest()


# A saved policy on disk: a folder, or a zip of one, and its spec. Unknown content is refused; nothing is executed.
#
# A zip holds the folder's files uncompressed: nothing in it can expand. A member outside the file, a repeated member,
# or a name outside the manifest is refused before it is read. Every field of every leaf of the spec is checked.

POLICY = Kind("policy", 4)
WEIGHTS, ONNX = "weights.safetensors", "policy.onnx"
FILES = (WEIGHTS, ONNX)
AGAIN = "export the policy again"  # the advice on a damaged one
FIELDS = (
    *("kind", "schema", "algorithm", "config", "spec", "scaler", "masks", "missing"),
    *("origin", "metrics", "versions", "recipe", "onnx", "parity", "files"),
)
OPTIONAL = ("acting", "verdict", "provenance", "values")  # in no policy that an older tidelog wrote
LARGEST_WEIGHT = 1e18  # the square of a larger one has no room in float32
DATE = (1980, 1, 1, 0, 0, 0)  # equal policies have equal zips
BROKEN = (zipfile.BadZipFile, NotImplementedError, RuntimeError, ValueError, LookupError, EOFError, OSError,
          struct.error, zlib.error, OverflowError)  # fmt: skip
NumpyArray = np.ndarray[Any, Any]


class SavedPolicy:
    """A policy's checked manifest, and its files, each checked against the manifest when it is read."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.where = f"{self.path}/{MANIFEST}"
        zipped = self.path.is_file()
        if not self.path.exists() and replaced_copy(self.path) is None:
            raise CheckpointError(f"{self.path} does not exist", fix="check the path of the policy")
        try:
            if zipped:
                self.manifest = POLICY.read(_member(self.path, MANIFEST), self.where)
            elif (self.path / "run.json").exists():
                raise CheckpointError(
                    f"{self.path} is a run, not a saved policy",
                    fix=(
                        f"use tidelog.load_run({str(self.path)!r}).policy(), or `tidelog export "
                        f"{shlex.quote(str(self.path))}`"
                    ),
                )
            else:
                self.manifest = POLICY.manifest(self.path)
            self._check_fields()
        except RecursionError:
            raise CheckpointError(f"{self.where} is nested too deeply", fix=AGAIN) from None
        for info in _members(self.path) if zipped else ():
            if info.filename not in (MANIFEST, SIGNATURE, *self.manifest["files"]):
                raise CheckpointError(
                    f"{self.path} holds {info.filename!r}, not in its manifest", fix="export it again"
                )

    def _check_fields(self) -> None:
        manifest, files = self.manifest, self.manifest.get("files")
        for name in manifest:
            if name not in (*FIELDS, *OPTIONAL):
                raise CheckpointError(
                    f"{self.where} has the unknown field '{name}'", fix="use the newer tidelog that wrote it"
                )
        missing = [name for name in FIELDS if name not in manifest]
        if missing:
            raise CheckpointError(f"{self.where} has no '{missing[0]}'", fix=AGAIN)
        if not isinstance(files, Mapping) or WEIGHTS not in files:
            raise CheckpointError(f"{self.where} lists no {WEIGHTS}", fix=AGAIN)
        for name in files:  # their bytes and checksums were checked with the manifest
            if name not in FILES:
                raise CheckpointError(f"{self.where} lists the file {name!r}: {nearest(name, FILES)}")

    @property
    def spec(self) -> Spec:
        """Return the observations and actions of the policy."""
        spec = read_spec(self.manifest["spec"], self.where)
        for name, entry in spec_notes(spec).items():
            if self.manifest[name] != entry:
                raise CheckpointError(f"{self.where}: '{name}' differs from the spec", fix=AGAIN)
        return spec

    @property
    def scales(self) -> dict[str, tuple[NumpyArray, NumpyArray]]:
        """Return mean and standard deviation [size] of the standardised leaves."""
        scales, spec = {}, self.spec
        try:
            for name, leaf in self.manifest["scaler"]["observation"].items():
                size = getattr(spec.observation[name], "size", None)
                pair = _float32(leaf["mean"], size), _float32(leaf["std"], size)
                if (pair[1] <= 0).any():
                    raise ValueError(f"a standard deviation of '{name}' is 0 or less")
                if not set(leaf.get("whole", ())) <= set(range(len(pair[0]))):
                    raise ValueError(f"columns of whole numbers of '{name}' do not exist")
                scales[name] = pair
        except (KeyError, TypeError, AttributeError, ValueError, OverflowError) as error:
            raise CheckpointError(f"{self.where}: the scaler is invalid: {error!r}", fix=AGAIN) from error
        return scales

    @property
    def value_unit(self) -> tuple[float, float]:
        """Return factor and constant of values in the unit of the log's rewards: `value * factor + constant`."""
        unit = self.manifest.get("values", {"factor": 1.0, "constant": 0.0})
        numbers: list[Any] = [unit.get(name) for name in ("factor", "constant")] if isinstance(unit, Mapping) else []
        if len(numbers) != 2 or not all(type(one) in (int, float) and math.isfinite(one) for one in numbers):
            raise CheckpointError(
                f"{self.where}: 'values' is {json.dumps(unit)[:200]}",
                "a finite factor and constant",
                AGAIN,
            )
        return float(numbers[0]), float(numbers[1])

    def read(self, name: str) -> bytes:
        """Return a file's bytes after the check of size and checksum."""
        if name not in self.manifest["files"]:
            raise CheckpointError(f"{self.path} has no {name}", fix=AGAIN)
        if not self.path.is_file():
            return POLICY.file(self.path, name, self.manifest).read_bytes()
        content, facts = _member(self.path, name), self.manifest["files"][name]
        if len(content) != facts["bytes"] or hashlib.sha256(content).hexdigest() != facts["sha256"]:
            raise CheckpointError(f"{self.path}/{name} has another checksum than its manifest", fix="export it again")
        return content

    def manifest_text(self) -> bytes:
        """Return the bytes of the manifest, which a signature is of."""
        return _member(self.path, MANIFEST) if self.path.is_file() else POLICY.manifest_text(self.path)

    def signature(self) -> bytes | None:
        """Return the bytes of the signature file, or None without one."""
        if self.path.is_file():
            names = {info.filename for info in _members(self.path)}
            return _member(self.path, SIGNATURE) if SIGNATURE in names else None
        path = self.path / SIGNATURE
        if not path.is_file():
            return None
        if path.stat().st_size > LARGEST_KEY:
            raise CheckpointError(
                f"{path} has {path.stat().st_size:,} bytes: it is not a signature", fix="sign it again"
            )
        return path.read_bytes()

    def check_signature(self, key: Path) -> str:
        """Return the fingerprint of the public key that signed the manifest; CheckpointError if it did not."""
        content, where = self.signature(), f"{self.path}/{SIGNATURE}"
        if content is None:
            raise CheckpointError(
                f"{self.path} is not signed: it has no {SIGNATURE}", fix="export it again with --sign KEY"
            )
        signed = {MANIFEST, SIGNATURE, *self.manifest["files"]}
        others = sorted({one.name for one in self.path.iterdir()} - signed) if self.path.is_dir() else []
        if others:  # a zip with others is refused when it is opened
            found = f"{self.path} holds {others[0]!r}, which its signature does not cover"
            raise CheckpointError(found, fix="move it to another folder")
        return verify(self.manifest_text(), read_signature(content, where), key, where)

    def check_bytes(self) -> None:
        """Raise CheckpointError if the manifest, or a zip, holds a byte that its contents do not give."""
        text = self.manifest_text()
        if json.dumps(json.loads(text), indent=1).encode() != text:
            raise CheckpointError(f"{self.where} was changed after it was written", fix="fetch it again")
        if not self.path.is_file():
            return
        names = [info.filename for info in _members(self.path)]
        again = io.BytesIO()
        _write_zip(again, {name: _member(self.path, name) for name in names})
        content, expected = self.path.read_bytes(), again.getvalue()
        if content != expected:
            pairs = enumerate(zip(content, expected, strict=False))
            at = next((position for position, (one, two) in pairs if one != two), min(len(content), len(expected)))
            raise CheckpointError(f"{self.path} was changed after it was written, at byte {at:,}", fix="fetch it again")

    def arrays(self) -> dict[str, NumpyArray]:
        """Return the weights by name; CheckpointError names one with a number that no training gives.

        Custom modules, which have no recipe, may hold any.
        """
        try:
            arrays = dict(load(self.read(WEIGHTS)))
        except (SafetensorError, KeyError, ValueError, TypeError, OverflowError) as error:
            raise CheckpointError(
                f"{self.path}/{WEIGHTS}: invalid safetensors: {error}", fix="export it again"
            ) from error
        for name, array in arrays.items() if self.manifest["recipe"] is not None else ():
            least, most = (array.min(), array.max()) if array.size else (0, 0)
            if not -LARGEST_WEIGHT <= least <= most <= LARGEST_WEIGHT:  # NaN included
                raise CheckpointError(
                    f"{self.path}/{WEIGHTS}: the array {json.dumps(name)} has numbers from {least:g} to {most:g}",
                    f"finite ones of at most {LARGEST_WEIGHT:g}",
                    "train it again, with a lower learning rate, and export it",
                )
        return arrays


def _float32(values: Any, size: int | None) -> NumpyArray:
    with np.errstate(over="ignore"):  # infinite values are refused below
        scales = np.asarray(values, np.float32)
    if scales.shape != (size,) or not np.isfinite(scales).all():
        raise ValueError(f"scales have shape {list(scales.shape)}, expected {size} finite numbers")
    return scales


def check_target(path: Path) -> None:
    """Raise CheckpointError if a path holds something else than a saved policy."""
    if path.exists() and not is_at(path):
        raise CheckpointError(
            f"{path} exists and is not a saved policy, nothing was written", fix="choose another path"
        )


def write(path: Path, files: Mapping[str, bytes], manifest: Mapping[str, Any], key: Path | None = None) -> None:
    """Write a policy as a folder, or as a zip for a .zip path, atomically; replaces an older policy there.

    `key` is a private key that signs the manifest.
    """
    check_target(path)
    signed = None if key is None else lambda text: {SIGNATURE: sign(text, key)}
    if path.suffix != ".zip":
        POLICY.write(path, files, manifest, signed)
        return
    sums = {name: {"bytes": len(c), "sha256": hashlib.sha256(c).hexdigest()} for name, c in files.items()}
    text = POLICY.text(manifest, sums)
    archive = io.BytesIO()
    _write_zip(archive, {MANIFEST: text, **files, **({} if signed is None else signed(text))})
    write_file(path, archive.getvalue(), parents=True)


def _write_zip(target: io.BytesIO, contents: Mapping[str, bytes]) -> None:
    """Write a zip; equal contents give equal bytes."""
    with zipfile.ZipFile(target, "w", zipfile.ZIP_STORED) as archive:
        for name, content in contents.items():
            info = zipfile.ZipInfo(name, DATE)
            info.external_attr = (stat.S_IFREG | 0o644) << 16
            archive.writestr(info, content)


def is_at(path: Path) -> bool:
    """Return whether the path is a saved policy of any schema, which may be replaced."""
    try:
        SavedPolicy(path)
    except CheckpointError:
        try:
            content = _member(path, MANIFEST) if path.is_file() else POLICY.manifest_text(path)
        except CheckpointError:
            return False
        return POLICY.has_other_schema(content)
    return True


def _members(path: Path) -> list[zipfile.ZipInfo]:
    """Return a zip's members; CheckpointError unless they are a few plain, uncompressed files."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except BROKEN as error:
        if path.suffix == ".onnx":
            raise CheckpointError(
                f"{path}: an ONNX file, which programs without tidelog run with ONNX Runtime",
                "a saved policy",
                "name the run it was exported from, or export the policy with --to zip",
            ) from error
        raise CheckpointError(f"{path}: not a folder or valid zip ({error})", fix=AGAIN) from error
    names = [info.filename for info in members]
    for info in members:
        kind = stat.S_IFMT(info.external_attr >> 16)
        plain = info.compress_type == zipfile.ZIP_STORED and not info.flag_bits & 1 and kind in (0, stat.S_IFREG)
        if not plain or info.file_size != info.compress_size or names.count(info.filename) > 1:
            raise CheckpointError(f"{path}: {info.filename!r} is not one plain, uncompressed file", fix=AGAIN)
        if info.filename not in (MANIFEST, SIGNATURE, *FILES):
            raise CheckpointError(f"{path} holds {info.filename!r}: {nearest(info.filename, (MANIFEST, *FILES))}")
    if sum(info.file_size for info in members) > path.stat().st_size:
        raise CheckpointError(f"{path} declares array sizes larger than the archive", fix=AGAIN)
    return members


def _member(path: Path, name: str) -> bytes:
    """Return the bytes of one member."""
    sizes = {info.filename: info.file_size for info in _members(path)}
    if name not in sizes:
        raise CheckpointError(f"{path} has no {name}, so it is not a tidelog policy", fix="choose another path")
    if name == MANIFEST and sizes[name] > LARGEST:
        raise CheckpointError(f"{path}/{name} has {sizes[name]:,} bytes, at most {LARGEST:,}", fix="export it again")
    try:
        with zipfile.ZipFile(path) as archive:
            return archive.read(name)
    except OSError as error:
        raise CheckpointError(f"{path}/{name} cannot be read: {error}", fix="check the disk, and try again") from error
    except BROKEN as error:
        fix = "fetch the file again, or export the policy again"
        raise CheckpointError(f"{path}: {name} in it was changed or cut after it was written", fix=fix) from error


def read_spec(data: Any, where: str) -> Spec:
    """Return the spec of a manifest; CheckpointError names the invalid part."""
    try:
        spec = Spec.from_json(data)
    except TidelogError as error:
        raise CheckpointError(f"{where}: the spec is invalid: {error.found}", error.expected, error.fix) from error
    for name, part in {**spec.observation, "action": spec.action}.items():
        for field in ("names", "events", "features"):
            if not isinstance(part, Profile) and len(set(names := getattr(part, field, ()))) < len(names):
                raise CheckpointError(f"{where}: '{name}' has a name twice: {names!r:.200}", fix="export it again")
    return spec


def notes_of(manifest: Mapping[str, Any]) -> list[str]:
    """Return the notes for the user that a policy had when it was saved."""
    origin = manifest["origin"]
    return [str(note) for note in origin.get("notes", ())] if isinstance(origin, Mapping) else []


def spec_notes(spec: Spec) -> dict[str, Any]:
    """Return the meaning of masks and the fills of missing values, for programs that do not read specs."""
    space, missing = spec.action, {}
    for leaf in spec.observation.values():
        if isinstance(leaf, Vector):
            for name, value in leaf.fills:
                flag = f"{name} missing" if f"{name} missing" in leaf.names else None
                missing[name] = {"value": value, "flag": flag}
    masks = None
    if isinstance(space, Discrete):
        masks = {"actions": space.n, "true": "allowed", "in_the_log": spec.masked}
    return {"masks": masks, "missing": missing}
