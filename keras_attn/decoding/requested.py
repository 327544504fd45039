"""The options of a search that a request may set, row by row."""

from collections.abc import Mapping

import numpy as np
import tensorflow as tf

from keras_attn import arguments

OWN = -1  # in a request's tensors: use the search's own value


class RequestOptions(Mapping):
    """Maps option names to dtypes, and checks the options of requests.

    Args:
        search: The search.
        options: `Option`s by their names.
    """

    def __init__(self, search, options):
        self._search = search
        self._options = {
            name: option
            for name, option in options.items()
            if option.may_come_with_request(search)
        }

    def __getitem__(self, name):
        return self._options[name].dtype

    def __iter__(self):
        return iter(self._options)

    def __len__(self):
        return len(self._options)

    def __repr__(self):
        return repr(dict(self))

    def in_exports(self, name):
        """Returns the name of an option's input in exported signatures."""
        return self._options[name].former_name or name

    def specs(self, names):
        """Returns the `TensorSpec`s `(batch,)` of these options, by name."""
        return {name: tf.TensorSpec([None], self[name]) for name in names}

    def range_of(self, name):
        """Returns the `Range` of an option in a request."""
        return self._options[name].range_of_request(name, self._search)

    def require_known(self, options):
        """Raises `ValueError` for options that a request cannot set."""
        self.refuse_former_names(options)
        unknown = sorted(set(options) - set(self))
        if unknown:
            raise ValueError(
                f"A request to {self._search} may set these options: "
                f"{sorted(self)}. Received: {unknown}. Set other options in "
                "the search itself."
            )

    def refuse_former_names(self, options):
        """Raises `ValueError` for an option under its former name."""
        former = {x.former_name: name for name, x in self._options.items()}
        former.pop(None, None)
        arguments.refuse_old_names(options, **former)

    def require_in_range(self, options):
        """Raises `ValueError` for the first value out of range.

        Args:
            options: Dictionary of numpy arrays `(batch,)`.
        """
        for name, values in options.items():
            allowed = self.range_of(name)
            fine = np.array(allowed.holds(values))
            if not fine.all():
                row = int(fine.argmin())
                raise ValueError(
                    f"`{name}` must be {allowed} for each source. Received: "
                    f"{name}={values[row]} for source {row}. Leave it out for "
                    f"the search's own, {self._own(name)}."
                )

    def checked(self, options):
        """Returns options as tensors that check their range when they run."""
        self.require_known(options)
        return {
            name: self._checked(name, value) for name, value in options.items()
        }

    def _checked(self, name, value):
        value = tf.convert_to_tensor(value, self[name])
        allowed = self.range_of(name)
        check = tf.debugging.Assert(
            tf.reduce_all(allowed.holds(value)),
            [
                f"`{name}` must be {allowed} in every row. Received: {name}=",
                value,
            ],
            summarize=16,
        )
        with tf.control_dependencies([check] if check is not None else []):
            return tf.identity(value)

    def errors(self, options):
        """Returns the errors in the options of each row.

        Args:
            options: Dictionary of tensors `(batch,)`, in which `OWN` stands
                for the search's own value.

        Returns:
            List of string tensors `(batch,)`, one for each option; "" for a
            row without an error.
        """
        errors = []
        for name, value in options.items():
            own = self._own(name)
            allowed, name = self.range_of(name), self.in_exports(name)
            received = [
                f"`{name}` must be {allowed}. Received: {name}=",
                # The fewest digits that identify the number, not always six.
                tf.strings.as_string(value, shortest=value.dtype.is_floating),
                f". {OWN} stands for the search's own, {own}.",
            ]
            fine = (value == OWN) | allowed.holds(value)
            errors.append(tf.where(fine, "", tf.strings.join(received)))
        return errors

    def own(self, rows):
        """Returns the search's own values, tensors `(rows,)` by name."""
        return {
            name: tf.fill([rows], tf.cast(self._own(name), dtype))
            for name, dtype in self.items()
        }

    def with_own(self, options, bad):
        """Returns options with the search's own values filled in.

        Args:
            options: Dictionary of tensors `(batch,)`.
            bad: Whether a row is invalid, `(batch,)`. Invalid rows and values
                of `OWN` get the search's own value.
        """
        return self.checked(
            {
                name: tf.where(
                    (value == OWN) | bad,
                    tf.cast(self._own(name), value.dtype),
                    value,
                )
                for name, value in options.items()
            }
        )

    def _own(self, name):
        return getattr(self._search, name)
