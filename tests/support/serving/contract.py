"""Checks the signatures that every export promises its clients.

Called on the toy model here; call it on a real export, served, as well.
"""

import numpy as np
from keras_attn_serving import Client


def check_signatures(client: Client, texts: list[str]) -> None:
    """Holds the text signatures to their names, shapes and order."""
    batch = len(texts)
    metadata = client.metadata()
    for name in ("serving_default", "nbest", "align"):
        assert metadata[name].inputs.keys() == {"text"}
        assert metadata[name].inputs["text"] == ("string", (None,))

    best = client.predict(texts)
    assert best.keys() == {"text", "score"}
    assert all(isinstance(text, str) for text in best["text"])
    assert len(best["text"]) == batch
    assert best["score"].shape == (batch,)
    assert best["score"].dtype == np.float32

    nbest = client.predict(texts, "nbest")
    assert nbest.keys() == {"texts", "scores"}
    assert [row[0] for row in nbest["texts"]] == best["text"]
    assert nbest["scores"].shape == (batch, len(nbest["texts"][0]))
    np.testing.assert_allclose(nbest["scores"][:, 0], best["score"], atol=1e-5)
    for row, scores in zip(nbest["texts"], nbest["scores"], strict=True):
        assert sorted(scores, reverse=True) == list(scores)
        assert not any(
            text
            for text, score in zip(row, scores, strict=True)
            if score == -np.inf
        )

    aligned = client.align(texts)
    assert [each.text for each in aligned] == best["text"]
    for each in aligned:
        shape = len(each.tokens), len(each.source_tokens)
        assert each.alignment.shape == shape
        assert np.isfinite(each.alignment).all()
