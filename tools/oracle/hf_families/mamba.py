import torch

from . import draws

CLASS = "Mamba"
GOLDEN = dict(
    whole=True,
    dtype=torch.float32,
    config=dict(vocab_size=48, hidden_size=16, num_hidden_layers=2, expand=2, state_size=6, use_bias=True,
                time_step_rank=3, bos_token_id=0, eos_token_id=1, pad_token_id=None))


def draw(rng):
    return dict(
        vocab_size=257, hidden_size=rng.choice([12, 16, 40]), expand=rng.choice([1, 2]),
        num_hidden_layers=rng.choice([1, 2, 3]), state_size=rng.choice([4, 9, 16]), conv_kernel=rng.choice([2, 4]),
        time_step_rank=rng.choice(["auto", 1, 3]), use_bias=draws.flag(rng), use_conv_bias=draws.flag(rng, 0.7),
        layer_norm_epsilon=rng.choice([1e-6, 1e-5]), tie_word_embeddings=draws.flag(rng, 0.6), bos_token_id=0,
        eos_token_id=256, pad_token_id=None)
