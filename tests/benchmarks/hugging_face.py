"""A Marian of Hugging Face's format beside transformers and CTranslate2.

    python tests/benchmarks/hugging_face.py           # a quarter of an hour
    python tests/benchmarks/hugging_face.py --smoke   # two minutes

The net has opus-mt's sizes and random weights. `from_hugging_face` reads its
directory, and so do `generate` of transformers and CTranslate2's converter.
Sources have 20 tokens, and outputs 24, as none can end. They are compared with
ours: nine of ten of `generate` must be equal, as in a beam search rounded sums
may be equal in one program alone. A shortlist changes them: 20 tokens for each
source token and 100 for all, drawn at random.

CPU ms of one thread, median over rounds in which all take turns, each in a
process of its own; in brackets, how many times as long as our plain graph it
takes. The heads count sources; beam searches have 4 beams. XLA compiles for 2
and 32 rows. At the end, the most anonymous memory that a process adds while it
loads a model, in units of the file, whose dtype the model keeps. transformers
maps the file, which does not count.

KERAS_ATTN_BENCH_HF names a Python that has torch, transformers and ctranslate2.
What is missing there is skipped.
"""

import argparse
import dataclasses
import functools
import json
import multiprocessing.connection
import os
import subprocess
import sys
import tempfile
import time
import types
from pathlib import Path
from statistics import median

from worker import limit_threads

limit_threads(1)
os.environ["HF_HUB_DISABLE_PROGRESS_BARS"] = "1"  # those of loading

# Other libraries are imported where they are used: each process has its own.
import numpy as np  # noqa: E402

TINY = Path(__file__).parents[1] / "fixtures" / "hugging_face" / "marian"
NAMES = "layers", "attention_heads", "d_model", "ffn_dim", "vocab_size"
SIZES, SMALL = (6, 8, 512, 2048, 58_000), (2, 2, 16, 32, 200)
BEAMS, SOURCE, TARGET = 4, 20, 24  # tokens, of a source with its end token
END, FIRST = 0, 2  # ids; that of unknown tokens is 1, that of padding the last


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--smoke", action="store_true")
    parser.add_argument("--answer", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.answer:  # a process that this program started
        return answer(*args.answer)
    rows, rounds = (3, 1) if args.smoke else (32, args.rounds)
    with tempfile.TemporaryDirectory() as parent:
        folders = [Path(parent, x) for x in ("float32", "bfloat16")]
        for folder in folders:
            write(folder, SMALL if args.smoke else SIZES)
        compare(start(PROGRAMS, folders[0]), (1, rows), rounds)
        print("\n| loading | dtype | memory / weights |\n|---|---|---|")
        for folder in folders:
            size = (folder / "model.safetensors").stat().st_size / 2**20
            programs = start(("keras_attn", "transformers"), folder)
            for name, it in programs.items():
                print(f"| {name} | {folder.name} | {it.loading / size:.2f} |")
                it.stop()


def compare(programs, batches, rounds):
    """Prints how many outputs are equal, and times."""
    cases = [(beams, rows) for beams in (1, BEAMS) for rows in batches]
    names = [f"{'greedy' if x == 1 else 'beam'} {rows}" for x, rows in cases]
    head = f" | {' | '.join(names)} |\n{'|---' * 5}|"
    print(f"\n| equal outputs{head}")
    first = {}  # calls, which trace and warm up
    for name, program in programs.items():
        first[name] = [program.ask(*case)[1] for case in cases]
        pairs = zip(first[name], first["keras_attn"], strict=True)
        alike = [np.equal(*pair).all(axis=1) for pair in pairs]
        cells = [f"{x.sum()} of {x.size}" for x in alike]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        if name == "transformers" and min(x.mean() for x in alike) < 0.9:
            sys.exit("These are not the same models.")
    times = {x: [[] for _ in cases] for x in programs}
    for i, case in [*enumerate(cases)] * rounds:
        for name, program in programs.items():
            times[name][i].append(program.ask(*case)[0])
    print(f"\n| CPU ms{head}")
    for name, found in times.items():
        pairs = zip(found, times["keras_attn"], strict=True)
        pairs = [(median(x), median(y)) for x, y in pairs]
        cells = [f"{x:.4g} ({x / y:.2f})" for x, y in pairs]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)
        programs[name].stop()


def start(names, folder):
    """Returns the programs that can run, and says which cannot."""
    found, theirs = {}, os.environ.get("KERAS_ATTN_BENCH_HF")
    for name in names:
        python = sys.executable if "keras_attn" in name else theirs
        program = python and Program(python, name, folder)
        missing = program.missing if program else "KERAS_ATTN_BENCH_HF"
        if missing:
            print(f"{name}: skipped, {missing} is missing.", flush=True)
        else:
            found[name] = program
    return found


class Program:
    """A library in a process of its own, which runs `answer`.

    Attributes:
        missing: Name of a package that it lacks, or `None`.
        loading: Most MB of anonymous memory that loading added.
    """

    def __init__(self, python, name, folder):
        from watch import memory

        self._pipe, other = multiprocessing.Pipe()
        end = other.fileno()
        command = [python, __file__, "--answer", name, folder, str(end)]
        self._process = subprocess.Popen(command, pass_fds=[end])
        other.close()
        self.missing = self._pipe.recv()
        if self.missing is None:
            found = [memory(self._process.pid, "RssAnon")]
            self._pipe.send("load")
            while not self._pipe.poll(0.002):
                found.append(memory(self._process.pid, "RssAnon"))
            self._pipe.recv()
            self.loading = max(found) - found[0]

    def ask(self, beams, rows):
        """Returns CPU ms and the tokens of outputs."""
        self._pipe.send((beams, rows))
        return self._pipe.recv()

    def stop(self):
        self._pipe.send(None)
        self._process.wait()


