"""Makes tests/golden/hf: tiny random Hugging Face directories of every family, with what transformers makes of them.

    python tools/oracle/hf_directories.py tests/golden/hf              all
    python tools/oracle/hf_directories.py tests/golden/hf qwen3 olmoe  some

Each folder is what save_pretrained writes, in one of the forms that published models have (one file or shards, fp32,
fp16 or bf16, tied or not, old or new spelling of the configuration), and expected.safetensors beside it: tokens, labels,
and logits, loss and gradients in fp32 of the weights as they are stored. Every parameter is random, norms and biases too,
so that one that is dropped or swapped shows.

Needs torch, transformers and safetensors in an environment of their own.
"""

import json
import pathlib
import shutil
import sys

import torch
import transformers
from safetensors.torch import load_file, save_file
from transformers.quantizers import quantizer_finegrained_fp8

SIZES = dict(vocab_size=48, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-5)
PLAIN = {"rope_type": "default", "rope_theta": 10000.0}

# Name: (class prefix, configuration besides SIZES, dtype of the files, largest file).
CASES = {
    "llama": ("Llama", dict(head_dim=8, attention_bias=True, mlp_bias=True, rope_parameters=dict(
        rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=256)), torch.float16, "5GB"),
    "mistral": ("Mistral", dict(head_dim=4, sliding_window=5, rope_parameters=PLAIN), torch.bfloat16, "5GB"),
    "mixtral": ("Mixtral", dict(num_local_experts=4, num_experts_per_tok=2, rope_parameters=PLAIN), torch.float32,
                "20KB"),
    "qwen2": ("Qwen2", dict(tie_word_embeddings=True, use_sliding_window=True, sliding_window=4, max_window_layers=1,
                            rope_parameters=dict(rope_type="yarn", rope_theta=1000.0, factor=4.0,
                                                 original_max_position_embeddings=64)), torch.bfloat16, "5GB"),
    "qwen2_moe": ("Qwen2Moe", dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                   shared_expert_intermediate_size=8, mlp_only_layers=[0], rope_parameters=PLAIN),
                  torch.float32, "5GB"),
    "qwen3": ("Qwen3", dict(head_dim=8, rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=2.0)),
              torch.float32, "5GB"),
    "qwen3_moe": ("Qwen3Moe", dict(head_dim=8, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=12,
                                   norm_topk_prob=True, num_hidden_layers=3, decoder_sparse_step=2,
                                   rope_parameters=PLAIN), torch.bfloat16, "8KB"),
    # pad_token_id: transformers gives the embedding of that token no gradient.
    "olmoe": ("Olmoe", dict(num_experts=4, num_experts_per_tok=2, clip_qkv=0.6, eos_token_id=1, pad_token_id=None,
                            rope_parameters=PLAIN), torch.float32, "5GB"),
    "deepseek_v2": ("DeepseekV2", dict(
        num_key_value_heads=4, kv_lora_rank=10, q_lora_rank=None, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=6, n_shared_experts=2, first_k_dense_replace=1,
        topk_method="group_limited_greedy", n_group=4, topk_group=2, routed_scaling_factor=1.5, rope_parameters=dict(
            rope_type="yarn", rope_theta=10000.0, factor=40.0, original_max_position_embeddings=64, mscale=0.707,
            mscale_all_dim=0.707)), torch.bfloat16, "5GB"),
    "deepseek_v3": ("DeepseekV3", dict(
        num_key_value_heads=4, kv_lora_rank=10, q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
        n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=6, n_shared_experts=1, first_k_dense_replace=1,
        n_group=4, topk_group=2, num_mtp_layers=0, rope_parameters=PLAIN), torch.float32, "5GB"),
    # Weights of attention and MLPs in FP8, in blocks of 2 x 2.
    "deepseek_v3_fp8": ("DeepseekV3", dict(
        num_key_value_heads=4, kv_lora_rank=10, q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6,
        n_routed_experts=4, num_experts_per_tok=2, moe_intermediate_size=6, n_shared_experts=1, first_k_dense_replace=1,
        n_group=1, topk_group=1, num_mtp_layers=0, rope_parameters=PLAIN), torch.bfloat16, "5GB"),
}


def randomised(model):
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            scale = 0.5 if name.endswith("bias") else 0.25
            parameter.normal_(1.0 if "norm" in name else 0.0, scale)
        for name, buffer in model.named_buffers():
            if name.endswith("e_score_correction_bias"):
                buffer.normal_(0.0, 0.25)
    return model


