"""`Catalog`: the models that are served, and which versions of each.

Versions come and go as in TensorFlow Serving's `AvailabilityPreservingPolicy`:
a new one is loaded and warmed up, and takes over. Only then is the previous one
unloaded, once the calls that it answers have ended.
"""

import contextlib
import enum
import logging
import threading
import time
from collections.abc import Callable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

from keras_attn_serving.server.config import ConfigError
from keras_attn_serving.server.config import ModelConfig
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.errors import invalid_argument
from keras_attn_serving.server.model import LoadError
from keras_attn_serving.server.model import Model
from keras_attn_serving.server.model import versions_at

_LOG = logging.getLogger(__name__)


class State(enum.IntEnum):
    """The states of a version, by the numbers of TensorFlow Serving's."""

    START = 10
    LOADING = 20
    AVAILABLE = 30
    UNLOADING = 40
    END = 50


class Spec(NamedTuple):
    """The version of a model that a request wants.

    Attributes:
        name: Name of the model.
        version: Number of the version, or `None`.
        label: Its label, or `None`. Without either it is the newest.
    """

    name: str
    version: int | None = None
    label: str | None = None


class Status(NamedTuple):
    """The state of a version, and the error that keeps it from loading."""

    version: int
    state: State
    error: str = ""
    code: Code = Code.OK


