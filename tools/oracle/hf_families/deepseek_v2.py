import torch

from . import draws

CLASS = "DeepseekV2"
LATENTS = dict(num_key_value_heads=4, kv_lora_rank=10, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6)
GOLDEN = dict(
    dtype=torch.bfloat16, old_spelling=True,
    config=dict(**LATENTS, q_lora_rank=None, n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=6,
                n_shared_experts=2, first_k_dense_replace=1, topk_method="group_limited_greedy", n_group=4, topk_group=2,
                routed_scaling_factor=1.5, rope_parameters=dict(
                    rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=64,
                    mscale=0.707, mscale_all_dim=0.707)))


def latents_and_groups(rng):
    fields = draws.decoder(rng)
    groups = rng.choice([1, 2, 4])
    chosen = rng.randint(1, groups)
    per_group = rng.choice([2, 3, 4])
    fields.update(
        num_key_value_heads=fields["num_attention_heads"], kv_lora_rank=rng.choice([8, 12]),
        q_lora_rank=rng.choice([None, 10]), qk_nope_head_dim=rng.choice([4, 8]), qk_rope_head_dim=rng.choice([4, 8, 10]),
        v_head_dim=rng.choice([4, 6, 20]), moe_intermediate_size=rng.choice([6, 12]), n_shared_experts=rng.choice([1, 2]),
        first_k_dense_replace=rng.randint(0, fields["num_hidden_layers"] - 1), n_routed_experts=groups * per_group,
        num_experts_per_tok=rng.randint(1, min(4, chosen * per_group)), n_group=groups, topk_group=chosen,
        routed_scaling_factor=rng.choice([1.0, 2.5]))
    return fields


def draw(rng):
    fields = {**latents_and_groups(rng), "topk_method": rng.choice(["greedy", "group_limited_greedy"])}
    if draws.flag(rng, 0.3):
        fields["num_key_value_heads"] = None
    return fields
