"""Opens a user's own layers, so that the layers inside can be stepped."""

from keras_attn.models.adopted.opening.opening import (
    opened_model as opened_model,
)
from keras_attn.models.adopted.opening.tracing import own_layers as own_layers
