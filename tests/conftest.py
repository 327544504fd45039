"""Shared fixtures: seeds, and the small models that several files use.

Building a model and exporting it takes seconds, so each is made once a
session. Tests must not change what they share.
"""

import collections
import os
import zlib

import hypothesis
import pytest

# Failed asserts in these helpers then show their values.
pytest.register_assert_rewrite("support.findings")

# The same examples on every run, and no time limit on slow machines.
hypothesis.settings.register_profile(
    "keras_attn", derandomize=True, deadline=None, database=None
)
hypothesis.settings.load_profile("keras_attn")

# Each worker has a core of its own. More threads would only wait for it.
for threads in ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS"):
    os.environ.setdefault(threads, "1")

if os.environ.get("KERAS_BACKEND", "tensorflow") != "tensorflow":
    # Files that need TensorFlow, or print its tensors.
    collect_ignore = [
        "training/test_decode.py",
        "training/test_distribution.py",
        "project/test_docstrings.py",
        "export/test_export.py",
        "export/test_export_batching.py",
        "export/test_export_onnx.py",
        "export/test_export_rows.py",
        "export/test_export_signatures.py",
        "project/test_fixtures.py",
        "project/test_fixtures_kinds.py",
        "decoding/test_frames.py",
        "incremental/test_incremental_apart.py",
        "incremental/test_incremental_graph.py",
        "layers/test_marginal_graphs.py",
        "training/test_precision.py",
        "training/test_resume.py",
        "decoding/test_translator.py",
        "decoding/test_translator_ensembles.py",
        "decoding/test_translator_features.py",
        "decoding/test_translator_reports.py",
        "decoding/test_translator_requests.py",
        "decoding/test_translator_scores.py",
        "decoding/test_translator_stream.py",
    ]


@pytest.hookimpl(tryfirst=True)  # before `-m` looks
def pytest_collection_modifyitems(items):
    """Marks all but `n` cases of a test with `sample_cases(n)` as `full`.

    Those that stay are evenly spread. Each test begins elsewhere, so that
    tests with the same cases keep different ones; a single one is the first.
    """
    cases = collections.defaultdict(list)
    for item in items:
        if item.get_closest_marker(
            "sample_cases"
        ) and not item.get_closest_marker("full"):
            cases[item.fspath, item.originalname].append(item)
    for (_, name), found in cases.items():
        (count,) = found[0].get_closest_marker("sample_cases").args
        begin = zlib.crc32(name.encode()) if count > 2 else 0
        kept = {
            (begin + i * len(found) // count) % len(found) for i in range(count)
        }
        for i, item in enumerate(found):
            if i not in kept:
                item.add_marker(pytest.mark.full)


@pytest.fixture(autouse=True)
def seeded():
    """Random weights do not depend on the tests that ran before."""
    import keras

    keras.utils.set_random_seed(20261121)


@pytest.fixture(scope="session")
def toys():
    """Named translators with seeded weights, made when first asked for."""
    from support import toys

    return toys.Toys()
