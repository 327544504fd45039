"""Checks the lists of rows that metrics take."""


def lists_of(**given) -> list[list]:
    """Returns arguments as lists with equal numbers of rows.

    Each argument may be any iterable, such as a generator.

    Raises:
        ValueError: If one is a single string or not iterable, if their numbers
            of rows differ, or if they have no rows.
    """
    for name, rows in given.items():
        if isinstance(rows, (str, bytes)) or not hasattr(rows, "__iter__"):
            raise ValueError(
                f"`{name}` must be a list with an item for each row. "
                f"Received: {name}={rows!r:.80}. Pass a single item in a list "
                "of one."
            )
    lists = [list(rows) for rows in given.values()]
    counts = {name: len(rows) for name, rows in zip(given, lists, strict=True)}
    if len(set(counts.values())) > 1:
        received = " and ".join(f"{n} {name}" for name, n in counts.items())
        raise ValueError(
            f"{_named(given)} must have an item for each row. Received: "
            f"{received}. Put several references of one row into a list."
        )
    if not lists[0]:
        raise ValueError(
            "A metric needs at least one row, because it is undefined for "
            f"none. Received: no {next(iter(given))}. Pass the decoded "
            "rows."
        )
    return lists


def _named(given):
    *first, last = (f"`{name}`" for name in given)
    return f"{', '.join(first)} and {last}"