class Catalog:
    """Loads and unloads versions of models, and lends them to calls.

    `start` loads what there is. From then on a thread looks for new versions.

    Args:
        configs: What to serve.
        load: Loads a version: `load(name, version, path)`. It raises
            `LoadError`.
        poll_seconds: Seconds between looks at the directories; 0 for one
            look, at the start.
        retries: How often loading a version is tried again.
        retry_seconds: Seconds between two tries.
        early_labels: Whether a new label may name a version that is not
            loaded yet.
    """

    def __init__(
        self,
        configs: Sequence[ModelConfig],
        load: Callable[[str, int, str], Model],
        *,
        poll_seconds: float = 1.0,
        retries: int = 5,
        retry_seconds: float = 60.0,
        early_labels: bool = False,
    ):
        self._configs = {config.name: config for config in configs}
        self._load = load
        self._poll_seconds = poll_seconds
        self._retries, self._retry_seconds = retries, retry_seconds
        self._early_labels = early_labels
        self._versions: dict[str, list[_Version]] = {}
        self._labels: dict[tuple[str, str], int] = {}
        self._said: dict[str, str] = {}  # what is wrong with a base path
        # `_lock` guards the versions and is held for moments. `_work` is held
        # while versions are loaded.
        self._lock, self._work = threading.Lock(), threading.Lock()
        self._ended = threading.Event()
        self._watcher = threading.Thread(
            target=self._watch, name="keras_attn_serving_versions", daemon=True
        )

    def start(self) -> None:
        """Loads every model, and begins to look for new versions.

        Raises:
            LoadError: If a model has no version, or one fails to load.
            ConfigError: If a label names a version that is not loaded.
        """
        try:
            with self._work:
                self._labels = self._checked_labels(self._configs)
                for config in self._configs.values():
                    self._look(config, required=True)
                for error in self._act(self._configs):
                    raise error
        except BaseException:
            self.close()
            raise
        self._watcher.start()

    @contextlib.contextmanager
    def lend(self, spec: Spec) -> Iterator[Model]:
        """Lends the model that a request wants; it stays loaded meanwhile.

        Raises:
            StatusError: If there is none, in TensorFlow Serving's words.
        """
        with self._lock:
            version = self._find(spec)
            version.users += 1
        try:
            assert version.model is not None
            yield version.model
        finally:
            with self._lock:
                version.users -= 1
                unused = not version.users and version.state == State.UNLOADING
            if unused:
                self._close(version)

    def status(self, name: str, version: int | None = None) -> list[Status]:
        """Returns the states of a model's versions, the newest first.

        Versions that ended stay in the list.

        Raises:
            StatusError: If there is none, in TensorFlow Serving's words.
        """
        with self._lock:
            # Of two directories with the same number, the later one counts.
            found = {x.number: x for x in self._versions.get(name, ())}
        if version is not None:
            found = {version: found[version]} if version in found else {}
        if not found:
            missing = (
                "any versions" if version is None else f"version {version}"
            )
            raise StatusError(
                Code.NOT_FOUND, f"Could not find {missing} of model {name}"
            )
        return [
            Status(number, each.state, each.error, each.code)
            for number, each in sorted(found.items(), reverse=True)
        ]

    def newest(self, name: str) -> int:
        """Returns the number of the newest version that is available."""
        with self._lock:
            return self._find(Spec(name)).number

    def known(self, name: str) -> str:
        """Returns the name if a model is served under it, else ""."""
        return name if name in self._configs else ""

    def ready(self) -> bool:
        """Returns whether every model has an available version."""
        with self._lock:
            return all(self._available(name) for name in self._configs)

    def reload(self, configs: Sequence[ModelConfig]) -> None:
        """Serves other models, versions or labels from now on.

        Returns once new versions are loaded and removed ones are unloaded.

        Raises:
            StatusError: If a label names a version that is not available, or a
                new model has no version; nothing changes then. Also if a new
                model fails to load; loading is tried again later.
        """
        new = {config.name: config for config in configs}
        with self._work:
            if self._ended.is_set():
                raise StatusError(Code.UNAVAILABLE, "The server stops.")
            try:
                labels = self._checked_labels(new)
            except ConfigError as error:
                raise StatusError(
                    Code.FAILED_PRECONDITION, str(error)
                ) from error
            for name, config in new.items():
                if name not in self._configs:
                    try:
                        _require_versions(config)
                    except LoadError as error:
                        raise StatusError(Code.NOT_FOUND, str(error)) from error
            added = set(new) - set(self._configs)
            self._configs, self._labels = new, labels
            for config in new.values():
                self._look(config)
            for config in new.values():
                _LOG.info("configured %.1000s", config)
            if errors := self._act(added):
                raise StatusError(
                    Code.UNKNOWN,
                    f"{len(errors)} servable(s) did not become available: "
                    + " ".join(map(str, errors)),
                )

    def poll(self) -> None:
        """Looks at the directories, and loads and unloads changed versions."""
        with self._work:
            for config in self._configs.values():
                self._look(config)
            self._act()

    def close(self) -> None:
        """Unloads everything; calls that still run end with an error."""
        self._ended.set()
        if self._watcher.is_alive():
            self._watcher.join()
        with self._work, self._lock:
            leaving = [y for x in self._versions.values() for y in x if y.model]
        for version in leaving:
            self._close(version)

    def _watch(self):
        # Without polling, a failed load is still tried again.
        while not self._ended.wait(self._poll_seconds or 1.0):
            try:
                if self._poll_seconds:
                    self.poll()
                else:
                    with self._work:
                        self._act()
            except Exception:  # a file system that is gone for a while
                _LOG.exception("looking for versions failed")

    def _look(self, config, required=False):
        """Records which directories of a model are wanted."""
        try:
            found = (_require_versions if required else _found)(config)
        except LoadError as error:  # perhaps only for a moment: change nothing
            if required:
                raise
            if self._said.get(config.name) != str(error):  # log it once
                self._said[config.name] = str(error)
                _LOG.warning("model=%.200s %.1000s", config.name, error)
            return
        self._said.pop(config.name, None)
        wanted = {found[number]: number for number in config.choose(found)}
        with self._lock:
            versions = self._versions.setdefault(config.name, [])
            # A version that was removed and is wanted again is loaded anew.
            kept = [x for x in versions if not (x.left and x.path in wanted)]
            for each in kept:
                each.want(each.path in wanted)
            known = {each.path for each in kept}
            versions[:] = kept + [
                _Version(config.name, number, path)
                for path, number in wanted.items()
                if path not in known
            ]

    def _act(self, required=()):
        """Loads and unloads until nothing is left to do.

        Returns the errors of the required models.
        """
        with self._lock:
            for name in set(self._versions) - set(self._configs):
                for each in self._versions[name]:
                    each.want(False)
        errors = []
        for name, versions in list(self._versions.items()):
            while not self._ended.is_set() and (step := self._next(versions)):
                if step.state == State.AVAILABLE:
                    self._unload(step)
                    continue
                error = self._try(step)
                if error is not None and name in required:
                    errors.append(error)
        return errors

    def _next(self, versions):
        """Returns the version to unload or load next, if there is one."""
        with self._lock:
            wanted = [x for x in versions if x.wanted]
            serving = [x for x in versions if x.state == State.AVAILABLE]
            leaving = [x for x in serving if not x.wanted]
            replaced = not wanted or len(leaving) < len(serving)
            if leaving and (replaced or len(leaving) > 1):
                return min(leaving, key=lambda x: x.number)
            due = [x for x in wanted if x.due()]
            return max(due, key=lambda x: x.number, default=None)

    def _try(self, version):
        """Loads a version. Returns the error if loading fails."""
        version.state = State.LOADING
        _LOG.info("loading %s path=%.1000s", version, version.path)
        started = time.monotonic()
        try:
            model = self._load(version.name, version.number, version.path)
        except Exception as error:  # other versions and models go on
            if not isinstance(error, LoadError):
                _LOG.exception("loading %s failed", version)
                error = LoadError(f"{type(error).__name__}: {error}")
            with self._lock:
                version.tries += 1
                version.error, version.code = str(error), error.code
                version.retry_at = time.monotonic() + self._retry_seconds
                if version.tries > self._retries:
                    version.state = State.END
            _LOG.error("failed to load %s: %.1000s", version, error)
            return error
        with self._lock:
            version.model = model
            version.error, version.code = "", Code.OK
            version.state = State.AVAILABLE
        seconds = time.monotonic() - started
        _LOG.info("loaded %s seconds=%.3f", version, seconds)
        return None

    def _unload(self, version):
        with self._lock:
            version.state = State.UNLOADING
            unused = not version.users
        if unused:
            self._close(version)

    def _close(self, version):
        with self._lock:
            model, version.model = version.model, None
        if model is not None:
            model.close()
            version.state = State.END
            _LOG.info("unloaded %s", version)

    def _find(self, spec):
        if not spec.name:
            raise invalid_argument("ModelSpec has no name specified.")
        number = spec.version
        if spec.label is not None:
            try:
                number = self._labels[spec.name, spec.label]
            except KeyError:
                raise invalid_argument(
                    f"Unrecognized servable version label: {spec.label}"
                ) from None
        found = self._available(spec.name)
        if number is not None:
            found = [x for x in found if x.number == number]
        if not found:
            wanted = (
                f"Latest({spec.name})"
                if number is None
                else f"Specific({spec.name}, {number})"
            )
            raise StatusError(
                Code.NOT_FOUND, f"Servable not found for request: {wanted}"
            )
        return max(found, key=lambda x: x.number)

    def _available(self, name):
        versions = self._versions.get(name, ())
        return [x for x in versions if x.state == State.AVAILABLE]

    def _checked_labels(self, configs):
        labels = {}
        for config in configs.values():
            available = {x.number for x in self._available(config.name)}
            for label, number in config.labels:
                known = self._labels.get((config.name, label), number)
                early = self._early_labels and known == number
                if number not in available and not early:
                    raise ConfigError(
                        f"Request to assign label to version {number} of "
                        f"model {config.name}, which is not currently "
                        "available for inference. Serve the version first, "
                        "then give it the label; only a new label may go "
                        "first, with "
                        "--allow_version_labels_for_unavailable_models."
                    )
                labels[config.name, label] = number
        return labels


