"""Finds the `Utility` for an argument `metric`."""

from keras_attn.reranking.bleu import Bleu
from keras_attn.reranking.chrf import Chrf
from keras_attn.reranking.error_rate import ErrorRate
from keras_attn.reranking.utility import FunctionUtility
from keras_attn.reranking.utility import Utility

BY_NAME = {
    "chrf": Chrf,
    "bleu": Bleu,
    "wer": lambda: ErrorRate(str.split),
    "cer": lambda: ErrorRate(list),
    "ser": ErrorRate,
}


def utility_of(metric) -> Utility:
    """Returns the utility for a name, a function or a `Utility`."""
    if isinstance(metric, Utility):
        return metric
    if isinstance(metric, str) and metric in BY_NAME:
        return BY_NAME[metric]()
    if callable(metric) and not isinstance(metric, type):
        return FunctionUtility(metric)
    known = ", ".join(f'"{x}"' for x in BY_NAME)
    raise ValueError(
        f"`metric` must be one of {known}, a function of (hypothesis, "
        "reference) that returns a number, greater for better hypotheses, or a "
        f"`keras_attn.reranking.Utility`. Received: metric={metric!r:.80}"
    )
