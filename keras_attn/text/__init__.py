"""Turns strings into ids and back, inside the graph.

Every operation is TensorFlow's or tensorflow-text's, so that a SavedModel can
take and return strings. Any bytes give a defined result for their row and
leave the other rows alone:

1. Invalid UTF-8 and NUL become U+FFFD; line breaks and tabs become spaces.
2. Unicode normalization, NFC by default; then lower case, if configured.
3. A `Splitter` splits the text: into characters, into words at Unicode white
   space, into subwords or bytes, or in a way of your own.
4. The vocabulary maps tokens to ids. A token that it lacks, or that is
   spelled like a special token, is unknown. A `Splitter` with its own ids
   does this step itself.
5. Rows longer than `max_length` tokens are cut, which is reported, or
   refused, as configured. Then the end token is added, so that even an empty
   string has one token.
"""
