"""Pages in a real browser: drawn at a desk and on a phone, without scripts, and never wider than the screen."""

import dataclasses
import html
import re
import shutil
import subprocess

import matplotlib.image
import numpy as np
import polars as pl
import pytest

from tests.ope.made import evidence_of
from tests.report.crafted import estimate, played, put, verdict
from tidelog import read_log
from tidelog.ope.estimators import Estimates
from tidelog.ope.risk import risk_of
from tidelog.report.data_page import write_data_page
from tidelog.report.page import report_of

NAMES = ("chromium", "chromium-browser", "google-chrome")
BROWSER = next((path for name in NAMES if (path := shutil.which(name))), None)

pytestmark = pytest.mark.skipif(
    BROWSER is None, reason=f"no browser was found: none of {', '.join(NAMES)} is installed"
)


@pytest.fixture(scope="module")
def pages(trained, shop, tmp_path_factory):
    """A report of one run, of two, of a run with all that a page can show, of a recommender, and the page of a log."""
    folder = tmp_path_factory.mktemp("pages")
    for name in ("bc", "iql"):
        shutil.copytree(trained / name, folder / name)
    long = "a_word_that_nothing_breaks_" * 8
    put(folder / "bc", "now", verdict("better", outcome=long, context={long: long}))
    put(folder / "iql", "now", verdict("unsupported"))
    played(folder / "bc", "treatment", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    report_of([folder / "bc"], folder / "one.html")
    report_of([folder / "bc", folder / "iql"], folder / "two.html")
    rng = np.random.default_rng(0)
    chance = np.where(rng.random(200) > 0.5, 0.7, 0.3)
    evidence = evidence_of([1] * 200, reward=rng.normal(size=200), target=chance, behaviour=np.full(200, 0.5))
    rows = [
        {"name": f"member-{place}", "decision": "better", "difference": 0.0812, "low": 0.0123, "high": 0.1512}
        for place in range(4)
    ]
    for name in ("older", "whole"):
        context = {"name": "member-0", "sample": True, "together": {"level": 0.975, "rows": rows}}
        given = verdict("better", reasons=REASONS, outcome=TOLD, context=context, reward_unit="recoveries")
        estimates = Estimates(
            [estimate(one) for one in ("is", "wis", "pdis", "wpdis", "dr", "wdr", "fqe", "mwl", "drl")]
        )
        risk = risk_of(evidence, bad_outcome=-1.5)
        put(folder / "iql", name, dataclasses.replace(given, estimates=estimates, risk=risk))
    played(folder / "iql", "treatment", [[0.0, 1.0, 1.0], [1.0, 1.0, 1.0]])
    report_of([folder / "iql"], folder / "whole.html")
    report_of([shop / "run"], folder / "shop.html")
    frame = {"x": np.arange(40.0), "a": np.arange(40) % 3, "r": np.arange(40.0)}
    log = read_log(pl.DataFrame(frame), {"observation": ["x"], "action": "a", "reward": "r"})
    write_data_page(folder / "log.html", log.report, log)
    return folder


REASONS = (
    "the 97.5% interval of the difference, between +0.0123 and +0.151 recoveries, lies above 0",
    "no log can confirm these assumptions of the answer: the recorded propensities are right, nothing unrecorded "
    "affects both decisions and rewards, observations were recorded before the decision, episodes are independent and "
    "do not affect one another, and no episodes are missing or cut off because of their outcome",
)
TOLD = (
    "The policy was compared with the behaviour policy on 200 recorded episodes (1,000 decisions). The policy would "
    "earn about 0.0812 recoveries more per episode than the behaviour policy did. Every check agrees with this. Next: "
    "try it on a small share of new cases alongside the current practice, and record the results."
)


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


MEASURE = """<script>onload = () => {
  const page = document.querySelector("iframe").contentDocument;
  page.querySelectorAll("details").forEach((folded) => { folded.open = true; });
  const cut = [...page.querySelectorAll(".wide")].filter((one) => one.scrollWidth > one.clientWidth);
  document.title = [page.documentElement.scrollWidth, page.documentElement.clientWidth,
    page.documentElement.scrollHeight, page.querySelectorAll("svg").length, cut.length].join(" ");
};</script>"""


def measured(page, profile, width):
    """Width of the document and of its window, height, numbers of pictures and of tables that are cut, all unfolded."""
    inside = html.escape(page.read_text(encoding="utf-8"), quote=True)
    frame = f'<!DOCTYPE html><title></title><iframe width="{width}" height="800" frameborder="0" srcdoc="{inside}">'
    frame_page = page.with_name(f"{page.stem}-frame.html")
    frame_page.write_text(f"{frame}</iframe>{MEASURE}", encoding="utf-8")
    said = browse(profile, "--dump-dom", frame_page.as_uri())
    return [int(number) for number in re.search(r"<title>([\d ]+)</title>", said).group(1).split()]


@pytest.mark.full
@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("name", ["one", "two", "whole", "shop", "log"])
def test_no_page_is_wider_than_its_window_and_a_phone_cuts_no_table(name, width, pages, profile):
    wide, window, tall, pictures, cut = measured(pages / f"{name}.html", profile, width)
    assert wide <= window <= width
    assert tall > 800
    assert pictures >= 3
    assert cut == 0 or width > 390


@pytest.mark.full
@pytest.mark.parametrize("name", ["one", "whole", "shop"])
def test_the_page_of_one_run_prints_on_three_sides_of_a4(name, pages, profile):
    browse(profile, f"--print-to-pdf={pages / 'page.pdf'}", (pages / f"{name}.html").as_uri())
    content = (pages / "page.pdf").read_bytes()
    assert content.startswith(b"%PDF")
    assert 1 <= len(re.findall(rb"/Type\s*/Page\b", content)) <= 3
    sizes = {tuple(map(float, box.split())) for box in re.findall(rb"/MediaBox\s*\[([\d. ]+)\]", content)}
    assert [[round(number) for number in size] for size in sizes] == [[0, 0, 595, 842]]
