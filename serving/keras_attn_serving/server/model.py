"""Finds, loads and runs the versions of a model on disk."""

from collections.abc import Iterable
from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_attn_serving.server.engine import Engine
from keras_attn_serving.server.engine import Session
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.validation import Plan
from keras_attn_serving.server.validation import plan

DEFAULT_SIGNATURE = tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY


class LoadError(Exception):
    """A model directory that cannot be served, and why.

    Attributes:
        code: The code of TensorFlow's error, if it was one.
    """

    def __init__(self, text: str, code: Code = Code.UNKNOWN):
        super().__init__(text)
        self.code = code


class Model:
    """A loaded version of a model.

    It takes and returns arrays and knows no protocol: `predict` converts the
    messages of gRPC, `rest` those of HTTP.

    Args:
        name: The name under which the model is served.
        version: Number of the version.
        path: Its directory, with `saved_model.pb` in it.
        session: How TensorFlow runs it. Defaults to `Session()`.

    Attributes:
        signatures: Each `Signature` by its name.
        definitions: The signatures as `SignatureDef` messages by name, as
            the SavedModel stores them.

    Raises:
        LoadError: If it fails to load.
    """

    def __init__(
        self,
        name: str,
        version: int,
        path: str,
        session: Session | None = None,
    ):
        self.name, self.version, self.path = name, version, path
        try:
            self._engine = Engine(path, session or Session())
        except Exception as error:  # whatever a file on disk may hold
            code = error.code if isinstance(error, StatusError) else None
            raise LoadError(
                f"Version {version} of model {name!r} at {path} cannot be "
                f"loaded: {error}",
                code or Code.UNKNOWN,
            ) from error
        self.signatures = self._engine.signatures
        self.definitions = self._engine.definitions

    def plan(
        self,
        signature: str,
        arrays: Mapping[str, np.ndarray],
        outputs: Iterable[str] = (),
    ) -> Plan:
        """Checks a request.

        Args:
            signature: Name of the signature, such as `DEFAULT_SIGNATURE`.
            arrays: Arrays by the names of its inputs, of exactly their
                dtypes: strings as `bytes` or `str` in an object array.
            outputs: Names of the outputs to return; none for all.

        Raises:
            StatusError: If the request is invalid, with TensorFlow Serving's
                code and message.
        """
        return plan(self.signatures, signature, arrays, outputs)

    def execute(
        self, plan: Plan, timeout: float | None = None
    ) -> dict[str, np.ndarray]:
        """Runs a plan. Several threads may call it at once.

        Args:
            plan: What `plan` returned.
            timeout: Seconds until the run is cancelled.

        Returns:
            Arrays by the names of the outputs, strings as `bytes`.

        Raises:
            StatusError: If the run fails.
        """
        fetches = tuple(plan.outputs.values())
        values = self._engine.run(plan.feeds, fetches, timeout)
        return dict(zip(plan.outputs, values, strict=True))

    def run(
        self,
        signature: str,
        arrays: Mapping[str, np.ndarray],
        outputs: Iterable[str] = (),
        timeout: float | None = None,
    ) -> dict[str, np.ndarray]:
        """Calls `plan`, then `execute`."""
        return self.execute(self.plan(signature, arrays, outputs), timeout)

    def close(self) -> None:
        """Frees the model. Calls still running end with an error."""
        self._engine.close()


def versions_at(base_path: str) -> dict[int, str]:
    """Returns the directories of a model's versions by their numbers.

    A version is a directory whose name is a number and that has a
    `saved_model.pb`. Exporters write that file last or rename the directory
    when it is complete, so a half-written one is not yet a version.

    Raises:
        LoadError: If the base path is not a directory, or is itself a version.
    """
    join, exists = tf.io.gfile.join, tf.io.gfile.exists
    if not tf.io.gfile.isdir(base_path):
        raise LoadError(
            f"The model's base path must be a directory of versions. "
            f"Received: {base_path!r}, which is not a directory."
        )
    if exists(join(base_path, "saved_model.pb")):
        raise LoadError(
            "The model's base path must be the directory above the versions. "
            f"Received: {base_path!r}, which is itself a SavedModel. Move it "
            "to a subdirectory named by its version, such as "
            f"{join(base_path, '1')!r}, or, if it is in one, pass the "
            "directory above."
        )
    versions = {}
    try:
        entries = tf.io.gfile.listdir(base_path)
    except tf.errors.OpError as error:
        raise LoadError(
            "The model's base path must be a directory that can be read. "
            f"Received: {base_path!r}: {error.message}"
        ) from error
    for entry in sorted(entries):
        entry = entry.rstrip("/")  # object stores append it to directories
        path = join(base_path, entry)
        number = entry.isascii() and entry.isdigit() and int(entry) < 2**63
        if number and exists(join(path, "saved_model.pb")):
            versions[int(entry)] = path
    return versions
