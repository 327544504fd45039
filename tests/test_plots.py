import io
import sys
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attn.plots import plot_attention

matplotlib = pytest.importorskip("matplotlib")

RESULT = SimpleNamespace(
    alignment=np.array([[0.9, 0.1, 0.0], [0.0, 0.2, 0.8]], "float32"),
    source_tokens=["black", "cat", "</s>"],
    tokens=["Katze", "</s>"],
    text="Katze",
    score=np.float32(-0.25),
)


def labels(axis):
    return [label.get_text() for label in axis.get_ticklabels()]


def png(figure):
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def test_rows_are_target_tokens_and_columns_source_tokens_on_top():
    ax = plot_attention(RESULT).axes[0]
    assert labels(ax.yaxis) == ["Katze", "⏎"]
    assert labels(ax.xaxis) == ["black", "cat", "⏎"]
    assert ax.xaxis.get_ticks_position() == "top"
    assert ax.yaxis_inverted()
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("source", "target")


def test_colours_show_the_alignment_on_a_scale_from_0_to_1():
    image = plot_attention(RESULT).axes[0].collections[0]
    np.testing.assert_array_equal(image.get_array(), RESULT.alignment)
    assert image.get_clim() == (0.0, 1.0)


def test_text_and_score_stand_above():
    ax = plot_attention(RESULT).axes[0]
    assert ax.get_title(loc="left") == "Katze   (score −0.250)"


def test_the_parts_of_a_result_may_be_passed_by_name():
    figure = plot_attention(
        alignment=[[0.5, 0.5]],
        source_tokens=["a", "b"],
        tokens=["c"],
        title="d",
    )
    assert figure.axes[0].get_title(loc="left") == "d"


def test_it_saves_a_png_and_a_pdf(tmp_path):
    figure = plot_attention(RESULT)
    figure.savefig(tmp_path / "attention.png")
    figure.savefig(tmp_path / "attention.pdf")
    assert (tmp_path / "attention.png").read_bytes()[:4] == b"\x89PNG"
    assert (tmp_path / "attention.pdf").read_bytes()[:4] == b"%PDF"


def test_it_draws_into_given_axes():
    figure = matplotlib.figure.Figure()
    left, right = figure.subplots(1, 2)
    assert plot_attention(RESULT, ax=right) is figure
    assert labels(right.yaxis) == ["Katze", "⏎"]
    assert not left.collections


def test_tokens_that_would_not_show_are_made_legible():
    ax = plot_attention(
        alignment=np.eye(5),
        source_tokens=["$x^2$", " ", "\n", "", "<eos>"],
        tokens=list("abcde"),
    ).axes[0]
    assert labels(ax.xaxis) == ["$x^2$", "␣", "\\n", "", "⏎"]
    # Matplotlib would take dollar signs for mathematics.
    assert not ax.get_xticklabels()[0].get_parse_math()
    png(ax.figure)


def test_a_mark_without_a_letter_stands_on_a_circle():
    ax = plot_attention(
        alignment=np.eye(2), source_tokens=["e", "\u0301"], tokens=["é", "ʰ"]
    ).axes[0]
    assert labels(ax.xaxis) == ["e", "\u25cc\u0301"]
    assert labels(ax.yaxis) == ["é", "ʰ"]
    png(ax.figure)


def test_characters_the_default_font_lacks_come_from_another():
    from matplotlib import font_manager

    def characters(family):
        properties = font_manager.FontProperties(family=[family])
        path = font_manager.findfont(properties)
        return set(font_manager.get_font(path).get_charmap())

    missing = characters("STIXGeneral") - characters("DejaVu Sans")
    token = next(c for c in map(chr, sorted(missing)) if c.isalpha())
    figure = plot_attention(
        alignment=[[1.0]], source_tokens=["a"], tokens=[token]
    )
    families = figure.axes[0].get_yticklabels()[0].get_fontfamily()
    drawn = set().union(*map(characters, families[1:]))
    assert ord(token) in drawn
    png(figure)  # would warn of a missing glyph


def test_figures_grow_with_the_tokens_within_limits():
    def size(target, source):
        return plot_attention(
            alignment=np.full((target, source), 1 / source),
            source_tokens=["s"] * source,
            tokens=["t"] * target,
        ).get_size_inches()

    small, wide, huge = size(2, 3), size(2, 20), size(300, 300)
    assert wide[0] > small[0] and wide[1] == small[1]
    assert max(huge) < 16


def test_no_label_leaves_the_picture():
    long = ["Donaudampfschifffahrt", "und", "sehr", "lange", "Wörter", "</s>"]
    figure = plot_attention(
        alignment=np.eye(6), source_tokens=long, tokens=long, title="x" * 400
    )
    figure.canvas.draw()
    ax = figure.axes[0]
    for label in [*ax.get_xticklabels(), *ax.get_yticklabels()]:
        box = label.get_window_extent()
        assert box.x0 >= 0 and box.y0 >= 0
        assert box.x1 <= figure.bbox.x1 and box.y1 <= figure.bbox.y1


def test_threads_draw_the_same_picture():
    expected = png(plot_attention(RESULT))
    with ThreadPoolExecutor(4) as pool:
        drawn = pool.map(lambda _: png(plot_attention(RESULT)), range(8))
    assert set(drawn) == {expected}


def test_it_leaves_pyplot_and_its_backend_alone():
    pyplot = pytest.importorskip("matplotlib.pyplot")
    backend = matplotlib.get_backend(auto_select=False)
    plot_attention(RESULT)
    assert pyplot.get_fignums() == []
    assert matplotlib.get_backend(auto_select=False) == backend


def test_without_matplotlib_the_error_names_the_extra(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match="extra `plot`"):
        plot_attention(RESULT)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"translation": [RESULT]}, r"`plot_attention\(results\[0\]\)`"),
        ({}, "Received: NoneType"),
        ({"alignment": [[1.0]], "tokens": ["a"]}, "go together"),
        ({"translation": RESULT, "tokens": ["a"]}, "Received: both"),
        (
            {"alignment": [[1.0]], "source_tokens": ["a"], "tokens": ["b"] * 2},
            r"shape \(1, 1\) for 2 tokens and 1 source tokens",
        ),
        (
            {"alignment": [[]], "source_tokens": [], "tokens": ["a"]},
            "at least one of both",
        ),
    ],
)
def test_what_cannot_be_drawn_is_refused(arguments, message):
    with pytest.raises(ValueError, match=message):
        plot_attention(**arguments)
