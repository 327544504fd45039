"""`BartConfiguration`: the `config.json` of a model like BART."""

import dataclasses
from typing import NamedTuple

from keras_attn.models.hugging_face.architecture.fields import ACTIVATIONS
from keras_attn.models.hugging_face.architecture.fields import Fields

# The mechanism of positions
LEARNED, SINES, SINES_TO_THE_END = "learned", "sines", "sines to the end"


class _Kind(NamedTuple):
    """Traits of a family of models that no field states."""

    norm_first: bool  # and one more at the end of each stack
    norm_embedding: bool
    positions: str
    has_bias: bool = True  # of the logits, `final_logits_bias`
    size: int = 50265
    scaled: bool = False
    activation: str = "gelu"
    ids: dict = {}


_ROBERTA = {"pad": 1, "start": 2, "end": 2}
FAMILIES = {
    "bart": _Kind(False, True, LEARNED, ids=_ROBERTA),
    "marian": _Kind(
        False,
        False,
        SINES,
        size=58101,
        ids={"pad": 58100, "start": 58100, "end": 0},
    ),
    "mbart": _Kind(True, True, LEARNED, ids=_ROBERTA | {"start": None}),
    "m2m_100": _Kind(
        True,
        False,
        SINES_TO_THE_END,
        has_bias=False,
        size=128112,
        scaled=True,
        activation="relu",
        ids=_ROBERTA,
    ),
    "pegasus": _Kind(True, False, SINES, ids={"pad": 0, "start": 0, "end": 1}),
}


class Stack(NamedTuple):
    """The blocks of an encoder or a decoder."""

    blocks: int
    heads: int
    inner: int  # width of the layer between


_STACK = Stack(12, 16, 4096)


@dataclasses.dataclass(frozen=True)
class BartConfiguration:
    """A model of BART's family.

    Attributes:
        family: Hugging Face's `model_type`.
        source_size, target_size: Numbers of ids.
        width: Number of units, `d_model`.
        longest: Largest number of positions, or `None` for any number.
        encoder, decoder: Each a `Stack`.
        norm_first: Whether blocks normalize what they read, not what they
            return; then each stack ends with a norm too.
        norm_embedding: Whether embeddings are normalized.
        positions: `LEARNED`, `SINES` or `SINES_TO_THE_END`.
        scale: Factor of the embeddings.
        activation: Keras's name of the activation between the two layers of a
            block.
        dropout, attention_dropout, activation_dropout: Rates in training.
        one_vocabulary: Whether source and target share the embedding.
        tied: Whether the embedding of the target also makes the logits.
        has_bias: Whether logits have a bias.
        pad, start, end: Ids of padding, of the token with which the decoder
            begins (`None` if it must be given), and of the end.
        begin: Id with which a text begins, in BART.
    """

    family: str
    source_size: int
    target_size: int
    width: int
    longest: int | None
    encoder: Stack
    decoder: Stack
    norm_first: bool
    norm_embedding: bool
    positions: str
    scale: float
    activation: str
    dropout: float
    attention_dropout: float
    activation_dropout: float
    one_vocabulary: bool
    tied: bool
    has_bias: bool
    pad: int
    start: int | None
    end: int
    begin: int

    def __post_init__(self):
        if self.positions == SINES_TO_THE_END and (
            self.width % 2 or self.start == self.pad
        ):
            raise ValueError(
                "A model of M2M-100 or NLLB must have an even `d_model`, and a "
                "`decoder_start_token_id` other than padding, which has no "
                f"position there. Received: d_model={self.width}, "
                f"decoder_start_token_id={self.start}, pad_token_id={self.pad}."
            )
        require_heads(self)

    @classmethod
    def of(cls, fields: dict) -> "BartConfiguration":
        """Reads the fields of a `config.json`.

        Raises:
            ValueError: If a field that could change results is unknown, has a
                wrong type or an unsupported value.
        """
        family = fields["model_type"]
        kind, read = FAMILIES[family], Fields(fields)
        size = read.whole("vocab_size", kind.size)
        width = read.whole("d_model", 1024)
        shared = family != "marian" or read.truth(
            "share_encoder_decoder_embeddings", True
        )
        target_size = size
        if family == "marian":
            target_size = read.whole("decoder_vocab_size", size)
        longest: int | None = read.whole("max_position_embeddings", 1024)
        scaled = read.truth("scale_embedding", kind.scaled)
        found = cls(
            family=family,
            source_size=size,
            target_size=size if shared else target_size,
            width=width,
            longest=None if kind.positions == SINES_TO_THE_END else longest,
            encoder=stack_of(read, "encoder", _STACK),
            decoder=stack_of(read, "decoder", _STACK),
            norm_first=kind.norm_first,
            norm_embedding=kind.norm_embedding,
            positions=kind.positions,
            scale=width**0.5 if scaled else 1.0,
            activation=read.one_of(
                "activation_function", ACTIVATIONS, kind.activation
            ),
            dropout=read.rate("dropout", 0.1),
            attention_dropout=read.rate(
                "attention_dropout", 0.1 if family == "m2m_100" else 0.0
            ),
            activation_dropout=read.rate("activation_dropout", 0.0),
            one_vocabulary=shared,
            tied=read.truth("tie_word_embeddings", True),
            has_bias=kind.has_bias,
            pad=read.id("pad_token_id", kind.ids["pad"]),
            start=read.id("decoder_start_token_id", kind.ids["start"]),
            end=read.end(kind.ids["end"]),
            begin=read.id("bos_token_id", 0),
        )
        read.require_usual(
            normalize_before=kind.norm_first,
            add_final_layer_norm=kind.norm_first,
            normalize_embedding=kind.norm_embedding,
            layernorm_embedding=kind.norm_embedding,
            static_position_embeddings=kind.positions != LEARNED,
            add_bias_logits=False,
            do_blenderbot_90_layernorm=False,
        )
        read.require_none_left(family)
        return found


def stack_of(read: Fields, side: str, usual: Stack) -> Stack:
    """Reads the sizes of a side, `encoder` or `decoder`."""
    return Stack(
        read.whole(f"{side}_layers", usual.blocks),
        read.whole(f"{side}_attention_heads", usual.heads),
        read.whole(f"{side}_ffn_dim", usual.inner),
    )


def require_heads(configuration):
    """Raises `ValueError` unless the heads divide the units evenly."""
    width = configuration.width
    for name in ("encoder", "decoder"):
        heads = getattr(configuration, name).heads
        if width % heads:
            raise ValueError(
                f"`{name}_attention_heads` must divide `d_model`. "
                f"Received: {heads} heads and {width} units."
            )
