"""Writes a `Translator` for ONNX Runtime, which needs no TensorFlow.

A version is a directory:

| file | content |
|---|---|
| `model.onnx` | the signature `ids`: weights, encoder, steps and search |
| `source.json`, `target.json` | the vocabularies, and how text is split |
| `README.txt` | inputs, outputs, an example, the versions that wrote it |

ONNX has no operations that split text as a `Text` does, so the client turns
text into ids and ids into text. `source.json` has `input` (the name of the
model's input), `tokens` in the order of their ids, `special` (the ids of
special tokens), `split`, `join`, `lowercase`, `normalization`, `max_length` and
`too_long`; `target.json` has the same but no `input`. Several source texts are
in `source-1.json`, `source-2.json` and so on. Files that a splitter needs, such
as SentencePiece's model, are in the same directory.

| inputs | outputs |
|---|---|
| ids `[B, S]`, lengths `[B]` | target_ids `[B, N, T]`, target_lengths \
`[B, N]`, scores `[B, N]`, error `[B]` |

The signature is that of a SavedModel's `ids`, without the output `empty`. Two
tensors of an ONNX model may not share a name, so the outputs `ids` and
`lengths` are called `target_ids` and `target_lengths`. `B` and `S` may be any
numbers. Models that read features, or several sources, have their own inputs in
place of `ids` and `lengths`; texts among these are padded ids. A search that
draws has a further input `seed [B]`, and draws the same as TensorFlow does with
that seed. A row's `error` says which rule its ids or its length break, but not
which value breaks it.

A batch is decoded until its last row is done: finished rows are not removed,
and the batch is not split into buckets. So a client should send texts of
similar length together.

tf2onnx converts the graph, then ONNX Runtime decodes a few sources with it. A
translator is refused if it has an operation that ONNX lacks, or if the results
differ from TensorFlow's.
"""

from keras_attn.export.onnx.onnx_export import Onnx as Onnx
