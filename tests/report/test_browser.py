"""Pages in a real browser: drawn at a desk and on a phone, without scripts, and never wider than the screen."""

import html
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from tests.report.crafted import played, put, verdict
from tidelog import read_log
from tidelog.report.data_page import write_data_page
from tidelog.report.run_page import report_of

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)
DARK = "--blink-settings=preferredColorScheme=0"

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser was found: none of {', '.join(NAMES)} is installed"
)


@pytest.fixture(scope="module")
def pages(trained, tmp_path_factory):
    """A report of one run, of two, and the page of a log."""
    folder = tmp_path_factory.mktemp("pages")
    for name in ("bc", "iql"):
        shutil.copytree(trained / name, folder / name)
    long = "a_word_that_nothing_breaks_" * 8
    put(folder / "bc", "now", verdict("better", paragraph=long, context={long: long}))
    put(folder / "iql", "now", verdict("unsupported"))
    played(folder / "bc", "treatment", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    report_of([folder / "bc"], folder / "one.html")
    report_of([folder / "bc", folder / "iql"], folder / "two.html")
    frame = {"x": np.arange(40.0), "a": np.arange(40) % 3, "r": np.arange(40.0)}
    log = read_log(pl.DataFrame(frame), {"observation": ["x"], "action": "a", "reward": "r"})
    write_data_page(folder / "log.html", log.report, log)
    return folder


def browse(profile, *words):
    """What the browser says; `profile` is a folder for what it remembers."""
    flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
    command = [BROWSER, *flags, f"--user-data-dir={profile}", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    return tmp_path_factory.mktemp("profile")


def picture(page, profile, width, *flags):
    """Pixels [height, width, 3] of the top of a page."""
    shot = page.with_suffix(".png")
    shot.unlink(missing_ok=True)
    browse(profile, *flags, f"--window-size={width},1600", f"--screenshot={shot}", page.as_uri())
    return matplotlib.image.imread(shot)[:, :, :3]


@pytest.fixture(scope="module")
def phone(pages, profile):
    """A report as a phone shows it."""
    return picture(pages / "one.html", profile, 390)


def ink(pixels):
    """The share of pixels that are not the page's own colour, which is that of its corner."""
    return float((np.abs(pixels - pixels[-1, 0]).max(axis=-1) > 0.1).mean())


def looks_drawn(pixels):
    blue = (pixels[..., 2] > pixels[..., 0] + 0.3) & (pixels[..., 2] > 0.5)  # the banner and the curves
    return 0.02 < ink(pixels) < 0.6 and bool(blue.sum() > 1000)


@pytest.mark.full
def test_a_report_is_drawn_at_a_desk_and_on_a_phone(pages, profile, phone):
    desk = picture(pages / "one.html", profile, 1280)
    assert (desk.shape, phone.shape) == ((1600, 1280, 3), (1600, 390, 3))
    assert looks_drawn(desk)
    assert looks_drawn(phone)


FORBIDDEN = """<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">"""
PROBE = "<script>document.body.style.background = 'red'</script>"


@pytest.mark.full
@pytest.mark.parametrize("rule", [FORBIDDEN, ""], ids=["forbidden", "allowed"])
def test_a_report_needs_no_script_and_no_network(rule, pages, profile, phone):
    """The browser is told to allow neither; a script put there shows whether it listens."""
    text = (pages / "one.html").read_text(encoding="utf-8")
    copy = pages / "forbidden.html"
    copy.write_text(text.replace('<meta charset="utf-8">', f'<meta charset="utf-8">{rule}') + PROBE, encoding="utf-8")
    seen = picture(copy, profile, 390)
    assert bool((np.abs(seen - phone) < 0.05).all()) == bool(rule)


@pytest.mark.full
def test_a_dark_room_gets_a_dark_page(pages, profile, phone):
    dark = picture(pages / "one.html", profile, 390, DARK)
    assert dark.mean() < 0.3 < 0.8 < phone.mean()
    assert ink(dark) == pytest.approx(ink(phone), rel=0.5)


MEASURE = """<script>onload = () => {
  const page = document.querySelector("iframe").contentDocument;
  document.title = [page.documentElement.scrollWidth, page.documentElement.clientWidth,
    page.documentElement.scrollHeight, page.querySelectorAll("svg").length].join(" ");
};</script>"""


def measured(page, profile, width):
    """Width of the document and of its window, height, and number of pictures, in a window of that width."""
    inside = html.escape(page.read_text(encoding="utf-8"), quote=True)
    frame = f'<!DOCTYPE html><title></title><iframe width="{width}" height="800" frameborder="0" srcdoc="{inside}">'
    frame_page = page.with_name(f"{page.stem}-frame.html")
    frame_page.write_text(f"{frame}</iframe>{MEASURE}", encoding="utf-8")
    said = browse(profile, "--dump-dom", frame_page.as_uri())
    return [int(number) for number in re.search(r"<title>([\d ]+)</title>", said).group(1).split()]


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["one", "two", "log"])
def test_no_page_is_wider_than_its_window(name, width, pages, profile):
    wide, window, tall, pictures = measured(pages / f"{name}.html", profile, width)
    assert wide <= window <= width
    assert tall > 800
    assert pictures >= 3


@pytest.mark.full
def test_a_page_that_is_too_wide_would_be_seen(pages, profile):
    broken = (pages / "one.html").read_text(encoding="utf-8").replace("overflow-x: auto", "overflow-x: visible")
    (pages / "broken.html").write_text(broken, encoding="utf-8")
    wide, window, _, _ = measured(pages / "broken.html", profile, 390)
    assert wide > window


@pytest.mark.full
def test_a_report_can_be_printed(pages, profile):
    browse(profile, f"--print-to-pdf={pages / 'page.pdf'}", (pages / "one.html").as_uri())
    content = (pages / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 2 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 12
