"""Requests that are joined are answered as they would be alone."""

import asyncio
import contextlib
import threading

import numpy as np
import pytest
from keras_attn_serving.server.batching import Batches
from keras_attn_serving.server.calls import Call
from keras_attn_serving.server.calls import Job
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.metrics import Metrics
from keras_attn_serving.server.model import Model
from support.serving import toy_model


@pytest.fixture(scope="module")
def model(toy_path):
    model = Model(toy_model.NAME, toy_model.VERSION, str(toy_path))
    yield model
    model.close()


class Watched:
    """A model that notes the rows of its runs, and can be held up."""

    def __init__(self, model):
        self._model, self.rows = model, []
        self.plan = model.plan
        self.gate = threading.Event()
        self.gate.set()

    def execute(self, plan, timeout=None):
        self.rows.append(len(next(iter(plan.feeds.values()))))
        self.timeout = timeout
        self.gate.wait(30)
        return self._model.execute(plan, timeout)


class ArrayCall(Call):
    """A call whose messages are arrays."""

    def __init__(self, model, signature, arrays, size=0):
        self._model, self._signature = model, signature
        self._arrays, self.size = arrays, size
        self.open_now = False

    @contextlib.contextmanager
    def open(self):
        plan = self._model.plan(self._signature, self._arrays)
        self.open_now = True
        try:
            yield Job(self._model, self._signature, plan)
        finally:
            self.open_now = False

    def answer(self, job, values):
        return values


def texts(*words):
    return {"text": np.array([word.encode() for word in words], object)}


def answers(model, calls, *, remaining=None, limits=None, **config):
    """Answers calls that all come while another one runs.

    Returns their answers or errors, and the rows of each run.
    """
    watched = Watched(model)

    async def main():
        options = {"num_batch_threads": 1, "max_batch_size": 8} | config
        batches = Batches(Batching(**options), limits or Limits(), Metrics())
        watched.gate.clear()
        first = asyncio.ensure_future(
            batches.answer(ArrayCall(watched, *WARM), None)
        )
        await asyncio.sleep(0)  # it starts at once
        others = [
            asyncio.ensure_future(
                batches.answer(ArrayCall(watched, *call), remaining)
            )
            for call in calls
        ]
        await asyncio.sleep(0)
        if remaining is not None:  # until their time is over
            await asyncio.sleep(remaining + 0.01)
        watched.gate.set()
        await first
        result = await asyncio.gather(*others, return_exceptions=True)
        await batches.idle()
        batches.close()
        return result

    found = asyncio.run(main())
    return found, watched.rows[1:]


WARM = "serving_default", texts("cat")


def same(found, wanted):
    assert found.keys() == wanted.keys()
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_calls_that_come_during_a_run_share_the_next(model):
    calls = [
        ("serving_default", texts("hello")),
        ("serving_default", texts("cat world", "nothing")),
        ("serving_default", texts("world", "cat", "hello cat")),
    ]
    found, rows = answers(model, calls)
    assert rows == [6]
    for answer, (signature, arrays) in zip(found, calls, strict=True):
        same(answer, model.run(signature, arrays))


def test_batches_hold_whole_requests(model):
    calls = [
        ("serving_default", texts(*["cat"] * count)) for count in (5, 3, 1, 8)
    ]
    found, rows = answers(model, calls)
    assert rows == [8, 1, 8]
    assert [len(x["text"]) for x in found] == [5, 3, 1, 8]


def test_signatures_do_not_share_batches(model):
    calls = [
        ("serving_default", texts("cat")),
        ("nbest", texts("cat")),
        ("serving_default", texts("world")),
    ]
    found, rows = answers(model, calls)
    assert sorted(rows) == [1, 2]
    for answer, (signature, arrays) in zip(found, calls, strict=True):
        same(answer, model.run(signature, arrays))


def ids(*rows):
    array = np.array(rows, np.int32)
    return {"ids": array, "lengths": array[:, 0]}


