"""`standard_model`: any encoder-decoder in the form that is decoded in steps.

That is a functional model whose inputs are the source and, last, the target's
ids, and whose output is the logits. It shares the layers and the weights of
the model that it is made from, and computes the same.
"""

from collections.abc import Callable
from collections.abc import Mapping
from typing import NamedTuple

import keras
from keras import layers

from keras_attn.graph.nodes import readers_of
from keras_attn.graph.probabilities import before_softmax
from keras_attn.graph.probabilities import ends_in_softmax
from keras_attn.keras_internals import Functional
from keras_attn.keras_internals import is_functional
from keras_attn.models.adopted.around import CutLike
from keras_attn.models.adopted.around import LogProbabilities
from keras_attn.models.adopted.around import OneHot
from keras_attn.models.adopted.around import PadTarget
from keras_attn.models.adopted.around import PadTo
from keras_attn.models.adopted.around import Replaced
from keras_attn.models.adopted.call_form import call_form
from keras_attn.text.text import Text

# Inside a `TimeDistributed` these compute the same as without it.
_POSITION_WISE = (
    layers.Activation,
    layers.Dense,
    layers.Dropout,
    layers.LayerNormalization,
    layers.LeakyReLU,
    layers.ReLU,
    layers.Softmax,
)

# An input that none of these reads holds features, not ids.
_READ_IDS = layers.Embedding, layers.Lambda, keras.Sequential
_OPERATIONS_ON_IDS = {"Cast", "Equal", "NotEqual", "OneHot", "Take"}


class Options(NamedTuple):
    """A caller's answers to questions that a graph leaves open.

    Attributes:
        target: Name of the input that takes the target.
        output: Name or number of the output that holds the logits.
        pad_to: Length to which each source text is padded; an integer, or a
            dictionary by the names of inputs.
        padding: Token that pads sources, instead of the padding token.
    """

    target: str | None = None
    output: str | int | None = None
    pad_to: int | Mapping[str, int] | None = None
    padding: str | None = None


class Standard(NamedTuple):
    """A model in standard form.

    Attributes:
        model: The model.
        lengths: Longest ids of inputs that take one length, by the index of
            the input.
        ask: Function from arrays for the model's inputs to the output that
            holds the logits or probabilities. It calls the original model, as
            its author does. `None` if this is the original model, or if that
            reads strings.
    """

    model: keras.Model
    lengths: dict[int, int]
    ask: Callable | None = None


def standard_model(
    model, source_text, target_text, options, is_shorter=False
) -> Standard:
    """Returns a model in standard form; itself if it has this form.

    Args:
        model: A trained `keras.Model`.
        source_text, target_text: As for a `Translator`.
        options: `Options`.
        is_shorter: Whether its output has one position fewer than the target,
            because the model leaves out the last token.

    Raises:
        ValueError: If it is unknown which input is the target or which output
            holds the logits, or if the texts do not fit the inputs.
    """
    adoption = _Adoption(model, source_text, target_text, options, is_shorter)
    return adoption.standard()


def with_logarithm(model) -> keras.Model:
    """Returns a model of logarithms, for one that returns probabilities."""
    output = LogProbabilities()(model.outputs[0])
    return keras.Model(model.inputs, output, name=model.name)


