"""The site of the documentation, as a browser shows it."""

import pathlib
import subprocess
import sys

import pytest
from support import browser as browsers

ROOT = pathlib.Path(__file__).parents[2]
SITE = ROOT / "build" / "docs"

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def browser():
    return browsers.path()


@pytest.fixture(scope="module")
def site():
    subprocess.run([sys.executable, ROOT / ".docs" / "build.py"], check=True)
    return SITE


def shown(browser, page, *options):
    """Returns what a browser without a window prints for a page."""
    command = [
        browser,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        *options,
        page.as_uri(),
    ]
    done = subprocess.run(command, capture_output=True, timeout=120)
    assert done.returncode == 0, done.stderr.decode()[-2000:]
    return done.stdout.decode()


def test_a_page_of_the_reference_is_shown(browser, site):
    page = site / "reference" / "layers.html"
    document = shown(browser, page, "--dump-dom")
    for words in ("BahdanauAttention", "Call arguments", "<table"):
        assert words in document


def test_the_first_page_has_its_picture(browser, site, tmp_path):
    picture = tmp_path / "page.png"
    shown(
        browser,
        site / "index.html",
        f"--screenshot={picture}",
        "--window-size=1200,1600",
    )
    from matplotlib import image

    pixels = image.imread(picture)
    colours = {tuple(x) for x in pixels[::7, ::7, :3].reshape(-1, 3).tolist()}
    assert len(colours) > 50  # a heat map, and text
