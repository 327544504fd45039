"""A client's calls over a transport without a server: retries and parts."""

import itertools
import math
import pickle

import grpc
import numpy as np
import pytest
from keras_attn_serving import AsyncClient
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import Result
from keras_attn_serving import RowError
from keras_attn_serving import ServingError
from keras_attn_serving.client.inputs import Options
from keras_attn_serving.client.queries import Queries
from keras_attn_serving.client.retries import Retries
from keras_attn_serving.client.row_parts import joined
from keras_attn_serving.client.row_parts import rows_allowed
from keras_attn_serving.wire.deadline import Deadline
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.results import TensorSpec
from keras_attn_serving.wire.transport import Metadata
from keras_attn_serving.wire.transport import Transport
from keras_attn_serving.wire.transport import run_now

UNAVAILABLE = grpc.StatusCode.UNAVAILABLE
INVALID = grpc.StatusCode.INVALID_ARGUMENT
EXHAUSTED = grpc.StatusCode.RESOURCE_EXHAUSTED
NOT_FOUND = grpc.StatusCode.NOT_FOUND
AWAY = UNAVAILABLE, "failed to connect to all addresses"
FULL = EXHAUSTED, "Run() timeout exceeded while waiting in batching queue"


class Fake(Transport):
    """Answers each text in capitals, after the failures that it is given.

    Attributes:
        asked: The texts of each request, and the version asked for.
        slept: Seconds of each pause.
        waits: Seconds of each wait for the server.
    """

    address = "nowhere:1"

    def __init__(self, *failures, most=None, versions=(3,)):
        self.failures = list(failures)
        self.most = most
        self.versions = itertools.chain(versions, itertools.repeat(None))
        self.version = next(self.versions)
        self.asked, self.slept, self.waits = [], [], []

    async def predict(self, spec, signature, inputs, outputs, timeout):
        texts = [x.decode() for x in inputs["text"]]
        self.asked.append((texts, spec.version))
        if self.failures:
            if failure := self.failures.pop(0):
                raise ServingError(*failure)
        if self.most and len(texts) > self.most:
            raise ServingError(
                INVALID,
                f"Task size {len(texts)} is larger than maximum input batch "
                f"size {self.most}",
            )
        if spec.version not in (None, self.version):
            raise ServingError(NOT_FOUND, f"Specific(m, {spec.version})")
        width = max(map(len, texts), default=0)
        values = {
            "text": [x.upper() for x in texts],
            "score": np.array([-len(x) for x in texts], "float32"),
            "tokens": [[*x, *[""] * (width - len(x))] for x in texts],
        }
        return Result(values, "m", self.version, signature)

    async def metadata(self, spec, timeout):
        found = Metadata(self.version, {signature: Signature({}, {})})
        self.version = next(self.versions) or self.version
        return found

    async def status(self, spec, timeout):
        return []

    async def ready(self, timeout):
        self.waits.append(timeout)

    async def sleep(self, seconds):
        self.slept.append(seconds)

    async def close(self):
        pass


signature = "serving_default"


def ask(transport, texts, retries=0, max_rows=None, timeout=60.0, **options):
    """Returns the result of a call; pauses do not vary."""
    again = Retries(retries, draw=lambda: 0.5)
    queries = Queries(transport, "m", None, timeout, again, max_rows)
    return run_now(queries.predict(texts, **options))


@pytest.mark.parametrize(
    "kind, address",
    [
        (Client, "localhost:8500"),
        (AsyncClient, "localhost:8500"),
        (RestClient, "http://localhost:8501"),
    ],
)
def test_a_client_shows_its_server_and_model(kind, address):
    client = kind(address, "pronounce", version="canary")
    assert repr(client) == (
        f"<{kind.__name__} '{address}', model='pronounce', version='canary'>"
    )


def test_a_call_is_made_again_until_the_server_is_back():
    transport = Fake(AWAY, AWAY, AWAY)
    assert ask(transport, ["a"], retries=3)["text"] == ["A"]
    assert transport.slept == [0.2, 0.4, 0.8]
    # Each of them then waits for the server, up to 30 s.
    assert transport.waits == [30.0, 30.0, 30.0]


