"""Models that spell words, and functions that read a search's results.

A model here is an automaton: in a state it gives letters logits, and each
letter leads to the next state. It attends to the state it is in most of all,
so an alignment tells the path that its hypothesis really took.
"""

import dataclasses

import numpy as np
import tensorflow as tf

from keras_attn.decoding import SearchInput
from keras_attn.decoding import StepModel
from support import reference_search as reference

PAD, START, END = 0, 1, 2
FORBIDDEN = (PAD, START)
LETTERS = {letter: i for i, letter in enumerate("_^.abcdefghijklmnopqrst")}


class Automaton:
    """Rows of logits `(batch, states, V)`, and where tokens lead.

    Args:
        logits: The logits in each state.
        leads_to: `(states, V)`, the state that each token leads to.
        attention: `(states, states)`, the attention of a step in a state.
    """

    def __init__(self, logits, leads_to, attention=None):
        self.logits = np.asarray(logits, "float32")
        self.leads_to = np.asarray(leads_to, "int32")
        # The start token finds the model in its first state.
        states = len(self.leads_to)
        self.leads_to[:, START] = np.arange(states)
        if attention is None:
            attention = np.eye(states)
        self.attention = np.asarray(attention, "float32")
        self.steps = 0

    def given(self, rows=None, **inputs):
        """Returns an input of these rows, with inputs of all rows by name."""
        rows = slice(None) if rows is None else rows
        inputs = tf.nest.map_structure(
            lambda x: tf.constant(np.asarray(x)[rows]), inputs
        )
        return SearchInput(_Rows(self, rows), START, END, FORBIDDEN, **inputs)

    def row(self, row, **inputs):
        """Returns one row of the input, for the reference."""
        mask, length, prefix = (
            inputs.get(name, [None] * (row + 1))[row]
            for name in ("source_mask", "source_lengths", "prefix")
        )
        return reference.Row(
            logits=lambda tokens: [
                float(x) for x in self.logits[row, self.path(tokens)[-1]]
            ],
            attention=lambda tokens: [
                float(x) for x in self.attention[self.path(tokens)[-1]]
            ],
            end=END,
            forbidden=FORBIDDEN,
            source_length=length,
            source_mask=None if mask is None else tuple(mask),
            prefix=() if prefix is None else tuple(x for x in prefix if x),
        )

    def path(self, tokens):
        states = [0]
        for token in tokens:
            states.append(int(self.leads_to[states[-1], token]))
        return states


class _Rows(StepModel):
    """Some rows of an automaton, as a search runs them."""

    def __init__(self, automaton, rows):
        self._automaton = automaton
        self._logits = tf.constant(automaton.logits[rows])
        self._leads_to = tf.constant(automaton.leads_to)
        self._attention = tf.constant(automaton.attention)
        self.rows = self._logits.shape[0]

    def start(self, beams, places=None):
        return tf.zeros([self.rows, beams], tf.int32)

    def step(self, tokens, state):
        self._automaton.steps += 1
        flat = state * self._leads_to.shape[1] + tokens
        state = tf.gather(tf.reshape(self._leads_to, [-1]), flat)
        return (
            tf.gather(self._logits, state, batch_dims=1),
            tf.gather(self._attention, state),
            state,
        )


def speller(*rows):
    """Returns a model of each row's words, `{word: probability}`."""
    beginnings = {""}
    for row in rows:
        for word in row:
            beginnings.update(word[:i] for i in range(len(word) + 1))
    states = {beginning: i for i, beginning in enumerate(sorted(beginnings))}
    nowhere = len(states)  # behind letters of probability zero
    logits = np.full([len(rows), nowhere + 1, len(LETTERS)], -np.inf)
    logits[:, nowhere] = 0.0
    leads_to = np.full([nowhere + 1, len(LETTERS)], nowhere)
    for beginning, state in states.items():
        for letter, token in LETTERS.items():
            leads_to[state, token] = states.get(beginning + letter, nowhere)
            for row, words in enumerate(rows):
                here = _share(words, beginning)
                if letter == ".":
                    there = words.get(beginning, 0.0)
                else:
                    there = _share(words, beginning + letter)
                if there:
                    logits[row, state, token] = np.log(there / here)
    return Automaton(logits, leads_to)


