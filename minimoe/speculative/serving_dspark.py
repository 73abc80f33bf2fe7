"""DSpark as it is served: its KV rows in a plane of the paged cache, beside the target's.

Same weights and same results as the textbook `DSpark`. `inject` writes the KV rows of positions the
target has computed; `backbone` drafts a block through the machinery that serves the target: a step
of B * G tokens, in which every token of a block sees all rows up to the block's end. Its own rows
go to the slots behind the context, where a later injection overwrites them.
"""

import torch
from torch import Tensor

from minimoe.model.serving import ServingLayer, ServingModel
from minimoe.model.serving_attention import Pages
from minimoe.model.step import Step
from minimoe.ops.columns import by_columns
from minimoe.ops.norm import rms_norm, scale_weight, unit_norm_
from minimoe.ops.rope import rope_table, rotate_heads_, widen_turns
from minimoe.speculative.dspark import DSpark

TABLE_BYTES = 64 * 2**20  # up to here the Markov head is multiplied out to a table [V, V]


class ServingDSpark:
    """Public: `length` G, `taps` the target layers to read, `layers` and `width` of its plane."""

    def __init__(self, dspark: DSpark, target: ServingModel):
        config, D = dspark.config, target.config.hidden_size
        config.check_target(target.config)
        self.textbook, self.target = dspark, target
        self.length, self.taps, self.layers = config.length, config.taps, config.layers
        self.width, self.latent = target.config.kv_width, target.config.kv_lora_rank
        self.stack = [ServingLayer(layer, dspark.layer_config) for layer in dspark.layers]
        self.fuse = by_columns(dspark.fuse.weight)  # [3D, D]
        self.fuse_norm = scale_weight(dspark.fuse_norm.weight)
        # KV rows of all layers in one product.
        kv_in = torch.cat([layer.attn.kv_a for layer in self.stack])
        self.kv_in = by_columns(kv_in)  # [D, layers * (C + R)]
        self.latent_floor = self.stack[0].attn.latent_floor
        self.mask, self.norm, self.floor = (
            dspark.mask,
            scale_weight(dspark.norm.weight),
            target.floor,
        )
        self.turns = self._turns()
        self._init_heads(dspark, D)

    def _turns(self) -> Tensor:
        """The target's rotations and, as a block may reach past its end, G more positions."""
        config, like = self.target.config, self.target.turns
        count = config.max_position_embeddings + self.length
        table = rope_table(
            count, config.qk_rope_head_dim, config.rope_theta, config.rope_scaling
        ).to(like.device, like.dtype)
        return widen_turns(table, self.latent)  # [positions + G, 1, (C + R)/2]

    def _init_heads(self, dspark: DSpark, D: int) -> None:
        weight = dspark.confident.weight[0]  # [D + rank]
        self.confident, self.confident_bias = weight[:D], dspark.confident.bias
        self.markov_in = self.markov_out = self.markov_table = self.confident_before = None
        if not dspark.config.markov_rank:
            return
        self.markov_in, self.markov_out = dspark.markov_in.weight, dspark.markov_out.weight.t()
        self.confident_before = self.markov_in @ weight[D:]  # [V]
        V = len(self.markov_in)
        if V * V * self.markov_in.itemsize <= TABLE_BYTES:
            self.markov_table = self.markov_in @ self.markov_out  # [V, V]

    def pages(self, plane: Tensor) -> list[Pages]:
        """The `draft` plane `[layers, blocks, block_size, C + R]` as the layers take it."""
        return self.target.pages(plane)

    @torch.inference_mode()
    def inject(self, taps: Tensor, positions: Tensor, slots: Tensor, pages: list[Pages]) -> None:
        """Write the KV rows of T positions that the target has computed.

        Args:
            taps: `[T, 3D]`, the residual stream after each tapped layer, side by side.
            positions, slots: `[T]`, as in the step that computed them.
        """
        context = rms_norm(torch.mm(taps, self.fuse), self.fuse_norm, self.floor)  # [T, D]
        rows = torch.mm(context, self.kv_in).view(len(taps), self.layers, self.width)
        rotate_heads_(rows, self.turns.index_select(0, positions))
        unit_norm_(rows[..., : self.latent], self.latent_floor)
        for own, row in zip(pages, rows.unbind(1), strict=True):
            own.rows.index_copy_(0, slots, row)

    @torch.inference_mode()
    def backbone(self, anchors: Tensor, step: Step, pages: list[Pages]) -> Tensor:
        """Normalised hidden states `[B, G, D]` of the blocks behind `anchors [B]`.

        `step` describes the B * G tokens of the blocks (its ids are not read): positions p to
        p + G - 1 where p is the anchor's, and p + G visible rows for each token.
        """
        B, G = len(anchors), self.length
        x = self.mask.repeat(B, G, 1)  # [B, G, D]
        x[:, 0] = self.target.embed.index_select(0, anchors)
        x = x.view(B * G, -1)
        turns = self.turns.index_select(0, step.positions)
        for layer, own in zip(self.stack, pages, strict=True):
            y = rms_norm(x, layer.attn_norm, self.floor)
            layer.attn.add_to(x, y, own, step, turns)
            y = rms_norm(x, layer.ffn_norm, self.floor)
            layer.ffn.add_to(x, y)
        return rms_norm(x, self.norm, self.floor).view(B, G, -1)

    @torch.inference_mode()
    def base_logits(self, hidden: Tensor) -> Tensor:
        """Logits before the Markov head: `[B, G, D]` to `[B, G, V]`, all in one product."""
        return torch.mm(hidden.flatten(0, 1), self.target.head_t).view(*hidden.shape[:2], -1)

    @torch.inference_mode()
    def bias(self, previous: Tensor) -> Tensor | None:
        """The Markov head: what the token before, `[B]`, adds to the logits, `[B, V]`."""
        if self.markov_table is not None:
            return self.markov_table.index_select(0, previous)
        if self.markov_in is not None:
            return torch.mm(self.markov_in.index_select(0, previous), self.markov_out)
        return None

    @torch.inference_mode()
    def logits(self, hidden_k: Tensor, previous: Tensor) -> Tensor:
        """One position: `hidden_k [B, D]` and the tokens before it `[B]` to logits `[B, V]`."""
        base, bias = torch.mm(hidden_k, self.target.head_t), self.bias(previous)
        return base if bias is None else base.add_(bias)

    @torch.inference_mode()
    def confidence(self, hidden_k: Tensor, previous: Tensor) -> Tensor:
        """Logits `[B]`, not calibrated, of the chance that the token is accepted if all before it
        were."""
        logits = torch.mv(hidden_k, self.confident) + self.confident_bias
        if self.confident_before is not None:
            logits += self.confident_before.index_select(0, previous)
        return logits
