"""Runs together have no more elements than one may have alone."""

import contextlib
import threading
from concurrent import futures

import pytest
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.server.config import Batching
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.errors import StatusError
from keras_attn_serving.server.limits import Limits
from keras_attn_serving.server.model import Model
from keras_attn_serving.server.room import Room
from support.serving import toy_model
from support.serving.helpers import client_of
from support.serving.helpers import until

MOST = 1280


class Run:
    """A run in a thread of its own, that ends when it is told."""

    def __init__(self, pool, room, elements, timeout=None):
        self.began, self.gate = threading.Event(), threading.Event()
        self.done = pool.submit(self._run, room, elements, timeout)

    def _run(self, room, elements, timeout):
        with room.taken(elements, timeout) as left:
            self.began.set()
            assert self.gate.wait(30)
            return left

    def end(self):
        self.gate.set()
        return self.done.result(30)


@pytest.fixture
def begin():
    """Begins a run, and returns it when it runs or waits."""
    with futures.ThreadPoolExecutor(8) as pool, contextlib.ExitStack() as stack:

        def begin(room, elements, timeout=None):
            before = len(room._waiting)
            run = Run(pool, room, elements, timeout)
            stack.callback(run.gate.set)
            until(
                lambda: (
                    run.began.is_set()
                    or run.done.done()
                    or len(room._waiting) > before
                )
            )
            return run

        yield begin


def test_runs_go_on_together_while_they_have_room(begin):
    room = Room(MOST)
    runs = [begin(room, MOST // 4) for _ in range(4)]
    assert all(run.began.is_set() for run in runs)
    late = begin(room, MOST // 4)
    assert not late.began.is_set()
    runs[2].end()
    assert late.began.wait(30)


def test_a_large_run_is_not_overtaken_but_by_small_ones(begin):
    room = Room(MOST)
    first = begin(room, MOST // 2)
    large = begin(room, 100 * MOST)  # as much as there is
    after = begin(room, MOST // 2)
    small = begin(room, MOST // 64)
    assert small.began.is_set()
    assert not large.began.is_set() and not after.began.is_set()
    first.end()
    assert large.began.wait(30) and not after.began.is_set()
    large.end()
    assert after.began.wait(30)


def test_a_run_without_room_ends_in_time_and_lets_others_pass(begin):
    room = Room(MOST)
    first = begin(room, MOST // 2)
    late = begin(room, MOST, timeout=0.2)
    after = begin(room, MOST // 2, timeout=30.0)
    with pytest.raises(StatusError, match="Deadline exceeded") as caught:
        late.done.result(30)
    assert caught.value.code is Code.DEADLINE_EXCEEDED
    assert after.began.wait(30)
    assert 0 < after.end() < 30.0  # it waited for `late`
    assert first.end() is None


def test_a_run_that_fails_gives_its_room_back():
    room = Room(MOST)
    for _ in range(3):
        with pytest.raises(ZeroDivisionError), room.taken(MOST, 1.0):
            raise ZeroDivisionError


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
        Server(
            toy_path.parent,
            toy_model.NAME,
            port=0,
            rest=Rest(),
            threads=4 if batching is None else None,
            batching=batching,
            limits=Limits(elements=MOST),
        ) as server,
        client_of(server, way) as client,
        futures.ThreadPoolExecutor(4) as pool,
    ):
        monkeypatch.setattr(Model, "execute", watched)
        room = server._executor._room
        calls = []
        for waiting in range(3):
            calls.append(pool.submit(client.predict, ["cat " * 250]))
            until(lambda n=waiting: len(most) == 1 and len(room._waiting) == n)
        assert client.predict(["cat"])["text"] == ["chat"]
        gate.set()
        for call in calls:
            assert call.result(30)["text"][0].startswith("chat")
    assert most == [1, 1, 1]