def test_no_call_is_made_again_unless_told():
    transport = Fake(AWAY)
    with pytest.raises(ServingError, match="failed to connect"):
        ask(transport, ["a"])
    assert len(transport.asked) == 1


def test_a_call_fails_when_its_retries_are_used_up():
    transport = Fake(AWAY, AWAY, AWAY)
    with pytest.raises(ServingError, match="failed to connect"):
        ask(transport, ["a"], retries=2)
    assert len(transport.asked) == 3


def test_a_full_queue_is_tried_again_without_waiting_for_the_server():
    transport = Fake(FULL)
    assert ask(transport, ["a"], retries=1)["text"] == ["A"]
    assert transport.waits == []


@pytest.mark.parametrize(
    "failure",
    [
        (INVALID, "Expects arg[0] to be string but float is provided"),
        (NOT_FOUND, "Servable not found for request: Latest(m)"),
        (grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded"),
        (grpc.StatusCode.INTERNAL, "XLA compilation disabled"),
        (EXHAUSTED, "SERVER: Received message larger than max (9 vs. 5)"),
        (UNAVAILABLE, "Tls handshake failed: WRONG_VERSION_NUMBER"),
    ],
    ids=lambda x: f"{x[0].name} {x[1][:9]}",
)
def test_what_will_not_pass_is_not_tried_again(failure):
    transport = Fake(failure, failure)
    with pytest.raises(ServingError):
        ask(transport, ["a"], retries=3)
    assert len(transport.asked) == 1


def test_retries_end_with_the_calls_own_deadline():
    transport = Fake(AWAY, AWAY)
    with pytest.raises(ServingError, match="failed to connect"):
        ask(transport, ["a"], retries=9, timeout=0.1)  # a pause is 0.2 s
    assert len(transport.asked) == 1
    assert Deadline(None).left() is None
    assert Deadline(None).left(most=30) == 30
    assert Deadline(0.0).left() == 0.0


def test_pauses_vary_and_grow_to_ten_seconds():
    transport = Fake(*[FULL] * 9)
    draws = iter([0.0, 1.0] * 5)
    queries = Queries(
        transport, "m", None, None, Retries(9, lambda: next(draws)), None
    )
    run_now(queries.predict(["a"]))
    factors = [0.5, 1.5] * 5
    usual = [0.2, 0.4, 0.8, 1.6, 3.2, 6.4, 10.0, 10.0, 10.0]
    expected = [x * y for x, y in zip(usual, factors, strict=False)]
    np.testing.assert_allclose(transport.slept, expected)


def test_a_long_call_goes_in_parts_and_comes_back_in_order():
    transport = Fake()
    found = ask(transport, list("abcde"), max_rows=2)
    assert found["text"] == list("ABCDE")
    # One version answers all of them.
    assert transport.asked == [(list("ab"), 3), (list("cd"), 3), (["e"], 3)]
    assert (found.model, found.version, found.signature) == (
        "m",
        3,
        "serving_default",
    )
    np.testing.assert_array_equal(found["score"], [-1] * 5)
    assert found["score"].dtype == np.float32


def test_a_call_that_is_too_long_for_the_server_goes_in_parts_by_itself():
    transport = Fake(most=2)
    assert ask(transport, list("abcde"))["text"] == list("ABCDE")
    assert [len(x) for x, _ in transport.asked] == [5, 2, 2, 1]
    transport = Fake(most=2)
    assert ask(transport, list("abcde"), max_rows=4)["text"] == list("ABCDE")
    assert [len(x) for x, _ in transport.asked] == [4, 2, 2, 1]


def test_one_row_too_many_is_no_reason_to_split_further():
    transport = Fake((INVALID, 'Input "text" may have at most 0 rows.'))
    with pytest.raises(ServingError):
        ask(transport, ["a"])


@pytest.mark.parametrize(
    ("code", "message", "rows"),
    [
        (
            INVALID,
            'Input "text" may have at most 128 rows. Received: 300. Send',
            128,
        ),
        (
            INVALID,
            "Task size 300 is larger than maximum input batch size 64",
            64,
        ),
        (
            EXHAUSTED,
            "SERVER: Received message larger than max (40 vs. 16777216)",
            150,
        ),
        (
            INVALID,
            'The texts of input "text" may have at most 9 bytes together.',
            150,
        ),
        (INVALID, 'Input "frames" may have at most 99 bytes. Received', 150),
        (EXHAUSTED, "A request may have at most 16777216 bytes. Send", 150),
        # One text alone would still be too long.
        (INVALID, 'A text of input "text" may have at most 9 bytes.', None),
        (INVALID, "could not correctly convert string", None),
        (UNAVAILABLE, "queue is full", None),
    ],
)
def test_a_refusal_tells_how_many_rows_to_send(code, message, rows):
    assert rows_allowed(ServingError(code, message), 300) == rows


def test_padding_grows_to_that_of_the_widest_part():
    found = ask(Fake(), ["abc", "d", "ef"], max_rows=1)
    assert found["tokens"] == [["a", "b", "c"], ["d", "", ""], ["e", "f", ""]]
    parts = [
        Result({"alignments": np.ones((1, 2, width), "float32")})
        for width in (1, 3)
    ]
    np.testing.assert_array_equal(
        joined(parts, [1, 1])["alignments"],
        [[[1, 0, 0], [1, 0, 0]], [[1, 1, 1], [1, 1, 1]]],
    )
    states = [Result({"state_0": np.ones((1, n), bool)}) for n in (1, 2)]
    assert joined(states, [1, 1])["state_0"].tolist() == [
        [True, False],
        [True, True],
    ]


def test_parts_whose_outputs_cannot_be_joined_are_refused():
    parts = [Result({"logits": np.ones((1, n))}) for n in (1, 2)]
    with pytest.raises(ValueError, match=r"'logits' of shapes.*fewer rows"):
        joined(parts, [1, 1])


@pytest.mark.parametrize(
    "value",
    [np.array([1, 2]), np.array([1]), np.float32(1), "m", ["a"]],
    ids=["as many as labels", "too few", "scalar", "string", "texts"],
)
def test_outputs_without_a_row_for_each_text_are_not_joined(value):
    parts = [Result({"x": value})] * 2
    with pytest.raises(ValueError, match="a row for each row sent.*'x'"):
        joined(parts, [3, 3])
    assert joined(parts[:1], [3]) is parts[0]


@pytest.mark.parametrize("prefixes", ["ab", b"ab", [], ["a"]])
def test_prefixes_are_a_list_with_one_for_each_source(prefixes):
    options = Options(dict.fromkeys(["text", "prefix"]), {"text": ""})
    with pytest.raises(ValueError, match="`prefixes` must be"):
        options.arrays(2, prefixes, None, None)


@pytest.mark.parametrize(
    ("seed", "sent"),
    [(None, [-1, -1]), (7, [7, 8]), ([7, 3], [7, 3]), (range(2), [0, 1])],
)
def test_a_seed_is_of_the_first_source_or_of_each(seed, sent):
    wanted = dict.fromkeys(["text", "prefix", "seed"])
    arrays = Options(wanted, {"text": ""}).arrays(2, None, seed, None)
    np.testing.assert_array_equal(arrays["seed"], np.array(sent, "int32"))
    assert arrays["seed"].dtype == np.int32


@pytest.mark.parametrize(
    "seed",
    [-1, [1, -1], 1.5, "a", [1, None], [1], [1, 2, 3], 2**31, [2**70] * 2],
)
def test_what_is_no_seed_is_refused(seed):
    wanted = dict.fromkeys(["text", "prefix", "seed"])
    with pytest.raises(ValueError, match="`seed` "):
        Options(wanted, {"text": ""}).arrays(2, None, seed, None)


def test_parts_begin_again_when_their_version_is_unloaded():
    # Metadata names version 3, but then 4 has taken its place.
    transport = Fake(versions=(3, 4))
    found = ask(transport, list("abc"), max_rows=2)
    assert found["text"] == list("ABC") and found.version == 4
    assert [version for _, version in transport.asked] == [3, 4, 4]


def test_parts_do_not_chase_versions_for_ever():
    transport = Fake(versions=range(3, 99))
    with pytest.raises(ServingError, match="NOT_FOUND"):
        ask(transport, list("abc"), max_rows=2)
    assert len(transport.asked) == 4


def test_a_version_asked_for_by_number_is_kept():
    transport = Fake(versions=(3, 4))
    with pytest.raises(ServingError, match="NOT_FOUND"):
        ask(transport, list("abc"), max_rows=2, version=7)
    assert len(transport.asked) == 1


def test_each_part_is_tried_again_on_its_own():
    transport = Fake(None, AWAY)
    found = ask(transport, list("abcd"), max_rows=2, retries=1)
    assert found["text"] == list("ABCD")
    asked = [texts for texts, _ in transport.asked]
    assert asked == [["a", "b"], ["c", "d"], ["c", "d"]]


def test_an_empty_call_is_one_request():
    transport = Fake()
    assert ask(transport, [], max_rows=2)["text"] == []
    assert len(transport.asked) == 1


@pytest.mark.parametrize("version", [1.0, [1], b"stable"])
def test_a_version_that_can_be_none_is_refused_by_name(version):
    with pytest.raises(ValueError, match="`version` must be a whole number"):
        Client("localhost:1", "m", version=version)
    with Client("localhost:1", "m") as client:
        with pytest.raises(ValueError, match="Received: version="):
            client.predict(["a"], version=version)


def test_a_version_may_be_numpys():
    transport = Fake()
    ask(transport, ["a"], version=np.int64(3))
    assert transport.asked == [(["a"], 3)]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"retries": -1}, "`retries` must be the number of times"),
        ({"retries": 1.5}, "retries=1.5"),
        ({"max_rows": 0}, "`max_rows` must be the most rows"),
        ({"max_rows": True}, "max_rows=True"),
        ({"model": 7}, "`model` must be a string"),
    ],
)
def test_settings_that_can_be_none_are_refused_at_once(options, words):
    with pytest.raises(ValueError, match=words):
        Client("localhost:1", **options)


