"""The blocks of every page of the docs, exactly as written and in order, in a fresh folder each."""

import ast
import importlib.util
import json
import shutil
import tomllib
from pathlib import Path

import pytest

from tests.first_hour import test_readme
from tests.first_hour.blocks import ROOT, RUN, agrees, blocks_of, paste

GALLERY = sorted(set((ROOT / "docs/gallery").glob("*.md")) - {ROOT / "docs/gallery/index.md"})
DOCS = [*sorted((ROOT / "docs").glob("*.md")), *GALLERY]
WALKED = [page for page in DOCS if any(block.language in RUN for block in blocks_of(page))]
# a repository on the Hub (tests/test_hub.py has a stub), a picture, a game of Atari, a cluster (twice), an
# installation that tests/runtime follows in an environment of its own, the installations of README and .ci/run, a
# comment of a mapping, and the path of an A/B test on the reader's own file, which tests/cli/test_declared.py takes
NOT_RUN = {
    "design.md": ["text"],
    "data.md": ["text"],
    "pitfalls.md": ["text"],
    "ppg.md": ["text"],
    "artefact.md": ["text"],
    "index.md": ["text"],
    "installation.md": ["text", "text", "text"],
    "judging-appendix.md": ["text"],
    "scale.md": ["text"] * 4,
    "tools.md": ["text"],
}
SLOW = (  # together minutes, in other packages or of training; a release runs them
    "artefact.md", "environments.md", "judging-appendix.md", "judging.md", "large-logs.md", "memory.md",
    "off-policy-ppg.md", "optuna.md", "pitfalls.md", "populations.md", "ppg.md", "ranking.md", "rebrac.md",
    "recommender-bcq.md", "report.md", "rewards.md", "scale.md", "tools.md", "training.md", "write-your-own.md",
)  # fmt: skip
NEEDS = {
    "tools.md": ("mlflow", "alembic", "tensorboardX", "wandb"),
    "artefact.md": ("onnxruntime", "jax2onnx", "uvicorn", "starlette", "curl"),
    "judging-appendix.md": ("sklearn",),
    "optuna.md": ("optuna",),
}


def test_every_block_of_the_docs_and_the_readme_is_run():
    left_out = {page.name: [block.language for block in blocks_of(page) if block.language not in RUN] for page in DOCS}
    shown = {name: [one for one in languages if one != "output"] for name, languages in left_out.items()}
    assert {name: languages for name, languages in shown.items() if languages} == NOT_RUN
    readme = blocks_of(ROOT / "README.md")
    assert [block.language for block in readme] == ["sh", "sh", "python"]
    assert [(block.language, block.code) for block in readme] == test_readme.BLOCKS  # which runs them
    assert len(WALKED) >= 16


def test_every_output_follows_what_printed_it_and_data_can_be_read():
    for page in DOCS:
        before = ""
        for block in blocks_of(page):
            if block.language == "output":
                assert before in RUN, f"{page.name}:{block.line}: an output stands directly below its block"
            if block.language == "json":
                json.loads(block.code)
            if block.language == "toml":
                tomllib.loads(block.code)
            before = block.language


def test_the_parts_of_a_file_make_the_example():
    parts = [block.code for block in blocks_of(ROOT / "docs/write-your-own.md") if block.file == "crr.py"]
    pasted = ast.parse("\n".join(parts))
    example = ast.parse((ROOT / "examples/crr.py").read_text())
    assert ast.dump(ast.Module(example.body[1:], [])) == ast.dump(pasted), "the page lacks its docstring alone"


@pytest.mark.full
@pytest.mark.parametrize(
    "page",
    [pytest.param(one, marks=[pytest.mark.slow] * (one.name in SLOW)) for one in WALKED],
    ids=lambda one: one.name,
)
def test_the_blocks_run_as_pasted(page: Path, tmp_path: Path) -> None:
    for name in NEEDS.get(page.name, ()):
        if shutil.which(name) is None and importlib.util.find_spec(name) is None:
            pytest.skip(f"{page.name} needs {name}, which is not installed")
    folder = tmp_path / "reader"
    folder.mkdir()
    results = {block.line: said for block, said, _ in paste(page, folder)}
    said = ""
    for block in blocks_of(page):
        said = results.get(block.line, said)
        if block.language == "output":
            assert agrees(block.code, said), f"{page.name}:{block.line} shows\n{block.code}\nand the truth is\n{said}"
