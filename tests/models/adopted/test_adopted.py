"""Models as others publish them, taken by `Translator` as they are.

Each is held against its author's way of decoding: the whole model, asked for
one token after another in NumPy.
"""

import functools
import json
import warnings

import numpy as np
import pytest
from support import published
from support import reference_search as reference
from support.exports import as_bytes
from support.exports import option_inputs
from support.lazily import Answers
from support.lazily import Lazily
from support.spelling import as_reference

import keras_attn

# The models' authors are warned when they build and train.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")

LONGEST = 7
ALWAYS = ["own_layers", "luong_from_dot", "subclassed_with_attention"]


def models(always=published.NAMES, names=published.NAMES):
    """Parameters by name: those of one model run in one process.

    All but some are left to `make test-all`.
    """
    return [
        pytest.param(
            x,
            marks=[
                pytest.mark.xdist_group(x),
                *([] if x in always else [pytest.mark.full]),
            ],
        )
        for x in names
    ]


def translator(name, search=None, **options):
    made = published.make(name)
    search = search or keras_attn.BeamSearch(3, max_length=LONGEST)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return keras_attn.Translator(
            made.model,
            made.source_text,
            made.target_text,
            search,
            **{**made.options, **options},
        )


@pytest.fixture(scope="module")
def translators():
    return Lazily(translator, published.NAMES)


@pytest.fixture(scope="module")
def by_brute_force():
    """The hypotheses of each model's own way, by name and search."""

    @functools.cache
    def ask(name, source, so_far):
        made = published.make(name)
        read = [*made.target_text.special.start, *so_far]
        return made.next_logp(made.sources[source], read).tolist()

    def best(name, search):
        made, options = published.make(name), as_reference(search)
        special = made.target_text.special
        find = reference.beam_search
        if not hasattr(search, "num_beams"):
            find = reference.greedy_search
        return [
            find(
                reference.Row(
                    functools.partial(ask, name, i),
                    attention=None,
                    end=special.end,
                    forbidden=special.never_written,
                ),
                options,
            )[0]
            for i in range(len(made.sources))
        ]

    return best


def take(sources, rows):
    if isinstance(sources, tuple):
        return [sources[i] for i in rows]
    return sources[rows]


@pytest.mark.full
@pytest.mark.sample_cases(2)
@pytest.mark.parametrize(
    "search",
    [
        keras_attn.GreedySearch(max_length=LONGEST),
        keras_attn.BeamSearch(3, max_length=LONGEST),
    ],
    ids=["greedy", "beams"],
)
@pytest.mark.parametrize("name", models(ALWAYS))
def test_searches_find_what_the_model_itself_says(name, search, by_brute_force):
    made, decode = published.make(name), translator(name, search)
    count = len(made.sources)
    together = decode(take(made.sources, list(range(count))))
    for i, expected in enumerate(by_brute_force(name, search)):
        tokens = [made.target_text.tokens[x] for x in expected.tokens]
        (alone,) = decode(take(made.sources, [i]))
        for found in (together[i], alone):
            assert abs(found.score - expected.score) < 1e-4
            assert found.tokens == tokens


@pytest.mark.full
@pytest.mark.parametrize("name", models(ALWAYS))
def test_a_warning_says_that_the_past_is_read_again(name):
    made = published.make(name)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        keras_attn.Translator(
            made.model,
            made.source_text,
            made.target_text,
            keras_attn.GreedySearch(max_length=LONGEST),
            **made.options,
        )
    said = [str(x.message) for x in caught if x.category is UserWarning]
    assert all("again what was" in x or "Padding changes" in x for x in said)
    said = " ".join(said)
    assert ("again what was written so far" in said) == made.recomputed
    if made.recomputed:
        with pytest.raises(ValueError, match="cannot be decoded|to decode"):
            translator(name, recompute=False)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", models(ALWAYS))
def test_scores_are_the_models_own(name, translators):
    made, decode = published.make(name), translators[name]
    sources = take(made.sources, list(range(len(made.sources))))
    found = decode(sources)
    np.testing.assert_allclose(
        decode.score(sources, found).scores,
        [x.score for x in found],
        atol=1e-4,
    )
    target = "ab"
    ids = made.target_text.ids([target]).numpy()[0].tolist()
    start = made.target_text.special.start
    expected = [
        sum(
            made.next_logp(source, [*start, *ids[:i]])[x]
            for i, x in enumerate(ids)
        )
        for source in made.sources
    ]
    scores = decode.score(sources, [target] * len(sources)).scores
    np.testing.assert_allclose(scores, expected, atol=1e-3)


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_requests_streams_and_ensembles(name, translators):
    made, decode = published.make(name), translators[name]
    sources = take(made.sources, list(range(len(made.sources))))
    found = decode(sources)
    prefixed = decode(sources, prefixes=["ab"] * len(sources))
    assert all(x.text.startswith("ab") for x in prefixed)
    shorter = decode(sources, options={"max_length": 3})
    assert all(len(x.tokens) <= 3 for x in shorter)
    greedy = translator(name, keras_attn.GreedySearch(max_length=LONGEST))
    streamed = greedy.stream(sources[0])
    one = greedy(take(made.sources, [0]))[0]
    assert "".join(x.text for x in streamed) == one.text
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        both = keras_attn.Translator(
            [made.model, made.model],
            made.source_text,
            made.target_text,
            decode.search,
            **made.options,
        )
    assert both(sources).text == found.text


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_xla_finds_the_same(name, translators):
    made = published.make(name)
    sources = take(made.sources, [0, 1, 2])
    plain = translators[name]
    if plain.pipeline.of_one_length:
        with pytest.raises(ValueError, match="padding must not change"):
            translator(name, jit_compile=True)
        return
    sizes = keras_attn.XLASizes(4)
    if name == "speech":  # whose features have any size, and no mask
        sizes = keras_attn.XLASizes(4, sources.shape[1], exact=True)
    compiled = translator(name, jit_compile=sizes)
    assert compiled(sources).text == plain(sources).text


