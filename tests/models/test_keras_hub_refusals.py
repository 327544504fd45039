"""Findings of an attack on `Translator.from_keras_hub` and its parts."""

import dataclasses

import keras
import keras_hub
import numpy as np
import pytest
from support import hub_families
from support import hub_models

import keras_attn
from keras_attn.models.keras_hub import Waveform

pytestmark = [
    pytest.mark.full,
    # KerasHub's T5 makes it, of masks that it derives by itself.
    pytest.mark.filterwarnings("ignore:.*T5MultiHeadAttention"),
    pytest.mark.filterwarnings("ignore:You are using a softmax over axis"),
]

hub = keras_hub.models
GREEDY = keras_attn.GreedySearch(max_length=6)
SPECIAL = keras_attn.SpecialTokens(pad=0, start=(1,), end=2, unknown=3)
PIECES = "[PAD] [UNK] [CLS] [SEP] [MASK] a b ##b @@b 中 文 ##文 été ete".split()


def translator_of(model, **options):
    return keras_attn.Translator.from_keras_hub(model, GREEDY, **options)


@pytest.fixture
def precision():
    """Sets a policy for the test only."""
    before = keras.config.dtype_policy()
    yield keras.config.set_dtype_policy
    keras.config.set_dtype_policy(before)


# A subclass of a task


class Negated(hub.BartSeq2SeqLM):
    """Its logits depend on an argument of its own that has a default."""

    def __init__(self, backbone, preprocessor=None, sign=1.0, **kwargs):
        hidden = backbone(backbone.input)["decoder_sequence_output"]
        logits = backbone.token_embedding(hidden, reverse=True) * sign
        hub.Seq2SeqLM.__init__(
            self, inputs=backbone.input, outputs=logits, **kwargs
        )
        self.backbone, self.preprocessor = backbone, preprocessor
        self.sign = sign


def test_a_subclass_of_a_task_keeps_its_own_arguments():
    family = hub_families.make("BART")
    task = Negated(family.model.backbone, family.model.preprocessor, sign=-1.0)
    made = translator_of(task)
    ids = np.full((1, 3), 5, "int32")
    expected = task({name: ids for name in task.input})
    expected = np.asarray(expected)[..., : made.target_text.size]
    np.testing.assert_allclose(made.model([ids, ids]), expected, atol=1e-4)


# A backbone of a user's own


class WithoutTied(hub.Backbone):
    """A backbone without `token_embedding`."""

    def __init__(self, **kwargs):
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")
        embeds = [keras.layers.Embedding(9, 4) for _ in range(2)]
        hidden = keras_attn.ScaledDotAttention()(
            embeds[0](target), embeds[1](source)
        )
        super().__init__(
            inputs={"encoder_token_ids": source, "decoder_token_ids": target},
            outputs={"decoder_sequence_output": hidden},
            **kwargs,
        )


def test_a_backbone_without_a_token_embedding_is_refused():
    with pytest.raises(ValueError, match="needs a `token_embedding`"):
        translator_of(WithoutTied(), preprocessor=SPECIAL)


class WithOneOutput(hub.Backbone):
    """A backbone whose output is a tensor."""

    def __init__(self, **kwargs):
        source = keras.Input((None,), dtype="int32", name="encoder_token_ids")
        target = keras.Input((None,), dtype="int32", name="decoder_token_ids")
        embed = keras_hub.layers.ReversibleEmbedding(9, 4)
        hidden = keras_attn.ScaledDotAttention()(embed(target), embed(source))
        super().__init__(
            inputs={"encoder_token_ids": source, "decoder_token_ids": target},
            outputs=hidden,
            **kwargs,
        )
        self.token_embedding = embed


def test_a_backbone_of_one_output_decodes_or_is_refused_by_its_name():
    try:
        translator_of(WithOneOutput(), preprocessor=SPECIAL)
    except ValueError as error:
        assert "WithOneOutput" in str(error), error


# Prompts


def test_an_ordinary_token_in_a_prompt_stays_readable_in_a_source():
    # It is refused, or "7" in a source is still 7. It becomes unknown, and no
    # output has it.
    backbone = hub_models.bart()
    try:
        made = translator_of(backbone, preprocessor=SPECIAL, prompt=["7"])
    except ValueError as error:
        assert "prompt" in str(error), error
    else:
        ids = made.source_text.source_ids(["4 7 5"]).numpy().tolist()
        assert ids == [[4, 7, 5, 2]]
        assert 7 not in made.target_text.special.never_written


def test_an_ordinary_piece_in_a_prompt_is_named_in_the_error():
    family = hub_families.make("T5")
    try:
        made = translator_of(family.model, prompt=["▁be"])
    except ValueError as error:
        assert "prompt" in str(error), error
    else:
        plain = translator_of(family.model)
        lines = ["to be"]
        found, expected = (
            x.source_text.source_ids(lines).numpy().tolist()
            for x in (made, plain)
        )
        assert found == expected


