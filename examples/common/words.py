"""Splits sentences into words and punctuation, and joins them as they were."""

import keras
import tensorflow as tf

import keras_attn

JOINT = "\uffed"  # a small square, as in OpenNMT's tokenizer


@keras.saving.register_keras_serializable("keras_attn_examples")
class Words(keras_attn.Splitter):
    """Words and punctuation, each a token.

    A mark tells where punctuation touches what stands before or after it, so
    the tokens can be joined again: "(see help)." becomes "(￭", "see", "help",
    "￭)" and "￭.".

    Example:
        >>> words = Words()
        >>> pieces = words.split(["(see help)."])
        >>> words.join(pieces).numpy()
        array([b'(see help).'], dtype=object)
    """

    splits_alone = False  # the marks depend on what stands beside

    def split(self, strings):
        replace = tf.strings.regex_replace
        marked = replace(strings, r"\s+", "\n")
        marked = replace(marked, r"([\pP\pS])", rf" {JOINT}\1{JOINT} ")
        # One mark is enough between two signs, and none at a space or an end.
        marked = replace(marked, rf"{JOINT} ( {JOINT}|\n|$)", r" \1")
        marked = replace(marked, rf"(^|\n) {JOINT}", r"\1")
        return tf.strings.split(marked)

    def join(self, pieces):
        spaced = tf.strings.reduce_join(pieces, axis=-1, separator=" ")
        return tf.strings.regex_replace(spaced, f" ?{JOINT} ?", "")
