"""The page's text: what stands in it, and that no token can break it."""

import html.parser
import json
import re
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attn.viewing.html import attention_html

OTHER = SimpleNamespace(text="Kater", score=-np.inf)
RESULT = SimpleNamespace(
    alignment=np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]], "float32"),
    source_tokens=["black", "cat", "</s>"],
    tokens=["Katze", "</s>"],
    text="Katze",
    score=np.float32(-0.25),
    alternatives=[OTHER],
)


class Page(html.parser.HTMLParser):
    """A page as a browser takes it apart."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.attributes, self.texts = [], [], {}
        self._within = None
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.attributes += attributes
        self._within = dict(attributes).get("id", tag)

    def handle_endtag(self, tag):
        self._within = None

    def handle_data(self, data):
        self.texts[self._within] = self.texts.get(self._within, "") + data

    @property
    def results(self):
        return json.loads(self.texts["data"])["results"]


def hostile(token):
    return SimpleNamespace(
        alignment=[[1.0]],
        source_tokens=[token],
        tokens=[token],
        text=token,
        score=0.0,
    )


def test_a_page_has_all_hypotheses_with_scores_and_weights():
    (result,) = Page(attention_html(RESULT)).results
    assert result["source"] == ["black", "cat", "⏎"]
    best, other = result["hypotheses"]
    assert best == {
        "text": "Katze",
        "score": "−0.250",
        "tokens": ["Katze", "⏎"],
        "weights": [[900, 100, 0], [0, 200, 800]],
    }
    assert other == {"text": "Kater", "score": "−∞"}


def test_it_needs_nothing_from_elsewhere_and_little_room():
    page = attention_html([RESULT])
    assert len(page.encode()) < 30_000
    names = [name for name, _ in Page(page).attributes]
    assert "src" not in names
    links = [x for name, x in Page(page).attributes if name == "href"]
    assert links == ["data:,"]  # the icon, which browsers ask for otherwise
    assert not re.search("https?:", page)


@pytest.mark.parametrize(
    "token",
    [
        "</script>",
        "<!--<script>",
        "]]>",
        "&lt;b&gt;",
        "\"'`",
        "$title ${data}",
        "\\u003c\\",
        "\u2028",
        "<img src=x onerror=alert(1)>",
    ],
)
def test_no_token_ends_or_begins_an_element(token):
    plain = Page(attention_html([hostile("a")], title="t", ask="a"))
    page = Page(
        attention_html([hostile(token)], title=token, ask=token, message=token)
    )
    assert (
        page.tags
        == [
            *plain.tags[: plain.tags.index("p")],
            "p",  # the message
            *plain.tags[plain.tags.index("p") :],
        ]
    )
    assert page.results[0]["hypotheses"][0]["text"] == token
    assert page.texts["title"] == token
    assert ("value", token) in page.attributes
    if not token.startswith("\u2028"):
        assert page.results[0]["source"] == [token]


def test_half_a_character_is_written_all_the_same():
    half = "a\ud83d"
    page = attention_html(hostile(half), title=half, ask=half, message=half)
    assert Page(page).results[0]["hypotheses"][0]["text"] == "a?"
    page.encode()


def test_weights_that_are_no_numbers_are_null():
    nothing = SimpleNamespace(
        alignment=[[np.nan, 1.0]], source_tokens=["a", "b"], tokens=["c"]
    )
    (result,) = Page(attention_html(nothing)).results
    assert result["hypotheses"][0]["weights"] == [[None, 1000]]
    assert result["hypotheses"][0]["score"] == ""


def test_a_result_without_weights_keeps_its_text():
    nothing = SimpleNamespace(
        alignment=np.zeros((1, 0)), source_tokens=[], tokens=["c"], text="c"
    )
    (result,) = Page(attention_html(nothing)).results
    assert result["hypotheses"][0]["text"] == "c"
    assert result["hypotheses"][0]["tokens"] == []


def test_the_source_of_an_empty_output_is_shown_as_any_other():
    nothing = SimpleNamespace(
        alignment=np.zeros((0, 3)),
        source_tokens=["▁c", "at", "</s>"],
        tokens=[],
        text="",
    )
    for words, source in (False, ["▁c", "at", "⏎"]), (True, ["cat", "⏎"]):
        (result,) = Page(attention_html(nothing, words=words)).results
        assert result["source"] == source


def test_words_are_joined_where_they_are_asked_for():
    pieces = SimpleNamespace(
        alignment=np.full((2, 3), 1 / 3),
        source_tokens=["▁c", "at", "</s>"],
        tokens=["▁Ka", "tze"],
    )
    (result,) = Page(attention_html(pieces, words=True)).results
    assert result["source"] == ["cat", "⏎"]
    assert result["hypotheses"][0]["tokens"] == ["Katze"]


def test_no_results_are_an_empty_page():
    assert Page(attention_html([])).results == []


def test_what_is_no_result_is_refused():
    with pytest.raises(ValueError, match="`attention_html` shows results"):
        attention_html(["text"])
    wrong = SimpleNamespace(
        alignment=[[1.0]], source_tokens=["a"], tokens=["b", "c"]
    )
    with pytest.raises(ValueError, match=r"\(1, 1\) for 2 tokens"):
        attention_html(wrong)