class _Adoption:
    """Brings a model into standard form; arguments as `standard_model`."""

    def __init__(self, model, source_text, target_text, options, is_shorter):
        self._model = model
        self._options = options
        self._form = call_form(model)
        self._names = [x.name for x in self._form.inputs]
        self._require_two_inputs()
        self._target = self._number_of_target()
        self._sources = [
            i for i in range(len(self._names)) if i != self._target
        ]
        self._target_text = target_text
        self._texts = self._texts_of(source_text) | {self._target: target_text}
        self._is_shorter = is_shorter
        self._require_padding()

    def standard(self) -> Standard:
        """Returns the model in standard form."""
        if not self._is_shorter and self._is_plain():
            self._output_of(self._model.outputs)
            return Standard(self._model, {})
        order = [*self._sources, self._target]
        inputs, read, lengths, prepared = [], {}, {}, {}
        for place, number in enumerate(order):
            x, read[number], length = self._input(number)
            prepared[number] = keras.Model(x, read[number])
            inputs.append(x)
            if length is not None:
                lengths[place] = length
        values = [read[i] for i in range(len(order))]
        found = self._form.call(values, _without_time_distributed)
        output = _logits(self._output_of(found))
        if read[self._target] is not inputs[-1]:
            output = CutLike()([output, inputs[-1]])
        made = keras.Model(inputs, output, name=self._model.name)
        if self._form.ask is None:
            return Standard(made, lengths)

        def ask(arrays):
            given = dict(zip(order, arrays, strict=True))
            values = [prepared[i](given[i]) for i in range(len(order))]
            found = self._output_of(self._form.ask(values))
            return found[:, : arrays[-1].shape[1]]

        return Standard(made, lengths, ask)

    def _is_plain(self):
        """Whether the model has the standard form already."""
        model = self._model
        return (
            self._form.traced
            and not isinstance(model.input, dict)
            and all(
                x is y
                for x, y in zip(self._form.symbols, model.inputs, strict=True)
            )
            and not isinstance(model.output, dict)
            and len(model.outputs) == 1
            and self._target == len(self._names) - 1
            and self._options.pad_to is None
            and self._options.padding is None
            and not any(map(self._is_one_hot, self._texts))
            and not any(self._length(i) for i in self._texts)
            and not ends_in_softmax(model.outputs[0])
            and not any(
                _without_time_distributed(x) is not x for x in model.operations
            )
        )

    def _require_two_inputs(self):
        if len(self._names) < 2:
            raise ValueError(
                "The model must have at least two inputs, the source and the "
                "target so far, which it extends by a token. Received: a model "
                f"with the input(s) {self._names}. A language model, which has "
                "no source, is not supported: use its own `generate`."
            )

    def _require_padding(self):
        """Refuses padding that is impossible, or would have no effect."""
        pad_to, token = self._options.pad_to, self._options.padding
        if pad_to is None and token is None:
            return
        text_names = [self._names[i] for i in self._sources if i in self._texts]
        if not text_names:
            raise ValueError(
                "`pad_to` and `padding` pad the ids of a source text. "
                f"Received: pad_to={pad_to!r}, padding={token!r}, and a model "
                "whose sources are arrays. Pad the arrays yourself."
            )
        sizes = pad_to if isinstance(pad_to, Mapping) else {None: pad_to}
        unknown = [x for x in sizes if x not in (None, *text_names)]
        wrong = [
            x
            for x in sizes.values()
            if x is not None
            and (isinstance(x, bool) or not isinstance(x, int) or x < 1)
        ]
        if unknown or wrong:
            raise ValueError(
                "`pad_to` must be an integer, at least 1, or a dictionary of "
                f"such integers by the names of source texts, {text_names}. "
                f"Received: pad_to={pad_to!r}"
            )

    def _number_of_target(self):
        """Returns the number of the input that takes the target."""
        wanted = self._options.target
        if wanted is not None:
            if wanted not in self._names:
                raise ValueError(
                    "`target` is the name of the input that takes the target, "
                    f"one of {self._names}. Received: target={wanted!r}"
                )
            return self._names.index(wanted)
        if not self._form.ordered:
            raise ValueError(
                "The inputs of this model are a dictionary, which has no "
                "order, so the target's must be named. Received: no `target`, "
                f"and the inputs {self._names}. Pass its name, for example "
                f"`Translator(..., target={self._names[-1]!r})`. "
                "`Translator.from_keras_hub(model)` knows the inputs of "
                "KerasHub's encoder-decoders. A language model without an "
                "encoder, such as its `CausalLM`s, has no source and is not "
                "supported: use its own `generate`."
            )
        return len(self._names) - 1

    def _texts_of(self, source_text):
        """Returns the source texts by the numbers of inputs."""
        if source_text is None:
            return {}
        if isinstance(source_text, Mapping):
            return {
                i: source_text[self._names[i]]
                for i in self._sources
                if self._names[i] in source_text
            }
        return {i: source_text for i in self._sources[:1]}

    def _length(self, number):
        """Returns the only length that an input of text takes, if any."""
        if number != self._target and self._options.pad_to is not None:
            wanted = self._options.pad_to
            if isinstance(wanted, Mapping):
                wanted = wanted.get(self._names[number])
            if wanted is not None:
                self._require_fits(number, wanted)
                return wanted
        return self._only_length(number)

    def _only_length(self, number):
        shape = self._form.inputs[number].shape
        if not self._form.traced or shape is None or len(shape) < 2:
            return None  # a `call` of its own was built with some length
        if len(shape) == 2 and not self._may_be_ids(number):
            return None
        return shape[1]

    def _require_fits(self, number, length):
        only = self._only_length(number)
        if only not in (None, length):
            raise ValueError(
                f"The input '{self._names[number]}' takes {only} tokens, "
                f"neither more nor less. Received: pad_to={length}. Leave "
                "`pad_to` out: such an input is padded anyway."
            )

    def _may_be_ids(self, number):
        """Whether anything reads an input that may read ids."""
        symbol = self._form.symbols[number]
        return any(
            isinstance(reader, (*_READ_IDS, Functional))
            or not type(reader).__module__.startswith("keras.")
            or type(reader).__name__ in _OPERATIONS_ON_IDS
            for reader in readers_of(self._model, symbol)
        )

    def _is_one_hot(self, number):
        """Whether an input of text takes a vector for each token."""
        shape = self._form.inputs[number].shape
        if shape is None or len(shape) != 3:
            return False
        size = self._texts[number].size
        if shape[2] != size and number == self._target:
            raise ValueError(
                "The target's input takes ids (batch, length), or one-hot "
                "vectors (batch, length, size) of the size of its `Text`. "
                f"Received: '{self._names[number]}' of shape {shape}, for a "
                f"`Text` of {size} tokens. Pass the text that the model was "
                "trained with, or name the target's input by `target`."
            )
        return shape[2] == size

    def _input(self, number):
        """Returns a new input, what the model reads of it, and its length."""
        form, text = self._form.inputs[number], self._texts.get(number)
        if text is None:
            x = self._features(form)
            return x, x, None
        x = read = keras.Input((None,), dtype="int32", name=form.name)
        padding, zeros = text.special.pad, text.special.pad
        token, is_target = self._options.padding, number == self._target
        if token is not None and not is_target:
            padding, zeros = _id_of(token, text), None
            read = Replaced(text.special.pad, padding)(read)
        length = self._length(number)
        if is_target and (length or self._is_shorter):
            longest = length and length - self._is_shorter
            read = PadTarget(length, padding, longest)(read)
            length = longest
        elif length:
            read = PadTo(length, padding)(read)
        if self._is_one_hot(number):
            read = OneHot(text.size, zeros)(read)
        return x, read, length

    def _features(self, form):
        """Returns a new input for an array."""
        if form.shape is None:
            raise ValueError(
                "The shape of an input that reads arrays must be known. "
                f"Received: the input '{form.name}' of a "
                f"`{type(self._model).__name__}` with a `call` of its own. "
                "Build a functional model of it, `keras.Model(inputs, "
                "model(*inputs))`, with a `keras.Input` for each argument."
            )
        shape = list(form.shape[1:])
        if not self._form.traced and len(shape) == 2:
            shape[0] = None  # it was built with some number of frames
        return keras.Input(shape, dtype=form.dtype, name=form.name)

    def _output_of(self, found):
        """Returns the output that holds the logits."""
        output = self._chosen(found)
        if len(output.shape) != 3:
            raise ValueError(
                "The model must return logits or probabilities for each token "
                "of the target, of shape (batch, target, "
                f"{self._target_text.size}). Received: an output of shape "
                f"{tuple(output.shape)}. A model that predicts only the token "
                "after the last one, (batch, vocabulary), is not supported: "
                "let its recurrent layer return sequences, and leave out the "
                "layer that takes the last position; the weights stay the same."
            )
        return output

    def _chosen(self, found):
        """Returns the output that is named, or the only one that fits."""
        named = _named(found, self._model)
        wanted = self._options.output
        if wanted is not None:
            if isinstance(wanted, int) and 0 <= wanted < len(named):
                return list(named.values())[wanted]
            if wanted in named:
                return named[wanted]
            raise ValueError(
                "`output` is the name or the number of the output that holds "
                f"the logits, one of {list(named)}. Received: "
                f"output={wanted!r}"
            )
        if len(named) == 1:
            return next(iter(named.values()))
        size = self._target_text.size
        fit = {
            name: x
            for name, x in named.items()
            if len(x.shape) == 3 and x.shape[-1] == size
        }
        if len(fit) != 1:
            shapes = {name: tuple(x.shape) for name, x in named.items()}
            raise ValueError(
                "Of several outputs of a model, one must hold the logits, "
                f"of shape (batch, target, {size}) for this target text. "
                f"Received: the outputs {shapes}. Pass the name or the number "
                "of the right one, `Translator(..., output=...)`."
            )
        return next(iter(fit.values()))


