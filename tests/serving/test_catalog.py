"""Which versions are served, when they come and go, and by what labels."""

import shutil
import threading

import pytest
import tensorflow as tf
from keras_attn_serving.server.catalog import Spec
from keras_attn_serving.server.catalog import State
from keras_attn_serving.server.config import ConfigError
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.model import LoadError
from support.serving.shelf import Shelf
from support.serving.shelf import lent
from support.serving.shelf import refusal
from support.serving.shelf import states


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


@pytest.mark.parametrize(
    ("options", "served"),
    [
        ({}, {10}),
        ({"latest": 2}, {7, 10}),
        ({"latest": 9}, {2, 7, 10}),
        ({"latest": 0}, {2, 7, 10}),
        ({"versions": frozenset([2, 7])}, {2, 7}),
        ({"versions": frozenset([7, 99])}, {7}),
    ],
    ids=["newest", "two", "more than there are", "all", "specific", "some"],
)
def test_the_policy_says_which_versions_are_served(shelf, options, served):
    shelf.add(2, 7, 10)
    catalog = shelf.open(shelf.config(**options))
    assert states(catalog) == dict.fromkeys(served, "AVAILABLE")
    assert lent(catalog, "m") == max(served)
    assert [x.version for x in catalog.status("m")] == sorted(
        served, reverse=True
    )
    catalog.close()


def test_the_newest_is_loaded_first(shelf):
    shelf.add(1, 3, 2)
    shelf.open(shelf.config(latest=0)).close()
    assert shelf.loads == [3, 2, 1]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, "named by an integer.*has none"),
        ({"versions": frozenset([5, 6])}, r"named 5 or 6.*has none"),
    ],
)
def test_a_start_without_versions_is_refused(shelf, options, words):
    (shelf.path / "m").mkdir()
    with pytest.raises(LoadError, match=words):
        shelf.open(shelf.config(**options))


def test_a_new_version_takes_over_and_the_old_one_ends(shelf):
    shelf.add(1)
    catalog = shelf.open()
    shelf.add(2)
    catalog.poll()
    assert states(catalog) == {1: "END", 2: "AVAILABLE"}
    assert lent(catalog, "m") == 2
    assert refusal(lent, catalog, "m", 1) == (
        Code.NOT_FOUND,
        "Servable not found for request: Specific(m, 1)",
    )
    catalog.close()


def test_the_old_version_serves_while_the_new_one_loads(shelf):
    shelf.add(1)
    catalog = shelf.open()
    shelf.add(2)
    shelf.gate.clear()
    polling = threading.Thread(target=catalog.poll)
    polling.start()
    while states(catalog).get(2) != "LOADING":
        assert polling.is_alive()
    assert states(catalog) == {1: "AVAILABLE", 2: "LOADING"}
    assert lent(catalog, "m") == 1
    shelf.gate.set()
    polling.join()
    assert lent(catalog, "m") == 2
    catalog.close()


def test_a_version_in_use_is_unloaded_when_its_last_call_has_ended(shelf):
    shelf.add(1)
    catalog = shelf.open()
    with catalog.lend(Spec("m")) as first, catalog.lend(Spec("m")) as second:
        shelf.add(2)
        catalog.poll()
        assert states(catalog) == {1: "UNLOADING", 2: "AVAILABLE"}
        assert first is second and not first.closed
    assert first.closed
    assert states(catalog) == {1: "END", 2: "AVAILABLE"}
    catalog.close()


def test_a_broken_new_version_leaves_the_old_one_serving(shelf):
    shelf.add(1)
    shelf.broken = {2}
    catalog = shelf.open(retries=2)
    shelf.add(2)
    catalog.poll()
    assert shelf.loads == [1, 2, 2, 2]  # tried again twice
    assert lent(catalog, "m") == 1
    newest, oldest = catalog.status("m")
    assert newest[:3] == (2, State.END, "version 2 is broken")
    assert oldest[:3] == (1, State.AVAILABLE, "")
    catalog.poll()
    assert shelf.loads == [1, 2, 2, 2]  # given up
    catalog.close()


def test_a_version_that_fails_is_loading_until_it_is_given_up(shelf):
    shelf.add(1)
    catalog = shelf.open(retry_seconds=1e6)
    shelf.broken = {2}
    shelf.add(2)
    catalog.poll()
    assert catalog.status("m", 2) == [
        (2, State.LOADING, "version 2 is broken", Code.UNKNOWN)
    ]
    catalog.close()


def test_a_failed_load_is_tried_again_without_polling(shelf):
    shelf.add(1)
    catalog = shelf.open(poll_seconds=0.0, retry_seconds=0.01)
    shelf.broken = {2}
    shelf.add(2)
    catalog.poll()
    shelf.broken = set()
    deadline = threading.Event()
    for _ in range(3000):  # at most 30 s; it takes one
        if states(catalog)[2] == "AVAILABLE":
            break
        deadline.wait(0.01)
    assert states(catalog) == {1: "END", 2: "AVAILABLE"}
    catalog.close()