def sentence_piece(special):
    content = hub_families.sentence_piece(
        pad_id=0, bos_id=-1, eos_id=1, unk_id=2, control_symbols=["<fr>"]
    )
    return keras_attn.SentencePiece(content, special=special)


@pytest.mark.parametrize("kind", ["SentencePiece", "WordPiece"])
def test_a_prefix_has_tokens_of_prompt_with_any_splitter(kind):
    # Either the splitter reads them, or it refuses `prompt`.
    special = keras_attn.SpecialTokens(0, (0,), 1, 2, prompt_tokens=(3,))
    try:
        if kind == "SentencePiece":
            splitter = sentence_piece(special)
        else:
            pieces = ["[PAD]", "[SEP]", "[UNK]", "<fr>", "a"]
            splitter = keras_attn.WordPiece(pieces, special)
        text = keras_attn.Text(split=splitter)
    except ValueError as error:
        assert "prompt_tokens" in str(error), error
    else:
        ids = text.ids(["<fr>"], end=False).numpy()[0].tolist()
        assert ids == [3]


def test_a_byte_in_prompt_is_refused_or_read():
    tokenizer = hub_families.make("BART").model.preprocessor.tokenizer
    ids = dict(tokenizer.vocabulary)
    special = keras_attn.SpecialTokens(
        1, (2, 0), 2, 3, prompt_tokens=(ids["Ã"],)
    )
    try:
        keras_attn.BytePair(ids, tokenizer.merges, special)
    except ValueError as error:
        assert not isinstance(error, UnicodeDecodeError), error
        assert "prompt" in str(error), error


def test_a_prompt_beyond_the_vocabulary_is_refused_by_a_text():
    special = keras_attn.SpecialTokens(0, (1,), 2, 3, prompt_tokens=(44,))
    with pytest.raises(ValueError, match="44"):
        keras_attn.Text(split=keras_attn.IntegerIds(20, special))


def test_a_list_in_a_prompt_is_refused_by_name():
    with pytest.raises(ValueError, match="`prompt` must be"):
        translator_of(
            hub_models.bart(), preprocessor=SPECIAL, prompt=[["<|en|>"]]
        )


# Tokenizers


@pytest.mark.parametrize(
    "options",
    [
        {"strip_accents": True},
        {"split_on_cjk": False},
        {"suffix_indicator": "@@"},
        {"split": False},
        {"special_tokens_in_strings": True},
    ],
    ids=str,
)
def test_options_of_a_word_piece_tokenizer_are_followed_or_refused(options):
    tokenizer = hub.BertTokenizer(PIECES, **options)
    backbone = hub_models.t5(vocabulary_size=len(PIECES))
    task = hub.T5Seq2SeqLM(backbone, preprocessor=None)
    (option,) = options
    try:
        made = translator_of(task, preprocessor=tokenizer)
    except ValueError as error:
        assert option in str(error), error
    else:
        lines = ["ab", "中文", "été", "[MASK]"]
        expected = [np.array(tokenizer(x)).tolist() for x in lines]
        assert made.source_text.uncut_ids(lines).to_list() == expected


@pytest.mark.parametrize("option", ["add_bos", "add_eos"])
def test_a_tokenizer_that_adds_tokens_to_each_text_is_refused(option):
    content = hub_families.sentence_piece(
        pad_id=0, bos_id=3, eos_id=1, unk_id=2
    )
    tokenizer = hub.T5Tokenizer(content, **{option: True})
    with pytest.raises(ValueError, match=f"with .'{option}': True"):
        translator_of(hub_models.t5(), preprocessor=tokenizer)


# Sound


@pytest.mark.parametrize("name", ["Whisper", "Moonshine"])
def test_samples_that_are_no_sound_are_refused(name):
    made = hub_families.MAKE[name]().translator(GREEDY)
    sound = np.ones((2, 1_700), "float32")
    with pytest.raises(ValueError, match="Divide samples of 16 bits"):
        made(sound.astype("int16"))
    sound[1, 5] = np.nan
    with pytest.raises(ValueError, match="infinite ones in row 1"):
        made(sound)


def test_a_sound_that_is_cut_is_reported():
    # As a text is that has more tokens than its `Text` takes.
    family = hub_families.make("Whisper")
    made = family.translator(GREEDY)  # reads a second, 2,000 samples
    random = np.random.default_rng(0)
    long = random.normal(size=(1, 9_000)).astype("float32")
    (found,) = made(long)
    assert found.text == made(long[:, :2_000])[0].text  # so it was cut
    assert found.truncated


def test_a_converter_of_another_family_is_refused():
    family = hub_families.make("Moonshine")
    with pytest.raises(ValueError, match="WhisperAudioConverter"):
        translator_of(
            family.model, audio_converter=hub_families.whisper_converter()
        )


