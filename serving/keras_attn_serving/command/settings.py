"""Turns the command's flags and their files into arguments of `Server`."""

import argparse

import tensorflow as tf

import keras_attn_serving
from keras_attn_serving.server import config
from keras_attn_serving.server.engine import Session
from keras_attn_serving.server.server import Loading
from keras_attn_serving.server.server import Rest


def models(flags: argparse.Namespace) -> list[config.ModelConfig]:
    """Returns the models to serve.

    Raises:
        ConfigError: If the config file is invalid.
        OSError: If it does not exist.
    """
    if flags.model_config_file:
        return config.read_models(flags.model_config_file)
    name = "default" if flags.model_name is None else flags.model_name
    return [config.ModelConfig(name, flags.model_base_path)]


def rest(flags: argparse.Namespace) -> Rest | None:
    """Returns the settings of the REST API; `None` to serve no REST."""
    if not flags.rest_api_port:
        return None
    milliseconds = flags.rest_api_timeout_in_ms or 30_000
    metrics = None
    if flags.monitoring_config_file:
        metrics = config.read_metrics_path(flags.monitoring_config_file)
    return Rest(
        flags.rest_api_port,
        milliseconds / 1000,
        bool(flags.rest_api_enable_cors_support),
        metrics,
    )


def tls(flags: argparse.Namespace) -> config.Tls | None:
    """Returns the keys and certificates; `None` without TLS."""
    if not flags.ssl_config_file:
        return None
    return config.read_tls(flags.ssl_config_file)


def batching(flags: argparse.Namespace) -> config.Batching | None:
    """Returns how requests are joined; `None` if they are not."""
    if not flags.enable_batching:
        return None
    if not flags.batching_parameters_file:
        return config.Batching()
    return config.read_batching(flags.batching_parameters_file)


def loading(flags: argparse.Namespace) -> Loading:
    """Returns how versions are found and loaded."""
    return Loading(
        warm_up=flags.enable_model_warmup,
        warm_up_iterations=flags.num_request_iterations_for_warmup or 1,
        poll_seconds=flags.file_system_poll_wait_seconds,
        retries=flags.max_num_load_retries,
        retry_seconds=flags.load_retry_interval_micros / 1e6,
        early_labels=flags.allow_version_labels_for_unavailable_models,
        session=Session(
            tuple(filter(None, flags.saved_model_tags.split(","))),
            _session_config(flags),
        ),
    )


def versions() -> str:
    """Returns the versions of this server and of TensorFlow."""
    return (
        f"keras-attn-serving: {keras_attn_serving.__version__}\n"
        f"TensorFlow Library: {tf.version.VERSION}"
    )


def gpus() -> int:
    """Returns the number of GPUs that TensorFlow finds on this machine."""
    return len(tf.config.list_physical_devices("GPU"))


def _session_config(flags):
    if flags.tensorflow_session_config_file:
        result = config.read(
            flags.tensorflow_session_config_file, tf.compat.v1.ConfigProto()
        )
    else:
        result = tf.compat.v1.ConfigProto(allow_soft_placement=True)
        # Leaves GPU memory to other processes.
        result.gpu_options.allow_growth = True
    if flags.per_process_gpu_memory_fraction:
        result.gpu_options.allow_growth = False
        result.gpu_options.per_process_gpu_memory_fraction = (
            flags.per_process_gpu_memory_fraction
        )
    both = flags.tensorflow_session_parallelism
    if intra := both or flags.tensorflow_intra_op_parallelism:
        result.intra_op_parallelism_threads = intra
    if inter := both or flags.tensorflow_inter_op_parallelism:
        result.inter_op_parallelism_threads = inter
    return result
