import io
import pickle
import sys
import warnings
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import numpy as np
import pytest

from keras_attn.viewing.plots import plot_attention
from keras_attn.viewing.plots.heat_map import wrapped
from keras_attn.viewing.shown import legible

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


def test_a_notebook_shows_it():
    figure = plot_attention(RESULT)
    assert figure._repr_png_().startswith(b"\x89PNG")
    assert type(pickle.loads(pickle.dumps(figure))) is type(figure)


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


@pytest.mark.parametrize(
    "token, shown",
    [
        ("می\u200cخواهم", "می\u200cخواهم"),
        ("👩\u200d💻", "👩\u200d💻"),
        ("été\u00a0!", "été\u00a0!"),
        ("你\u3000好", "你\u3000好"),
        ("שלום\u200f", "שלום\u200f"),
        ("été\n\u200d", "été\\n\u200d"),
        ("\u0301\x00", "\u25cc\u0301\\x00"),
        ("\u200d\u00a0", "\\u200d\\xa0"),
        ("\ud83d", "\\ud83d"),
    ],
)
def test_only_characters_that_would_not_show_are_escaped(token, shown):
    assert legible(token) == shown


@pytest.mark.parametrize(
    "token, rotation",
    [("cat", 0), ("ねこは", 45), ("né\u0301e", 0), ("\u200bcat\u200b", 0)],
)
def test_labels_turn_if_their_letters_are_wide(token, rotation):
    with warnings.catch_warnings():  # there may be no font of Japanese
        warnings.simplefilter("ignore")
        ax = plot_attention(
            alignment=np.eye(3), source_tokens=[token, "a", "b"], tokens="xyz"
        ).axes[0]
    assert ax.get_xticklabels()[0].get_rotation() == rotation


def test_a_title_of_wide_letters_is_wrapped_earlier():
    assert "\n" not in wrapped("ab " * 10, 30)
    first, second = wrapped("猫犬" * 10, 24).split("\n")
    assert 13 < len(first) <= 24 / 1.6 and len(first + second) == 20


def test_a_mark_without_a_letter_stands_on_a_circle():
    vowel = "\u093f"  # of Hindi, of combining class 0
    ax = plot_attention(
        alignment=np.eye(3),
        source_tokens=["e", "\u0301", vowel],
        tokens=["é", "ʰ", "a"],
    ).axes[0]
    assert labels(ax.xaxis) == ["e", "\u25cc\u0301", "\u25cc" + vowel]
    assert labels(ax.yaxis) == ["é", "ʰ", "a"]
    with warnings.catch_warnings():  # there may be no font of Hindi
        warnings.filterwarnings("ignore", "Glyph", UserWarning)
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


def test_a_font_that_cannot_be_read_is_passed_over(monkeypatch, tmp_path):
    from matplotlib import font_manager

    broken = tmp_path / "broken.ttf"
    broken.write_bytes(b"no font")
    entries = [
        font_manager.FontEntry(fname=str(path), name="No Font")
        for path in (tmp_path / "gone.ttf", broken)
    ]
    known = font_manager.fontManager.ttflist
    monkeypatch.setattr(font_manager.fontManager, "ttflist", [*entries, *known])
    plot_attention(  # a character that the default font lacks
        alignment=[[1.0]], source_tokens=["a"], tokens=["你"]
    )


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


@pytest.mark.parametrize("score", [-0.25, -1e20])
def test_a_title_that_is_cut_keeps_its_score(score):
    result = SimpleNamespace(**vars(RESULT) | {"score": score})
    result.text = "so it is " * 100
    *_, last = plot_attention(result).axes[0].get_title(loc="left").split("\n")
    assert last.endswith(f"…   (score −{abs(score):.3f})")


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
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    with pytest.raises(ImportError, match="extra `plot`"):
        plot_attention(RESULT)


