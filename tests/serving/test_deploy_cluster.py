"""The files for Kubernetes, KServe and Prometheus, by tools that read them."""

import copy
import pathlib
import re
import shutil
import subprocess

import grpc
import kubernetes_validate
import pytest
import yaml
from keras_attn_serving.server import config
from support.serving.deployed import DEPLOY
from support.serving.deployed import entry_point
from support.serving.deployed import flags
from support.serving.deployed import read


@pytest.fixture(scope="module")
def resources():
    """Each resource by its kind; the second Service is "metrics"."""
    documents = list(yaml.safe_load_all(read("kubernetes.yaml")))
    (metrics,) = [
        x for x in documents if x["metadata"]["name"] == "pronounce-metrics"
    ]
    documents.remove(metrics)
    return {x["kind"]: x for x in documents} | {"metrics": metrics}


@pytest.fixture(scope="module")
def pod(resources):
    return resources["Deployment"]["spec"]["template"]["spec"]


@pytest.fixture(scope="module")
def kserve():
    return yaml.safe_load(read("kserve.yaml"))


def validate(resource):
    kubernetes_validate.validate(
        resource, kubernetes_validate.latest_version(), strict=True
    )


@pytest.mark.parametrize(
    "kind",
    [
        "Deployment",
        "Service",
        "metrics",
        "PodDisruptionBudget",
        "NetworkPolicy",
    ],
)
def test_kubernetes_knows_every_field(resources, kind):
    validate(resources[kind])
    wrong = copy.deepcopy(resources[kind])
    wrong["spec"]["selectr"] = {}
    with pytest.raises(kubernetes_validate.ValidationError, match="selectr"):
        validate(wrong)


def test_the_probes_ask_for_the_model_that_is_served(pod):
    (container,) = pod["containers"]
    (name,) = [
        each["value"]
        for each in container["env"]
        if each["name"] == "MODEL_NAME"
    ]
    assert f"ARG MODEL_NAME={name}\n" in read("Dockerfile")
    ports = {x["name"]: x["containerPort"] for x in container["ports"]}
    assert ports == {"grpc": 8500, "rest": 8501}
    for probe in ("startupProbe", "readinessProbe"):
        asked = container[probe]["httpGet"]
        assert asked == {"path": f"/v1/models/{name}/metadata", "port": "rest"}
    assert container["livenessProbe"]["tcpSocket"]["port"] == "grpc"


def test_the_pod_may_do_what_the_image_does_and_no_more(pod):
    (user,) = re.findall(r"^USER (\d+):", read("Dockerfile"), re.MULTILINE)
    assert pod["securityContext"]["runAsUser"] == int(user)
    (container,) = pod["containers"]
    assert "command" not in container  # the image's entry point and flags
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    batching = config.read_batching(str(DEPLOY / "batching.pbtxt"))
    cores = int(container["resources"]["requests"]["cpu"])
    assert cores >= batching.num_batch_threads


