"""Strings to ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel
takes and gives strings. Whatever bytes come in, each row gets a defined
result and does no harm to the others:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode normalisation, NFC unless something else is asked for; then lower
   case if asked for.
3. Split by a `Splitter`: into characters, into words at Unicode white space,
   or by one of your own.
4. Look up; what the vocabulary lacks, and any word that looks like a special
   token, is unknown. A `Splitter` with ids of its own does this itself.
5. Cut to `max_length` tokens, which is told, or refused, as configured; the
   end token is added. So every row has at least one token, an empty string
   too.
"""

from keras_attn.special_tokens import END as END
from keras_attn.special_tokens import PAD as PAD
from keras_attn.special_tokens import SPECIAL_TOKENS as SPECIAL_TOKENS
from keras_attn.special_tokens import START as START
from keras_attn.special_tokens import UNKNOWN as UNKNOWN
from keras_attn.text.base import Text as Text
from keras_attn.text.built_in import Characters as Characters
from keras_attn.text.built_in import Whitespace as Whitespace
from keras_attn.text.growing import Growing as Growing
from keras_attn.text.lines import encode_lines as encode_lines
from keras_attn.text.splitter import Splitter as Splitter