def _logits(output):
    """Returns the logits, or the logarithms, of a model's output."""
    if not ends_in_softmax(output):
        return output
    logits = before_softmax(output)
    return LogProbabilities()(output) if logits is None else logits


def _without_time_distributed(operation):
    """Returns the layer inside a `TimeDistributed` if it computes the same.

    In a graph of unknown sizes, Keras's layer confuses the batch with the time.
    """
    if type(operation) is layers.TimeDistributed and (
        type(operation.layer) in _POSITION_WISE
    ):
        return lambda inputs, **_: operation.layer(inputs)
    return operation


def _named(found, model) -> dict:
    """Returns the outputs of a call by their names, else by their numbers."""
    if isinstance(found, Mapping):
        return dict(found)
    flat = keras.tree.flatten(found)
    if not is_functional(model):
        return dict(enumerate(flat))
    if isinstance(model.output, Mapping):
        places = keras.tree.pack_sequence_as(model.output, [*range(len(flat))])
        name_of = {i: name for name, i in places.items()}
        names = [name_of[i] for i in range(len(flat))]
    else:
        names = _distinct(model.output_names)
    return dict(zip(names, flat, strict=True))


def _distinct(names):
    """Numbers names that repeat, as Keras gives a layer's outputs one name."""
    return [
        f"{x}:{names[:i].count(x)}" if names.count(x) > 1 else x
        for i, x in enumerate(names)
    ]


def _id_of(token, text: Text) -> int:
    if token not in text.tokens:
        raise ValueError(
            "`padding` is the token that pads sources, one of the source "
            f"text. Received: padding={token!r}, which it does not have."
        )
    return text.tokens.index(token)
