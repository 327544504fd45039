"""Search as the documentation tells it, in plain Python, one row at a time.

It is slow and keeps whole hypotheses in lists, so that it can be read beside
the docstring of `BeamSearch`; the tests hold the real searches equal to it.
"""

import itertools
import math
from typing import NamedTuple


class Found(NamedTuple):
    tokens: tuple
    score: float
    finished: bool


class Options(NamedTuple):
    width: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 0.0
    penalty: str = "gnmt"
    early_stopping: bool | str = False
    max_length: int = 5
    min_length: int = 1


def normalise(logp, length, options):
    base = (5 + length) / 6 if options.penalty == "gnmt" else length
    return logp / base**options.length_penalty


def beam_search(logps, end, forbidden, options):
    """Searches one row.

    Args:
        logps: Function from a tuple of tokens to the list of the next
            token's log-probabilities.
        end: Id of the end token.
        forbidden: Ids that may not come.
        options: `Options`.

    Returns:
        List of `Found`, best first, at most `num_hypotheses`.
    """
    beams, pool = [((), 0.0)], []
    for length in range(1, options.max_length + 1):
        candidates = [
            ((*tokens, token), total + logp)
            for tokens, total in beams
            for token, logp in enumerate(logps(tokens))
            if token not in forbidden
            and (token != end or length >= options.min_length)
        ]
        candidates.sort(key=lambda candidate: -candidate[1])
        candidates = candidates[: 2 * options.width]
        for tokens, total in candidates[: options.width]:
            if tokens[-1] == end:
                score = normalise(total, length, options)
                pool.append(Found(tokens, score, True))
        pool.sort(key=lambda found: -found.score)
        pool = pool[: options.width]
        beams = [x for x in candidates if x[0][-1] != end][: options.width]
        if not beams or _stops(beams[0][1], pool, length, options):
            break
    cut = [
        Found(tokens, normalise(total, length, options), False)
        for tokens, total in beams
    ]
    return [*pool, *cut][: options.num_hypotheses]


def _stops(best, pool, length, options):
    if len(pool) < options.width:
        return False
    if options.early_stopping is True:
        return True
    at = options.max_length if options.early_stopping == "never" else length
    return pool[-1].score >= normalise(best, at, options)


def greedy_search(logps, end, forbidden, max_length, min_length=1):
    """The likeliest token at every step, one row: a `Found`."""
    tokens, score = (), 0.0
    for length in range(1, max_length + 1):
        allowed = [
            (logp, token)
            for token, logp in enumerate(logps(tokens))
            if token not in forbidden and (token != end or length >= min_length)
        ]
        logp, token = max(allowed)
        tokens, score = (*tokens, token), score + logp
        if token == end:
            return Found(tokens, score, True)
    return Found(tokens, score, False)


def every_sequence(logps, end, forbidden, options):
    """All that end within the lengths allowed, best first: exhaustive."""
    letters = [
        token
        for token in range(len(logps(())))
        if token != end and token not in forbidden
    ]
    found = []
    for length in range(options.min_length, options.max_length + 1):
        for beginning in itertools.product(letters, repeat=length - 1):
            tokens = (*beginning, end)
            logp = log_probability(logps, tokens)
            score = normalise(logp, length, options)
            found.append(Found(tokens, score, True))
    return sorted(found, key=lambda found: -found.score)


def log_probability(logps, tokens):
    """Of a sequence of tokens, recomputed token by token."""
    return math.fsum(logps(tokens[:i])[x] for i, x in enumerate(tokens))
