"""`pairs()` of streams, batches by tokens, and the share of padding."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.lines import lines
from support.lines import pairs
from support.lines import rows

import keras_attn


def stream(some):
    return tf.data.Dataset.from_tensor_slices(some)


def order_of(data):
    return [target.numpy().tolist() for _, target in data]


@pytest.mark.full
def test_files_are_read_as_lists_are(tmp_path):
    sources, targets = lines(60), lines(60, seed=1)
    for name, some in (("a", sources), ("b", targets)):
        (tmp_path / name).write_text("\n".join(some) + "\n")
    read = [tf.data.TextLineDataset(str(tmp_path / x)) for x in ("a", "b")]
    options = {"batch_size": 7, "shuffle": False}
    found = order_of(pairs(*read, **options))
    assert found == order_of(pairs(sources, targets, **options))


@pytest.mark.full
def test_a_stream_loses_no_pair_and_has_an_order_of_its_own_in_each_epoch():
    sources, targets = lines(50), lines(50, seed=1)
    expected = sorted(zip(sources, targets, strict=True))

    def made(**options):
        return pairs(
            stream(sources), stream(targets), batch_size=8, seed=3, **options
        )

    data = made()
    epochs = [rows(data) for _ in range(2)]
    assert all(sorted(x) == expected for x in epochs)
    assert epochs[0] != epochs[1]
    again = made()
    again.set_epoch(1)
    assert rows(again) == epochs[1]
    # A window of one pair shuffles nothing.
    still = made(shuffle=1, buckets=1)
    assert rows(still) == list(zip(sources, targets, strict=True))


@pytest.mark.full
def test_the_order_of_a_stream_depends_on_no_other_seed():
    some = lines(20)
    orders = []
    for seed in 1, 2:
        keras.utils.set_random_seed(seed)
        data = pairs(stream(some), stream(some), seed=5, buckets=1)
        orders.append([order_of(data), order_of(data)])
    assert orders[0] == orders[1]
    assert orders[0][0] != orders[0][1]


@pytest.mark.full
def test_several_streams_and_subwords_that_are_drawn():
    some = [
        "to be or not to be, that is the question",
        "whether 'tis nobler in the mind to suffer",
        "the slings and arrows of outrageous fortune",
    ] * 5
    text = keras_attn.Text.train(some, 300).sampled(alpha=0.5)
    data = keras_attn.pairs(
        {"one": stream(some), "other": stream(some)},
        stream(some),
        {"one": text, "other": text},
        text,
        batch_size=80,
        buckets=1,
        shuffle=False,
    )
    ((one, _, _), target), *_ = data
    said = [x.decode() for x in text.strings(target).numpy()]
    assert said == some
    assert one.shape[0] == len(some)
    assert order_of(data) != order_of(data)  # drawn anew


@pytest.mark.full
def test_a_stream_that_ends_before_another_is_an_error(monkeypatch):
    streams = stream(["a"] * 5), stream(["a"] * 4)
    with pytest.raises(ValueError, match="^The streams .* ended before anoth"):
        pairs(*streams)
    # Of a long stream the end is seen only when it is read.
    monkeypatch.setattr("keras_attn.training.batches.rows._SAMPLE", 2)
    data = pairs(*streams, shuffle=False)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="ended before another"
    ):
        order_of(data)


def test_what_is_no_stream_of_lines_is_refused():
    for sources, targets in (
        (stream(["a"]), ["a"]),
        (["a"], stream(["a"])),
        (stream(["a"]), stream(["a"]).batch(1)),
        (stream([1]), stream(["a"])),
    ):
        with pytest.raises(ValueError, match="a scalar string. Received"):
            pairs(sources, targets)
    with pytest.raises(ValueError, match="at least one line"):
        pairs(stream(["a"]).take(0), stream(["a"]).take(0))
    with pytest.raises(ValueError, match="`shuffle` must be"):
        pairs(["a"], ["a"], shuffle=0.5)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("streamed", [False, True])
@pytest.mark.parametrize("batch_tokens", [30, 100])
def test_batches_have_at_most_so_many_tokens(streamed, batch_tokens):
    sources, targets = lines(200), lines(200, seed=1)
    given = (sources, targets)
    if streamed:
        given = (stream(sources), stream(targets))
    data = pairs(*given, batch_tokens=batch_tokens)
    sizes = []
    for (source, target_in), target in data:
        for ids in source, target_in, target:
            assert tf.size(ids) <= batch_tokens
        sizes.append(source.shape[0])
    assert sum(sizes) == 200 and max(sizes) >= 2 * batch_tokens // 11
    assert len(set(sizes)) > 3  # short pairs in larger batches
    if not streamed:
        assert len(sizes) == int(data.cardinality())


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("streamed", [False, True])
def test_batches_use_most_of_their_tokens_where_a_few_lines_are_long(streamed):
    lengths = np.array([*range(1, 6)] * 2000 + [*range(10, 140, 3)] * 30)
    np.random.default_rng(0).shuffle(lengths)
    given = ["a" * n for n in lengths], ["b" * n for n in lengths]
    if streamed:
        given = tuple(map(stream, given))
    text = keras_attn.Text("ab", split="characters", max_length=200)
    data = keras_attn.pairs(*given, text, text, batch_tokens=300, seed=1)
    tokens = batches = 0
    for _, target in data:
        tokens += int(tf.math.count_nonzero(target))
        batches += 1
        assert target.shape[0] * target.shape[1] <= 300
    assert tokens / batches > 0.75 * 300  # with padding


def test_a_pair_that_is_too_long_is_a_batch_of_its_own():
    data = pairs(["a" * 9, "a" * 9], ["b", "b"], batch_tokens=4)
    assert [x.shape[0] for _, x in data] == [1, 1]


def test_the_share_of_padding_is_that_of_the_next_epoch():
    data = pairs(lines(40), lines(40, seed=1), batch_size=5, seed=1)
    data.set_epoch(3)
    found = data.padding_share()
    padding = total = 0
    for (source, target_in), target in data:  # the same epoch
        for ids in source, target_in, target:
            padding += np.sum(ids == 0)
            total += ids.numpy().size
    assert found == padding / total > 0
    assert data.next_epoch == 4
    data = pairs(["a", "ab"], ["a", "ab"], buckets=1)
    assert data.padding_share() == 3 / 18  # one in each of three columns
    # Batches of one length have none.
    assert pairs(["ab"] * 9, ["cd"] * 9).padding_share() == 0


@pytest.mark.parametrize("bad", [0, -1, 2.5, True])
def test_numbers_of_tokens_that_are_none_are_refused(bad):
    with pytest.raises(ValueError, match=f"batch_tokens={bad!r}"):
        pairs(["a"], ["a"], batch_tokens=bad)
