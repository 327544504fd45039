"""`DecodingMetrics`: decodes and scores text after epochs of training."""

import functools
import pathlib
from collections.abc import Mapping

import keras

from keras_attn import arguments
from keras_attn.training.callbacks.gap import Gap
from keras_attn.training.callbacks.tensorboard import Writer
from keras_attn.training.metrics import BY_NAME
from keras_attn.viewing.plots import plot_attention
from keras_attn.viewing.plots.plot import require_matplotlib


class DecodingMetrics(keras.callbacks.Callback):
    """Decodes held-out sources after each epoch, and scores the text.

    The scores are added to the logs of the epoch as `val_bleu` and so on. They
    appear in the history and in Keras's progress line, and the callbacks after
    this one can use them. Put `BestCheckpoint` and Keras's `EarlyStopping` and
    `TensorBoard` after it in the list, with `mode="max"` if higher is better
    (BLEU, chrF) and `mode="min"` for error rates. Keras cannot guess the mode
    from these names. Callbacks before this one find no score, and Keras warns
    of that.

    With `every=5` the logs of the epochs between have no scores, so
    `history.history["val_bleu"]` has one value per decoding and is shorter
    than `history.history["loss"]`; `epochs` lists the epochs of its values.
    `EarlyStopping` and `ReduceLROnPlateau` skip epochs without a score: their
    `patience` counts decodings. Their warnings of missing scores are silenced.
    `ModelCheckpoint(save_best_only=True)` would overwrite the best model after
    such an epoch, so it is refused; use `BestCheckpoint`.

    The translator is made of the model in training and decodes with its
    current weights. A few hundred short sources and a greedy search are
    enough to watch training; compute the scores that you report on the test
    set afterwards. Decoding changes no weight and no random state.

    Args:
        translator: `Translator` of the model that is trained.
        sources: Held-out sources, as for a call of the translator.
        references: For each source a string, or a list of several.
        metrics: List of names and functions. The names are `"bleu"`,
            `"chrf"`, and `"wer"`, `"cer"` and `"ser"` (the error rates of
            words, characters and whole sequences). A function of
            `(hypotheses, references)` returns a number, which is logged under
            the function's name. Or a dictionary from names in the logs to
            these.
        every: Number of epochs from one decoding to the next. The first and
            the last epoch of a `fit` always decode.
        show: Number of sources to print, with their decoded text and
            references, from the first on. 0 prints nothing.
        batch_size: Number of sources that are decoded together.
        pictures: Directory for heat maps of the attention of the `show` first
            sources, `epoch-0001-1.png` and so on; needs Matplotlib.
        tensorboard: Directory for TensorBoard files with the `show` first
            sources as text and as heat maps; needs Matplotlib.

    Attributes:
        translations: The `Translations` of the last decoding.
        epochs: List of the epochs of the last `fit` that decoded, from 1.

    Raises:
        ValueError: If the numbers of sources and references differ or are 0,
            if a metric is unknown, or, when `fit` begins, if the translator
            decodes another model than the one in training.
        ImportError: If a metric or a picture needs a package that is not
            installed.

    Example:
        >>> text = keras_attn.Text.from_lines(["ab"], split="characters")
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> embed = keras.layers.Embedding(text.size, 8, mask_zero=True)
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...     embed(target), embed(source))
        >>> model = keras.Model(
        ...     [source, target], keras.layers.Dense(text.size)(hidden))
        >>> model.compile("adam", keras_attn.SequenceCrossentropy())
        >>> copy = keras_attn.Translator(
        ...     model, text, text, keras_attn.GreedySearch(max_length=5))
        >>> decode = keras_attn.DecodingMetrics(
        ...     copy, ["ab", "ba"], ["ab", "ba"], metrics=["cer"], show=0)
        >>> stop = keras.callbacks.EarlyStopping(
        ...     "val_cer", patience=3, mode="min")  # "max" for BLEU
        >>> data = keras_attn.pairs(["ab", "b"], ["ab", "b"], text, text)
        >>> history = model.fit(
        ...     data, shuffle=False, verbose=0, callbacks=[decode, stop])
        >>> sorted(history.history)
        ['loss', 'val_cer']
    """

    def __init__(
        self,
        translator,
        sources,
        references,
        metrics=("bleu",),
        every=1,
        show=5,
        batch_size=64,
        pictures=None,
        tensorboard=None,
    ):
        super().__init__()
        self.translator = translator
        self.sources = sources
        self.references = list(references)
        self.metrics = _by_name(metrics)
        _require_packages(self.metrics, pictures or tensorboard)
        self.every = arguments.positive(every, "every")
        self.show = min(arguments.index(show, "show"), len(self.references))
        self.batch_size = batch_size
        self.pictures = None if pictures is None else pathlib.Path(pictures)
        self.tensorboard = None if tensorboard is None else Writer(tensorboard)
        self.translations = None
        self.epochs: list[int] = []
        self._scores: dict[str, float] = {}
        self._gap = Gap([f"val_{name}" for name in self.metrics])
        count = len(self._columns()[0])
        if count != len(self.references) or not count:
            raise ValueError(
                "`DecodingMetrics` needs at least one source, and for each "
                f"source a reference or a list of some. Received: {count} "
                f"sources and {len(self.references)} references."
            )

    def on_train_begin(self, logs=None):
        self.epochs = []
        trained = {id(x) for x in self.model.trainable_variables}
        decoded = {
            id(x)
            for model in self.translator.models
            for x in model.trainable_variables
        }
        if trained and not trained & decoded:
            raise ValueError(
                "`DecodingMetrics` needs a translator of the model that is "
                "trained. Received: a translator whose models share no weight "
                "with it. "
                "Make the translator of the model that is trained, "
                "`Translator(model, ...)`, not of a copy."
            )

    def on_epoch_begin(self, epoch, logs=None):
        self._gap.close()

    def on_epoch_end(self, epoch, logs=None):
        number = epoch + 1
        last = number == self.params.get("epochs")
        if self.epochs and number % self.every and not last:
            self._gap.open()
            return
        self._decode(number)
        self.epochs.append(number)
        if logs is not None:
            logs.update(self._scores)

    def on_train_end(self, logs=None):
        self._gap.close()

    def _decode(self, number):
        # The same draws every time, so that epochs can be compared.
        seed = {"seed": 0} if self.translator.search.draws else {}
        self.translations = self.translator(
            self.sources, batch_size=self.batch_size, **seed
        )
        found = self.translations.text
        self._scores = {
            f"val_{name}": float(metric(found, self.references))
            for name, metric in self.metrics.items()
        }
        if self.show:
            self._print(number)
        if self.pictures is not None or self.tensorboard is not None:
            self._draw(number)

    def _columns(self):
        """Returns the sources of each input, as a list of lists or arrays."""
        if isinstance(self.sources, Mapping):
            return list(self.sources.values())
        # If lines are the only input, a tuple is a list of lines.
        several = not self.translator.pipeline.sources.reads_text
        if several and isinstance(self.sources, tuple):
            return list(self.sources)
        return [self.sources]

    def _shown(self):
        """Returns `(source, text, references)` of the rows to show."""
        columns = [x[: self.show] for x in self._columns()]
        sources = [
            " | ".join(x for x in row if isinstance(x, str))
            for row in zip(*columns, strict=True)
        ]
        references = [
            x if isinstance(x, str) else " | ".join(x)
            for x in self.references[: self.show]
        ]
        texts = self.translations.text[: self.show]
        return list(zip(sources, texts, references, strict=True))

    def _print(self, number):
        scores = "   ".join(f"{x} {y:.4f}" for x, y in self._scores.items())
        # Keras's progress bar leaves its line unfinished.
        print(f"\nepoch {number}   {scores}")
        for source, text, wanted in self._shown():
            print(f"  {source}\n  -> {text}\n     (wanted: {wanted})")

    def _draw(self, number):
        """Draws and saves the attention of the rows to show."""
        figures = {
            i: plot_attention(row)
            for i, row in enumerate(self.translations[: self.show], 1)
            if row.alignment.size
        }
        if self.tensorboard is not None:
            self.tensorboard.write(number, self._shown(), figures)
        if self.pictures is not None:
            self.pictures.mkdir(parents=True, exist_ok=True)
            for i, figure in figures.items():
                figure.savefig(self.pictures / f"epoch-{number:04}-{i}.png")


