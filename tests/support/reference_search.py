"""Search by its documentation, in plain Python, one row at a time.

It is slow and keeps whole hypotheses in lists, so that it can be read beside
the docstrings of `keras_attn.decoding`; the tests hold the real searches equal
to it.
"""

import collections
import dataclasses
import math
from typing import NamedTuple


class Found(NamedTuple):
    tokens: tuple
    score: float
    finished: bool


@dataclasses.dataclass
class Options:
    """The options of a search, under the searches' own names."""

    num_beams: int = 1
    num_hypotheses: int = 1
    length_penalty: float = 0.0
    penalty: str = "gnmt"
    early_stopping: bool | str = False
    max_length: int = 5
    min_length: int = 1
    max_per_source: tuple | None = None
    min_per_source: tuple | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    coverage_penalty: float = 0.0
    cut: str = "last"
    length_offset: int = 0
    groups: int = 1
    diversity: float = 0.0
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0


@dataclasses.dataclass
class Row:
    """A model and the inputs of one row of a task.

    `logits` and `attention` are functions of the tokens so far: what the
    next one is chosen by, and where the step looked that chooses it.
    """

    logits: collections.abc.Callable
    attention: collections.abc.Callable
    end: int
    forbidden: tuple = ()
    source_length: int | None = None
    source_mask: tuple | None = None
    prefix: tuple = ()


def longest(row, options):
    """Returns the row's maximum number of tokens."""
    if options.max_per_source is None:
        return options.max_length
    limit = _per_source(options.max_per_source, row)
    return max(1, min(limit, options.max_length))


def shortest(row, options):
    """Returns the row's minimum number of tokens."""
    limit = options.min_length
    if options.min_per_source is not None:
        limit = max(limit, _per_source(options.min_per_source, row))
    return min(limit, longest(row, options))


def _per_source(pair, row):
    a, b = pair
    return math.floor(a * row.source_length + b + 1e-3)


def continuations(row, tokens, options):
    """Returns `{token: log-probability}` of all allowed next tokens."""
    logits = row.logits(tokens)
    forced = row.prefix[len(tokens) :][:1]
    if forced:
        may_come = forced
    else:
        logits = [
            _penalised(logit, options) if token in tokens else logit
            for token, logit in enumerate(logits)
        ]
        may_come = [
            token
            for token in range(len(logits))
            if token not in row.forbidden
            and not _repeats(tokens, token, options.no_repeat_ngram)
            and (token != row.end or len(tokens) + 1 >= shortest(row, options))
        ]
    total = math.log(math.fsum(math.exp(logit) for logit in logits))
    return {
        token: logits[token] - total
        for token in may_come
        if logits[token] > -math.inf
    }


def _penalised(logit, options):
    penalty = options.repetition_penalty
    return logit / penalty if logit > 0 else logit * penalty


def _repeats(tokens, token, n):
    """Returns whether the token completes an n-gram for the second time."""
    if not n:
        return False
    grown = (*tokens, token)
    earlier = [tokens[i : i + n] for i in range(len(tokens) - n + 1)]
    return len(grown) >= n and grown[-n:] in earlier


def score(row, tokens, logp, options):
    """Returns the score of a hypothesis that ends here."""
    return normalize(logp, len(tokens), options) + coverage(
        row, tokens, options
    )


def normalize(logp, length, options):
    length += options.length_offset
    base = (5 + length) / 6 if options.penalty == "gnmt" else length
    return logp / base**options.length_penalty


def coverage(row, tokens, options):
    """`beta * sum(log(min(c, 1)))` over the real source positions."""
    if not options.coverage_penalty:
        return 0.0
    attended = [row.attention(tokens[:t]) for t in range(len(tokens))]
    positions = [
        math.fsum(position) for position in zip(*attended, strict=True)
    ]
    real = row.source_mask or [True] * len(positions)
    return options.coverage_penalty * math.fsum(
        math.log(min(max(c, 1e-6), 1.0))
        for c, is_real in zip(positions, real, strict=True)
        if is_real
    )


@dataclasses.dataclass
class _Group:
    beams: list
    pool: list = dataclasses.field(default_factory=list)
    going: bool = True
    was_done_before: bool = False


def beam_search(row, options):
    """Returns the best hypotheses of one row, at most `num_hypotheses`."""
    beams = options.num_beams // options.groups
    groups = [_Group([((), 0.0)]) for _ in range(options.groups)]
    for length in range(1, longest(row, options) + 1):
        chosen = collections.Counter()
        for group in groups:
            group.was_done_before = not group.going
            if group.going:
                _advance(row, group, beams, chosen, options)
                group.going = group.going and not _stops(
                    row, group, beams, length, options
                )
    results = []
    for group in groups:
        cut = [
            Found(tokens, score(row, tokens, logp, options), False)
            for tokens, logp in group.beams
            if tokens
        ]
        cut.sort(key=lambda found: -found.score)
        found = [*group.pool, *cut]
        results += found[:beams] if options.groups > 1 else found
    apart = options.cut == "last" or groups[0].was_done_before
    results.sort(key=lambda found: (apart and not found.finished, -found.score))
    return results[: options.num_hypotheses]


