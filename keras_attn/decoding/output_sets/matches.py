"""`Matches`: limits outputs to matches of a regular expression."""

import keras
import numpy as np

from keras_attn.decoding.output_sets.automaton import Automaton
from keras_attn.decoding.output_sets.automaton import steps_to_end
from keras_attn.decoding.output_sets.output_set import OutputSet
from keras_attn.text.word_groups import pieces_of

_ADVICE = "The whole output is matched, so leave out `^` and `$`."


@keras.saving.register_keras_serializable("keras_attn")
class Matches(OutputSet):
    r"""Limits outputs to texts that match a regular expression as a whole.

    The package outlines-core, part of the extra `constraints`, converts the
    expression to an automaton over the tokens of the target text (Willard and
    Louf, 2023). An export does not need the package. The syntax is that of
    Rust's `regex`, without lookahead or lookbehind. The unknown token and the
    character U+0000 are never written. An output that reaches `max_length`
    before it matches is cut. The size of the table depends on the pattern:
    `(a|b)*a(a|b){18}` has a million states.

    Args:
        pattern: The regular expression.

    References:
        - [Willard and Louf, 2023](https://arxiv.org/abs/2307.09702)

    Raises:
        ValueError: If the pattern is not a string. A `Translator` refuses one
            that is not a regular expression, or that no output of at most
            `max_length` tokens matches.

    Example:
        >>> rule = keras_attn.Matches(r"\d{4}-\d\d-\d\d")
        >>> search = keras_attn.BeamSearch(3, rules=[rule])
    """

    def __init__(self, pattern):
        if not isinstance(pattern, str):
            raise ValueError(
                "`pattern` of `Matches` must be a string. Received: "
                f"pattern={pattern!r:.80}. For a compiled expression pass its "
                "`pattern`."
            )
        self.pattern = pattern

    def automaton_for(self, text, max_length):
        pieces = _Pieces(text)
        transitions, first, finals = _index(self.pattern, pieces)
        # State 0 is that before the first token.
        numbers = {x: i for i, x in enumerate(transitions, start=1)}
        states = len(numbers) + 1
        found = []
        for state, number in ((first, 0), *numbers.items()):
            edges = transitions.get(state, {})
            if edges.get(pieces.end) in finals:  # not a byte 0 in the pattern
                found.append((number, text.special.end, states))
            found += [
                (number, token, numbers[target])
                for token, target in pieces.edges(edges, begins=number == 0)
                if target in numbers
            ]
            if number == 0 and first in numbers:
                found += [(0, token, numbers[first]) for token in pieces.blanks]
        edges = np.array(found, "int64").reshape(-1, 3)
        sources, tokens, targets = edges.T
        left = steps_to_end(sources, targets, states)
        if not 0 <= left[0] <= max_length:
            reason = "no tokens of the target text match it"
            if left[0] > 0:
                reason = (
                    f"the shortest output has {left[0]} tokens, the end "
                    f"counted, with max_length={max_length}"
                )
            raise ValueError(
                "`Matches` needs a pattern that an output can match. Received: "
                f"{self.pattern!r:.200}; {reason}. {_ADVICE}"
            )
        leads = left[targets] >= 0
        return Automaton(sources[leads], tokens[leads], targets[leads], states)

    def get_config(self):
        return {"pattern": self.pattern}


class _Pieces:
    """The bytes that tokens add to a text, within it and at its beginning.

    For outlines-core each token has two ids: its own within a text, and at the
    beginning its own plus the size of the vocabulary. All single bytes are also
    tokens, with larger ids, since outlines-core refuses patterns that no tokens
    can match. `edges` leaves these out.

    Attributes:
        by_piece: Dictionary from the bytes of a token to ids.
        end: Id of the byte 0, which ends a text. No other token contains it.
        blanks: Tokens that add nothing at the beginning, such as a lone space
            of SentencePiece.
    """

    def __init__(self, text):
        self._size = size = text.size
        self.end, self.blanks = 2 * size, []
        unknown = text.special.unknown
        usual = [i for i in text.special.of_text(size) if i != unknown]
        alone = text.strings([[i] for i in usual]).numpy()
        within = pieces_of(text)
        self.by_piece: dict[bytes, list[int]] = {
            bytes([i]): [self.end + i] for i in range(256)
        }
        for i, begin in zip(usual, alone, strict=True):
            piece = within[i]
            if not _is_text(piece):  # alone it is shown as U+FFFD
                begin = piece if begin[:1] == b" " else piece.lstrip(b" ")
            elif not begin and piece.isspace():
                self.blanks.append(i)
            for x, token in ((piece, i), (begin, size + i)):
                if x and b"\0" not in x:
                    self.by_piece.setdefault(x, []).append(token)

    @property
    def unused(self) -> int:
        """An id that no token has."""
        return self.end + 256

    def edges(self, edges, begins) -> list[tuple[int, int]]:
        """Returns pairs of a token of the text and the next state.

        Args:
            edges: Dictionary from ids of outlines-core to next states.
            begins: Whether the tokens are at the beginning of a text.
        """
        least = self._size if begins else 0
        return [
            (x - least, y)
            for x, y in edges.items()
            if 0 <= x - least < self._size
        ]


def _is_text(piece):
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _index(pattern, pieces):
    """Returns the transitions, the first state and the final states.

    A byte 0 ends a text. Without this end, outlines-core 0.2.14 does not
    continue a text that already matches: for `a(bc)?` it finds no "b" after
    "a".
    """
    try:
        from outlines_core import Index
        from outlines_core import Vocabulary
    except ImportError as error:
        raise ImportError(
            "`Matches` needs the package outlines-core. Received: an "
            "environment without it. Install it by `pip install "
            "'keras-attn[constraints]'`."
        ) from error
    some = {bytes([i]): [i] for i in range(1, 256)}
    try:
        Index(pattern, Vocabulary(256, some))  # "a)(b" is none, though within
        ended = rf"(?:{pattern})\x00"  # of these it would be
        index = Index(ended, Vocabulary(pieces.unused, pieces.by_piece))
    except ValueError as error:
        raise ValueError(
            "`pattern` of `Matches` must be a regular expression of Rust's "
            f"`regex`, without looking ahead or back. {_ADVICE} Received: "
            f"{pattern!r:.200}. The error was: {error}"
        ) from error
    return (
        index.get_transitions(),
        index.get_initial_state(),
        index.get_final_states(),
    )
