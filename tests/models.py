"""Small random models that several tests share."""

import torch

from minimoe.config import ModelConfig
from minimoe.model.transformer import Transformer, moe_layers


def small_config(**changes) -> ModelConfig:
    """A few thousand parameters a layer; the vocabulary of the shipped tokenizer."""
    shape = {
        "hidden_size": 48,
        "intermediate_size": 64,
        "moe_intermediate_size": 16,
        "num_hidden_layers": 3,
        "num_attention_heads": 3,
        "n_routed_experts": 8,
        "num_experts_per_tok": 2,
        "kv_lora_rank": 16,
        "qk_nope_head_dim": 8,
        "qk_rope_head_dim": 4,
        "v_head_dim": 8,
        "max_position_embeddings": 256,
    }
    return ModelConfig.tiny(**{**shape, **changes})


def random_model(config: ModelConfig, dtype=torch.float64, seed: int = 0) -> Transformer:
    """Weights large enough that greedy choices have clear margins; router biases not zero."""
    model = Transformer(config).init_weights(std=0.3, seed=seed)
    random = torch.Generator().manual_seed(seed)
    for moe in moe_layers(model):
        moe.router.bias.normal_(0, 0.1, generator=random)
    for name, parameter in model.named_parameters():
        if "norm" in name:
            with torch.no_grad():
                parameter.uniform_(0.5, 1.5, generator=random)
    model = model.to(dtype)
    return model.eval().requires_grad_(False)