@pytest.mark.parametrize("value", [None, [5, None]])
def test_an_option_that_is_no_number_is_refused_by_name(value):
    specs = {"text": "string", "prefix": "string", "max_length": "int32"}
    inputs = {name: TensorSpec(dtype, (None,)) for name, dtype in specs.items()}
    options = Options(inputs, {"text": 1})
    with pytest.raises(ValueError, match="`max_length` must be a number"):
        options.arrays(2, None, None, {"max_length": value})


@pytest.mark.parametrize("inputs", [{}, {"a": [1], "b": [1, 2]}, {"a": 3}])
def test_options_need_as_many_rows_in_each_input(inputs):
    with Client("localhost:1", "m") as client:
        with pytest.raises(ValueError, match="a row for each source"):
            client.translate(inputs)


NUMBERS = TensorSpec("int32", (None,))
STRINGS = TensorSpec("string", (None,))
FRAMES = TensorSpec("float32", (None, None))
SOURCES = {"text": STRINGS, "frames": FRAMES, "lengths": NUMBERS}
ROW = {"text": "a", "frames": [0.5], "lengths": 1}


class Exported(Fake):
    """Answers as an export with the given sources does.

    Attributes:
        timeouts: The seconds of each call.
        inputs: Those of the last request.
    """

    def __init__(self, sources=SOURCES, default=True):
        super().__init__()
        self.timeouts = []
        options = {"prefix": STRINGS, "width": NUMBERS}
        phrases = {"terms": STRINGS, "avoid": STRINGS}
        names = {
            "options": sources | options,
            "terms": sources | options | phrases,
            "words": {"frames": FRAMES, "prefix": STRINGS},
        }
        if default:
            names["serving_default"] = sources
        self.signatures = {x: Signature(y, {}) for x, y in names.items()}

    async def predict(self, spec, signature, inputs, outputs, timeout):
        self.timeouts.append(timeout)
        self.inputs = inputs
        rows = len(next(iter(inputs.values())))
        one = "text score truncated empty error word_count no_speech prompt"
        several = "words starts ends probabilities"
        values = {name: [0] * rows for name in one.split()}
        return Result(values | {name: [[]] * rows for name in several.split()})

    async def metadata(self, spec, timeout):
        self.timeouts.append(timeout)
        return Metadata(1, self.signatures)

    async def ready(self, timeout):
        self.timeouts.append(timeout)


