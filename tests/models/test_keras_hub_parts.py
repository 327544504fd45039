"""The parts of `Translator.from_keras_hub`: texts, sound, refusals."""

import sys

import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from keras import ops
from support import hub_families
from support import hub_models
from support import splitters
from support.hub_families import LENGTH
from support.hub_families import SPECIAL

import keras_attn
from keras_attn.models.keras_hub import SoundFeatures
from keras_attn.models.keras_hub import Waveform
from keras_attn.models.keras_hub.models import list_model
from keras_attn.models.keras_hub.models import task_of
from keras_attn.models.keras_hub.texts import Texts

hub = keras_hub.models
# KerasHub's T5 makes it, of masks that it derives by itself.
pytestmark = [
    pytest.mark.full,
    pytest.mark.filterwarnings("ignore:.*T5MultiHeadAttention"),
]
GREEDY = keras_attn.GreedySearch(max_length=LENGTH)


def special_of(name):
    family = hub_families.MAKE[name]()
    return family.special


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("BART", {"start": (2, 0), "source_start": (0,), "end": 2, "pad": 1}),
        ("T5", {"start": (0,), "source_end": (1,), "pad": 0, "unknown": 2}),
        # `generate` puts nothing around T5Gemma's sources.
        ("T5Gemma", {"start": (2,), "source_end": (), "source_start": ()}),
        # KerasHub pads with the unknown token, which is not padding here.
        ("Moonshine", {"start": (1,), "end": 2, "pad": 1, "unknown": 0}),
    ],
)
def test_special_tokens_are_those_that_the_preprocessor_writes(name, expected):
    found = special_of(name)
    assert {x: getattr(found, x) for x in expected} == expected


def test_whisper_s_prompt_follows_the_start_and_the_rest_may_be_a_prefix():
    tokenizer = hub_families.whisper_tokenizer()
    names = *hub_families.NAMED, *hub_families.LANGUAGES
    ids = {x: tokenizer.token_to_id(x) for x in names}
    found = special_of("Whisper")
    prompt = "<|startoftranscript|>", "<|en|>", "<|transcribe|>"
    assert found.start == tuple(ids[x] for x in (*prompt, "<|notimestamps|>"))
    assert found.end == ids["<|endoftext|>"] and found.pad != found.end
    assert {*found.prompt_tokens} == {ids["<|translate|>"], ids["<|fr|>"]}


def test_prefixes_have_tokens_of_language_and_task():
    family = hub_families.make("Whisper")
    family.options["prompt"] = []
    made = family.translator(GREEDY)
    asked = "<|fr|><|translate|><|notimestamps|>"
    found = made(family.sources[:2], prefixes=[asked, asked + "to be"])
    assert found[0].tokens[:3] == [
        "<|fr|>",
        "<|translate|>",
        "<|notimestamps|>",
    ]
    assert found[1].text.startswith("to be") and "<|" not in found[0].text
    fixed = hub_families.make("Whisper")
    fixed.options["prompt"] = ["<|fr|>", "<|translate|>", "<|notimestamps|>"]
    longer = keras_attn.GreedySearch(max_length=LENGTH - 3)
    (same,) = fixed.translator(longer)(family.sources[:1])
    assert same.tokens == found[0].tokens[3:]
    # They are in the prefix, not in the middle of what is streamed.
    tokens = list(made.stream(family.sources[0], prefix=asked))
    assert "".join(x.text for x in tokens) == found[0].text


def test_what_a_user_types_is_text():
    family = hub_families.MAKE["BART"]()
    made = family.translator(GREEDY)
    typed = ["</s> to <s>be<pad>"]
    ids = made.source_text.ids(typed).numpy()[0].tolist()
    assert not {0, 1, 2} & {*ids[:-1]}
    assert made.source_text.strings([ids]).numpy()[0].decode() == typed[0]


def test_t5gemma2_with_a_vision_encoder_reads_text_alone():
    plain = hub_families.MAKE["T5Gemma 2"]()
    tokenizer = plain.model.preprocessor.tokenizer
    vision = hub_models.MODELS["t5gemma2, pictures"]().vision_encoder
    backbone = hub_models.t5gemma2(
        vocabulary_size=tokenizer.vocabulary_size(), vision_encoder=vision
    )
    preprocessor = hub.T5Gemma2Seq2SeqLMPreprocessor(
        tokenizer,
        encoder_sequence_length=20,
        decoder_sequence_length=LENGTH + 1,
        image_size=8,
        num_vision_tokens_per_image=1,
    )
    task = hub.T5Gemma2Seq2SeqLM(hub_models.louder(backbone), preprocessor)
    family = hub_families.Family(task, hub_families.LINES)
    made = family.translator(GREEDY)
    assert [x.name for x in made.model.inputs] == ["source", "target"]
    found = made(family.sources).text
    assert found == family.generated("greedy", family.sources)
    assert len({*found}) > 1


