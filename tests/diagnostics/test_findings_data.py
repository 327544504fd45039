"""`check()` takes data in any form, and finds ids and shapes that are wrong.

These tests run on every backend that Keras runs on.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support.cuts import SOURCES
from support.cuts import TARGETS
from support.cuts import decoder
from support.cuts import embedded
from support.cuts import inputs
from support.findings import DROPPED_MASKS
from support.findings import IDS
from support.findings import NAMED
from support.findings import SOURCE_IDS
from support.findings import arrays
from support.findings import assert_doubtful
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import attend
from support.findings import changed
from support.findings import look
from support.findings import with_encoder

import keras_attn
from keras_attn.diagnostics.first_batches import first_batches

pytestmark = DROPPED_MASKS


def good():
    source, target = inputs()
    embed = layers.Embedding(SOURCES, 6, mask_zero=True, name="of_source")
    memory = embed(source)
    embed = layers.Embedding(TARGETS, 6, mask_zero=True, name="of_target")
    hidden = attend(embed(target), memory)
    logits = layers.Dense(TARGETS, name="last")(hidden)
    model = keras.Model([source, target], logits)
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    return model


class Pages(keras.utils.PyDataset):
    def __len__(self):
        return 2

    def __getitem__(self, index):
        return arrays()


GOOD_DATA = {
    "arrays": arrays(),
    "arrays and weights": (*arrays(), np.ones(3)),
    "arrays and no weights": (*arrays(), None),
    "lists": [list(arrays()[0]), arrays()[1]],
    "by name": (
        {"target": IDS[:, :-1], "source": SOURCE_IDS, "more": IDS},
        IDS[:, 1:],
    ),
    "a list of batches": [arrays(), arrays()],
    "weights of tokens": [(*arrays(), np.ones((3, 5)))] * 2,
    "weights in one column": (*arrays(), np.ones((3, 1))),
    "targets of one column": arrays(target_out=IDS[:, 1:, None]),
    "ids of one column": arrays(SOURCE_IDS[..., None]),
}


@pytest.mark.parametrize("name", GOOD_DATA)
def test_good_data_of_any_form_has_no_finding(name):
    model = good()
    if "column" in name:
        loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
        model.compile("adam", loss=loss, jit_compile=False)
    assert_good(model, GOOD_DATA[name])


@pytest.mark.parametrize("form", [list, tuple])
def test_arrays_for_several_outputs_are_no_list_of_batches(form):
    inputs = good().inputs
    given, target = arrays()
    more = np.zeros((3, 5, 3))
    named = {"source": given[0], "target": given[1]}
    one, two = ["last"], ["last", "more"]
    for x in (given, list(given), named):
        for data, outputs in (
            ((x, form([target])), one),
            ((x, form([target, more])), two),
            ((x, form([target, more]), form([np.ones(3), None])), two),
            ([(x, target)], one),
            ([(x, form([target, more]))], two),
        ):
            (batch,) = first_batches(data, inputs, outputs)
            np.testing.assert_array_equal(batch.inputs[1], given[1])
            np.testing.assert_array_equal(batch.target, target)
        assert len(first_batches([(x, target)] * 2, inputs, one)) == 2
        batches = [(x, form([target, more]))] * 2
        assert len(first_batches(batches, inputs, two)) == 2


def test_arrays_for_several_outputs_are_checked():
    model = good()
    outputs = [*model.outputs, layers.Dense(3)(model.outputs[0])]
    model = keras.Model(model.inputs, outputs)
    loss = [keras_attn.SequenceCrossentropy(), "mse"]
    model.compile("adam", loss=loss, jit_compile=False)
    (source, given), target = arrays()
    more = np.zeros((3, 5, 3))
    assert_good(model, ((source, given), [target, more]))
    itself = (source, given), [given, more]
    assert_wrong(model, "shift", "is 'target' itself", data=itself)


def test_a_py_dataset_is_looked_at():
    assert_good(good(), Pages())


WRONG_DATA = {
    "target_in itself": (
        arrays(target_out=IDS[:, :-1]),
        "shift",
        "is 'target' itself",
    ),
    "moved the wrong way": (
        arrays(target_in=IDS[:, 1:], target_out=IDS[:, :-1]),
        "shift",
        "the wrong way",
    ),
    "a source's id too large": (
        arrays(source=changed(SOURCE_IDS, (1, 0), 7)),
        "ids",
        "'of_source' knows the ids 0 to 6 (`input_dim=7`), but 'source' has "
        "the id 7",
    ),
    "a target's id too large": (
        arrays(target_in=changed(IDS[:, :-1], (1, 1), 12)),
        "ids",
        "'of_target' knows the ids 0 to 8",
    ),
    "a negative id": (
        arrays(source=changed(SOURCE_IDS, (1, 0), -1)),
        "ids",
        "'source' has the id -1",
    ),
    "an id without a logit": (
        arrays(target_out=changed(IDS[:, 1:], (0, 0), 9)),
        "vocabulary",
        "'last' returns logits for the ids 0 to 8, but 'target_out' has the "
        "id 9",
    ),
    "targets longer than inputs": (
        arrays(target_out=IDS),
        "length",
        "target_out of shape (3, 6)",
    ),
    "targets shorter than inputs": (
        arrays(target_in=IDS),
        "length",
        "'target' of shape (3, 6)",
    ),
    "one-hot targets": (
        arrays(target_out=np.eye(TARGETS)[IDS[:, 1:]]),
        "one-hot",
        "`SequenceCrossentropy`, takes ids",
    ),
    "one-hot targets of another size": (
        arrays(target_out=np.eye(TARGETS + 1)[IDS[:, 1:]]),
        "one-hot",
        "over the 9 ids of the logits of 'last'",
    ),
    "one-hot inputs": (
        arrays(target_in=np.eye(TARGETS)[IDS[:, :-1]]),
        "inputs",
        "It may be one-hot: `array.argmax(-1)`",
    ),
    "broken ids": (
        arrays(source=SOURCE_IDS + 0.5),
        "dtype",
        "values that are not whole numbers",
    ),
    "the largest id of its dtype": (
        arrays(
            target_in=IDS[:, :-1].astype("uint8"),
            target_out=changed(IDS[:, 1:].astype("uint8"), (0, 0), 255),
        ),
        "vocabulary",
        "needs at least 256 ids",
    ),
    "targets of strings": (
        arrays(target_out=IDS[:, 1:].astype(str)),
        "dtype",
        "'target_out' must be integer ids",
    ),
    "targets of four axes": (
        [arrays(target_out=np.zeros((3, 5, TARGETS, 1)))],
        "one-hot",
        "must be ids (batch, target)",
    ),
    "no target_out": ([arrays()[0]], "inputs", "the data has 1"),
    "one input": ((SOURCE_IDS, IDS[:, 1:]), "inputs", "has 2 inputs"),
    "three in a row": (
        (SOURCE_IDS, IDS[:, :-1], IDS[:, 1:]),
        "inputs",
        "takes the third of three elements for sample weights",
    ),
    "a row": (
        [((SOURCE_IDS[0], IDS[0, :-1]), IDS[0, 1:])],
        "inputs",
        "Batch the data",
    ),
    "other rows": (
        [arrays(source=SOURCE_IDS[:2])],
        "inputs",
        "of a batch must have the same number of rows",
    ),
    "weights of another shape": (
        (*arrays(), np.ones((3, 4))),
        "weights",
        "of shape (3,) or (3, 5). Received: (3, 4)",
    ),
    "arrays of other rows": (
        arrays(source=SOURCE_IDS[:2]),
        "inputs",
        "All arrays must have the same number of rows",
    ),
    "no batch": ([], "inputs", "has no batch"),
    "a number": (7, "inputs", "must have a form that `model.fit` takes"),
}


@pytest.mark.sample_cases(7)
@pytest.mark.parametrize("name", WRONG_DATA)
def test_wrong_data_is_refused(name):
    data, *said = WRONG_DATA[name]
    assert_wrong(good(), *said, data=data)


DOUBTFUL_DATA = {
    "padding before": (
        arrays(source=SOURCE_IDS[:, ::-1]),
        ("padding", "of_source"),
        "'source' has 0, which is padding, before tokens in 2 of 3 rows",
    ),
    "padding between": (
        arrays(source=changed(SOURCE_IDS, (0, 2), 0)),
        ("padding", "of_source"),
        "in 1 of 3 rows",
    ),
    "a start of id 0": (
        arrays(target_in=changed(IDS[:, :-1], (slice(None), 0), 0)),
        ("padding", "of_target"),
        "also not to the start token",
    ),
    "ids as floats": (
        arrays(source=SOURCE_IDS.astype("float32")),
        ("dtype", "of_source"),
        "Pass `array.astype('int32')`",
    ),
    "nothing but padding": (
        [arrays(), arrays(target_out=0 * IDS[:, 1:])],
        ("empty", None),
        "nothing to learn",
    ),
    "other targets": (
        arrays(target_out=np.where(IDS[:, 1:], 9 - IDS[:, 1:], 0)),
        ("shift", None),
        "only 0% of its tokens",
    ),
}


@pytest.mark.parametrize("name", DOUBTFUL_DATA)
def test_doubtful_data_is_warned_of(name):
    data, finding, said = DOUBTFUL_DATA[name]
    assert_doubtful(good(), *finding, said, data=data)


def test_targets_that_go_on_where_inputs_end_are_warned_of():
    target_in = np.where(IDS[:, 1:] == 0, 0, IDS[:, :-1])
    assert_good(good(), arrays(target_in=target_in))
    assert_doubtful(
        good(),
        "length",
        None,
        "in 1 of 3 rows",
        data=arrays(target_in=changed(target_in, (0, 4), 0)),
    )


def test_noise_on_the_inputs_is_no_wrong_shift():
    long = np.tile(np.arange(1, 9), (4, 3))
    noisy = changed(long[:, :-1], (slice(None), slice(1, None, 3)), 8)
    source = np.tile(SOURCE_IDS[:1], (4, 1))
    assert_good(good(), arrays(source, noisy, long[:, 1:]))


def test_batches_without_positions_are_looked_at():
    found, error = look(good(), [arrays(source=SOURCE_IDS[:, :0])])
    assert not error and not found
    nothing = arrays(target_in=IDS[:, :0], target_out=IDS[:, :0])
    found, _ = look(good(), [nothing])
    assert any("nothing to learn" in str(x) for x in found)


def test_data_of_a_pointer_network_are_looked_at():
    source, target = inputs()
    memory, x = embedded(source, target)
    logits = ops.einsum("btd,bsd->bts", x, memory)
    model = keras.Model([source, target], logits)
    places = np.minimum(IDS[:, 1:], 4)
    found, error = look(model, arrays(target_out=places))
    assert not error
    one_hot = np.eye(5, dtype="float32")[places]
    found, error = look(model, arrays(target_out=one_hot))
    assert not error


def test_ids_that_a_tied_embedding_does_not_know_are_refused():
    source, target = inputs()
    _, x = embedded(target, target)
    embed = keras_attn.TiedEmbedding(SOURCES, 6, mask_zero=True, **NAMED)
    hidden = attend(x, embed(source))
    model = keras.Model([source, target], layers.Dense(TARGETS)(hidden))
    assert_good(model, arrays())
    strange = arrays(source=changed(SOURCE_IDS, (0, 0), 99))
    assert_wrong(model, "ids", "'culprit' knows the ids 0 to 6", data=strange)
    assert_doubtful(
        model,
        "padding",
        "culprit",
        "before tokens",
        data=arrays(source=SOURCE_IDS[:, ::-1]),
    )


class Folding(layers.Embedding):
    """Knows all ids: large ones share the rows of small ones."""

    def call(self, ids):
        return super().call(ids % self.input_dim)


def test_a_table_that_folds_large_ids_has_no_finding():
    source, target = inputs()
    _, x = embedded(target, target)
    memory = Folding(3, 6, mask_zero=True)(source)
    logits = layers.Dense(TARGETS)(attend(x, memory))
    assert_good(keras.Model([source, target], logits), arrays())


def test_numbers_of_one_column_may_lack_their_last_axis():
    source, target = inputs()
    number = keras.Input((1,), name="number")
    memory, x = embedded(source, target)
    logits = layers.Dense(TARGETS)(attend(x * number[..., None], memory))
    model = keras.Model([source, number, target], logits)
    (source, target_in), target_out = arrays()
    for numbers in np.ones(3), np.ones((3, 1)):
        assert_good(model, ((source, numbers, target_in), target_out))


class Mixed:
    """An array of bfloat16, as of a dataset of TensorFlow."""

    def __init__(self, x):
        self._x = ops.cast(x, "bfloat16")
        self.shape = tuple(x.shape)

    def __array__(self, dtype=None, copy=None):
        ml_dtypes = pytest.importorskip("ml_dtypes")
        return np.asarray(
            ops.convert_to_numpy(ops.cast(self._x, "float32"))
        ).astype(ml_dtypes.bfloat16)


def test_features_in_bfloat16_are_looked_at():
    model = with_encoder(lambda x: layers.Masking()(x), ids=False)
    features = np.ones((3, 4, 6), "float32")
    assert_good(model, [arrays(Mixed(features))])
    features[1, 2, 3] = np.nan
    data = [arrays(Mixed(features))]
    assert_wrong(model, "finite", "'source' holds NaN", data=data)
    if keras.backend.backend() == "torch":
        features = ops.cast(np.ones((3, 4, 6)), "bfloat16")
        assert_good(model, [arrays(features)])


def test_lines_of_text_may_be_an_input():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("strings are TensorFlow's")
    target = inputs()[1]
    source = keras.Input((), dtype="string", name="line")
    ids = layers.TextVectorization(vocabulary=["one", "two"])(source)
    memory, x = embedded(ids, target)
    model = keras.Model(
        [source, target], layers.Dense(TARGETS)(attend(x, memory))
    )
    loss = keras_attn.SequenceCrossentropy()
    model.compile("adam", loss=loss, jit_compile=False)
    lines = ["one two three", "two", ""]
    for form in np.array(lines), np.array(lines, object), np.bytes_(lines):
        assert_good(model, arrays(form))
    assert_good(model, arrays(np.array(lines)[:, None]))
    numbers = np.array([1, None, 2], object)
    said = "'line' must be an array of"
    assert_wrong(model, "inputs", said, data=arrays(numbers))


def test_the_loss_is_of_as_many_rows_as_in_fit():
    rows = []

    def loss(y, logits):
        rows.append(len(y))
        return keras_attn.SequenceCrossentropy()(y, logits)

    model = good()
    model.compile("adam", loss=loss, jit_compile=False)
    many = keras.tree.map_structure(lambda x: np.tile(x, (100, 1)), arrays())
    assert_good(model, many)
    assert max(rows) == 32
    late = changed(SOURCE_IDS, (0, 0), 99)
    late = np.concatenate([np.tile(SOURCE_IDS, (99, 1)), late])
    (_, target_in), target_out = many
    data = (late, target_in), target_out
    assert_wrong(model, "ids", "has the id 99", data=data)


def test_whole_arrays_for_batches_of_a_fixed_size_are_looked_at():
    source = keras.Input(batch_shape=(3, None), dtype="int32", name="source")
    target = keras.Input(batch_shape=(3, None), dtype="int32", name="target")
    memory, x = embedded(source, target)
    logits = layers.Dense(TARGETS)(attend(x, memory))
    model = keras.Model([source, target], logits)
    for rows in 27, 8:  # what is left over is no batch
        many = keras.tree.map_structure(
            lambda x, n=rows: np.tile(x, (9, 1))[:n], arrays()
        )
        assert_good(model, many)


def test_only_four_batches_are_looked_at():
    def batches():
        for number in range(100):
            seen.append(number)
            yield arrays()

    class Stored:
        def __iter__(self):
            return batches()

    seen = []
    assert_good(good(), Stored())
    assert len(seen) == 4


def test_a_generator_is_refused_and_gives_all_its_batches_to_fit():
    generator = (arrays() for _ in range(3))
    assert_wrong(good(), "inputs", "must not be a generator", data=generator)
    assert len(list(generator)) == 3


def test_features_that_are_not_finite_are_refused():
    model = with_encoder(lambda x: layers.Masking()(x), ids=False)
    features = np.ones((3, 4, 6), "float32")
    assert_good(model, arrays(features))
    features[1, 2, 3] = np.nan
    assert_wrong(model, "finite", "'source' holds NaN", data=arrays(features))


def test_a_batch_that_the_model_fails_on_is_refused():
    model = with_encoder(keras_attn.PositionEmbedding(6, **NAMED))
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    assert_good(model, arrays())
    long = np.tile(SOURCE_IDS, (1, 2))
    long[long == 0] = 3
    said = "'culprit' (PositionEmbedding) fails on the first batch"
    assert_wrong(
        model, "run", said, "vectors for 6 positions", data=arrays(long)
    )


@pytest.mark.full
def test_a_dataset_of_pairs_is_looked_at():
    pytest.importorskip("tensorflow_text")
    text = keras_attn.Text("abcde", split="characters")
    words = ["ab", "ccc", "dead", "bed", "e"] * 20
    data = keras_attn.pairs(words, words, text, text, batch_size=8)
    source, target = inputs()
    embed = layers.Embedding(text.size, 6, mask_zero=True)
    hidden = decoder()(embed(target), embed(source))
    model = keras.Model([source, target], layers.Dense(text.size)(hidden))
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    assert_good(model, data)
    assert_good(model, data.map(lambda x, y: (x, y, y != 0)).repeat())
    rows = data.unbatch()
    assert_wrong(model, "inputs", "Batch the data", data=rows)
    itself = data.map(lambda x, y: (x, x[1]))
    assert_wrong(model, "shift", "is 'target' itself", data=itself)
