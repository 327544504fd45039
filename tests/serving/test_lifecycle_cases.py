"""Versions, their order and the configurations, as TensorFlow Serving tests it.

Each case has the name that it has there, in the tests of its
`FileSystemStoragePathSource` (19), of `AvailabilityPreservingPolicy` (9) and of
`ServerCore` (31). What it does with files of warm-up requests (8) is in
`test_server.py`. Those that do not apply stand in `ELSEWHERE`, with the reason.
"""

import inspect
import sys

import pytest
from keras_attn_serving.server import config as configuration
from keras_attn_serving.server.catalog import Catalog
from keras_attn_serving.server.catalog import State
from keras_attn_serving.server.catalog import _Version
from keras_attn_serving.server.errors import Code
from keras_attn_serving.server.model import LoadError
from support.serving.shelf import Shelf
from support.serving.shelf import lent
from support.serving.shelf import refusal
from support.serving.shelf import states

ELSEWHERE = {
    "AttemptToChangePollingPeriod": "the period is a flag, and no request",
    "PreLoadHook": "a hook in C++",
    "AbsoluteAndRelativePathsWithOptionsSucceed": "an option of no flag",
    "AbsolutePathWithEmptyPathFails": "an option of no flag",
    "RelativePathWithOptionsSucceeds": "an option of no flag",
    "StoragePathPrefixOption": "an option of no flag",
    "VersionLabelsNotAllowed": "an option of no flag",
    "IllegalReconfigurationFromCustomConfig": "no server starts with one",
    "MultiplePlatforms": "the development server has one platform",
    "MultiplePlatformsWithConfigChange": "it has one platform",
    "RequestLoggingOn": "a logging_config is refused: `test_config.py`",
    "AssignExistingLabelToUnavailableVersionAllowed": "an option of no flag",
}


@pytest.fixture
def shelf(tmp_path):
    return Shelf(tmp_path)


def available(catalog, model="m"):
    return {
        each.version
        for each in catalog.status(model)
        if each.state is State.AVAILABLE
    }


# `FileSystemStoragePathSource`: which directories are versions to be served.

LATEST_3 = {"latest": 3}
ALL = {"latest": 0}
FOLDERS = ("non_numerical_child", "42", "33", "30", "21", "17")


def specific(*versions):
    return {"versions": frozenset(versions)}


@pytest.mark.parametrize(
    ("folders", "options", "served"),
    [
        pytest.param(*case, id=name)
        for name, case in {
            "MultipleVersions": (FOLDERS[:2] + ("17",), {}, {42}),
            "MultipleVersionsAtTheSameTime": (
                FOLDERS[:2] + ("17",),
                ALL,
                {17, 42},
            ),
            "NLatestVersions": (FOLDERS, LATEST_3, {42, 33, 30}),
            "SpecificVersions": (FOLDERS, specific(17, 30), {17, 30}),
            "SpecificVersionsLeadingZeros": (
                FOLDERS[:-1] + ("00017",),
                specific(17, 30),
                {17, 30},
            ),
            "DefaultVersionPolicy": (FOLDERS, {}, {42}),
            "ParseTimestampedVersion": (
                ("20170111173521",),
                ALL,
                {20170111173521},
            ),
            "DuplicateVersions": (
                ("non_numerical_child", "0001", "001", "00001"),
                {},
                {1},
            ),
            "a number beyond 64 bits": (("1", "9" * 20), {}, {1}),
            "digits of another script": (("1", "٢"), {}, {1}),
        }.items()
    ],
)
def test_these_directories_are_served(shelf, folders, options, served):
    shelf.add(*folders)
    catalog = shelf.open(shelf.config(**options))
    assert available(catalog) == served
    assert len(shelf.loads) == len(served)
    catalog.close()


@pytest.mark.parametrize("exists", [True, False])
def test_no_versions_at_startup(shelf, exists):
    if exists:
        (shelf.path / "m").mkdir()
    with pytest.raises(LoadError, match="base path must"):
        shelf.open()


def test_files_appear_after_startup(shelf):
    shelf.add(2)
    catalog = shelf.open()
    shelf.remove(2)
    catalog.poll()
    assert available(catalog) == set()
    shelf.add(3)
    catalog.poll()
    assert available(catalog) == {3}
    catalog.close()


def read(tmp_path, *entries):
    """Returns the models of a configuration file with these entries."""
    file = tmp_path / "models.pbtxt"
    inner = " ".join(f"config {{ {entry} }}" for entry in entries)
    file.write_text(f"model_config_list {{ {inner} }}")
    return configuration.read_models(str(file))


PLATFORM = "model_platform: 'tensorflow'"


def test_specific_versions_empty(tmp_path):
    policy = "model_version_policy { specific {} }"
    with pytest.raises(configuration.ConfigError, match="No specific versions"):
        read(tmp_path, f"name: 'm' base_path: '/m' {PLATFORM} {policy}")


