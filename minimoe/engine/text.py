"""`TextOutput`: the text of one request as it grows, with stop strings cut off."""

from minimoe.tokenizer import Tokenizer


class TextOutput:
    """Feed it tokens; it knows the complete text so far and how much of it is safe to show."""

    def __init__(self, tokenizer: Tokenizer, stops: list[str]):
        self._stream, self._known = tokenizer.stream(), tokenizer.vocab_size
        self.stops = stops
        self.text = ""
        self.stopped = False
        self._shown = 0

    def push(self, token: int) -> bool:
        """Add a token; True when a stop string is now complete, and the text ends before it."""
        if token >= self._known:  # a model may have more rows than its tokenizer has tokens
            return False
        return self._add(self._stream.push([token]))

    def finish(self) -> None:
        """No more tokens: an unfinished character becomes U+FFFD."""
        if not self.stopped:
            self._add(self._stream.flush())

    def _add(self, new: str) -> bool:
        searched = len(self.text)
        self.text += new
        ends = []
        for stop in self.stops:
            # A stop string may have begun in the text of earlier tokens.
            at = self.text.find(stop, max(0, searched - len(stop) + 1))
            if at >= 0:
                ends.append((at + len(stop), at))
        if ends:  # the one that is complete first counts, as if text came letter by letter
            self.text, self.stopped = self.text[: min(ends)[1]], True
        return self.stopped

    def take(self, final: bool = False) -> str:
        """Text not shown yet. What may be the start of a stop string is held back until `final`."""
        end = len(self.text) if final or self.stopped else len(self.text) - self._held_back()
        piece = self.text[self._shown : end]
        self._shown = max(self._shown, end)
        return piece

    def _held_back(self) -> int:
        longest = max((len(stop) - 1 for stop in self.stops), default=0)
        for size in range(min(longest, len(self.text)), 0, -1):
            if any(stop.startswith(self.text[-size:]) for stop in self.stops):
                return size
        return 0
