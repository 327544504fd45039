"""The base class of functional models with a training of their own."""

import keras


class FunctionalModel(keras.Model):
    """A functional model whose subclass is saved with its graph.

    A subclass takes `inputs`, `outputs`, the arguments in its configuration,
    and `name`.
    """

    def get_config(self):
        functional = keras.Model(self.inputs, self.outputs, name=self.name)
        return {"functional": functional.get_config()}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        functional = keras.Model.from_config(
            config.pop("functional"), custom_objects
        )
        return cls(
            functional.inputs,
            functional.outputs,
            name=functional.name,
            **config,
        )
