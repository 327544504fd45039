"""Writes a `Translator` as a SavedModel that TF Serving hosts.

| signature | inputs | outputs |
|---|---|---|
| `serving_default` | text `[B]` | text, score, empty `[B]` |
| `nbest` | text `[B]` | texts, scores, finished `[B, N]`, empty `[B]` |
| `align` | text `[B]` | text, score `[B]`, source_tokens `[B, S]`, \
source_length `[B]`, tokens `[B, T]`, length `[B]`, alignments `[B, T, S]`, \
finished, truncated, unknown, empty `[B]` |
| `ids` | ids `[B, S]`, lengths `[B]` | ids `[B, N, T]`, \
lengths, scores `[B, N]`, empty, error `[B]` |

`T` is the search's maximum length, `S` the batch's longest source; both count
the end token. In `nbest` a missing hypothesis is an empty text with a score
of minus infinity. Every output is batch first, as server-side batching
requires.

`finished` (bool) is false for a hypothesis that was cut at the search's
maximum length. `truncated` (bool) is true if a row's text was cut at the
`max_length` of its `Text`; only its beginning was translated. `unknown` (int32)
counts the unknown tokens among those read. In `options` both cover text and
prefix, and a prefix may also be cut at the row's `max_length`. In `score` both
cover text and target. `empty` (bool) is true if a row's source has no tokens;
the model still writes a text for it, which means nothing.

If a translator does not read text, the model's own source inputs, under their
names, replace `text`, and also `ids` and `lengths`. `S` is then the number of
positions that the model attends to, and source_tokens are the numbers of these
positions. Features have no unknown tokens. `truncated` is true only if the
model itself cut them, as Whisper cuts long sound.

Further signatures, chosen by `signatures=`:

| signature | inputs | outputs |
|---|---|---|
| `options` | text, prefix `[B]`, seed `[B]` if the search draws, and one \
`[B]` for each of the search's `request_options` | text, score `[B]`, texts, \
scores, finished `[B, N]`, truncated, unknown, empty, error `[B]` |
| `terms` | those of `options`, and terms, avoid `[B]` | those of `options`, \
those of `align`, and missing `[B]` |
| `score` | text, target `[B]` | score `[B]`, token_scores `[B, L]`, \
length, truncated, unknown, empty, error `[B]` |
| `words` | sound `[B, samples]`, prefix `[B]` | text, score `[B]`, words, \
starts, ends, probabilities `[B, T]`, word_count, no_speech, prompt, \
finished, truncated, empty, error `[B]` |
| `encode` | text `[B]` | source_tokens `[B, S]`, source_length, end, error \
`[B]`, and all inputs of the first `step` |
| `step` | tokens `[B, K]`, widths `[B, W]`, state_0..., encoded_0... | \
log_probabilities `[B, K, V]`, alignments `[B, K, S]`, error `[B, K]`, \
state_0... |
| `strings` | ids `[B, L]`, lengths `[B]` | text, error `[B]` |

In `options` and `terms`, -1 selects the search's own value, a seed below zero
a new seed, and an empty prefix none. The other signatures have no seed: a
search that draws uses a new one for every request, in every process that
loads the export.

terms and avoid hold phrases, joined by line feeds: those that a text must
contain (this needs a `BeamSearch`) and those that it must not contain. missing
lists the terms that a text nevertheless lacks. With a `Glossary` the plain
signatures and `options` have this output too.

`words` is for translators that have `word_times`. It returns the times, in
seconds, at which each word of the best text is spoken; the probability that
nobody speaks; and, as prompt, the tokens before the text. As a prefix of a
later request, these select the same language and task.

`encode`, `step` and `strings` are for clients that run their own search.
`encode` returns the start token, as tokens `[B, 1]`, the first state, and as
end the id of the end token. Older exports do not return it; it is the `end` of
the target's `SpecialTokens`, 2 by default. Each `step` takes the last tokens,
the last state and the encoded tensors, and returns the next state. Tokens that
are never allowed have a log-probability of minus infinity. With several
hypotheses per source, a client reorders the state, `[B, K, ...]`, along the
axis `K` as it does the tokens.
If sources may have any length there are `widths`, which a client passes on
unchanged.

A server may join the requests of several clients, each at its own step, and
pad the narrower ones. Each request is answered as it would be alone. Only its
padding may be wider: that of hypotheses, of source positions and of the
state, which a client passes on unchanged. The client is responsible for two
things:

- `lengths` must not exceed the number of columns of its own ids.
- Features of any size need the input `lengths [B]` that
  `export(lengths=True)` adds; it is `[B, A]` for `A > 1` axes of any size. The
  export sets features past a row's length to zero, and the model should mask
  these.

A row that cannot be answered does not affect the others. Its text is empty,
its score minus infinity and its lengths zero. `error` gives the reason, and is
"" for the other rows. The causes are: an id, a length, an option or a prefix
that is out of range or unknown; phrases that are unknown, too long or too many;
a text or target that its `Text` refuses as too long; ids or features past the
largest length; a step past the maximum length, if the model counts steps; and
logits that are not finite. The whole request fails only if its inputs differ
in their number of rows, or if it has too many rows.

A few bytes can declare a tensor of gigabytes, so sizes are checked, and cut,
before anything is computed:

- A request has at most `max_rows` rows, and a `step` at most eight times as
  many hypotheses.
- A text has at most as many tokens as the `max_length` of its `Text`; `ids`
  may also have the special tokens.
- Features have at most the size `max_source_length`, if the export set one.
- `strings` takes at most as many ids as a target may have. `step` takes encoded
  tensors at most as wide as those of the longest source.
"""

from keras_attn.export.exporting import export as export
from keras_attn.export.tf_saved_model.module import Module as Module
