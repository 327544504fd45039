"""Random models of Hugging Face, beside what its own classes do with them.

They are made anew in each run, by PyTorch and transformers: of a Python named
by KERAS_ATTN_ORACLE, or of this one, with the extra `oracle`. The last test
trains a Marian for some minutes; KERAS_ATTN_ORACLE_MARIAN names a directory
that `tests/fixtures/train_marian.py` has written before.
"""

import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import pytest
import sacrebleu
from support.sounds import batch
from support.sounds import sounds
from support.whispers import LATEST
from support.whispers import NAMES
from support.whispers import Said
from support.whispers import read
from support.whispers import require_features_and_logits
from support.whispers import require_same
from support.whispers import require_same_times

import keras_attn

pytestmark = [
    pytest.mark.system,
    # KerasHub's T5 gives a mask to attention in a way that Keras warns of.
    pytest.mark.filterwarnings("ignore:.*input with a mask"),
]

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures"
T5 = ["t5", "t5_gated", "mt5"]
FAMILIES = [
    *("marian", "marian_of_two_vocabularies", "bart", "mbart", "mbart_50"),
    *("m2m_100", "nllb", "pegasus", *T5),
]
PENALTIES = [0.0, 0.6, 1.0, 2.0]
STOPPING = [True, False, "never"]
LONGEST = [6, 24]  # tokens; with 6 many outputs are cut
BEAMS = {"num_beams": 4, "num_return_sequences": 4}
SEARCHES = {
    f"beams-{stopping}-{longest}": {
        **BEAMS,
        "early_stopping": stopping,
        "max_length": longest,
        "no_repeat_ngram_size": 2,
        "length_penalties": PENALTIES,
    }
    for stopping in STOPPING
    for longest in LONGEST
}
SEARCHES["greedy"] = {"num_beams": 1, "max_length": 24}
each_family = pytest.mark.parametrize("family", FAMILIES)


