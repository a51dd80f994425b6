import bailing_reference
import torch

from . import draws, glm4_moe

CLASS = "BailingMoeV2"
LIBRARY = bailing_reference
GOLDEN = dict(dtype=torch.bfloat16, shard="20KB", old_spelling=True,
              config=dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12, n_group=2,
                          topk_group=1, routed_scaling_factor=2.5, use_qkv_bias=True, num_nextn_predict_layers=1,
                          mtp_loss_scaling_factor=0.3,
                          rope_parameters={"rope_type": "default", "rope_theta": 10000.0,
                                           "partial_rotary_factor": 0.5}))


def draw(rng):
    fields = {**draws.decoder(rng, head_dim="always"), **glm4_moe.grouped_experts(rng, "num_experts")}
    fields["rope_parameters"]["partial_rotary_factor"] = draws.rotated_share(rng, fields["head_dim"])
    del fields["norm_topk_prob"]
    fields["num_shared_experts"] = rng.choice([None, fields.pop("n_shared_experts")])
    return {**fields, "num_hidden_layers": rng.choice([2, 3]), "use_qkv_bias": draws.flag(rng),
            "use_bias": draws.flag(rng), "use_qk_norm": draws.flag(rng, 0.7),
            "num_nextn_predict_layers": rng.choice([0, 0, 1, 2])}
