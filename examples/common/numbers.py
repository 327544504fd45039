"""Numbers up to a million, and how they are said."""

import numpy as np

ONES = (
    "zero one two three four five six seven eight nine ten eleven twelve "
    "thirteen fourteen fifteen sixteen seventeen eighteen nineteen"
).split()
TENS = "- - twenty thirty forty fifty sixty seventy eighty ninety".split()
WORDS = [*ONES, *TENS[2:], "hundred", "thousand"]

SHOWN = [7, 42, 365, 1984, 20_026, 123_456]


def say(number: int) -> str:
    """Says a number in words: 42 is "forty two"."""
    for size, name in (1000, "thousand"), (100, "hundred"):
        if number >= size:
            head, rest = divmod(number, size)
            return f"{say(head)} {name}" + (f" {say(rest)}" if rest else "")
    if number < 20:
        return ONES[number]
    tens, rest = divmod(number, 10)
    return TENS[tens] + (f" {ONES[rest]}" if rest else "")


def draw(count: int, seed: int) -> tuple[list[int], list[int]]:
    """Draws numbers at random: some to train on, and others to test with.

    Numbers below 100 are never held out: there are few, and all others are
    made of them.
    """
    held_out = {*_draw(300, seed + 1), *SHOWN}
    held_out = {number for number in held_out if number >= 100}
    drawn = _draw(count, seed)
    return [x for x in drawn if x not in held_out], sorted(held_out)


def _draw(count, seed):
    # The exponent is drawn evenly, so that there are as many numbers of two
    # digits as of six.
    random = np.random.default_rng(seed)
    return [int(x) for x in 10 ** random.uniform(0, 6, count)]


def evaluate(translator, numbers: list[int]):
    """Prints the share of the numbers that a translator says right."""
    found = translator([str(number) for number in numbers]).text
    right = [say(x) == text for x, text in zip(numbers, found, strict=True)]
    share = sum(right) / len(right)
    print(f"Of {len(right)} numbers held out, {share:.1%} are said right.")


def print_answers(numbers: list[int], answer: dict):
    """Prints what a server answered, and whether it is right."""
    for number, text, score in zip(
        numbers, answer["text"], answer["score"], strict=True
    ):
        verdict = "right" if text == say(number) else "wrong"
        print(f"  {number:>6}  {text}  ({score:.2f}, {verdict})")
