"""The command's flags: TensorFlow Serving's, or refused by name."""

import re

import pytest
import tensorflow as tf
from keras_attn_serving.command import flags
from keras_attn_serving.command import settings
from keras_attn_serving.command.serve import main

MODEL = "--model_base_path=models/m"

# The flags of TensorFlow Serving 2.21's main.cc.
THEIRS = """
    allow_version_labels_for_unavailable_models batching_parameters_file
    enable_batching enable_grpc_healthcheck_service enable_model_warmup
    enable_per_model_batching_parameters enable_profiler
    enable_serialization_as_tensor_content enable_signature_method_name_check
    file_system_poll_wait_seconds flush_filesystem_caches
    grpc_channel_arguments grpc_max_threads grpc_socket_path
    load_retry_interval_micros max_num_load_retries mixed_precision
    model_base_path model_config_file model_config_file_poll_wait_seconds
    model_name monitoring_config_file num_load_threads
    num_request_iterations_for_warmup num_tflite_interpreters_per_pool
    num_tflite_pools num_unload_threads per_process_gpu_memory_fraction
    platform_config_file port prefer_tflite_model
    remove_unused_fields_from_bundle_metagraph rest_api_enable_cors_support
    rest_api_num_threads rest_api_port rest_api_timeout_in_ms saved_model_tags
    skip_initialize_tpu ssl_config_file tensorflow_inter_op_parallelism
    tensorflow_intra_op_parallelism tensorflow_session_config_file
    tensorflow_session_parallelism thread_pool_factory_config_file
    use_alts_credentials version xla_cpu_compilation_enabled
    xla_gpu_compilation_enabled
""".split()
OURS = ["help", "host"] + [
    f"max_{name}"
    for name in (
        "answer_bytes",
        "connections",
        "elements",
        "idle_seconds",
        "message_bytes",
        "queued_calls",
        "rows",
        "run_seconds",
        "text_bytes",
    )
]


def refusal(capsys, *arguments):
    with pytest.raises(SystemExit, match="2"):
        flags.read(list(arguments))
    return capsys.readouterr().err


def test_every_flag_of_tensorflow_serving_is_known():
    known = {
        name.removeprefix("--")
        for action in flags.parser()._actions
        for name in action.option_strings
        if name.startswith("--")
    }
    assert known == {*THEIRS, *OURS}


@pytest.mark.parametrize("value", ["", "=1", "=true"])
def test_a_flag_without_a_meaning_here_is_refused_with_the_reason(
    capsys, value
):
    for name in flags._REFUSED:
        error = refusal(capsys, MODEL, f"--{name}{value}")
        assert f"--{name} is a flag of TensorFlow Serving" in error
        assert flags._REFUSED[name] in re.sub(r"\s+", " ", error)


def test_the_help_lists_what_has_a_meaning():
    text = flags.parser().format_help()
    for name in [*THEIRS, *OURS]:
        assert (f"--{name}" in text) == (name not in flags._REFUSED)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], "needs --model_base_path, or --model_config_file"),
        ([MODEL, "--model_config_file=f"], "but not both"),
        (["--model_config_file=f", "--model_name=m"], "no effect"),
        ([MODEL, "--batching_parameters_file=f"], "only with --enable_batch"),
        (
            [MODEL, "--model_config_file_poll_wait_seconds=3"],
            "only with --model_config_file",
        ),
        ([MODEL, "--monitoring_config_file=f"], "only with --rest_api_port"),
        ([MODEL, "--rest_api_timeout_in_ms=9"], "only with --rest_api_port"),
        (
            [MODEL, "--rest_api_enable_cors_support"],
            "only with --rest_api_port",
        ),
        (
            [
                MODEL,
                "--enable_model_warmup=false",
                "--num_request_iterations_for_warmup=2",
            ],
            "only with --enable_model_warmup",
        ),
        (
            [
                MODEL,
                "--tensorflow_session_parallelism=2",
                "--tensorflow_intra_op_parallelism=1",
            ],
            "give it or those",
        ),
        (
            [MODEL, "--enable_grpc_healthcheck_service=false"],
            "always answers health checks",
        ),
        ([MODEL, "--grpc_channel_arguments=a"], "name=value with commas"),
        ([MODEL, "--enable_batching=perhaps"], "must be true or false"),
        ([MODEL, "--per_process_gpu_memory_fraction=2"], "at most 1.0"),
        ([MODEL, "--rows=3"], "unrecognized arguments: --rows=3"),
    ],
)
def test_what_has_no_effect_or_cannot_be_is_refused(capsys, arguments, words):
    assert words in refusal(capsys, *arguments)