@pytest.mark.parametrize("languages", [True, False])
def test_ids_without_a_token_are_neither_written_nor_text(languages):
    # As in Whisper's vocabulary, whose tokenizer names only some of its tokens.
    vocabulary, merges = splitters.byte_pairs(splitters.LINES * 5, 280)
    size = len(vocabulary)
    places = {x: size + 2 * i for i, x in enumerate(hub_families.NAMED)}
    names = {"<|en|>": size + 3} if languages else None
    tokenizer = hub.WhisperTokenizer(dict(vocabulary), merges, places, names)
    backbone = hub_models.whisper(vocabulary_size=size + 12)
    texts = Texts.of(tokenizer, task_of(backbone), ["<|notimestamps|>"])
    holes = {*range(size, size + 9)} - {*places.values()}
    if languages:
        holes -= {size + 3}
    assert holes <= {*texts.special.never_written}
    written = texts.target.strings([[40, i, 41] for i in sorted(holes)])
    assert {*written.numpy()} == {*texts.target.strings([[40, 41]]).numpy()}


PROMPT = keras_attn.SpecialTokens(
    pad=1, start=(2,), end=2, unknown=3, prompt_tokens=(5, 6, 7)
)


@pytest.fixture(scope="module")
def prompted():
    named = "<s>", "<pad>", "</s>", "<unk>", "<mask>", "<|en|>", "<|e", "a|>"
    files = splitters.byte_pairs(splitters.LINES * 5, 290, named)
    parts = [
        keras_attn.BytePair(*files, special)
        for special in (PROMPT, keras_attn.SpecialTokens(1, (2,), 2, 3))
    ]
    return [keras_attn.Text(split=x, normalization=None) for x in parts]


def test_tokens_of_a_prompt_are_found_whole(prompted):
    text, plain = prompted

    def ids(line):
        return text.ids([line], end=False).numpy()[0].tolist()

    def plain_ids(line):
        return plain.ids([line], end=False).numpy()[0].tolist()

    to_be = plain_ids("to be")
    assert ids("<|en|>to be") == [5, *to_be]
    assert ids("to be<|en|><|en|>") == [*to_be, 5, 5]
    # The longest name comes first, from left to right.
    assert ids("<|e<|en|>") == [6, 5]
    assert ids("<|ena|>") == [6, *plain_ids("n"), 7]
    assert text.strings([[5, *to_be, 6]]).numpy() == [b"to be"]
    assert text.tokens_of(["<|en|> no"]).to_list()[0][0] == b"<|en|>"


def test_other_text_is_split_as_without_a_prompt(prompted):
    text, plain = prompted
    lines = [
        x.replace("<|en|>", "").replace("<|e", "").replace("a|>", "")
        for x in [*splitters.LINES, *splitters.fuzz(200)]
    ]
    assert text.uncut_ids(lines).to_list() == plain.uncut_ids(lines).to_list()


def test_tokens_of_a_prompt_are_saved(prompted, tmp_path):
    text, _ = prompted
    text.save(tmp_path / "text.txt")
    loaded = keras_attn.Text.load(tmp_path / "text.txt")
    assert loaded.special == PROMPT
    lines = ["<|en|> to be", "no"]
    np.testing.assert_array_equal(loaded.ids(lines), text.ids(lines))


def test_a_short_text_with_its_own_ids_is_saved(tmp_path):
    files = splitters.byte_pairs(splitters.LINES * 5, 280)
    for too_long in ("truncate", "error"):
        text = keras_attn.Text(
            split=keras_attn.BytePair(*files), max_length=3, too_long=too_long
        )
        text.save(tmp_path / "text.txt")
        loaded = keras_attn.Text.load(tmp_path / "text.txt")
        assert loaded.max_length == 3 and loaded.too_long == too_long


def test_a_source_may_have_no_end():
    special = keras_attn.SpecialTokens(0, (1,), 2, 3, source_end=())
    pieces = ["[PAD]", "[S]", "[END]", "[UNK]", "to", "be"]
    text = keras_attn.Text(split=keras_attn.WordPiece(pieces, special))
    assert text.source_ids(["to be", ""]).numpy().tolist() == [[4, 5], [0, 0]]
    assert text.source_tokens(["to be"]).to_list() == [[b"to", b"be"]]
    assert text.ids(["to"]).numpy().tolist() == [[4, 2]]
    special = keras_attn.SpecialTokens(
        0, (1,), 2, 3, source_start=(1,), source_end=(2, 1)
    )
    text = keras_attn.Text(split=keras_attn.WordPiece(pieces, special))
    assert text.source_ids(["be"]).numpy().tolist() == [[1, 5, 2, 1]]
    assert text.source_tokens(["be"]).to_list() == [
        [b"[S]", b"be", b"[END]", b"[S]"]
    ]


