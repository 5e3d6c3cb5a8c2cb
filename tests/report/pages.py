"""Walking a page: that it is well formed, and needs nothing but itself."""

import re
from html.parser import HTMLParser
from typing import Any

VOID = ("meta",)


class Page(HTMLParser):
    """Walks a page: every tag that opens must close in order; remembers attributes and text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, Any]]] = []
        self.said: list[str] = []
        self.feed(text)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self.open:
            self.said.append(data)


def axis_names(picture: str) -> list[str]:
    """The names of the axes of an SVG, which are its words in italics."""
    return re.findall(r'<text[^>]* font-style="italic"[^>]*>([^<]+)<', picture)


def alone(page: Page, text: str) -> None:
    """Nothing of the page is fetched, runs, or leads elsewhere."""
    assert not {"script", "link", "img", "iframe", "object", "embed", "base"} & {tag for tag, _ in page.tags}
    assert all(attributes.get("href", "#").startswith("#") for _, attributes in page.tags)
    assert not {"src", "srcset", "data", "style"} & {name for _, attributes in page.tags for name in attributes}
    assert not [name for _, attributes in page.tags for name in attributes if name.startswith("on")]
    assert "url(" not in text
    assert "@import" not in text
    assert "://" not in text
