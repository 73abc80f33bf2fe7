"""`Step`: one forward pass as the model sees it, a flat list of T tokens of many requests.

The same step serves prefill, decode, a chunk of a long prompt, drafts to verify and the rest of a
prompt after a prefix hit. Requests with few new tokens come first and attend together; the others
follow and attend one by one.
"""

from dataclasses import dataclass, field

import torch

FEW_TOKENS = 16  # at most this many new tokens a request: absorbed attention, batched
# On a GPU also where new tokens x context are at most this: each token is then a row of one kernel,
# while requests one by one launch a dozen kernels each.
FEW_PAIRS = 1 << 18


@dataclass
class ShortGroup:
    """Requests with few new tokens each, in one padded batch of B requests x L tokens."""

    tokens: int  # they are the first `tokens` of the step's T
    requests: int  # B
    block_table: torch.Tensor  # [B * M] pages of each request, padded
    length: int  # S, the longest context of the group, new tokens included
    mask: torch.Tensor | None  # [B, L, S], 0 or -inf; None when everyone sees everything
    new_tokens: int  # L
    pad: torch.Tensor | None = None  # [B, L] rows of the step; None when every request has L
    unpad: torch.Tensor | None = None  # [tokens] rows of the padded batch
    lengths: torch.Tensor | None = None  # [B] contexts, in place of a mask, where L is 1 on CUDA


@dataclass
class LongRequest:
    """One request with many new tokens: they are the step's rows `start:end`."""

    start: int
    end: int
    block_table: torch.Tensor  # [M]
    length: int  # S, new tokens included


@dataclass
class Step:
    """One flat forward pass; built once, used by every layer."""

    ids: torch.Tensor  # [T] token ids
    positions: torch.Tensor  # [T]
    slots: torch.Tensor  # [T] page * block_size + offset, where each token's KV row goes
    logit_rows: torch.Tensor | None  # [B'] rows whose logits are wanted; None for all
    short: ShortGroup | None = None
    long: list[LongRequest] = field(default_factory=list)
    tap_layers: tuple[int, ...] = ()  # a drafter wants the residual stream after these
    taps: torch.Tensor | None = None  # [T, taps * D], filled by the forward pass
