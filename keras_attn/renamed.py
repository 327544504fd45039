"""Old names of modules and their members, with errors that give the new."""

import importlib.abc
import sys

MODULES = {
    "alignments": "layers.alignments",
    "attention": "layers.attention",
    "batches": "training.batches",
    "callbacks": "training.callbacks",
    "cells": "layers.cells",
    "decoder": "layers.decoder",
    "decoding.task": "decoding.search_input",
    "findings": "diagnostics",
    "gradients": "viewing.saliency",
    "html": "viewing.html",
    "hub": "models.keras_hub",
    "losses": "training.losses",
    "marginal": "layers.marginal",
    "metrics": "training.metrics",
    "migration": "models.tf_addons",
    "parts": "layers.parts",
    "plots": "viewing.plots",
    "positions": "layers.positions",
    "regularizers": "training.regularizers",
    "reinforce": "training.reinforce",
    "scheduled_sampling": "training.scheduled_sampling",
    "schedules": "training.schedules",
    "scores": "layers.scores",
    "search": "decoding",
    "shortlist": "decoding.shortlist",
    "special_tokens": "text.special_tokens",
    "translator": "decoding.translator",
}

NAMES = {
    "Decode": "DecodingMetrics",
    "DecoderState": "layers.decoder.DecoderState",
    "Encoded": "incremental.Encoded",
    "Ensemble": "incremental.Ensemble",
    "Finding": "diagnostics.Finding",
    "History": "layers.attention.History",
    "Hypotheses": "decoding.Hypotheses",
    "Ids": "IntegerIds",
    "MarginalState": "layers.marginal.MarginalState",
    "Memory": "layers.attention.Memory",
    "Pairs": "training.batches.Pairs",
    "Part": "layers.parts.Part",
    "Resume": "ResumeTraining",
    "Sample": "layers.alignments.Sample",
    "Source": "layers.decoder.Source",
    "Token": "decoding.translator.Token",
    "Window": "layers.alignments.Window",
    "decoding.Task": "decoding.SearchInput",
    "edit_distance": "metrics.edit_distance",
    "error_rates": "metrics.error_rates",
}


def new_name(name: str) -> str | None:
    """Returns the new path in `keras_attn` for an old one, or `None`."""
    return NAMES.get(name) or MODULES.get(name)


def attribute_error(module: str, name: str) -> AttributeError:
    """Returns the error for a missing attribute of one of our modules."""
    place = f"{module}.".partition(".")[2]
    now = new_name(f"{place}{name}")
    return AttributeError(
        f"module {module!r} has no attribute {name!r}"
        + (f". It is `keras_attn.{now}` since version 0.4." if now else "")
    )


class _OldNames(importlib.abc.MetaPathFinder):
    """Finds no module, but raises an error with the new name for an old one.

    `from keras_attn import Decode` comes here too, because Python looks for a
    module `keras_attn.Decode`. Python ignores a `ModuleNotFoundError` whose
    `name` is that module, so the error has the package's name instead.
    """

    def find_spec(self, fullname, path, target=None):
        package, _, name = fullname.partition(".")
        if package == "keras_attn" and (now := new_name(name)):
            raise ModuleNotFoundError(
                f"`{fullname}` is `keras_attn.{now}` since version 0.4.",
                name=package,
            )
        return None


sys.meta_path.append(_OldNames())
