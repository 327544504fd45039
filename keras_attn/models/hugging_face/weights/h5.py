"""`H5Weights`: a file that the TensorFlow classes of transformers 4 wrote."""

import pathlib

import h5py
import numpy as np

# PyTorch's names by those of TensorFlow
_ENDS = {
    "kernel": "weight",
    "gamma": "weight",
    "beta": "bias",
    "embeddings": "weight",
}


class H5Weights:
    """The weights in a `tf_model.h5`, named and transposed as in PyTorch.

    Args:
        path: The file.

    Raises:
        ValueError: If the file is not of this format.
    """

    def __init__(self, path: pathlib.Path):
        try:
            self._file = h5py.File(path, "r")
        except OSError as error:
            raise ValueError(
                f"`{path.name}` must be a file of HDF5. Received: {path}, "
                f"which is not, or is cut off: {error}. If it is small, it "
                "may be a pointer of Git LFS: get it again."
            ) from error
        self._places: dict[str, str] = {}
        self._file.visititems(self._note)

    def _note(self, place, item):
        if not isinstance(item, h5py.Dataset):
            return
        name = _name(place)
        if name in self._places:
            raise ValueError(
                "Each weight in a file of HDF5 must have a name of its own. "
                f"Received: '{self._places[name]}' and '{place}', both of "
                f"which are '{name}' in PyTorch."
            )
        self._places[name] = place

    def names(self) -> list[str]:
        """Returns the names of the weights, as PyTorch has them."""
        return list(self._places)

    def dtype(self, name: str) -> str:
        """Returns the name of a weight's dtype."""
        return str(self._file[self._places[name]].dtype)

    def shape(self, name: str) -> tuple:
        """Returns the shape of a weight."""
        place = self._places[name]
        found = self._file[place].shape
        return found[::-1] if _end(place) == "kernel" else found

    def read(self, name: str, first=0, last=None) -> np.ndarray:
        """Returns a weight, or some of its rows."""
        place = self._places[name]
        found = self._file[place]
        if _end(place) == "kernel":
            return found[()].T[first:last]
        return found[()] if last is None else found[first:last]


def _end(place):
    return place.rpartition("/")[2].partition(":")[0]


def _name(place):
    """Returns PyTorch's name of the weight at a place in the file.

    `model/tf_bart/model/encoder/layers.0/fc1/kernel:0` is
    `encoder.layers.0.fc1.weight`. T5 writes `block_._0` for `block.0`.
    """
    *parents, _ = place.replace("_._", ".").split("/")
    end = _ENDS.get(_end(place), _end(place))
    return ".".join([*_from_stack(parents), end])


def _from_stack(parents):
    """Leaves out the names of the models around encoder and decoder."""
    stacks = "encoder", "decoder"
    places = [i for i, x in enumerate(parents) if x in stacks]
    if places:
        side, *rest = parents[places[-1] :]
        # T5 saves the embedding at each place where it is used.
        return [side, "embed_tokens"] if "shared" in rest else [side, *rest]
    last = [x.rpartition(".")[2] for x in parents[-1:]]
    return [x for x in last if x != "final_logits_bias"]
