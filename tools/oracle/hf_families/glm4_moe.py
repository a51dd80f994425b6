import torch

from . import draws

CLASS = "Glm4Moe"
GOLDEN = dict(dtype=torch.bfloat16, shard="20KB",
              config=dict(n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, n_shared_experts=2,
                          n_group=2, topk_group=1, routed_scaling_factor=1.5, use_qk_norm=True, attention_bias=True,
                          num_mtp_layers=0))


def grouped_experts(rng, number="n_routed_experts", dense_field="first_k_dense_replace"):
    """Experts in groups of which the two best scores count (DeepSeek-V3)."""
    groups = rng.choice([1, 1, 2, 4])
    per_group = rng.choice([2, 3])
    chosen = rng.randint(1, groups)
    renormalizes = draws.flag(rng)
    top_k = rng.randint(2 if renormalizes else 1, min(4, chosen * per_group))
    return {number: groups * per_group, "num_experts_per_tok": top_k, "n_group": groups, "topk_group": chosen,
            "norm_topk_prob": renormalizes, "routed_scaling_factor": rng.choice([1.0, 2.5]),
            "moe_intermediate_size": rng.choice([6, 12]), "n_shared_experts": rng.choice([1, 2]),
            dense_field: rng.choice([0, 1])}


def draw(rng):
    fields = {**draws.decoder(rng, head_dim="sometimes"), **grouped_experts(rng), "attention_bias": draws.flag(rng),
              "use_qk_norm": draws.flag(rng), "num_mtp_layers": 0}
    fields["num_hidden_layers"] = rng.choice([2, 3])
    head_dim = fields.get("head_dim", fields["hidden_size"] // fields["num_attention_heads"])
    if draws.flag(rng) or head_dim == 10:  # the half of 10, which is the standard, is odd
        fields["rope_parameters"]["partial_rotary_factor"] = draws.rotated_share(rng, head_dim)
    return fields
