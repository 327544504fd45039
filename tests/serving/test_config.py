"""Configuration files: each setting has its effect, or is refused by name."""

import pytest
from keras_attn_serving.server import config
from keras_attn_serving.server import config_pb2
from support.serving.configurations import NESTED

PEM = "-----BEGIN X-----\\n-----END X-----"


@pytest.fixture
def write(tmp_path):
    def write(text):
        path = tmp_path / "file.pbtxt"
        path.write_text(text)
        return str(path)

    return write


def models(*entries):
    inner = " ".join(f"config {{ {entry} }}" for entry in entries)
    return f"model_config_list {{ {inner} }}"


BARE = "name: 'm' base_path: '/models/m'"
ONE = f"{BARE} model_platform: 'tensorflow'"


@pytest.mark.parametrize(
    ("text", "wanted"),
    [
        ("", {}),
        ("model_version_policy { latest { num_versions: 3 } }", {"latest": 3}),
        ("model_version_policy { latest {} }", {"latest": 1}),
        ("model_version_policy { all {} }", {"latest": 0}),
        (
            "model_version_policy { specific { versions: 4 versions: 2 } }",
            {"versions": frozenset([2, 4])},
        ),
        (
            "version_labels { key: 'stable' value: 2 }"
            "version_labels { key: 'canary' value: 4 }",
            {"labels": (("canary", 4), ("stable", 2))},
        ),
    ],
)
def test_a_model_is_read_with_its_versions_and_labels(write, text, wanted):
    (found,) = config.read_models(write(models(f"{ONE} {text}")))
    assert found == config.ModelConfig("m", "/models/m", **wanted)


def test_several_models_and_uris_are_read(write):
    text = models(
        ONE, ONE.replace("/models/m", "gs://b/n").replace("'m'", "'n'")
    )
    assert [x.name for x in config.read_models(write(text))] == ["m", "n"]
    assert config.read_models(write("model_config_list {}")) == []


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nonsense", "Error parsing text-format tensorflow.serving.ModelServ"),
        ("", "Only ModelConfigList is currently supported"),
        ("custom_model_config {}", "Only ModelConfigList is currently"),
        (models(ONE, ONE), "Illegal to list model m multiple times"),
        (
            models(ONE.replace("/models", "models")),
            r"absolute path or URI; got base_path\(\)=models/m",
        ),
        (models("base_path: '/m'"), "needs a name"),
        (
            models(f"{BARE} model_platform: 'other'"),
            "must have the platform 'tensorflow'. Received: 'other'",
        ),
        (models(f"{ONE} logging_config {{}}"), "does not log requests"),
        (
            models(f"{ONE} model_version_policy {{ specific {{}} }}"),
            "No specific versions requested for servable m",
        ),
    ],
)
def test_models_that_cannot_be_served_are_refused(write, text, words):
    with pytest.raises(config.ConfigError, match=words):
        config.read_models(write(text))


def test_batching_is_read_with_tensorflow_servings_defaults(write):
    found = config.read_batching(write(""))
    assert found[:3] == (1000, 0, 10)
    assert found[4:] == ((), False, "batch_threads")
    text = (
        "max_batch_size { value: 16 } batch_timeout_micros { value: 5 } "
        "max_enqueued_batches { value: 7 } num_batch_threads { value: 3 } "
        "thread_pool_name { value: 'p' } pad_variable_length_inputs: true "
        "allowed_batch_sizes: 4 allowed_batch_sizes: 16"
    )
    found = config.read_batching(write(text))
    assert found == (16, 5, 7, 3, (4, 16), True, "p")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("max_batch_size { value: 0 }", "must be at least 1. Received: 0"),
        ("batch_timeout_micros { value: -1 }", "must be at least 0"),
        ("max_enqueued_batches { value: 0 }", "must be at least 1"),
        ("num_batch_threads { value: 0 }", "must be at least 1"),
        ("allowed_batch_sizes: 4", "the last must be max_batch_size, 1000"),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: 4 "
            "allowed_batch_sizes: 4",
            "increasing order",
        ),
        (
            "max_batch_size { value: 4 } allowed_batch_sizes: 0 "
            "allowed_batch_sizes: 4",
            "increasing order",
        ),
        ("enable_large_batch_splitting { value: true }", "splits no request"),
        ("max_execution_batch_size { value: 4 }", "Leave it out"),
        ("max_batchsize { value: 4 }", "Error parsing text-format"),
    ],
)
def test_batching_that_cannot_work_is_refused(write, text, words):
    with pytest.raises(config.ConfigError, match=words):
        config.read_batching(write(text))


def test_keys_and_certificates_are_read(write):
    text = f'server_key: "{PEM}" server_cert: "{PEM}"'
    pem = PEM.replace("\\n", "\n").encode()
    assert config.read_tls(write(text)) == (pem, pem, None, False)
    text += f' custom_ca: "{PEM}" client_verify: true'
    assert config.read_tls(write(text)) == (pem, pem, pem, True)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f'server_key: "{PEM}"', "server_cert in .* the text of a PEM file"),
        (
            f'server_key: "/key.pem" server_cert: "{PEM}"',
            "server_key in .*Received: '/key.pem'",
        ),
        (
            f'server_key: "{PEM}" server_cert: "{PEM}" client_verify: true',
            "client_verify in .* needs custom_ca",
        ),
    ],
)
def test_keys_that_cannot_work_are_refused(write, text, words):
    with pytest.raises(config.ConfigError, match=words):
        config.read_tls(write(text))


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("", None),
        ("prometheus_config { enable: false path: '/x' }", None),
        (
            "prometheus_config { enable: true }",
            "/monitoring/prometheus/metrics",
        ),
        ("prometheus_config { enable: true path: '/x' }", "/x"),
    ],
)
def test_the_path_of_the_metrics_is_read(write, text, path):
    assert config.read_metrics_path(write(text)) == path


def test_a_file_that_is_no_text_is_refused(write, tmp_path):
    (tmp_path / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(config.ConfigError, match="Error parsing text-format"):
        config.read_models(str(tmp_path / "binary"))
    with pytest.raises(FileNotFoundError):
        config.read_models(str(tmp_path / "nowhere"))


def test_a_file_that_is_nested_deeply_is_refused(write):
    with pytest.raises(config.ConfigError, match="nested too deeply"):
        config.read_models(write(NESTED))
    for read in config.read_batching, config.read_tls, config.read_metrics_path:
        with pytest.raises(config.ConfigError, match="Error parsing"):
            read(write(NESTED))


def test_no_name_of_ours_is_theirs():
    assert config_pb2.DESCRIPTOR.package == "keras_attn_serving.config"
    assert (
        config_pb2.DESCRIPTOR.name == "keras_attn_serving/server/config.proto"
    )
