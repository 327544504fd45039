"""The content of a SavedModel: functions, and the objects that they use.

`keras.export.ExportArchive` does the same but traces every function twice: once
to find its variables and once, in another context, to save it. Tracing takes
most of the time of an export.
"""

import tensorflow as tf
from tensorflow.saved_model.experimental import TrackableResource


class Archive:
    """Collects functions, each traced once, and writes them as a SavedModel.

    Attributes:
        functions: The concrete functions by the names of their signatures.
    """

    def __init__(self):
        self.functions = {}
        self._resources = []

    def track_resources(self, roots) -> None:
        """Adds the tables, models and files that objects hold.

        Args:
            roots: Objects that TensorFlow tracks, such as a `tf.Module`.
        """
        self._resources += resources_of(roots)

    def add(self, name, function, specs) -> None:
        """Adds a signature.

        Args:
            name: Its name.
            function: A function from tensors to a dictionary of tensors.
            specs: A `tf.TensorSpec` for each argument.
        """
        traced = tf.function(function, input_signature=specs, autograph=False)
        self.functions[name] = traced.get_concrete_function()

    def write(self, directory) -> None:
        """Writes the SavedModel to a directory, each variable once."""
        module = tf.Module()
        module.resources = self._resources
        # A server restores only those variables that the module tracks.
        variables = {
            x.ref(): x for f in self.functions.values() for x in f.variables
        }
        module.all_variables = list(variables.values())
        # TensorFlow's log line would name the version's temporary directory.
        logger = tf.get_logger()
        logger.addFilter(_is_no_note)
        try:
            tf.saved_model.save(
                module, str(directory), signatures=self.functions
            )
        finally:
            logger.removeFilter(_is_no_note)


def _is_no_note(record) -> bool:
    return not str(record.msg).startswith("Assets written")


def resources_of(roots) -> list:
    """Returns the tables, models and files that objects hold.

    Args:
        roots: Objects that TensorFlow tracks, such as a `tf.Module`.
    """
    kept = TrackableResource, tf.saved_model.Asset
    return [
        x
        for root in roots
        for x in tf.train.TrackableView(root).descendants()
        if isinstance(x, kept)
    ]
