"""Converts the inputs that a user passes to arrays by name."""

import operator
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn_serving.wire import protocol
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import TensorSpec
from keras_attn_serving.wire.transport import ModelSpec

# What `options` and `terms` take besides the sources and numeric options.
_ASKED = ("prefix", "seed", "terms", "avoid")


def model_spec(model: str | None, version: int | str | None) -> ModelSpec:
    """Returns the model that a call is for.

    Raises:
        ValueError: If the model has no name, or the version is neither a number
            nor a label.
    """
    if model is None:
        raise ValueError(
            "A call needs the name of a model. Received: model=None. Name it "
            "once, `Client(address, model=...)`, or in each call, "
            "`predict(inputs, model=...)`."
        )
    if not isinstance(model, str):
        raise ValueError(
            f"`model` must be a string. Received: model={model!r:.200}"
        )
    if version is not None and not isinstance(version, str):
        try:
            version = operator.index(version)
        except TypeError:
            raise ValueError(
                "`version` must be a whole number such as 3, a label such as "
                '"stable", or None for the newest. Received: '
                f"version={version!r:.200}"
            ) from None
    return ModelSpec(model, version)


def by_name(inputs: Any) -> dict[str, np.ndarray]:
    """Returns inputs as arrays by name; a list of texts is named `text`."""
    if isinstance(inputs, str | bytes):
        raise ValueError(
            "`inputs` must be a batch. Received: the text "
            f"{inputs!r:.80}. For one text pass a list of one."
        )
    if isinstance(inputs, Mapping):
        return {name: protocol.as_array(x) for name, x in inputs.items()}
    array = protocol.as_array(inputs)
    if array.dtype != object:
        raise ValueError(
            "`inputs` without names must be a list of texts. Received: an "
            f"array of dtype {array.dtype}, shape {array.shape}. Pass numbers "
            "by the name of an input, as in `{'ids': ids}`; "
            "`client.metadata()` lists the names."
        )
    return {"text": array}


def sources(signature: str, signatures: Mapping[str, Signature]) -> list[str]:
    """Returns the names of a signature's inputs that are sources.

    `serving_default` takes nothing else. Without it, texts and features are
    known by what they are; lengths look like an option.

    Args:
        signature: `"options"` or `"terms"`.
        signatures: Those of the model, by name.
    """
    plain = signatures.get("serving_default", Signature({}, {})).inputs
    return [
        name
        for name, spec in signatures[signature].inputs.items()
        if name in plain or not (name in _ASKED or _one_number(spec))
    ]


def _one_number(spec):
    """Returns whether an input may have one number for each row."""
    one = spec.shape is None or len(spec.shape) == 1
    return one and spec.dtype != "string"


def require_sources(given: Mapping[str, Any], needed: Sequence[str]) -> None:
    """Raises `ValueError` unless all sources are given."""
    if missing := [name for name in needed if name not in given]:
        raise ValueError(
            f"`inputs` must hold all sources of the model, {needed}. Received: "
            f"{list(given)}, without {missing}. Pass an array or a list for "
            f"each by its name: {{{missing[0]!r}: ...}}."
        )


def wrong_dtypes(
    arrays: Mapping[str, np.ndarray], wanted: Mapping[str, TensorSpec]
) -> str:
    """Returns advice on inputs of the wrong dtype, "" if there are none."""
    wrong = []
    for name, array in arrays.items():
        sent = "string" if array.dtype == object else array.dtype.name
        if name in wanted and wanted[name].dtype != sent:
            dtype = wanted[name].dtype
            wrong.append(
                f"The input {name!r} must be {dtype}. Received: an array of "
                f"{sent}. Pass `array.astype({dtype!r})`."
            )
    return " ".join(wrong)


def phrases(
    rows: int, **given: Sequence[Sequence[str] | None] | None
) -> dict[str, np.ndarray]:
    """Returns the inputs for phrases, joined by line feeds; {} without any.

    Args:
        rows: Number of sources.
        **given: For each name of an input, a list of phrases or `None` per
            source; `None` for no phrases.

    Raises:
        ValueError: If these are not such lists, or a phrase is blank or has a
            line break.
    """
    if all(x is None for x in given.values()):
        return {}
    found = {}
    for name, lists in given.items():
        lists = [None] * rows if lists is None else lists
        fine = not isinstance(lists, str | bytes) and len(lists) == rows
        if not fine or not all(map(_are_phrases, lists)):
            raise ValueError(
                f"`{name}` must be a list with a list of strings, or None, for "
                "each source; no string may be blank or have a line break. "
                f"Received: {name}={lists!r:.200} for {rows} source(s)."
            )
        several = [() if x is None else map(str.strip, x) for x in lists]
        joined = ("\n".join(x) for x in several)
        # Lone surrogates, which are not valid text, are sent as U+FFFD.
        texts = [
            x.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
            for x in joined
        ]
        found[name] = np.array(texts, object)
    return found


