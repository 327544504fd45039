"""Old names of modules and of what they held: an error says the new name."""

import importlib.abc
import sys

MODULES = {
    "alignments": "layers.alignments",
    "attention": "layers.attention",
    "batches": "training.batches",
    "callbacks": "training.callbacks",
    "cells": "layers.cells",
    "decoder": "layers.decoder",
    "findings": "diagnostics",
    "gradients": "viewing.saliency",
    "html": "viewing.html",
    "hub": "models.keras_hub",
    "losses": "training.losses",
    "marginal": "layers.marginal",
    "metrics": "training.metrics",
    "migration": "models.tf_addons",
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
    "edit_distance": "metrics.edit_distance",
    "error_rates": "metrics.error_rates",
}


def new_name(name: str) -> str | None:
    """Returns the path in `keras_attn` of what once had this name there."""
    return NAMES.get(name) or MODULES.get(name)


class _OldModules(importlib.abc.MetaPathFinder):
    """Finds no module, but says where a module of ours went."""

    def find_spec(self, fullname, path, target=None):
        package, _, name = fullname.partition(".")
        if package == "keras_attn" and name in MODULES:
            raise ModuleNotFoundError(
                f"`{fullname}` is `keras_attn.{MODULES[name]}` since version "
                "0.4.",
                name=fullname,
            )
        return None


sys.meta_path.append(_OldModules())
