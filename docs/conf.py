"""How Sphinx builds the site: `pip install -e ".[docs]" && make -C docs html`."""

from __future__ import annotations

import dataclasses
import inspect
import os
import re
import tempfile
import tomllib
import typing
from pathlib import Path
from typing import Any

from pygments.lexers.special import TextLexer
from sphinx.application import Sphinx

from tidelog.training.options import FinetuneOptions, FitOptions, LearnOptions, SweepOptions

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # pages show what a reader without an accelerator sees
os.environ.setdefault("TIDELOG_STATE", tempfile.mkdtemp())  # the looks of an earlier build change no verdict

_package = tomllib.loads((Path(__file__).parents[1] / "pyproject.toml").read_text(encoding="utf-8"))["project"]

project = _package["name"]
author = "the tidelog developers"
copyright = author
version = release = _package["version"]

extensions = [
    "myst_nb",  # Markdown pages, and tutorials that run when the site is built
    "sphinx_design",  # cards and grids of the first page and the gallery
    "sphinx.ext.autodoc",  # the reference, from docstrings
    "sphinx.ext.viewcode",  # a link from each name of the reference to its source
]
exclude_patterns = ["_build", "tutorials/*.ipynb"]  # notebooks that jupytext pairs with the pages
html_theme = "sphinx_book_theme"
html_title = "tidelog"
html_static_path = ["_static"]
html_css_files = ["tidelog.css"]
html_theme_options = {
    "show_navbar_depth": 1,
    "show_toc_level": 2,
    "use_download_button": True,
    "navbar_start": [],
    "navbar_center": [],
    "navbar_persistent": [],  # one search field, in the side bar
    "use_fullscreen_button": False,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
}
html_copy_source = False
html_show_sourcelink = False

nitpicky = True
nitpick_ignore_regex = [("py:.*", ".*")]  # types of other packages in signatures: their pages are not read here
suppress_warnings = ["mystnb.unknown_mime_type"]
linkcheck_timeout = 20

myst_enable_extensions = ["colon_fence"]
myst_heading_anchors = 4  # links such as judging-appendix.md#estimators work here as they do on GitHub

nb_execution_mode = "cache"  # a tutorial runs again when its code has changed
nb_execution_cache_path = str(Path(__file__).parent / "_build" / "jupyter")
nb_execution_timeout = 300
nb_execution_raise_on_error = True
nb_execution_in_temp = True
nb_merge_streams = True

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
maximum_signature_line_length = 80
python_use_unqualified_type_names = True
default_role = "code"  # `name` in a docstring is code, as in Markdown


for _keywords in (FitOptions, LearnOptions, FinetuneOptions, SweepOptions):
    _keywords.__signature__ = inspect.Signature()  # autodoc finds none


def list_settings(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    """Append a line for each setting of an algorithm: its name, its default and its own help text."""
    settings = (
        [field for field in dataclasses.fields(obj) if "help" in field.metadata]
        if what == "class" and dataclasses.is_dataclass(obj)
        else []
    )
    if settings:
        lines += ["", "Settings:", ""]
    for one in settings:
        default = getattr(one.default, "__name__", repr(one.default))
        lines.append(f"- ``{one.name}`` = ``{default}``: {one.metadata['help']}")


def hide_arguments(
    app: Sphinx, what: str, name: str, obj: Any, options: Any, signature: str | None, returns: Any
) -> Any:
    """Leave out `(*args, **kwargs)`, which a class made by `algorithm` or one with its own builder shows.

    A default that is no Python, such as `<factory>`, would leave the signature unread, with the raw names of types.
    """
    if getattr(obj, "_is_protocol", False) or typing.is_typeddict(obj):  # nobody calls a contract, or names of keywords
        return "", None
    if (signature or "").startswith("(*args"):
        return "(**settings)", returns
    return (re.sub(r"<[^<>]*>", "...", signature), returns) if signature else None


def setup(app: Sphinx) -> None:
    """Show blocks of the language `output` as plain text; list the settings of algorithms."""
    app.add_lexer("output", TextLexer)
    app.connect("autodoc-process-docstring", list_settings)
    app.connect("autodoc-process-signature", hide_arguments)
