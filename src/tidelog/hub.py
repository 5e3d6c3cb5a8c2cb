"""Policies on the Hugging Face Hub: a repository holds the files of a saved policy and a model card.

What is fetched is as little trusted as any file: the manifest comes first, and only the files that it lists, of the
sizes that it states, follow; reading them checks every checksum and field. Nothing in a repository is executed.
"""

from __future__ import annotations

import importlib
import re
from pathlib import Path
from typing import Any, NamedTuple

from tidelog.errors import CheckpointError, ConfigError, TidelogError, install
from tidelog.folders import LARGEST, MANIFEST
from tidelog.runtime.artefact_files import FILES, POLICY
from tidelog.runtime.signing import LARGEST_KEY, SIGNATURE

SCHEME = "hf://"
CARD = "README.md"
_ADDRESS = re.compile(r"hf://([\w.-]+/[\w.-]+)(?:@([\w./-]+))?")
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")


class Address(NamedTuple):
    """A policy on the Hub."""

    repository: str  # user/name
    revision: str | None  # a branch, a tag or a commit; None: the newest state

    def __str__(self) -> str:
        return f"{SCHEME}{self.repository}{'' if self.revision is None else f'@{self.revision}'}"


def is_address(path: str | Path) -> bool:
    """Return whether a path is an address on the Hub: text that begins with `hf://`."""
    return isinstance(path, str) and path.startswith(SCHEME)


def parse(text: str) -> Address:
    """Return the address that text such as `hf://user/name@revision` holds; ConfigError for any other text."""
    match = _ADDRESS.fullmatch(text)
    if match is None or ".." in text:
        raise ConfigError(
            f"{text!r} is not an address on the Hugging Face Hub. fix: write hf://USER/NAME or hf://USER/NAME@REVISION"
        )
    return Address(match[1], match[2])


def upload(
    repository: str,
    folder: Path,
    card: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    message: str | None = None,
    token: str | None = None,
) -> str:
    """Write the files of a saved policy and its card as one commit; return the address of this commit.

    The repository is created if it does not exist. ConfigError where the Hub refuses or does not answer, and without
    the extra `hub`.
    """
    if _REPOSITORY.fullmatch(repository) is None:
        raise ConfigError(f"{repository!r} is not a repository on the Hub. fix: write USER/NAME, as in 'me/treatment'")
    package = _package()
    names = [name for name in (MANIFEST, SIGNATURE, *FILES) if (folder / name).is_file()]
    add = package.CommitOperationAdd
    operations = [add(path_in_repo=CARD, path_or_fileobj=card.encode())]
    operations += [add(path_in_repo=name, path_or_fileobj=str(folder / name)) for name in names]
    try:
        api = package.HfApi(token=token, library_name="tidelog")
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.create_commit(
            repository, operations, commit_message=message or "Policy of tidelog", revision=revision
        )
    except Exception as error:  # huggingface_hub documents no common base of its errors
        raise ConfigError(
            f"{SCHEME}{repository} was not written: {_line(error)}. fix: check the name, the token (`hf auth login` "
            "or HF_TOKEN) and the network"
        ) from error
    return str(Address(repository, commit.oid))


def download(text: str, token: str | None = None) -> Path:
    """Fetch a policy into the Hub's cache and return its folder, whose files are not checked yet.

    Raises CheckpointError where the repository, the revision or a file is missing, or is not a saved policy;
    ConfigError for another address, and without the extra `hub`.
    """
    address, package = parse(text), _package()
    try:
        api = package.HfApi(token=token, library_name="tidelog")
        found = api.model_info(address.repository, revision=address.revision, files_metadata=True)
        sizes = {one.rfilename: one.size for one in found.siblings or ()}
        manifest = _fetch(api, address, found.sha, MANIFEST, sizes, LARGEST)
        listed = POLICY.read(manifest.read_bytes(), f"{text}/{MANIFEST}")["files"]
        for name in (name for name in FILES if name in listed):
            _fetch(api, address, found.sha, name, sizes, listed[name]["bytes"])
        if SIGNATURE in sizes:
            _fetch(api, address, found.sha, SIGNATURE, sizes, LARGEST_KEY)
    except TidelogError:
        raise
    except Exception as error:  # huggingface_hub documents no common base of its errors
        raise CheckpointError(
            f"{text} cannot be fetched: {_line(error)}. fix: check the name and the revision, the token if it is "
            "private (`hf auth login`, or HF_TOKEN), and the network"
        ) from error
    return manifest.parent


def local(path: str) -> str:
    """Return the folder of a policy that is fetched from an address on the Hub; another path unchanged."""
    return str(download(path)) if is_address(path) else path


def _fetch(api: Any, address: Address, commit: str, name: str, sizes: dict[str, Any], most: int) -> Path:
    """Fetch one file of a commit; CheckpointError if it is missing or larger than `most` bytes."""
    if name not in sizes:
        raise CheckpointError(f"{address} has no {name}: it is not a policy of tidelog. fix: choose another repository")
    if sizes[name] is not None and sizes[name] > most:
        raise CheckpointError(
            f"{address}/{name} has {sizes[name]:,} bytes, at most {most:,} were expected. fix: push the policy again"
        )
    return Path(api.hf_hub_download(address.repository, name, revision=commit))


def _package() -> Any:
    try:
        return importlib.import_module("huggingface_hub")
    except ImportError as error:
        raise ConfigError(f"the Hugging Face Hub needs huggingface_hub ({error}). fix: {install('hub')}") from None


def _line(error: Exception) -> str:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {' '.join(lines)[:300]}"
