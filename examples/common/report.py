"""Reports on models that pronounce words: error rates, tables."""

import sys
import time
from collections.abc import Sequence

import keras_attn
from common import cmudict
from common.samples import Samples

# For each preset, the highest rates of wrong words and of wrong phonemes that
# it may have on our own split, in percent.
PROMISES = {"demo": (36.0, 9.0)}


def error_rates(translator, pronunciations: dict[str, list[str]]):
    """Returns the shares of wrong words and of wrong phonemes.

    A word is right if the translator gives any of its pronunciations. If it
    gives none, the nearest one counts.
    """
    hypotheses = translator(list(pronunciations)).text
    return keras_attn.metrics.error_rates(
        [hypothesis.split() for hypothesis in hypotheses],
        [
            [one.split() for one in several]
            for several in pronunciations.values()
        ],
    )


def watch(model, split, letters, phonemes, note: str = ""):
    """Returns callbacks that show how well words held out are pronounced.

    One prints a few of them during the first epoch, the other logs their error
    rate after each.

    Args:
        model: The model to train.
        split: The `Split` that has the words, of which it takes the first 500.
        letters: `Text` of the words.
        phonemes: `Text` of the pronunciations.
        note: Text to follow the number of words in the line that it prints.
    """
    print(
        f"Training on {len(split.train):,} words{note}, "
        f"{model.count_params():,} parameters."
    )
    held_out = split.first(500).validation
    search = keras_attn.GreedySearch(cmudict.LONGEST)
    translator = keras_attn.Translator(model, letters, phonemes, search)
    rates = keras_attn.DecodingMetrics(
        translator,
        sources=list(held_out),
        references=list(held_out.values()),
        metrics={"phoneme_error_rate": "wer"},  # phonemes are the words here
        show=0,
    )
    return [Samples(translator, list(held_out)[:3]), rates]


def evaluate(
    translator,
    pronunciations: dict[str, list[str]],
    started: float | None,
    note: str = "",
):
    """Prints the error rates on words held out, and some of these words.

    Args:
        translator: The trained translator.
        pronunciations: The words held out.
        started: When the training started, by `time.monotonic()`; `None` if
            it was elsewhere.
        note: Text to follow the number of words.

    Returns:
        What `error_rates` returns.
    """
    took = ""
    if started is not None:
        took = f"Trained in {time.monotonic() - started:.0f} s. "
    rates = error_rates(translator, pronunciations)
    print(
        f"\n{took}On {len(pronunciations):,} words held out{note}:\n"
        f"  word error rate {100 * rates.sequence:.2f} %, "
        f"phoneme error rate {100 * rates.token:.2f} %"
    )
    words = list(cmudict.SHOWN)
    if not set(words) <= set(pronunciations):
        words = list(pronunciations)[: len(words)]
    print("\nWords it has never seen:")
    for word, result in zip(words, translator(words), strict=True):
        wanted = pronunciations[word]
        verdict = "as in" if result.text in wanted else "but in"
        print(
            f"  {word:14} {result.text:32} {result.score:7.3f}   {verdict} the "
            f"dictionary: {', '.join(wanted)}"
        )
    return rates


def print_alternatives(words: Sequence[str], answer: dict):
    """Prints a server's answer to `nbest`: each word's best hypotheses."""
    for word, texts, scores in zip(
        words, answer["texts"], answer["scores"], strict=True
    ):
        print(f"  {word}")
        for text, score in zip(texts, scores, strict=True):
            if score > float("-inf"):  # a row that is not used has -inf
                print(f"    {score:7.3f}  {text}")


def judge(rates, preset: str, attention: str, *changes) -> int:
    """Compares error rates with those promised, and returns an exit status.

    Args:
        rates: What `error_rates` returned.
        preset: Name of the preset.
        attention: Name of the attention.
        *changes: Other options. If one was given, nothing is promised.
    """
    promise = promised(preset, attention, *changes)
    if promise is None:
        return 0
    limits = (
        f"word error rate <= {promise[0]} %, phoneme error rate <= "
        f"{promise[1]} %"
    )
    if 100 * rates.sequence <= promise[0] and 100 * rates.token <= promise[1]:
        print(f"As promised: {limits}.")
        return 0
    print(f"NOT AS PROMISED: {limits}.", file=sys.stderr)
    return 1


def promised(preset: str, attention: str, *changes):
    """Returns the promise of a preset, or `None` if there is none."""
    usual = attention == "bahdanau" and not any(changes)
    return PROMISES.get(preset) if usual else None