class _Version:
    """A version of a model, in any state."""

    def __init__(self, name, number, path):
        self.name, self.number, self.path = name, number, path
        self.state, self.error, self.code = State.START, "", Code.OK
        self.model: Model | None = None
        self.users = 0  # calls that run it
        self.wanted = True
        self.tries, self.retry_at = 0, 0.0

    @property
    def left(self):
        """Whether it is unloaded, or will be when its last call has ended."""
        return not self.wanted and self.state >= State.UNLOADING

    def want(self, wanted):
        self.wanted = wanted
        if not wanted and self.state < State.AVAILABLE:
            self.state = State.END  # never loaded

    def due(self):
        """Whether to load it now."""
        waiting = self.state in (State.START, State.LOADING)
        return waiting and time.monotonic() >= self.retry_at

    def __str__(self):
        return f"model={self.name:.200} version={self.number}"


def _found(config):
    return versions_at(config.base_path)


def _require_versions(config):
    found = _found(config)
    if not config.choose(found):
        which = (
            "named by an integer"
            if config.versions is None
            else f"named {' or '.join(map(str, sorted(config.versions)))}"
        )
        raise LoadError(
            f"The model's base path must hold a directory for each version, "
            f"{which}, with saved_model.pb in it, such as "
            f"{config.base_path}/1. Received: {config.base_path!r}, which has "
            f"{sorted(found) or 'none'}."
        )
    return found