def test_default_num_latest_versions(tmp_path, shelf):
    policy = "model_version_policy { latest {} }"
    entry = f"name: 'm' base_path: '{shelf.path}/m' {PLATFORM} {policy}"
    shelf.add("non_numerical_child", 42, 33, 30)
    catalog = shelf.open(*read(tmp_path, entry))
    assert available(catalog) == {42}
    catalog.close()


def test_multiple_servables(shelf):
    shelf.add(1, 3, model="servable_0")
    shelf.add(42, model="servable_1")
    shelf.add(1, model="servable_2")
    names = [f"servable_{i}" for i in range(3)]
    catalog = shelf.open(*map(shelf.config, names))
    shelf.remove(1, model="servable_2")
    catalog.poll()
    assert [available(catalog, name) for name in names] == [{3}, {42}, set()]
    catalog.close()


def test_change_set_of_servables(shelf):
    for i in range(3):
        shelf.add(0, model=f"servable_{i}")
    configs = [shelf.config(f"servable_{i}") for i in range(3)]
    catalog = shelf.open(*configs[:2])
    catalog.reload(configs[1:])
    assert states(catalog, "servable_0") == {0: "END"}
    assert available(catalog, "servable_1") == {0}
    assert available(catalog, "servable_2") == {0}
    assert len(shelf.loads) == 3  # the second was not loaded anew
    catalog.close()


def test_change_version_policy(shelf):
    shelf.add("1", "02", "3", "5", "8", "13")
    catalog = shelf.open(shelf.config(latest=2))
    assert available(catalog) == {13, 8}
    catalog.reload([shelf.config(**specific(2, 5))])
    assert available(catalog) == {2, 5}
    catalog.close()


def test_servable_version_dir_renamed(shelf):
    shelf.add(1, 2, 3, 5, 8)
    catalog = shelf.open(shelf.config(**ALL))
    for version in (2, 5):
        folder = shelf.path / "m" / str(version)
        folder.rename(folder.with_name(f"{version}.denied"))
    shelf.remove(8)
    catalog.poll()
    assert available(catalog) == {1, 3}
    catalog.close()


def test_last_version_not_removed(shelf):
    # Its option `servable_versions_always_present` is that of no flag.
    shelf.add(42)
    catalog = shelf.open()
    shelf.remove(42)
    catalog.poll()
    assert available(catalog) == set()
    catalog.close()


def test_poll_filesystem_only_once(shelf):
    shelf.add(3)
    catalog = shelf.open(poll_seconds=0.0)
    shelf.add(4)
    catalog._ended.wait(1.5)  # the watcher goes round once a second
    assert available(catalog) == {3}
    catalog.close()


# `AvailabilityPreservingPolicy`: what is loaded or unloaded next. A version
# that is being loaded is one that waits to be tried again.

NEW, LOADING, READY = State.START, State.LOADING, State.AVAILABLE
UNLOADING, ERROR = State.UNLOADING, State.END
DISABLED = State.END


@pytest.mark.parametrize(
    ("versions", "step"),
    [
        pytest.param(*case, id=name)
        for name, case in {
            "LoadsNewAspired": (
                [
                    (1, UNLOADING, False),
                    (2, ERROR, False),
                    (3, READY, True),
                    (4, NEW, True),
                    (5, NEW, True),
                ],
                ("load", 5),
            ),
            "UnloadsNonAspiredFirst": (
                [
                    (1, UNLOADING, False),
                    (2, ERROR, False),
                    (3, READY, False),
                    (4, READY, True),
                    (5, NEW, True),
                ],
                ("unload", 3),
            ),
            "UnloadsFirstNonAspiredWhenNoAspired": (
                [(1, DISABLED, False), (2, READY, False), (3, ERROR, False)],
                ("unload", 2),
            ),
            "ReturnsNoActionWhenNone": (
                [
                    (1, READY, True),
                    (2, ERROR, True),
                    (3, LOADING, True),
                    (4, UNLOADING, False),
                    (5, DISABLED, False),
                ],
                None,
            ),
            "DoesNotUnloadWhenOtherNotReady": (
                [(1, READY, False), (2, LOADING, True)],
                None,
            ),
            "DoesNotUnloadWhenOtherInError": (
                [(1, READY, False), (2, ERROR, True)],
                None,
            ),
            "UnloadIfOtherReadyEvenIfLoading": (
                [(1, READY, False), (2, LOADING, True), (3, READY, True)],
                ("unload", 1),
            ),
            "UnloadIfOtherReadyEvenIfError": (
                [(1, READY, False), (2, ERROR, True), (3, READY, True)],
                ("unload", 1),
            ),
            "UnloadIfNoAspiredVersionsReady": (
                [
                    (2, READY, False),
                    (1, READY, False),
                    (3, ERROR, True),
                    (4, LOADING, True),
                ],
                ("unload", 1),
            ),
        }.items()
    ],
)
def test_the_policy_preserves_availability(shelf, versions, step):
    listed = []
    for number, state, wanted in versions:
        version = _Version("m", number, str(number))
        version.state, version.wanted = state, wanted
        if state is LOADING:
            version.retry_at = float("inf")
        listed.append(version)
    found = Catalog([], shelf.load)._next(listed)
    if step is None:
        assert found is None
        return
    action, number = step
    assert found.number == number
    assert (found.state is READY) == (action == "unload")


