import torch

from . import draws

CLASS = "NemotronH"
GOLDEN = dict(
    whole=True,
    dtype=torch.bfloat16,
    config=dict(vocab_size=48, hidden_size=16, layers_block_type=["linear_attention", "moe", "full_attention", "mlp"],
                num_attention_heads=4, num_key_value_heads=2, head_dim=5, intermediate_size=20, ssm_state_size=6,
                mamba_num_heads=4, mamba_head_dim=4, n_groups=2, chunk_size=4, time_step_min=0.3, time_step_max=0.5,
                n_routed_experts=6, num_experts_per_tok=3, n_group=2, topk_group=1, moe_intermediate_size=12,
                moe_shared_expert_intermediate_size=8, routed_scaling_factor=2.5))


def experts(rng):
    groups = rng.choice([1, 1, 2])
    count = groups * rng.choice([2, 3, 4])  # the class sums the two best of a group
    kept = rng.randint(1, groups)
    most = count // groups * kept
    renormalizes = most > 1 and draws.flag(rng)
    return dict(n_routed_experts=count, n_group=groups, topk_group=kept, norm_topk_prob=renormalizes,
                num_experts_per_tok=rng.randint(2 if renormalizes else 1, min(most, 4)),
                moe_intermediate_size=rng.choice([6, 12]), moe_shared_expert_intermediate_size=rng.choice([8, 20]),
                routed_scaling_factor=rng.choice([1.0, 2.5]))


def draw(rng):
    kinds = ["linear_attention", "linear_attention", "moe", "full_attention", "mlp"]
    # Without attention the class cannot generate from its cache.
    layers = ["linear_attention", "full_attention", *(rng.choice(kinds) for _ in range(rng.randint(0, 3)))]
    rng.shuffle(layers)
    kv_heads = rng.choice([1, 2, 4])
    groups = rng.choice([1, 2, 4])
    latent = rng.choice([None, None, 8])
    return dict(
        vocab_size=257, hidden_size=rng.choice([16, 24, 40]), layers_block_type=layers,
        num_attention_heads=kv_heads * rng.choice([1, 2, 3]), num_key_value_heads=kv_heads,
        head_dim=rng.choice([4, 7, 16]), intermediate_size=rng.choice([12, 20]), moe_latent_size=latent,
        mlp_bias=latent is None and draws.flag(rng),  # with a latent we refuse it
        mlp_hidden_act=rng.choice(["relu2", "relu2", "silu"]),
        layer_norm_epsilon=rng.choice([1e-6, 1e-5]), ssm_state_size=rng.choice([4, 9, 16]),
        mamba_num_heads=groups * rng.choice([1, 2, 3]), mamba_head_dim=rng.choice([4, 6]), n_groups=groups,
        conv_kernel=rng.choice([2, 4]), chunk_size=rng.choice([4, 7, 128]), use_bias=draws.flag(rng),
        use_conv_bias=draws.flag(rng, 0.7),
        # With a cache the class forgets the smallest time step.
        time_step_min=1e-6, time_step_max=0.1, **experts(rng), bos_token_id=0, eos_token_id=256, pad_token_id=None)