def old_spelling(folder):
    """As files published before transformers 5 say it."""
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    parameters = fields.pop("rope_parameters")
    fields["rope_theta"] = parameters.pop("rope_theta")
    parameters["type"] = parameters.pop("rope_type")
    fields["rope_scaling"] = None if parameters["type"] == "default" else parameters
    fields["torch_dtype"] = fields.pop("dtype")
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def quantise(folder, size):
    """FP8 in blocks of [size, size], as published DeepSeek-V3 files have it."""
    path = folder / "model.safetensors"
    tensors = {}
    for name, weight in load_file(path).items():
        tensors[name] = weight
        if name.endswith("_proj.weight") or "kv_a_proj" in name:
            rows, columns = weight.shape
            blocks = weight.float().view(rows // size, size, columns // size, size)
            scales = blocks.abs().amax((1, 3)) / 448
            tensors[name] = (blocks / scales[:, None, :, None]).view(rows, columns).to(torch.float8_e4m3fn)
            tensors[name + "_scale_inv"] = scales
    save_file(tensors, path, metadata={"format": "pt"})
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    fields["quantization_config"] = dict(activation_scheme="dynamic", fmt="e4m3", quant_method="fp8",
                                         weight_block_size=[size, size])
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def decoded():
    """How transformers decodes FP8 when it loads. It asks for accelerate, which plays no part on a CPU."""
    quantizer_finegrained_fp8.is_accelerate_available = lambda *_, **__: True
    return dict(quantization_config=transformers.FineGrainedFP8Config(dequantize=True, weight_block_size=(2, 2)))


def make(folder, prefix, changes, dtype, shard):
    torch.manual_seed(11)
    config = getattr(transformers, prefix + "Config")(**{**SIZES, **changes})
    model_class = getattr(transformers, prefix + "ForCausalLM")
    shutil.rmtree(folder, ignore_errors=True)
    randomised(model_class(config)).to(dtype).save_pretrained(folder, max_shard_size=shard)
    if prefix in ("Mistral", "Qwen2", "DeepseekV2"):
        old_spelling(folder)
    is_fp8 = folder.name.endswith("_fp8")
    if is_fp8:
        quantise(folder, 2)
    model = model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                        experts_implementation="eager" if "xperts" in str(changes) else None,
                                        **(decoded() if is_fp8 else {}))
    tokens = torch.randint(0, config.vocab_size, (2, 13))
    labels = torch.randint(0, config.vocab_size, (2, 13))
    labels[0, :3] = -100
    logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, config.vocab_size), labels.view(-1))
    loss.backward()
    tensors = {"tokens": tokens, "labels": labels, "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    gradients = model.state_dict(keep_vars=True)
    for name, parameter in disk_names(prefix, gradients).items():
        tensors["grad." + name] = parameter
    save_file({name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()},
              folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


def disk_names(prefix, parameters):
    """Gradients by the names that save_pretrained gives to tensors, which for experts are not those in memory."""
    named = {}
    for name, parameter in parameters.items():
        if name.endswith("e_score_correction_bias"):
            continue  # not trained by gradients
        gradient = parameter.grad
        if name == "lm_head.weight" and gradient is parameters["model.embed_tokens.weight"].grad:
            continue  # tied
        moe = name.replace(".mlp.", ".block_sparse_moe.") if prefix == "Mixtral" and ".mlp." in name else name
        gate, up, down = ("w1", "w3", "w2") if prefix == "Mixtral" else ("gate_proj", "up_proj", "down_proj")
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(gradient):
                halves = both.chunk(2)
                stem = moe.removesuffix("gate_up_proj") + f"{expert}."
                named[stem + gate + ".weight"], named[stem + up + ".weight"] = halves
        elif name.endswith("experts.down_proj"):
            for expert, one in enumerate(gradient):
                named[moe.removesuffix("down_proj") + f"{expert}.{down}.weight"] = one
        else:
            named[moe] = gradient
    return named


root = pathlib.Path(sys.argv[1])
for case in sys.argv[2:] or CASES:
    make(root / case, *CASES[case])
    print(case, sum(file.stat().st_size for file in (root / case).iterdir()))
(root / "README.md").write_text(f"""# Tiny Hugging Face directories

One per family, as transformers {transformers.__version__} writes it, and what transformers makes of it (torch
{torch.__version__.split("+")[0]}, fp32, CPU, eager). Made by `python tools/oracle/hf_directories.py tests/golden/hf`.
""")
