"""One loaded model version, run as TensorFlow Serving runs it.

TensorFlow Serving loads a SavedModel into a TensorFlow 1 session and runs the
tensors that its signatures name. `Engine` does the same, with the same restore
and initialisation operations, the same graph optimiser and the same errors.
`tf.saved_model.load` is not used: it rebuilds Python objects, and so can run
exports that TensorFlow Serving refuses.
"""

import logging
import threading
from collections.abc import Mapping
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# Registers the tokenizers' operations, which TensorFlow Serving links in.
import tensorflow_text  # noqa: F401

from keras_attn_serving import xla
from keras_attn_serving.server import signatures
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.seldom import Seldom

_LOG = logging.getLogger(__name__)

# Exceptions of the loader that are not errors of the runtime, with the codes of
# TensorFlow's C loader for them.
_OF_THE_LOADER = {
    OSError: Code.OUT_OF_RANGE,  # saved_model.pb is cut or no message
    RuntimeError: Code.NOT_FOUND,  # no graph with these tags
    ValueError: Code.NOT_FOUND,  # no variables
}


# Most sets of outputs with a graph of their own. TensorFlow keeps an optimised
# graph for each set as long as the session lives: 1 MB for the toy model, one
# of whose signatures has 127 sets. Clients use only a few.
_MOST_CHOICES = 32


class Session(NamedTuple):
    """How TensorFlow runs a model.

    Attributes:
        tags: Tags of the graph to load, of those in the SavedModel.
        config: A `ConfigProto`, or `None` for TensorFlow's defaults.
    """

    tags: tuple[str, ...] = (tf.saved_model.SERVING,)
    config: Any = None


class Engine:
    """Holds a session of one SavedModel. Threads may share it.

    Args:
        path: The version's directory, with `saved_model.pb` in it.
        session: How to run it.

    Attributes:
        signatures: Each `Signature` by its name.
        definitions: The signatures as `SignatureDef` messages by name, as
            the SavedModel stores them.

    Raises:
        StatusError: If the SavedModel cannot be loaded.
    """

    def __init__(self, path: str, session: Session):
        self._graph = tf.Graph()
        self._runs: dict = {}
        self._lock = threading.Lock()
        self._no_xla = Seldom(_LOG, f"%d runs failed at {path}. {xla.REMEDY}")
        config = session.config
        if config is None:
            config = tf.compat.v1.ConfigProto(allow_soft_placement=True)
            # Leaves GPU memory to other processes.
            config.gpu_options.allow_growth = True
        self._session = tf.compat.v1.Session(graph=self._graph, config=config)
        try:
            with self._graph.as_default():
                meta_graph = tf.compat.v1.saved_model.load(
                    self._session, list(session.tags), path
                )
        except tf.errors.OpError as error:
            self.close()
            raise _status(error) from error
        except UnicodeDecodeError as error:
            self.close()
            raise _unreadable(error) from error
        except tuple(_OF_THE_LOADER) as error:
            self.close()
            (code,) = (
                code
                for kind, code in _OF_THE_LOADER.items()
                if isinstance(error, kind)
            )
            raise StatusError(code, str(error)) from error
        except BaseException:
            self.close()
            raise
        # Like TensorFlow Serving, it does not keep the graph's definition.
        self.definitions = dict(meta_graph.signature_def)
        try:
            self.signatures = {
                name: signatures.read(x) for name, x in self.definitions.items()
            }
        except BaseException:
            self.close()
            raise

    def run(
        self,
        feeds: Mapping[str, np.ndarray],
        fetches: tuple[str, ...],
        timeout: float | None = None,
    ) -> list[np.ndarray]:
        """Runs the graph.

        Args:
            feeds: Arrays by tensor name.
            fetches: Names of the tensors wanted.
            timeout: Seconds until the run is cancelled.

        Returns:
            The tensors, in the order of `fetches`.

        Raises:
            StatusError: If an operation fails or the timeout expires.
        """
        options = None
        if timeout is not None:
            milliseconds = int(timeout * 1000)
            if milliseconds <= 0:  # `RunOptions` takes 0 for no limit
                raise StatusError(Code.DEADLINE_EXCEEDED, "Deadline exceeded")
            options = tf.compat.v1.RunOptions(timeout_in_ms=milliseconds)
        # Sorted like the session's own numbering, "Expects arg[0] to be ...".
        names = tuple(sorted(feeds))
        run, wanted = self._callable(names, tuple(sorted(set(fetches))))
        try:
            values = run(*(feeds[name] for name in names), options=options)
        except tf.errors.OpError as error:
            status = _status(error)
            if xla.DISABLED in status.details:
                self._no_xla()
            raise status from error
        except UnicodeDecodeError as error:
            raise _unreadable(error) from error
        except ValueError as error:  # a feed that does not fit the graph
            raise invalid_argument(str(error)) from error
        found = dict(zip(wanted, map(_array, values), strict=True))
        return [found[name] for name in fetches]

    def close(self) -> None:
        """Frees the session. Calls still running end with an error."""
        self._session.close()

    def _callable(self, feeds, fetches):
        """Returns a function that runs the graph, and what it fetches."""
        # Making a callable looks up its tensors, and its first run optimises
        # the graph, so there is one for each set of names.
        with self._lock:
            known = (feeds, fetches) in self._runs
            if not known and len(self._runs) >= _MOST_CHOICES:
                fetches = self._all_outputs(feeds, fetches)
            if (feeds, fetches) not in self._runs:
                find = self._graph.get_tensor_by_name
                self._runs[feeds, fetches] = self._session.make_callable(
                    [find(name) for name in fetches],
                    [find(name) for name in feeds],
                    accept_options=True,
                )
            return self._runs[feeds, fetches], fetches

    def _all_outputs(self, feeds, fetches):
        """Returns all outputs of the signature that has these."""
        for signature in self.signatures.values():
            inputs = {tensor.name for tensor in signature.inputs.values()}
            outputs = {tensor.name for tensor in signature.outputs.values()}
            if inputs == set(feeds) and outputs.issuperset(fetches):
                return tuple(sorted(outputs))
        return fetches


def _array(value):
    """Returns an output as an array; a scalar string comes as `bytes`."""
    if not isinstance(value, bytes):
        return value
    result = np.empty((), object)
    result[()] = value
    return result


def _unreadable(error):
    # The text of TensorFlow's error quotes bytes that are not UTF-8.
    return invalid_argument(bytes(error.object).decode("utf-8", "replace"))


def _status(error):
    # The session rewrites the runtime's message for Python users ("Graph
    # execution error: Detected at node ..."); TensorFlow Serving's clients
    # see the original, which stays behind as the first of the contexts.
    cause = error
    while cause := cause.__context__:
        if isinstance(cause, tf.errors.OpError):
            error = cause
    return StatusError(Code(error.error_code), error.message)
