"""Makes tests/golden/moe_blocks: the MoE blocks of transformers' families on random weights and tokens.

    python tools/oracle/moe_blocks.py tests/golden/moe_blocks

Needs torch, transformers and safetensors in an environment of their own. For each case: every parameter and
buffer, tokens, output, what the output is multiplied with, and the gradients of tokens and parameters, under our
names and in our shapes.
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file
from transformers.models.deepseek_v2.modeling_deepseek_v2 import DeepseekV2Moe
from transformers.models.deepseek_v3.modeling_deepseek_v3 import DeepseekV3MoE
from transformers.models.mixtral.modeling_mixtral import MixtralSparseMoeBlock
from transformers.models.olmoe.modeling_olmoe import OlmoeSparseMoeBlock
from transformers.models.qwen2_moe.modeling_qwen2_moe import Qwen2MoeSparseMoeBlock
from transformers.models.qwen3_moe.modeling_qwen3_moe import Qwen3MoeSparseMoeBlock

TOKENS, HIDDEN, FFN, SHARED, EXPERTS = 20, 12, 5, 7, 8
HEADS = dict(num_attention_heads=4, num_key_value_heads=4)  # not used, but checked
QWEN = dict(**HEADS, hidden_size=HIDDEN, moe_intermediate_size=FFN, num_experts=EXPERTS,
            num_experts_per_tok=3)
DEEPSEEK = dict(**HEADS, hidden_size=HIDDEN, moe_intermediate_size=FFN, n_routed_experts=EXPERTS,
                num_experts_per_tok=3,
                n_shared_experts=2, n_group=4, topk_group=2, routed_scaling_factor=2.5)
CASES = {
    "mixtral": (MixtralSparseMoeBlock, transformers.MixtralConfig(
        **HEADS, hidden_size=HIDDEN, intermediate_size=FFN, num_local_experts=EXPERTS, num_experts_per_tok=3)),
    "qwen2_moe": (Qwen2MoeSparseMoeBlock, transformers.Qwen2MoeConfig(
        **QWEN, shared_expert_intermediate_size=SHARED, norm_topk_prob=False)),
    "qwen2_moe_norm": (Qwen2MoeSparseMoeBlock, transformers.Qwen2MoeConfig(
        **QWEN, shared_expert_intermediate_size=SHARED, norm_topk_prob=True)),
    "qwen3_moe": (Qwen3MoeSparseMoeBlock, transformers.Qwen3MoeConfig(**QWEN, norm_topk_prob=True)),
    "qwen3_moe_top1_norm": (Qwen3MoeSparseMoeBlock, transformers.Qwen3MoeConfig(
        **{**QWEN, "num_experts_per_tok": 1}, norm_topk_prob=True)),
    "olmoe": (OlmoeSparseMoeBlock, transformers.OlmoeConfig(
        **HEADS, hidden_size=HIDDEN, intermediate_size=FFN, num_experts=EXPERTS, num_experts_per_tok=3,
        norm_topk_prob=False)),
    "qwen3_moe_gelu": (Qwen3MoeSparseMoeBlock, transformers.Qwen3MoeConfig(
        **QWEN, norm_topk_prob=True, hidden_act="gelu_pytorch_tanh")),
    "deepseek_v2": (DeepseekV2Moe, transformers.DeepseekV2Config(**DEEPSEEK, topk_method="group_limited_greedy")),
    "deepseek_v2_greedy": (DeepseekV2Moe, transformers.DeepseekV2Config(**DEEPSEEK, topk_method="greedy")),
    "deepseek_v3": (DeepseekV3MoE, transformers.DeepseekV3Config(**DEEPSEEK, norm_topk_prob=True)),
    "deepseek_v3_top1_norm": (DeepseekV3MoE, transformers.DeepseekV3Config(
        **{**DEEPSEEK, "num_experts_per_tok": 1}, norm_topk_prob=True)),
}


def ours(name, tensor):
    """Our name of a block's tensor, and the part of ours that it is."""
    for theirs, mine in (("shared_experts.", "shared_expert."), ("gate.weight", "router.weight"),
                         ("gate.e_score_correction_bias", "router.expert_bias")):
        if name.startswith(theirs) and not name.startswith("gate_"):
            name = name.replace(theirs, mine, 1)
    name = name.replace("experts.gate_up_proj", "experts.gate_up").replace("experts.down_proj", "experts.down")
    name = name.replace("shared_expert.down_proj.weight", "shared_expert.down")
    if name == "experts.gate_up":
        tensor = tensor.view(tensor.shape[0], 2, -1, tensor.shape[-1])
    return name, tensor


def collect(tensors):
    """Our tensors out of a block's, with the shared expert's gate and up as one."""
    result = dict(ours(name, tensor) for name, tensor in tensors.items())
    if "shared_expert.gate_proj.weight" in result:
        result["shared_expert.gate_up"] = torch.stack(
            [result.pop("shared_expert.gate_proj.weight"), result.pop("shared_expert.up_proj.weight")])
    return result


folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(11)
stored = {}
for case, (block_class, config) in CASES.items():
    config._experts_implementation = "eager"
    block = block_class(config).to(torch.float64)
    with torch.no_grad():
        for tensor in [*block.parameters(), *block.buffers()]:
            tensor.normal_(0.0, 0.5)
    tokens = torch.randn(1, TOKENS, HIDDEN, dtype=torch.float64, requires_grad=True)
    cotangent = torch.randn(TOKENS, HIDDEN, dtype=torch.float64)
    output = block(tokens)[0]
    (output * cotangent).sum().backward()
    parameters = dict(block.named_parameters())
    put = {"tokens": tokens.detach()[0], "cotangent": cotangent, "output": output.detach(),
           "grad.tokens": tokens.grad[0]}
    put |= {"weight." + n: t.detach() for n, t in collect(parameters | dict(block.named_buffers())).items()}
    put |= {"grad." + n: t for n, t in collect({n: p.grad for n, p in parameters.items()}).items()}
    stored |= {f"{case}.{name}": tensor.contiguous().clone() for name, tensor in put.items()}
save_file(stored, folder / "expected.safetensors")
(folder / "README.md").write_text(f"""# MoE blocks of transformers' families

The MoE blocks of transformers {transformers.__version__} (torch {torch.__version__.split("+")[0]}, fp64 with their fp32
routers, CPU) on random weights, buffers and tokens, with all gradients: {", ".join(CASES)}. Seed 11.
Made by `python tools/oracle/moe_blocks.py tests/golden/moe_blocks`.
""")
print(len(stored), sum(t.numel() * t.element_size() for t in stored.values()))