@pytest.mark.parametrize(
    "options", [{"num_mels": 6}, {"max_audio_length": 2}], ids=str
)
def test_a_converter_that_does_not_fit_the_backbone_is_named(options):
    family = hub_families.make("Whisper")
    usual = {
        "num_mels": 5,
        "num_fft_bins": 100,
        "stride": 40,
        "sampling_rate": 2000,
        "max_audio_length": 1,
    }
    converter = keras_hub.layers.WhisperAudioConverter(**usual | options)
    given = family.options | {"audio_converter": converter}
    with pytest.raises(ValueError, match="audio_converter"):
        translator_of(family.model, **given)


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_sound_is_normalized_alike_in_mixed_precision(policy, precision):
    sound = np.random.default_rng(0).normal(0.05, 0.01, (1, 160_000))
    sound = sound.astype("float32")
    expected, _ = Waveform(normalize=True)(sound)
    precision(policy)
    found, _ = Waveform(normalize=True)(sound)
    found, expected = (
        keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))
        for x in (found, expected)
    )
    np.testing.assert_allclose(found, expected, atol=0.05)


def test_a_quiet_sound_is_no_padding_in_mixed_precision(precision):
    precision("mixed_float16")
    sound = np.full((1, 4_000), 1e-8, "float32")  # float16 has no such number
    _, real = Waveform()(sound)
    assert keras.ops.convert_to_numpy(real).all()


@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_whisper_is_decoded_in_mixed_precision(policy, precision):
    precision(policy)
    family = hub_families.MAKE["Whisper"]()
    made = family.translator(GREEDY)
    assert len(made(family.sources).text) == 4


@pytest.mark.parametrize("policy", ["mixed_float16", "mixed_bfloat16"])
def test_bart_with_loud_weights_decodes_and_scores_in_16_bits(
    policy, precision
):
    precision(policy)
    family = hub_families.make("BART")
    made = family.translator(GREEDY)
    scores = made.score(family.sources, made(family.sources).text).scores
    assert np.isfinite(scores).all()


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("policy", ["bfloat16", "mixed_bfloat16"])
@pytest.mark.parametrize("name", ["T5", "T5Gemma", "T5Gemma 2", "EdRec"])
def test_others_with_loud_weights_decode_in_bfloat16(name, policy, precision):
    precision(policy)
    family = hub_families.make(name)
    assert len(family.translator(GREEDY)(family.sources).text) == 4


# KerasHub's T5 writes a number that float16 has not, and NumPy warns.
@pytest.mark.filterwarnings("ignore:overflow encountered in cast")
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["T5", "T5Gemma", "T5Gemma 2"])
def test_the_overflow_of_a_family_in_float16_names_the_dtype(name, precision):
    precision("mixed_float16")
    with pytest.raises(ValueError, match="computes in float16.* bfloat16"):
        hub_families.make(name).translator(GREEDY)


def test_a_family_that_fails_in_mixed_precision_is_sent_to_float32(precision):
    precision("mixed_bfloat16")
    with pytest.raises(ValueError, match="model in bfloat16, .* float32"):
        hub_families.make("Moonshine").translator(GREEDY)


# Arguments


def test_the_name_of_a_preset_is_answered_by_how_to_load_it():
    with pytest.raises(ValueError, match=r"from_preset\('bart_base_en'\)"):
        translator_of("bart_base_en")


def test_a_language_model_is_sent_nowhere_but_to_its_own_generate():
    backbone = hub.GPT2Backbone(20, 1, 2, 8, 12, max_sequence_length=16)
    task = hub.GPT2CausalLM(backbone, preprocessor=None)
    for model in backbone, task:
        with pytest.raises(ValueError, match="own `generate`") as refused:
            translator_of(model, preprocessor=SPECIAL)
        assert "Translator(model" not in str(refused.value)
        text = keras_attn.Text("abc", split="characters")
        with pytest.raises(ValueError, match="own `generate`"):
            keras_attn.Translator(model, text, text)


def test_a_text_given_beside_that_of_the_model_is_refused_in_words():
    with pytest.raises(ValueError, match="source_text"):
        translator_of(hub_models.bart(), preprocessor=SPECIAL, source_text=None)


def test_a_preprocessor_of_a_causal_model_is_refused_in_words():
    ids = {"a": 0, "b": 1, "ab": 2, "<|endoftext|>": 3}
    tokenizer = hub.GPT2Tokenizer(ids, ["a b"])
    preprocessor = hub.GPT2CausalLMPreprocessor(tokenizer)
    task = hub.BartSeq2SeqLM(hub_models.bart(), preprocessor=None)
    with pytest.raises(ValueError, match="GPT2CausalLMPreprocessor"):
        translator_of(task, preprocessor=preprocessor)


def test_other_end_tokens_also_end_a_source():
    special = keras_attn.SpecialTokens(pad=0, start=(1,), end=2, unknown=3)
    assert dataclasses.replace(special, end=5).ends_source == (5,)
