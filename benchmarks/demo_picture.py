"""The picture of README.md: the report of `tidelog demo` as a browser shows it. `python -m benchmarks demo_picture`."""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

PICTURE = Path(__file__).resolve().parents[1] / "docs/figures/demo_report.png"
NAMES = ("chromium", "chromium-browser", "google-chrome")


def study() -> None:
    """Draw the report of a demo."""
    browser = next((path for name in NAMES if (path := shutil.which(name))), None)
    if browser is None:
        raise SystemExit(f"no browser was found: expected one of {', '.join(NAMES)}. fix: install one")
    with tempfile.TemporaryDirectory() as folder:
        page = Path(folder) / "demo/report.html"
        subprocess.run([sys.executable, "-m", "tidelog", "demo", "--quiet", "--out", str(page.parent)], check=True)
        flags = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"]
        shot = [f"--user-data-dir={folder}/profile", "--window-size=960,900", f"--screenshot={PICTURE}"]
        subprocess.run([browser, *flags, *shot, page.as_uri()], check=True)
