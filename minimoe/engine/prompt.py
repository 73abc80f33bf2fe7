"""From what a user gives as a prompt to token ids that the model can take."""

from numbers import Integral

from minimoe.errors import MinimoeError
from minimoe.tokenizer import Tokenizer


def prompt_ids(prompt, tokenizer: Tokenizer, vocab_size: int, max_model_len: int) -> list[int]:
    """Token ids of a text, or the given ids checked. Raises MinimoeError for an empty prompt, one
    that fills the context, and ids that the model does not have."""
    if isinstance(prompt, str):
        ids = tokenizer.encode(prompt, bos=True) if prompt else []
    else:
        ids = _whole_numbers(prompt)
    if not ids:
        raise MinimoeError("the prompt is empty: give at least one character or token id")
    for token in ids:
        if not 0 <= token < vocab_size:
            raise MinimoeError(
                f"token id {token} is not in 0..{vocab_size - 1}: use this model's tokenizer for "
                "the prompt"
            )
    if len(ids) >= max_model_len:
        raise MinimoeError(
            f"the prompt has {len(ids)} tokens and max_model_len is {max_model_len}: shorten it to "
            f"{max_model_len - 1} or fewer"
        )
    return ids


def _whole_numbers(prompt) -> list[int]:
    """Token ids of any integer kind as plain ints."""
    if hasattr(prompt, "tolist"):  # a tensor or an array
        prompt = prompt.tolist()
    if not isinstance(prompt, list | tuple):
        raise MinimoeError(f"the prompt is a {type(prompt).__name__}: give text or token ids")
    for token in prompt:
        if not isinstance(token, Integral):
            raise MinimoeError(f"token id {token!r} of the prompt is not a whole number")
    return [int(token) for token in prompt]
