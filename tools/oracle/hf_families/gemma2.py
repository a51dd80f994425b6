import torch

from . import draws, gemma

CLASS = "Gemma2"
GOLDEN = dict(dtype=torch.bfloat16,
              config=dict(head_dim=8, pad_token_id=None, sliding_window=4, query_pre_attn_scalar=12,
                          attn_logit_softcapping=3.0, final_logit_softcapping=2.0))
randomise = gemma.randomise


def softcaps(rng):
    return {"attn_logit_softcapping": rng.choice([None, 1.5, 20.0]),
            "final_logit_softcapping": rng.choice([None, 2.0, 30.0])}


def draw(rng):
    fields = draws.decoder(rng, head_dim="always")
    fields["hidden_size"] = fields["num_attention_heads"] * rng.choice([4, 6])  # the class wants a multiple
    fields["hidden_activation"] = fields.pop("hidden_act")
    fields.update(softcaps(rng), sliding_window=draws.window(rng), query_pre_attn_scalar=rng.choice([5, 16, 256]),
                  attention_bias=draws.flag(rng))
    if draws.flag(rng, 0.3):
        fields["layer_types"] = [rng.choice(["full_attention", "sliding_attention"])
                                 for _ in range(fields["num_hidden_layers"])]
    return fields
