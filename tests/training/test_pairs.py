import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support.lines import TEXT
from support.lines import lines
from support.lines import pairs
from support.lines import rows

import keras_attn
from keras_attn.text.special_tokens import END
from keras_attn.text.special_tokens import START
from keras_attn.text.special_tokens import UNKNOWN


def test_inputs_start_where_targets_end():
    data = pairs(["ab", "c"], ["abc", ""], shuffle=False, buckets=1)
    ((source, target_in), target_out), *others = data
    assert not others
    assert source.numpy().tolist() == [[4, 5, END], [6, END, 0]]
    assert target_in.numpy().tolist() == [[START, 4, 5, 6], [START, 0, 0, 0]]
    assert target_out.numpy().tolist() == [[4, 5, 6, END], [END, 0, 0, 0]]


def test_inputs_and_targets_have_the_same_padding():
    for (source, target_in), target_out in pairs(lines(50), lines(50, seed=1)):
        assert source.dtype == target_in.dtype == target_out.dtype == tf.int32
        np.testing.assert_array_equal(target_in == 0, target_out == 0)
        np.testing.assert_array_equal(target_in[:, 0], START)
        assert not np.any(target_in == END)
        assert np.all(
            tf.reduce_sum(tf.cast(target_out == END, "int32"), 1) == 1
        )
        # No batch has a column of padding alone.
        assert np.any(source[:, -1] != 0) and np.any(target_out[:, -1] != 0)


def test_a_batch_of_sources_without_ids_has_a_column_of_padding():
    """As `Text.ids()` has, since RNNs refuse a length of 0."""
    special = keras_attn.SpecialTokens(pad=4, source_end=())
    pieces = ["a", "[GO]", "[END]", "[UNK]", "[PAD]"]
    text = keras_attn.Text(split=keras_attn.WordPiece(pieces, special))
    data = keras_attn.pairs(
        ["", "a a"], ["a", "a"], text, TEXT, batch_size=1, shuffle=False
    )
    sources = [source.numpy().tolist() for (source, _), _ in data]
    assert sorted(sources) == [[[0, 0]], [[4]]]


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("batch_size", [1, 7, 64])
@pytest.mark.parametrize("buckets", [1, 3, 8])
@pytest.mark.parametrize("shuffle", [False, True])
def test_no_pair_is_lost_and_the_last_batches_may_be_smaller(
    batch_size, buckets, shuffle
):
    sources, targets = lines(53), lines(53, seed=1)
    data = pairs(
        sources,
        targets,
        batch_size=batch_size,
        buckets=buckets,
        shuffle=shuffle,
    )
    assert sorted(rows(data)) == sorted(zip(sources, targets, strict=True))
    sizes = [target.shape[0] for _, target in data]
    assert max(sizes) <= batch_size
    assert len(sizes) == int(data.cardinality())


def test_one_bucket_without_shuffling_keeps_the_order():
    sources, targets = lines(20), lines(20, seed=1)
    data = pairs(sources, targets, batch_size=3, shuffle=False, buckets=1)
    assert rows(data) == list(zip(sources, targets, strict=True))


def test_buckets_leave_less_padding():
    def padding(buckets):
        data = pairs(lines(200), lines(200), batch_size=10, buckets=buckets)
        return sum(int(np.sum(target == 0)) for _, target in data)

    assert padding(8) < padding(1) / 3


def test_every_epoch_has_another_order_and_a_seed_repeats_them():
    def epochs(seed):
        data = pairs(lines(40), lines(40, seed=1), batch_size=4, seed=seed)
        return [rows(data), rows(data)]

    first = epochs(seed=3)
    assert first[0] != first[1]
    assert epochs(seed=3) == first
    assert epochs(seed=4) != first
    still = pairs(lines(40), lines(40), shuffle=False)
    assert rows(still) == rows(still)


def test_lines_that_are_cut_are_warned_of_by_number():
    with pytest.warns(
        UserWarning,
        match="1 of 3 sources have more tokens than .*max_length of 9 and "
        "were cut to it",
    ):
        pairs(["a" * 30, "b" * 9, "c"], ["a", "b", "c"])
    with pytest.warns(UserWarning, match="2 of 3 targets have more"):
        data = pairs(
            ["a", "b", "c"], ["a" * 30, "b" * 9, "c" * 10], shuffle=False
        )
    assert sorted(len(target) for _, target in rows(data)) == [9, 9, 9]


def test_lines_that_just_fill_the_maximum_length_are_not_warned_of():
    # Any warning is an error in these tests.
    pairs(["a" * 9, "b"], ["a" * 9, "e\u0301" * 9])


def test_lines_that_are_no_strings_are_named():
    with pytest.raises(ValueError, match=r"`targets` must be.*targets\[1\]=3"):
        pairs(["a", "b"], ["a", 3])
    data = pairs(["a\ud800", "b"], ["a", "b"], buckets=1)
    assert int(np.sum(next(iter(data))[0][0] == UNKNOWN)) >= 1


def test_pairs_are_normalized_as_their_texts_are():
    lines = ["k\u02b0", "e\u0301", "\u00e9"]
    found = {}
    for form in ("NFC", "NFKC", None):
        text = keras_attn.Text.from_lines(
            lines, "characters", normalization=form
        )
        data = keras_attn.pairs(
            lines, lines, text, text, shuffle=False, buckets=1
        )
        ((source, _), target), *_ = data
        np.testing.assert_array_equal(source, target)
        found[form] = [x.decode() for x in text.strings(source).numpy()]
    assert found == {
        "NFC": ["k\u02b0", "\u00e9", "\u00e9"],
        "NFKC": ["kh", "\u00e9", "\u00e9"],
        None: lines,
    }


@pytest.mark.parametrize("number", [(2, 3), (0, 0)])
def test_lists_that_do_not_match_are_refused(number):
    sources, targets = lines(number[0]), lines(number[1])
    with pytest.raises(
        ValueError, match=f"{number[0]} sources, {number[1]} targets"
    ):
        pairs(sources, targets)


@pytest.mark.full
def test_fit_knows_the_number_of_steps_and_warns_of_nothing(capsys):
    # Any warning is an error in these tests.
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embed = layers.Embedding(TEXT.size, 4, mask_zero=True)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(4), keras_attn.BahdanauAttention(4)
    )(embed(target), embed(source))
    model = keras.Model([source, target], layers.Dense(TEXT.size)(hidden))
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    data = pairs(lines(30), lines(30, seed=1), batch_size=8, buckets=2)
    steps = int(data.cardinality())
    history = model.fit(data, epochs=2, validation_data=data, verbose=2)
    assert f"{steps}/{steps}" in capsys.readouterr().out
    assert len(history.history["loss"]) == 2
    assert np.all(np.isfinite(history.history["val_loss"]))
