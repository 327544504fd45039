"""`check()`: finds mistakes in a model and its data before training."""

import re

import keras
import numpy as np

from keras_attn.diagnostics.finding import Finding
from keras_attn.diagnostics.finding import Findings
from keras_attn.diagnostics.first_batches import Unusable
from keras_attn.diagnostics.first_batches import first_batches
from keras_attn.diagnostics.ids import Batches
from keras_attn.diagnostics.ids import filled_by
from keras_attn.diagnostics.made_up_inputs import examples_for
from keras_attn.diagnostics.objective import Objective
from keras_attn.diagnostics.probes import Probes
from keras_attn.graph.flat_graph import Graph
from keras_attn.graph.flat_graph import tables_of
from keras_attn.graph.model_runs import ModelRuns
from keras_attn.graph.probabilities import logits_instead
from keras_attn.keras_internals import is_functional
from keras_attn.text.special_tokens import PAD
from keras_attn.training.functional_model import FunctionalModel


def check(
    model: keras.Model, data=None, padding_id: int = PAD
) -> list[Finding]:
    """Looks for mistakes in a model and in its training data.

    Call it before `fit`: many mistakes would otherwise show only after hours
    of training, or never. The model may be new or trained, compiled or not.
    It is run on made-up inputs, with its own weights and with perturbed ones.
    The perturbed weights open gates that are initialized to zero, so mistakes
    behind these gates are found too. Nothing in the model changes: no weight,
    statistic, seed or optimizer.

    | kind | certain mistakes, which raise an error |
    |---|---|
    | `leak` | a layer lets logits see later tokens of the target |
    | `neighbours` | a row's logits depend on the other rows of its batch |
    | `graph` | a layer computes different results in a graph than eagerly |
    | `shift` | target_out is target_in itself, or moved the wrong way |
    | `ids` | a negative id, or an id that an `Embedding` does not know |
    | `vocabulary` | an id that the output layer has no logit for |
    | `length` | target_out and target_in of different lengths |
    | `softmax` | a softmax before a loss that takes logits |
    | `logits` | logits before a loss that takes probabilities |
    | `one-hot` | one-hot targets for a loss that takes ids, or the reverse |
    | `finite` | NaN or infinity in the data, the output or the loss |
    | `inputs`, `weights`, `dtype` | arrays that do not fit the model |
    | `run` | the model or the loss fails on the first batch |

    | kind | possible mistakes, which only warn |
    |---|---|
    | `mask` | padding changes the results, or counts in the loss |
    | `padding` | padding before tokens, or another padding id in the loss |
    | `shift` | most targets are not the next token of the input |
    | `length` | targets that go on after the input has ended |
    | `empty` | a batch whose targets are all padding |
    | `ignored` | an input that the output does not depend on |
    | `random` | random draws with `training=False` |
    | `softmax` | a softmax at the end of a model that is not compiled |
    | `dtype` | ids as floats |
    | `run` | the model fails on all made-up inputs, or on all with padding |

    Args:
        model: A functional model whose last input is the target's ids and
            whose first output has shape `(batch, target, vocabulary)`.
        data: Optional data in any form that `model.fit` takes: a
            `tf.data.Dataset` of `((source, target_in), target_out)`, as
            `keras_attn.pairs` returns it, with or without sample weights; a
            tuple of arrays of that form; a `keras.utils.PyDataset`; or a
            list of batches. The first four batches are checked, or for arrays
            the first 800 rows. Reading a dataset that reshuffles in each
            pass counts as one pass.
        padding_id: Id of padding in sources and targets. Defaults to `0`; a
            pretrained vocabulary may have another, `text.special.pad`.

    Returns:
        A list of the warnings, each a `Finding(kind, layer, text)`.

    Raises:
        ValueError: If there are certain mistakes; the message lists them all.
            Or if the model is not a functional one with these inputs and
            outputs, or `data` is a generator, which yields each batch only
            once.

    Example:
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> embed = keras.layers.Embedding(9, 8, mask_zero=True)
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8)
        ... )(embed(target), embed(source))
        >>> model = keras.Model([source, target], keras.layers.Dense(9)(hidden))
        >>> model.compile("adam", loss=keras_attn.SequenceCrossentropy())
        >>> keras_attn.check(model)
        []
    """
    functional = _functional(model)
    _require_decoder(model, functional)
    findings = Findings()
    graph = Graph(functional)
    runs = ModelRuns(model, graph)
    tables, sizes = zip(
        *(tables_of(graph, key) for key in graph.inputs), strict=True
    )
    batches = _batches_of(model, data, findings)
    objective = Objective(model)
    if batches:
        last = graph.writer(graph.outputs[0])
        Batches(
            batches,
            model.inputs,
            tables,
            model.outputs[0],
            last.name if last else None,
            findings,
            padding_id,
            objective.left_out,
        ).look()
    probes = _probes(model, runs, sizes, findings, padding_id)
    if probes is not None:
        probes.look()
        _check_activation(probes, objective, findings)
    if objective:
        _check_padding_id(objective, batches, graph, findings)
    if batches and objective:
        _check_loss(runs, objective, batches[0], probes, findings, padding_id)
    return findings.report()


