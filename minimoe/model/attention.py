"""Multi-head latent attention (MLA), the textbook form (DeepSeek-V2, arXiv 2405.04434, 2.1).

Keys and values of all heads are made from one latent of C values per token, plus one rotary key of
R values that all heads share. That is all a KV cache has to hold: C + R values.
"""

import torch
from torch import nn

from minimoe.config import ModelConfig
from minimoe.ops.rope import rotate, yarn_mscale


class MLA(nn.Module):
    """Causal attention over whole sequences, keys and values expanded per head, no cache."""

    def __init__(self, config: ModelConfig):
        super().__init__()
        self.config = config
        D, H, C = config.hidden_size, config.num_attention_heads, config.kv_lora_rank
        q_in = config.q_lora_rank or D
        if config.q_lora_rank:
            self.q_a = nn.Linear(D, q_in, bias=False)
            self.q_norm = nn.RMSNorm(q_in, eps=config.rms_norm_eps)
        self.q = nn.Linear(q_in, H * config.qk_head_dim, bias=False)
        self.kv_a = nn.Linear(D, config.kv_width, bias=False)
        self.kv_norm = nn.RMSNorm(C, eps=config.rms_norm_eps)
        self.kv_b = nn.Linear(C, H * (config.qk_nope_head_dim + config.v_head_dim), bias=False)
        self.o = nn.Linear(H * config.v_head_dim, D, bias=False)
        self.scale = softmax_scale(config)

    def queries(self, x: torch.Tensor) -> torch.Tensor:
        """`x [B, S, D]` to queries `[B, S, H, N + R]`, before rotation."""
        if self.config.q_lora_rank:
            x = self.q_norm(self.q_a(x))
        return self.q(x).unflatten(-1, (self.config.num_attention_heads, -1))

    def forward(self, x: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
        """`x [B, S, D]`, rotations `turns [S, R/2]`, to `[B, S, D]`."""
        config = self.config
        N, R, H = config.qk_nope_head_dim, config.qk_rope_head_dim, config.num_attention_heads
        q = self.queries(x)
        q = torch.cat([q[..., :N], rotate(q[..., N:], turns[:, None])], dim=-1)
        latent, k_rope = self.kv_a(x).split([config.kv_lora_rank, R], dim=-1)
        kv = self.kv_b(self.kv_norm(latent)).unflatten(-1, (H, -1))  # [B, S, H, N + V]
        k_rope = rotate(k_rope, turns)[:, :, None].expand(-1, -1, H, -1)
        k = torch.cat([kv[..., :N], k_rope], dim=-1)  # [B, S, H, N + R]
        out = causal_attention(q, k, kv[..., N:], self.scale)
        return self.o(out.flatten(-2))


def causal_attention(q, k, v, scale: float) -> torch.Tensor:
    """`q, k [B, S, H, N + R]`, `v [B, S, H, v_head_dim]` to `[B, S, H, v_head_dim]`."""
    width = v.shape[-1]
    v = nn.functional.pad(
        v, (0, max(0, q.shape[-1] - width))
    )  # flash kernels want one head size for all
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, scale=scale)
    return out.transpose(1, 2)[..., :width]


def softmax_scale(config: ModelConfig) -> float:
    """(N + R)^-1/2, times YaRN's squared temperature where the context is stretched."""
    scaling = config.rope_scaling
    if scaling is None or not scaling.get("mscale_all_dim"):
        return config.qk_head_dim**-0.5
    return config.qk_head_dim**-0.5 * yarn_mscale(scaling["factor"], scaling["mscale_all_dim"]) ** 2
