"""Errors a user can cause. Each message is one line: the value, the limit and the remedy."""


class MinimoeError(ValueError):
    """Bad input to minimoe. The command line prints it as one line and exits with code 2."""


class CheckpointError(MinimoeError):
    """A checkpoint that is missing, damaged or of another architecture."""


class EngineError(MinimoeError):
    """A step that could not give a valid result, such as logits that are not numbers."""