def test_several_inputs_are_joined_each(model):
    calls = [("add", ids([1, 2])), ("add", ids([3, 4], [5, 6]))]
    found, rows = answers(model, calls)
    assert rows == [3]
    np.testing.assert_array_equal(found[0]["sum"], [4])
    np.testing.assert_array_equal(found[1]["sum"], [10, 16])


def echo(shape, value):
    arrays = {
        dtype.name: np.zeros(shape, dtype.as_numpy_dtype)
        for dtype in toy_model.DTYPES
    }
    for name, array in arrays.items():
        if name == "string":
            array.fill(str(value).encode())
        else:
            array[...] = array.dtype.type(value)
    return arrays


def test_shorter_inputs_are_padded_with_their_first_element(model):
    calls = [("echo", echo((1, 2), 1)), ("echo", echo((2, 3), 0))]
    found, rows = answers(model, calls, pad_variable_length_inputs=True)
    assert rows == [3]
    # TensorFlow Serving leaves the padding in the outputs too.
    for name, array in found[0].items():
        np.testing.assert_array_equal(array, echo((1, 3), 1)[name])
    same(found[1], calls[1][1])


@pytest.mark.parametrize("pad", [False, True])
def test_inputs_that_cannot_be_joined_are_refused(model, pad):
    other = (1, 3) if not pad else (1, 3, 1)
    calls = [("echo", echo((1, 2), 1)), ("echo", echo(other, 1))]
    found, _ = answers(model, calls, pad_variable_length_inputs=pad)
    for error in found:
        assert error.code is Code.FAILED_PRECONDITION
        assert "different shapes and padding is turned off" in error.details


def test_a_batch_is_filled_up_to_an_allowed_size(model):
    calls = [("serving_default", texts("cat", "world", "hello"))]
    found, rows = answers(model, calls, allowed_batch_sizes=(2, 4, 8))
    assert rows == [4]
    same(found[0], model.run(*calls[0]))


def test_a_request_of_no_rows_is_not_filled_up(model):
    calls = [("serving_default", texts())]
    found, rows = answers(model, calls, allowed_batch_sizes=(1, 8))
    assert rows == [0]
    assert len(found[0]["text"]) == 0


def test_a_request_of_no_rows_does_not_harm_its_batch(model):
    calls = [
        ("serving_default", texts("cat", "world", "hello")),
        ("serving_default", texts()),
    ]
    found, rows = answers(model, calls, allowed_batch_sizes=(4, 8))
    assert rows == [4]
    for answer, (signature, arrays) in zip(found, calls, strict=True):
        same(answer, model.run(signature, arrays))


def test_a_busy_signature_does_not_hold_up_another(model):
    watched, order = Watched(model), []

    async def main():
        config = Batching(
            num_batch_threads=1, max_batch_size=1, max_enqueued_batches=1000
        )
        batches = Batches(config, Limits(), Metrics())
        watched.gate.clear()

        async def ask(signature, name):
            call = ArrayCall(watched, signature, texts("cat"))
            await batches.answer(call, None)
            order.append(name)
            # Its place in the queue is taken at once.
            if name == "busy" and len(order) < 20:
                await asyncio.gather(*[ask(signature, name) for _ in "12"])

        tasks = [ask("serving_default", "busy") for _ in range(4)]
        tasks.append(ask("nbest", "other"))
        running = asyncio.gather(*tasks)
        await asyncio.sleep(0)
        watched.gate.set()
        await running
        await batches.idle()
        batches.close()

    asyncio.run(main())
    assert order.index("other") == 4


def test_arrays_of_a_few_bytes_count_as_what_they_fill(model):
    limits = Limits(message_bytes=100)
    words = np.broadcast_to(np.array([b""], object), (60,))
    calls = [("serving_default", {"text": words})] * 2
    found, rows = answers(model, calls, limits=limits, max_batch_size=100)
    assert found[1].code is Code.UNAVAILABLE
    assert "too many bytes" in found[1].details