def _share(words, beginning):
    return sum(p for word, p in words.items() if word.startswith(beginning))


def babbler(**logits):
    """Returns a model of one state, with the same logits at every step.

    Letters have the logits given, `end` is the end token; no others come.
    """
    row = np.full([1, 1, len(LETTERS)], -np.inf)
    for letter, logit in logits.items():
        row[..., END if letter == "end" else LETTERS[letter]] = logit
    return Automaton(row, np.zeros([1, len(LETTERS)]))


def tokens_of(*words, length=None):
    """Returns a prefix for each row, padded with zeros."""
    size = max(map(len, words)) if length is None else length
    ids = [[LETTERS[letter] for letter in word] for word in words]
    return np.array([row + [0] * (size - len(row)) for row in ids], "int32")


def spell(hypotheses, row=0):
    """Returns the words found for a row; those that were cut end in a dash."""
    words = []
    for tokens, length, finished in zip(
        hypotheses.tokens.numpy()[row],
        hypotheses.lengths.numpy()[row],
        hypotheses.finished.numpy()[row],
        strict=True,
    ):
        word = "".join(list(LETTERS)[token] for token in tokens[:length])
        assert finished == word.endswith(".")
        words.append(word[:-1] if finished else word + "-")
    return words


def random_automaton(seed, batch=1, letters=2, sharpness=1.5, layers=7):
    """Four states for each length, so that no two sums are equal."""
    random = np.random.default_rng(seed)
    states, size = 4 * layers, 3 + letters
    layer = np.minimum(np.arange(states) // 4 + 1, layers - 1)
    logits = sharpness * random.normal(size=[batch, states, size])
    leads_to = 4 * layer[:, None] + random.integers(4, size=[states, size])
    elsewhere = random.dirichlet(np.full(states, 0.1), size=states)
    attention = 0.7 * np.eye(states) + 0.3 * elsewhere
    return Automaton(logits, leads_to, attention)


def as_reference(search, row=0, options=None):
    """Returns the search's options for the reference, with a row's own."""
    own = dataclasses.asdict(search) | {
        name: np.asarray(x)[row].item() for name, x in (options or {}).items()
    }
    own.pop("rules")
    made = reference.Options(**own)
    if hasattr(search, "num_beams"):
        made.num_hypotheses = min(search.num_hypotheses, made.num_beams)
    return made


def assert_found(hypotheses, row, expected, automaton):
    """Compares tokens, lengths, scores, flags and alignments."""
    number = hypotheses.tokens.shape[1]
    for n in range(number):
        length = int(hypotheses.lengths[row, n])
        tokens = hypotheses.tokens.numpy()[row, n]
        alignment = hypotheses.alignments.numpy()[row, n]
        if n >= len(expected):  # there are no more: missing
            assert length == 0
            assert hypotheses.scores[row, n] == -np.inf
            assert not hypotheses.finished[row, n]
        else:
            found = expected[n]
            assert tuple(tokens[:length]) == found.tokens
            assert bool(hypotheses.finished[row, n]) == found.finished
            np.testing.assert_allclose(
                hypotheses.scores[row, n], found.score, rtol=1e-5, atol=1e-5
            )
            path = automaton.path(found.tokens[:-1])
            np.testing.assert_allclose(
                alignment[:length], automaton.attention[path]
            )
        assert not tokens[length:].any()
        assert not alignment[length:].any()


def assert_same(left, right):
    assert left.columns == right.columns == ()  # only a translator has them
    fields = [x for x in left._fields if x != "columns"]
    for name in fields:
        x, y = getattr(left, name), getattr(right, name)
        if x.dtype.is_floating:
            np.testing.assert_allclose(x, y, atol=1e-5, err_msg=name)
        else:
            np.testing.assert_array_equal(x, y, err_msg=name)
