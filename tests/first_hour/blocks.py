"""The code blocks of a page, run exactly as written and in order, in one folder.

The language of a block says what happens to it:

- `python`: runs in the page's one Python session. A block whose first line is `# NAME.py` is a file, or the next part
  of one, that the reader saves in the working folder.
- `sh`: runs in a shell whose `tidelog` and `python` are those of this checkout.
- `output`: what the block above it prints. Numbers may differ by 2%, and `...` stands for any text.
- `json` and `toml`: is parsed. `text`: a picture, is not run.
"""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
RUN = ("python", "sh")
NUMBER = r"[-+]?(?:\d[\d,]*(?:\.\d+)?|\.\d+)(?:e[-+]?\d+)?"
SECONDS = 600  # a shell block; a page may take twice as long

SESSION = (Path(__file__).parent / "session.py").read_text(encoding="utf-8")


class Block(NamedTuple):
    """A code block: its page, the line of its first fence, its language and its text."""

    page: str
    line: int
    language: str
    code: str

    @property
    def file(self) -> str | None:
        """The file that the block is a part of, by its first line."""
        named = re.match(r"# (\w+\.py)\n", self.code)
        return named[1] if self.language == "python" and named else None


def blocks_of(page: Path) -> list[Block]:
    """The blocks of a page in order; ValueError for a fence that is not closed."""
    found, text = [], page.read_text(encoding="utf-8")
    for match in re.finditer(r"^( *)```([^\n`]*)\n(.*?)^\1```$", text, re.S | re.M):
        line = text.count("\n", 0, match.start()) + 1
        found.append(Block(page.name, line, match[2], match[3]))
    if 2 * len(found) != len(re.findall(r"^\s*(?:```|~~~)", text, re.M)):
        raise ValueError(f"{page.name}: a code block is not closed, or is closed with another indentation")
    return found


def paste(page: Path, folder: Path) -> list[tuple[Block, str, float]]:
    """Run the blocks of a page in a folder; return each with its output and seconds. AssertionError where one fails.

    Warnings are errors in Python blocks.
    """
    blocks = [block for block in blocks_of(page) if block.language in RUN]
    notes = folder.parent / f"{folder.name}-notes"
    notes.mkdir()
    given = [{**block._asdict(), "file": block.file, "place": f"{page.name}:{block.line}"} for block in blocks]
    (notes / "blocks.json").write_text(json.dumps({"blocks": given, "shell": environment(notes), "seconds": SECONDS}))
    words = [sys.executable, "-W", "error", "-c", SESSION, str(notes / "blocks.json"), str(notes / "results.json")]
    done = subprocess.run(
        words, cwd=folder, env=environment(notes), capture_output=True, text=True, check=False, timeout=2 * SECONDS
    )
    results = json.loads((notes / "results.json").read_text()) if (notes / "results.json").exists() else []
    said = "\n".join(one["said"] for one in results)
    if done.returncode != 0 or len(results) != len(blocks):
        raise AssertionError(f"{page.name} does not run as pasted\n{said}\n{done.stderr}")
    return [(block, one["said"], one["seconds"]) for block, one in zip(blocks, results, strict=True)]


def environment(folder: Path) -> dict[str, str]:
    """The variables of a terminal: `tidelog` and `python` are this checkout's, which lies on no other path."""
    programs = folder / "bin"
    if not programs.exists():
        programs.mkdir()
        script = "from tidelog.cli import main; raise SystemExit(main())"
        for name, words in {"python": "", "tidelog": f' -P -c "{script}"'}.items():
            (programs / name).write_text(f'#!/bin/sh\nexec "{sys.executable}"{words} "$@"\n')
            (programs / name).chmod(0o755)
    path = f"{programs}{os.pathsep}{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT / "src")}


def agrees(shown: str, said: str) -> bool:
    """Whether the shown output is in what was said: numbers to 2%, any white space, and any text for `...`."""
    pattern, numbers = "", []
    for part in re.findall(rf"{NUMBER}|\.\.\.|\s+|.", shown.strip()):
        if part.isspace():
            pattern += r"\s+"
        elif part == "...":
            pattern += ".*?"
        elif re.fullmatch(NUMBER, part):
            pattern += f"({NUMBER})"
            numbers.append(_number(part))
        else:
            pattern += re.escape(part)
    return any(
        all(
            abs(_number(one) - number) <= 0.02 * abs(number)
            for one, number in zip(found.groups(), numbers, strict=True)
        )
        for found in re.finditer(pattern, said, re.S)
    )


def _number(text: str) -> float:
    return float(text.replace(",", ""))
