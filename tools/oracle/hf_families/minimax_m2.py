import torch

from . import draws

CLASS = "MiniMaxM2"
GOLDEN = dict(dtype=torch.float32,
              config=dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, rotary_dim=4, bos_token_id=0,
                          eos_token_id=1))


def draw(rng):
    fields = {**draws.decoder(rng, head_dim="always"), **draws.experts(rng, "num_local_experts", least_top_k=2)}
    if draws.flag(rng):
        fields["rope_parameters"]["partial_rotary_factor"] = 4 / fields["head_dim"] if fields["head_dim"] != 10 else 0.4
    return fields
