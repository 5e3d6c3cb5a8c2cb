"""How large the project is: `python -m benchmarks house` prints files, lines, words and names, beside the aims.

One in, one out: a change that makes a figure larger says in its commit what it is worth.
"""

import ast
import tomllib
from collections import Counter
from pathlib import Path

import tidelog as tl
from tidelog.cli import COMMANDS

ROOT = Path(__file__).resolve().parents[1]
AIMS = {"source files": 150, "source lines": 50_000, "test lines": 38_000, "benchmark lines": 9_000,
        "words of docs": 45_000, "public names": 40, "class names twice": 0, "extras": 9}  # fmt: skip


def figures() -> dict[str, int]:
    """Return each figure of the checkout."""
    source, tests, benchmarks = (sorted((ROOT / part).rglob("*.py")) for part in ("src/tidelog", "tests", "benchmarks"))
    pages = [ROOT / "README.md", *(page for page in (ROOT / "docs").rglob("*.md") if "_build" not in page.parts)]
    classes = Counter(
        node.name for file in source for node in ast.walk(ast.parse(file.read_text())) if isinstance(node, ast.ClassDef)
    )
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {
        "source files": len(source),
        "source lines": _lines(source),
        "test lines": _lines(tests),
        "benchmark lines": _lines(benchmarks),
        "words of docs": sum(len(page.read_text().split()) for page in pages),
        "public names": len(tl.__all__),
        "commands": len(COMMANDS),
        "class names twice": sum(count > 1 for count in classes.values()),
        "extras": len({*project["optional-dependencies"]} - {"docs", "test"}),
    }


def _lines(files: list[Path]) -> int:
    return sum(len(file.read_text().splitlines()) for file in files)


def study() -> str:
    """Return a line for each figure."""
    return "\n".join(
        f"{name:<20}{count:>8,}{f'  (aim {AIMS[name]:,})' if name in AIMS else ''}" for name, count in figures().items()
    )
