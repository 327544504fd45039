"""`Fields`: the fields of a `config.json`, each of which is read or refused."""

from typing import Any

from keras_attn.layers.gelu_tanh import gelu_tanh

# Keras's activations, by their names in Hugging Face
ACTIVATIONS: dict[str, Any] = {
    "gelu": "gelu",
    "gelu_new": gelu_tanh,
    "gelu_pytorch_tanh": gelu_tanh,
    "relu": "relu",
    "silu": "silu",
    "swish": "silu",
    "tanh": "tanh",
    "sigmoid": "sigmoid",
    "linear": "linear",
}
# Fields of generation, which older files store among the others.
GENERATION = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "exponential_decay_length_penalty",
    "force_bos_token_to_be_generated",
    "forced_decoder_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "remove_invalid_values",
    "repetition_penalty",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
}
# Fields that do not change results.
_WITHOUT_EFFECT = {
    "_name_or_path",
    "_num_labels",
    "architectures",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "chunk_size_feed_forward",
    "classif_dropout",
    "classifier_dropout",
    "classifier_proj_size",
    "cross_attention_hidden_size",
    "dense_act_fn",  # says `feed_forward_proj` again
    "dtype",
    "extra_pos_embeddings",
    "finetuning_task",
    "gradient_checkpointing",
    "id2label",
    "is_gated_act",
    "init_std",
    "initializer_factor",
    "label2id",
    "max_source_positions",
    "max_target_positions",
    "model_type",
    "n_positions",
    "num_labels",
    "num_hidden_layers",  # says `encoder_layers` again
    "output_attentions",
    "output_hidden_states",
    "output_past",
    "output_scores",
    "prefix",
    "problem_type",
    "return_dict",
    "return_dict_in_generate",
    "save_step",
    "sep_token_id",
    "task_specific_params",
    "tf_legacy_loss",
    "tokenizer_class",
    "torch_dtype",
    "torchscript",
    "transformers_version",
    "use_bfloat16",
    "use_cache",
    "use_weighted_layer_sum",  # of a classifier
}
# These drop layers, or parts of the features, at random in training, which is
# not done here. They do not change predictions.
_TRAINING_ALONE = {
    "apply_spec_augment",
    "decoder_layerdrop",
    "encoder_layerdrop",
    "mask_feature_length",
    "mask_feature_min_masks",
    "mask_feature_prob",
    "mask_time_length",
    "mask_time_min_masks",
    "mask_time_prob",
}
# Fields with one value in all models that are read
_USUAL: dict[str, Any] = {
    "add_cross_attention": False,
    "is_decoder": False,
    "is_encoder_decoder": True,
    "pruned_heads": {},
    "quantization_config": None,
    "tie_encoder_decoder": False,
}
# Values of a field that is unused
_NOTHING: tuple = (None, False, 0, "", [], {})


class Fields:
    """Fields of a `config.json`, each of which is read or refused."""

    def __init__(self, fields: dict):
        self._fields = fields
        known = _WITHOUT_EFFECT | _TRAINING_ALONE | GENERATION
        self._left = {x: y for x, y in fields.items() if x not in known}

    def _value(self, name, default, valid, kind) -> Any:
        value = self._left.pop(name, self._fields.get(name))
        if value is None:
            return default
        if not valid(value):
            raise ValueError(
                f"`{name}` in `config.json` must be {kind}. Received: "
                f"{value!r:.200}"
            )
        return value

    def whole(self, name, default):
        return self._value(
            name,
            default,
            lambda x: _is_whole(x) and x > 0,
            "a positive integer",
        )

    def id(self, name, default):
        return self._value(
            name, default, lambda x: _is_whole(x) and x >= 0, "an id"
        )

    def end(self, default):
        value = self._left.get("eos_token_id")
        if isinstance(value, list) and len(value) == 1:
            self._left["eos_token_id"] = value[0]
        return self.id("eos_token_id", default)

    def truth(self, name, default):
        return self._value(
            name, default, lambda x: isinstance(x, bool), "true or false"
        )

    def rate(self, name, default):
        return float(
            self._value(
                name,
                default,
                lambda x: isinstance(x, (int, float)) and 0 <= x < 1,
                "a rate from 0 to 1",
            )
        )

    def number(self, name, default):
        return float(
            self._value(
                name,
                default,
                lambda x: isinstance(x, (int, float)) and x > 0,
                "a number above 0",
            )
        )

    def one_of(self, name, known, default):
        """Returns the item of `known` for a field's value."""
        found = self._value(
            name,
            default,
            lambda x: isinstance(x, str) and x in known,
            f"one of {', '.join(sorted(known))}",
        )
        return known[found]

    def require_usual(self, **usual):
        """Refuses fields whose value differs from the one that is supported.

        Args:
            **usual: The supported values of this family's fields, in addition
                to those of all families.
        """
        for name, value in (_USUAL | usual).items():
            given = self._left.pop(name, None)
            if given is not None and given != value:
                raise ValueError(
                    f"`{name}` in `config.json` must be {value!r} for this "
                    f"family of models. Received: {given!r:.200}. With another "
                    "value the model computes something else."
                )

    def require_none_left(self, family):
        left = {x: y for x, y in self._left.items() if y not in _NOTHING}
        if left:
            shown = ", ".join(f"{x}={y!r:.60}" for x, y in sorted(left.items()))
            raise ValueError(
                "A field of `config.json` may change what a model computes, "
                f"so all must be known. Received: {shown} in a model of "
                f"{family}. If a field has no effect, delete it."
            )


def _is_whole(x):
    return isinstance(x, int) and not isinstance(x, bool)
