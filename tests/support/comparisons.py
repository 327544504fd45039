"""Whether two translations are the same."""

import numpy as np
import pytest


def assert_same(left, right):
    """The same text, tokens and alternatives; scores within 1e-5."""
    assert left.text == right.text
    assert left.tokens == right.tokens
    assert left.source_tokens == right.source_tokens
    assert left.finished == right.finished
    # Rounding depends on the number of rows, and on the processor.
    assert left.score == pytest.approx(right.score, rel=1e-5, abs=1e-5)
    np.testing.assert_allclose(left.alignment, right.alignment, atol=1e-5)
    for one, other in zip(left.alternatives, right.alternatives, strict=True):
        assert_same(one, other)


def assert_streams(tokens, expected):
    """Checks that the streamed tokens, joined, are the translation."""
    tokens = list(tokens)
    assert "".join(x.text for x in tokens) == expected.text
    assert [x.token for x in tokens] == expected.tokens
    assert sum(x.log_probability for x in tokens) == pytest.approx(
        expected.score, abs=1e-4
    )
    np.testing.assert_allclose(
        np.stack([x.alignment for x in tokens]), expected.alignment, atol=1e-5
    )