def answer(name, folder, end):
    """Loads a program, and answers each beams and rows by a search."""
    pipe = multiprocessing.connection.Connection(int(end))
    size = json.loads(Path(folder, "config.json").read_text())["vocab_size"]
    program = PROGRAMS[name](folder, size)
    try:
        pipe.send(next(program))
    except ModuleNotFoundError as error:
        return pipe.send(error.name)
    pipe.recv()
    search = next(program)
    pipe.send(None)
    for beams, rows in iter(pipe.recv, None):
        random = np.random.default_rng(rows)
        ids = random.integers(FIRST, size - 1, (rows, SOURCE))
        ids[:, -1] = END
        begin = time.process_time()
        tokens = np.reshape(search(beams, ids), (rows, TARGET)).tolist()
        pipe.send((1e3 * (time.process_time() - begin), tokens))


# A program yields when it has imported its library, and when it has loaded
# the model: a function that searches, from beams and ids to tokens.


def ours(folder, size, compiled=False, listed=False):
    import tensorflow as tf

    import keras_attn

    tf.ones([2, 2]) @ tf.ones([2, 2])  # starts TensorFlow
    yield
    read = keras_attn.Translator.from_hugging_face(
        folder, ids=True, dtype=Path(folder).name
    )

    @functools.cache
    def translator(beams):
        options, rules = {}, read.search.rules
        if compiled:
            options["jit_compile"] = keras_attn.XLASizes(rows=(2, 32))
        if listed:  # which no search with rules takes
            random = np.random.default_rng(0)
            table = random.integers(FIRST, size - 1, (size, 20))
            rules, always = (), range(FIRST, FIRST + 100)
            options["shortlist"] = keras_attn.Shortlist(table, always)
        search = dataclasses.replace(read.search, rules=rules)
        if beams == 1:
            search = keras_attn.GreedySearch(max_length=TARGET, rules=rules)
        texts = read.source_text, read.target_text
        return keras_attn.Translator(read.model, *texts, search, **options)

    def search(beams, ids):
        lines = [" ".join(map(str, x)) for x in ids[:, :-1]]
        found = translator(beams)(lines).text
        return [[int(x) for x in text.split()] for text in found]

    yield search


def theirs(folder, size):
    import torch
    import transformers

    torch.set_num_threads(1)
    yield
    model = transformers.MarianMTModel.from_pretrained(folder, dtype="auto")

    def search(beams, ids):
        return model.generate(torch.tensor(ids), num_beams=beams)[:, 1:]

    yield search


def in_c(folder, size):
    import ctranslate2
    import torch  # noqa: F401
    import transformers  # noqa: F401

    yield
    names = ["</s>", "<unk>", *map(str, range(FIRST, size - 1)), "<pad>"]
    ids_of = {x: i for i, x in enumerate(names)}
    converter = ctranslate2.converters.TransformersConverter(folder)
    converter.load_tokenizer = lambda *_: types.SimpleNamespace(
        eos_token="</s>", unk_token="<unk>", get_vocab=lambda: ids_of
    )
    with tempfile.TemporaryDirectory() as made:
        converter.convert(made, force=True)
        translator = ctranslate2.Translator(made, intra_threads=1)

    def search(beams, ids):
        found = translator.translate_batch(
            [[names[x] for x in row] for row in ids],
            beam_size=beams,
            max_decoding_length=TARGET,
            return_scores=True,
        )
        return [[ids_of[x] for x in row.hypotheses[0]] for row in found]

    yield search


PROGRAMS = {
    "keras_attn": ours,
    "keras_attn, XLA": functools.partial(ours, compiled=True),
    "transformers": theirs,
    "CTranslate2": in_c,
    "keras_attn, shortlist": functools.partial(ours, listed=True),
}


def write(folder, sizes):
    """Writes a Marian like the tests' tiny one, of its folder's dtype."""
    import ml_dtypes  # noqa: F401
    from safetensors.numpy import load_file
    from safetensors.numpy import save_file

    config = json.loads((TINY / "config.json").read_text())
    new, pad = {1: 1}, sizes[-1] - 1
    for name, size in zip(NAMES, sizes, strict=True):
        for field in [x for x in config if x.endswith(name)]:
            new.setdefault(config[field], size)  # of a shape
            config[field] = size
    ids = {"pad_token_id": pad, "decoder_start_token_id": pad}
    config |= ids | {"dtype": folder.name}
    search = ids | {"eos_token_id": END, "bad_words_ids": [[pad]]}
    search |= {"num_beams": BEAMS, "max_length": 1 + TARGET}  # with the start
    random, weights = np.random.default_rng(0), {}
    for name, tiny in load_file(TINY / "model.safetensors").items():
        shape, is_norm = [new[x] for x in tiny.shape], "norm.weight" in name
        scale = 0.1 if is_norm or "bias" in name else shape[-1] ** -0.5
        for i in range(sizes[0] if ".0." in name else 1):
            value = is_norm + scale * random.standard_normal(shape, "float32")
            weights[name.replace(".0.", f".{i}.")] = value
    last = f"model.decoder.layers.{sizes[0] - 1}.final_layer_norm.weight"
    weights[last] *= 3  # so that tokens are not about equally likely
    weights["model.shared.weight"][pad] = 0
    weights["final_logits_bias"][0, END] = -1e9
    weights = {x: y.astype(folder.name) for x, y in weights.items()}
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    (folder / "generation_config.json").write_text(json.dumps(search))
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


if __name__ == "__main__":
    main()