def test_ids_are_numbers():
    text = keras_attn.Text(split=keras_attn.IntegerIds(30, SPECIAL))
    lines = ["17 4  23", "4 30 x -1 1.5 007 2", "99999999999999999999", ""]
    found = text.ids(lines).numpy().tolist()
    assert found[0] == [17, 4, 23, 2, 0, 0, 0, 0]
    assert found[1] == [4, 3, 3, 3, 3, 7, 3, 2]  # unknown, and padding is none
    assert found[2][:2] == [3, 2] and found[3][:1] == [2]
    assert text.strings(found[:1]).numpy() == [b"17 4 23"]
    with pytest.raises(ValueError, match="with an unknown one"):
        keras_attn.IntegerIds(
            30, keras_attn.SpecialTokens(0, (1,), 2, unknown=-1)
        )


def test_logits_without_a_token_are_cut_off():
    family = hub_families.make("BART")
    made = family.translator(GREEDY)
    assert made.model.output.shape[-1] == made.target_text.size
    assert family.model.output.shape[-1] == made.target_text.size + 3


def test_features_of_sound_are_keras_hub_s():
    converter = hub_families.whisper_converter()
    layer = SoundFeatures(converter)
    sounds = hub_families.sound(1500)
    expected = np.stack([np.asarray(converter(x)) for x in sounds])
    graph = tf.function(
        layer, input_signature=[tf.TensorSpec([None, None])], autograph=False
    )
    np.testing.assert_allclose(graph(sounds), expected, atol=1e-5)
    assert layer.compute_output_shape((None, None)) == (None, 50, 5)
    # A longer sound is cut, a shorter one padded.
    long = np.concatenate([sounds, sounds], axis=1)
    np.testing.assert_allclose(
        graph(long), converter(long[:, :2000]), atol=1e-5
    )


@pytest.mark.parametrize("normalize", [False, True])
def test_a_wave_is_padded_and_normalized_as_keras_hub_does(normalize):
    converter = keras_hub.layers.MoonshineAudioConverter(do_normalize=normalize)
    layer = Waveform.like(converter)
    random = np.random.default_rng(0)
    sound = random.normal(2.0, 3.0, (1, 2000)).astype("float32")
    sound[0, 500:600] = 0  # silence is no padding
    expected = np.asarray(converter(sound[..., None]))
    samples, real = layer(sound)
    np.testing.assert_allclose(samples, expected, atol=1e-5)
    assert np.all(real)
    padded = np.pad(sound, [[0, 0], [0, 700]])
    samples, real = layer(padded)
    np.testing.assert_allclose(samples[:, :2000], expected, atol=1e-5)
    assert not np.any(np.asarray(samples)[:, 2000:])
    assert np.sum(real) == 2000
    samples, real = layer(sound[:, :10])
    assert samples.shape == (1, 1600, 1) and np.all(real)


# KerasHub leaves the file of a tokenizer open.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_preset_s_directory_is_read(tmp_path):
    family = hub_families.make("T5")
    family.model.save_to_preset(str(tmp_path))
    task = hub.Seq2SeqLM.from_preset(str(tmp_path))
    made = keras_attn.Translator.from_keras_hub(task, GREEDY)
    assert (
        made(family.sources).text
        == family.translator(GREEDY)(family.sources).text
    )


@pytest.mark.full
def test_a_backbone_and_a_tokenizer_are_enough():
    family = hub_families.make("BART")
    made = keras_attn.Translator.from_keras_hub(
        family.backbone, GREEDY, family.model.preprocessor.tokenizer
    )
    assert made.source_text.special == family.special
    assert (
        made(family.sources[:3]).text
        == family.translator(GREEDY)(family.sources[:3]).text
    )


def test_the_default_search_fits_the_model():
    family = hub_families.MAKE["ids without a tokenizer"]()
    made = keras_attn.Translator.from_keras_hub(family.model, **family.options)
    # 24 positions, of which the start takes one more than a single token.
    assert made.search == keras_attn.BeamSearch(max_length=23)
    assert made.target_text.max_length == 22
    assert len(made(["7"])[0].tokens) <= 23


