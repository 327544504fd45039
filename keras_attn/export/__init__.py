"""Writes a `Translator` as a SavedModel that TF Serving hosts.

| signature | inputs | outputs |
|---|---|---|
| `serving_default` | text `[B]` | text `[B]`, score `[B]` |
| `nbest` | text `[B]` | texts `[B, N]`, scores `[B, N]` |
| `align` | text `[B]` | text, score `[B]`, source_tokens `[B, S]`, \
source_length `[B]`, tokens `[B, T]`, length `[B]`, alignments `[B, T, S]`, \
truncated `[B]`, unknown `[B]` |
| `ids` | ids `[B, S]`, lengths `[B]` | ids `[B, N, T]`, \
lengths `[B, N]`, scores `[B, N]` |

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
| `options` | text, prefix `[B]`, seed `[B]` if the search samples, and one \
`[B]` for each of the search's `request_options` | text, score `[B]`, texts, \
scores `[B, N]`, truncated, unknown `[B]` |
| `score` | text, target `[B]` | score `[B]`, token_scores `[B, L]`, \
length `[B]`, truncated `[B]`, unknown `[B]` |
| `encode` | text `[B]` | source_tokens `[B, S]`, source_length `[B]`, and \
all that `step` takes at first |
| `step` | tokens `[B, K]`, state_0..., encoded_0... | \
log_probabilities `[B, K, V]`, alignments `[B, K, S]`, state_0... |
| `strings` | ids `[B, L]` | text `[B]` |

In `options`, a number below zero stands for the search's own, a seed below
zero for a fresh one, and an empty prefix for none. What a prefix has that the
vocabulary lacks is `<unk>`. Without a seed a search that samples draws anew
for every request, in every process that loads the export.

`encode`, `step` and `strings` are for clients that search
themselves: `encode` gives the start token, as tokens `[B, 1]`, and a state
for it; each `step` takes the last tokens and state with what was encoded, and
gives the next state. What may never come has a log-probability of minus
infinity; the end token is 2. With more than one hypothesis a source a client
arranges the rows of the state, `[B, K, ...]`, as it does the tokens. All rows
of a `step` are at the same position: servers must not batch steps of others.
"""

from keras_attn.export.base import export as export