def _by_name(metrics):
    """Returns a dictionary from names in the logs to metric functions."""
    if isinstance(metrics, str):
        metrics = [metrics]
    if not isinstance(metrics, Mapping):
        metrics = {
            x if isinstance(x, str) else getattr(x, "__name__", repr(x)): x
            for x in metrics
        }
    found = {}
    for name, metric in metrics.items():
        function = BY_NAME.get(metric) if isinstance(metric, str) else metric
        if not callable(function):
            known = ", ".join(f'"{x}"' for x in BY_NAME)
            raise ValueError(
                f"A metric of decoded text is one of {known}, or a function "
                f"of (hypotheses, references). Received: {metric!r}. Pass "
                "metrics of tokens, such as `TokenAccuracy`, to `compile`."
            )
        found[name] = function
    return found


def _require_packages(metrics, draws):
    """Raises one `ImportError` that names all missing packages.

    The metrics of this package import other packages only when they are
    called, which would be after the first epoch.
    """
    checks = [
        functools.partial(metric, ["a"], ["a"])
        for metric in metrics.values()
        if getattr(metric, "func", metric) in BY_NAME.values()  # `partial` has
    ]
    if draws:
        checks.append(require_matplotlib)
    missing = []
    for check in checks:
        try:
            check()
        except ImportError as error:
            missing.append(error)
    if missing:
        texts = dict.fromkeys(map(str, missing))
        raise ImportError(" ".join(texts)) from missing[0]
