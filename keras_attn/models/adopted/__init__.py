"""Brings trained models of any form into the form that is cut into steps."""

from keras_attn.models.adopted.standard import Options as Options
from keras_attn.models.adopted.standard import Standard as Standard
from keras_attn.models.adopted.standard import standard_model as standard_model
from keras_attn.models.adopted.standard import with_logarithm as with_logarithm
