"""Which drafts stay, such that the text is distributed as if none had been made.

A block of c drafts is checked by one pass, which gives p for each draft's position and one more.
Two rules, both exact:

* **Rejection** (Leviathan et al., arXiv 2211.17192; Chen et al., arXiv 2302.01318), for drafts that
  were drawn from a known q: draft x stays with probability min(1, p(x) / q(x)). The first that does
  not is replaced by a draw from max(p - q, 0), rescaled, and ends the block. If all stay, one more
  token is drawn from p.
* **Match**, where the draw itself is fixed: greedy requests, seeded ones (noise by position), and
  drafts that were chosen without chance. Draw from p at every position as the plain engine would;
  a draft stays if it is that token. The text is the plain run's, token for token.
"""

from dataclasses import dataclass

import torch

from minimoe.ops.sampling import exponential_noise, uniform_noise

ACCEPT = 1  # the stream of noise that decides about drafts; drafts are drawn from another


@dataclass
class Block:
    """Checked drafts of B requests. Row `starts[b] + j` of the step's probabilities `[T, V]` is for
    the token at request b's position j; it has `counts[b]` drafts to check, so one row more."""

    starts: torch.Tensor  # [B]
    counts: torch.Tensor  # [B], each at most G
    ids: torch.Tensor  # [B, G]
    q: torch.Tensor  # [B, G, V], what each draft was drawn from

    def accepted(self, p: torch.Tensor, uniform: torch.Tensor) -> torch.Tensor:
        """How many leading drafts stay, `[B]`; `p [T, V]`, `uniform [B, G]` in (0, 1)."""
        place = torch.arange(self.ids.shape[1], device=p.device)
        checked = place < self.counts[:, None]  # [B, G]
        rows = self.starts[:, None] + torch.where(checked, place, 0)
        p_draft = p[rows, self.ids]  # [B, G]
        q_draft = self.q.gather(2, self.ids[:, :, None])[:, :, 0]
        stays = (uniform * q_draft < p_draft) & checked
        return stays.long().cumprod(1).sum(1)

    def last(self, p: torch.Tensor, accepted: torch.Tensor) -> torch.Tensor:
        """What each block's last token is drawn from, `[B, V]`: the residual after a rejection,
        p itself where every checked draft stayed. Not rescaled: it need not sum to 1."""
        own = p[self.starts + accepted]
        place = accepted.clamp(max=self.ids.shape[1] - 1)
        q = self.q[torch.arange(len(own), device=p.device), place]
        rest = (own - q).clamp_(min=0).nan_to_num_(0.0)  # a broken q counts as no draft at all
        rejected = (accepted < self.counts) & (rest.sum(-1) > 0)
        return torch.where(rejected[:, None], rest, own)


def check_block(block: Block, p: torch.Tensor, seeds: torch.Tensor, positions: torch.Tensor):
    """Rejection for all requests at once: `accepted [B]` and the token that follows, `[B]`.

    `seeds [B]` and `positions [B]` (of each block's first draft) key the noise. It is independent
    of the drafts', and each position of a request uses its own once.
    """
    place = torch.arange(block.ids.shape[1], device=p.device)
    uniform = uniform_noise(seeds[:, None], positions[:, None] + place, ACCEPT, p.device)
    accepted = block.accepted(p, uniform)
    weight = block.last(p, accepted)
    noise = exponential_noise(seeds, positions + accepted, p.shape[1], p.device)
    return accepted, (weight / noise).argmax(-1)


def matching(drawn: list[int], draft: list[int]) -> int:
    """How many leading drafts equal the tokens `drawn` at their positions; one token more than
    drafts may stay was drawn."""
    count, most = 0, min(len(draft), len(drawn) - 1)
    while count < most and drawn[count] == draft[count]:
        count += 1
    return count


def check_naive(p, q, draft, uniform, draw) -> list[int]:
    """The oracle: one request, plain lists of floats. `p` has a row more than `draft`, `q` as many;
    `draw(weights)` picks an index in proportion. Gives the tokens that the pass produces."""
    made = []
    for p_row, q_row, token, u in zip(p, q, draft, uniform, strict=False):
        if u * q_row[token] < p_row[token]:
            made.append(token)
        else:
            return [*made, draw([max(a - b, 0.0) for a, b in zip(p_row, q_row, strict=True)])]
    return [*made, draw(p[len(draft)])]


def one_hot(ids: torch.Tensor, vocab: int, dtype=torch.float32) -> torch.Tensor:
    """q of drafts chosen without chance: `[B, G]` to `[B, G, V]`."""
    return torch.nn.functional.one_hot(ids, vocab).to(dtype)


def overlap(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Probability that rejection keeps a draft: sum of min(p, q) = 1 - half the L1 distance."""
    return torch.minimum(p, q).sum(-1)


def overlap_of_match(p: torch.Tensor, q: torch.Tensor) -> torch.Tensor:
    """Probability that two argmaxes with the same Gumbel noise agree, for `p` and `q` `[..., V]`.

    Token x wins both with probability 1 / sum over y of max(p_y / p_x, q_y / q_x). It is at most
    `overlap`, and at least (1 - d) / (1 + d) where d is half the L1 distance.
    """
    ratio_p = p[..., None, :] / p[..., :, None]  # [..., x, y]
    ratio_q = q[..., None, :] / q[..., :, None]
    both = 1.0 / torch.maximum(ratio_p, ratio_q).sum(-1)
    return torch.where((p > 0) & (q > 0), both, 0.0).sum(-1)