def test_containers_only_write_to_an_empty_folder(pod, kserve):
    predictor = kserve["spec"]["predictor"]
    for spec, container in (
        (pod, pod["containers"][0]),
        (predictor, predictor["model"]),
    ):
        assert spec["securityContext"]["runAsNonRoot"]
        assert not spec["automountServiceAccountToken"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        (volume,) = spec["volumes"]
        (mount,) = container["volumeMounts"]
        assert (volume["name"], mount["mountPath"]) == (mount["name"], "/tmp")
        assert "sizeLimit" in volume["emptyDir"]


def test_pods_are_spread_and_one_stays_when_a_node_is_drained(resources, pod):
    labels = resources["Deployment"]["spec"]["template"]["metadata"]["labels"]
    (spread,) = pod["topologySpreadConstraints"]
    assert spread["labelSelector"]["matchLabels"] == labels
    budget = resources["PodDisruptionBudget"]["spec"]
    assert budget["selector"]["matchLabels"] == labels
    # Fewer, or no node could be drained.
    replicas = resources["Deployment"]["spec"]["replicas"]
    assert 0 < budget["maxUnavailable"] < replicas


def test_clients_reach_both_ports_and_prometheus_one(resources, pod):
    policy = resources["NetworkPolicy"]["spec"]
    labels = resources["Deployment"]["spec"]["template"]["metadata"]["labels"]
    assert policy["podSelector"]["matchLabels"] == labels
    assert set(policy["policyTypes"]) == {"Ingress", "Egress"}
    assert "egress" not in policy  # none
    clients, prometheus = policy["ingress"]
    named = {x["name"] for x in pod["containers"][0]["ports"]}
    assert {x["port"] for x in clients["ports"]} == named
    assert [x["port"] for x in prometheus["ports"]] == ["rest"]
    assert all("podSelector" in x["from"][0] for x in policy["ingress"])


def test_a_pod_ends_after_its_clients_have_left(pod):
    arguments = flags()["grpc_channel_arguments"].split(",")
    age = int(
        dict(x.split("=") for x in arguments)["grpc.max_connection_age_ms"]
    )
    (container,) = pod["containers"]
    command, seconds = container["lifecycle"]["preStop"]["exec"]["command"]
    assert command == "sleep"
    # gRPC lets a connection live up to 10 % longer; then names are looked up.
    assert int(seconds) > 1.1 * int(age) / 1000 + 10
    assert pod["terminationGracePeriodSeconds"] > int(seconds)


def test_the_service_finds_the_pods(resources):
    service, deployment = resources["Service"], resources["Deployment"]
    labels = deployment["spec"]["template"]["metadata"]["labels"]
    assert service["spec"]["selector"].items() <= labels.items()
    assert service["spec"]["clusterIP"] == "None"  # one address for each pod
    metrics = resources["metrics"]["spec"]
    assert metrics["selector"] == service["spec"]["selector"]
    assert metrics["clusterIP"] == "None"
    assert metrics["publishNotReadyAddresses"]  # else none is ever down


def test_kserve_runs_a_container_that_kubernetes_knows(kserve):
    assert kserve["apiVersion"] == "serving.kserve.io/v1beta1"
    assert kserve["kind"] == "InferenceService"
    model = dict(kserve["spec"]["predictor"]["model"])
    assert model.pop("modelFormat") == {"name": "tensorflow"}
    assert model.pop("storageUri").startswith("pvc://")
    predictor = dict(kserve["spec"]["predictor"])
    for ours in ("model", "minReplicas"):
        del predictor[ours]
    pod = {"containers": [{"name": "kserve-container", **model}], **predictor}
    validate(
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "pronounce"},
            "spec": pod,
        }
    )
    assert model["resources"]["limits"]["nvidia.com/gpu"] == 1
    # KServe would add it to another tag.
    assert model["image"].endswith("-gpu")


def test_kserve_gives_the_flags_of_the_image(kserve):
    _, *expected = entry_point()
    assert kserve["spec"]["predictor"]["model"]["args"] == expected


# What TensorFlow Serving names, with its labels: in its sources `servables/
# tensorflow/util.cc`, and in TensorFlow's `cc/saved_model/loader.cc`.
METRICS = {
    ":tensorflow:serving:request_count": {"model_name", "status"},
    ":tensorflow:serving:request_latency_bucket": {
        "model_name",
        "API",
        "entrypoint",
        "le",
    },
    ":tensorflow:cc:saved_model:load_attempt_count": {"model_path", "status"},
}
SCRAPED = {"instance", "job"}


def rules():
    (group,) = yaml.safe_load(read("alerts.yaml"))["groups"]
    return {rule["alert"]: rule for rule in group["rules"]}


@pytest.mark.parametrize("name", rules())
def test_an_alert_asks_for_metrics_that_there_are(name):
    expression = rules()[name]["expr"]
    found = re.findall(r":tensorflow[\w:]+", expression)
    assert set(found) <= METRICS.keys()
    known = SCRAPED.union(*(METRICS[metric] for metric in found))
    matchers = re.findall(r'(\w+)\s*(=~|!=|=)\s*"([^"]*)"', expression)
    grouped = re.findall(r"by \(([^)]*)\)", expression)
    names = {label for label, _, _ in matchers}
    names |= {x.strip() for each in grouped for x in each.split(",")}
    assert names <= known
    for label, _, value in matchers:
        if label == "status" and value != "success":  # of a load
            for code in value.split("|"):
                assert code in grpc.StatusCode.__members__


def test_prometheus_reads_the_path_that_the_server_writes(resources):
    (job,) = yaml.safe_load(read("prometheus.yaml"))["scrape_configs"]
    written = config.read_metrics_path(str(DEPLOY / "monitoring.pbtxt"))
    assert job["metrics_path"] == written
    jobs = re.findall(r'job="([^"]*)"', read("alerts.yaml"))
    assert set(jobs) == {job["job_name"]}
    (names,) = job["dns_sd_configs"]
    service = resources["metrics"]["metadata"]["name"]
    assert names["names"] == [f"{service}.default.svc"]
    assert names["port"] == 8501


