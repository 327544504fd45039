"""Writes decoded text and heat maps for TensorBoard."""

import io
import os
import re
import struct
import textwrap

# TensorBoard shows pictures about 350 pixels wide, and larger on a click.
_DPI = 100
_NAME = 60  # maximum number of characters of a source above its picture
_MARKDOWN = re.compile(r"([\\`*_{}\[\]()#+.!|-])")


class Writer:
    """Writes event files that TensorBoard shows under Text and Images.

    It needs TensorFlow, but not the package `tensorboard`.

    Args:
        directory: Path of the directory of a run.
    """

    def __init__(self, directory):
        self._directory = os.fspath(directory)
        self._writer = None

    def write(self, step, rows, figures):
        """Writes the texts and pictures of an epoch.

        Args:
            step: Number of the epoch.
            rows: List of `(source, text, reference)`, strings.
            figures: Dictionary from numbers of rows, from 1, to Matplotlib
                figures.
        """
        import tensorflow as tf

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._directory)
        summary = tf.compat.v1.Summary()
        _add_text(summary, "decoded", _table(rows))
        for number, figure in figures.items():
            source, *_ = rows[number - 1]
            name = f"{number}. {textwrap.shorten(source, _NAME)}"
            _add_figure(summary, f"attention/{number}", name, figure)
        with self._writer.as_default():
            tf.summary.experimental.write_raw_pb(
                summary.SerializeToString(), step=step
            )
        self._writer.flush()


def _add_text(summary, tag, markdown):
    import tensorflow as tf

    value = summary.value.add(tag=tag)
    value.metadata.plugin_data.plugin_name = "text"
    value.tensor.CopyFrom(tf.make_tensor_proto([markdown.encode()]))


def _add_figure(summary, tag, name, figure):
    file = io.BytesIO()
    figure.savefig(file, format="png", dpi=_DPI)
    value = summary.value.add(tag=tag)
    value.metadata.display_name = name
    image = value.image
    image.encoded_image_string = file.getvalue()
    # A PNG has its width and height after the first 16 bytes.
    image.width, image.height = struct.unpack(">II", file.getvalue()[16:24])
    image.colorspace = 4  # RGBA


def _table(rows):
    """Returns rows as a table in Markdown."""
    lines = [("source", "decoded", "reference"), ("---",) * 3]
    lines += [tuple(map(_cell, row)) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(text):
    """Escapes a text, so Markdown shows it verbatim."""
    text = " ".join(text.replace("&", "&amp;").splitlines())
    return _MARKDOWN.sub(r"\\\1", text)