def _are_phrases(given):
    if given is None:
        return True
    is_list = not isinstance(given, str | bytes) and hasattr(given, "__len__")
    return is_list and all(
        isinstance(x, str) and x.strip() and "\n" not in x.strip()
        for x in given
    )


class Options:
    """The inputs of the signature `options` besides the sources.

    Args:
        wanted: All inputs of the signature, by name.
        sources: The names of the sources.
    """

    def __init__(
        self, wanted: Mapping[str, TensorSpec], sources: Mapping[str, Any]
    ):
        self._draws = "seed" in wanted
        self._dtypes = {
            name: spec.dtype
            for name, spec in wanted.items()
            if name not in {"prefix", "seed", *sources}
        }

    def _by_input(self, options):
        """Returns options by their inputs' names.

        The number of beams is the input `width`; users may also call it
        `num_beams`.
        """
        given = dict(options)
        if "num_beams" in given and "num_beams" not in self._dtypes:
            if "width" in given:
                raise ValueError(
                    "`num_beams` and `width` are two names of one option. "
                    f"Received: options={given!r:.200}. Pass one of them."
                )
            given["width"] = given.pop("num_beams")
        return given

    def arrays(
        self,
        rows: int,
        prefixes: Sequence[str | None] | None,
        seed: int | Sequence[int] | None,
        options: Mapping[str, Any] | None,
    ) -> dict[str, np.ndarray]:
        """Returns the inputs; -1 stands for what is left out.

        Raises:
            ValueError: If the model does not take an option or a seed.
        """
        options = self._by_input(options or {})
        if unknown := set(options) - set(self._dtypes):
            raise ValueError(
                f"`options` may hold {sorted(self._dtypes)} for this model. "
                f"Received: {sorted(unknown)}"
            )
        if isinstance(prefixes, str | bytes):
            raise ValueError(
                "`prefixes` must be a list with a string, or None, for each "
                f"source. Received: the text {prefixes!r:.80}"
            )
        given = [""] * rows if prefixes is None else prefixes
        prefixes = [x or "" for x in given]
        return {
            **self._seeds(rows, seed),
            "prefix": _per_row("prefixes", prefixes, rows, "object"),
            **{
                name: _per_row(name, options.get(name, -1), rows, dtype)
                for name, dtype in self._dtypes.items()
            },
        }

    def _seeds(self, rows, seed):
        if seed is not None and not self._draws:
            raise ValueError(
                "`seed` needs a model that samples; this one draws nothing at "
                f"random. Received: seed={seed!r}. Leave it out."
            )
        if not self._draws:
            return {}
        if seed is None:
            return {"seed": _per_row("seed", -1, rows, "int32")}
        seeds = np.asarray(seed)
        if seeds.dtype.kind not in "iu" or np.any(seeds < 0):
            raise ValueError(
                "`seed` must be at least 0: an integer, or a list with one for "
                "each source; or None for a new seed in each call. Received: "
                f"seed={seed!r:.200}"
            )
        if not seeds.ndim:
            seeds = seeds.astype(np.int64) + np.arange(rows)
        return {"seed": _per_row("seed", seeds, rows, "int32")}


def _per_row(name, value, rows, dtype):
    """Returns one value, or one for each row, as an array `(rows,)`."""
    array = np.asarray(value)
    if array.dtype == object and dtype != "object":
        raise ValueError(
            f"`{name}` must be a number, or one for each row. Received: "
            f"{value!r:.200}. Leave out what the model decides."
        )
    if array.shape not in ((), (rows,)):
        raise ValueError(
            f"`{name}` must be one value, or one for each of the {rows} "
            f"row(s). Received: {value!r:.200}"
        )
    sent = array.astype(dtype)
    if sent.dtype.kind == "i" and not np.array_equal(sent, array):
        raise ValueError(
            f"`{name}` is sent as {dtype}, which must hold its value exactly. "
            f"Received: {value!r:.200}"
        )
    return np.broadcast_to(sent, (rows,))
