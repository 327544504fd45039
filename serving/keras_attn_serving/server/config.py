"""The configuration files of TensorFlow Serving, which this server reads too.

Each is a protobuf message as text. Every setting either has its effect here or
is refused by name.
"""

import os
from collections.abc import Iterable
from typing import Any
from typing import NamedTuple

from google.protobuf import text_format
from tensorflow_serving.config import model_server_config_pb2

from keras_attn_serving.server import config_pb2

METRICS_PATH = "/monitoring/prometheus/metrics"  # TensorFlow Serving's default
PLATFORM = "tensorflow"
_LONGEST = 4096  # characters, as many as a path may have


class ConfigError(ValueError):
    """A configuration that cannot be served, and why."""


class ModelConfig(NamedTuple):
    """What to serve of a model.

    Attributes:
        name: The name under which it is served.
        base_path: Directory of its versions.
        latest: How many of its newest versions to serve; 0 for all.
        versions: Numbers of the versions to serve; if given, `latest` is
            ignored.
        labels: Numbers of versions by their labels.
    """

    name: str
    base_path: str
    latest: int = 1
    versions: frozenset[int] | None = None
    labels: tuple[tuple[str, int], ...] = ()

    def choose(self, found: Iterable[int]) -> set[int]:
        """Returns the versions to serve, of those found."""
        numbers = sorted(found)
        if self.versions is not None:
            return set(self.versions) & set(numbers)
        return set(numbers[-self.latest :] if self.latest else numbers)


class Batching(NamedTuple):
    """How requests are joined; the names are TensorFlow Serving's.

    Attributes:
        max_batch_size: Most rows of a request, and of a batch.
        batch_timeout_micros: Microseconds that a request waits for others
            while the model is busy.
        max_enqueued_batches: Most batches that wait.
        num_batch_threads: Batches that run at a time.
        allowed_batch_sizes: Sizes to which a batch is filled up, with copies
            of a row.
        pad_variable_length_inputs: Whether shorter inputs are filled up with
            copies of their first element, so that they can be joined.
        thread_pool_name: Name of the threads in the metrics.
    """

    max_batch_size: int = 1000
    batch_timeout_micros: int = 0
    max_enqueued_batches: int = 10
    num_batch_threads: int = os.cpu_count() or 1
    allowed_batch_sizes: tuple[int, ...] = ()
    pad_variable_length_inputs: bool = False
    thread_pool_name: str = "batch_threads"


class Tls(NamedTuple):
    """Keys and certificates in PEM, as bytes.

    Attributes:
        key: The server's private key.
        certificate: The server's certificate, followed by those of the
            authorities between it and a root.
        authority: Certificates of the authorities that sign clients'
            certificates, or `None`.
        verify_client: Whether clients must show a certificate.
    """

    key: bytes
    certificate: bytes
    authority: bytes | None
    verify_client: bool


def read_models(path: str) -> list[ModelConfig]:
    """Reads a `ModelServerConfig`, for `--model_config_file`.

    Raises:
        ConfigError: If it cannot be read, or asks for something that is not
            supported.
        OSError: If there is no such file.
    """
    return models(read(path, model_server_config_pb2.ModelServerConfig()))


def models(message: Any) -> list[ModelConfig]:
    """Returns the models of a `ModelServerConfig` message.

    Raises:
        ConfigError: If it asks for something that this server or TensorFlow
            Serving does not support.
    """
    if message.WhichOneof("config") != "model_config_list":
        raise ConfigError(
            "ServerModelConfig type not supported by "
            "HandleReloadConfigRequest. Only ModelConfigList is currently "
            "supported"
        )
    configs = [_model(each) for each in message.model_config_list.config]
    seen = set()
    for config in configs:
        if config.name in seen:
            raise ConfigError(
                f"Illegal to list model {config.name} multiple times in "
                "config list"
            )
        seen.add(config.name)
        absolute = os.path.isabs(config.base_path)
        if not absolute and "://" not in config.base_path:
            raise ConfigError(
                f"Expected model {config.name} to have an absolute path or "
                f"URI; got base_path()={config.base_path}"
            )
    return configs


def _model(message):
    if not message.name:
        raise ConfigError("A model of the config list needs a name.")
    texts = message.name, message.base_path, *message.version_labels
    if (longest := max(map(len, texts))) > _LONGEST:
        raise ConfigError(
            f"A model's name, base path and labels may have at most {_LONGEST} "
            f"characters. Received: {longest}, for model {message.name:.100}."
        )
    _check_platform(message)
    if message.HasField("logging_config"):
        raise ConfigError(
            f"Model {message.name} has a logging_config, and the development "
            "server does not log requests. Leave it out."
        )
    policy = message.model_version_policy
    choice = policy.WhichOneof("policy_choice")
    latest, versions = 1, None
    if choice == "latest":
        latest = max(policy.latest.num_versions, 1)
    elif choice == "all":
        latest = 0
    elif choice == "specific":
        versions = frozenset(policy.specific.versions)
        if not versions:
            raise ConfigError(
                f"No specific versions requested for servable {message.name}."
            )
    return ModelConfig(
        message.name,
        message.base_path,
        latest,
        versions,
        tuple(sorted(message.version_labels.items())),
    )