def _functional(model):
    """Returns the functional model that a model computes, or `None`.

    For a `FunctionalModel` this is its graph without its own training step,
    because `check` runs nothing with `training=True`.
    """
    if not isinstance(model, keras.Model) or not is_functional(model):
        return None
    return model.functional if isinstance(model, FunctionalModel) else model


def _require_decoder(model, functional):
    if functional is None:
        raise ValueError(
            "`check` needs a functional model that writes a target. Received: "
            f"{model!r:.200}. Build `keras.Model([source, target], logits)`."
        )
    if isinstance(model.input, dict) or len(model.inputs) < 2:
        raise ValueError(
            "`check` is for models that predict a target: their inputs are a "
            "list of the sources and, last, the target's ids. Received: "
            f"{model.input if isinstance(model.input, dict) else model.inputs}"
            ". Build `keras.Model([source, target], logits)`."
        )
    target, logits = model.inputs[-1], model.outputs[0]
    if len(target.shape) != 2 or len(logits.shape) != 3:
        raise ValueError(
            "The model's last input must be the target's ids, of shape "
            "(batch, target), and its first output the logits, (batch, "
            f"target, vocabulary). Received: an input '{target.name}' of "
            f"shape {tuple(target.shape)}, an output of shape "
            f"{tuple(logits.shape)}. Build `keras.Model([source, target], "
            "logits)`."
        )


def _batches_of(model, data, findings):
    if data is None:
        return []
    try:
        batches = first_batches(data, model.inputs, model.output_names)
    except Unusable as error:
        findings.wrong("inputs", None, str(error))
        return []
    if not batches:
        findings.wrong(
            "inputs",
            None,
            "The data must have at least one batch. Received: "
            f"{data!r:.200}, which has no batch. Pass other data, or None.",
        )
    return batches


def _probes(model, runs, sizes, findings, padding_id):
    random = np.random.default_rng(20261121)
    examples, error = examples_for(
        model,
        sizes,
        runs.graph.sizes(),
        lambda arrays: runs.logits(arrays, runs.weights()),
        random,
        padding_id,
    )
    if examples is None:
        findings.doubtful(
            "run",
            None,
            "The model fails on all made-up inputs, so leaks and padding "
            f"could not be checked. Its error: {_first_line(error)}",
        )
        return None
    if error is not None:
        findings.doubtful(
            "run",
            None,
            "The model fails on all made-up inputs with padding, so the "
            "effect of padding could not be checked. Its error: "
            f"{_first_line(error)}",
        )
    return Probes(runs, examples, random, findings)


def _check_activation(probes, objective, findings):
    if findings.has_wrong("finite"):
        return
    softmax = probes.probabilities()
    if softmax is not None and objective.from_logits is not False:
        add = findings.wrong if objective.from_logits else findings.doubtful
        where = (
            f"the loss, {objective.name}, takes logits"
            if objective.from_logits
            else "a loss must know: `SequenceCrossentropy` takes logits, "
            "unless it is made with `from_logits=False`"
        )
        add(
            "softmax",
            softmax.name,
            f"{softmax} returns probabilities, but {where}. "
            f"{logits_instead(softmax.operation)}",
        )
    if objective and objective.from_logits is False and softmax is None:
        lowest, highest = probes.range()
        if lowest < 0 or highest > 1:
            name = probes.last_name
            findings.wrong(
                "logits",
                name,
                f"'{name}' returns logits, from {lowest:.2g} to {highest:.2g}, "
                f"but the loss, {objective.name}, takes probabilities. Compile "
                "with `keras_attn.SequenceCrossentropy()`, or pass "
                "`from_logits=True` to the loss.",
            )


