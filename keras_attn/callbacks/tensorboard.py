"""Writes decoded text and heat maps for TensorBoard."""

import io
import os
import struct


class Writer:
    """Writes event files that TensorBoard shows under Text and Images.

    It needs TensorFlow, and not the package of TensorBoard, whose own writers
    do the same.

    Args:
        directory: Directory of a run.
    """

    def __init__(self, directory):
        self._directory = os.fspath(directory)
        self._writer = None

    def write(self, step, rows, figures):
        """Writes the texts and pictures of an epoch.

        Args:
            step: Number of the epoch.
            rows: List of `(source, text, reference)`, strings.
            figures: Dictionary of Matplotlib figures by their numbers.
        """
        import tensorflow as tf

        if self._writer is None:
            self._writer = tf.summary.create_file_writer(self._directory)
        summary = tf.compat.v1.Summary()
        _add_text(summary, "decoded", _table(rows))
        for number, figure in figures.items():
            _add_figure(summary, f"attention/{number}", figure)
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


def _add_figure(summary, tag, figure):
    file = io.BytesIO()
    figure.savefig(file, format="png")
    image = summary.value.add(tag=tag).image
    image.encoded_image_string = file.getvalue()
    # A PNG begins with its sizes, after 16 other bytes.
    image.width, image.height = struct.unpack(">II", file.getvalue()[16:24])
    image.colorspace = 4  # RGBA


def _table(rows):
    """Returns rows as a table in Markdown."""
    lines = [("source", "decoded", "reference"), ("---",) * 3]
    lines += [tuple(map(_cell, row)) for row in rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _cell(text):
    return text.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ")
