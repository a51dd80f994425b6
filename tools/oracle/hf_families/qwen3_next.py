import torch

from . import draws, qwen2_moe

CLASS = "Qwen3Next"
GOLDEN = dict(
    dtype=torch.bfloat16,
    config=dict(num_hidden_layers=3, layer_types=["linear_attention", "full_attention", "linear_attention"],
                head_dim=8, linear_num_key_heads=2, linear_num_value_heads=4, linear_key_head_dim=6,
                linear_value_head_dim=4, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                shared_expert_intermediate_size=8, mlp_only_layers=[2],
                rope_parameters={"rope_type": "default", "rope_theta": 10000.0, "partial_rotary_factor": 0.5}))
BOUNDS = dict(gradients=2e-4)


def draw(rng):
    fields = draws.decoder(rng, head_dim="always")
    head_dim = rng.choice([8, 16])
    fields["head_dim"] = head_dim
    fields["hidden_act"] = "silu"  # it also follows the convolution
    fields["rope_parameters"]["partial_rotary_factor"] = rng.choice([0.25, 0.5, 1.0])
    key_heads = rng.choice([1, 2, 4])
    layers = fields["num_hidden_layers"] = rng.choice([2, 3, 4])
    return {**fields, **qwen2_moe.sparse_layers(rng), "attention_bias": draws.flag(rng),
            "shared_expert_intermediate_size": rng.choice([8, 20]),
            # Without attention the class cannot generate from its cache.
            "layer_types": ["linear_attention", "full_attention",
                            *(rng.choice(["linear_attention", "full_attention"]) for _ in range(layers - 2))],
            "linear_num_key_heads": key_heads, "linear_num_value_heads": key_heads * rng.choice([1, 2, 3]),
            "linear_key_head_dim": rng.choice([4, 6, 16]), "linear_value_head_dim": rng.choice([4, 8]),
            "linear_conv_kernel_dim": rng.choice([2, 4])}
