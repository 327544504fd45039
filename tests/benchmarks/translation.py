"""JoeyNMT beside `examples/translate.py`: the same sentences, pieces and sizes.

    python tests/benchmarks/translation.py build/translate/translator \
        --torch PYTHON

PYTHON has torch and joeynmt==2.3.0 (see `run.py`); without the option the
variable KERAS_ATTN_BENCH_TORCH names it. It trains on the pieces that the
saved translator reads and writes, in as many epochs, with batches as large, a
warm-up as long and the same peak of the learning rate. What differs: JoeyNMT
has no cosine schedule, so the rate falls with the inverse square root; its
batches mix short and long sentences, and it keeps the best of its checkpoints.
Then both translate the sentences held out, with 5 beams and the
same length penalty, and sacreBLEU scores the joined text.
"""

import argparse
import os
import subprocess
import sys
import time
from pathlib import Path

import keras_attn

EXAMPLES = Path(__file__).parents[2] / "examples"
sys.path.insert(0, str(EXAMPLES))

from common import bleu  # noqa: E402
from common import sentences  # noqa: E402

CONFIG = """
name: "help"
joeynmt_version: "2.3.0"
model_dir: "{folder}/model"
use_cuda: False
fp16: False
random_seed: 1
data:
  train: "{folder}/train"
  dev: "{folder}/dev"
  test: "{folder}/test"
  dataset_type: "plain"
  src: &side
    lang: "en"
    max_length: 200
    level: "word"
    voc_file: "{folder}/voc.en"
    tokenizer_type: "none"
    normalize: False
    lowercase: False
  trg:
    <<: *side
    lang: "fr"
    voc_file: "{folder}/voc.fr"
training:
  optimizer: "adam"
  scheduling: "warmupinversesquareroot"
  learning_rate: 0.0015
  learning_rate_warmup: 400
  learning_rate_min: 0.00001
  clip_grad_norm: 5.0
  batch_size: 64
  batch_type: "sentence"
  epochs: {epochs}
  validation_freq: 1000
  logging_freq: 100
  early_stopping_metric: "bleu"
  keep_best_ckpts: 1
  overwrite: True
testing:
  n_best: 1
  beam_size: 5
  beam_alpha: 1.0
  batch_size: 32
  batch_type: "sentence"
  max_output_length: 100
  eval_metrics: ["bleu"]
  return_prob: "none"
  return_attention: False
model:
  initializer: "xavier_uniform"
  embed_initializer: "normal"
  embed_init_weight: 0.1
  encoder:
    type: "recurrent"
    rnn_type: "gru"
    embeddings: {{embedding_dim: 128, scale: False, dropout: 0.2}}
    hidden_size: 128
    bidirectional: True
    dropout: 0.2
    num_layers: 1
  decoder:
    type: "recurrent"
    rnn_type: "gru"
    embeddings: {{embedding_dim: 128, scale: False, dropout: 0.2}}
    hidden_size: 256
    dropout: 0.2
    hidden_dropout: 0.2
    num_layers: 1
    init_hidden: "bridge"
    input_feeding: True
    attention: "bahdanau"
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n")[0])
    parser.add_argument("translator", type=Path, help="as the example saved it")
    parser.add_argument(
        "--torch",
        default=os.environ.get("KERAS_ATTN_BENCH_TORCH"),
        metavar="PYTHON",
        help="a Python that has JoeyNMT",
    )
    parser.add_argument("--folder", type=Path, default=Path("build/joeynmt"))
    parser.add_argument("--epochs", type=int, default=8)
    parser.add_argument(
        "--sentences", type=int, help="use only so many, for a quick trial"
    )
    args = parser.parse_args()
    if not args.torch:
        parser.error("name a Python that has JoeyNMT: --torch PYTHON")
    ours = keras_attn.Translator.load(args.translator)
    pairs = sentences.read().first(args.sentences)
    split = sentences.split_by_hash(pairs)
    write(args.folder, split, ours, args.epochs)
    trained, found = joey_nmt(args.torch, args.folder, ours.target_text)
    print(f"JoeyNMT trained in {trained:.0f} s.")
    results = {"keras_attn": ours(split.test.sources).text, "JoeyNMT": found}
    for name, translations in results.items():
        for options in {}, {"lowercase": True, "tokenize": "intl"}:
            score, signature = bleu.bleu(
                translations, split.test.targets, **options
            )
            print(f"{name}: BLEU {score:.2f}   {signature}")
    return 0


def write(folder, split, translator, epochs):
    """Writes pieces, vocabularies and the configuration."""
    folder.mkdir(parents=True, exist_ok=True)
    texts = {"en": translator.source_text, "fr": translator.target_text}
    for part, name in zip(split, ("train", "dev", "test"), strict=True):
        for lines, (language, text) in zip(part, texts.items(), strict=True):
            rows = text.tokens_of(lines).to_list()
            file = folder / f"{name}.{language}"
            file.write_bytes(b"".join(b" ".join(x[:-1]) + b"\n" for x in rows))
    for language, text in texts.items():
        file = folder / f"voc.{language}"
        file.write_text("".join(f"{x}\n" for x in text.tokens[4:]), "utf-8")
    config = CONFIG.format(folder=folder.resolve(), epochs=epochs)
    (folder / "config.yaml").write_text(config)


def joey_nmt(python, folder, text):
    """Trains and translates; returns the seconds of training and the text."""
    command = python, "-m", "joeynmt"
    config = str(folder / "config.yaml")
    started = time.monotonic()
    subprocess.run([*command, "train", config, "--skip-test"], check=True)
    seconds = time.monotonic() - started
    output = folder / "output"
    subprocess.run(
        [*command, "test", config, "--output-path", str(output)], check=True
    )
    lines = Path(f"{output}.test").read_text("utf-8").split("\n")[:-1]
    pieces = [x.split(" ") for x in lines]
    import tensorflow as tf

    joined = text.splitter.join(tf.ragged.constant(pieces, tf.string, 1))
    return seconds, [x.decode("utf-8", "replace") for x in joined.numpy()]


if __name__ == "__main__":
    sys.exit(main())
