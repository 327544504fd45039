"""The development server reads the files for TensorFlow Serving."""

import re
import shutil
import urllib.request

import pytest
import yaml
from keras_attn_serving import Client
from keras_attn_serving.command import flags
from keras_attn_serving.command import settings
from keras_attn_serving.server import Server
from support.serving import toy_model
from support.serving.deployed import DEPLOY
from support.serving.deployed import entry_point
from support.serving.deployed import read

README = DEPLOY.parent / "README.md"


@pytest.fixture(scope="module")
def server(toy_path):
    """A server with the flags of the image."""
    _, *given = entry_point()
    given = [x.replace("/etc/serving", str(DEPLOY)) for x in given]
    base_path = f"--model_base_path={toy_path.parent}"
    found = flags.read([*given, base_path, "--rest_api_port=1"])
    with Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        rest=settings.rest(found)._replace(port=0),
        batching=settings.batching(found),
        threads=found.grpc_max_threads,
        channel_arguments=found.grpc_channel_arguments,
    ) as server:
        with Client(server.address, model=toy_model.NAME) as client:
            assert client.predict(["hello"])["text"] == ["bonjour"]
        yield server


def page(server, path):
    url = f"http://{server.rest_address}{path}"
    with urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.status == 200
        return answer.read().decode()


def test_the_probes_are_answered(server):
    deployment = next(yaml.safe_load_all(read("kubernetes.yaml")))
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    (variable,) = container["env"]
    path = container["readinessProbe"]["httpGet"]["path"]
    path = path.replace(variable["value"], toy_model.NAME)
    assert "signature_def" in page(server, path)


def test_the_metrics_of_the_alerts_are_written(server):
    (job,) = yaml.safe_load(read("prometheus.yaml"))["scrape_configs"]
    written = page(server, job["metrics_path"])
    for name in set(re.findall(r":tensorflow[\w:]+", read("alerts.yaml"))):
        assert re.search(rf"(?m)^{name}{{", written), name


def test_a_label_leads_to_its_version(toy_path, tmp_path):
    """With the flags that the README gives."""
    (given,) = re.findall(
        r'export FLAGS="(.*?)"', README.read_text(), re.DOTALL
    )
    found = flags.read(given.replace("/settings", str(tmp_path)).split())
    text = read("models.pbtxt").replace("/models/", f"{tmp_path}/")
    (tmp_path / "models.pbtxt").write_text(text)
    (model,) = settings.models(found)
    for version in model.versions:
        shutil.copytree(toy_path, f"{model.base_path}/{version}")
    with Server(
        port=0, models=[model], loading=settings.loading(found)
    ) as server:
        with Client(server.address, model=model.name) as client:
            for label, version in model.labels:
                assert client.predict(["cat"], version=label).version == version
