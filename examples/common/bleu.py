"""Reports on models that translate: BLEU, a few sentences, the server."""

import time

import keras_attn
from common import serving


def bleu(translations: list[str], targets: list[str], **options):
    """Returns BLEU of sacreBLEU, and the signature that says how it counts."""
    import sacrebleu  # not needed to train on prepared batches

    metric = sacrebleu.BLEU(**options)
    score = metric.corpus_score(translations, [targets]).score
    return score, str(metric.get_signature())


def watch(model, split, source_text, target_text):
    """Returns a callback that logs BLEU on sentences held out.

    Args:
        model: The model to train.
        split: The `Split` that has the sentences, of which it takes the first
            200.
        source_text: `Text` of the sources.
        target_text: `Text` of the targets.
    """
    print(
        f"Training on {len(split.train.sources):,} pairs, "
        f"{model.count_params():,} parameters."
    )
    search = keras_attn.GreedySearch()
    translator = keras_attn.Translator(model, source_text, target_text, search)
    held_out = split.validation.first(200)
    return keras_attn.DecodingMetrics(
        translator, *held_out, metrics=["bleu"], show=1
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


def serve(translator, sentence: str, output):
    """Exports a translator, asks a server that hosts it, and draws.

    Args:
        translator: The trained translator.
        sentence: What is asked and drawn.
        output: Folder of the export and the picture.
    """
    folder, picture = output / "models/translate", output / "attention.png"
    path = translator.export(folder, signatures=["terms"])
    print(f"\nExported to {path}. The server says:")
    print(f"  {sentence}")
    print(f"  -> {serving.ask(folder, [sentence])['text'][0]}")
    result = translator([sentence])[0]
    keras_attn.plot_attention(result, words=True).savefig(picture)
    print(f"Its attention is drawn in {picture}.")
    serving.print_command(folder)
