"""Policies on the Hugging Face Hub: a repository holds the files of a saved policy and a model card.

What is fetched is as little trusted as any file: only files that a policy can have are fetched, and reading them checks
every size, checksum and field. Nothing in a repository is executed.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

from tidelog._files import MANIFEST
from tidelog.errors import CheckpointError, ConfigError, import_extra
from tidelog.runtime.artefact import FILES, SIGNATURE

SCHEME = "hf://"
PARTS = (MANIFEST, SIGNATURE, *FILES)  # of a saved policy
_REPOSITORY = r"[\w.-]+/[\w.-]+"


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
    match = re.fullmatch(rf"{SCHEME}({_REPOSITORY})(?:@([\w./-]+))?", text)
    if match is None or ".." in text:
        raise ConfigError(
            f"{text!r} is not an address on the Hugging Face Hub", fix="write hf://USER/NAME or hf://USER/NAME@REVISION"
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
    if re.fullmatch(_REPOSITORY, repository) is None:
        raise ConfigError(f"{repository!r} is not a repository on the Hub", fix="write USER/NAME, as in 'me/treatment'")
    package = import_extra("huggingface_hub", "hub")
    contents = {"README.md": card.encode()} | {
        name: (folder / name).read_bytes() for name in PARTS if (folder / name).is_file()
    }
    operations = [package.CommitOperationAdd(name, content) for name, content in contents.items()]
    try:
        api = package.HfApi(token=token, library_name="tidelog")
        api.create_repo(repository, private=private, exist_ok=True)
        commit = api.create_commit(
            repository, operations, commit_message=message or "Policy of tidelog", revision=revision
        )
    except Exception as error:  # huggingface_hub documents no common base of its errors
        raise ConfigError(
            f"{SCHEME}{repository} was not written: {_line(error)}",
            fix="check the name, the token (`hf auth login` or HF_TOKEN) and the network",
        ) from error
    return str(Address(repository, commit.oid))


def download(text: str, token: str | None = None) -> Path:
    """Fetch a policy into the Hub's cache and return its folder, whose files are not checked yet.

    Raises CheckpointError where the repository or the revision is missing, or is not a saved policy; ConfigError for
    another address, and without the extra `hub`.
    """
    address, package = parse(text), import_extra("huggingface_hub", "hub")
    try:
        api = package.HfApi(token=token, library_name="tidelog")
        folder = Path(api.snapshot_download(address.repository, revision=address.revision, allow_patterns=[*PARTS]))
    except Exception as error:  # huggingface_hub documents no common base of its errors
        raise CheckpointError(
            f"{text} cannot be fetched: {_line(error)}",
            fix=(
                "check the name and the revision, the token if it is private (`hf auth login`, or HF_TOKEN), "
                "and the network"
            ),
        ) from error
    if not (folder / MANIFEST).is_file():
        raise CheckpointError(f"{text} has no {MANIFEST}: it is not a policy of tidelog", fix="use another repository")
    return folder


def local(path: str) -> str:
    """Return the folder of a policy that is fetched from an address on the Hub; another path unchanged."""
    return str(download(path)) if is_address(path) else path


def _line(error: Exception) -> str:
    """Return the kind of an error and its message on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
