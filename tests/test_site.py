"""The site: every public name has its place, tutorials show what they promise, and a browser can use what was built."""

import html
import importlib
import re
import shutil
import subprocess
import tomllib
from pathlib import Path

import pytest

import tidelog as tl

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
SITE = DOCS / "_build/html"
TUTORIALS = sorted(set((DOCS / "tutorials").glob("*.md")) - {DOCS / "tutorials/index.md"})
BROWSER = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)


def reference() -> list[str]:
    """Every name that a page of the reference shows."""
    pages = "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference").glob("*.md")))
    return re.findall(r"^\.\. auto(?:function|class|exception|module):: (\S+)$", pages, re.M)


def found(name: str) -> bool:
    """Whether `package.module.name` can be imported."""
    parts = name.split(".")
    for length in range(len(parts), 0, -1):
        try:
            thing = importlib.import_module(".".join(parts[:length]))
        except ModuleNotFoundError:
            continue
        for part in parts[length:]:
            if not hasattr(thing, part):
                return False
            thing = getattr(thing, part)
        return True
    return False


def test_every_public_name_is_once_in_the_reference_and_no_other_is() -> None:
    names = reference()
    assert {f"tidelog.{name}" for name in tl.__all__} - set(names) == set()
    assert [name for name in names if not found(name)] == []
    assert sorted(set(names)) == sorted(names)
    assert not found("tidelog.fitt")


def test_every_tutorial_is_built_and_none_has_a_block_that_does_not_run() -> None:
    makefile = (DOCS / "Makefile").read_text(encoding="utf-8")
    assert [page.stem for page in TUTORIALS] == re.search(r"^TUTORIALS = (.*)$", makefile, re.M)[1].split()
    assert [page.name for page in TUTORIALS if "```python" in page.read_text(encoding="utf-8")] == []


def test_every_extra_is_on_the_page_of_the_installation_and_no_other_is() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    page = (DOCS / "installation.md").read_text(encoding="utf-8")
    rows = [row.split("|")[1] for row in page.split("| extra | for |\n|---|---|\n")[1].split("\n\n")[0].splitlines()]
    assert sorted(re.findall(r"`(\w+)`", " ".join(rows))) == sorted(project["optional-dependencies"])
    assert f"tidelog-{project['version']}-py3-none-any.whl" in page


needs_site = pytest.mark.skipif(
    BROWSER is None or not (SITE / "index.html").exists(),
    reason="needs a browser and the site: pip install -e '.[docs]' && make -C docs html",
)


def browse(profile: Path, *words: str) -> str:
    """What the browser prints."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command = [BROWSER, *flags, f"--user-data-dir={profile}", "--allow-file-access-from-files", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout


@needs_site
@pytest.mark.full
@pytest.mark.parametrize(("words", "some"), [("propensity", True), ("xyzzyplugh", False)])
def test_the_search_finds_pages(words: str, some: bool, tmp_path: Path) -> None:
    page = browse(tmp_path, "--virtual-time-budget=10000", "--dump-dom", f"{(SITE / 'search.html').as_uri()}?q={words}")
    results = page.split('id="search-results"')[1]
    assert ('href="reference/judging.html' in results) == some, results[:2000]
    assert ("did not match any documents" in results) != some


MEASURE = """<!DOCTYPE html><title></title><body></body><script>
const pages = PAGES; const wide = [];
const next = () => {
  if (!pages.length) { document.title = "wide: " + wide.join(" "); return; }
  const page = pages.pop(), frame = document.createElement("iframe");
  frame.width = 390; frame.height = 800; frame.style.border = 0; frame.src = page;
  frame.onload = () => setTimeout(() => {
    const root = frame.contentDocument.documentElement;
    if (root.scrollWidth > 390) wide.push(page + "=" + root.scrollWidth);
    if (page.includes("?q=") && !root.querySelector("#search-results li")) wide.push(page + "=empty");
    frame.remove(); next();
  }, page.includes("?q=") ? 8000 : 0);
  document.body.append(frame);
};
next();
</script>"""


@needs_site
@pytest.mark.full
def test_no_page_is_wider_than_a_phone(tmp_path: Path) -> None:
    sources = [page for page in DOCS.rglob("*.md") if "_build" not in page.parts]
    pages = [(SITE / page.relative_to(DOCS)).with_suffix(".html") for page in sources]
    assert len(pages) > 35
    broken = tmp_path / "broken.html"
    broken.write_text('<!DOCTYPE html><body style="margin: 0"><div style="width: 600px">wide</div>')
    frame = tmp_path / "frame.html"
    addresses = [f"{(SITE / 'search.html').as_uri()}?q=propensity", *(page.as_uri() for page in [*pages, broken])]
    frame.write_text(MEASURE.replace("PAGES", str(addresses)))
    said = browse(tmp_path / "profile", "--virtual-time-budget=60000", "--dump-dom", frame.as_uri())
    assert re.search(r"<title>wide: (.*?)</title>", said)[1].split() == [f"{broken.as_uri()}=600"]


def shown(page: str) -> str:
    """The text of a page of the built site, in one line."""
    text = re.sub(r"<[^>]+>", "", (SITE / page).read_text(encoding="utf-8"))
    return " ".join(html.unescape(text).split())


@needs_site
@pytest.mark.full
def test_what_the_simulator_taught_is_better_than_chance() -> None:
    """A reward that is a cost at each step taught PPG to end the episode, and the page showed it without a word."""
    page = shown("tutorials/simulator.html")
    found = re.search(r"PPG: ([\d.-]+) IQL from its log: ([\d.-]+) random: ([\d.-]+)", page)
    learnt, offline, random = (float(one) for one in found.groups())
    assert min(learnt, offline) > 2 * random > 0


@pytest.mark.full
def test_a_tutorial_becomes_a_notebook_and_the_same_page_again(tmp_path: Path) -> None:
    jupytext = pytest.importorskip("jupytext")
    for page in TUTORIALS:
        text = page.read_text(encoding="utf-8")
        notebook = jupytext.reads(text, fmt="md:myst")
        assert notebook.metadata["jupytext"]["formats"] == "md:myst,ipynb"
        jupytext.write(notebook, tmp_path / f"{page.stem}.ipynb")
        again = jupytext.read(tmp_path / f"{page.stem}.ipynb")
        assert jupytext.writes(again, fmt="md:myst").split("---\n", 2)[2] == text.split("---\n", 2)[2], page.name
        assert sum(cell.cell_type == "code" for cell in again.cells) == text.count("```{code-cell}")