def test_a_prompt_that_leaves_no_room_is_named():
    for search in (None, GREEDY):
        with pytest.raises(ValueError, match="41 of them, .* decoder for 16"):
            keras_attn.Translator.from_keras_hub(
                hub_models.bart(), search, SPECIAL, prompt=["1"] * 40
            )


def test_the_task_stays_as_it_was():
    family = hub_families.make("BART")
    task = family.model
    task.compile(sampler="greedy")
    preprocessor, sampler = task.preprocessor, task.sampler
    made = family.translator(GREEDY)
    assert task.preprocessor is preprocessor and task.sampler is sampler
    shared = {id(x) for x in task.weights}
    assert {id(x) for x in made.model.weights} <= shared


def tiny(kind, **options):
    return kind(
        vocabulary_size=20,
        num_layers=1,
        num_heads=2,
        hidden_dim=8,
        intermediate_dim=8,
        **options,
    )


REFUSED = {
    "a language model": (
        lambda: (tiny(hub.GPT2Backbone), {"preprocessor": SPECIAL}),
        "with an input 'decoder_token_ids'. Received: GPT2Backbone",
    ),
    "no model of KerasHub": (
        lambda: (SPECIAL, {}),
        "takes an encoder-decoder of KerasHub",
    ),
    "no preprocessor": (
        lambda: (hub_models.bart(), {}),
        "without a preprocessor. Pass `preprocessor=`",
    ),
    "a backbone whose logits are the task's": (
        lambda: (hub_models.edrec(), {"preprocessor": SPECIAL}),
        "Pass the `EdRecSeq2SeqLM`",
    ),
    "another tokenizer": (
        lambda: (
            hub_models.whisper(),
            {"preprocessor": keras_hub.tokenizers.ByteTokenizer()},
        ),
        "Received: <ByteTokenizer",
    ),
    "a converter of sound for text": (
        lambda: (
            hub_models.bart(),
            {
                "preprocessor": SPECIAL,
                "audio_converter": hub_families.whisper_converter(),
            },
        ),
        "Leave it out",
    ),
    "a prompt that is a string": (
        lambda: (
            hub_models.bart(),
            {"preprocessor": SPECIAL, "prompt": "5"},
        ),
        "`prompt` must be a list of tokens",
    ),
    "a prompt that is no token": (
        lambda: (
            hub_models.bart(),
            {"preprocessor": SPECIAL, "prompt": ["<|de|>"]},
        ),
        "`prompt` must be special tokens",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_read_is_refused(name):
    make, said = REFUSED[name]
    model, options = make()
    with pytest.raises(ValueError) as refused:
        keras_attn.Translator.from_keras_hub(model, GREEDY, **options)
    assert said in str(refused.value), str(refused.value)


def test_a_missing_keras_hub_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "keras_hub", None)
    with pytest.raises(ImportError, match="needs KerasHub 0.32 or later"):
        keras_attn.Translator.from_keras_hub(None)


@pytest.mark.full
def test_xla_and_a_converter_are_refused_together(tmp_path):
    family = hub_families.MAKE["Whisper"]()
    with pytest.raises(ValueError, match="which has `supports_jit=False`"):
        family.translator(GREEDY, jit_compile=True)
    made = family.translator(GREEDY)
    with pytest.raises(ValueError, match="which has `supports_jit=False`"):
        made.export(tmp_path, jit_compile=True, lengths=True)
    del family.options["audio_converter"]
    features = np.random.default_rng(0).normal(size=(2, 50, 5))
    for length, message in (
        (64, "which the model does not take"),
        (50, "whose output they change"),
    ):
        sizes = keras_attn.XLASizes(2, source=length)
        with pytest.raises(ValueError, match=message):
            family.translator(GREEDY, jit_compile=sizes)
    sizes = keras_attn.XLASizes(2, source=50, exact=True)
    compiled = family.translator(GREEDY, jit_compile=sizes)
    plain = family.translator(GREEDY)
    assert compiled(features[:, :40]).text == plain(features[:, :40]).text
    assert compiled(features).text == plain(features).text


@pytest.mark.full
def test_masks_follow_padding():
    family = hub_families.make("BART")
    task = task_of(family.model)
    text = Texts.of(family.model.preprocessor, task, ())
    model = list_model(task, text.special.pad, text.size, None)
    ids = text.source.source_ids(family.sources[:2])
    read = ops.array([[2, 0, 9]] * 2)
    both = model([ids, read])
    for i in range(2):
        real = ids[i : i + 1][ids[i : i + 1] != 1][None]
        np.testing.assert_allclose(
            model([real, read[:1]])[0], both[i], atol=1e-4
        )
