"""Prompt look-up: what followed the last time the text read like this?

No model and no training: find the latest earlier place where the last n tokens stood, the longest n
first, and guess what came after it. Text that repeats itself (code, quotations, tables) is guessed
well, new text not at all. Source: prompt lookup decoding (Saxena, 2023), as in vLLM's "ngram".
"""

import torch

from minimoe.speculative.drafter import Draft, Drafter


class Matches:
    """Where each n-gram of one request's text ended last; it grows with the text."""

    def __init__(self, shortest: int, longest: int):
        self.sizes = range(longest, shortest - 1, -1)
        self.ends: dict[tuple, int] = {}  # n-gram to the index after it
        self.seen = 0  # tokens of which every n-gram that ends before them is known

    def find(self, tokens: list[int], count: int) -> tuple[list[int], int]:
        """Up to `count` tokens that followed the longest match, and its size; ([], 0) if none."""
        self._learn(tokens)
        for n in self.sizes:
            end = self.ends.get(tuple(tokens[-n:])) if n <= len(tokens) else None
            if end is not None:
                return _follow(tokens, end, count), n
        return [], 0

    def _learn(self, tokens: list[int]) -> None:
        """N-grams that end before the last token: the last one would only find itself."""
        for end in range(self.seen + 1, len(tokens)):
            for n in self.sizes:
                if n <= end:
                    self.ends[tuple(tokens[end - n : end])] = end
        self.seen = max(self.seen, len(tokens) - 1)


def _follow(tokens: list[int], start: int, count: int) -> list[int]:
    """`count` tokens from `start`; past the end of the text it repeats, since the guess says so."""
    period = len(tokens) - start
    return [tokens[start + i % period] for i in range(count)]


def find_naive(tokens: list[int], count: int, shortest: int, longest: int) -> list[int]:
    """The oracle: look at every earlier place."""
    for n in range(longest, shortest - 1, -1):
        for end in range(len(tokens) - 1, n - 1, -1):
            if tokens[end - n : end] == tokens[-n:]:
                text = list(tokens)
                for i in range(count):
                    text.append(text[end + i])
                return text[len(tokens) :]
    return []


class PromptLookup(Drafter):
    """Guesses of `length` tokens after a match of at most `longest` and at least `shortest`.

    Its confidence is experience: how often a guess after a match of that size stayed, at that place
    in the block, over all requests so far.
    """

    name = "prompt_lookup"

    def __init__(self, length: int = 5, shortest: int = 1, longest: int = 3):
        self.length, self.shortest, self.longest = length, shortest, longest
        self.tried = torch.full((longest + 1, length), 2.0).tolist()  # by match size and place
        self.stayed = torch.full((longest + 1, length), 1.0).tolist()
        self._matches: dict = {}  # request to (its `Matches`, size of its last match)

    def propose(self, seqs: list, step=None) -> Draft:
        ids, sizes = [], []
        for seq in seqs:
            matches, _ = self._matches.get(seq) or (Matches(self.shortest, self.longest), 0)
            guess, size = matches.find(seq.tokens, self.length)
            self._matches[seq] = (matches, size)
            ids.append(guess)
            sizes.append(size)
        padded = [guess or [0] * self.length for guess in ids]
        places = range(self.length)
        confidence = [[self.stayed[n][i] / self.tried[n][i] for i in places] for n in sizes]
        return Draft(
            torch.tensor(padded, dtype=torch.long),
            [len(guess) for guess in ids],
            confidence=torch.tensor(confidence),
        )

    def learn(self, seq, checked: int, accepted: int) -> None:
        _, size = self._matches[seq]
        for place in range(min(checked, accepted + 1)):
            self.tried[size][place] += 1
            self.stayed[size][place] += place < accepted

    def forget(self, seq) -> None:
        self._matches.pop(seq, None)
