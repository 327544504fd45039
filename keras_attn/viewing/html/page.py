"""`attention_html`: results as one page that needs no other files.

The page is made from the files in this directory. It holds the results as JSON,
in which no character can end an element, and the script inserts them only as
text. Its content security policy allows only this script, by its hash, and no
requests.
"""

import base64
import hashlib
import html
import json
import pathlib
import string

import numpy as np

from keras_attn.viewing.shown import Shown
from keras_attn.viewing.shown import are_several
from keras_attn.viewing.shown import readable
from keras_attn.viewing.shown import score_of

_HERE = pathlib.Path(__file__).parent

# Characters that could end a script, or a line of one in older browsers.
_ESCAPES = {ord(x): f"\\u{ord(x):04x}" for x in "<>&\u2028\u2029"}


def attention_html(
    results,
    title="Attention",
    words=False,
    ask=None,
    message=None,
    terms=None,
) -> str:
    """Returns a page of HTML that shows what results attended to.

    The page is one file, about 13 kB larger than the results, and works without
    a network. Hypotheses of a source are shown side by side with their scores.
    Hover over or focus a token to see its attention in numbers and bars: for a
    target token, its weights over the source; for a source token, the weights
    that target tokens gave to it. The page follows the browser's light or dark
    theme, works by keyboard and supports screen readers.

    Args:
        results: The output of a `Translator`, one of its results, or a list
            of objects with `text`, `score`, `tokens`, `source_tokens`,
            `alignment` and, if there are other hypotheses, `alternatives`. An
            alternative needs only `text` and `score`. For a result whose
            alignment is empty, the page shows no attention.
        title: Title of the page.
        words: Whether subwords are joined into words, as in `plot_attention`.
        ask: If not None, the page has a form with a text field that contains
            this text. The form requests the page's own address again, with
            `?text=...`. It is for servers that answer, such as
            `examples/live.py`.
        message: Text above the results, such as an error message.
        terms: If not None, the form has a second field with this text, for
            phrases that an output must contain, sent as `&terms=...`. Needs
            `ask`.

    Returns:
        The page. Write it to a file in UTF-8.

    Raises:
        ValueError: If a result has no alignment, or if its shape does not fit
            the tokens; or if there are `terms` without `ask`.

    Example:
        >>> from types import SimpleNamespace
        >>> result = SimpleNamespace(
        ...     text="Katze", score=-0.2, tokens=["Katze", "</s>"],
        ...     source_tokens=["black", "cat", "</s>"],
        ...     alignment=[[0.2, 0.8, 0.0], [0.0, 0.2, 0.8]])
        >>> page = keras_attn.attention_html(result)
        >>> page.startswith("<!doctype html>"), len(page.encode()) < 40_000
        (True, True)
    """
    if terms is not None and ask is None:
        raise ValueError(
            "`terms` is a second field of the form that `ask` adds. Received: "
            f'terms={terms!r:.80} and ask=None. Pass `ask`, a text or "".'
        )
    if not are_several(results):
        results = [results]
    data = {"results": [_record(x, words) for x in results]}
    script = _text("page.js")
    digest = hashlib.sha256(script.encode()).digest()
    page = string.Template(_text("page.html")).substitute(
        title=html.escape(title),
        style=_text("page.css"),
        form="" if ask is None else _form(ask, terms),
        message="" if message is None else _message(message),
        data=_json(data),
        script=script,
        hash=base64.b64encode(digest).decode(),
    )
    # A lone UTF-16 surrogate is not a character and could not be written.
    return page.encode("utf-8", "replace").decode()


def _record(result, words):
    """Returns the data of a result that the page needs."""
    best = _hypothesis(result, words, required=True)
    others = getattr(result, "alternatives", None) or []
    return {
        "source": best.pop("source"),
        "hypotheses": [
            best,
            *(_hypothesis(x, words, required=False) for x in others),
        ],
    }


def _hypothesis(result, words, required):
    found = {"text": getattr(result, "text", ""), "score": score_of(result)}
    if not required and not np.size(getattr(result, "alignment", ())):
        return found
    # Without attention there may be no columns; an empty output has no rows.
    if required and hasattr(result, "alignment"):
        if not np.size(result.alignment):
            source = readable(result.source_tokens, words)
            return found | {"source": source, "tokens": [], "weights": []}
    shown = Shown.of("attention_html", result, words)
    found |= {"tokens": shown.rows, "weights": _thousandths(shown.alignment)}
    return found | ({"source": shown.columns} if required else {})


def _thousandths(weights):
    """Returns weights in thousandths, as short integers, or None for NaN."""
    return [
        [int(x) if np.isfinite(x) else None for x in row]
        for row in np.round(weights * 1000)
    ]


def _json(data):
    text = json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    return text.translate(_ESCAPES)


def _form(text, terms):
    more = ""
    if terms is not None:
        more = string.Template(_text("terms.html")).substitute(
            terms=html.escape(terms)
        )
    return string.Template(_text("form.html")).substitute(
        text=html.escape(text), more=more
    )


def _message(text):
    return f'<p class="message" role="status">{html.escape(text)}</p>'


def _text(name):
    return (_HERE / name).read_text(encoding="utf-8")