@pytest.mark.parametrize("own", [5.0, None])
@pytest.mark.parametrize(
    "call",
    [
        lambda queries, **how: queries.predict({"text": ["a"]}, **how),
        lambda queries, **how: queries.translate(
            {name: [x] for name, x in ROW.items()}, **how
        ),
        lambda queries, **how: queries.translate(
            {name: [x] for name, x in ROW.items()}, terms=[["b"]], **how
        ),
        lambda queries, **how: queries.words([np.zeros(3)], **how),
        lambda queries, **how: queries.metadata(**how),
        lambda queries, **how: queries.wait_until_ready(**how),
    ],
    ids=["predict", "options", "terms", "words", "metadata", "ready"],
)
def test_an_endless_timeout_holds_for_all_of_a_calls_requests(call, own):
    transport = Exported()
    queries = Queries(transport, "m", None, own, 0, None)
    run_now(call(queries, timeout=math.inf))
    assert set(transport.timeouts) == {None}


def test_a_timeout_holds_for_all_of_a_calls_requests():
    transport = Exported()
    queries = Queries(transport, "m", None, None, 0, None)
    rows = {name: [x] for name, x in ROW.items()}
    run_now(queries.translate(rows, timeout=5.0))
    run_now(queries.words([np.zeros(3)], timeout=5.0))
    assert len(transport.timeouts) == 4
    assert all(4.0 < x <= 5.0 for x in transport.timeouts)


