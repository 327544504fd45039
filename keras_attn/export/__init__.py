"""Writes a `Translator` as a SavedModel that TF Serving hosts.

| signature | inputs | outputs |
|---|---|---|
| `serving_default` | text `[B]` | text `[B]`, score `[B]` |
| `nbest` | text `[B]` | texts `[B, N]`, scores `[B, N]` |
| `align` | text `[B]` | text, score `[B]`, source_tokens `[B, S]`, \
source_length `[B]`, tokens `[B, T]`, length `[B]`, alignments `[B, T, S]`, \
truncated `[B]`, unknown `[B]` |
| `ids` | ids `[B, S]`, lengths `[B]` | ids `[B, N, T]`, \
lengths `[B, N]`, scores `[B, N]`, error `[B]` |

`T` is the search's maximum length, `S` the batch's longest source, both with
their end token. In `nbest` a hypothesis that does not exist is an empty text
with a score of minus infinity. Every output is batch first, as server-side
batching demands.

`truncated` (bool) tells that a row's text was cut at the `max_length` of its
`Text`, so that the answer is to its beginning alone; `unknown` (int32) how many
of its tokens, of those read, were unknown. In `options` they tell of text and
prefix together, where a prefix may also be cut at the row's `max_length`, and
in `score` of text and target.

Where a translator reads no text, the model's own source inputs stand in the
place of `text`, and of `ids` and `lengths`, under their names. `S` is then
the length of what it attends to, source_tokens are its positions, and nothing
of the source is truncated or unknown.

Further signatures, for which `signatures=` asks:

| signature | inputs | outputs |
|---|---|---|
| `options` | text, prefix `[B]`, seed `[B]` if the search draws, and one \
`[B]` for each of the search's `request_options` | text, score `[B]`, texts, \
scores `[B, N]`, truncated, unknown, error `[B]` |
| `score` | text, target `[B]` | score `[B]`, token_scores `[B, L]`, \
length, truncated, unknown, error `[B]` |
| `encode` | text `[B]` | source_tokens `[B, S]`, source_length, error `[B]`, \
and all that `step` takes at first |
| `step` | tokens `[B, K]`, widths `[B, W]`, state_0..., encoded_0... | \
log_probabilities `[B, K, V]`, alignments `[B, K, S]`, error `[B, K]`, \
state_0... |
| `strings` | ids `[B, L]`, lengths `[B]` | text, error `[B]` |

In `options`, -1 stands for the search's own, a seed below zero for a fresh
one, and an empty prefix for none. Without a seed a search that draws does so
anew for every request, in every process that loads the export.

`encode`, `step` and `strings` are for clients that search
themselves: `encode` gives the start token, as tokens `[B, 1]`, and a state
for it; each `step` takes the last tokens and state with what was encoded, and
gives the next state. What may never come has a log-probability of minus
infinity; the end token is 2. With more than one hypothesis a source a client
arranges the rows of the state, `[B, K, ...]`, as it does the tokens. Where a
source may have any length there are `widths`, which a client passes on as
they are.

A server may join the requests of several clients, whatever step each is at,
and pad the narrower ones. Each is answered as it would be alone; only the
padding may be wider, of hypotheses, of source positions and in the state,
which goes into the next step as it is. Two things remain for the client:

- `lengths` may not be more than the columns of its own ids.
- Features of any size need the input `lengths [B]` that
  `export(lengths=True)` adds, `[B, A]` for `A` open axes. Past its length a
  row is zero, which the model should mask.

A row that cannot be answered fails alone. Its text is empty, its score minus
infinity and its lengths zero. `error` says why, and is "" where all is well.
That happens with an id, a length, an option or a prefix that is out of range
or unknown; with a text or target that its `Text` refuses as too long; with a
step past the maximum length, where the model counts them; and with logits
that are not finite. The whole request fails only where its inputs differ in
their number of rows.
"""

from keras_attn.export.base import export as export
