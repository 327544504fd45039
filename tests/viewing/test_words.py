"""Subwords are joined to words, and attention with them."""

import numpy as np
import pytest

import keras_attn
from keras_attn.viewing.words import by_words
from keras_attn.viewing.words import spans


@pytest.mark.parametrize(
    ("tokens", "words"),
    [
        (["▁to", "▁b", "e", "</s>"], ["to", "be", "</s>"]),
        (["▁", "x", "▁", "<0xC3>", "<0xA9>", "</s>"], ["x", "é", "</s>"]),
        (["no", "##t", ",", "to", "</s>"], ["not", ",", "to", "</s>"]),
        (["no@@", "t", "to", "</s>"], ["not", "to", "</s>"]),
        (["Il-", "Ġurnata", "hi"], ["Il-", "Ġurnata", "hi"]),
        (["▁il", "-", "Ġ", "urnata", "▁taj", "ba"], ["il-Ġurnata", "tajba"]),
        (["<0x61>", "<0x62>", "<0x20>", "<0x63>", "</s>"], ["ab", "c", "</s>"]),
        # A space and the first byte of a letter are one token of `BytePair`.
        (
            ["<0x20><0xD0>", "<0xB4>", "а", "<0x20><0xD0>", "<0xBD>", "</s>"],
            ["да", "н", "</s>"],
        ),
        (
            ["▁a", "<0x20><0xD0>", "<0xB4>", "▁b", "</s>"],
            ["a", "д", "b", "</s>"],
        ),
        (["a", "word", "</s>"], ["a", "word", "</s>"]),
        (["▁a", "<unk>", "b"], ["a", "<unk>", "b"]),
        (["<s>", "b", "▁c"], ["<s>", "b", "c"]),
        ([], []),
        (["</s>"], ["</s>"]),
        (["##"], ["##"]),
    ],
)
def test_words_of_every_kind_of_mark(tokens, words):
    found = spans(tokens)
    assert [x for *_, x in found] == words
    ends = [0, *(last for _, last, _ in found)]
    assert [first for first, *_ in found] == ends[:-1]
    assert ends[-1] == len(tokens)


def test_attention_is_summed_over_the_source_and_averaged_over_the_target():
    alignment = [[0.5, 0.2, 0.3, 0.0], [0.1, 0.1, 0.4, 0.4]]
    found, columns, rows = by_words(
        alignment, ["▁a", "b", "▁c", "</s>"], ["▁x", "y"]
    )
    assert (columns, rows) == (["ab", "c", "</s>"], ["xy"])
    np.testing.assert_allclose(found, [[0.45, 0.35, 0.2]], atol=1e-6)
    np.testing.assert_allclose(found.sum(), 1.0, atol=1e-6)


def test_a_plot_of_words_has_a_row_for_each():
    figure = keras_attn.plot_attention(
        alignment=np.full((3, 3), 1 / 3),
        source_tokens=["▁black", "▁c", "at"],
        tokens=["▁Ka", "tze", "</s>"],
        words=True,
    )
    axes = figure.axes[0]
    assert [x.get_text() for x in axes.get_xticklabels()] == ["black", "cat"]
    assert [x.get_text() for x in axes.get_yticklabels()] == ["Katze", "⏎"]
