import torch

from . import draws

CLASS = "Mistral"
GOLDEN = dict(dtype=torch.bfloat16, old_spelling=True, config=dict(head_dim=4, sliding_window=5))


def draw(rng):
    return {**draws.decoder(rng, head_dim="sometimes"), "sliding_window": rng.choice([None, draws.window(rng)])}