def _check_padding_id(objective, batches, graph, findings):
    """Checks that the loss ignores the id that pads the targets."""
    taken = objective.padding_id
    if taken is None or findings.has_wrong("inputs", "length", "one-hot"):
        return
    fills = {filled_by(x.target) for x in batches} - {None}
    masking = [
        call.name
        for call in graph.readers(graph.inputs[-1])
        if getattr(call.operation, "mask_zero", False)
    ]
    found, where = taken, ""
    if len(fills) == 1:
        (found,) = fills
        where = f"target_out is padded with {found} in the data"
    elif not fills and masking:
        found = PAD
        where = f"'{masking[0]}' takes 0 for padding (`mask_zero=True`)"
    if found != taken:
        findings.doubtful(
            "padding",
            None,
            f"{objective.name} leaves out the id {taken} as padding, but "
            f"{where}. So padding would count in the loss, and tokens of the "
            f"id {taken} would not. Pass `padding_id={found}` to the loss.",
        )


def _check_loss(runs, objective, batch, probes, findings, padding_id):
    """Checks the loss of the first batch, before any training."""
    broken = "inputs", "length", "ids", "vocabulary", "dtype", "one-hot"
    if findings.has_wrong(*broken, "weights", "finite"):
        return
    if objective.sparse is not None and (
        objective.sparse
        != (batch.target.ndim == 2 or batch.target.shape[2] == 1)
    ):
        findings.wrong(
            "one-hot",
            None,
            f"The loss, {objective.name}, takes "
            + ("ids (batch, target)" if objective.sparse else "one-hot targets")
            + f". Received: target_out of shape {batch.target.shape}. "
            + (
                "Pass `target_out.argmax(-1)`, or `target_out[..., 0]` if it "
                "has one column of ids."
                if objective.sparse
                else "Compile with `keras_attn.SequenceCrossentropy()`."
            ),
        )
        return
    try:
        logits, mask = runs.outputs(batch.inputs, runs.weights())
        loss = objective.of(batch.target, logits, mask, batch.weight)
    except Exception as error:  # layers and losses may raise any error
        call, plain = runs.failure(batch.inputs, runs.weights())
        findings.wrong(
            "run",
            call.name if call else None,
            f"{call or f'The loss, {objective.name},'} fails on the first "
            f"batch of the data: {_first_line(plain or error)}",
        )
        return
    if not np.isfinite(loss):
        findings.wrong(
            "finite",
            None,
            f"The loss of the first batch is {loss}, by {objective.name}, "
            "before any training. Look for rows without tokens, sample weights "
            "that are all zero, and divisions in the loss.",
        )
    elif mask is None and batch.target.ndim == 2 and probes is not None:
        padding = batch.target == padding_id
        _check_padding_in_loss(
            objective, batch, padding, logits, loss, probes, findings
        )


def _check_padding_in_loss(
    objective, batch, padding, logits, loss, probes, findings
):
    if not padding.any() or padding.all() or objective.from_logits is None:
        return
    # Changes the outputs at padding, which must not change the loss. A token
    # that is forbidden, by minus infinity, stays so.
    finite = np.isfinite(logits) & np.isfinite(logits[..., ::-1])
    at = padding[..., None] & finite
    other = np.where(at, logits[..., ::-1], logits)
    changed = objective.of(batch.target, other, None, batch.weight)
    if np.isclose(loss, changed, rtol=1e-5, atol=1e-7):
        return
    layer, why = probes.loses_target_mask()
    findings.doubtful(
        "mask",
        layer,
        f"{objective.name} counts the padding of target_out, because the "
        f"output has no mask: {why} Or compile with "
        "`keras_attn.SequenceCrossentropy()`, which leaves padding out by "
        "itself.",
    )


def _first_line(error):
    lines = [x.strip() for x in str(error).splitlines()]
    framing = "Exception encountered", "Graph execution", "Detected at"
    lines = [x for x in lines if x and not x.startswith(framing)]
    said = re.sub(r"\{\{.*?\}\}", "", lines[0] if lines else "").strip()
    return f"{type(error).__name__}: {said}"[:300]
