"""Modules of a user's own around a translator, in a server's loader."""

import numpy as np
import pytest
import tensorflow as tf
from support.lazily import ask

LINES = ["abc", "", "dead", "É?é"]


class Lowered(tf.Module):
    """Lower-cases, splits by itself, and decodes ids."""

    def __init__(self, translator):
        super().__init__()
        self.inner = translator.module()
        keys = translator.source_text.tokens[4:]
        self.table = tf.lookup.StaticHashTable(
            tf.lookup.KeyValueTensorInitializer(
                keys, tf.range(4, 4 + len(keys), dtype=tf.int64)
            ),
            3,
        )

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def ids(self, text):
        letters = tf.strings.unicode_split(
            tf.strings.lower(text, "utf-8"), "UTF-8"
        )
        found = letters.with_flat_values(self.table.lookup(letters.flat_values))
        ends = tf.fill([found.nrows(), 1], tf.constant(2, tf.int64))
        ids = tf.concat([found, ends], axis=1).to_tensor(0)
        hypotheses = self.inner.decode_ids(tf.cast(ids, tf.int32))
        return {
            "texts": self.inner.strings(hypotheses.tokens),
            "scores": hypotheses.scores,
        }

    @tf.function(input_signature=[tf.TensorSpec([None], tf.string)])
    def whole(self, text):
        return self.inner.decode(tf.strings.lower(text, "utf-8"))


@pytest.mark.full
@pytest.mark.parametrize("name", ["pre", "ensemble"])
def test_a_server_runs_a_module_of_one_s_own(toys, tmp_path, name):
    translator = toys[name]
    expected = translator([x.lower() for x in LINES])
    module = Lowered(translator)
    tf.saved_model.save(
        module,
        str(tmp_path),
        signatures={"ids": module.ids, "whole": module.whole},
    )
    given = {"text": np.array([x.encode() for x in LINES], object)}
    answers = ask([(str(tmp_path), x, given, "c") for x in ("ids", "whole")])
    for answer in answers:
        assert isinstance(answer, dict), answer
        texts = [x.decode() for x in answer["texts"][:, 0]]
        assert texts == expected.text
        np.testing.assert_allclose(
            answer["scores"][:, 0], expected.scores, rtol=1e-4
        )


@pytest.mark.full
def test_it_follows_the_weights(toys, tmp_path):
    import keras
    from support.toys import LINES
    from support.toys import TARGET
    from support.toys import speak_up

    import keras_attn

    model = keras.models.clone_model(toys["pre"].model)
    speak_up(model, 24)
    text = toys["pre"].source_text
    search = keras_attn.GreedySearch(max_length=6)
    translator = keras_attn.Translator(model, text, TARGET, search)
    module = translator.module()
    ids = text.ids(LINES)
    before = module.strings(module.decode_ids(ids).tokens).numpy().tolist()
    speak_up(model, 25)
    after = module.strings(module.decode_ids(ids).tokens).numpy()
    assert after.tolist() != before
    assert [x.decode() for x in after[:, 0]] == translator(LINES).text
