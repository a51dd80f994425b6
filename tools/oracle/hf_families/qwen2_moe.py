import torch

from . import draws, qwen2

CLASS = "Qwen2Moe"
GOLDEN = dict(dtype=torch.float32,
              config=dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                          shared_expert_intermediate_size=8, mlp_only_layers=[0]))


def sparse_layers(rng):
    renormalizes = draws.flag(rng)
    return {**draws.experts(rng, least_top_k=2 if renormalizes else 1), "norm_topk_prob": renormalizes,
            "moe_intermediate_size": rng.choice([6, 12]), "decoder_sparse_step": rng.choice([1, 1, 2]),
            "mlp_only_layers": rng.choice([[], [], [0]])}


def draw(rng):
    return {**draws.decoder(rng), **qwen2.window(rng), **sparse_layers(rng),
            "shared_expert_intermediate_size": rng.choice([8, 20]), "qkv_bias": draws.flag(rng, 0.7)}
