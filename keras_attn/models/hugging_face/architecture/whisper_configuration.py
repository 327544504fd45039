"""`WhisperConfiguration`: the `config.json` of a Whisper model."""

import dataclasses

from keras_attn.models.hugging_face.architecture.bart_configuration import Stack
from keras_attn.models.hugging_face.architecture.bart_configuration import (
    require_heads,
)
from keras_attn.models.hugging_face.architecture.bart_configuration import (
    stack_of,
)
from keras_attn.models.hugging_face.architecture.fields import ACTIVATIONS
from keras_attn.models.hugging_face.architecture.fields import Fields

FAMILIES = ("whisper",)


@dataclasses.dataclass(frozen=True)
class WhisperConfiguration:
    """A model of Whisper's family, whose blocks are those of mBART.

    Attributes:
        family: Hugging Face's `model_type`.
        target_size: Number of ids.
        width: Number of units, `d_model`.
        mels: Number of features of a frame.
        frames: Number of frames, all of which are read.
        longest: Largest number of positions of the decoder.
        encoder, decoder: Each a `Stack`.
        activation: Keras's name of the activation between the two layers of a
            block.
        dropout, attention_dropout, activation_dropout: Rates in training.
        tied: Whether the embedding also makes the logits.
        sound: Arguments of the `LogMelSpectrogram`.
        median: Columns of the median filter that finds times of words.
        start, end: Ids of the token with which the decoder begins, and of
            the end.
        norm_first, norm_embedding, scale, has_bias: As of a
            `BartConfiguration`.
    """

    family: str
    target_size: int
    width: int
    mels: int
    frames: int
    longest: int
    encoder: Stack
    decoder: Stack
    activation: str
    dropout: float
    attention_dropout: float
    activation_dropout: float
    tied: bool
    sound: dict
    median: int
    start: int | None
    end: int
    norm_first: bool = True
    norm_embedding: bool = False
    scale: float = 1.0
    has_bias: bool = False

    def __post_init__(self):
        require_heads(self)

    @property
    def pad(self) -> int | None:
        """Id of padding. The files name the end, which cannot pad here."""
        return self.start

    @property
    def source_size(self) -> int:
        """Number of ids of prompts, which are those of the target."""
        return self.target_size

    @classmethod
    def of(cls, fields: dict) -> "WhisperConfiguration":
        """Reads the fields of a `config.json`.

        Raises:
            ValueError: If a field that could change results is unknown, has a
                wrong type or an unsupported value.
        """
        family, read = fields["model_type"], Fields(fields)
        mels = read.whole("num_mel_bins", 80)
        found = cls(
            family=family,
            target_size=read.whole("vocab_size", 51865),
            width=read.whole("d_model", 384),
            mels=mels,
            frames=2 * read.whole("max_source_positions", 1500),
            longest=read.whole("max_target_positions", 448),
            encoder=stack_of(read, "encoder", Stack(4, 6, 1536)),
            decoder=stack_of(read, "decoder", Stack(4, 6, 1536)),
            activation=read.one_of("activation_function", ACTIVATIONS, "gelu"),
            dropout=read.rate("dropout", 0.0),
            attention_dropout=read.rate("attention_dropout", 0.0),
            activation_dropout=read.rate("activation_dropout", 0.0),
            tied=read.truth("tie_word_embeddings", True),
            sound={"num_mels": mels},
            median=read.whole("median_filter_width", 7),
            start=read.id("decoder_start_token_id", 50257),
            end=read.end(50256),
        )
        for name in ("pad_token_id", "bos_token_id"):
            read.id(name, 0)  # no target contains them
        read.require_usual(scale_embedding=False)
        read.require_none_left(family)
        return found
