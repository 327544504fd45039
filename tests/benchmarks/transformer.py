"""A Transformer beside CTranslate2, which decodes Transformers in C++.

    pip install ctranslate2
    python tests/benchmarks/transformer.py           # ten minutes
    python tests/benchmarks/transformer.py --smoke   # a minute

The net of `examples/transformer.py` (W3) with 128 units, of 2 and 6 layers on
either side and with the same random weights for both. First both search until
their texts end: their outputs and scores must be equal. Then no text may end,
so all are of 10 tokens, and it is timed how long that takes with a longest
output of 10 and of 100 tokens. CTranslate2 gets split tokens. We split and join
texts as well; the rows `ids` leave that out. The rows `export` run a SavedModel
in a session of TensorFlow, as a server does. XLA compiles for the number of
texts, or for two.

The bare products are those of the decoder with its weights; the rest of a
step, the search and the encoder are left out. At the end, 63 short texts and
a long one: together, and both apart. And outputs of unlike lengths in a batch,
with rows that leave it when they are done, and with rows that stay.

CPU ms of one thread, median over rounds in which all take turns. Without the
package `ctranslate2` its rows are missing.
"""

import argparse
import collections
import functools
import itertools
import string
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from worker import limit_threads

limit_threads(1)

import keras  # noqa: E402
import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402

import keras_attn  # noqa: E402
from keras_attn.decoding import loop  # noqa: E402

sys.path.insert(0, str(Path(__file__).parents[2] / "examples"))
import transformer  # noqa: E402

try:
    from peers import c_translate
except ImportError:
    c_translate = None

HEADS, TOKENS, LONGEST = 4, 10, (10, 100)
TEXTS = (
    keras_attn.Text(list(string.ascii_lowercase), split="characters"),
    keras_attn.Text([f"P{i}" for i in range(39)], split="whitespace"),
)


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--smoke", action="store_true")
    args = parser.parse_args()
    rounds = 1 if args.smoke else args.rounds
    for depth in (1,) if args.smoke else (2, 6):
        net = Net(depth, units=16 if args.smoke else 128)
        print(
            f"\n{depth} layers, {net.model.count_params() / 1e6:.2f} M weights"
        )
        if c_translate is None:
            print("\nCTranslate2: skipped, the package is missing.")
        else:
            net.hold_equal()
        net.never_end()
        net.operations(kinds=12)
        for rows in (1, 2) if args.smoke else (1, 32):
            net.compare(rows, rounds, compiled=not args.smoke)
    mix(*((4, 5) if args.smoke else (63, 300)), rounds)
    leave(*((6, 2, 9) if args.smoke else (32, 12, 100)), rounds)
    return 0


