"""Exercise 3 of 00: where a function's body ends, while its text is still being written."""

import random

from minimoe.course.check import Check, Wrong, register


def body_end_naive(text, inside=" \t\n", blank=None):
    """Where a function's body ends in `text`, or -1 while it may still go on.

    The first line belongs to the body. Each later line that is indented or empty (it begins with
    one of `inside`) does too; the first that does not ends it, and blank lines before that (made
    of `blank`, by default all white space) are not part of the body.
    """
    start = text.find("\n") + 1
    while 0 < start < len(text):
        if text[start] not in inside:
            return len(text[:start].rstrip(blank))
        start = text.find("\n", start) + 1
    return -1


def _ends_at_a_blank_line(text):
    return text.find("\n\n")


def _waits_for_def(text):
    return text.find("\ndef")


def _keeps_blank_lines(text):
    end = body_end_naive(text)
    while 0 <= end < len(text) and text[end] == "\n":
        end += 1
    return end


def _takes_only_spaces(text):
    """A tab at the start of a line does not count as indented."""
    return body_end_naive(text, inside=" \n")


def _keeps_lines_of_spaces(text):
    """Drops empty lines at the end, but not lines that hold only blank space."""
    return body_end_naive(text, blank="\n")


def _ends_at_a_line_of_spaces(text):
    """Takes a line that holds only blank space for the end, as if it were not indented."""
    lines = text.split("\n")
    for at, line in enumerate(lines[1:-1], start=1):
        if line and not line.strip():
            return len("\n".join(lines[:at]).rstrip())
    return body_end_naive(text)


def _counts_the_first_line(text):
    return 0 if text[:1] not in ("", " ", "\n") else body_end_naive(text)


def _ends_at_any_newline(text):
    return text.find("\n")


def _zero_for_not_yet(text):
    return max(0, body_end_naive(text))


def _one_short(text):
    return max(-1, body_end_naive(text) - 1)


def _lines(text):
    end = body_end_naive(text)
    return end if end < 0 else len(text[:end].split("\n"))


def _four_spaces(text):
    lines = text.split("\n")
    for at, line in enumerate(lines[1:], start=1):
        if line.strip() and not line.startswith(("    ", "\t")):
            return len("\n".join(lines[:at]).rstrip())
    return -1


def _letters_only(text):
    starts = (at for at in range(1, len(text)) if text[at - 1] == "\n" and text[at].isalpha())
    return next((len(text[:at].rstrip()) for at in starts), -1)


def _last_dedent(text):
    starts = [at for at in range(1, len(text)) if text[at - 1] == "\n" and text[at].strip()]
    return len(text[: starts[-1]].rstrip()) if starts else -1


@register
class BodyEnd(Check):
    """Exercise 3 of 00: where the body of a function ends in streamed text."""

    name = "00-body-end"
    wrong = [
        Wrong(_ends_at_a_blank_line, "an empty line does not end a body"),
        Wrong(_waits_for_def, "any line that is not indented"),
        Wrong(_keeps_blank_lines, "blank lines before the next line are not part"),
        Wrong(_counts_the_first_line, "the first line always belongs to the body"),
        Wrong(_ends_at_any_newline, "may still go on"),
        Wrong(lambda text: body_end_naive(text) >= 0, "a number of characters, or -1"),
        Wrong(_takes_only_spaces, "a tab indents a line as spaces do"),
        Wrong(_keeps_lines_of_spaces, "also those of spaces and tabs"),
        Wrong(_ends_at_a_line_of_spaces, "a line of only spaces or tabs does not end a body"),
        Wrong(_zero_for_not_yet, "while it may still go on give -1"),
        Wrong(_one_short, "the end of the body is cut off"),
        Wrong(_lines, "the end of the body is cut off"),
        Wrong(lambda text: text[: body_end_naive(text)], "how many characters, not the text"),
        Wrong(_four_spaces, "one space is enough"),
        Wrong(_letters_only, "also one that begins with `@` or `#`"),
        Wrong(_last_dedent, "the first line that is not indented"),
    ]
    LINES = ("return x", "    y = 1", "", "  # note", "x = 2", "def g():", "@cache", "\treturn y")
    BLANK = ("   ", "\t", " \t")

    def cases(self, rng: random.Random):
        """Texts as a model streams them: every prefix of some, and random lines."""
        yield ("return x",)
        yield ("return x\n",)
        yield ("return x\n\n    y",)
        yield ("return x\n  y\n  z",)
        yield ("return x\n  y\nz = 1",)
        yield ("return x\n\nx = 1",)
        yield ("return x\ndef g():",)
        yield ("return x\nx = 1\ny = 2",)
        yield ("return x\n# a\nx = 1",)
        yield ("",)
        yield ("\n",)
        yield ("a\n\n    b\n\n\n@c\nd",)
        yield from ((text,) for text in self._prefixes("if x:\n        y\n\n    z\nw"))
        yield ("if x:\n\ty\n\tz\nw",)
        yield ("return x\n   \nprint",)
        yield ("if x:\n    y\n  \t\n\n    z\nw",)
        for _ in range(40):
            later = rng.choices(self.LINES + self.BLANK, k=rng.randrange(6))
            yield ("\n".join([rng.choice(self.LINES), *later]),)

    @staticmethod
    def _prefixes(text):
        return [text[:length] for length in range(len(text) + 1)]

    def expected(self, text):
        return body_end_naive(text)

    def hint(self, got, text):
        want = self.expected(text)
        if isinstance(got, bool):
            return "give a number of characters, or -1"
        if isinstance(got, str):
            return "give how many characters, not the text itself: `len` of it, or -1"
        if got == 0 and text:
            return "the first line always belongs to the body, and while it may still go on give -1"
        if 0 <= got < want and not text[:got].endswith("\n") and text[got] not in " \t\n":
            return "the end of the body is cut off: count up to its last word, with that"
        if got >= 0 and (want == -1 or got < want):
            return self._too_early(got, text)
        if got == -1:
            return (
                "any line that is not indented ends the body, also one that begins with `@` or `#`"
            )
        if got > want and not text[want:got].strip():
            return (
                "blank lines before the next line are not part of the body, "
                "also those of spaces and tabs"
            )
        if text[want:got].strip().startswith(("@", "#")):
            return (
                "any line that is not indented ends the body, also one that begins with `@` or `#`"
            )
        return "the first line that is not indented ends the body, whatever comes after it"

    @staticmethod
    def _too_early(got, text):
        rest = text[got:].split("\n")[1:]  # the lines after the one in which `got` stands
        after = next((line for line in rest if line), "")
        if after.startswith("\t") and after.strip():
            return "a tab indents a line as spaces do"
        if text[got:].startswith("\n ") and after.strip():
            return "a line that begins with a space is indented: one space is enough"
        if after and not after.strip():
            return "a line of only spaces or tabs does not end a body: what follows may be indented"
        if text[got:].startswith("\n\n"):
            return "an empty line does not end a body: what follows may be indented"
        if text.endswith("\n"):
            return "the body may still go on: the last line has not begun, so give -1"
        return "the body may still go on: give -1 until a line is not indented"
