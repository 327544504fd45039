"""Models in 16 bits: sound ones decode, and wrong ones are refused.

Rounding changes their results, by more where numbers are large.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops
from support import cheating as cheats
from support import half_models
from support.findings import DROPPED_MASKS
from support.findings import look

import keras_attn
from keras_attn.graph.rounding import Rounding
from keras_attn.incremental.path import Path
from keras_attn.incremental.proof.noises import Noises
from keras_attn.incremental.proof.path_runs import PathRuns

pytestmark = [pytest.mark.full, DROPPED_MASKS]
POLICIES = ["mixed_float16", "mixed_bfloat16"]
UNIT = {"float16": 2.0**-11, "bfloat16": 2.0**-8}


def rounding(dtype):
    return Rounding([layers.Dense(1, dtype=dtype)])


# The tolerance


@pytest.mark.parametrize("dtype", UNIT)
def test_a_few_roundings_of_a_number_are_allowed_and_not_more(dtype):
    numbers = np.linspace(90.0, 110.0, 50)
    for policy in dtype, f"mixed_{dtype}":
        close = rounding(policy).is_close
        assert close(numbers * (1 + 3 * UNIT[dtype]), numbers)
        assert not close(numbers * (1 + 6 * UNIT[dtype]), numbers)
        assert not close(numbers + 20 * UNIT[dtype] * 110, numbers)


def test_the_coarsest_dtype_decides():
    some = [layers.Dense(1, dtype=x) for x in ("float32", "mixed_float16")]
    assert Rounding(some[:1]).half is None
    assert Rounding(some).half == "float16"
    more = layers.Dense(1, dtype="bfloat16")
    assert Rounding([*some, more]).half == "bfloat16"


@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_infinite_numbers_must_be_the_same(dtype):
    numbers = np.array([1.0, np.inf, -np.inf, np.nan])
    close = rounding(dtype).is_close
    assert close(numbers, numbers)
    for i in range(4):
        assert not close(np.where(np.arange(4) == i, 7.0, numbers), numbers)


@pytest.mark.parametrize("dtype", ["float32", *UNIT])
def test_the_disturbance_is_about_as_large_as_rounding(dtype):
    one = ops.ones((100,), dtype)
    wide = np.asarray(ops.cast(rounding(dtype).disturb(one), "float64"))
    largest = np.abs(wide - 1).max()
    assert 0 < largest <= 4 * UNIT.get(dtype, 3e-7)
    ids = ops.convert_to_tensor([1, 2])
    assert rounding(dtype).disturb(ids) is ids


# Sound models


def require_sound(name, policy, times):
    """Nothing is found in a model; it is cut without a warning, and scores."""
    with half_models.policy(policy):
        model = half_models.enlarge(half_models.SOUND[name](), times)
        found, error = look(model)
        translator = keras_attn.Translator(
            model,
            half_models.TEXT,
            half_models.TEXT,
            keras_attn.BeamSearch(3, max_length=24),
            recompute=False,
        )
        scores = translator.score(["abc", "de"], ["ab", "cde"]).scores
    assert not error
    assert found == []
    assert np.isfinite(scores).all()


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("times", [3.0, 9.0])
@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize("name", half_models.SOUND)
def test_a_sound_model_is_checked_decodes_and_scores(name, policy, times):
    require_sound(name, policy, times)


# With these seeds two scores of an attention are nearly equal, and on some
# processors one disturbance does not change their order, but rounding does.
@pytest.mark.parametrize("seed", [0, 1, 4, 12])
def test_nearly_equal_scores_of_attention_may_change_places(seed):
    keras.utils.set_random_seed(seed)
    require_sound("grouped", "mixed_float16", 9.0)


@pytest.mark.parametrize("policy", ["float32", *POLICIES])
def test_further_disturbances_raise_the_tolerance_in_16_bits_alone(policy):
    with half_models.policy(policy):
        model = half_models.SOUND["grouped"]()
        path = Path(model.inputs, model.outputs, [False, True])
        arrays = np.ones((2, 5), "int32"), np.ones((2, 4, 3), "int32")
        runs = PathRuns(path, arrays[:1], arrays[1:])
        number = len(path.tensors) - 1
        noises = np.array([*Noises(runs, path.rounding).of_whole(number)])
        before = runs.outside()
        first, last = (
            runs.noises(path.rounding, seed, before)[1][number]
            for seed in (0, len(noises) - 1)
        )
    assert len(noises) == (1 if policy == "float32" else 8)
    np.testing.assert_array_equal(noises[0], first)
    assert (noises[-1] >= np.maximum(first, last)).all()
    assert len(noises) == 1 or (noises[-1] > first).any()


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_transformer_of_keras_is_exported_with_all_signatures(
    policy, tmp_path
):
    with half_models.policy(policy):
        translator = keras_attn.Translator(
            half_models.transformer(),
            half_models.TEXT,
            half_models.TEXT,
            keras_attn.GreedySearch(max_length=8),
        )
        translator.export(tmp_path, signatures="all")
    loaded = tf.saved_model.load(str(tmp_path / "1"))
    served = loaded.signatures["serving_default"](text=tf.constant(["abc"]))
    (expected,) = translator(["abc"]).text
    assert served["text"].numpy()[0].decode() == expected


# Wrong models


def refused(policy, cheat):
    with half_models.policy(policy):
        layer = cheats.Cheat(cheat)
        cheats.require_refused(
            lambda: cheats.with_target_path(lambda x, _: layer(x)), "culprit"
        )


@pytest.mark.parametrize("policy", POLICIES)
def test_a_mask_that_gets_lost_is_found_in_16_bits(policy):
    with half_models.policy(policy):
        source, target = half_models.inputs()
        memory, x = half_models.embed(source), half_models.embed(target)
        for _ in range(2):  # the first attention takes the mask off `memory`
            x = x + layers.MultiHeadAttention(2, 8)(x, memory)
        model = half_models.model_of([source, target], x)
        found, error = look(half_models.enlarge(model))
    assert not error
    assert [kind for kind, *_ in found] == ["mask"]


# These change numbers by a few hundredths, less than bfloat16 shows.
TINY = ("late positions grow", "the number of the position")


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize(
    "name, policy",
    [
        (name, policy)
        for name in cheats.CHEATS
        for policy in POLICIES
        if policy == "mixed_float16" or name not in TINY
    ],
)
def test_a_cheat_is_found_in_16_bits(name, policy):
    refused(policy, cheats.CHEATS[name])


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "policy, share", [("mixed_float16", 0.03), ("mixed_bfloat16", 0.1)]
)
@pytest.mark.parametrize("name", ["sorted", "seven ahead", "rolled"])
def test_a_small_cheat_is_found_as_far_as_a_dtype_shows_it(name, policy, share):
    refused(policy, lambda x: x + share * cheats.CHEATS[name](x))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("policy", POLICIES)
def test_a_refusal_in_16_bits_names_them(policy):
    with half_models.policy(policy):
        cheat = cheats.Cheat(cheats.CHEATS["rolled"])
        cheats.require_refused(
            lambda: cheats.with_target_path(lambda x, _: cheat(x)),
            f"computes in {policy.removeprefix('mixed_')}",
        )


def test_numbers_beyond_float16_are_named():
    with half_models.policy("mixed_float16"):
        model = half_models.enlarge(half_models.transformer(), 1e4)
        with pytest.raises(ValueError, match="65,504"):
            keras_attn.Translator(model, half_models.TEXT, half_models.TEXT)
        with pytest.raises(ValueError, match="finite: .* 65,504"):
            keras_attn.check(model)
