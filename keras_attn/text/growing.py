"""A text that grows by a token at a time."""

import codecs

_REPLACED = "\ufffd".encode()


class Growing:
    """Tells what each token adds to a text, so that what was told stays.

    Args:
        text: `Text` of the tokens.
        by_tokens: Whether tokens may be others than those of their ids. They
            are joined then, also where a part has ids of its own.
    """

    def __init__(self, text, by_tokens: bool):
        self._text = text
        self._by_tokens = by_tokens or text.splitter.tokens is None
        # Where a separator is all there is to joining, one token suffices.
        splitter = text.splitter
        self._separator = None
        if self._by_tokens and not splitter.writes("join"):
            self._separator = splitter.separator
        self._ids: list[int] = []
        self._tokens: list[str] = []
        self._told = b""
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def add(self, token_id: int, token: str, last: bool) -> str:
        """Returns what a token adds to the text.

        A character of which bytes are missing waits for the next tokens.

        Args:
            token_id: The token's id.
            token: How the token is written.
            last: Whether no other token comes.

        Raises:
            ValueError: If the text so far changes by it.
        """
        if self._separator is not None:
            before = self._separator if self._tokens else ""
            self._tokens.append(token)
            return before + token
        self._ids.append(token_id)
        self._tokens.append(token)
        return self._rest(last)

    def end(self) -> str:
        """Returns what waited for more tokens when the end token came."""
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
            # A part may write this where bytes of a character are missing.
            while whole.endswith(_REPLACED):
                whole = whole.removesuffix(_REPLACED)
        if not whole.startswith(self._told):
            raise ValueError(
                "A stream tells what each token adds to the text, so joining "
                "may not change what came before. Received: "
                f"{self._told.decode('utf-8', 'replace')!r:.200}, and with "
                f"the token {self._tokens[-1]!r} "
                f"{whole.decode('utf-8', 'replace')!r:.200}. Call the "
                "translator, which joins whole texts."
            )
        new, self._told = whole[len(self._told) :], whole
        return self._decoder.decode(new, final=last)