@pytest.mark.parametrize("name", ["options", "terms"])
@pytest.mark.parametrize("missing", SOURCES)
def test_a_missing_source_is_no_option(missing, name):
    transport = Exported()
    queries = Queries(transport, "m", None, None, 0, None)
    terms = [["b"]] if name == "terms" else None
    rows = {name: [x] for name, x in ROW.items()}
    run_now(queries.translate(rows, terms=terms))
    assert transport.inputs["lengths"].tolist() == [1]
    with pytest.raises(ValueError, match=r"may hold \['width'\]"):
        run_now(queries.translate(rows, options={"lengths": 1}, terms=terms))
    del rows[missing]
    with pytest.raises(ValueError, match=f"without .'{missing}'") as caught:
        run_now(queries.translate(rows, terms=terms))
    assert "all sources of the model, ['text', 'frames', 'lengths']" in str(
        caught.value
    )


@pytest.mark.parametrize("missing", ["text", "frames"])
def test_a_source_is_known_without_the_default_signature(missing):
    queries = Queries(Exported(default=False), "m", None, None, 0, None)
    rows = {name: [x] for name, x in ROW.items() if name != missing}
    with pytest.raises(ValueError, match=f"without .'{missing}'"):
        run_now(queries.translate(rows))


def test_a_source_may_be_named_like_phrases():
    transport = Exported({"terms": STRINGS})
    queries = Queries(transport, "m", None, None, 0, None)
    run_now(queries.translate({"terms": ["a"]}))
    with pytest.raises(ValueError, match="without .'terms'"):
        run_now(queries.translate(["a"]))


def test_errors_travel_between_processes():
    error = ServingError(UNAVAILABLE, "away", "wait")
    assert pickle.loads(pickle.dumps(error)).hint == "wait"
    rows = RowError({1: "too long"}, Result({"text": ["A", ""]}, "m", 3))
    found = pickle.loads(pickle.dumps(rows))
    assert found.errors == {1: "too long"}
    assert found.result == {"text": ["A", ""]}