def test_a_load_that_fails_in_any_way_is_one_that_fails(shelf):
    shelf.add(1, model="a")
    shelf.add(1, model="b")
    catalog = shelf.open(shelf.config("a"), shelf.config("b"), retries=1)
    shelf.error = TypeError("odd")
    shelf.broken = {2}
    shelf.add(2, model="a")
    shelf.add(3, model="b")
    catalog.poll()
    assert shelf.loads == [1, 1, 2, 2, 3]
    assert catalog.status("a", 2) == [
        (2, State.END, "TypeError: odd", Code.UNKNOWN)
    ]
    assert lent(catalog, "a") == 1
    assert lent(catalog, "b") == 3
    catalog.close()


def test_a_directory_that_cannot_be_read_is_passed_over(shelf, monkeypatch):
    shelf.add(1, model="a")
    shelf.add(1, model="b")
    catalog = shelf.open(shelf.config("a"), shelf.config("b"))
    shelf.add(2, model="b")
    listed = tf.io.gfile.listdir

    def listdir(path):
        if path.endswith("/a"):  # root may read all
            raise tf.errors.PermissionDeniedError(None, None, "denied")
        return listed(path)

    monkeypatch.setattr(tf.io.gfile, "listdir", listdir)
    catalog.poll()
    assert lent(catalog, "a") == 1
    assert lent(catalog, "b") == 2
    catalog.close()


def test_the_end_waits_for_one_load_at_most(shelf):
    shelf.add(1)
    catalog = shelf.open(shelf.config(latest=0))
    shelf.add(2, 3, 4)
    shelf.gate.clear()
    polling = threading.Thread(target=catalog.poll)
    polling.start()
    while states(catalog).get(4) != "LOADING":
        assert polling.is_alive()
    closing = threading.Thread(target=catalog.close)
    closing.start()
    while not catalog._ended.is_set():
        assert closing.is_alive()
    shelf.gate.set()
    closing.join()
    polling.join()
    assert shelf.loads == [1, 4]
    code, _ = refusal(catalog.reload, [shelf.config()])
    assert code is Code.UNAVAILABLE


def test_removing_the_newest_version_rolls_back(shelf):
    shelf.add(1, 2)
    catalog = shelf.open()
    shelf.remove(2)
    catalog.poll()
    assert states(catalog) == {1: "AVAILABLE", 2: "END"}
    shelf.add(2)
    catalog.poll()
    assert states(catalog) == {1: "END", 2: "AVAILABLE"}
    assert shelf.loads == [2, 1, 2]
    catalog.close()


def test_a_broken_version_that_is_written_anew_is_loaded(shelf):
    shelf.add(1)
    catalog = shelf.open(retries=0)
    shelf.broken = {2}
    shelf.add(2)
    catalog.poll()
    shelf.remove(2)
    catalog.poll()
    shelf.broken = set()
    shelf.add(2)
    catalog.poll()
    assert states(catalog) == {1: "END", 2: "AVAILABLE"}
    catalog.close()


def test_an_emptied_base_path_unloads_everything(shelf):
    shelf.add(1)
    catalog = shelf.open()
    assert catalog.ready()
    shelf.remove(1)
    catalog.poll()
    assert states(catalog) == {1: "END"}
    assert not catalog.ready()
    assert refusal(lent, catalog, "m") == (
        Code.NOT_FOUND,
        "Servable not found for request: Latest(m)",
    )
    catalog.close()


def test_a_base_path_that_is_gone_for_a_moment_changes_nothing(shelf):
    shelf.add(1)
    catalog = shelf.open()
    shutil.move(shelf.path / "m", shelf.path / "away")
    catalog.poll()
    assert lent(catalog, "m") == 1
    catalog.close()


def test_the_directories_are_looked_at_by_themselves(shelf):
    shelf.add(1)
    catalog = shelf.open(poll_seconds=0.01)
    shelf.add(2)
    waiting = threading.Event()
    for _ in range(3000):  # at most 30 s
        if lent(catalog, "m") == 2:
            break
        waiting.wait(0.01)
    assert lent(catalog, "m") == 2
    catalog.close()


def test_one_broken_model_does_not_keep_others_from_new_versions(shelf):
    shelf.add(1, model="a")
    shelf.add(1, model="b")
    catalog = shelf.open(shelf.config("a"), shelf.config("b"))
    shutil.rmtree(shelf.path / "a")
    shelf.add(2, model="b")
    catalog.poll()
    assert lent(catalog, "a") == 1
    assert lent(catalog, "b") == 2
    catalog.close()


