"""A model version on disk: found, loaded, and run."""

from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_attn_serving.engine import Engine
from keras_attn_serving.errors import StatusError
from keras_attn_serving.validation import plan

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class LoadError(Exception):
    """A model directory that cannot be served, and why."""


class Model:
    """A loaded version of a model.

    It takes and returns arrays and knows no protocol: `predict` converts the
    messages of gRPC.

    Args:
        name: The name under which the model is served.
        base_path: Directory of its versions: subdirectories whose names are
            integers. The newest, the largest number, is loaded.

    Attributes:
        version: Number of the version.
        path: Its directory.
        signatures: Each `Signature` by its name.
        definitions: The signatures as `SignatureDef` messages by name, as
            the SavedModel stores them.

    Raises:
        LoadError: If there is no version to load, or the newest fails to load.
    """

    def __init__(self, name: str, base_path: str):
        self.name = name
        self.version, self.path = newest_version(base_path)
        try:
            self._engine = Engine(self.path)
        except (StatusError, OSError, RuntimeError, ValueError) as error:
            raise LoadError(
                f"Version {self.version} of model {name!r} at {self.path} "
                f"cannot be loaded: {error}"
            ) from error
        self.signatures = self._engine.signatures
        self.definitions = self._engine.definitions

    def run(
        self,
        signature: str,
        arrays: Mapping[str, np.ndarray],
        outputs: Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Runs a signature. Several threads may call it at once.

        Args:
            signature: Its name, such as `DEFAULT_SIGNATURE`.
            arrays: Arrays by the names of its inputs, of exactly their
                dtypes: strings as `bytes` or `str` in an object array.
            outputs: Names of the outputs to return; none for all.
            timeout: Seconds until the run is cancelled.

        Returns:
            Arrays by the names of the outputs, strings as `bytes`.

        Raises:
            StatusError: If the request is at fault or the run fails, with
                TensorFlow Serving's code and words.
        """
        feeds, fetches = plan(self.signatures, signature, arrays, outputs)
        values = self._engine.run(feeds, tuple(fetches.values()), timeout)
        return dict(zip(fetches, values, strict=True))

    def close(self) -> None:
        """Frees the model."""
        self._engine.close()


def newest_version(base_path: str) -> tuple[int, str]:
    """Returns the largest version number under `base_path`, and its directory.

    Raises:
        LoadError: If there is none.
    """
    if not tf.io.gfile.isdir(base_path):
        raise LoadError(
            f"The model's base path must be a directory of versions. "
            f"Received: {base_path!r}, which is not a directory."
        )
    if tf.io.gfile.exists(tf.io.gfile.join(base_path, "saved_model.pb")):
        raise LoadError(
            "The model's base path must be the directory above the versions. "
            f"Received: {base_path!r}, which is itself a SavedModel. Move it "
            "to a subdirectory named by its version, such as "
            f"{tf.io.gfile.join(base_path, '1')!r}, or, if it is in one, "
            "pass the directory above."
        )
    versions = {}
    for entry in tf.io.gfile.listdir(base_path):
        entry = entry.rstrip("/")  # object stores append it to directories
        path = tf.io.gfile.join(base_path, entry)
        if entry.isascii() and entry.isdigit() and tf.io.gfile.isdir(path):
            versions[int(entry)] = path
    if not versions:
        raise LoadError(
            "The model's base path must hold a directory for each version, "
            f"named by an integer, such as {base_path}/1. Received: "
            f"{base_path!r}, which has none."
        )
    return max(versions.items())
