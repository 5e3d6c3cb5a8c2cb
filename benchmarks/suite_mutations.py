"""One-line mistakes in the source, each of which some test must notice: they measure what the fast tests still catch.

Each is a mistake that a programmer could make, and makes the program wrong; none changes only speed or wording. They
stand in `benchmarks/mutations.txt`, each keyed by the function that it is made in:

    [package.module:Class.function] tests that should notice it first, relative to the repository
    the mistake in a few words, its name in the kept results
    -the text, which occurs once in that function (a line of the file a line)
    +what it becomes

A function that moves to another file changes its key and nothing else.
"""

import ast
import re
from pathlib import Path
from typing import NamedTuple

SOURCE = Path(__file__).resolve().parents[1] / "src"
FILE = Path(__file__).with_name("mutations.txt")


class Mutation(NamedTuple):
    """One mistake: the text `old`, which occurs once in the function, becomes `new`."""

    name: str
    function: str  # package.module:Class.function, the innermost one
    old: str
    new: str
    near: str  # tests, separated by spaces

    def path(self, source: Path = SOURCE) -> Path:
        """The file that the function stands in."""
        folder = source.joinpath(*self.function.split(":")[0].split("."))
        return folder / "__init__.py" if folder.is_dir() else folder.with_suffix(".py")

    def apply(self, text: str) -> str:
        """The text of the file with the mistake; ValueError where `old` does not occur once in the function."""
        name = self.function.split(":")[1]
        lines = text.splitlines(keepends=True)
        parts = [(start, end, "".join(lines[start:end])) for start, end in _spans(ast.parse(text), name)]
        counts = [part.count(self.old) for *_, part in parts]
        if sum(counts) != 1:
            raise ValueError(f"{self.name}: {self.old!r} occurs {sum(counts)} times in {self.function}")
        start, end, part = parts[counts.index(1)]
        return "".join([*lines[:start], part.replace(self.old, self.new), *lines[end:]])


def _spans(node: ast.AST, name: str) -> list[tuple[int, int]]:
    """The first line and the line after the last of every function or class of that name, decorators included."""
    here, _, rest = name.partition(".")
    found = []
    for child in ast.iter_child_nodes(node):
        if not isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found += _spans(child, name)
        elif child.name == here and rest:
            found += _spans(child, rest)
        elif child.name == here:
            found.append((min(one.lineno for one in (child, *child.decorator_list)) - 1, child.end_lineno or 0))
    return found


def read_mutations(text: str) -> list[Mutation]:
    """The mutations of a file's text; ValueError for a block that is none."""
    found = []
    for block in text.split("\n\n"):
        head, name, *lines = block.strip("\n").split("\n")
        old, new = ([line[1:] for line in lines if line.startswith(sign)] for sign in "-+")
        match = re.fullmatch(r"\[([\w.]+:[\w.]+)\] (.+)", head)
        if match is None or not old or len(old) + len(new) != len(lines):
            raise ValueError(f"no mutation: {block!r}")
        found.append(Mutation(name, match[1], "\n".join(old), "\n".join(new), match[2]))
    return found


MUTATIONS = read_mutations(FILE.read_text(encoding="utf-8"))
