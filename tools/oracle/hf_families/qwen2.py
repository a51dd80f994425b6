import torch

from . import draws

CLASS = "Qwen2"
GOLDEN = dict(
    dtype=torch.bfloat16, old_spelling=True,
    config=dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=4, max_window_layers=1,
                rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                     original_max_position_embeddings=64)))


def window(rng):
    if draws.flag(rng):
        return {}
    return dict(use_sliding_window=True, sliding_window=draws.window(rng), max_window_layers=rng.choice([0, 1, 2]))


def draw(rng):
    return {**draws.decoder(rng), **window(rng)}
