"""Count a model's parameters: how many it holds, and how many one token uses."""

from dataclasses import dataclass

import torch

from minimoe.config import ModelConfig
from minimoe.model.moe import Experts, MoE
from minimoe.model.transformer import Transformer

DEEPSEEK_V3 = ModelConfig(  # reported: the config.json that DeepSeek published with the weights
    vocab_size=129280,
    hidden_size=7168,
    intermediate_size=18432,
    moe_intermediate_size=2048,
    num_hidden_layers=61,
    num_attention_heads=128,
    n_shared_experts=1,
    n_routed_experts=256,
    num_experts_per_tok=8,
    n_group=8,
    topk_group=4,
    first_k_dense_replace=3,
    kv_lora_rank=512,
    q_lora_rank=1536,
    qk_nope_head_dim=128,
    qk_rope_head_dim=64,
    v_head_dim=128,
)


@dataclass(frozen=True)
class Part:
    """One part of the model: parameters held, and parameters that one token passes through."""

    name: str
    total: int
    active: float


def outline(config: ModelConfig) -> Transformer:
    """The model of this shape without its weights: every tensor has a size and no memory."""
    with torch.device("meta"):
        return Transformer(config)


def parts(model: Transformer) -> list[Part]:
    """Where the parameters are. Of the routed experts one token uses K of E; of the rest, all.

    The whole embedding counts as used, though a token reads one row of it.
    """
    config = model.config
    share = config.num_experts_per_tok / config.n_routed_experts
    experts = sum(_size(module) for module in model.modules() if isinstance(module, Experts))
    shared = sum(_size(module.shared) for module in model.modules() if isinstance(module, MoE))
    attention = sum(_size(layer.attn) for layer in model.layers)
    ends = _size(model.embed) + _size(model.head) * (not config.tie_word_embeddings)
    rest = _size(model) - experts - shared - attention - ends
    sizes = {"embedding and head": ends, "attention": attention, "shared experts": shared}
    sizes["dense layers, routers, norms"] = rest
    found = [Part(name, size, size) for name, size in sizes.items()]
    return [Part("routed experts", experts, experts * share), *found]


def _size(module: torch.nn.Module) -> int:
    return sum(parameter.numel() for parameter in module.parameters())


def total_and_active(model: Transformer) -> tuple[int, int]:
    """Parameters held and parameters one token uses, as whole numbers."""
    found = parts(model)
    return sum(part.total for part in found), round(sum(part.active for part in found))


def table(model: Transformer) -> str:
    """The parts as text, in millions, and their sum."""
    found = parts(model)
    total, active = total_and_active(model)
    rows = [f"{'part':<30}{'held (M)':>10}{'used (M)':>10}"]
    for part in [*found, Part("sum", total, active)]:
        rows.append(f"{part.name:<30}{part.total / 1e6:>10.2f}{part.active / 1e6:>10.2f}")
    return "\n".join(rows)