def test_the_flags_reach_what_the_server_takes(tmp_path):
    batching = tmp_path / "batching.pbtxt"
    batching.write_text("max_batch_size { value: 16 }")
    monitoring = tmp_path / "monitoring.pbtxt"
    monitoring.write_text("prometheus_config { enable: true path: '/x' }")
    read = flags.read(
        [
            MODEL,
            "--model_name=name",
            "--rest_api_port=8501",
            "--rest_api_timeout_in_ms=1500",
            "--rest_api_enable_cors_support=true",
            f"--monitoring_config_file={monitoring}",
            "--enable_batching",
            f"--batching_parameters_file={batching}",
            "--enable_model_warmup",
            "--num_request_iterations_for_warmup=3",
            "--file_system_poll_wait_seconds=7",
            "--max_num_load_retries=2",
            "--load_retry_interval_micros=1500000",
            "--allow_version_labels_for_unavailable_models",
            "--saved_model_tags=serve,gpu",
            "--tensorflow_intra_op_parallelism=3",
            "--tensorflow_inter_op_parallelism=4",
            "--per_process_gpu_memory_fraction=0.5",
            "--grpc_channel_arguments=grpc.max_connection_age_ms=2000,a=b",
        ]
    )
    (model,) = settings.models(read)
    assert model[:2] == ("name", "models/m")
    assert settings.rest(read) == (8501, 1.5, True, "/x")
    assert settings.batching(read).max_batch_size == 16
    loading = settings.loading(read)
    assert loading[:-1] == (True, 3, 7.0, 2, 1.5, True)
    assert loading.session.tags == ("serve", "gpu")
    session = loading.session.config
    assert session.intra_op_parallelism_threads == 3
    assert session.inter_op_parallelism_threads == 4
    assert session.gpu_options.per_process_gpu_memory_fraction == 0.5
    assert read.grpc_channel_arguments == [
        ("grpc.max_connection_age_ms", 2000),
        ("a", "b"),
    ]


def test_the_defaults_are_tensorflow_servings():
    read = flags.read([MODEL])
    (model,) = settings.models(read)
    assert model == ("default", "models/m", 1, None, ())
    assert settings.rest(read) is settings.batching(read) is None
    assert settings.tls(read) is None
    assert settings.loading(read)[:-1] == (True, 1, 1.0, 5, 60.0, False)
    assert settings.loading(read).session.config.allow_soft_placement


def test_a_session_config_is_read(tmp_path):
    path = tmp_path / "session.pbtxt"
    path.write_text("intra_op_parallelism_threads: 5 log_device_placement: 1")
    read = flags.read(
        [
            MODEL,
            f"--tensorflow_session_config_file={path}",
            "--tensorflow_session_parallelism=2",
        ]
    )
    session = settings.loading(read).session.config
    assert session.log_device_placement
    assert session.intra_op_parallelism_threads == 2
    assert session.inter_op_parallelism_threads == 2


def test_the_command_prints_versions(capsys):
    assert main(["--version"]) == 0
    assert f"TensorFlow Library: {tf.__version__}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flag", "words"),
    [
        ("--model_config_file", "Error parsing text-format"),
        ("--ssl_config_file", "Error parsing text-format"),
        ("--tensorflow_session_config_file", "Error parsing text-format"),
    ],
)
def test_a_file_that_is_at_fault_is_named(tmp_path, capsys, flag, words):
    path = tmp_path / "file"
    path.write_text("nonsense")
    arguments = [f"{flag}={path}", "--xla_cpu_compilation_enabled"]
    if flag != "--model_config_file":
        arguments.append(MODEL)
    assert main(arguments) == 1
    error = capsys.readouterr().err
    assert error.startswith("error: ") and words in error and str(path) in error