def _check_platform(message):
    """Refuses what TensorFlow Serving refuses, in the same words."""
    kind, platform = message.model_type, message.model_platform
    fields = (
        "ModelServerConfig::model_type (deprecated) {} "
        f"ModelServerConfig::model_platform, model name is {message.name}"
    )
    if kind and platform:
        raise ConfigError("Illegal setting both " + fields.format("and"))
    if not kind and not platform:
        raise ConfigError(
            f"Illegal setting neither {fields.format('nor')}. Write "
            f'model_platform: "{PLATFORM}".'
        )
    if kind and kind != model_server_config_pb2.TENSORFLOW:
        raise ConfigError(
            f"ModelServerConfig::model_type choice {kind} not supported."
        )
    if platform and platform != PLATFORM:
        raise ConfigError(
            f"Model {message.name} must have the platform {PLATFORM!r}. "
            f"Received: {platform!r}"
        )


def read_batching(path: str) -> Batching:
    """Reads `BatchingParameters`, for `--batching_parameters_file`."""
    message = read(path, config_pb2.BatchingParameters())
    if message.enable_large_batch_splitting.value:
        raise ConfigError(
            f"{path} sets enable_large_batch_splitting, and the development "
            "server splits no request. Send at most max_batch_size rows."
        )
    if message.HasField("max_execution_batch_size"):
        raise ConfigError(
            f"{path} sets max_execution_batch_size, which has an effect only "
            "with enable_large_batch_splitting. Leave it out."
        )
    given = {
        name: getattr(message, name).value
        for name in Batching._fields
        if name not in ("allowed_batch_sizes", "pad_variable_length_inputs")
        and message.HasField(name)
    }
    result = Batching(
        **given,
        allowed_batch_sizes=tuple(message.allowed_batch_sizes),
        pad_variable_length_inputs=message.pad_variable_length_inputs,
    )
    for name, least in (
        ("max_batch_size", 1),
        ("batch_timeout_micros", 0),
        ("max_enqueued_batches", 1),
        ("num_batch_threads", 1),
    ):
        if getattr(result, name) < least:
            raise ConfigError(
                f"{name} in {path} must be at least {least}. Received: "
                f"{getattr(result, name)}"
            )
    sizes = result.allowed_batch_sizes
    rising = list(sizes) == sorted(set(sizes)) and all(x > 0 for x in sizes)
    if sizes and not (rising and sizes[-1] == result.max_batch_size):
        raise ConfigError(
            f"allowed_batch_sizes in {path} must be in increasing order, and "
            f"the last must be max_batch_size, {result.max_batch_size}. "
            f"Received: {list(sizes)}"
        )
    return result


def read_tls(path: str) -> Tls:
    """Reads an `SSLConfig`, for `--ssl_config_file`."""
    message = read(path, config_pb2.SSLConfig())
    for name in ("server_key", "server_cert"):
        text = getattr(message, name)
        if "-----BEGIN" not in text:
            # The name of a file is shown, but no part of a key.
            received = repr(text) if len(text) < 100 else f"{len(text)} bytes"
            raise ConfigError(
                f"{name} in {path} must hold the text of a PEM file, from its "
                f"-----BEGIN line on. Received: {received}"
            )
    if message.client_verify and not message.custom_ca:
        raise ConfigError(
            f"client_verify in {path} needs custom_ca, the certificates of the "
            "authorities that sign clients' certificates. Received: no "
            "custom_ca."
        )
    return Tls(
        message.server_key.encode(),
        message.server_cert.encode(),
        message.custom_ca.encode() or None,
        message.client_verify,
    )


def read_metrics_path(path: str) -> str | None:
    """Reads a `MonitoringConfig`, for `--monitoring_config_file`.

    Returns:
        The path under which metrics are served; `None` if they are not.
    """
    prometheus = read(path, config_pb2.MonitoringConfig()).prometheus_config
    return (prometheus.path or METRICS_PATH) if prometheus.enable else None


def read(path: str, message: Any) -> Any:
    """Reads the text of a message from a file.

    Raises:
        ConfigError: If it is not such a message.
        OSError: If there is no such file.
    """
    try:
        with open(path, encoding="utf-8") as file:
            return text_format.Parse(file.read(), message)
    except (text_format.ParseError, UnicodeError) as error:
        why = str(error)
    except RecursionError:
        why = "its messages are nested too deeply."
    raise ConfigError(
        f"Error parsing text-format tensorflow.serving."
        f"{message.DESCRIPTOR.name}: {path}: {why}"
    )
