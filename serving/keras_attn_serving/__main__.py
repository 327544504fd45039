"""Serves models during development: `python -m keras_attn_serving --help`."""

import sys

from keras_attn_serving.command.serve import main

if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:  # while loading
        sys.exit(130)
