"""Reports on models that translate: progress, BLEU, a few sentences."""

import time

import keras
import sacrebleu

import keras_attn


def bleu(translations: list[str], targets: list[str], **options):
    """Returns BLEU of sacreBLEU, and the signature that says how it counts."""
    metric = sacrebleu.BLEU(**options)
    score = metric.corpus_score(translations, [targets]).score
    return score, str(metric.get_signature())


class Progress(keras.callbacks.Callback):
    """Prints a line an epoch: loss, BLEU on sentences held out, time.

    Args:
        split: The `Split` that has the sentences, of which it takes the first
            200.
        source_text: `Text` of the sources.
        target_text: `Text` of the targets.
    """

    def __init__(self, split, source_text, target_text):
        super().__init__()
        self.number = len(split.train.sources)
        self.held_out = split.validation.first(200)
        self.texts = source_text, target_text

    def on_train_begin(self, logs=None):
        print(
            f"Training on {self.number:,} pairs, "
            f"{self.model.count_params():,} parameters, "
            f"{self.params['epochs']} epochs."
        )
        self.translator = keras_attn.Translator(
            self.model, *self.texts, search=keras_attn.GreedySearch()
        )

    def on_epoch_begin(self, epoch, logs=None):
        self.start = time.monotonic()

    def on_epoch_end(self, epoch, logs=None):
        sources, targets = self.held_out
        score, _ = bleu(self.translator(sources).text, targets)
        print(
            f"epoch {epoch + 1}/{self.params['epochs']}   "
            f"loss {logs['loss']:.4f}   validation BLEU {score:.1f}   "
            f"{time.monotonic() - self.start:.0f} s",
        )


def report(translator, test, name: str):
    """Prints BLEU on sentences held out, and the time to translate them.

    Args:
        translator: The trained translator.
        test: The `Pairs` held out.
        name: What the search looks at.
    """
    translator(test.sources[:1])  # makes the graph
    started = time.monotonic()
    found = translator(test.sources).text
    seconds = time.monotonic() - started
    print(f"\n{len(found):,} sentences held out, with {name}: {seconds:.1f} s.")
    for options in {}, {"lowercase": True, "tokenize": "intl"}:
        score, signature = bleu(found, test.targets, **options)
        print(f"  BLEU {score:.2f}   {signature}")


def show(translator, test):
    """Prints sentences held out, how they are translated and should be."""
    print("\nSentences it has never seen:")
    found = translator(test.sources).text
    for source, target, translation in zip(*test, found, strict=True):
        print(f"  {source}\n  -> {translation}\n  (wanted: {target})\n")
