import torch

from . import draws, qwen2_moe

CLASS = "Qwen3Moe"
GOLDEN = dict(dtype=torch.bfloat16, shard="8KB",
              config=dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                          norm_topk_prob=True, num_hidden_layers=3, decoder_sparse_step=2))


def draw(rng):
    fields = {**draws.decoder(rng, head_dim="sometimes"), **qwen2_moe.sparse_layers(rng),
              "attention_bias": draws.flag(rng)}
    if draws.flag(rng):
        fields.update(use_sliding_window=True, sliding_window=draws.window(rng))
    return fields
