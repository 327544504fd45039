"""A real browser for tests marked `system`, Chromium without a window."""

import os
import shutil

import pytest

NAMES = "chromium chromium-browser google-chrome chrome".split()


def path() -> str:
    """Returns the path of a browser, or skips the test."""
    found = [shutil.which(x) for x in (os.environ.get("CHROME", ""), *NAMES)]
    if not any(found):
        pytest.skip(f"needs a browser: CHROME=path, or one of {NAMES} in PATH")
    return next(filter(None, found))


def driven():
    """Yields a browser that Playwright drives, or skips the test."""
    program = path()
    playwright = pytest.importorskip(
        "playwright.sync_api", reason="needs the extra `browser`"
    )
    with playwright.sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=program, args=["--no-sandbox"]
        )
        yield browser
        browser.close()


def problems(page) -> list[str]:
    """Returns what axe-core, a checker of accessibility, finds in a page."""
    axe = pytest.importorskip(
        "axe_playwright_python.sync_playwright",
        reason="needs the extra `browser`",
    )
    found = axe.Axe().run(page).response["violations"]
    return [f"{x['id']}: {node['html']}" for x in found for node in x["nodes"]]
