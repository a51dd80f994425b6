import torch

from . import draws

CLASS = "FalconH1"
GOLDEN = dict(
    whole=True,
    dtype=torch.bfloat16,
    config=dict(vocab_size=48, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
                num_key_value_heads=2, mamba_d_ssm=24, mamba_n_heads=4, mamba_n_groups=2, mamba_d_state=6,
                mamba_chunk_size=4, mamba_rms_norm=True, mamba_norm_before_gate=False, mamba_proj_bias=True,
                rope_parameters={"rope_type": "default", "rope_theta": 1e11}, lm_head_multiplier=0.5,
                embedding_multiplier=1.5, mlp_multipliers=[0.7, 1.3], key_multiplier=0.6, attention_out_multiplier=1.2,
                attention_in_multiplier=0.9, ssm_multipliers=[1.1, 0.8, 1.4, 0.7, 1.2], ssm_in_multiplier=0.75,
                ssm_out_multiplier=1.25, time_step_limit=(0.4, 0.8), bos_token_id=0, eos_token_id=1,
                pad_token_id=None))


def draw(rng):
    groups = rng.choice([1, 2])
    mamba_heads = groups * rng.choice([1, 2, 3])
    head_dim = rng.choice([4, 6])
    kv_heads = rng.choice([1, 2])
    heads = kv_heads * rng.choice([1, 2, 3])
    max_position = rng.choice([16, 64, 2048])

    def factor():
        return rng.choice([1.0, rng.uniform(0.5, 1.5)])

    return dict(
        vocab_size=257, hidden_size=heads * rng.choice([4, 8]), intermediate_size=rng.choice([12, 20]),
        num_hidden_layers=rng.choice([1, 2, 3]), num_attention_heads=heads, num_key_value_heads=kv_heads,
        max_position_embeddings=max_position, rms_norm_eps=rng.choice([1e-6, 1e-5]),
        tie_word_embeddings=draws.flag(rng, 0.4), rope_parameters=draws.rope(rng, max_position),
        mamba_d_ssm=mamba_heads * head_dim, mamba_n_heads=mamba_heads, mamba_d_head=rng.choice(["auto", head_dim]),
        mamba_n_groups=groups, mamba_d_state=rng.choice([4, 9, 16]), mamba_d_conv=rng.choice([2, 4]),
        mamba_chunk_size=rng.choice([4, 7, 256]), mamba_conv_bias=draws.flag(rng, 0.7),
        mamba_proj_bias=draws.flag(rng), mamba_norm_before_gate=draws.flag(rng), mamba_rms_norm=draws.flag(rng),
        projectors_bias=draws.flag(rng), attention_bias=draws.flag(rng), mlp_bias=draws.flag(rng),
        lm_head_multiplier=factor(), embedding_multiplier=factor(), mlp_multipliers=[factor(), factor()],
        key_multiplier=factor(), attention_out_multiplier=factor(), attention_in_multiplier=factor(),
        ssm_multipliers=[factor() for _ in range(5)], ssm_in_multiplier=factor(), ssm_out_multiplier=factor(),
        bos_token_id=0, eos_token_id=256, pad_token_id=None)
