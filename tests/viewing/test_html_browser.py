"""The page of attention as a real browser shows it."""

import re
from types import SimpleNamespace

import numpy as np
import pytest
from support import browser as browsers

import keras_attn

pytestmark = pytest.mark.system

CAT = SimpleNamespace(
    alignment=[[0.9, 0.1, 0.0], [0.004, 0.196, 0.8]],
    source_tokens=["black", "cat", "</s>"],
    tokens=["Katze", "</s>"],
    text="Katze",
    score=-0.25,
    alternatives=[
        SimpleNamespace(
            alignment=[[0.0, 0.0, 1.0]],
            source_tokens=["black", "cat", "</s>"],
            tokens=["Kater"],
            text="Kater",
            score=-1.5,
        ),
        SimpleNamespace(text="Tier", score=-2.0),
    ],
)
ARABIC = SimpleNamespace(
    alignment=np.eye(3),
    source_tokens=["القطة", "السوداء", "</s>"],
    tokens=["the", "black", "cat"],
    text="the black cat",
    score=-0.5,
)
HOSTILE = SimpleNamespace(
    alignment=np.full((3, 4), np.nan),
    source_tokens=["</script><script>alert(1)</script>", "<!--", "&lt;", "'\""],
    tokens=["<img src=x onerror=alert(1)>", "\u2028", "javascript:alert(1)"],
    text="<svg onload=alert(1)>",
    score=float("nan"),
)
SCREENS = [(390, 844), (1440, 900)]


@pytest.fixture(scope="module")
def browser():
    yield from browsers.driven()


@pytest.fixture
def shown(browser, tmp_path):
    """Returns a function that opens a page of results, and hears of it."""
    opened = []

    def show(results, **options):
        page = browser.new_page(**options)
        opened.append(page)
        page.heard = []
        for event in ("console", "pageerror", "request", "dialog"):
            page.on(event, lambda x: page.heard.append(x))
        file = tmp_path / "page.html"
        file.write_text(keras_attn.attention_html(results), encoding="utf-8")
        page.goto(file.as_uri())
        return page

    yield show
    for page in opened:
        page.close()


def percents(page, group):
    tokens = page.get_by_role("radiogroup", name=group).first
    return tokens.locator(".percent").all_inner_texts()


def told(page):
    text = page.get_by_role("status").first.inner_text()
    return re.sub("[\u2068\u2069]", "", text)


def test_hovering_shows_what_a_token_attended_to_until_it_ends(shown):
    page = shown(CAT)
    assert percents(page, "Source tokens") == ["90 %", "10 %", "0 %"]
    assert told(page) == "Katze attended to: black 90 %, cat 10 %."
    end = page.get_by_role("radio", name="⏎").first
    end.hover()
    assert percents(page, "Source tokens") == ["<1 %", "20 %", "80 %"]
    assert told(page) == "⏎ attended to: ⏎ 80 %, cat 20 %."
    page.get_by_role("radio", name="black").first.hover()
    assert percents(page, "Target tokens") == ["90 %", "<1 %"]
    assert told(page) == "black was attended to by: Katze 90 %."
    page.get_by_role("heading", level=1).hover()
    assert told(page) == "Katze attended to: black 90 %, cat 10 %."


def test_tab_and_arrow_keys_reach_every_token_and_table(shown):
    page = shown(CAT)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.tagName") == "SUMMARY"
    page.keyboard.press("Tab")
    first = page.get_by_role("radio", name="Katze")
    assert first.evaluate("x => x === document.activeElement")
    page.keyboard.press("ArrowRight")
    assert told(page) == "⏎ attended to: ⏎ 80 %, cat 20 %."
    page.keyboard.press("ArrowRight")  # around
    assert told(page) == "Katze attended to: black 90 %, cat 10 %."
    page.keyboard.press("Tab")
    page.keyboard.press("End")
    assert told(page) == "⏎ was attended to by: ⏎ 80 %."
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    table = page.get_by_role("table").first
    table.wait_for()
    assert table.get_by_role("rowheader").all_inner_texts() == ["Katze", "⏎"]
    assert table.get_by_role("cell", name="0.196").count() == 1


def test_in_arabic_the_left_arrow_goes_on(shown):
    page = shown(ARABIC)
    first, second, _ = page.locator("[aria-label='Source tokens'] button").all()
    assert first.bounding_box()["x"] > second.bounding_box()["x"]
    bar = "x => getComputedStyle(x, '::after').right"
    assert first.evaluate(bar) == "0px"  # a bar of half a token grows leftwards
    first.focus()
    page.keyboard.press("ArrowLeft")
    assert told(page) == "السوداء was attended to by: black 100 %."


def test_no_line_has_the_last_token_alone(shown):
    letters = [*"lauantai 21. marraskuuta", "</s>"]
    date = SimpleNamespace(
        alignment=np.full((2, len(letters)), 0.01),
        source_tokens=letters,
        tokens=["21", "</s>"],
        text="21",
        score=-0.5,
    )
    page = shown(date)
    *_, before, last = page.locator("[aria-label='Source tokens'] button").all()
    lines = set()
    for width in range(300, 900, 16):  # a token is 44 pixels wide
        page.set_viewport_size({"width": width, "height": 900})
        boxes = before.bounding_box(), last.bounding_box()
        assert boxes[0]["y"] == boxes[1]["y"], width
        lines.add(boxes[0]["y"])
    assert len(lines) > 2
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_hypotheses_stand_beside_each_other_with_their_scores(shown):
    page = shown(CAT, viewport={"width": 1440, "height": 900})
    cards = page.get_by_role("region").all()
    heads = [x.get_by_role("heading").inner_text() for x in cards]
    assert heads == ["1. Katze", "2. Kater", "3. Tier"]
    boxes = [x.bounding_box() for x in cards]
    assert len({x["y"] for x in boxes}) == 1
    assert [x["x"] for x in boxes] == sorted(x["x"] for x in boxes)
    assert "score −1.500" in cards[1].inner_text()
    assert "is not known" in cards[2].inner_text()


def test_no_token_runs_and_nothing_is_asked_of_the_network(shown):
    page = shown([HOSTILE, CAT])
    page.get_by_role("radio", name="<img").hover()
    assert "alert(1)>" in told(page)
    assert set(percents(page, "Source tokens")) == {"NaN"}
    assert [x.url for x in page.heard] == [page.url]  # but for itself
    assert page.locator("img, svg, main script").count() == 0


@pytest.mark.parametrize("width, height", SCREENS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_screen_is_accessible_and_wide_enough(
    shown, width, height, scheme
):
    page = shown(
        [CAT, ARABIC, HOSTILE],
        viewport={"width": width, "height": height},
        color_scheme=scheme,
    )
    page.get_by_text("All weights").first.click()
    assert browsers.problems(page) == []
    assert page.evaluate("document.documentElement.scrollWidth") == width
    background = page.evaluate("getComputedStyle(document.body).background")
    light = int(re.search(r"\d+", background)[0]) > 128
    assert light == (scheme == "light")


def test_a_thousand_results_are_listed_and_opened_one_by_one(shown):
    page = shown([CAT] * 1000)
    assert page.locator("details.result").count() == 1000
    assert page.locator("details.result[open]").count() == 5
    last = page.locator("details.result").last
    assert last.get_by_role("radio").count() == 0
    last.locator("summary").first.click()
    last.get_by_role("radio", name="Katze").wait_for()
