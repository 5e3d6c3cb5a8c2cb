"""Policies on the Hugging Face Hub: a repository holds the files of a saved policy.

What is fetched is as little trusted as any file: only files that a policy can have are fetched, and reading them checks
every size, checksum and field. Nothing in a repository is executed.
"""

from __future__ import annotations

import re
from pathlib import Path

from tidelog._files import MANIFEST
from tidelog.errors import CheckpointError, ConfigError, import_extra
from tidelog.runtime.artefact import FILES, SIGNATURE

SCHEME = "hf://"
PARTS = (MANIFEST, SIGNATURE, *FILES)  # of a saved policy


def is_address(path: str | Path) -> bool:
    """Return whether a path is an address on the Hub: text that begins with `hf://`."""
    return isinstance(path, str) and path.startswith(SCHEME)


def parse(text: str) -> tuple[str, str | None]:
    """Return repository and revision, None for the newest, of an address such as `hf://user/name@revision`.

    ConfigError for any other text.
    """
    match = re.fullmatch(rf"{SCHEME}([\w.-]+/[\w.-]+)(?:@([\w./-]+))?", text)
    if match is None or ".." in text:
        raise ConfigError(
            f"{text!r} is not an address on the Hugging Face Hub", fix="write hf://USER/NAME or hf://USER/NAME@REVISION"
        )
    return match[1], match[2]


def download(text: str) -> Path:
    """Fetch a policy into the Hub's cache and return its folder, whose files are not checked yet.

    Raises CheckpointError where the repository or the revision is missing, or is not a saved policy; ConfigError for
    another address, and without the extra `hub`.
    """
    (repository, revision), package = parse(text), import_extra("huggingface_hub", "hub")
    try:
        api = package.HfApi(library_name="tidelog")
        folder = Path(api.snapshot_download(repository, revision=revision, allow_patterns=[*PARTS]))
    except Exception as error:  # huggingface_hub documents no common base of its errors
        raise CheckpointError(
            f"{text} cannot be fetched: {type(error).__name__}: {' '.join(str(error).split())[:300]}",
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
