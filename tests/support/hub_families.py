"""Each family of KerasHub's encoder-decoders, as a user has it.

Small, with random weights, a tokenizer and, where KerasHub has one, a
preprocessor. `tests/models/test_keras_hub.py` walks this table, and a table in
the documentation is held equal to it.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import keras_hub
import numpy as np

import keras_attn
from keras_attn.models.keras_hub.models import task_of
from keras_attn.models.keras_hub.texts import Texts
from keras_attn.text import subwords
from support import hub_models
from support import splitters

hub = keras_hub.models
LINES = ["to be or not", "hello", "hello world, that is", ""]
NUMBERS = ["17 4 5 11", "8", "4 4 9 16 12 7", ""]
LENGTH = 8  # most tokens of an output
SPECIAL = keras_attn.SpecialTokens(pad=0, start=(1,), end=2, unknown=3)


@dataclasses.dataclass
class Family:
    """A model of KerasHub, and what `Translator.from_keras_hub` takes."""

    model: Any
    sources: Any  # four: lines, a padded array, or both by name
    options: dict = dataclasses.field(default_factory=dict)
    generates: bool = True  # whether KerasHub's `generate` can be asked
    are_apart: bool = True  # whether padding changes nothing

    @property
    def reads_text(self):
        return isinstance(self.sources, list)

    @property
    def apart(self):
        """Numbers of sources of which none changes what is read of another."""
        return [0, 1, 2, 3] if self.are_apart else [0, 3]

    def take(self, numbers):
        """Returns some of the sources."""
        if isinstance(self.sources, dict):
            return {k: _some(v, numbers) for k, v in self.sources.items()}
        return _some(self.sources, numbers)

    def one(self, number):
        """Returns a source as `Translator.stream` takes it."""
        if isinstance(self.sources, dict):
            return {k: v[number] for k, v in self.sources.items()}
        return self.sources[number]

    @property
    def backbone(self):
        return getattr(self.model, "backbone", self.model)

    @property
    def special(self):
        preprocessor = self.options.get("preprocessor")
        return Texts.of(
            preprocessor or self.model.preprocessor,
            task_of(self.model),
            self.options.get("prompt", ()),
        ).special

    def translator(self, search=None, **options):
        search = search or keras_attn.BeamSearch(3, max_length=LENGTH)
        return keras_attn.Translator.from_keras_hub(
            self.model, search, **self.options, **options
        )

    def generated(self, sampler, sources):
        """Returns the texts of KerasHub's `generate`."""
        self.model.compile(sampler=sampler)
        given = list(sources)
        if not self.reads_text:
            # Without a text KerasHub starts with two start tokens.
            given = {"audio": sources[..., None], "text": [""] * len(sources)}
        return self.model.generate(given)


def _some(sources, numbers):
    if isinstance(sources, list):
        return [sources[i] for i in numbers]
    return sources[numbers]


