"""Parts that the example programs share.

`cmudict` and `numbers` have the data, `report` prints how well a model does,
`rows` keeps a table of results, `prepared` writes batches for machines without
TensorFlow, `serving` starts a server, and `command_line` reads the options.
Import this package before Keras: it starts TensorFlow
without its notes on the machine's hardware, which look like errors and are
none.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
if os.environ.get("KERAS_BACKEND", "tensorflow") == "tensorflow":
    from keras_attn_serving.quiet import start_tensorflow

    start_tensorflow()

from common import cmudict as cmudict
from common import command_line as command_line
from common import going_on as going_on
from common import numbers as numbers
from common import prepared as prepared
from common import report as report
from common import serving as serving
