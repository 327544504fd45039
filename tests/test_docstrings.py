"""The examples in docstrings, run."""

import doctest
import importlib
import pkgutil

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


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_prints_what_it_says(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # some write a file
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    printed = []
    runner.run(EXAMPLES[name], out=printed.append)
    assert not runner.failures, "".join(printed)


def test_the_things_that_users_call_have_examples():
    for name in (
        "attention.base.Attention",
        "batches.pairs",
        "decoder.base.AttentionDecoder",
        "findings.base.check",
        "incremental.base.Incremental",
        "incremental.registry.stepper_for",
        "text.base.Text",
        "text.splitter.Splitter",
        "translator.base.Translator",
    ):
        assert f"keras_attn.{name}" in EXAMPLES
