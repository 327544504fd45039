"""`Metrics`: the counters of the server, for Prometheus.

Names, labels, units and buckets are TensorFlow Serving's, so that its
dashboards and alerts work with either server.
"""

import collections
import logging
import re
from collections.abc import Iterator
from typing import Any

import prometheus_client
from prometheus_client.core import Metric

from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.seldom import Seldom

_LOG = logging.getLogger(__name__)

# Errors that a client cannot fix.
_FAULTS = {
    Code.DATA_LOSS,
    Code.DEADLINE_EXCEEDED,
    Code.INTERNAL,
    Code.RESOURCE_EXHAUSTED,
    Code.UNAVAILABLE,
    Code.UNKNOWN,
}

_PREFIX = ":tensorflow:serving:"

# 33 buckets from 10 microseconds to 25 minutes.
_MICROSECONDS = [10 * 1.8**power for power in range(33)]
# 52 buckets from 100 microseconds to a second.
_QUEUE_MICROSECONDS = [100 * 1.2**power for power in range(52)]
_ROWS = [float(2**power) for power in range(15)]


class Metrics:
    """Counts requests, batches and loads. Threads may share it."""

    def __init__(self) -> None:
        self._registry = prometheus_client.CollectorRegistry()
        self._failed: dict[tuple, Seldom] = collections.defaultdict(
            lambda: Seldom(
                _LOG,
                "failed times=%d model=%.200s api=%s entrypoint=%s code=%s "
                "seconds=%.3f",
            )
        )
        self._requests = self._counter(
            "request_count", "Requests by their status.", "model_name", "status"
        )
        self._latency = self._histogram(
            "request_latency",
            "Microseconds of a request that was answered.",
            _MICROSECONDS,
            "model_name",
            "API",
            "entrypoint",
        )
        self._queuing = self._histogram(
            "batching_session:queuing_latency",
            "Microseconds that a request waited for its batch.",
            _QUEUE_MICROSECONDS,
            "thread_pool_name",
        )
        self._runs = self._counter(
            "batching_session:wrapped_run_count", "Runs of batches."
        )
        self._input = self._histogram(
            "batching_session:input_batch_size", "Rows of a request.", _ROWS
        )
        self._processed = self._histogram(
            "batching_session:processed_batch_size", "Rows of a batch.", _ROWS
        )
        self._padding = self._histogram(
            "batching_session:padding_size",
            "Rows that fill a batch up to an allowed size.",
            _ROWS,
        )
        self._warm_up = self._histogram(
            "model_warmup_latency",
            "Microseconds of the warm-up of a version.",
            _MICROSECONDS,
            "model_path",
            "status",
        )
        self._loads = self._add(
            prometheus_client.Counter,
            ":tensorflow:cc:saved_model:load_attempt_count",
            "Loads of a version by their outcome.",
            ("model_path", "status"),
        )

    def request(
        self, model: str, api: str, entrypoint: str, code: Code, seconds: float
    ) -> None:
        """Counts a request, and logs it if the server is at fault.

        Requests of one model, call and status get one line a minute, with the
        time of the last.

        The log never contains a user's text, so it omits the text of the error
        too.

        Args:
            model: Name of the model.
            api: The call, such as `Predict`, or `predict` by REST.
            entrypoint: `GRPC` or `REST`.
            code: Its status.
            seconds: How many seconds it took.
        """
        self._requests.labels(model, code.name).inc()
        if code in _FAULTS:
            kind = model, api, entrypoint, code.name
            self._failed[kind](*kind, seconds)
        if code is Code.OK:
            microseconds = seconds * 1e6
            self._latency.labels(model, api, entrypoint).observe(microseconds)

    def queued(self, threads: str, seconds: float, rows: int) -> None:
        """Counts a request that leaves the queue for a batch.

        Args:
            threads: Name of the threads that run batches.
            seconds: How many seconds it waited.
            rows: Its rows.
        """
        self._queuing.labels(threads).observe(seconds * 1e6)
        self._input.observe(rows)

    def processed(self, rows: int, padding: int) -> None:
        """Counts a batch, and how many of its rows are padding."""
        self._runs.inc()
        self._processed.observe(rows)
        self._padding.observe(padding)

    def loaded(self, path: str, succeeded: bool) -> None:
        """Counts a load of the version at a path."""
        status = "success" if succeeded else "fail"
        self._loads.labels(path, status).inc()

    def warmed_up(self, path: str, succeeded: bool, seconds: float) -> None:
        """Counts the warm-up of the version at a path."""
        status = "OK" if succeeded else "UNKNOWN"
        self._warm_up.labels(path, status).observe(seconds * 1e6)

    def page(self) -> bytes:
        """Returns the metrics in Prometheus' text format."""
        page = prometheus_client.generate_latest(self._registry)
        # The library adds this suffix to the names of counters, whatever the
        # names of their samples.
        return re.sub(rb"(?m)^(# [A-Z]+ \S+)_total ", rb"\1 ", page)

    def _counter(self, name, text, *labels):
        return self._add(
            prometheus_client.Counter, _PREFIX + name, text, labels
        )

    def _histogram(self, name, text, buckets, *labels):
        return self._add(
            prometheus_client.Histogram,
            _PREFIX + name,
            text,
            labels,
            buckets=buckets,
        )

    def _add(self, kind, name, text, labels, **options):
        metric = kind(name, text, labels, registry=None, **options)
        self._registry.register(_Named(metric, name))
        return metric


class _Named:
    """A metric under exactly its name.

    The library appends `_total` to counters, and adds a creation time to all
    metrics.
    """

    def __init__(self, metric: Any, name: str):
        self._metric, self._name = metric, name

    def collect(self) -> Iterator[Metric]:
        for family in self._metric.collect():
            result = Metric(self._name, family.documentation, family.type)
            for sample in family.samples:
                if sample.name.endswith("_created"):
                    continue
                name = sample.name.removesuffix("_total")
                result.add_sample(name, sample.labels, sample.value)
            yield result