def test_a_long_row_does_not_lengthen_those_of_others(model):
    """Together, padded, they would pass a limit that each keeps."""
    limits = Limits(elements=40)
    calls = [("serving_default", texts(*["cat"] * 3))] * 2
    calls.append(("serving_default", texts("hello world cat")))
    found, rows = answers(model, calls, limits=limits)
    assert [x["text"].tolist() for x in found] == [
        [b"chat"] * 3,
        [b"chat"] * 3,
        [b"bonjour monde chat"],
    ]
    assert rows == [6, 1]


def test_only_so_many_calls_wait(model):
    limits = Limits(queued_calls=2)
    calls = [("serving_default", texts("cat"))] * 3
    found, rows = answers(model, calls, limits=limits)
    assert rows == [2]
    assert found[2].code is Code.UNAVAILABLE
    assert "2 calls wait" in found[2].details


def test_a_call_is_not_awaited_longer_than_its_time(model):
    watched = Watched(model)

    async def main():
        batches = Batches(Batching(num_batch_threads=1), Limits(), Metrics())
        watched.gate.clear()
        running = batches.answer(ArrayCall(watched, *WARM), 0.05)
        queued = batches.answer(ArrayCall(watched, *WARM), 0.05)
        errors = await asyncio.gather(running, queued, return_exceptions=True)
        watched.gate.set()
        await batches.idle()
        batches.close()
        return [x.code for x in errors]

    codes = asyncio.run(main())
    assert codes == [Code.DEADLINE_EXCEEDED, Code.RESOURCE_EXHAUSTED]
    assert watched.rows == [1]  # the one in the queue never ran


@pytest.mark.parametrize(
    ("signature", "arrays", "words"),
    [
        (
            "serving_default",
            texts(*["cat"] * 9),
            "Task size 9 is larger than maximum input batch size 8",
        ),
        ("echo", echo((), 1), "must have at least one dimension"),
        (
            "echo",
            echo((1,), 1) | {"int8": np.zeros(2, np.int8)},
            "must have equal 0th-dimension size",
        ),
    ],
    ids=["too many rows", "scalar", "unequal"],
)
def test_what_cannot_be_in_a_batch_is_refused(model, signature, arrays, words):
    found, rows = answers(model, [(signature, arrays)])
    assert not rows
    assert found[0].code is Code.INVALID_ARGUMENT
    assert words in found[0].details


def test_one_failing_request_fails_its_batch_as_in_tensorflow_serving(model):
    calls = [("number", texts("1")), ("number", texts("cat"))]
    found, rows = answers(model, calls)
    assert rows == [2]
    for error in found:
        assert error.code is Code.INVALID_ARGUMENT
        assert "could not correctly convert" in error.details


def test_a_full_queue_refuses_at_once(model):
    calls = [("serving_default", texts(*["cat"] * 8))] * 3
    found, rows = answers(model, calls, max_enqueued_batches=2)
    assert rows == [8, 8]
    assert found[2].code is Code.UNAVAILABLE
    assert "queue to which this task was submitted is full" in found[2].details


def test_waiting_requests_have_a_common_limit_of_bytes(model):
    limits = Limits(message_bytes=100)
    calls = [("serving_default", texts("cat"), 150)] * 3
    found, rows = answers(model, calls, limits=limits)
    assert rows == [2]
    assert found[2].code is Code.UNAVAILABLE
    assert "too many bytes" in found[2].details


def test_a_request_whose_time_is_over_is_dropped_alone(model):
    calls = [("serving_default", texts("cat"))]
    found, rows = answers(model, calls, remaining=0.02)
    assert not rows
    assert found[0].code is Code.RESOURCE_EXHAUSTED
    assert "timeout exceeded while waiting" in found[0].details


def test_a_request_whose_client_has_left_is_dropped_alone(model):
    watched = Watched(model)

    async def main():
        config = Batching(num_batch_threads=1)
        batches = Batches(config, Limits(), Metrics())
        watched.gate.clear()
        calls = [ArrayCall(watched, *WARM) for _ in range(3)]
        tasks = [asyncio.ensure_future(batches.answer(x, None)) for x in calls]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert calls[1].open_now
        tasks[1].cancel()
        await asyncio.sleep(0)
        assert not calls[1].open_now
        watched.gate.set()
        await tasks[2]
        await batches.idle()
        batches.close()

    asyncio.run(main())
    assert watched.rows == [1, 1]


