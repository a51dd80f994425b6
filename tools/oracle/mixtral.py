"""Makes tests/golden/mixtral: a tiny random Mixtral of transformers with logits, loss and gradients.

    python tools/oracle/mixtral.py tests/golden/mixtral

Needs torch, transformers and safetensors in an environment of their own. Every parameter is random, norms
too, so that one that is dropped or swapped shows.
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

folder = pathlib.Path(sys.argv[1])
folder.mkdir(parents=True, exist_ok=True)
torch.manual_seed(7)
config = transformers.MixtralConfig(
    vocab_size=64, hidden_size=32, intermediate_size=24, num_hidden_layers=2, num_attention_heads=4,
    num_key_value_heads=2, head_dim=8, num_local_experts=4, num_experts_per_tok=2, rms_norm_eps=1e-5,
    rope_parameters={"rope_type": "default", "rope_theta": 10000.0}, sliding_window=None,
    attn_implementation="eager", experts_implementation="eager",
    tie_word_embeddings=False)
model = transformers.MixtralForCausalLM(config).to(torch.float64)
with torch.no_grad():
    for name, parameter in model.named_parameters():
        parameter.normal_(1.0 if "norm" in name else 0.0, 0.2)

lengths = [9, 6]
sequences = [torch.randint(0, config.vocab_size, (1, length + 1)) for length in lengths]
count = sum(lengths)
logits, loss = [], 0.0
for sequence in sequences:
    out = model(input_ids=sequence[:, :-1]).logits[0]
    logits.append(out)
    loss = loss + torch.nn.functional.cross_entropy(out, sequence[0, 1:], reduction="sum")
(loss / count).backward()

tensors = {
    "tokens": torch.cat([s[0, :-1] for s in sequences]),
    "labels": torch.cat([s[0, 1:] for s in sequences]),
    "lengths": torch.tensor(lengths),
    "logits": torch.cat(logits).detach(),
    "loss": (loss / count).detach().reshape(1),
}
for name, parameter in model.named_parameters():
    tensors["weight." + name] = parameter.detach()
    tensors["grad." + name] = parameter.grad
save_file({name: tensor.contiguous() for name, tensor in tensors.items()}, folder / "expected.safetensors")
(folder / "README.md").write_text(f"""# A tiny Mixtral

Two packed sequences through transformers' MixtralForCausalLM ({transformers.__version__}, torch
{torch.__version__.split("+")[0]}, fp64, CPU, eager attention), with logits, loss per token and all gradients. Seed 7.
Made by `python tools/oracle/mixtral.py tests/golden/mixtral`.
""")
print({name: tuple(tensor.shape) for name, tensor in tensors.items()})