class Net:
    """The same net in both libraries."""

    def __init__(self, depth, units):
        keras.utils.clear_session()  # the order of layers is in their names
        keras.utils.set_random_seed(0)
        self.model = transformer.build_model(*TEXTS, units, depth, HEADS)
        random = np.random.default_rng(1)
        for weight in self.model.weights:
            value = weight.numpy()
            if "gamma" in weight.path:
                value = 1 + 0.2 * random.normal(size=value.shape)
            elif value.ndim == 1 or "bias" in weight.path:
                value = 0.1 * random.normal(size=value.shape)
            elif "kernel" in weight.path:
                value = 1.5 * value
            weight.assign(value)
        self._depth, self._units = depth, units
        self.peer = None
        if c_translate is not None:
            self.peer = c_translate.Net(self.model, TEXTS, depth, HEADS)
        # Only what may be written has a chance, in both.
        self._forbid(TEXTS[1].special.never_written)

    def never_end(self):
        self._forbid([TEXTS[1].special.end])

    def _forbid(self, ids):
        bias = self.model.layers[-1].bias
        value = bias.numpy()
        value[list(ids)] = -1e9
        bias.assign(value)

    def translator(self, search, compiled=False):
        return keras_attn.Translator(
            self.model, *TEXTS, search, jit_compile=compiled
        )

    def in_c(self):
        with tempfile.TemporaryDirectory() as folder:
            return self.peer.save(Path(folder) / "net")

    def hold_equal(self):
        """Requires the same outputs and scores of both."""
        words = some_words(64, 3, 12)
        search = keras_attn.BeamSearch(5, max_length=40, early_stopping="never")
        ours = self.translator(search)(words)
        theirs = self.in_c().translate_batch(
            list(map(list, words)),
            beam_size=5,
            max_decoding_length=40,
            min_decoding_length=0,
            length_penalty=0,
            return_scores=True,
        )
        apart = [
            abs(one.score - other.scores[0])
            for one, other in zip(ours, theirs, strict=True)
            if one.text == " ".join(other.hypotheses[0])
        ]
        print(
            f"{len(apart)} of {len(words)} outputs are equal, their scores "
            f"within {max(apart):.0e}"
        )
        if len(apart) < 0.95 * len(words) or max(apart) > 1e-3:
            sys.exit("These are not the same nets.")

    def compare(self, rows, rounds, compiled):
        """Prints a table of times for this many texts."""
        words = some_words(rows, TOKENS - 1, TOKENS)  # and the end token
        split = list(map(list, words))
        ids = TEXTS[0].ids(words)
        calls = {}
        for beams in (1, 5):
            if self.peer is not None:
                peer = self.in_c()
                calls["CTranslate2", f"beam {beams}", TOKENS] = (
                    lambda peer=peer, beams=beams: peer.translate_batch(
                        split,
                        beam_size=beams,
                        max_decoding_length=TOKENS,
                        return_scores=True,
                    )
                )
            for xla, most in itertools.product((False, True), LONGEST):
                if xla and not compiled:
                    continue
                search = keras_attn.GreedySearch
                if beams > 1:
                    search = keras_attn.BeamSearch
                first = () if beams == 1 else (beams,)
                sizes = keras_attn.XLASizes(rows=max(2, rows))
                made = self.translator(
                    search(*first, max_length=most, max_per_source=(1, 0)),
                    xla and sizes,
                )
                if most == TOKENS:
                    calls |= exported(made, words, ids, beams, xla and sizes)
                name = "Translator, XLA" if xla else "Translator"
                calls[name, f"beam {beams}", most] = lambda made=made: made(
                    words
                )
                if xla or most != TOKENS:
                    continue
                graph = tf.function(
                    made.decode_ids,
                    input_signature=[tf.TensorSpec([None, None], tf.int32)],
                    autograph=False,
                )
                calls["Translator, ids", f"beam {beams}", most] = (
                    lambda graph=graph: graph(ids).tokens.numpy()
                )
        for beams in (1, 5):
            bare = self._products(rows * beams)
            calls["bare products", f"beam {beams}", TOKENS] = bare
        times = in_turns(calls, rounds)
        print(f"\n| {rows} texts | longest | greedy | beam 5 |")
        print("|---|---|---|---|")
        for name, most in dict.fromkeys((x, z) for x, _, z in times):
            cells = [times[name, f"beam {k}", most] for k in (1, 5)]
            print(f"| {name} | {most} | {' | '.join(map(digits, cells))} |")

    def operations(self, kinds):
        """Prints the operations that TensorFlow runs in a step, by kind.

        Those of an export's signature `ids` for one text, in the plain graph,
        after TensorFlow has optimized it.
        """
        found = []
        for search in (
            keras_attn.GreedySearch(max_length=TOKENS),
            keras_attn.BeamSearch(5, max_length=TOKENS),
        ):
            with tempfile.TemporaryDirectory() as folder:
                path = self.translator(search).export(folder)
                found.append(operations_of_a_step(path))
        print("\n| operations a step | greedy | beam 5 |\n|---|---|---|")
        totals = [sum(x.values()) for x in found]
        print(f"| all | {' | '.join(map(str, totals))} |")
        for kind, _ in sum(found, collections.Counter()).most_common(kinds):
            print(f"| {kind} | {found[0][kind]} | {found[1][kind]} |")

    def _products(self, rows):
        """Returns a call that multiplies what no search can leave out.

        These are the decoder's products of hypotheses and weights. Attention,
        norms, the search and the encoder are missing.
        """
        d, random = self._units, np.random.default_rng(0)

        def weight(*shape):
            values = random.normal(scale=shape[0] ** -0.5, size=shape)
            return tf.Variable(values.astype("float32"))

        # Two attentions, with products of queries and outputs; the keys and
        # values of the past; then the wide layer.
        squares = [[weight(d, d) for _ in range(6)] for _ in range(self._depth)]
        wide = [(weight(d, 4 * d), weight(4 * d, d)) for _ in squares]
        last = weight(d, TEXTS[1].size)

        def step(time, x, total):
            for some, (up, down) in zip(squares, wide, strict=True):
                for square in some:
                    x = x @ square
                x = x @ up @ down
            return time + 1, x, total + tf.reduce_sum(x @ last)

        @tf.function(autograph=False)
        def all_steps(x):
            return tf.while_loop(
                lambda time, *_: time < TOKENS, step, (0, x, 0.0)
            )

        x = tf.constant(random.normal(size=(rows, d)), tf.float32)
        return lambda: all_steps(x)


