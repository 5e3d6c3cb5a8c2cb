"""Words that the project's vocabulary has retired stay retired: in names, and in prose that users read."""

import ast
import io
import re
import tokenize
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCES = sorted((ROOT / "src" / "tidelog").rglob("*.py"))
PAGES = [
    *(page for folder in ("docs", "docs/tutorials", "docs/gallery") for page in sorted((ROOT / folder).glob("*.md"))),
    ROOT / "README.md",
]

MODULES = {  # the field's term stands beside each in docs/glossary.md or in the module that has taken its place
    *("acting", "along", "align", "approximate", "beginners", "beginning", "build", "choosing", "deciding", "door"),
    *("depot_visits", "depots", "errand", "findings", "gather", "given", "hosts", "imagining", "intake", "judging"),
    *("kept", "learner_together", "listing", "next_items", "offending", "pages", "parts", "periods", "num_chunks"),
    *("places", "playing", "proposals", "propose", "raw_log", "rankers", "rating", "reading", "recorder", "refusals"),
    *("remarks", "reuse", "scenes", "sight", "streams", "taken", "timed", "timetable", "trying", "tuning", "visits"),
    *("watch", "words"),
}
NAMES = {
    *("Beginner", "Draw", "Keep", "Lesson", "Sight", "Taught", "Visits", "begin_as", "beginners", "brought", "depots"),
    *("errand", "hopeless", "lesson", "now_and_after", "remembers", "taught", "teacher", "timetable", "told"),
}
PHRASES = (
    "mend:", "the door", "as it fell", "leave one away", "told beside", "hand over", "handed over", "at hand",
    "by nothing", "of which one", "to which every", "what is told",
)  # fmt: skip
ALLOWED = {"evidence.md": ("the door",)}  # an environment has one


def names_in(tree):
    """Every name that a module defines: functions, classes, arguments and assigned variables."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.AsyncFunctionDef):
            yield node.name, node.lineno
        elif isinstance(node, ast.arg):
            yield node.arg, node.lineno
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, node.lineno


def prose_in(tree, text):
    """Every string constant with its line, and every comment."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.value, node.lineno
    for number, line in enumerate(text.splitlines(), 1):
        if "  # " in line or line.lstrip().startswith("# "):
            yield line.split("# ", 1)[1], number


ANY_PHRASE = re.compile(rf"(?<!\w)({'|'.join(map(re.escape, PHRASES))})(?!\w)", re.IGNORECASE)


def test_modules_use_no_retired_word():
    found = []
    for path in SOURCES:
        text = path.read_text(encoding="utf-8")
        tree = ast.parse(text)
        assert path.stem not in MODULES, f"the module name '{path.stem}' is retired"
        found += [f"{path}:{line}: the name '{name}'" for name, line in names_in(tree) if name.strip("_") in NAMES]
        for prose, line in prose_in(tree, text):
            if ANY_PHRASE.search(" ".join(prose.split())):
                found += [f"{path}:{line}: '{phrase}'" for phrase in phrases(path) if holds(prose, phrase)]
    assert not found, "retired words: " + "; ".join(found)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_a_page_uses_no_retired_phrase(page):
    text = page.read_text(encoding="utf-8")
    assert [phrase for phrase in phrases(page) if holds(text, phrase)] == []


def phrases(path):
    return [phrase for phrase in PHRASES if phrase not in ALLOWED.get(path.name, ())]


def holds(text, phrase):
    return re.search(rf"(?<!\w){re.escape(phrase)}(?!\w)", " ".join(text.split()), re.IGNORECASE) is not None


SPACED = re.compile(r"(?<=[0-9}]) %(?=[\s.,;:)\]\"'|*?\\-]|$)")


def percentages(path):
    """The percentages of a file that are written with a space; in Python of its strings and comments."""
    text = path.read_text(encoding="utf-8")
    if path.suffix != ".py":
        return SPACED.findall(text)
    kinds = (tokenize.STRING, tokenize.COMMENT, getattr(tokenize, "FSTRING_MIDDLE", tokenize.STRING))
    tokens = [one for one in tokenize.generate_tokens(io.StringIO(text).readline) if one.type in kinds]
    return [one.string for one in tokens if SPACED.search(one.string) or re.match(r" %(\W|$)", one.string)]


@pytest.mark.parametrize("where", ["pages", "sources"])
def test_a_percentage_is_written_in_one_form(where):
    """95%, not 95 %: both were on one screen."""
    found = {str(path): percentages(path) for path in (PAGES if where == "pages" else SOURCES)}
    assert {path: spaced for path, spaced in found.items() if spaced} == {}


def test_a_package_names_modules_that_it_has() -> None:
    for page in (ROOT / "src/tidelog").glob("*/__init__.py"):
        named = set(re.findall(r"`([a-z_]+)`", ast.get_docstring(ast.parse(page.read_text())) or ""))
        assert named <= {module.stem for module in page.parent.glob("*.py")}, page
