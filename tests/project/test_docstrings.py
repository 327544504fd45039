"""Runs the examples in docstrings, and compares `Args` with options."""

import ast
import dataclasses
import doctest
import importlib
import inspect
import pkgutil
import re

import keras
import numpy as np
import pytest

import keras_attn


def examples():
    """Returns every docstring of the package that has an example."""
    finder = doctest.DocTestFinder(exclude_empty=True)
    found = {}
    for module in pkgutil.walk_packages(keras_attn.__path__, "keras_attn."):
        module = importlib.import_module(module.name)
        names = {"np": np, "keras": keras, "keras_attn": keras_attn}
        for test in finder.find(module, extraglobs=names):
            if test.examples:
                found[test.name] = test
    return found


EXAMPLES = examples()


@pytest.mark.sample_cases(60)
@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write a file
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    printed = []
    runner.run(EXAMPLES[name], out=printed.append)
    assert not runner.failures, "".join(printed)


def test_the_things_that_users_call_have_examples():
    for name in (
        "layers.attention.attention.Attention",
        "training.batches.of_pairs.pairs",
        "layers.decoder.attention_decoder.AttentionDecoder",
        "diagnostics.checking.check",
        "incremental.incremental.Incremental",
        "incremental.registry.stepper_for",
        "layers.marginal.marginal_decoder.MarginalDecoder",
        "text.text.Text",
        "text.splitter.Splitter",
        "decoding.translator.translator.Translator",
    ):
        assert f"keras_attn.{name}" in EXAMPLES


SEARCHES = [
    keras_attn.Search,
    keras_attn.GreedySearch,
    keras_attn.BeamSearch,
    keras_attn.Sampling,
]


def docstring_in_source(kind):
    """Returns a class's docstring as a tool reads it that imports nothing."""
    return ast.get_docstring(ast.parse(inspect.getsource(kind)).body[0])


def documented_args(doc):
    """Returns the entries of `Args` by name, each on one line."""
    section = doc.partition("\nArgs:\n")[2].partition("\n\n")[0]
    entries = re.split(r"^ {4}(?=\w)", section, flags=re.MULTILINE)[1:]
    pairs = [" ".join(entry.split()).split(": ", 1) for entry in entries]
    return dict(pairs)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_search_documents_every_option_with_its_default(search):
    base = search is keras_attn.Search  # whose options all searches share
    fields = dataclasses.fields(keras_attn.GreedySearch if base else search)
    args = documented_args(docstring_in_source(search))
    assert list(args) == [field.name for field in fields]
    for field in fields:
        default = repr(field.default).replace("'", '"')
        assert f"Defaults to `{default}`" in args[field.name], field.name


# `Search` itself cannot be made.
@pytest.mark.parametrize(
    "search", [x for x in SEARCHES if x is not keras_attn.Search]
)
def test_a_search_documents_which_options_a_request_may_set(search):
    doc = " ".join(docstring_in_source(search).split())
    sentence = re.search(r"A request may set (.*?)\. ", doc)[1]
    names = re.findall(r"`(\w+)`", sentence)
    assert sorted(names) == sorted(search().request_options)