def test_a_lone_client_waits_for_no_others(model):
    watched = Watched(model)

    async def main():
        config = Batching(batch_timeout_micros=10**12)
        batches = Batches(config, Limits(), Metrics())
        for _ in range(3):
            await batches.answer(ArrayCall(watched, *WARM), None)
        batches.close()

    asyncio.run(main())
    assert watched.rows == [1, 1, 1]


def test_a_busy_server_waits_for_others_as_long_as_it_may(model):
    watched = Watched(model)

    async def main():
        config = Batching(batch_timeout_micros=20_000, num_batch_threads=2)
        batches = Batches(config, Limits(), Metrics())
        watched.gate.clear()
        tasks = [
            asyncio.ensure_future(
                batches.answer(ArrayCall(watched, *WARM), None)
            )
            for _ in range(4)
        ]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert len(watched.rows) <= 1  # the others wait
        while len(watched.rows) < 2:  # until their time is over
            await asyncio.sleep(0.001)
        watched.gate.set()
        await asyncio.gather(*tasks)
        batches.close()

    asyncio.run(main())
    assert watched.rows == [1, 3]


def test_a_run_may_take_as_long_as_the_most_patient_call(model):
    watched = Watched(model)

    async def main():
        config = Batching(num_batch_threads=1)
        batches = Batches(config, Limits(run_seconds=50), Metrics())
        watched.gate.clear()
        first = asyncio.ensure_future(
            batches.answer(ArrayCall(watched, *WARM), None)
        )
        await asyncio.sleep(0)
        others = [
            asyncio.ensure_future(
                batches.answer(ArrayCall(watched, *WARM), seconds)
            )
            for seconds in (20.0, 40.0)
        ]
        await asyncio.sleep(0)
        watched.gate.set()
        await asyncio.gather(first, *others)
        batches.close()

    asyncio.run(main())
    assert watched.rows == [1, 2]
    assert 30 < watched.timeout <= 40


def test_large_messages_are_read_and_written_in_threads(model):
    loop_thread = threading.get_ident()
    threads = []

    class Noting(ArrayCall):
        @contextlib.contextmanager
        def open(self):
            threads.append(threading.get_ident())
            with super().open() as job:
                yield job

    async def main():
        batches = Batches(Batching(), Limits(), Metrics())
        for size in (10, 100_000):
            call = Noting(model, *WARM, size)
            same(await batches.answer(call, None), model.run(*WARM))
            assert not call.open_now
        batches.close()

    asyncio.run(main())
    assert threads[0] == loop_thread != threads[1]


def test_more_calls_than_may_be_taken_are_refused(model):
    async def main():
        batches = Batches(Batching(), Limits(), Metrics(), calls=1)
        first, second = await asyncio.gather(
            *(batches.answer(ArrayCall(model, *WARM), None) for _ in range(2)),
            return_exceptions=True,
        )
        batches.close()
        return first, second

    first, second = asyncio.run(main())
    same(first, model.run(*WARM))
    assert isinstance(second, StatusError)
    assert second.code is Code.RESOURCE_EXHAUSTED


def test_batches_are_counted():
    metrics = Metrics()
    metrics.queued("pool", 0.002, 3)
    metrics.processed(8, 5)
    page = metrics.page().decode()
    prefix = ":tensorflow:serving:batching_session:"
    pool = '{thread_pool_name="pool"}'
    for name, labels, value in (
        ("queuing_latency", pool, 2000.0),
        ("input_batch_size", "", 3.0),
        ("processed_batch_size", "", 8.0),
        ("padding_size", "", 5.0),
    ):
        assert f"{prefix}{name}_sum{labels} {value}\n" in page
        assert f"{prefix}{name}_count{labels} 1.0\n" in page
    assert f"{prefix}wrapped_run_count 1.0\n" in page
