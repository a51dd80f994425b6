import torch

from . import draws

CLASS = "Olmoe"
# pad_token_id: transformers gives the embedding of that token no gradient.
GOLDEN = dict(dtype=torch.float32,
              config=dict(num_experts=4, num_experts_per_tok=2, clip_qkv=0.6, eos_token_id=1, pad_token_id=None))


def draw(rng):
    renormalizes = draws.flag(rng)
    return {**draws.decoder(rng), **draws.experts(rng, least_top_k=2 if renormalizes else 1),
            "norm_topk_prob": renormalizes, "attention_bias": draws.flag(rng), "clip_qkv": rng.choice([None, 0.5])}
