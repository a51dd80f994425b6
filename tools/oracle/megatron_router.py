"""Makes tests/golden/megatron_router: what Megatron-Core's router functions make of random logits.

    python tools/oracle/megatron_router.py tests/golden/megatron_router

Needs torch, megatron-core and safetensors in an environment of their own. All in fp64 where Megatron allows it.
"""

import pathlib
import sys
from importlib.metadata import version

import torch
from megatron.core.transformer.moe import moe_utils
from safetensors.torch import save_file

TOKENS, EXPERTS, TOP_K = 24, 8, 3
folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(13)
logits = torch.randn(TOKENS, EXPERTS, dtype=torch.float64) * 1.5
stored = {"logits": logits}


def gradient(function):
    leaf = logits.clone().requires_grad_()
    value = function(leaf)
    value.backward()
    return value.detach().reshape(1), leaf.grad


# Choice and weights, [tokens, num_experts] with zeros elsewhere.
for name, options in {
    "softmax": dict(),
    "pre_softmax": dict(use_pre_softmax=True, scaling_factor=2.5),
    "pre_softmax_groups": dict(use_pre_softmax=True, num_groups=4, group_topk=3),
    "sigmoid": dict(score_function="sigmoid", scaling_factor=2.5),
    "sigmoid_bias_groups": dict(score_function="sigmoid", num_groups=2, group_topk=1,
                                expert_bias=torch.linspace(-0.4, 0.3, EXPERTS)),
}.items():
    probs, _ = moe_utils.topk_routing_with_score_function(logits, TOP_K, **options)
    stored["weights." + name] = probs

# Balance loss of all tokens as one set, and its gradient.
for score in ("softmax", "sigmoid"):
    def balance(leaf, score=score):
        routing_map, scores = moe_utils.compute_routing_scores_for_aux_loss(leaf, TOP_K, score)
        return moe_utils.switch_load_balancing_loss_func(scores.to(leaf.dtype), routing_map.sum(0), TOKENS, TOP_K,
                                                         EXPERTS, 1.0)
    stored[f"balance.{score}"], stored[f"grad.balance.{score}"] = gradient(balance)

stored["z_loss"], stored["grad.z_loss"] = gradient(lambda leaf: moe_utils.z_loss_func(leaf, 1.0))
stored["sinkhorn"] = moe_utils.sinkhorn(logits)

# Copies kept with a capacity: weights after dropping. (By position Megatron takes torch.topk of equal numbers, whose
# order is left open.)
probs, routing_map = moe_utils.topk_routing_with_score_function(logits, TOP_K, use_pre_softmax=True)
kept, kept_map = moe_utils.apply_router_token_dropping(probs, routing_map, TOP_K, 1.0, "probs")
stored["capacity"] = kept * kept_map

save_file({name: tensor.contiguous().clone() for name, tensor in stored.items()}, folder / "expected.safetensors")
(folder / "README.md").write_text(f"""# Megatron-Core's router functions

Choice and weights, balance loss, z-loss, sinkhorn and capacity of megatron-core {version("megatron-core")} on random
logits of {TOKENS} tokens and {EXPERTS} experts (fp64; scores of softmax in fp32), CPU. Seed 13.
Made by `python tools/oracle/megatron_router.py tests/golden/megatron_router`.
""")
print({name: tuple(tensor.shape) for name, tensor in stored.items()})
