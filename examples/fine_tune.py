"""
Title: Fine-tuning a model of KerasHub, and serving it
Date created: 2026/11/24
Description: BART from a preset to a server: strings in, strings out.

KerasHub has pretrained encoder-decoders, and Keras trains them. This program
fine-tunes one on sentences and their translations. `Translator.from_keras_hub`
then searches with beams and writes a SavedModel, tokenizer included, that
TensorFlow Serving hosts.

    python examples/fine_tune.py                           # a small BART
    python examples/fine_tune.py --preset bart_base_en     # a pretrained one
    python examples/fine_tune.py --preset my_preset --files my.en my.fr

A preset is the name of a KerasHub preset, which is downloaded, or a directory
that `save_to_preset()` wrote. Without one the program makes a small BART with
random weights, so that it runs anywhere, and saves it as a preset first.

It needs keras-attn with its extras `examples` and `keras-hub`, and
keras-attn-serving with its extra `server`. What all examples share is in
`common/`.
"""

import time

import common  # before Keras, as it silences TensorFlow's notes
import keras
import keras_hub
import tokenizers
from common import bleu
from common import sentences

import keras_attn

"""
## A preset of your own

Byte pairs are learned by the library that KerasHub's tokenizer itself uses. The
special tokens have the ids that BART gives them.
"""

SPECIAL = ["<s>", "<pad>", "</s>", "<unk>", "<mask>"]


def make_preset(lines: list[str], options):
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=options.size,
        special_tokens=SPECIAL,
        initial_alphabet=sorted(alphabet),
        show_progress=False,
    )
    learner = tokenizers.Tokenizer(tokenizers.models.BPE())
    learner.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(
        add_prefix_space=False
    )
    learner.train_from_iterator(lines, trainer)
    folder = options.output / "vocabulary"
    folder.mkdir(parents=True, exist_ok=True)
    vocabulary, merges = learner.model.save(str(folder))

    tokenizer = keras_hub.models.BartTokenizer(vocabulary, merges)
    backbone = keras_hub.models.BartBackbone(
        vocabulary_size=tokenizer.vocabulary_size(),
        num_layers=options.depth,
        num_heads=4,
        hidden_dim=options.units,
        intermediate_dim=4 * options.units,
        max_sequence_length=128,
    )
    preprocessor = keras_hub.models.BartSeq2SeqLMPreprocessor(
        tokenizer, encoder_sequence_length=128, decoder_sequence_length=128
    )
    task = keras_hub.models.BartSeq2SeqLM(backbone, preprocessor)
    path = options.output / "preset"
    task.save_to_preset(str(path))
    return str(path)


"""
## Fine-tuning

The translator comes first, since it has the texts: `pairs` puts sentences of
like length into a batch, where KerasHub pads all to one length. The weights are
those of the task, which `task.fit()` would train as well. The translator
follows them.
"""


def fit(preset: str, split, options):
    keras.utils.set_random_seed(options.seed)
    task = keras_hub.models.Seq2SeqLM.from_preset(preset)
    translator = keras_attn.Translator.from_keras_hub(
        task, keras_attn.BeamSearch(5, length_penalty=1.0, max_length=100)
    )
    texts = translator.source_text, translator.target_text
    data = keras_attn.pairs(
        *split.train, *texts, batch_size=64, seed=options.seed
    )
    steps = options.epochs * len(data)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0,
        steps,
        warmup_target=options.rate,
        warmup_steps=min(800, steps // 4),
    )
    model, padding = translator.model, translator.target_text.special.pad
    model.compile(
        keras.optimizers.Adam(rate, beta_2=0.98, global_clipnorm=1.0),
        loss=keras_attn.SequenceCrossentropy(
            label_smoothing=0.1, padding_id=padding
        ),
    )
    model.fit(  # `pairs` shuffles
        data,
        epochs=options.epochs,
        shuffle=False,
        callbacks=[bleu.watch(model, split, *texts)],
        verbose=2,
    )
    return task, translator


"""
## All steps in turn
"""


def add_options(parser):
    sentences.add_files(parser)
    add = parser.add_argument
    add("--preset", metavar="NAME", help="a preset of KerasHub, or its folder")
    add("--rate", type=float, default=1e-3, help="highest learning rate")


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Fine-tunes a model of KerasHub on translations, exports it and "
        "serves it.",
        output="build/fine_tune",
        add_options=add_options,
        epochs=(8, "passes over the sentences"),
        sentences=(None, "use only so many, for a quick trial"),
        size=(4000, "tokens of the small BART"),
        units=(192, "width of the small BART"),
        depth=(2, "layers on either side of the small BART"),
    )
    pairs = sentences.read(options.files)
    split = sentences.split_by_hash(pairs.first(options.sentences))
    lines = [*split.train.sources, *split.train.targets]
    preset = options.preset or make_preset(lines, options)
    started = time.monotonic()
    task, translator = fit(preset, split, options)
    print(f"\nTrained in {time.monotonic() - started:.0f} s.")
    bleu.report(translator, split.test, "beam search")
    bleu.show(translator, split.test.shown())
    task.save_to_preset(str(options.output / "fine_tuned"))

    bleu.serve(translator, split.test.shown().sources[0], options.output)


if __name__ == "__main__":
    main()
