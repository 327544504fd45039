"""`Module`: a translator as part of a user's own `tf.Module`."""

import tensorflow as tf

from keras_attn.export.tf_saved_model.archive import resources_of


class Module(tf.Module):
    """A translator's functions, with the variables and tables they need.

    Keep it as an attribute of your own `tf.Module`, call its methods in your
    functions, and save your module with `tf.saved_model.save`. A module that
    tracks `model.variables` instead loads in Python, but fails in TensorFlow
    Serving with "Could not find variable", since Keras's variables only wrap
    those of TensorFlow.

    Args:
        translator: A `Translator`. The module uses its present models, search
            and texts. It uses the weights that the models have when they are
            called or saved.
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
            *inputs: The model's inputs except the last, which is the target;
                for a model of text, padded ids `(batch, length)`. There is no
                limit to the number of rows or their length, unlike in the
                exported signatures.

        Returns:
            `Hypotheses`, `N` for each row, best first. `strings(found.tokens)`
            returns their texts `(batch, N)`.
        """
        return self._pipeline.it.decode_ids(inputs)

    def decode(self, *sources):
        """Decodes sources as a call of the translator does.

        Args:
            *sources: A tensor for each source of the translator: strings
                `(batch,)`, or features `(batch, ...)`.

        Returns:
            A dictionary of the strings `texts` and the float32 `scores`, each
            `(batch, N)`, best first.
        """
        found = self._pipeline.it.decode(sources, {})
        return {"texts": found.texts, "scores": found.hypotheses.scores}

    def strings(self, ids):
        """Turns target ids `(..., time)` into strings `(...)`."""
        return self._pipeline.it.target_text.strings(ids)


class _Untracked:
    """Hides an object, as `it`, from TensorFlow's tracking of attributes."""

    def __init__(self, it):
        self.it = it
