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
maximum length. `truncated` (bool) reports that a row's text was cut at the
`max_length` of its `Text`, so that only its beginning was translated. `unknown`
(int32) counts the unknown tokens among those read. In `options` both report on
text and prefix together, and a prefix may also be cut at the row's
`max_length`. In `score` they report on text and target together. `empty` (bool)
reports that a row's source has no tokens, so that the model made up its text.

If a translator does not read text, the model's own source inputs, under their
names, replace `text`, and also `ids` and `lengths`. `S` is then the number of
positions that it attends to, source_tokens are these positions, and no source
is truncated or has unknown tokens.

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
| `encode` | text `[B]` | source_tokens `[B, S]`, source_length, error `[B]`, \
and all inputs of the first `step` |
| `step` | tokens `[B, K]`, widths `[B, W]`, state_0..., encoded_0... | \
log_probabilities `[B, K, V]`, alignments `[B, K, S]`, error `[B, K]`, \
state_0... |
| `strings` | ids `[B, L]`, lengths `[B]` | text, error `[B]` |

In `options` and `terms`, -1 stands for the search's own value, a seed below
zero for a new seed, and an empty prefix for none. The others have no seed: a
search that draws uses a new one for every request, in every process that
loads the export.

terms and avoid hold phrases, joined by line feeds: those that a text has, which
needs a `BeamSearch`, and those that it does not have. missing are the terms
that a text lacks all the same. With a `Glossary` the plain signatures have
this output too.

`words` is for translators that have `word_times`: when each word of the best
text is spoken, in seconds; the probability that nobody speaks; and the tokens
before the text, a prefix that tells a later request the same language and task.

`encode`, `step` and `strings` are for clients that run a search of their own.
`encode` returns the start token, as tokens `[B, 1]`, and the first state.
Each `step` takes the last tokens, the last state and the encoded tensors, and
returns the next state. Tokens that are never allowed have a log-probability
of minus infinity. The end token is 2. With several hypotheses per source, a
client reorders the rows of the state, `[B, K, ...]`, as it does the tokens.
If sources may have any length there are `widths`, which a client passes on
unchanged.

A server may join the requests of several clients, each at its own step, and
pad the narrower ones. Each request is answered as it would be alone. Only its
padding may be wider: that of hypotheses, of source positions and of the
state, which a client passes on unchanged. The client itself must see to two
things:

- `lengths` may not exceed the number of columns of its own ids.
- Features of any size need the input `lengths [B]` that
  `export(lengths=True)` adds, `[B, A]` for `A` open axes. The export sets
  features past a row's length to zero, and the model should mask these.

A row that cannot be answered does not affect the others. Its text is empty,
its score minus infinity and its lengths zero. `error` says why, and is "" for
the other rows. The causes are: an id, a length, an option or a prefix that is
out of range or unknown; a text or target that its `Text` refuses as too long;
ids or features past the largest length; a step past the maximum length, if the
model counts steps; and logits that are not finite. The whole request fails
only if its inputs differ in their number of rows, or if these are too many.

A few bytes can declare a tensor of gigabytes, so sizes are checked, and cut,
before anything is computed:

- A request has at most `max_rows` rows, and a `step` eight times as many
  hypotheses.
- A text has at most the `max_length` of its `Text`, and `ids` as many and
  their special tokens.
- Features have at most `max_source_length`, if the export was given that.
- The ids of `strings` may be as many as a target has, and what `encode`
  returned as wide as for the longest source.
"""

from keras_attn.export.exporting import export as export
from keras_attn.export.tf_saved_model.module import Module as Module
