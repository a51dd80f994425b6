import torch

from . import draws

CLASS = "Mamba2"
GOLDEN = dict(
    whole=True,
    dtype=torch.float32, shard="8KB",
    config=dict(vocab_size=48, hidden_size=16, num_hidden_layers=2, num_heads=4, head_dim=8, expand=2, state_size=6,
                n_groups=2, chunk_size=4, use_bias=True, time_step_limit=(0.4, 0.8), tie_word_embeddings=True,
                bos_token_id=0, eos_token_id=1, pad_token_id=None))


def draw(rng):
    groups = rng.choice([1, 2, 4])
    heads = groups * rng.choice([1, 2, 3])
    head_dim = rng.choice([4, 8, 16])
    expand = rng.choice([1, 2])
    return dict(
        vocab_size=257, hidden_size=heads * head_dim // expand, expand=expand, num_heads=heads, head_dim=head_dim,
        num_hidden_layers=rng.choice([1, 2, 3]), state_size=rng.choice([4, 9, 16]), n_groups=groups,
        conv_kernel=rng.choice([2, 4]), chunk_size=rng.choice([4, 7, 256]), use_bias=draws.flag(rng),
        use_conv_bias=draws.flag(rng, 0.7), layer_norm_epsilon=rng.choice([1e-6, 1e-5]),
        tie_word_embeddings=draws.flag(rng, 0.4), bos_token_id=0, eos_token_id=256, pad_token_id=None)