# `ServerCore`: configurations, and what requests find under them.


def test_create_waits_till_models_available(shelf):
    shelf.add(123)
    catalog = shelf.open()
    assert catalog.status("m") == [(123, State.AVAILABLE, "", Code.OK)]
    assert lent(catalog, "m", 123) == 123
    catalog.close()


def test_reload_config_waits_till_models_available(shelf):
    shelf.add(123)
    catalog = Catalog([], shelf.load, poll_seconds=1e6)
    catalog.start()
    catalog.reload([shelf.config()])
    assert lent(catalog, "m", 123) == 123
    catalog.close()


def test_reload_config_unloads_models(shelf):
    shelf.add(123)
    catalog = shelf.open()
    catalog.reload([])
    assert catalog.status("m") == [(123, State.END, "", Code.OK)]
    catalog.close()


def test_reload_config_handles_loading_a_previously_unloaded_model(shelf):
    shelf.add(123)
    catalog = shelf.open()
    catalog.reload([])
    catalog.reload([shelf.config()])
    assert catalog.status("m") == [(123, State.AVAILABLE, "", Code.OK)]
    catalog.close()


def test_reload_config_change_model_base_path(shelf):
    shelf.add(123)
    shelf.add(123, 124, model="two")
    one = shelf.config()
    two = shelf.config("two")._replace(name="m")
    catalog = shelf.open(one)
    catalog.reload([two])
    assert available(catalog) == {124}
    catalog.reload([one])
    assert available(catalog) == {123}
    catalog.close()


ENTRY = f"name: 'm' base_path: '/models/m' {PLATFORM}"
RELATIVE = f"name: 'r' base_path: 'models/r' {PLATFORM}"
BARE = "name: 'm' base_path: '/models/m'"


@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(ENTRY, id="AbsolutePathSucceeds"),
        pytest.param(
            f"{BARE} model_type: TENSORFLOW", id="DeprecatedModelTypeConfig"
        ),
        pytest.param(ENTRY, id="RequestLoggingOff"),
    ],
)
def test_these_models_are_served(tmp_path, entry):
    assert read(tmp_path, entry) == [
        configuration.ModelConfig("m", "/models/m")
    ]


@pytest.mark.parametrize(
    ("entries", "words"),
    [
        pytest.param(*case, id=name)
        for name, case in {
            "RelativePathFails": ([RELATIVE], "to have an absolute path or"),
            "MixedAbsoluteRelativeFails": (
                [ENTRY, RELATIVE],
                "Expected model r to have an absolute path or URI",
            ),
            "DuplicateModelNameInConfig": (
                [ENTRY, ENTRY],
                "Illegal to list model m multiple times in config list",
            ),
            "UnknownModelPlatform": (
                [f"{BARE} model_platform: 'not_a_known_platform'"],
                "must have the platform 'tensorflow'. Received: 'not_a",
            ),
            "IllegalToChangeModelPlatform": (
                [f"{BARE} model_platform: 'other'"],
                "must have the platform 'tensorflow'. Received: 'other'",
            ),
            "IllegalConfigModelTypeAndPlatformSet": (
                [f"{ENTRY} model_type: TENSORFLOW"],
                "Illegal setting both ModelServerConfig::model_type",
            ),
            "neither type nor platform": (
                [BARE],
                "Illegal setting neither ModelServerConfig::model_type",
            ),
            "another type": (
                [f"{BARE} model_type: OTHER"],
                "ModelServerConfig::model_type choice 2 not supported",
            ),
        }.items()
    ],
)
def test_these_models_are_refused(tmp_path, entries, words):
    with pytest.raises(configuration.ConfigError, match=words):
        read(tmp_path, *entries)


def test_illegal_reconfiguration_to_custom_config():
    message = configuration.model_server_config_pb2.ModelServerConfig()
    message.custom_model_config.SetInParent()
    with pytest.raises(configuration.ConfigError, match="Only ModelConfigList"):
        configuration.models(message)


def test_erroring_model(shelf):
    shelf.add(123)
    shelf.broken = {123}
    with pytest.raises(LoadError, match="version 123 is broken"):
        shelf.open()