@pytest.mark.parametrize(
    "arguments, message",
    [
        ({"translation": "text"}, r"one as in `results\[0\]`"),
        ({"translation": []}, "Received: 0"),
        ({"translation": [RESULT] * 51}, r"`results\[:9\]`"),
        ({"translation": [RESULT] * 2, "ax": 1}, "Leave `ax` out"),
        ({"translation": RESULT, "mark": "best"}, "'choice', 'path', 'window'"),
        (
            {"translation": RESULT, "saliency": [[1.0]]},
            r"\(1, 1\) for \(2, 3\)",
        ),
        (
            {"translation": [RESULT], "saliency": []},
            "0 for 1 results",
        ),
        (
            {"translation": RESULT, "picture": np.zeros((4, 4, 3))},
            r"3 weights for each token, a picture of 4 x 4",
        ),
        (
            {
                "translation": RESULT,
                "picture": np.zeros((3, 9)),
                "grid": (2, 3),
            },
            r"grid=\(2, 3\)",
        ),
        (
            {"translation": RESULT, "picture": np.zeros((2, 4, 4, 3))},
            r"`pictures\[0\]`",
        ),
        (
            {"translation": RESULT, "picture": np.full((3, 9), 99.0)},
            "values from 99.0",
        ),
        (
            {"translation": RESULT, "picture": np.zeros((3, 9)), "words": True},
            "`words` would have no effect with `picture`",
        ),
        (
            {
                "translation": RESULT,
                "picture": np.zeros((3, 9)),
                "mark": "path",
                "saliency": [[1.0]],
            },
            "`mark` and `saliency` would have no effect with",
        ),
        (
            {"translation": RESULT, "grid": (1, 3)},
            "`grid` would have no effect without `picture`",
        ),
        *(
            (
                {
                    "translation": RESULT,
                    "picture": np.zeros((3, 9)),
                    "grid": grid,
                },
                r"Pass `grid=\(rows, columns\)`",
            )
            for grid in (3, (-1, -3))
        ),
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


ARABIC = "القطة السوداء تجلس".split()


def test_a_source_in_arabic_runs_from_right_to_left():
    figure = plot_attention(
        alignment=np.eye(3), source_tokens=ARABIC, tokens=["a", "b", "c"]
    )
    assert figure.axes[0].xaxis_inverted()
    assert not plot_attention(RESULT).axes[0].xaxis_inverted()


def test_letters_of_arabic_are_joined_and_ordered():
    """As the joined forms of Unicode in visual order, drawn one by one."""
    if matplotlib.__version_info__ < (3, 11):
        pytest.skip("needs Matplotlib 3.11, which shapes text")

    def drawn(text, size):
        figure = matplotlib.figure.Figure(figsize=(3, 1))
        matplotlib.backends.backend_agg.FigureCanvasAgg(figure)
        figure.text(0.1, 0.5, text, size=size, parse_math=False)
        figure.canvas.draw()
        return np.asarray(figure.canvas.buffer_rgba())

    # Beh, initial, medial and final; the last stands leftmost.
    shaped = drawn("\u0628\u0628\u0628", 30)
    by_hand = drawn("\u202d\ufe90\ufe92\ufe91\u202c", 30)
    apart = drawn("\u202d\u0628\u200c\u0628\u200c\u0628\u202c", 30)
    dark = [
        np.flatnonzero(x[..., 0].min(axis=0) < 128)
        for x in (shaped, by_hand, apart)
    ]
    widths = [x[-1] - x[0] for x in dark]
    assert abs(widths[0] - widths[1]) <= 2 < abs(widths[0] - widths[2])


def test_many_results_stand_in_one_figure():
    figure = plot_attention([RESULT] * 7, title="Seven")
    maps = [ax for ax in figure.axes if ax.get_title(loc="left")]
    assert [ax.get_title(loc="left") for ax in maps] == [
        "Katze   (score −0.250)"
    ] * 7
    assert figure.get_suptitle() == "Seven"
    width, height = figure.get_size_inches()
    assert width <= 15 and height < 15
    png(figure)


def test_a_result_of_the_client_which_is_a_tuple_is_one_result():
    from keras_attn_serving.wire.results import Alignment

    result = Alignment("c", -1.0, ["a", "b"], ["c"], np.full((1, 2), 0.5))
    assert len(plot_attention(result).axes) == 1


@pytest.mark.parametrize(
    "mark, boxes",
    [
        ("choice", [(0, 0, 1), (1, 2, 1)]),
        ("window", [(0, 0, 2), (1, 1, 2)]),
    ],
)
def test_boxes_mark_the_choice_and_the_window(mark, boxes):
    collection = plot_attention(RESULT, mark=mark).axes[0].collections[1]
    found = [x.get_extents() for x in collection.get_paths()]
    assert [(round(x.y0), round(x.x0), round(x.width)) for x in found] == boxes


def test_a_line_marks_the_path_and_leaves_out_rows_without_weight():
    weights = np.array([[1, 0, 0], [0, 0, 0], [0, 0, 1.0]])
    figure = plot_attention(
        alignment=weights,
        source_tokens=list("abc"),
        tokens=list("xyz"),
        mark=["path", "choice", "window"],
    )
    (line,) = figure.axes[0].lines
    np.testing.assert_array_equal(line.get_xdata(), [0, np.nan, 2])
    boxes = [len(x.get_paths()) for x in figure.axes[0].collections[1:]]
    assert boxes == [2, 2]


def test_weights_that_are_no_numbers_are_left_white():
    figure = plot_attention(
        alignment=[[np.nan, np.nan], [0.0, 1.0]],
        source_tokens=["a", "b"],
        tokens=["c", "d"],
        mark=["path", "choice", "window"],
    )
    (line,) = figure.axes[0].lines
    np.testing.assert_array_equal(line.get_xdata(), [np.nan, 1])
    png(figure)


def test_saliency_stands_beside_attention_with_the_same_cells():
    weights = RESULT.alignment[:, ::-1]
    left, right, *_ = plot_attention(RESULT, saliency=weights).axes
    np.testing.assert_array_equal(right.collections[0].get_array(), weights)
    assert labels(left.xaxis) == labels(right.xaxis)
    assert right.get_title(loc="left") == "saliency"
    many = plot_attention([RESULT, RESULT], saliency=[weights, weights])
    assert len(many.axes) == 4


def unequal(*targets, source=6):
    """Results with these numbers of target tokens."""
    return [
        SimpleNamespace(
            alignment=np.full((count, source), 1 / source),
            source_tokens=[f"s{i}" for i in range(source)],
            tokens=[f"t{i}" for i in range(count)],
            text="a",
            score=-0.5,
        )
        for count in targets
    ]


def boxes_of(figure, axes):
    """Returns where axes stand, in inches."""
    figure.canvas.draw()
    inches = figure.dpi_scale_trans.inverted()
    return [ax.get_window_extent().transformed(inches) for ax in axes]


def test_heat_maps_of_unequal_targets_have_equal_cells():
    targets = 4, 14, 3, 9, 2
    figure = plot_attention(unequal(*targets))
    maps = [ax for ax in figure.axes if ax.get_title(loc="left")]
    boxes = boxes_of(figure, maps)
    cells = [
        box.height / count for box, count in zip(boxes, targets, strict=True)
    ]
    assert max(cells) < 1.25 * min(cells)
    assert abs(boxes[0].y1 - boxes[1].y1) < 0.2  # their tops


def test_pictures_of_unequal_targets_begin_below_their_titles():
    results = unequal(9, 1, 3)
    figure = plot_attention(results, picture=[PICTURE] * 3, grid=(2, 3))
    panels = [ax for ax in figure.axes if ax.images]
    boxes = boxes_of(figure, panels)
    widths = [box.width for box in boxes]
    assert max(widths) < 1.25 * min(widths)
    first = [
        box
        for box, ax in zip(boxes, panels, strict=True)
        if ax.get_title() == "picture"
    ]
    parts = [ax.figure for ax in panels if ax.get_title() == "picture"]
    for box, part in zip(first, parts, strict=True):
        title = part.texts[0].get_window_extent()
        assert abs(title.x0 / figure.dpi - box.x0) < 0.1
    # Each row goes on at once: no blank between its panels.
    second = boxes[1 + boxes.index(first[1])]
    assert second.x0 - first[1].x1 < 0.5


PICTURE = np.zeros((6, 9, 3), "uint8")
SEEN = SimpleNamespace(
    alignment=np.arange(12).reshape(2, 6) / 66,
    source_tokens=list("012345"),
    tokens=["sun", "</s>"],
    text="sun",
    score=-0.5,
)


def test_over_a_picture_each_token_has_a_panel():
    figure = plot_attention(SEEN, picture=PICTURE)
    panels = [ax for ax in figure.axes if ax.images]
    assert [ax.get_title() for ax in panels] == ["picture", "sun", "⏎"]
    assert [len(ax.images) for ax in panels] == [1, 2, 2]
    veil = panels[1].images[1]
    # The picture is 2 by 3, and so is the grid of the six weights.
    np.testing.assert_array_equal(
        veil.get_array(), SEEN.alignment[0].astype("float32").reshape(2, 3)
    )
    assert veil.get_extent() == panels[1].images[0].get_extent()
    assert veil.get_clim() == (0, np.float32(11 / 66))
    png(figure)


def test_a_list_of_one_result_has_its_title_and_that_of_the_figure():
    figure = plot_attention([SEEN], picture=[PICTURE], title="Heading")
    assert figure.get_suptitle() == "Heading"
    (part,) = figure.subfigs
    assert part.get_suptitle() == "sun   (score −0.500)"
    png(figure)
    figure = matplotlib.figure.Figure()
    ax = figure.subplots()
    plot_attention([RESULT], ax=ax, title="Heading")
    assert ax.get_title(loc="left") == "Heading"
    ax = plot_attention([RESULT], title="").axes[0]
    assert ax.get_title(loc="left") == "Katze   (score −0.250)"


@pytest.mark.parametrize(
    "grey, opacity, veil", [(60, 255, 1.0), (200, 255, 0.05), (0, 0, 0.05)]
)
def test_the_veil_contrasts_with_a_picture_of_any_opacity(grey, opacity, veil):
    """A transparent picture is white, as the figure behind it."""
    picture = np.full((6, 9, 4), grey, "uint8")
    picture[..., 3] = opacity
    figure = plot_attention(SEEN, picture=picture)
    image = figure.axes[1].images[1]
    assert image.cmap(0.0)[0] == pytest.approx(veil)


def test_where_a_token_looked_the_picture_shows():
    bright = np.full((40, 40), 255, "uint8")
    one = SimpleNamespace(
        alignment=[[1.0, 0.0, 0.0, 0.0]],
        source_tokens=list("0123"),
        tokens=["a"],
    )
    figure = plot_attention(one, picture=bright)
    figure.canvas.draw()
    pixels = np.asarray(figure.canvas.buffer_rgba())[..., 0]
    box = figure.axes[1].get_window_extent()
    height = len(pixels)

    def at(right, down):
        x = int(box.x0 + right * box.width)
        return pixels[int(height - box.y1 + down * box.height), x]

    assert at(0.1, 0.1) > 220
    assert max(at(0.9, 0.1), at(0.1, 0.9), at(0.9, 0.9)) < 80


def test_the_panels_of_a_line_stand_one_below_the_other():
    line = np.full((4, 40), 0.5)
    figure = plot_attention(SEEN, picture=line, grid=(1, 6))
    *panels, _ = figure.axes
    assert [ax.texts[0].get_text() for ax in panels] == ["picture", "sun", "⏎"]
    assert not any(ax.get_title() for ax in panels)
    figure.canvas.draw()
    places = [ax.get_position() for ax in panels]
    assert len({round(x.x0, 3) for x in places}) == 1
    assert places[0].y0 > places[1].y1 and places[1].y0 > places[2].y1


def test_pictures_may_be_grey_and_several():
    figure = plot_attention(
        [SEEN, SEEN], picture=[PICTURE[:, :, :1], PICTURE / 255], grid=(2, 3)
    )
    assert len([ax for ax in figure.axes if ax.images]) >= 6
    png(figure)