def exported(translator, words, ids, beams, sizes):
    """Returns calls of an export, with texts and with ids."""
    v1 = tf.compat.v1
    with tempfile.TemporaryDirectory() as folder:
        path = translator.export(folder, jit_compile=sizes)
        with tf.Graph().as_default():
            session = v1.Session()
            loaded = v1.saved_model.load(session, ["serve"], str(path))
    lengths = np.sum(np.asarray(ids) != 0, axis=1, dtype="int32")
    given = {
        "serving_default": {"text": np.array(words, object)},
        "ids": {"ids": np.asarray(ids), "lengths": lengths},
    }
    calls = {}
    for name, values in given.items():
        signature = loaded.signature_def[name]
        calls[
            f"export, {'ids' if name == 'ids' else 'text'}"
            + (", XLA" if sizes else ""),
            f"beam {beams}",
            TOKENS,
        ] = functools.partial(
            session.run,
            {x: y.name for x, y in signature.outputs.items()},
            {signature.inputs[x].name: y for x, y in values.items()},
        )
    return calls


def operations_of_a_step(path):
    """Returns how often each kind of operation runs in a step, counted."""
    v1 = tf.compat.v1
    with v1.Graph().as_default(), v1.Session() as session:
        loaded = v1.saved_model.load(session, ["serve"], str(path))
        signature = loaded.signature_def["ids"]
        values = {
            "ids": np.full((1, TOKENS), TEXTS[0].size - 1, "int32"),
            "lengths": np.full(1, TOKENS, "int32"),
        }
        run = v1.RunMetadata()
        session.run(
            {name: x.name for name, x in signature.outputs.items()},
            {signature.inputs[name].name: x for name, x in values.items()},
            options=v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE),
            run_metadata=run,
        )
    runs, kinds = collections.Counter(), {}
    for device in run.step_stats.dev_stats:
        for node in device.node_stats:
            _, _, label = node.timeline_label.rpartition(" = ")
            runs[node.node_name] += 1
            kinds[node.node_name] = label.partition("(")[0]
    # A loop's condition runs once more than its steps.
    return collections.Counter(
        kinds[name] for name, count in runs.items() if count >= TOKENS
    )


def mix(short, long, rounds):
    """Prints times of short texts and a long one, together and apart."""
    net = Net(2, 128)
    net.never_end()
    many, one = some_words(short, 10, 11), some_words(1, long, long + 1)
    made = net.translator(
        keras_attn.GreedySearch(max_length=long, max_per_source=(1, 0))
    )
    calls = {
        f"{short} of 10 letters": lambda: made(many),
        f"one of {long}": lambda: made(one),
        "together": lambda: made(many + one),
    }
    print("\n| texts, greedy | ms |\n|---|---|")
    for name, found in in_turns(calls, rounds).items():
        print(f"| {name} | {digits(found)} |")


def leave(rows, short, long, rounds):
    """Prints times of outputs of unlike lengths: rows leave, or all stay."""
    net = Net(2, 128)
    net.never_end()
    random = np.random.default_rng(rows)
    normal = random.normal(short, short / 4, rows).round().astype(int)
    batches = {
        f"{rows} of {short} tokens": [short] * rows,
        f"one of {long}": [long],
        f"{rows - 1} of {short}, one of {long}": [short] * (rows - 1) + [long],
        f"{rows} of {short}, standard deviation {short / 4:g}": [
            max(1, x) for x in normal
        ],
    }
    least, translators = loop.LEAST, []
    for beams, stay in itertools.product((1, 5), (True, False)):
        search = keras_attn.GreedySearch(max_length=long)
        if beams > 1:
            search = keras_attn.BeamSearch(beams, max_length=long)
        made = net.translator(search)
        loop.LEAST = rows if stay else least
        # Traces it, and so reads how many rows leave together.
        made(["a"], options={"max_length": [1]})
        translators.append(made)
    loop.LEAST = least
    print("\n| outputs | greedy, stay | leave | beam 5, stay | leave |")
    print("|---|---|---|---|---|")
    for name, lengths in batches.items():
        words = some_words(len(lengths), 10, 11)
        options = {"max_length": lengths}
        calls = {
            i: functools.partial(made, words, options=options)
            for i, made in enumerate(translators)
        }
        times = in_turns(calls, rounds).values()
        print(f"| {name} | {' | '.join(map(digits, times))} |")


def some_words(count, shortest, longer):
    random = np.random.default_rng(count)
    lengths = random.integers(shortest, longer, count)
    letters = list(string.ascii_lowercase)
    return ["".join(random.choice(letters, size=n)) for n in lengths]


def in_turns(calls, rounds):
    """Returns the median CPU ms of each call."""
    times = {name: [] for name in calls}
    for turn in range(-2, rounds):  # two to trace and to warm up
        for name, call in calls.items():
            start = time.process_time()
            call()
            if turn >= 0:
                times[name].append(1e3 * (time.process_time() - start))
    return {name: median(x) for name, x in times.items()}


def digits(number):
    return f"{number:.3g}"


if __name__ == "__main__":
    sys.exit(main())
