import json

import torch
from safetensors.torch import load_file, save_file

from . import deepseek_v2, draws

CLASS = "DeepseekV3"
SMALL = dict(**deepseek_v2.LATENTS, q_lora_rank=12, num_experts_per_tok=3, moe_intermediate_size=6, n_shared_experts=1,
             first_k_dense_replace=1, num_mtp_layers=0)
GOLDEN = dict(dtype=torch.float32, config=dict(SMALL, n_routed_experts=8, n_group=4, topk_group=2))
BLOCK = 2


def in_fp8(family, folder):
    """Weights of attention and MLPs in FP8 with a scale per block, as published DeepSeek-V3 files have them. The model is
    what transformers decodes."""
    import transformers
    from transformers.quantizers import quantizer_finegrained_fp8

    path = folder / "model.safetensors"
    tensors = {}
    for name, weight in load_file(path).items():
        tensors[name] = weight
        if name.endswith("_proj.weight") or "kv_a_proj" in name:
            rows, columns = weight.shape
            blocks = weight.float().view(rows // BLOCK, BLOCK, columns // BLOCK, BLOCK)
            scales = blocks.abs().amax((1, 3)) / 448
            tensors[name] = (blocks / scales[:, None, :, None]).view(rows, columns).to(torch.float8_e4m3fn)
            tensors[name + "_scale_inv"] = scales
    save_file(tensors, path, metadata={"format": "pt"})
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    fields["quantization_config"] = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                                         weight_block_size=[BLOCK, BLOCK])
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    # It asks for accelerate, which plays no part on a CPU.
    quantizer_finegrained_fp8.is_accelerate_available = lambda *_, **__: True
    return family.model_class.from_pretrained(
        folder, dtype=torch.float32, attn_implementation="eager", experts_implementation="eager",
        quantization_config=transformers.FineGrainedFP8Config(dequantize=True, weight_block_size=(BLOCK, BLOCK)))


STORED = {"deepseek_v3_fp8": dict(dtype=torch.bfloat16, store=in_fp8,
                                  config=dict(SMALL, num_experts_per_tok=2, n_routed_experts=4, n_group=1,
                                              topk_group=1))}


def draw(rng):
    renormalizes = draws.flag(rng, 0.6)
    fields = {**deepseek_v2.latents_and_groups(rng), "norm_topk_prob": renormalizes,
              "rope_interleave": draws.flag(rng, 0.7), "num_nextn_predict_layers": rng.choice([0, 1])}
    if renormalizes:  # a weight that is always 1 gives the router no gradient
        fields["num_experts_per_tok"] = max(2, fields["num_experts_per_tok"])
    return fields
