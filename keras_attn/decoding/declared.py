"""Checks the options that a search class declares."""

import keyword

from keras_attn.decoding.options import Choice
from keras_attn.decoding.options import Integer
from keras_attn.decoding.options import Real

# The other inputs of the signature `options` in an export.
_TAKEN = ("text", "prefix", "seed")


def require(cls, own, common, reserved) -> None:
    """Raises `TypeError` if a search class declares an invalid option.

    Args:
        cls: The search class.
        own: The options that it declares itself, by name.
        common: The options of every search by name.
        reserved: Names of attributes and methods of every search.
    """
    if own and "__init__" in vars(cls):
        raise TypeError(
            "A search gets its constructor from its options, which are the "
            f"arguments. Received: {cls.__name__} with options and an "
            "`__init__`. Declare an option for each argument, and write "
            "`check(self)` for conditions on several options."
        )
    known = dict(common)
    for base in reversed(cls.__mro__[1:]):
        fields = getattr(base, "__dataclass_fields__", {})
        known |= {
            name: x.metadata["option"]
            for name, x in fields.items()
            if "option" in x.metadata
        }
    for name in common:
        if name in vars(cls) and name not in own:
            raise TypeError(
                f"`{name}` is an option of every search. Received: "
                f"{cls.__name__} with {vars(cls)[name]!r:.80} under this name. "
                "Declare it as an option, or use another name."
            )
    former = {x.former_name: name for name, x in known.items()}
    for name, option in own.items():
        _require_name(cls, name, reserved)
        _require_kind(cls, name, option, common)
        limit = option.limited_by
        for used in name, limit:
            if used is not None and used in former:
                raise TypeError(
                    f"The option {used!r} is called {former[used]!r} since "
                    f"version 0.4. Received: {cls.__name__}.{name}, which has "
                    "the old name or is limited by it. Use the new name."
                )
        if limit is not None and limit not in known:
            raise TypeError(
                "An option is limited by a number, or by an option declared "
                f"before it. Received: {cls.__name__}.{name} with "
                f"high={limit!r}, which is none of {sorted(known)}. Declare "
                "the limit first, or pass a number."
            )
        if name in known:  # declared anew, with another default or range
            option.former_name = option.former_name or known[name].former_name
        known[name] = option


def _require_name(cls, name, reserved):
    if name in reserved or name in _TAKEN:
        raise TypeError(
            f"An option may not be named {name!r}: every search uses "
            f"this name for something else. Received: {cls.__name__} "
            "with such an option. Give the option another name."
        )
    if name.startswith("_") or keyword.iskeyword(name) or name == "self":
        raise TypeError(
            "An option is an argument of the constructor, so its name must "
            "begin with a letter and must not be a Python keyword or `self`. "
            f"Received: {cls.__name__} with an option {name!r}. Give the "
            "option another name."
        )


def _require_kind(cls, name, option, common):
    """Refuses an option that redeclares another with a different type."""
    wanted = type(common[name]) if name in common else None
    if name == "num_hypotheses":
        wanted = Integer
    if isinstance(option, Choice):  # its values are the author's
        return
    if wanted is not None and not isinstance(option, wanted):
        raise TypeError(
            f"`{name}` must be declared as {_article(wanted)}. Received: "
            f"{cls.__name__} with {_article(type(option))}. Change the type, "
            "or use another name."
        )
    if name == "num_hypotheses" and isinstance(option, Real):
        if not option.is_at_least(1):
            raise TypeError(
                "`num_hypotheses` must be at least 1. Received: "
                f"{cls.__name__}, whose option has no `low`, or one below 1. "
                "Declare it as `Integer(default=1, low=1)`."
            )


def _article(kind):
    return f"{'an' if kind is Integer else 'a'} `{kind.__name__}`"
