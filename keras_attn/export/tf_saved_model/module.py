"""`Module`: a translator within a `tf.Module` of a user's own."""

import tensorflow as tf

from keras_attn.export.tf_saved_model.archive import resources_of


class Module(tf.Module):
    """A translator's functions, and all that an export of them must hold.

    Keep it as an attribute of a `tf.Module` of your own, call it in your
    functions and save your module by `tf.saved_model.save`. A module that
    tracks `model.variables` instead loads in Python and fails in TensorFlow
    Serving with "Could not find variable", since Keras's variables only wrap
    those of TensorFlow.

    Args:
        translator: A `Translator`. The module keeps its models, search and
            texts as they are now; weights may change.
    """

    def __init__(self, translator):
        super().__init__(name="translator")
        pipeline = translator.pipeline
        pipeline = pipeline.for_export(pipeline.sizes)
        self._pipeline = _Untracked(pipeline)
        variables = {
            x.value.ref(): x.value
            for model in translator.models
            for x in model.variables
        }
        rules = translator.search.rules
        tables = [x for rule in rules for x in rule.variables]
        self._all_variables = [*variables.values(), *tables]
        texts = [text for _, text in translator.pipeline.sources.texts]
        texts.append(translator.target_text)
        roots = [root for text in texts for root in text.resources()]
        if translator.glossary is not None:
            roots.append(translator.glossary.table)
        self._resources = resources_of(roots)

    def decode_ids(self, *inputs):
        """Decodes the model's source inputs.

        Args:
            *inputs: The model's inputs but the last, such as ids
                `(batch, length)`, padded. Unlike those of the signatures,
                their number and length are not bounded.

        Returns:
            `Hypotheses`. `strings(found.tokens)` has their texts.
        """
        return self._pipeline.it.decode_ids(inputs)

    def decode(self, *sources):
        """Decodes sources as a call of the translator does.

        Args:
            *sources: The translator's sources: strings `(batch,)`, or
                features.

        Returns:
            A dictionary of the `texts` and `scores`, each `(batch, N)`.
        """
        found = self._pipeline.it.decode(sources, {})
        return {"texts": found.texts, "scores": found.hypotheses.scores}

    def strings(self, ids):
        """Turns target ids `(..., time)` into strings."""
        return self._pipeline.it.target_text.strings(ids)


class _Untracked:
    """Holds an object that TensorFlow shall not look into."""

    def __init__(self, it):
        self.it = it