def promtool(*arguments):
    found = shutil.which("promtool")
    if not found:
        pytest.skip("needs promtool, of Debian's package `prometheus`")
    done = subprocess.run(
        [found, *arguments], cwd=DEPLOY, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.system
def test_prometheus_takes_the_configuration_and_the_alerts():
    promtool("check", "config", "prometheus.yaml")


A = 'instance="a:8501"'
MODEL = f'{A},model_name="pronounce"'
COUNT = ":tensorflow:serving:request_count"
BUCKET = ":tensorflow:serving:request_latency_bucket"
LOADED = ":tensorflow:cc:saved_model:load_attempt_count"
UP = {f'up{{job="tensorflow-serving",{A}}}': "1x20"}
# Series, a value a minute, and the alerts that they must raise after 15.
CASES = {
    "all is well": (
        UP
        | {
            f'{COUNT}{{{MODEL},status="OK"}}': "0+6000x20",
            f'{COUNT}{{{MODEL},status="INVALID_ARGUMENT"}}': "0+600x20",
            f'{COUNT}{{{MODEL},status="UNAVAILABLE"}}': "0+30x20",
            f'{BUCKET}{{{MODEL},API="Predict",le="1e6"}}': "0+6000x20",
            f'{BUCKET}{{{MODEL},API="Predict",le="+Inf"}}': "0+6000x20",
            f'{LOADED}{{{A},model_path="/m/1",status="success"}}': "1x20",
        },
        set(),
    ),
    "nothing is scraped": ({}, {"NoServer"}),
    "the only server is down": (
        {next(iter(UP)): "0x20"},
        {"NoServer", "ServerDown"},
    ),
    "one of two servers is down": (
        UP | {'up{job="tensorflow-serving",instance="b:8501"}': "0x20"},
        {"ServerDown"},
    ),
    "a load is tried again and again": (
        UP | {f'{LOADED}{{{A},model_path="/m/2",status="fail"}}': "_x11 1+1x4"},
        {"LoadFailed"},
    ),
    "the queue is full": (
        UP
        | {
            f'{COUNT}{{{MODEL},status="OK"}}': "0+6000x20",
            f'{COUNT}{{{MODEL},status="UNAVAILABLE"}}': "0+600x20",
        },
        {"Refused"},
    ),
    "the model fails": (
        UP | {f'{COUNT}{{{MODEL},status="INTERNAL"}}': "0+1x20"},
        {"Errors"},
    ),
    "the model hangs": (
        UP
        | {
            f'{COUNT}{{{MODEL},status="OK"}}': "0+6000x20",
            f'{COUNT}{{{MODEL},status="DEADLINE_EXCEEDED"}}': "0+1200x20",
        },
        {"TimedOut"},
    ),
    "two in a hundred are slow": (
        UP
        | {
            f'{BUCKET}{{{MODEL},API="Predict",le="1e6"}}': "0+5880x20",
            f'{BUCKET}{{{MODEL},API="Predict",le="4e6"}}': "0+6000x20",
            f'{BUCKET}{{{MODEL},API="Predict",le="+Inf"}}': "0+6000x20",
        },
        {"Slow"},
    ),
}


@pytest.mark.system
@pytest.mark.parametrize("case", CASES)
def test_an_alert_is_raised_when_it_should_be(case, tmp_path):
    series, raised = CASES[case]
    expressions = [
        {
            "expr": 'count(ALERTS{alertstate="firing"}) by (alertname)',
            "eval_time": "15m",
            "exp_samples": [
                {"labels": f'{{alertname="{name}"}}', "value": 1}
                for name in sorted(raised)
            ],
        }
    ]
    test = {
        "rule_files": [str(DEPLOY / "alerts.yaml")],
        "evaluation_interval": "1m",
        "tests": [
            {
                "interval": "1m",
                "input_series": [
                    {"series": name, "values": values}
                    for name, values in series.items()
                ],
                "promql_expr_test": expressions,
            }
        ],
    }
    path = pathlib.Path(tmp_path, "test.yaml")
    path.write_text(yaml.safe_dump(test))
    promtool("test", "rules", str(path))
