import torch

from . import draws

CLASS = "Mixtral"
GOLDEN = dict(dtype=torch.float32, shard="20KB", config=dict(num_local_experts=4, num_experts_per_tok=2))


def draw(rng):
    # The class cannot do without head_dim in yarn.
    return {**draws.decoder(rng, head_dim="always"), **draws.experts(rng, "num_local_experts", least_top_k=2),
            "sliding_window": rng.choice([None, draws.window(rng)])}
