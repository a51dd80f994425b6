import torch

from . import draws, gemma, gemma2

CLASS = "Gemma3"
CONFIG = "Gemma3TextConfig"
GOLDEN = dict(dtype=torch.float32,
              config=dict(head_dim=8, pad_token_id=None, sliding_window=4, query_pre_attn_scalar=12, num_hidden_layers=3,
                          layer_types=["sliding_attention", "sliding_attention", "full_attention"],
                          rope_parameters={"full_attention": {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0},
                                           "sliding_attention": {"rope_type": "default", "rope_theta": 10000.0}}))
randomise = gemma.randomise


def draw(rng):
    fields = gemma2.draw(rng)
    rope = fields["rope_parameters"]
    if rope["rope_type"] == "dynamic":
        rope = {"rope_type": "default", "rope_theta": 500.0}
    fields["rope_parameters"] = {
        "full_attention": rope,
        "sliding_attention": {"rope_type": "default", "rope_theta": rng.choice([100.0, 10000.0])}}
    if "layer_types" not in fields:
        fields["layer_types"] = ["sliding_attention", "full_attention", "sliding_attention"][
            :fields["num_hidden_layers"]]
    return fields