def sound(samples, seed=0):
    """Returns four sounds, two of them padded with zeros."""
    random = np.random.default_rng(seed)
    found = random.normal(size=(4, samples)).astype("float32")
    found[1, samples // 2 :] = 0
    found[2, samples * 3 // 4 :] = 0
    return found


def sentence_piece(**special):
    """Returns the content of a small model of SentencePiece."""
    return subwords.train(
        [x.encode() for x in splitters.LINES if x] * 4,
        size=60,
        kind="bpe",
        byte_fallback=False,
        options=special,
    )


def bart():
    files = splitters.byte_pairs(
        splitters.LINES * 5, 280, ("<s>", "<pad>", "</s>", "<unk>", "<mask>")
    )
    tokenizer = hub.BartTokenizer(*files)
    backbone = hub_models.bart(
        # Three more than there are tokens: these are never written.
        vocabulary_size=tokenizer.vocabulary_size() + 3,
        max_sequence_length=32,
    )
    preprocessor = hub.BartSeq2SeqLMPreprocessor(
        tokenizer,
        encoder_sequence_length=20,
        decoder_sequence_length=LENGTH + 2,
    )
    return Family(hub.BartSeq2SeqLM(backbone, preprocessor), LINES)


def t5():
    content = sentence_piece(pad_id=0, bos_id=-1, eos_id=1, unk_id=2)
    tokenizer = hub.T5Tokenizer(content)
    backbone = hub_models.t5(vocabulary_size=tokenizer.vocabulary_size())
    preprocessor = hub.T5Seq2SeqLMPreprocessor(
        tokenizer,
        encoder_sequence_length=20,
        decoder_sequence_length=LENGTH + 1,
    )
    return Family(hub.T5Seq2SeqLM(backbone, preprocessor), LINES)


def _gemma(make, tokenizer_class, task_class):
    tokenizer = tokenizer_class(
        sentence_piece(
            pad_id=0,
            eos_id=1,
            bos_id=2,
            unk_id=3,
            pad_piece="<pad>",
            eos_piece="<eos>",
            bos_piece="<bos>",
        )
    )
    backbone = make(vocabulary_size=tokenizer.vocabulary_size())
    preprocessor = task_class.preprocessor_cls(
        tokenizer=tokenizer,
        encoder_sequence_length=20,
        decoder_sequence_length=LENGTH + 1,
    )
    return Family(task_class(backbone, preprocessor), LINES)


def t5gemma():
    return _gemma(
        hub_models.t5gemma,
        hub.T5GemmaTokenizer,
        hub.T5GemmaSeq2SeqLM,
    )


def t5gemma2():
    return _gemma(
        hub_models.t5gemma2,
        hub.T5Gemma2Tokenizer,
        hub.T5Gemma2Seq2SeqLM,
    )


def moonshine():
    tokenizer = hub.MoonshineTokenizer(
        sentence_piece(pad_id=-1, unk_id=0, bos_id=1, eos_id=2)
    )
    backbone = hub_models.moonshine(vocabulary_size=tokenizer.vocabulary_size())
    preprocessor = hub.MoonshineAudioToTextPreprocessor(
        keras_hub.layers.MoonshineAudioConverter(),
        tokenizer,
        decoder_sequence_length=LENGTH + 1,
    )
    task = hub.MoonshineAudioToText(backbone, preprocessor)
    # Its encoder normalizes over the whole length of a batch.
    return Family(task, sound(4000), are_apart=False)


NAMED = [
    "<|startoftranscript|>",
    "<|endoftext|>",
    "<|transcribe|>",
    "<|translate|>",
    "<|notimestamps|>",
]
LANGUAGES = ["<|en|>", "<|fr|>"]


def whisper_tokenizer():
    vocabulary, merges = splitters.byte_pairs(splitters.LINES * 5, 280)
    size = len(vocabulary)
    special = {x: size + i for i, x in enumerate(NAMED)}
    languages = {x: size + len(NAMED) + i for i, x in enumerate(LANGUAGES)}
    return hub.WhisperTokenizer(vocabulary, merges, special, languages)


def whisper_converter():
    """Half a second, at 4 kHz: 50 frames."""
    return keras_hub.layers.WhisperAudioConverter(
        num_mels=5,
        num_fft_bins=100,
        stride=40,
        sampling_rate=2000,
        max_audio_length=1,
    )


def whisper():
    tokenizer = whisper_tokenizer()
    backbone = hub_models.whisper(
        # As many more as the timestamps that the tokenizer does not know.
        vocabulary_size=tokenizer.vocabulary_size() + 5,
        max_encoder_sequence_length=50,
        max_decoder_sequence_length=32,
    )
    options = {
        "preprocessor": tokenizer,
        "audio_converter": whisper_converter(),
        "prompt": ["<|en|>", "<|transcribe|>", "<|notimestamps|>"],
    }
    return Family(backbone, sound(1500), options, generates=False)


def ids():
    """A backbone without a tokenizer: texts are ids as numbers."""
    special = keras_attn.SpecialTokens(
        pad=1, start=(2, 0), end=2, unknown=3, source_start=(0,)
    )
    return Family(
        hub_models.bart(max_sequence_length=24),
        NUMBERS,
        {"preprocessor": special},
        generates=False,
    )


def edrec():
    """Items that a user chose, and those that he chooses next."""
    task = hub.EdRecSeq2SeqLM(hub_models.edrec())
    return Family(task, NUMBERS, {"preprocessor": SPECIAL}, False)


def blip2():
    """Questions about pictures."""
    random = np.random.default_rng(0)
    images = random.normal(size=(4, 8, 8, 3)).astype("float32")
    return Family(
        hub.BLIP2Seq2SeqLM(hub_models.blip2()),
        {"source": NUMBERS, "images": images},
        {"preprocessor": SPECIAL},
        generates=False,
    )


# Of weights by which outputs vary with the source.
SEEDS = {"BART": 4, "ids without a tokenizer": 2, "Whisper": 5}
MAKE: dict[str, Callable[[], Family]] = {
    "T5": t5,
    "BART": bart,
    "T5Gemma": t5gemma,
    "T5Gemma 2": t5gemma2,
    "Whisper": whisper,
    "Moonshine": moonshine,
    "EdRec": edrec,
    "BLIP-2 with Flan-T5": blip2,
    "ids without a tokenizer": ids,
}


def make(name, ends=True) -> Family:
    """Makes a family, with weights that all show.

    Args:
        name: Name in `MAKE`.
        ends: Whether outputs may end.
    """
    found = MAKE[name]()
    backbone = hub_models.louder(found.backbone, SEEDS.get(name, 7))
    # KerasHub may write padding and start tokens, and a translator may not.
    # The logits of these tokens are near 0, so neither does.
    names = "decoder_token_embedding", "token_embedding"
    layers = [getattr(backbone, x) for x in names if hasattr(backbone, x)]
    special = found.special
    rare = {*special.never_written} | (set() if ends else {special.end})
    for layer in layers[:1]:
        values = np.array(layer.embeddings)
        values[sorted(rare)] *= 0.02
        layer.embeddings.assign(values)
    return found
