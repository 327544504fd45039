"""A client of an ONNX export that knows its files and nothing else.

    python onnx_client.py DIRECTORY < lines.json > texts.json

It follows `README.txt` for texts that are split into characters or at white
space. Neither TensorFlow nor keras_attn is imported.
"""

import json
import pathlib
import sys
import unicodedata

import numpy as np
import onnxruntime


def main(directory):
    session = onnxruntime.InferenceSession(directory / "model.onnx")
    source, target = (
        json.loads((directory / f"{name}.json").read_text(encoding="utf-8"))
        for name in ("source", "target")
    )
    rows = [ids_of(source, line) for line in json.load(sys.stdin)]
    lengths = np.array([len(row) for row in rows], "int32")
    ids = np.full((len(rows), lengths.max()), source["special"]["pad"], "int32")
    for row, given in zip(ids, rows, strict=True):
        row[: len(given)] = given
    found = session.run(None, {"ids": ids, "lengths": lengths})
    json.dump([text_of(target, row[0]) for row in found[0]], sys.stdout)
    assert not {"tensorflow", "keras", "keras_attn"} & {*sys.modules}


def ids_of(text, line):
    special = text["special"]
    known = {token: i for i, token in enumerate(text["tokens"])}
    for i in (special["pad"], *special["start"], special["end"]):
        del known[text["tokens"][i]]
    if text["normalization"]:
        line = unicodedata.normalize(text["normalization"], line)
    if text["lowercase"]:
        line = line.lower()
    pieces = line.split() if text["split"] == "whitespace" else line
    ids = [known.get(piece, special["unknown"]) for piece in pieces]
    return [
        *special["source_start"],
        *ids[: text["max_length"]],
        *special["source_end"],
    ]


def text_of(text, ids):
    special = text["special"]
    silent = {special["pad"], special["end"], *special["start"]}
    tokens = [text["tokens"][i] for i in ids if i not in silent]
    return text["join"].join(tokens)


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
