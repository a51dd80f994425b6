import torch

from . import draws

CLASS = "Gemma"
GOLDEN = dict(dtype=torch.bfloat16, config=dict(head_dim=8, pad_token_id=None, tie_word_embeddings=True))


def randomise(name, tensor, noise):
    return 0.25 * noise if "norm" in name else None  # kept as w - 1


def draw(rng):
    return {**draws.decoder(rng, head_dim="always"), "attention_bias": draws.flag(rng),
            "hidden_act": rng.choice(["gelu_pytorch_tanh", "gelu_pytorch_tanh", "silu"])}
