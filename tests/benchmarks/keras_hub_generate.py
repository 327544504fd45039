"""KerasHub's encoder-decoders: `generate` beside `Translator.from_keras_hub`.

    python tests/benchmarks/keras_hub_generate.py            ten minutes
    python tests/benchmarks/keras_hub_generate.py --smoke    a minute

CPU ms of one thread, median over rounds in which all take turns, and in
brackets the part of the time of `generate`. The heads count sources; beam
searches have 4 beams.

All read and write ids, without tokenizers: `generate` of a task without a
preprocessor, which XLA compiles, and `Translator.decode_ids` in a
`tf.function`, with XLA and without. Weights are random, and no output ends,
so all take the same steps. Greedy outputs must be equal; of beams, nearly all.

`generate` returns tokens; ours also returns scores and alignments. Whisper has
no `generate`.
"""

import argparse
import dataclasses
import sys
import time
from collections.abc import Callable
from statistics import median

from worker import limit_threads

limit_threads(1)

import keras  # noqa: E402
import keras_hub  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_attn  # noqa: E402

hub = keras_hub.models
BEAMS = 4
SPECIAL = keras_attn.SpecialTokens(pad=0, start=(1,), end=2, unknown=3)


@dataclasses.dataclass(frozen=True)
class Sizes:
    depth: int = 4  # of the encoder, and of the decoder
    width: int = 256
    vocabulary: int = 8000
    source: int = 20
    samples: int = 16_000
    frames: int = 100
    target: int = 24
    batches: tuple = (1, 32)


SMALL = Sizes(1, 16, 50, 4, 4000, 10, 3, (2,))


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument(
        "--only", metavar="NAME", choices=FAMILIES, help="one of the models"
    )
    args = parser.parse_args()
    sizes = SMALL if args.smoke else Sizes()
    rounds = 1 if args.smoke else args.rounds
    heads = [
        f"{kind} {batch}"
        for kind in ("greedy", "beam")
        for batch in sizes.batches
    ]
    print(f"| | | {' | '.join(heads)} |")
    print("|---" * (2 + len(heads)) + "|", flush=True)
    for name in [args.only] if args.only else FAMILIES:
        keras.utils.clear_session()
        compare(name, FAMILIES[name], sizes, rounds)
    return 0


def compare(name, family, sizes, rounds):
    """Prints the rows of a model."""
    model = family.make(sizes)
    fill(getattr(model, "backbone", model), sizes, family.sharpness)
    cells: dict[str, list] = {"`generate`": [], "ours, XLA": [], "ours": []}
    for beams in (1, BEAMS):
        for batch in sizes.batches:
            sources = family.sources(batch, sizes)
            calls = {
                "ours, XLA": ours(model, beams, sources, sizes, True),
                "ours": ours(model, beams, sources, sizes, False),
            }
            if family.generates(beams):
                theirs = generate(model, beams, family.read(sources), sizes)
                calls = {"`generate`": theirs} | calls
            hold_equal(f"{name}, {beams} beams", calls, beams > 1)
            times = in_turns(calls, rounds)
            for key, row in cells.items():
                row.append(cell(times, key))
    for key, row in cells.items():
        if key == "`generate`" and not family.generates(1):
            continue
        print(f"| {name} | {key} | {' | '.join(row)} |", flush=True)


def cell(times, key):
    """Returns a time and, in brackets, its part of that of `generate`."""
    if key not in times:
        return "-"
    found = f"{median(times[key]):.3g}"
    theirs = times.get("`generate`")
    if theirs and key != "`generate`":
        parts = (x / y for x, y in zip(times[key], theirs, strict=True))
        found += f" ({median(parts):.2f})"
    return found


def generate(task, beams, read, sizes):
    """Returns a call of KerasHub's `generate`."""
    rows = len(next(iter(read.values())))
    tokens = np.zeros((rows, 1 + sizes.target), "int32")
    tokens[:, :1] = SPECIAL.start
    real = np.zeros_like(tokens)
    real[:, :1] = 1
    given = {**read, "decoder_token_ids": tokens, "decoder_padding_mask": real}
    given = {k: v.astype(task.input[k].dtype) for k, v in given.items()}
    sampler = keras_hub.samplers.GreedySampler()
    if beams > 1:
        sampler = keras_hub.samplers.BeamSampler(num_beams=beams)
    task.compile(sampler=sampler, jit_compile=True)
    function = task.make_generate_function()

    def call():
        task.generate_function = function  # the other samplers' calls remain
        task.sampler = sampler
        found = task.generate(given, stop_token_ids=(SPECIAL.end,))
        return found["decoder_token_ids"][:, 1:]

    return call


def ours(model, beams, sources, sizes, compiled):
    """Returns a call of a translator's `decode_ids`."""
    most = {"max_length": sizes.target}
    search = keras_attn.GreedySearch(**most)
    if beams > 1:
        search = keras_attn.BeamSearch(beams, **most)
    if compiled:  # exactly, as padding changes some of the models
        compiled = keras_attn.XLASizes(source=sources.shape[1], exact=True)
    made = keras_attn.Translator.from_keras_hub(
        model, search, SPECIAL, jit_compile=compiled
    )
    kind = made.model.inputs[0]
    graph = tf.function(
        made.decode_ids,
        input_signature=[tf.TensorSpec(kind.shape, kind.dtype)],
        jit_compile=bool(compiled),
        autograph=False,
    )
    return lambda: graph(sources).tokens.numpy()[:, 0]


