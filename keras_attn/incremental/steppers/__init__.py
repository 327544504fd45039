"""The steppers of Keras's layers, of KerasHub's and of ours."""

from keras_attn.incremental.steppers import attention as attention
from keras_attn.incremental.steppers import convolution as convolution
from keras_attn.incremental.steppers import decoder as decoder
from keras_attn.incremental.steppers import edrec as edrec
from keras_attn.incremental.steppers import hub_decoder as hub_decoder
from keras_attn.incremental.steppers import keras_attention as keras_attention
from keras_attn.incremental.steppers import marginal as marginal
from keras_attn.incremental.steppers import moonshine as moonshine
from keras_attn.incremental.steppers import nested as nested
from keras_attn.incremental.steppers import position_wise as position_wise
from keras_attn.incremental.steppers import positions as positions
from keras_attn.incremental.steppers import recurrent as recurrent
from keras_attn.incremental.steppers import t5 as t5
from keras_attn.incremental.steppers import t5gemma as t5gemma
from keras_attn.incremental.steppers import t5gemma2 as t5gemma2
