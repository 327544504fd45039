"""`check()` finds no mistake in the good models of other tests.

These tests run on every backend that Keras runs on.
"""

import keras
import pytest
from support import cuttable
from support import steppable
from support.cuts import with_path
from support.findings import DROPPED_MASKS
from support.findings import assert_good
from support.findings import assert_wrong
from support.findings import look
from support.mechanisms import nth

pytestmark = DROPPED_MASKS


def models():
    found = dict(cuttable.MODELS)
    for name, path in steppable.PATHS.items():
        found[f"path {name}"] = lambda path=path: with_path(path)
    encoded = steppable.encoded_by
    frames = steppable.of_frames
    image = steppable.of_an_image
    tokens = steppable.of_tokens
    found["frames"] = lambda: encoded(frames, None, 3)
    found["image"] = lambda: encoded(image, 6, 4, 1)
    found["tokens"] = lambda: encoded(tokens, None, dtype="int32")
    return found


MODELS = models()

# Padding does change the results of these models.
MIND_PADDING = {
    # Frames without `Masking`.
    "memory_straight_from_the_input": "attention_decoder",
    "frames": "conv1d",
    # A convolution sees the padding beside the last token.
    "convolutional_encoder": "conv1d",
    # Keras's attention takes the mask off the memory that both blocks read.
    "path transformer": "multi_head_attention",
    # The mask that is passed as an argument is true everywhere.
    "path masks_given": "multi_head_attention",
}


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("name", nth(3, MODELS))
def test_the_models_that_are_decoded_have_no_false_findings(name):
    model = MODELS[name]()
    if name == "layers_between" and keras.backend.backend() == "tensorflow":
        # In a graph its `TimeDistributed` returns one position: a Keras bug.
        assert_wrong(model, "graph", "'time_distributed' (TimeDistributed)")
    elif name in MIND_PADDING:
        found, error = look(model)
        assert not error
        ((kind, layer, _),) = found
        assert kind == "mask" and layer.startswith(MIND_PADDING[name])
    else:
        assert_good(model)


@pytest.mark.sample_cases(1)
@pytest.mark.skipif(
    keras.backend.backend() != "tensorflow", reason="They are translators"
)
@pytest.mark.parametrize(
    "name", ["feeding", "stack", "words", "transformer", "spectra", "images"]
)
def test_trained_models_have_no_false_findings(name, toys):
    assert_good(toys[name].model)
