"""`IncrementalDetokenizer`: a text that grows by one token at a time."""

import codecs

_REPLACED = "\ufffd".encode()


class IncrementalDetokenizer:
    """Returns the text that each token adds, and never revises it.

    Args:
        text: `Text` of the tokens.
        by_tokens: Whether a token's spelling may differ from that of its id,
            as a copied word does. Then the spellings are joined, even if the
            splitter has its own ids.
    """

    def __init__(self, text, by_tokens: bool):
        self._text = text
        self._by_tokens = by_tokens or text.splitter.tokens is None
        # If joining only puts a separator between tokens, a token's addition
        # does not depend on the earlier ones.
        splitter = text.splitter
        self._separator = None
        if self._by_tokens and not splitter.writes("join"):
            self._separator = splitter.separator
        self._ids: list[int] = []
        self._tokens: list[str] = []
        self._told = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int, token: str, last: bool) -> str:
        """Returns the text that a token adds.

        An incomplete character is held back until its remaining bytes follow.

        Args:
            token_id: The token's id.
            token: The token's spelling.
            last: Whether this is the last token.

        Raises:
            ValueError: If the token changes the text so far.
        """
        if self._separator is not None:
            before = self._separator if self._tokens else ""
            self._tokens.append(token)
            return before + token
        self._ids.append(token_id)
        self._tokens.append(token)
        return self._rest(last)

    def end(self) -> str:
        """Returns the text still held back, when the end token arrives."""
        return "" if self._separator is not None else self._rest(last=True)

    def _rest(self, last):
        if not self._ids:
            return ""
        if self._by_tokens:
            found = self._text.join([self._tokens], [self._ids])
        else:
            found = self._text.strings([self._ids])
        (whole,) = found.numpy()
        if not last:
            # A splitter may return U+FFFD for an incomplete character.
            while whole.endswith(_REPLACED):
                whole = whole.removesuffix(_REPLACED)
        if not whole.startswith(self._told):
            raise ValueError(
                "A stream yields the text that each token adds, so a token "
                "may not change the text before it. Received: "
                f"{self._told.decode('utf-8', 'replace')!r:.200}, which the "
                f"token {self._tokens[-1]!r} changed to "
                f"{whole.decode('utf-8', 'replace')!r:.200}. Call the "
                "translator instead of its `stream`: it joins whole texts."
            )
        new, self._told = whole[len(self._told) :], whole
        return self._decoder.decode(new, final=last)
