"""
Title: Translating with subwords and attention
Date created: 2026/11/22
Description: English to French: train, shortlist, score, export, serve, draw.

Languages have too many words for an id each, so translators read and write
subwords: "unformatted" becomes "un", "format", "ted". This program learns both
languages' subwords, trains a recurrent translator with Bahdanau's attention on
the sentences of LibreOffice's help, and scores it by BLEU. Its export takes and
gives sentences: subwords, beam search and shortlist are inside.

    python examples/translate.py                  # all of it
    python examples/translate.py --tokens words   # the same with words
    python examples/translate.py --files my.en my.fr    # your own sentences

`prepare` and `train --prepared` train on another machine, without TensorFlow.
It needs keras-attn with its extra `examples`, and keras-attn-serving with its
extra `server`. What all examples share is in `common/`.
"""

import time

import common  # before Keras, as it silences TensorFlow's notes
import keras
from common import bleu
from common import sentences
from keras import layers

import keras_attn

if keras.backend.backend() == "tensorflow":
    from common.words import Words  # `train --prepared` does without

"""
## Subwords or words

`Text.train` learns subwords from sentences. The most frequent words stay whole,
rare ones become several pieces, and any character can be written. The other way
is a vocabulary of the most frequent words and signs; the rest is unknown. How
sentences are split into these is a `Splitter` of this program's own.
"""


def make_text(lines: list[str], tokens: str, size: int):
    if tokens == "words":
        return keras_attn.Text.from_lines(lines, Words(), max_size=size)
    return keras_attn.Text.train(lines, size)


def make_texts(pairs, options):
    return [make_text(lines, options.tokens, options.size) for lines in pairs]


"""
## The model

An ordinary functional model. The encoder is a GRU in each direction, whose
outputs are the memory. The decoder is a GRU that attends to it after its step
("post"). What it emits is made of its state and the context, and is fed back to
the next step (Luong et al., 2015, section 3.3), so that it knows what it has
attended to.

A wide start of the embeddings (0.1) and a warm-up of the learning rate matter:
without them a model of this size may learn to repeat the most frequent words,
and stay there for epochs.
"""

DROPOUT = 0.2
BATCH_SIZE = 64


def embed(ids, text, size: int):
    start = keras.initializers.RandomNormal(stddev=0.1)
    x = layers.Embedding(text.size, size, start, mask_zero=True)(ids)
    return layers.Dropout(DROPOUT)(x)


def build_model(source_text, target_text, units: int):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    encoder = layers.Bidirectional(
        layers.GRU(units // 2, return_sequences=True, return_state=True)
    )
    memory, *last = encoder(embed(source, source_text, units // 2))
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(units),
        keras_attn.BahdanauAttention(units),
        order="post",
        bridge="dense",  # makes the first state of the encoder's last ones
    )
    words = embed(target, target_text, units // 2)
    memory = layers.Dropout(DROPOUT)(memory)
    decoded = decoder(words, memory, initial_state=last)
    logits = layers.Dense(target_text.size)(layers.Dropout(DROPOUT)(decoded))
    return keras.Model([source, target], logits)


def make_model(source_text, target_text, options, batches: int):
    model = build_model(source_text, target_text, options.units)
    steps = options.epochs * batches
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps, warmup_target=1.5e-3, warmup_steps=min(400, steps // 4)
    )
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=5.0),
        # Sentences of a batch are about equally long. With a loss per row a
        # token weighs the same in batches of short and of long ones.
        loss=keras_attn.SequenceCrossentropy(per="row"),
    )
    return model


def fit(split, options):
    keras.utils.set_random_seed(options.seed)
    texts = make_texts(split.train, options)
    data = keras_attn.pairs(
        *split.train, *texts, batch_size=BATCH_SIZE, seed=options.seed
    )
    model = make_model(*texts, options, len(data))
    keras_attn.check(model, data)  # mistakes show now, not after training
    model.fit(  # `pairs` shuffles
        data,
        epochs=options.epochs,
        shuffle=False,
        callbacks=[bleu.watch(model, split, *texts)],
        verbose=2,
    )
    return make_translator(model, texts, options)


def make_translator(models, texts, options):
    search = keras_attn.BeamSearch(5, length_penalty=1.0, max_length=100)
    return keras_attn.Translator(
        models, *texts, search, replace_unknown=options.tokens == "words"
    )


"""
## A shortlist

No French sentence uses all of the 8,000 tokens. With a shortlist the output
layer computes those that the sentence at hand could need: for each source token
the 20 that attended to it most, and the 100 most frequent. The training pairs
tell which, by the attention of the trained model.
"""


def add_shortlist(translator, train):
    shortlist = keras_attn.Shortlist.from_alignments(translator, *train)
    return translator.replace(shortlist=shortlist)


"""
## Training elsewhere

Texts and `pairs` need TensorFlow, the layers do not. `prepare` writes batches
of ids as arrays. `train --prepared` learns from these on any backend of Keras,
such as JAX on a machine with a GPU, with the options that `prepare` was given.
`score` then goes on here, with the model or with an ensemble of several.
"""


def prepare(split, options):
    texts = make_texts(split.train, options)
    folder = options.output / "prepared"
    common.prepared.write(folder, texts, split[:2], BATCH_SIZE, vars(options))


def train_prepared(options):
    keras.utils.set_random_seed(options.seed)
    data = common.prepared.read(options.prepared, options.seed)
    model = make_model(*data.vocabularies, options, len(data.train))
    common.prepared.fit(model, data, options.epochs, options.output)


def load_trained(options):
    texts = common.prepared.read(options.prepared).texts()
    models = common.prepared.load_models(options.models, options.output)
    return make_translator(models, texts, options)


"""
## All steps in turn
"""


def add_options(parser):
    parser.add_argument(
        "command",
        nargs="?",
        choices=["train", "prepare", "score"],
        default="train",
        help="`prepare` and `score` are what comes before and after "
        "`train --prepared` on another machine",
    )
    sentences.add_options(parser)
    common.command_line.add_prepared(parser.add_argument)
    common.command_line.add_models(parser.add_argument)


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Learns to translate, exports what it learned, serves it and draws "
        "what it attends to.",
        output="build/translate",
        add_options=add_options,
        epochs=(8, "passes over the sentences"),
        size=(8000, "tokens of each language"),
        units=(256, "width of the model"),
        sentences=(None, "use only so many, for a quick trial"),
    )
    if options.command == "train" and options.prepared:
        return train_prepared(options)
    pairs = sentences.read(options.files)
    split = sentences.split_by_hash(pairs.first(options.sentences))
    if options.command == "prepare":
        return prepare(split, options)
    if options.command == "score":
        translator = load_trained(options)
    else:
        started = time.monotonic()
        translator = fit(split, options)
        print(f"\nTrained in {time.monotonic() - started:.0f} s.")
    bleu.report(translator, split.test, "the whole vocabulary")
    translator = add_shortlist(translator, split.train)
    bleu.report(translator, split.test, "the shortlist")
    bleu.show(translator, split.test.shown())
    translator.save(options.output / "translator")

    shown = options.draw or split.test.shown().sources[0]
    bleu.serve(translator, shown, options.output)


if __name__ == "__main__":
    main()
