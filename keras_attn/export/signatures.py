"""The functions behind the signatures, named as they are."""

import tensorflow as tf

from keras_attn.export.steps import Steps
from keras_attn.text import PAD

PLAIN = ("serving_default", "nbest", "align", "ids")
STEPS = ("encode", "step", "strings")
FURTHER = ("options", "score", *STEPS)

_IDS = (
    tf.TensorSpec([None, None], tf.int32, name="ids"),
    tf.TensorSpec([None], tf.int32, name="lengths"),
)
_PREFIX = tf.TensorSpec([None], tf.string, name="prefix")
_TARGET = tf.TensorSpec([None], tf.string, name="target")


class Signatures:
    """Functions of flat inputs, and what their tensors are called.

    Args:
        graph: `Graph` of a translator, its texts read from files.
    """

    def __init__(self, graph):
        self.graph = graph
        self.sources = graph.sources.specs
        self._steps = Steps(graph)

    @staticmethod
    def names(further) -> tuple[str, ...]:
        """The plain signatures, and the further ones asked for."""
        if further == "all":
            further = FURTHER
        if isinstance(further, str) or set(further) - {*PLAIN, *FURTHER}:
            raise ValueError(
                '`signatures` must be "all" or a list of some of '
                f"{list(FURTHER)}; {list(PLAIN)} are always there. Received: "
                f"signatures={further!r}"
            )
        wanted = set(further)
        if wanted & {"encode", "step"}:  # none is of use alone
            wanted |= {*STEPS}
        return *PLAIN, *(x for x in FURTHER if x in wanted)

    def specs(self, name) -> tuple[tf.TensorSpec, ...]:
        """The inputs of a signature, by name."""
        if name == "ids" and self.graph.sources.reads_text:
            return _IDS
        if name == "options":
            specs = *self.sources, *self._request_specs()
        elif name == "score":
            specs = *self.sources, _TARGET
        elif name in ("step", "strings"):
            return self._steps.specs(name)
        else:
            return self.sources
        names = [spec.name for spec in specs]
        twice = {x for x in names if names.count(x) > 1}
        if twice:
            raise ValueError(
                f"The signature '{name}' has inputs of its own beside the "
                f"model's. Received a model with inputs named {twice} too. "
                "Build it with other names, or leave the signature out."
            )
        return specs

    def function(self, name):
        """The function of a signature, of as many tensors as its inputs."""
        if name == "ids" and not self.graph.sources.reads_text:
            return self.ids_of_features
        return getattr(self._steps if name in STEPS else self, name)

    def serving_default(self, *given):
        decoded = self.graph.decode(given, {})
        return {
            "text": decoded.texts[:, 0],
            "score": decoded.hypotheses.scores[:, 0],
        }

    def nbest(self, *given):
        decoded = self.graph.decode(given, {})
        return {"texts": decoded.texts, "scores": decoded.hypotheses.scores}

    def align(self, *given):
        decoded = self.graph.decode(given, {})
        found = decoded.hypotheses
        return {
            "text": decoded.texts[:, 0],
            "score": found.scores[:, 0],
            "source_tokens": decoded.source_tokens,
            "source_length": decoded.source_lengths,
            "tokens": decoded.tokens[:, 0],
            "length": found.lengths[:, 0],
            "alignments": found.alignments[:, 0],
            **decoded.report._asdict(),
        }

    def ids(self, ids, lengths):
        columns = tf.shape(ids)[1]
        (lengths,) = _rows_of("ids", ids, lengths=lengths)
        real = tf.sequence_mask(lengths, columns)
        # RNNs refuse a length of zero.
        missing = tf.cast(columns == 0, tf.int32)
        ids = tf.pad(tf.where(real, ids, PAD), [[0, 0], [0, missing]])
        return self.ids_of_features(ids)

    def ids_of_features(self, *inputs):
        found = self.graph.search_inputs(inputs, {}).hypotheses
        return {
            "ids": found.tokens,
            "lengths": found.lengths,
            "scores": found.scores,
        }

    def options(self, *tensors):
        given = tensors[: len(self.sources)]
        names = [spec.name for spec in self._request_specs()]
        asked = tensors[len(self.sources) :]
        asked = dict(zip(names, asked, strict=True))
        asked = dict(
            zip(names, _rows_of("options", given[0], **asked), strict=True)
        )
        request = {"prefix": asked.pop("prefix")}
        if self.graph.samples:
            seed = asked.pop("seed")
            fresh = self.graph.fresh_seeds(tf.shape(seed)[0])
            request["seed"] = tf.where(seed < 0, fresh, seed)
        request["options"] = self.graph.own_where_negative(asked)
        decoded = self.graph.decode(given, request)
        scores = decoded.hypotheses.scores
        return {
            "text": decoded.texts[:, 0],
            "score": scores[:, 0],
            "texts": decoded.texts,
            "scores": scores,
            **decoded.report._asdict(),
        }

    def score(self, *tensors):
        *given, target = tensors
        (target,) = _rows_of("score", given[0], target=target)
        scored = self.graph.score(tuple(given), target)
        return {
            "score": scored.scores,
            "token_scores": scored.token_scores,
            "length": scored.lengths,
            **scored.report._asdict(),
        }

    @property
    def numbers_asked(self) -> list[tf.TensorSpec]:
        """The inputs of `options` that are numbers, one for each row."""
        dtypes = {"seed": tf.int32} if self.graph.samples else {}
        dtypes |= self.graph.search.request_options
        return [
            tf.TensorSpec([None], dtype, name=name)
            for name, dtype in dtypes.items()
        ]

    def _request_specs(self):
        return [_PREFIX, *self.numbers_asked]


def _rows_of(signature, first, **others):
    """Refuses tensors that have not as many rows as the first."""
    rows = tf.shape(first)[0]
    checks = [
        tf.debugging.Assert(
            rows == tf.shape(x)[0],
            [f"{signature} needs one of {name} for each row. Rows, {name}:"]
            + [rows, tf.shape(x)[0]],
        )
        for name, x in others.items()
    ]
    with tf.control_dependencies([x for x in checks if x is not None]):
        return [tf.identity(x) for x in others.values()]
