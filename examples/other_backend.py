"""
Title: Trained on JAX or PyTorch, decoded on TensorFlow
Date created: 2026/11/23
Description: One program for every backend of Keras, and a model that moves.

The layers, the loss and the metrics of keras_attn run on every backend of
Keras. Text, search and export are TensorFlow graphs. So a model may be trained
on the fastest backend and then loaded on TensorFlow, which decodes and exports
it. This program reads numbers aloud: "1984" becomes "one thousand nine hundred
eighty four".

    KERAS_BACKEND=jax python examples/other_backend.py train
    python examples/other_backend.py decode

It needs keras-attn with its extra `examples`, and JAX (`pip install jax`) or
PyTorch. `train` uses TensorFlow to split the text, not to compute.
"""

import common  # before Keras, as it silences TensorFlow's notes
import keras
from keras import layers

import keras_attn

DIGITS = keras_attn.Text("0123456789", split="characters")
WORDS = keras_attn.Text(common.numbers.WORDS, split="whitespace")


"""
## The model

Nothing in it is of one backend.
"""


def build(units: int = 96):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    embedded = layers.Embedding(DIGITS.size, 16, mask_zero=True)(source)
    gru = layers.GRU(units // 2, return_sequences=True, return_state=True)
    memory, *last = layers.Bidirectional(gru)(embedded)
    embedded = layers.Embedding(WORDS.size, 32, mask_zero=True)(target)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(units), keras_attn.BahdanauAttention(units)
    )(embedded, memory, initial_state=layers.Concatenate()(last))
    return keras.Model([source, target], layers.Dense(WORDS.size)(hidden))


"""
## Training

The ids are arrays of one shape, as JAX compiles anew for each shape that it
meets. On TensorFlow `keras_attn.pairs` makes shorter batches of short rows.
"""


def arrays(numbers):
    source = DIGITS.ids([str(x) for x in numbers]).numpy()
    said = [common.numbers.say(x) for x in numbers]
    target = WORDS.ids(said, start=True).numpy()
    # Each token predicts the next one: the inputs lack the last, the outputs
    # the first.
    return [source, target[:, :-1]], target[:, 1:]


def train(options):
    keras.utils.set_random_seed(options.seed)
    numbers, _ = common.numbers.draw(options.numbers, options.seed)
    model = build()
    model.compile(
        keras.optimizers.Adam(4e-3, global_clipnorm=1.0),
        loss=keras_attn.SequenceCrossentropy(),
        metrics=[keras_attn.TokenAccuracy()],
    )
    inputs, outputs = arrays(numbers)
    model.fit(inputs, outputs, batch_size=128, epochs=options.epochs, verbose=2)
    options.output.mkdir(parents=True, exist_ok=True)
    model.save(options.output / "model.keras")
    print(f"Trained on {keras.backend.backend()}: {options.output}/model.keras")


"""
## Decoding

The file says nothing of the backend that wrote it.
"""


def decode(options):
    if keras.backend.backend() != "tensorflow":
        raise SystemExit(
            "`decode` needs TensorFlow. Received: KERAS_BACKEND="
            f"{keras.backend.backend()}. Leave it out."
        )
    model = keras.saving.load_model(options.output / "model.keras")
    search = keras_attn.BeamSearch(4, max_length=16)
    translator = keras_attn.Translator(model, DIGITS, WORDS, search)
    _, held_out = common.numbers.draw(options.numbers, options.seed)
    common.numbers.evaluate(translator, held_out)
    for number in common.numbers.SHOWN:
        print(f"{number:>7}  {translator([str(number)])[0].text}")
    print(
        f"Exported to {translator.export(options.output / 'models/numbers')}."
    )


def main(arguments: list[str] | None = None):
    options = common.command_line.parse(
        arguments,
        "Trains on any backend of Keras, and decodes on TensorFlow.",
        output="build/other_backend",
        add_options=lambda parser: parser.add_argument(
            "command", choices=["train", "decode"]
        ),
        epochs=(4, "passes over the numbers"),
        numbers=(20_000, "numbers to train on"),
    )
    {"train": train, "decode": decode}[options.command](options)


if __name__ == "__main__":
    main()