def test_labels_name_versions(shelf):
    shelf.add(1, 2)
    labels = (("canary", 2), ("stable", 1))
    config = shelf.config(latest=0, labels=labels)
    catalog = shelf.open(config, early_labels=True)
    assert lent(catalog, "m", label="stable") == 1
    assert lent(catalog, "m", label="canary") == 2
    unknown = "Unrecognized servable version label: new"
    assert refusal(lambda: lent(catalog, "m", label="new")) == (
        Code.INVALID_ARGUMENT,
        unknown,
    )
    catalog.close()


def test_a_label_needs_a_version_that_is_available(shelf):
    shelf.add(1, 2)
    labelled = shelf.config(latest=0, labels=(("stable", 1),))
    words = (
        "Request to assign label to version {} of model m, which is not "
        "currently available for inference. Serve the version first, then "
        "give it the label; only a new label may go first, with "
        "--allow_version_labels_for_unavailable_models."
    )
    with pytest.raises(ConfigError, match=words.format(1)):
        shelf.open(labelled)
    catalog = shelf.open(shelf.config(latest=0))
    catalog.reload([labelled])
    wrong = shelf.config(latest=0, labels=(("stable", 9),))
    assert refusal(catalog.reload, [wrong]) == (
        Code.FAILED_PRECONDITION,
        words.format(9),
    )
    assert lent(catalog, "m", label="stable") == 1  # nothing has changed
    catalog.reload([shelf.config(latest=0, labels=(("stable", 2),))])
    assert lent(catalog, "m", label="stable") == 2
    catalog.close()


def test_a_known_label_never_moves_to_a_version_that_is_not_loaded(shelf):
    shelf.add(1)
    labelled = shelf.config(labels=(("stable", 1),))
    catalog = shelf.open(labelled, early_labels=True)
    moved = shelf.config(labels=(("stable", 2),))
    assert refusal(catalog.reload, [moved])[0] is Code.FAILED_PRECONDITION
    catalog.reload([shelf.config(labels=(("stable", 1), ("new", 2)))])
    assert refusal(lambda: lent(catalog, "m", label="new")) == (
        Code.NOT_FOUND,
        "Servable not found for request: Specific(m, 2)",
    )
    catalog.close()


def test_reloading_adds_and_removes_models(shelf):
    shelf.add(1, model="a")
    shelf.add(4, model="b")
    catalog = shelf.open(shelf.config("a"))
    catalog.reload([shelf.config("b")])
    assert lent(catalog, "b") == 4
    assert states(catalog, "a") == {1: "END"}
    assert refusal(lent, catalog, "a")[0] is Code.NOT_FOUND
    assert catalog.known("b") == "b" and catalog.known("a") == ""
    catalog.reload([shelf.config("a"), shelf.config("b")])
    assert lent(catalog, "a") == 1
    catalog.close()


def test_reloading_changes_the_versions_and_the_base_path(shelf):
    shelf.add(1, 2)
    shelf.add(2, model="other")
    catalog = shelf.open()
    catalog.reload([shelf.config(latest=0)])
    assert states(catalog) == {1: "AVAILABLE", 2: "AVAILABLE"}
    moved = shelf.config("other")._replace(name="m")
    catalog.reload([moved])
    with catalog.lend(Spec("m")) as model:
        assert model.path == str(shelf.path / "other" / "2")
    assert states(catalog)[1] == "END"
    catalog.close()


def test_a_new_model_without_versions_changes_nothing(shelf):
    shelf.add(1)
    catalog = shelf.open()
    code, details = refusal(
        catalog.reload, [shelf.config(), shelf.config("nowhere")]
    )
    assert code is Code.NOT_FOUND and "is not a directory" in details
    assert lent(catalog, "m") == 1
    assert catalog.known("nowhere") == ""
    catalog.close()


def test_a_new_model_that_fails_to_load_is_named(shelf):
    shelf.add(1)
    shelf.add(5, model="b")
    shelf.broken = {5}
    catalog = shelf.open(retry_seconds=1e6)
    code, details = refusal(catalog.reload, [shelf.config(), shelf.config("b")])
    assert code is Code.UNKNOWN
    assert details == (
        "1 servable(s) did not become available: version 5 is broken"
    )
    assert lent(catalog, "m") == 1
    catalog.close()


def test_the_status_names_what_is_missing(shelf):
    shelf.add(1)
    catalog = shelf.open()
    assert refusal(catalog.status, "x") == (
        Code.NOT_FOUND,
        "Could not find any versions of model x",
    )
    assert refusal(catalog.status, "m", 7) == (
        Code.NOT_FOUND,
        "Could not find version 7 of model m",
    )
    assert refusal(lent, catalog, "") == (
        Code.INVALID_ARGUMENT,
        "ModelSpec has no name specified.",
    )
    catalog.close()


def test_closing_frees_what_is_loaded(shelf):
    shelf.add(1, 2)
    catalog = shelf.open(shelf.config(latest=0))
    with catalog.lend(Spec("m", 1)) as one, catalog.lend(Spec("m", 2)) as two:
        pass
    catalog.close()
    assert one.closed and two.closed
    catalog.close()