def test_model_spec_multiple_versions_available(shelf):
    shelf.add(123, 124)
    catalog = shelf.open(shelf.config(**ALL))
    assert lent(catalog, "m") == 124
    assert lent(catalog, "m", 123) == 123
    labels = (("A", 123), ("B", 124))
    catalog.reload([shelf.config(**ALL, labels=labels)])
    assert lent(catalog, "m", label="A") == 123
    assert lent(catalog, "m", label="B") == 124
    code, words = refusal(lambda: lent(catalog, "m", label="nonexistent"))
    assert code is Code.INVALID_ARGUMENT
    assert "Unrecognized servable version label" in words
    catalog.close()


def relabel(shelf, before, after, **options):
    """Serves two versions with these labels, then reloads with others."""
    shelf.add(123, 124)
    catalog = shelf.open(shelf.config(**ALL), **options)
    try:
        if before:
            catalog.reload([shelf.config(**ALL, labels=before)])
        catalog.reload([shelf.config(**ALL, labels=after)])
    finally:
        catalog.close()


UNAVAILABLE = "not currently available for inference"


def test_assign_label_to_unavailable_version(shelf):
    code, words = refusal(relabel, shelf, (), (("nice try", 777),))
    assert UNAVAILABLE in words


def test_assign_label_to_unavailable_version_allowed(shelf):
    relabel(shelf, (), (("nice try", 777),), early_labels=True)


def test_assign_existing_label_to_unavailable_version_disallowed(shelf):
    before, after = (("A", 123), ("B", 124)), (("A", 777), ("B", 124))
    code, words = refusal(
        lambda: relabel(shelf, before, after, early_labels=True)
    )
    assert UNAVAILABLE in words


def test_every_case_of_theirs_is_here_or_has_its_reason():
    module = sys.modules[__name__]
    tests = {
        "".join(part.title() for part in name.split("_")[1:])
        for name, _ in inspect.getmembers(module, inspect.isfunction)
        if name.startswith("test_")
    }
    cases = set(ELSEWHERE)
    for _, test in inspect.getmembers(module, inspect.isfunction):
        for mark in getattr(test, "pytestmark", ()):
            cases.update(x.id for x in mark.args[1] if hasattr(x, "id"))
    theirs = {
        "NoVersionsAtStartup FilesAppearAfterStartup MultipleVersions "
        "MultipleVersionsAtTheSameTime NLatestVersions SpecificVersions "
        "SpecificVersionsLeadingZeros SpecificVersionsEmpty "
        "DefaultVersionPolicy DefaultNumLatestVersions MultipleServables "
        "ChangeSetOfServables ChangeVersionPolicy "
        "AttemptToChangePollingPeriod ParseTimestampedVersion "
        "ServableVersionDirRenamed DuplicateVersions LastVersionNotRemoved "
        "PollFilesystemOnlyOnce": 19,
        "LoadsNewAspired UnloadsNonAspiredFirst "
        "UnloadsFirstNonAspiredWhenNoAspired ReturnsNoActionWhenNone "
        "DoesNotUnloadWhenOtherNotReady DoesNotUnloadWhenOtherInError "
        "UnloadIfOtherReadyEvenIfLoading UnloadIfOtherReadyEvenIfError "
        "UnloadIfNoAspiredVersionsReady": 9,
        "PreLoadHook CreateWaitsTillModelsAvailable "
        "ReloadConfigWaitsTillModelsAvailable ReloadConfigUnloadsModels "
        "ReloadConfigHandlesLoadingAPreviouslyUnloadedModel "
        "ReloadConfigChangeModelBasePath AbsolutePathSucceeds "
        "RelativePathFails AbsoluteAndRelativePathsWithOptionsSucceed "
        "AbsolutePathWithEmptyPathFails RelativePathWithOptionsSucceeds "
        "MixedAbsoluteRelativeFails ErroringModel "
        "IllegalReconfigurationToCustomConfig "
        "IllegalReconfigurationFromCustomConfig "
        "IllegalConfigModelTypeAndPlatformSet DeprecatedModelTypeConfig "
        "DuplicateModelNameInConfig UnknownModelPlatform MultiplePlatforms "
        "MultiplePlatformsWithConfigChange IllegalToChangeModelPlatform "
        "RequestLoggingOff RequestLoggingOn "
        "ModelSpecMultipleVersionsAvailable AssignLabelToUnavailableVersion "
        "AssignLabelToUnavailableVersionAllowed "
        "AssignExistingLabelToUnavailableVersionDisallowed "
        "AssignExistingLabelToUnavailableVersionAllowed "
        "VersionLabelsNotAllowed StoragePathPrefixOption": 31,
    }
    for names, count in theirs.items():
        assert len(names.split()) == count
        missing = {
            name
            for name in names.split()
            if name not in cases and name.lower() not in map(str.lower, tests)
        }
        assert not missing
