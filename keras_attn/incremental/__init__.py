"""Cuts a trained functional model into `encode()` and `step()`."""

from keras_attn.incremental import steppers as steppers  # registers them
from keras_attn.incremental.ensemble import Ensemble as Ensemble
from keras_attn.incremental.incremental import Encoded as Encoded
from keras_attn.incremental.incremental import Incremental as Incremental
from keras_attn.incremental.per_row import steps_left as steps_left
from keras_attn.incremental.per_row import with_masks as with_masks
from keras_attn.incremental.per_row import with_positions as with_positions
from keras_attn.incremental.registry import stepper_for as stepper_for
from keras_attn.incremental.stepper import Stepper as Stepper
