import torch

from . import draws

CLASS = "Ernie4_5_Moe"
GOLDEN = dict(dtype=torch.bfloat16, shard="20KB",
              config=dict(moe_num_experts=4, moe_k=2, moe_intermediate_size=12, moe_num_shared_experts=2,
                          moe_layer_start_index=1, pad_token_id=None, tie_word_embeddings=True))


def draw(rng):
    return {**draws.decoder(rng, head_dim="sometimes"), "moe_num_experts": rng.choice([4, 7, 8]), "moe_k": rng.randint(2, 4),
            "moe_intermediate_size": rng.choice([6, 12]), "moe_num_shared_experts": rng.choice([0, 1, 2]),
            "num_hidden_layers": rng.choice([2, 3]),
            "moe_layer_start_index": rng.choice([0, 1]), "moe_layer_interval": rng.choice([1, 1, 2]),
            "moe_layer_end_index": rng.choice([-1, -1, 1])}
