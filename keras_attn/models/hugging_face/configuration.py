"""`Configuration`: what a `config.json` says of a model of BART's family."""

import dataclasses
from typing import Any
from typing import NamedTuple

# The mechanism of positions
LEARNED, SINES, SINES_TO_THE_END = "learned", "sines", "sines to the end"


class _Kind(NamedTuple):
    """What tells the models of the family apart, which no field says."""

    norm_first: bool  # and one more at the end of each stack
    norm_embedding: bool
    positions: str
    has_bias: bool = True  # of the logits, `final_logits_bias`
    size: int = 50265
    scaled: bool = False
    activation: str = "gelu"
    ids: dict = {}


_ROBERTA = {"pad": 1, "start": 2, "end": 2}
_KINDS = {
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

# Names of Keras's activations, by those of Hugging Face
_ACTIVATIONS = {
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "linear",
}
# Fields of generation, which older files have among the others.
GENERATION = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "force_bos_token_to_be_generated",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "remove_invalid_values",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
}
# Fields that change no result.
_WITHOUT_EFFECT = {
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "chunk_size_feed_forward",
    "classif_dropout",
    "classifier_dropout",
    "cross_attention_hidden_size",
    "dtype",
    "extra_pos_embeddings",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "init_std",
    "label2id",
    "max_source_positions",
    "max_target_positions",
    "model_type",
    "num_labels",
    "num_hidden_layers",  # says `encoder_layers` again
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "prefix",
    "problem_type",
    "return_dict",
    "return_dict_in_generate",
    "save_step",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
}
# Drops whole layers at random in training, which is not done here. It
# changes no prediction.
_TRAINING_ALONE = {"encoder_layerdrop", "decoder_layerdrop"}


class Stack(NamedTuple):
    """The blocks of an encoder or a decoder."""

    blocks: int
    heads: int
    inner: int  # width of the layer between


@dataclasses.dataclass(frozen=True)
class Configuration:
    """A model of BART's family.

    Attributes:
        family: Hugging Face's `model_type`.
        source_size, target_size: Numbers of ids.
        width: Number of units, `d_model`.
        longest: Largest number of positions, or `None` for any.
        encoder, decoder: Each a `Stack`.
        norm_first: Whether blocks normalize what they read, not what they
            return; then each stack ends with a norm too.
        norm_embedding: Whether embeddings are normalized.
        positions: `LEARNED`, `SINES` or `SINES_TO_THE_END`.
        scale: Factor of the embeddings.
        activation: Keras's name of that between the two layers of a block.
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
                "A model of M2M-100 or NLLB must have an even `d_model`, and "
                "another `decoder_start_token_id` than padding, which has no "
                f"position there. Received: d_model={self.width}, "
                f"decoder_start_token_id={self.start}, "
                f"pad_token_id={self.pad}."
            )
        for name in ("encoder", "decoder"):
            heads = getattr(self, name).heads
            if self.width % heads:
                raise ValueError(
                    f"`{name}_attention_heads` must divide `d_model`. "
                    f"Received: {heads} heads and {self.width} units."
                )

    @classmethod
    def of(cls, fields: dict) -> "Configuration":
        """Reads the fields of a `config.json`.

        Raises:
            ValueError: If the model is of another family, or if a field that
                could change results is not known, has another type than it
                should, or a value that is not supported.
        """
        family = fields.get("model_type")
        if family not in _KINDS:
            raise ValueError(
                "`from_hugging_face` reads encoder-decoders from text to text. "
                f"Received: a `config.json` with model_type={family!r}. It "
                f"reads {', '.join(sorted(_KINDS))} (NLLB is of m2m_100, "
                "mBART-50 of mbart)."
            )
        kind, read = _KINDS[family], _Fields(fields)
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
            encoder=read.stack("encoder"),
            decoder=read.stack("decoder"),
            norm_first=kind.norm_first,
            norm_embedding=kind.norm_embedding,
            positions=kind.positions,
            scale=width**0.5 if scaled else 1.0,
            activation=read.activation(kind.activation),
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
            is_encoder_decoder=True,
            is_decoder=False,
            add_cross_attention=False,
            normalize_before=kind.norm_first,
            add_final_layer_norm=kind.norm_first,
            normalize_embedding=kind.norm_embedding,
            layernorm_embedding=kind.norm_embedding,
            static_position_embeddings=kind.positions != LEARNED,
            add_bias_logits=False,
            do_blenderbot_90_layernorm=False,
            tie_encoder_decoder=False,
            pruned_heads={},
            quantization_config=None,
        )
        read.require_none_left(family)
        return found


class _Fields:
    """Fields of a `config.json`, of which each is read or refused."""

    def __init__(self, fields: dict):
        self._fields = fields
        known = _WITHOUT_EFFECT | _TRAINING_ALONE | GENERATION
        self._left = {x: y for x, y in fields.items() if x not in known}

    def _value(self, name, default, valid, kind) -> Any:
        value = self._left.pop(name, self._fields.get(name))
        if value is None:
            return default
        if not valid(value):
            raise ValueError(
                f"`{name}` in `config.json` must be {kind}. Received: "
                f"{value!r:.200}"
            )
        return value

    def whole(self, name, default):
        return self._value(
            name,
            default,
            lambda x: _is_whole(x) and x > 0,
            "a positive integer",
        )

    def id(self, name, default):
        return self._value(
            name, default, lambda x: _is_whole(x) and x >= 0, "an id"
        )

    def end(self, default):
        value = self._left.get("eos_token_id")
        if isinstance(value, list) and len(value) == 1:
            self._left["eos_token_id"] = value[0]
        return self.id("eos_token_id", default)

    def truth(self, name, default):
        return self._value(
            name, default, lambda x: isinstance(x, bool), "true or false"
        )

    def rate(self, name, default):
        return float(
            self._value(
                name,
                default,
                lambda x: isinstance(x, (int, float)) and 0 <= x < 1,
                "a rate from 0 to 1",
            )
        )

    def activation(self, default):
        name = self._value(
            "activation_function",
            default,
            lambda x: x in _ACTIVATIONS,
            f"one of {', '.join(sorted(_ACTIVATIONS))}",
        )
        return _ACTIVATIONS[name]

    def stack(self, side):
        return Stack(
            self.whole(f"{side}_layers", 12),
            self.whole(f"{side}_attention_heads", 16),
            self.whole(f"{side}_ffn_dim", 4096),
        )

    def require_usual(self, **usual):
        """Refuses fields that have another value than in all such models."""
        for name, value in usual.items():
            given = self._left.pop(name, None)
            if given is not None and given != value:
                raise ValueError(
                    f"`{name}` in `config.json` must be {value!r} for this "
                    f"family of models. Received: {given!r:.200}. Such a model "
                    "computes something else."
                )

    def require_none_left(self, family):
        left = {x: y for x, y in self._left.items() if y not in _NOTHING}
        if left:
            shown = ", ".join(f"{x}={y!r:.60}" for x, y in sorted(left.items()))
            raise ValueError(
                "A field of `config.json` may change what a model computes, "
                f"so all must be known. Received: {shown} in a model of "
                f"{family}. If a field has no effect, delete it."
            )


# Values with which a field says that there is nothing of its kind
_NOTHING: tuple = (None, False, 0, "", [], {})


def _is_whole(x):
    return isinstance(x, int) and not isinstance(x, bool)
