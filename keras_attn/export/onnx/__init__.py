"""Writes a `Translator` for ONNX Runtime, which needs no TensorFlow.

A version is a directory:

| file | content |
|---|---|
| `model.onnx` | the signature `ids`: weights, encoder, steps and search |
| `source.json`, `target.json` | the vocabularies, and how text is split |
| `README.txt` | inputs, outputs, an example, the versions that wrote it |

ONNX has no operations that split text as a `Text` does, so the client turns
text into ids and ids into text. `source.json` has `tokens` in the order of
their ids, `special` (the ids of padding, start, end and unknown), `split`,
`join`, `lowercase`, `normalization` and `max_length`. Several source texts are
`source-1.json`, `source-2.json`, each with the name of its `input`. Files that
a splitter needs, such as SentencePiece's model, are in the same directory.

| inputs | outputs |
|---|---|
| ids `[B, S]`, lengths `[B]` | target_ids `[B, N, T]`, target_lengths \
`[B, N]`, scores `[B, N]`, error `[B]` |

They are those of a SavedModel's `ids`, but two tensors of an ONNX model may not
share a name, so the outputs `ids` and `lengths` have other names. `B` and `S`
are any numbers. Models that read features, or several sources, have their own
inputs in place of `ids` and `lengths`; texts among these are ids, padded. A
search that draws has a further input `seed [B]`, and draws the same as
TensorFlow does with that seed. A row's `error` says which rule its ids or its
length break, but not which value breaks it.

A batch is decoded until its last row is done: finished rows are not removed,
and it is not split into buckets. So a client should send texts of similar
length together.

The graph is converted by tf2onnx, and then run by ONNX Runtime on a few
sources. A translator with an operation that ONNX lacks, or with other results
there, is refused.
"""

from keras_attn.export.onnx.onnx_export import Onnx as Onnx
