"""Parts that the example programs share.

`cmudict` and `numbers` have the data, `report` prints how well a model does,
`rows` keeps a table of results, `serving` starts a server, and `command_line`
reads the options. Import this package before Keras: TensorFlow reads the
variable below when it starts.
"""

import os

# TensorFlow's notes on the machine's hardware look like errors and are none.
os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

from common import cmudict as cmudict
from common import command_line as command_line
from common import numbers as numbers
from common import report as report
from common import serving as serving
