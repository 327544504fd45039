"""One call of a layer in the graph of a model."""

import inspect

import keras


class Call:
    """One call of a layer, or of an operation of `keras.ops`, in a graph.

    Keras passes masks as arguments of such calls. Here masks of the target
    are `None`, because a search decodes no padding.

    Attributes:
        layer: The layer or operation.
        arguments: The arguments of its `call` by name, with the graph's
            symbolic tensors.
        outputs: List of the symbolic tensors that it returned.
        depends: Function of a structure that returns whether one of its
            tensors depends on the target.
    """

    def __init__(self, layer, args, kwargs, outputs, depends):
        self.layer = layer
        self.outputs = outputs
        self.depends = depends
        self._args = args
        self._kwargs = kwargs
        self._signature = inspect.signature(layer.call)
        self.arguments = self.by_name(args, kwargs)

    @property
    def input_tensors(self) -> list:
        """The symbolic tensors among the arguments."""
        return [
            x
            for x in keras.tree.flatten((self._args, self._kwargs))
            if isinstance(x, keras.KerasTensor)
        ]

    def fill_in(self, values) -> tuple:
        """Returns positional and named arguments, with values for tensors.

        Args:
            values: A dictionary from the `id` of each symbolic tensor to its
                value.
        """
        return keras.tree.map_structure(
            lambda x: values[id(x)] if isinstance(x, keras.KerasTensor) else x,
            (self._args, dict(self._kwargs)),
        )

    def run(self, args, kwargs) -> list:
        """Returns the outputs for the arguments that `fill_in` returned."""
        if takes(self.layer, "training"):
            kwargs = {**kwargs, "training": False}
        return keras.tree.flatten(self.layer(*args, **kwargs))

    def by_name(self, args, kwargs) -> dict:
        """Returns all arguments as a dictionary by name."""
        return dict(self._signature.bind(*args, **kwargs).arguments)

    def as_called(self, arguments) -> tuple:
        """Splits arguments by name into positional and named arguments.

        Keras takes only tensors by position. So an argument is positional
        only if it was positional in the graph.
        """
        args, named = [], dict(arguments)
        for parameter in self._signature.parameters.values():
            if parameter.kind is parameter.VAR_POSITIONAL:
                args += named.pop(parameter.name, ())
            elif parameter.kind is parameter.VAR_KEYWORD:
                named |= named.pop(parameter.name, {})
            elif len(args) < len(self._args):
                args.append(named.pop(parameter.name))
        return args, named


def takes(layer, name) -> bool:
    """Whether a layer's `call` has an argument of this name."""
    return isinstance(layer, keras.Layer) and name in (
        inspect.signature(layer.call).parameters
    )