@pytest.mark.full
@pytest.mark.parametrize(
    "name", models(names=filter(published.has_text, published.NAMES))
)
def test_a_shortlist_leaves_out_tokens(name, translators):
    decode = translators[name]
    pairs = {x: [x] for x in "abcdef"}
    shortlist = keras_attn.Shortlist.from_tokens(
        decode.source_text, decode.target_text, pairs
    )
    short = translator(name, shortlist=shortlist)
    lines = ["ab", "c"]
    for line, found in zip(lines, short(lines), strict=True):
        assert set(found.tokens) <= {*line, "<unk>", "</s>"}


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_a_saved_translator_finds_the_same(name, translators, tmp_path):
    made, decode = published.make(name), translators[name]
    sources = take(made.sources, list(range(len(made.sources))))
    decode.save(tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = keras_attn.Translator.load(
            tmp_path,
            {x.__name__: x for x in published.FUNCTIONS},
            safe_mode=False,
        )
    assert loaded(sources).text == decode(sources).text
    options = json.loads((tmp_path / "translator.json").read_text())
    assert options["recompute"] is True


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    def export(name):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return translators[name].export(
                tmp_path_factory.mktemp("exports"),
                signatures="all",
                lengths=False if name == "speech" else None,
            )

    return Lazily(export, published.NAMES)


def asked(name):
    """The requests to an export: a batch of unlike lengths, in each way."""
    made, decode = published.make(name), translator(name)
    source = {"source": made.sources}
    if made.source_text is not None:
        source = {"text": as_bytes(made.sources)}
    count = len(made.sources)
    # A client must send rows of one length where padding matters.
    alone = 1 if decode.pipeline.of_one_length else count
    targets = as_bytes(["ab"] * count)
    options = {
        name: np.full(count, -1, dtype.as_numpy_dtype)
        for name, dtype in option_inputs(decode.search).items()
    }
    options["max_length"] = np.arange(count, dtype="int32") % 5 + 3
    options["prefix"] = as_bytes(["a"] * count)
    return {
        "decode": ("serving_default", source),
        "score": ("score", source | {"target": targets}),
        "options": ("options", source | options),
        "loop": (LONGEST, {name: x[:alone] for name, x in source.items()}),
    }


@pytest.fixture(scope="module")
def answers(exports):
    return Answers(exports, asked)


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_tensorflow_servings_loader_answers_the_same(
    name, translators, answers
):
    made, decode = published.make(name), translators[name]
    sources = take(made.sources, list(range(len(made.sources))))
    found = decode(sources)
    answer = answers[name, "decode"]
    texts = [x.decode() for x in answer["text"]]
    assert texts == found.text
    scores = [x.score for x in found]
    np.testing.assert_allclose(answer["score"], scores, atol=1e-4)
    expected = decode.score(sources, ["ab"] * len(sources)).scores
    scores = answers[name, "score"]["score"]
    np.testing.assert_allclose(scores, expected, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_tensorflow_servings_loader_answers_requests_with_options(
    name, translators, answers
):
    sources = published.make(name).sources
    rows = range(len(sources))
    found = translators[name](
        take(sources, list(rows)),
        prefixes=["a"] * len(sources),
        options={"max_length": [i % 5 + 3 for i in rows]},
    )
    answer = answers[name, "options"]
    assert [x.decode() for x in answer["text"]] == found.text
    scores = [x.score for x in found]
    np.testing.assert_allclose(answer["score"], scores, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_a_client_decodes_step_by_step(name, answers, by_brute_force):
    search = keras_attn.GreedySearch(max_length=LONGEST)
    expected = by_brute_force(name, search)
    tokens = published.make(name).target_text.tokens
    answer = answers[name, "loop"]
    expected = expected[: len(answer["text"])]
    np.testing.assert_allclose(
        answer["score"], [x.score for x in expected], atol=1e-4
    )
    for text, one in zip(answer["text"], expected, strict=True):
        written = "".join(tokens[x] for x in one.tokens)
        assert text.decode() == written.removesuffix("</s>")


@pytest.mark.full
@pytest.mark.parametrize("name", models())
def test_small_weights_and_onnx(name, translators, tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        translators[name].export(tmp_path / "int8", weights="int8")
        # It compares the model with TensorFlow's before it writes it.
        translators[name].export(tmp_path / "onnx", format="onnx")
