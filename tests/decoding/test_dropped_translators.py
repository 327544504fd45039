"""Translators that are dropped leave no graphs and hardly any memory."""

import gc
import pathlib
import subprocess
import sys

import pytest
from keras import layers
from support import toys
from support.compilations import with_tests_on_path

import keras_attn

LEFT = 3e6  # bytes that a translator may leave


def graphs():
    """Returns the number of TensorFlow's graphs of functions."""
    gc.collect()
    return sum(type(x).__name__ == "FuncGraph" for x in gc.get_objects())


def monotonic():
    attention = keras_attn.BahdanauAttention(
        8, alignment=keras_attn.MonotonicAlignment()
    )
    decoder = keras_attn.AttentionDecoder(layers.GRUCell(8), attention)
    search = keras_attn.GreedySearch(max_length=8)
    return keras_attn.Translator(
        toys.model(decoder), toys.SOURCE, toys.TARGET, search
    )


@pytest.mark.full
@pytest.mark.parametrize("toy", [toys.pre, toys.transformer, monotonic])
def test_a_dropped_translator_leaves_no_graph(toy):
    toy = toy()

    def make():
        made = keras_attn.Translator(
            toy.model, toy.source_text, toy.target_text, toy.search
        )
        made(toys.LINES)
        made.score(toys.LINES[:2], ["AA B", "K"])

    make()
    before = graphs()
    for _ in range(6):
        make()
    assert graphs() == before


@pytest.mark.full
def test_nor_do_its_streams_and_exports(tmp_path):
    toy = monotonic()

    def make():
        made = keras_attn.Translator(
            toy.model, toy.source_text, toy.target_text, toy.search
        )
        assert list(made.stream("abc"))
        made.export(tmp_path, signatures="all")

    make()
    before = graphs()
    for _ in range(2):
        make()
    assert graphs() == before


@pytest.mark.full
def test_a_dropped_translator_leaves_little_memory():
    program = pathlib.Path(__file__).parents[1] / "support" / "dropped.py"
    done = subprocess.run(
        [sys.executable, program],
        env=with_tests_on_path(),
        capture_output=True,
        text=True,
        check=True,
        timeout=500,
    )
    assert float(done.stdout) < LEFT
