"""The base class of functional models with their own training step."""

import keras


def computes_its_graph(call):
    """Marks a `call` that equals the model's graph outside of training."""
    call.computes_its_graph = True
    return call


class FunctionalModel(keras.Model):
    """Base class of functional models, which are saved with their graph.

    The constructor of a subclass takes `inputs`, `outputs`, the arguments in
    its configuration, and `name`. If a subclass has a `call` that differs from
    its graph only in training, decorate it with `computes_its_graph`.
    """

    @property
    def functional(self) -> keras.Model:
        """The graph as a plain model, with the same weights."""
        return keras.Model(self.inputs, self.outputs, name=self.name)

    def get_config(self):
        return {"functional": self.functional.get_config()}

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