@pytest.fixture(scope="module")
def ask():
    """Returns a function that runs a program by the oracle's Python."""
    named = os.environ.get("KERAS_ATTN_ORACLE")
    python = named or sys.executable
    code = "import sentencepiece, torch, transformers"
    found = subprocess.run([python, "-c", code], capture_output=True, text=True)
    if found.returncode and named:
        pytest.fail(f"KERAS_ATTN_ORACLE={named}:\n{found.stderr}")
    if found.returncode:
        pytest.skip(
            "needs the extra `oracle` (torch, transformers, sentencepiece), or "
            "KERAS_ATTN_ORACLE=path of a Python that has it"
        )

    def run(program, *arguments):
        command = [python, FIXTURES / f"{program}.py", *map(str, arguments)]
        done = subprocess.run(command, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


@pytest.fixture(scope="module")
def folder(ask, tmp_path_factory):
    """The folder of all random models, with what the oracle said of them."""
    path = tmp_path_factory.mktemp("oracle")
    (path / "searches.json").write_text(json.dumps(SEARCHES))
    ask("hugging_face_oracle", "random", path, *FAMILIES)
    return path


def translator_of(folder, family, search):
    return keras_attn.Translator.from_hugging_face(
        folder / family / search, ids=True
    )


def said_of(folder, family):
    return np.load(folder / family / "said.npz")


def lines_of(source, special):
    """Returns sources as ids written as numbers, without those around."""
    around = {special.pad, *special.source_start, special.end}
    return [" ".join(str(x) for x in row if x not in around) for row in source]


def require_equal(found, expected, special):
    """Compares tokens with a row of theirs, which is padded."""
    expected = expected[len(special.start) :].tolist()
    assert found == expected[: len(found)]
    left = {*expected[len(found) :]}
    # Theirs pad beams with the end if the id of padding is 0.
    ends = special.pad == 0 and found[-1] == special.end
    assert left <= {special.end if ends else special.pad, special.pad}


@each_family
@pytest.mark.parametrize("longest", LONGEST)
@pytest.mark.parametrize("stopping", STOPPING)
def test_beams_and_their_scores_are_theirs(folder, family, stopping, longest):
    search = f"beams-{stopping}-{longest}"
    translator = translator_of(folder, family, search)
    special = translator.target_text.special
    said = said_of(folder, family)
    lines = lines_of(said["source"], special)
    for penalty in PENALTIES:
        found = translator(lines, options={"length_penalty": penalty})
        for i, best in enumerate(found):
            hypotheses = [best, *best.alternatives]
            expected = said[f"{search} {penalty}"][i]
            for one, row in zip(hypotheses, expected, strict=True):
                require_equal([*map(int, one.tokens)], row, special)
            np.testing.assert_allclose(
                [x.score for x in hypotheses],
                said[f"{search} {penalty} scores"][i],
                atol=1e-4,
            )


@each_family
@pytest.mark.parametrize("search", ["greedy", "beams-False-24"])
def test_padding_of_a_batch_changes_no_output(folder, family, search):
    translator = translator_of(folder, family, search)
    said = said_of(folder, family)
    found = translator.decode_ids(said["source"].astype("int32"))
    for i, expected in enumerate(said[f"{search} 1.0"]):
        for n, row in enumerate(expected):
            tokens = found.tokens[i, n, : found.lengths[i, n]].numpy().tolist()
            require_equal(tokens, row, translator.target_text.special)


@each_family
def test_a_step_of_training_is_theirs(folder, family):
    translator = keras_attn.Translator.from_hugging_face(
        folder / family / "greedy", ids=True, dtype="float64"
    )
    said, padding = said_of(folder, family), translator.target_text.special.pad
    model, given = translator.model, [said["source"], said["before"]]
    real = said["labels"] != padding  # M2M-100 gives padding no position
    logits = model.predict(given, verbose=0)
    np.testing.assert_allclose(logits[real], said["logits"][real], atol=1e-4)
    model.compile(
        keras.optimizers.SGD(0.01),
        keras_attn.SequenceCrossentropy(padding_id=padding),
    )
    loss = model.train_on_batch(given, said["labels"])
    np.testing.assert_allclose(loss, said["loss"], rtol=1e-5)
    found = model.predict(given, verbose=0)
    np.testing.assert_allclose(
        found[real], said["trained logits"][real], atol=1e-3
    )
    assert np.abs(found - logits).max() > 0.01


@pytest.fixture(scope="module", params=[1, 2, 3])
def whispers(request, ask, tmp_path_factory):
    """The folder of two random Whispers, with what the oracle said."""
    path = tmp_path_factory.mktemp("whispers")
    ask("make_whisper", path, request.param)
    return path


@pytest.mark.parametrize("name", NAMES)
def test_a_whisper_writes_what_theirs_writes(whispers, name):
    sound, theirs = batch(sounds()), Said(name, whispers)
    translator = read(name, whispers)
    require_features_and_logits(translator.model, theirs, sound)
    require_same(translator, sound, theirs.beam)
    np.testing.assert_allclose(
        translator(sound).scores, theirs.scores, atol=1e-4
    )
    greedy = read(name, whispers, search={"num_beams": 1})
    require_same(greedy, sound, theirs.greedy)
    for latest in LATEST:
        require_same_times(name, latest, theirs, sound, whispers)


def test_a_trained_marian_translates_as_theirs_does(ask, tmp_path):
    directory = os.environ.get("KERAS_ATTN_ORACLE_MARIAN")
    if not directory:
        directory = tmp_path / "marian"
        ask("train_marian", directory)
    directory = pathlib.Path(directory)
    sources, references = (
        (directory / f"held_out.{x}").read_text("utf-8").splitlines()
        for x in ("en", "fr")
    )
    (tmp_path / "lines").write_text("\n".join(sources) + "\n", "utf-8")
    ask(
        *("hugging_face_oracle", "translate", directory),
        *(tmp_path / "lines", tmp_path / "texts"),
    )
    expected = (tmp_path / "texts").read_text("utf-8").splitlines()
    translator = keras_attn.Translator.from_hugging_face(directory)
    assert translator.search.num_beams == 4
    found = translator(sources).text
    assert found == expected
    ours, theirs = (
        sacrebleu.corpus_bleu(x, [references]).score for x in (found, expected)
    )
    assert ours == theirs > 2  # it has learned something
