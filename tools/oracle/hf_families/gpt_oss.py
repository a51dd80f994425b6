import json

import torch
from safetensors.torch import load_file, save_file

from . import draws

CLASS = "GptOss"
GOLDEN = dict(
    dtype=torch.bfloat16,
    config=dict(head_dim=8, num_local_experts=4, num_experts_per_tok=2, sliding_window=4, swiglu_limit=0.7,
                max_position_embeddings=512, rope_parameters=dict(
                    rope_type="yarn", rope_theta=1000.0, factor=4.0, beta_fast=32.0, beta_slow=1.0, truncate=False,
                    original_max_position_embeddings=64)))


def mxfp4(values):
    """[.., n] as blocks of 32 values of 4 bits, [.., n / 32, 16] bytes, and their scales [.., n / 32]."""
    blocks = values.float().unflatten(-1, (-1, 32))
    exponents = blocks.abs().amax(-1, keepdim=True).log2().floor() - 2  # the largest code is 6, below 2^3
    known = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6])
    codes = ((blocks * 2.0**-exponents).unsqueeze(-1) - known).abs().argmin(-1)
    packed = codes[..., 0::2] | codes[..., 1::2] << 4
    return packed.to(torch.uint8), (exponents.squeeze(-1) + 127).to(torch.uint8)


def in_mxfp4(family, folder):
    """Experts as published gpt-oss models have them. The model is what transformers decodes."""
    from transformers.integrations.mxfp4 import convert_moe_packed_tensors

    from . import load

    model = load(family, folder)
    tensors, values = load_file(folder / "model.safetensors"), {}
    for name in [name for name in tensors if name.endswith(("gate_up_proj", "down_proj"))]:
        blocks, scales = mxfp4(tensors.pop(name).transpose(1, 2))
        tensors[name + "_blocks"], tensors[name + "_scales"] = blocks, scales
        values[name] = convert_moe_packed_tensors(blocks, scales)
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    fields["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": [
        "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head"]}
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")
    model.load_state_dict(values, strict=False)
    return model


STORED = {"gpt_oss_mxfp4": dict(
    dtype=torch.bfloat16, store=in_mxfp4,
    config=dict(hidden_size=32, intermediate_size=32, head_dim=8, num_local_experts=4, num_experts_per_tok=2,
                sliding_window=4, max_position_embeddings=512, num_hidden_layers=1))}


def draw(rng):
    fields = {**draws.decoder(rng, head_dim="always"), **draws.experts(rng, "num_local_experts", least_top_k=2),
              "sliding_window": draws.window(rng), "swiglu_limit": rng.choice([0.3, 1.0, 7.0]), "hidden_act": "silu",
              "attention_bias": draws.flag(rng)}
    if draws.flag(rng, 0.3):
        fields["layer_types"] = [rng.choice(["full_attention", "sliding_attention"])
                                 for _ in range(fields["num_hidden_layers"])]
    return fields