def _advance(row, group, beams, chosen, options):
    candidates = [
        ((*tokens, token), total + logp)
        for tokens, total in group.beams
        for token, logp in continuations(row, tokens, options).items()
    ]
    if not candidates:  # the beams stay as they are, and are cut here
        group.going, group.was_done_before = False, True
        return

    def value(candidate):
        tokens, total = candidate
        return total - options.diversity * chosen[tokens[-1]]

    candidates.sort(key=lambda candidate: -value(candidate))
    candidates = candidates[: 2 * beams]
    for tokens, total in candidates[:beams]:
        if tokens[-1] == row.end:
            found = score(row, tokens, total, options)
            group.pool.append(Found(tokens, found, True))
    group.pool.sort(key=lambda found: -found.score)
    del group.pool[beams:]
    group.beams = [x for x in candidates if x[0][-1] != row.end][:beams]
    chosen.update(tokens[-1] for tokens, _ in group.beams)


def _stops(row, group, beams, length, options):
    if not group.beams:
        return True
    if len(group.pool) < beams:
        return False
    if options.early_stopping is True:
        return True
    never = options.early_stopping == "never"
    at = longest(row, options) if never else length
    best = max(total for _, total in group.beams)
    return group.pool[-1].score >= normalize(best, at, options)


def greedy_search(row, options):
    """Returns the greedy hypothesis in a list, empty if there is none."""
    return _chain(row, options, lambda logps, t: max(logps, key=logps.get))


def sampling(row, options, numbers):
    """Draws hypotheses with uniform `numbers[hypothesis][time]`."""
    found = [
        hypothesis
        for own in numbers[: options.num_hypotheses]
        for hypothesis in _chain(
            row, options, lambda logps, t, own=own: draw(logps, own[t], options)
        )
    ]
    return sorted(found, key=lambda found: -found.score)


def _chain(row, options, pick):
    tokens, total = (), 0.0
    while len(tokens) < longest(row, options):
        logps = continuations(row, tokens, options)
        if not logps:
            break
        token = pick(logps, len(tokens))
        tokens, total = (*tokens, token), total + logps[token]
        if token == row.end:
            return [Found(tokens, total, True)]
    return [Found(tokens, total, False)] if tokens else []


def draw(logps, number, options):
    """Returns the token that a uniform number picks."""
    tokens = sorted(logps, key=lambda token: -logps[token])
    if options.top_k:
        tokens = tokens[: options.top_k]
    mass = {
        token: math.exp((logps[token] - logps[tokens[0]]) / options.temperature)
        for token in tokens
    }
    stays, share = {}, options.top_p * math.fsum(mass.values())
    for token in tokens:
        if options.top_p == 1 or math.fsum(stays.values()) < share:
            stays[token] = mass[token]
    at, passed = number * math.fsum(stays.values()), 0.0
    for token in sorted(stays):
        passed += stays[token]
        if passed > at:
            return token
    raise ValueError(f"number={number} is not less than 1")


def every_hypothesis(row, options):
    """Returns all finished hypotheses, best first, by trying everything."""
    found = []

    def grow(tokens, total):
        for token, logp in continuations(row, tokens, options).items():
            grown, sum_ = (*tokens, token), total + logp
            if token == row.end:
                found.append(
                    Found(grown, score(row, grown, sum_, options), True)
                )
            elif len(grown) < longest(row, options):
                grow(grown, sum_)

    grow((), 0.0)
    return sorted(found, key=lambda found: -found.score)


def log_probability(row, tokens):
    """Returns a sequence's log-probability by the model alone, recomputed."""
    everything = Options()
    return math.fsum(
        continuations(row, tokens[:i], everything)[token]
        for i, token in enumerate(tokens)
    )


MASK = 2**32 - 1


def numbers_of(seed, count, length):
    """Returns the uniform numbers of a row, by hypothesis and time."""
    return [
        [
            (threefry((seed & MASK, 0), (hypothesis, time))[0] >> 9) / 2**23
            for time in range(length)
        ]
        for hypothesis in range(count)
    ]


def threefry(key, counter):
    """Threefry-2x32-20 in Python's integers."""
    keys = (*key, key[0] ^ key[1] ^ 0x1BD11BDA)
    x, y = ((counter[i] + keys[i]) & MASK for i in range(2))
    for i in range(5):
        for r in ((13, 15, 26, 6), (17, 29, 16, 24))[i % 2]:
            x = (x + y) & MASK
            y = ((y << r | y >> (32 - r)) & MASK) ^ x
        x = (x + keys[(i + 1) % 3]) & MASK
        y = (y + keys[(i + 2) % 3] + i + 1) & MASK
    return x, y
