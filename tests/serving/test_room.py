"""Runs together have no more elements than one may have alone."""

import asyncio
import contextlib
import threading
from concurrent import futures

import numpy as np
import pytest
from keras_attn_serving import ServingError
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.batching import Batches
from keras_attn_serving.server.calls import Alone
from keras_attn_serving.server.calls import Call
from keras_attn_serving.server.calls import Job
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.metrics import Metrics
from keras_attn_serving.server.model import Model
from keras_attn_serving.server.room import Room
from keras_attn_serving.server.validation import Plan
from keras_attn_serving.server.workers import Workers
from support.serving import toy_model
from support.serving.helpers import client_of
from support.serving.helpers import until

MOST = 1280
NAMES = "ABCDEFGHxyz"


def asked(room, elements):
    """Returns the place of a run, and when it may begin, `None` for now."""
    place = room.place()
    return place, place.take(elements)


def test_runs_go_on_together_while_they_have_room():
    room = Room(MOST)
    runs = [asked(room, MOST // 4) for _ in range(4)]
    assert all(later is None for _, later in runs)
    late, later = asked(room, MOST // 4)
    assert not later.ready.done()
    runs[2][0].give()
    assert later.ready.done() and late.take(MOST // 4) is None


def test_a_large_run_is_not_overtaken_but_by_small_ones():
    room = Room(MOST)
    first, _ = asked(room, MOST // 2)
    large, to_large = asked(room, 100 * MOST)  # as much as there is
    after, to_after = asked(room, MOST // 2)
    assert asked(room, MOST // 64)[1] is None
    assert not to_large.ready.done() and not to_after.ready.done()
    first.give()
    assert to_large.ready.done() and not to_after.ready.done()
    assert large.take(100 * MOST) is None
    large.give()
    assert to_after.ready.done()


def test_room_for_a_run_that_has_grown_is_asked_for_again():
    """Another version of the model may have been loaded meanwhile."""
    room = Room(MOST)
    first, _ = asked(room, MOST)
    grows, to_grow = asked(room, MOST // 2)
    after, to_after = asked(room, MOST // 2)
    first.give()
    assert to_grow.ready.done() and to_after.ready.done()
    later = grows.take(MOST)
    assert not later.ready.done()
    after.leave()
    assert later.ready.done() and grows.take(MOST) is None
    grows.leave()  # it runs
    assert not room.has(MOST)
    grows.give()
    assert room.has(MOST)


def test_a_run_that_nobody_waits_for_does_not_begin():
    room = Room(MOST)
    for elements in (1, MOST):
        place = room.place()
        place.leave()
        with pytest.raises(StatusError) as caught:
            place.take(elements)
        assert caught.value.code is Code.CANCELLED
    assert room.has(MOST)


class Gated:
    """A model that notes the calls of each run, and ends it when told."""

    def __init__(self):
        self.ran = []
        self.gates = {name: threading.Event() for name in NAMES}

    def execute(self, plan, timeout=None):
        names = "".join(plan.feeds["name"])
        self.ran.append(names)
        for name in names:
            assert self.gates[name].wait(30)
        if "F" in names:
            raise StatusError(Code.INVALID_ARGUMENT, "It fails.")
        return {}

    def end(self, *names):
        for name in names or NAMES:
            self.gates[name].set()


class NamedCall(Call):
    size = 10

    def __init__(self, model, name, elements):
        feeds = {"name": np.array([name], object)}
        self._job = Job(model, "names", Plan(feeds, {}, elements))

    @contextlib.contextmanager
    def open(self):
        yield self._job

    def answer(self, job, values):
        return b"answer"


def held_up(executor):
    """Returns the number of calls that wait for room."""
    queues = getattr(executor, "_queues", {}).values()
    return len(executor._room._waiting) + sum(map(len, queues))


def alone(queued=256):
    return Alone(Workers(2, queued, 60.0), Room(MOST))


def batches(queued=256):
    config = Batching(
        num_batch_threads=2, max_batch_size=8, max_enqueued_batches=1000
    )
    limits = Limits(elements=MOST, queued_calls=queued)
    return Batches(config, limits, Metrics())


class Asked:
    """An executor of two threads, and a `Gated` model."""

    def __init__(self, executor):
        self.executor, self.model = executor, Gated()

    def ask(self, name, elements=MOST, remaining=None):
        """Begins a call: a capital letter for a large one."""
        elements = elements if name.isupper() else 1
        call = NamedCall(self.model, name, elements)
        return asyncio.ensure_future(self.executor.answer(call, remaining))

    async def begun(self, name, elements=MOST):
        """Begins a call, and returns it when it runs."""
        task = self.ask(name, elements)
        while name not in "".join(self.model.ran):
            await asyncio.sleep(0.001)
        return task

    async def waits(self, count):
        while held_up(self.executor) != count:
            await asyncio.sleep(0.001)


@pytest.fixture(params=[alone, batches])
def in_a_loop(request):
    """Runs a coroutine with an `Asked`, and ends it."""

    def run(test, **options):
        async def run_and_close():
            asked = Asked(request.param(**options))
            try:
                await asyncio.wait_for(test(asked), 30)
                asked.model.end()
                await asked.executor.idle()
                while not asked.executor._room.has(MOST):  # the thread ends
                    await asyncio.sleep(0.001)
            finally:
                asked.model.end()
                asked.executor.close()

        asyncio.run(run_and_close())

    return run


def test_large_calls_wait_in_their_order_and_without_a_thread(in_a_loop):
    async def test(asked):
        large = [await asked.begun("A")]
        for waiting, name in enumerate("BCDE", start=1):
            large.append(asked.ask(name))
            await asked.waits(waiting)
        asked.model.end("x")
        assert await asked.ask("x", remaining=20.0) == b"answer"
        asked.model.end()
        assert set(await asyncio.gather(*large)) == {b"answer"}
        assert asked.model.ran == ["A", "x", "B", "C", "D", "E"]

    in_a_loop(test)


def test_who_leaves_while_waiting_for_room_never_runs(in_a_loop):
    async def test(asked):
        first = await asked.begun("A")
        # Two that fit together may share a batch.
        calls = [asked.ask(name, MOST // 2) for name in "BC"]
        await asked.waits(2)
        last = asked.ask("D")
        await asked.waits(3)
        for call in calls:
            call.cancel()
        await asyncio.wait(calls)
        await asked.waits(1)
        asked.model.end()
        await asyncio.gather(first, last)
        assert asked.model.ran == ["A", "D"]

    in_a_loop(test)


def test_who_leaves_while_running_keeps_its_room_until_the_run_ends(in_a_loop):
    async def test(asked):
        first = await asked.begun("A")
        first.cancel()
        await asyncio.wait([first])
        second = asked.ask("B")
        await asked.waits(1)
        assert asked.model.ran == ["A"]
        asked.model.end()
        assert await second == b"answer"

    in_a_loop(test)


def test_a_run_without_room_ends_in_time_and_lets_others_pass(in_a_loop):
    async def test(asked):
        await asked.begun("A", MOST // 2)
        late = asked.ask("B", remaining=0.2)
        await asked.waits(1)
        after = asked.ask("C", MOST // 2)
        await asked.waits(2)
        with pytest.raises(StatusError) as caught:
            await late
        assert caught.value.code in (
            Code.DEADLINE_EXCEEDED,
            Code.RESOURCE_EXHAUSTED,  # as all that wait for a batch
        )
        asked.model.end("C")
        assert await after == b"answer"  # while A still runs
        assert asked.model.ran == ["A", "C"]

    in_a_loop(test)


def test_a_run_that_fails_gives_its_room_back(in_a_loop):
    async def test(asked):
        asked.model.end()
        for _ in range(3):
            with pytest.raises(StatusError, match="It fails"):
                await asked.ask("F", remaining=20.0)

    in_a_loop(test)


def test_only_so_many_calls_wait_for_room(in_a_loop):
    async def test(asked):
        await asked.begun("A")
        for waiting, name in enumerate("BC", start=1):
            asked.ask(name)
            await asked.waits(waiting)
        with pytest.raises(StatusError) as caught:
            await asked.ask("D")
        assert caught.value.code is Code.UNAVAILABLE
        asked.model.end()

    in_a_loop(test, queued=2)


def test_the_time_in_which_a_call_waits_for_room_is_none_of_its_run():
    async def test():
        asked = Asked(alone())
        await asked.begun("A")
        asked.ask("B")
        await asked.waits(1)
        workers = asked.executor._workers
        while workers._free != 1:  # it has given its thread back
            await asyncio.sleep(0.001)
        assert workers._mean == 0.0  # seconds of the runs that have ended
        asked.model.end()
        await asked.executor.idle()
        asked.executor.close()

    asyncio.run(asyncio.wait_for(test(), 30))


def test_cancelled_at_any_moment_no_room_is_lost(in_a_loop):
    async def test(asked):
        asked.model.end()
        random = np.random.default_rng(0)
        tasks = []
        for _ in range(300):
            elements = random.choice([MOST // 3, MOST // 2, MOST])
            tasks.append(asked.ask(random.choice(list("ABx")), int(elements)))
            for _ in range(random.integers(3)):
                await asyncio.sleep(0)
            random.choice(tasks).cancel()
        found = await asyncio.gather(*tasks, return_exceptions=True)
        kinds = {type(x) for x in found}
        assert kinds <= {bytes, asyncio.CancelledError}
        assert await asked.ask("C") == b"answer"
        assert not held_up(asked.executor)

    in_a_loop(test, queued=1000)


def small_server(toy_path, batching):
    """Returns a server with room for one large call at a time."""
    return Server(
        toy_path.parent,
        toy_model.NAME,
        port=0,
        rest=Rest(),
        threads=4 if batching is None else None,
        batching=batching,
        limits=Limits(elements=MOST),
    )


@pytest.mark.parametrize("batching", [None, Batching(num_batch_threads=4)])
@pytest.mark.parametrize("way", ["gRPC", "REST"])
def test_large_calls_run_one_after_the_other(
    toy_path, monkeypatch, way, batching
):
    running, most, gate = set(), [], threading.Event()
    execute = Model.execute

    def watched(model, plan, timeout=None):
        if plan.elements > 100:
            running.add(threading.get_ident())
            most.append(len(running))
            assert gate.wait(30)
            running.discard(threading.get_ident())
        return execute(model, plan, timeout)

    with (
        small_server(toy_path, batching) as server,
        client_of(server, way) as client,
        futures.ThreadPoolExecutor(4) as pool,
    ):
        monkeypatch.setattr(Model, "execute", watched)
        executor, calls = server._executor, []
        for waiting in range(3):
            calls.append(pool.submit(client.predict, ["cat " * 250]))
            until(lambda n=waiting: len(most) == 1 and held_up(executor) == n)
        assert client.predict(["cat"])["text"] == ["chat"]
        gate.set()
        for call in calls:
            assert call.result(30)["text"][0].startswith("chat")
    assert most == [1, 1, 1]


@pytest.mark.parametrize("batching", [None, Batching(num_batch_threads=4)])
@pytest.mark.parametrize("way", ["gRPC", "REST"])
@pytest.mark.parametrize("grace", [30.0, 0.1])
def test_a_server_that_stops_answers_or_refuses_who_waits_for_room(
    toy_path, monkeypatch, way, batching, grace
):
    gate, began, execute = threading.Event(), [], Model.execute

    def held(model, plan, timeout=None):
        if plan.elements > 100:
            began.append(plan)
            assert gate.wait(30)
        return execute(model, plan, timeout)

    with (
        small_server(toy_path, batching) as server,
        client_of(server, way) as client,
        futures.ThreadPoolExecutor(4) as pool,
    ):
        monkeypatch.setattr(Model, "execute", held)
        calls = [pool.submit(client.predict, ["cat " * 250]) for _ in range(3)]
        until(lambda: began and held_up(server._executor) == 2)
        stopping = pool.submit(server.stop, grace)
        if grace > 1.0:
            until(server._health._stopped.is_set)
            gate.set()
        errors = [call.exception(30) for call in calls]
        gate.set()
        stopping.result(30)
    if grace > 1.0:
        assert errors == [None] * 3
    else:
        assert {type(x) for x in errors} == {ServingError}
        assert len(began) == 1