def hold_equal(name, calls, nearly):
    """Requires that all write the same; compiles them all, too.

    Args:
        name: For the message.
        calls: Calls by their names.
        nearly: Whether a tenth of the rows may differ. In a beam search, sums
            of rounded numbers may be equal in one program alone.
    """
    found = {key: call() for key, call in calls.items()}
    first = next(iter(found.values()))
    if (first == SPECIAL.end).any():
        sys.exit(f"{name}: an output ends.")
    for key, tokens in found.items():
        alike = (tokens == first).all(axis=1).mean()
        if alike < (0.9 if nearly else 1):
            sys.exit(f"{name}: {key} writes other tokens in {1 - alike:.0%}.")


def in_turns(calls, rounds):
    """Returns CPU ms of each call in each round."""
    times: dict[str, list] = {name: [] for name in calls}
    for turn in range(-1, rounds):  # the first warms up
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn >= 0:
                times[name].append(1e3 * (time.process_time() - start))
    return times


def fill(backbone, sizes, sharpness):
    """Gives a model weights by which outputs vary and never end.

    Args:
        backbone: The model.
        sizes: Its sizes.
        sharpness: Factor of kernels of queries and of keys.
    """
    random = np.random.default_rng(0)
    for weight in backbone.weights:
        if "inv_freq" in weight.path:  # a constant
            continue
        if len(weight.shape) == 1:
            value = random.normal(scale=0.1, size=weight.shape)
            if weight.name in ("scale", "gamma", "weight"):
                value += 1
        else:
            scale = sizes.width**-0.5
            if "position" in weight.path:
                scale = 0.3
            elif "/query/" in weight.path or "/key/" in weight.path:
                scale *= sharpness
            value = random.normal(scale=scale, size=weight.shape)
        weight.assign(value)
    # Logits of almost 0, and others are far higher.
    names = "decoder_token_embedding", "token_embedding"
    words = next(getattr(backbone, x) for x in names if hasattr(backbone, x))
    value = words.embeddings.numpy()
    value[[*SPECIAL.never_written, SPECIAL.end]] *= 0.02
    words.embeddings.assign(value)


def usual(sizes):
    return {
        "vocabulary_size": sizes.vocabulary,
        "num_layers": sizes.depth,
        "num_heads": max(1, sizes.width // 32),
        "hidden_dim": sizes.width,
        "intermediate_dim": 4 * sizes.width,
    }


def bart(sizes):
    return hub.BartSeq2SeqLM(
        hub.BartBackbone(**usual(sizes), max_sequence_length=64)
    )


def t5(sizes):
    return hub.T5Seq2SeqLM(hub.T5Backbone(**usual(sizes)))


def gemma(backbone, task):
    """Returns a maker of the model; two heads of queries share keys."""

    def make(sizes):
        heads = max(2, sizes.width // 32)
        kinds = ["sliding_attention", "full_attention"] * sizes.depth
        side = {
            "hidden_dim": sizes.width,
            "intermediate_dim": 4 * sizes.width,
            "num_layers": sizes.depth,
            "num_attention_heads": heads,
            "num_key_value_heads": heads // 2,
            "head_dim": 32,
            "layer_types": kinds[: sizes.depth],
        }
        both = {
            f"{name}_{key}": value
            for name in ("encoder", "decoder")
            for key, value in side.items()
        }
        return task(
            backbone(
                vocabulary_size=sizes.vocabulary,
                sliding_window=16,
                query_pre_attn_scalar=32.0,
                **both,
            )
        )

    return make


def moonshine(sizes):
    given = usual(sizes)
    for name in ("num_layers", "num_heads"):
        value = given.pop(name)
        given |= {f"encoder_{name}": value, f"decoder_{name}": value}
    return hub.MoonshineAudioToText(
        hub.MoonshineBackbone(**given, filter_dim=sizes.width)
    )


def whisper(sizes):
    return hub.WhisperBackbone(
        **usual(sizes),
        max_encoder_sequence_length=sizes.frames,
        max_decoder_sequence_length=64,
    )


def some_ids(rows, sizes):
    random = np.random.default_rng(rows)
    shape = rows, sizes.source
    return random.integers(4, sizes.vocabulary, shape, "int32")


def read_ids(ids):
    return {"encoder_token_ids": ids, "encoder_padding_mask": ids != 0}


def some_sound(rows, sizes):
    random = np.random.default_rng(rows)
    return random.normal(size=(rows, sizes.samples)).astype("float32")


def read_sound(sound):
    mask = np.ones(sound.shape, bool)
    return {
        "encoder_input_values": sound[..., None],
        "encoder_padding_mask": mask,
    }


def some_features(rows, sizes):
    random = np.random.default_rng(rows)
    return random.normal(size=(rows, sizes.frames, 80)).astype("float32")


@dataclasses.dataclass(frozen=True)
class Family:
    make: Callable  # from sizes to a task, or a backbone
    sources: Callable = some_ids  # of a number of rows and sizes
    read: Callable = read_ids  # from sources to inputs of KerasHub's encoder
    most_beams: int = BEAMS  # with which `generate` works; 0: there is none
    sharpness: float = 1.0  # of attention, without which all outputs are alike

    def generates(self, beams):
        return beams <= self.most_beams


FAMILIES = {
    "BART": Family(bart, sharpness=2.0),
    "T5": Family(t5),
    # Their `generate` does not repeat a mask for beams, and fails.
    "T5Gemma": Family(
        gemma(hub.T5GemmaBackbone, hub.T5GemmaSeq2SeqLM), most_beams=1
    ),
    "T5Gemma 2": Family(
        gemma(hub.T5Gemma2Backbone, hub.T5Gemma2Seq2SeqLM), most_beams=1
    ),
    "Moonshine": Family(moonshine, some_sound, read_sound),
    "Whisper": Family(whisper, some_features, most_beams=0, sharpness=2.0),
}


if __name__ == "__main__":
    sys.exit(main())
