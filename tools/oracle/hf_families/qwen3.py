import torch

from . import draws, qwen2

CLASS = "Qwen3"
GOLDEN = dict(dtype=torch.float32,
              config=dict(head_dim=8, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)))


def draw(rng):
    return {**draws.decoder(rng, head_dim="always"), **qwen2.window(rng), "attention_bias": draws.flag(rng)}
