"""Turns strings into ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel can
take and return strings. Any bytes give a defined result for their row and
leave the other rows alone:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode normalisation, NFC by default; then lower case, if configured.
3. A `Splitter` splits the text: into characters, into words at Unicode white
   space, into subwords or bytes, or in a way of your own.
4. The vocabulary maps tokens to ids. A token that it lacks, or that is
   spelled like a special token, is unknown. A `Splitter` with its own ids
   does this step itself.
5. Rows longer than `max_length` tokens are cut, which is reported, or
   refused, as configured. Then the end token is added, so that even an empty
   string has one token.
"""

from keras_attn.special_tokens import END as END
from keras_attn.special_tokens import PAD as PAD
from keras_attn.special_tokens import SPECIAL_TOKENS as SPECIAL_TOKENS
from keras_attn.special_tokens import START as START
from keras_attn.special_tokens import UNKNOWN as UNKNOWN
from keras_attn.text.base import Text as Text
from keras_attn.text.built_in import Characters as Characters
from keras_attn.text.built_in import Whitespace as Whitespace
from keras_attn.text.byte_pair import BytePair as BytePair
from keras_attn.text.files import beside as beside
from keras_attn.text.files import files_of_sources as files_of_sources
from keras_attn.text.growing import Growing as Growing
from keras_attn.text.ids import Ids as Ids
from keras_attn.text.lines import encode_lines as encode_lines
from keras_attn.text.splitter import Splitter as Splitter
from keras_attn.text.subwords import Bytes as Bytes
from keras_attn.text.subwords import SentencePiece as SentencePiece
from keras_attn.text.subwords import WordPiece as WordPiece
