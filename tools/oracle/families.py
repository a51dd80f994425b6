"""Makes the golden files of tests/model/families_golden_test.cpp: tiny random models of transformers' families with
logits, loss, gradients and rotary frequencies.

    python tools/oracle/families.py tests/golden              all
    python tools/oracle/families.py tests/golden qwen3 olmoe  some

Needs torch, transformers and safetensors in an environment of their own. A family is one entry of FAMILIES.

Every parameter is random, norms and biases too, so that one that is dropped or swapped shows. transformers takes norms,
softmax, rotary angles and the router in fp32 even in an fp64 model; here fp32 is made to mean fp64 while the model
runs, so that its formulas are followed in fp64 throughout and a comparison can be tight. The rotary frequencies that
it computes in fp32 are stored beside them.
"""

import pathlib
import sys

import torch
import transformers
from safetensors.torch import save_file

SIZES = dict(vocab_size=48, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, head_dim=8, rms_norm_eps=1e-5, tie_word_embeddings=False,
             max_position_embeddings=64, attn_implementation="eager")
EXPERTS = dict(num_local_experts=4, num_experts_per_tok=2, experts_implementation="eager")
PLAIN = dict(rope_type="default", rope_theta=10000.0)


def phi3_rotation():
    """Rotation of the first part of a head, as transformers' Phi-3 does it, in Llama."""
    from transformers.models.llama import modeling_llama
    from transformers.models.phi3 import modeling_phi3

    modeling_llama.apply_rotary_pos_emb = modeling_phi3.apply_rotary_pos_emb


def llama(**changes):
    return "Llama", {"rope_parameters": PLAIN, **changes}


LATENTS = dict(kv_lora_rank=10, q_lora_rank=12, qk_nope_head_dim=8, qk_rope_head_dim=4, v_head_dim=6, head_dim=4,
               num_key_value_heads=4)
YARN = dict(rope_type="yarn", rope_theta=1000.0, factor=6.0, original_max_position_embeddings=200, mscale=0.8,
            mscale_all_dim=0.5)
DEEPSEEK_EXPERTS = dict(n_routed_experts=8, num_experts_per_tok=3, moe_intermediate_size=12, n_shared_experts=2,
                        first_k_dense_replace=1, experts_implementation="eager")

# Name: (class prefix, configuration besides SIZES, lengths of the sequences, what to do first).
FAMILIES = {
    "mixtral": ("Mixtral", {"rope_parameters": PLAIN, "sliding_window": None, **EXPERTS}, [9, 6], None),
    "llama_bias": (*llama(attention_bias=True, num_key_value_heads=1), [9, 6], None),
    "llama_linear": (*llama(rope_parameters=dict(rope_type="linear", rope_theta=500.0, factor=2.5)), [9, 6], None),
    "llama_dynamic": (*llama(max_position_embeddings=7, head_dim=16,
                             rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=3.0)), [11], None),
    "llama_dynamic_short": (*llama(max_position_embeddings=16, head_dim=16,
                                   rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, factor=3.0)),
                            [11], None),
    "llama_llama3": (*llama(head_dim=16, rope_parameters=dict(
        rope_type="llama3", rope_theta=1000.0, factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
        original_max_position_embeddings=256)), [14, 5], None),
    "llama_yarn": (*llama(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=128)), [14, 5], None),
    "llama_yarn_mscale": (*llama(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=6.0, original_max_position_embeddings=200, mscale=0.8,
        mscale_all_dim=0.5, beta_fast=24.0, beta_slow=2.0, truncate=False)), [14, 5], None),
    "llama_yarn_factor": (*llama(head_dim=16, rope_parameters=dict(
        rope_type="yarn", rope_theta=1000.0, factor=4.0, original_max_position_embeddings=128,
        attention_factor=1.7)), [14, 5], None),
    "llama_partial": (*llama(head_dim=16, rope_parameters=dict(
        rope_type="linear", rope_theta=1000.0, factor=1.0, partial_rotary_factor=0.5)), [9, 6], phi3_rotation),
    "mistral": ("Mistral", {"rope_parameters": PLAIN, "sliding_window": 4}, [13, 6], None),
    "qwen2": ("Qwen2", {"rope_parameters": PLAIN, "use_sliding_window": True, "sliding_window": 3,
                        "num_hidden_layers": 3, "layer_types": ["full_attention", "sliding_attention",
                                                                "full_attention"]}, [11, 5], None),
    "qwen3": ("Qwen3", {"rope_parameters": PLAIN}, [9, 6], None),
    "olmoe": ("Olmoe", {"rope_parameters": PLAIN, "clip_qkv": 0.6, "num_experts": 4, "num_experts_per_tok": 2,
                        "experts_implementation": "eager", "head_dim": 4}, [9, 6], None),
    "deepseek_v2": ("DeepseekV2", {"rope_parameters": YARN, "topk_method": "group_limited_greedy", "n_group": 4,
                                   "topk_group": 2, "routed_scaling_factor": 1.5, **LATENTS, **DEEPSEEK_EXPERTS},
                    [9, 6], None),
    "deepseek_v3": ("DeepseekV3", {"rope_parameters": YARN, "n_group": 4, "topk_group": 2,
                                   "routed_scaling_factor": 2.5, **LATENTS, **DEEPSEEK_EXPERTS, "q_lora_rank": None},
                    [9, 6], None),
    "deepseek_v3_mtp": ("DeepseekV3", {"rope_parameters": PLAIN, "n_group": 1, "topk_group": 1, "num_mtp_layers": 2,
                                       **LATENTS, **DEEPSEEK_EXPERTS, "n_shared_experts": 1,
                                       "first_k_dense_replace": 1}, [9, 6, 2], None),
}


def make_model(prefix, changes):
    config = getattr(transformers, prefix + "Config")(**{**SIZES, **changes})
    return getattr(transformers, prefix + "ForCausalLM")(config), config


def frequencies(prefix, changes, longest):
    """What transformers computes in fp32 for a sequence of `longest` tokens."""
    model, _ = make_model(prefix, changes)
    rotary = model.model.rotary_emb
    rotary(torch.zeros(1, dtype=torch.float32), torch.arange(longest).unsqueeze(0))
    return rotary.inv_freq.clone(), torch.tensor([rotary.attention_scaling], dtype=torch.float64)


class Fp32MeansFp64:
    def __enter__(self):
        self.before = torch.float32, torch.float, torch.Tensor.float, torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)
        torch.float32 = torch.float = torch.float64
        torch.Tensor.float = torch.Tensor.double

    def __exit__(self, *args):
        torch.float32, torch.float, torch.Tensor.float = self.before[:3]
        torch.set_default_dtype(self.before[3])


def selection_biases(model):
    return {name: buffer for name, buffer in model.named_buffers() if name.endswith("e_score_correction_bias")}


def make_predictions(model, config):
    """Modules of multi-token prediction, and their parameters by the names that they have on disk."""
    from transformers.modeling_layers import MtpModel

    if not getattr(config, "num_mtp_layers", 0):
        return [], {}
    modules = MtpModel(model, config.num_mtp_layers).layers
    named = {}
    for index, module in enumerate(modules):
        stem = f"model.layers.{config.num_hidden_layers + index}."
        tensors = [*module.named_parameters(), *selection_biases(module).items()]
        for name, tensor in tensors:
            named[stem + name.replace("mtp_block.", "").replace("post_norm.", "shared_head.norm.")] = tensor
    return modules, named


def moved_up(values, distance, last):
    return torch.cat([values[distance:], torch.full((min(distance, len(values)),), last)])


def further_losses(model, modules, sequence):
    """Of each module: the sum of its token losses, and how many there are."""
    tokens, labels = sequence[0, :-1], sequence[0, 1:]
    positions = torch.arange(len(tokens)).unsqueeze(0)
    mask = torch.full((len(tokens), len(tokens)), float("-inf")).triu(1)[None, None]
    hidden = model.model(input_ids=tokens.unsqueeze(0), use_cache=False).last_hidden_state
    found = []
    for index, module in enumerate(modules):
        embedded = model.get_input_embeddings()(moved_up(tokens, index + 1, 0).unsqueeze(0))
        hidden = module(embedded, hidden, position_embeddings=model.model.rotary_emb(embedded, positions),
                        attention_mask=mask, position_ids=positions, cache=None)
        targets = moved_up(labels, index + 1, -100)
        loss = torch.nn.functional.cross_entropy(model.lm_head(hidden)[0], targets, reduction="sum", ignore_index=-100)
        found.append((loss, (targets != -100).sum()))
    return found


MTP_COEFFICIENT = 0.3


def run(prefix, changes, lengths):
    model, config = make_model(prefix, changes)
    modules, predictions = make_predictions(model, config)
    with torch.no_grad():
        for name, parameter in [*model.named_parameters(), *predictions.items()]:
            scale = 0.5 if name.endswith("bias") else 0.25
            parameter.normal_(1.0 if "norm" in name else 0.0, scale)
        for buffer in selection_biases(model).values():
            buffer.normal_(0.0, 0.25)
    sequences = [torch.randint(0, config.vocab_size, (1, length + 1)) for length in lengths]
    logits, loss = [], 0.0
    for sequence in sequences:
        out = model(input_ids=sequence[:, :-1], use_cache=False).logits[0]
        logits.append(out)
        loss = loss + torch.nn.functional.cross_entropy(out, sequence[0, 1:], reduction="sum")
    loss = loss / sum(lengths)
    objective = loss
    further = []
    if modules:
        of_sequences = [further_losses(model, modules, sequence) for sequence in sequences]
        further = [sum(one[i][0] for one in of_sequences) / sum(one[i][1] for one in of_sequences)
                   for i in range(len(modules))]
        objective = loss + MTP_COEFFICIENT * sum(further) / len(modules)
    objective.backward()
    # Greedy continuation of the start of the first sequence, from a cache.
    prompt = sequences[0][:, :4]
    greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=12,
                            use_cache=True, eos_token_id=None, pad_token_id=0)
    tensors = {
        "tokens": torch.cat([s[0, :-1] for s in sequences]),
        "labels": torch.cat([s[0, 1:] for s in sequences]),
        "lengths": torch.tensor(lengths),
        "logits": torch.cat(logits).detach(),
        "loss": loss.detach().reshape(1),
        "greedy": greedy[0],
    }
    if further:
        tensors["further_losses"] = torch.stack(further).detach()
    for name, parameter in [*model.named_parameters(), *predictions.items()]:
        tensors["weight." + name] = parameter.detach()
        if parameter.requires_grad:
            tensors["grad." + name] = parameter.grad
    for name, buffer in selection_biases(model).items():
        tensors["weight." + name] = buffer.clone()
    return tensors


def make(name, folder):
    prefix, changes, lengths, prepare = FAMILIES[name]
    if prepare is not None:
        prepare()
    torch.manual_seed(7)
    inverse, attention_factor = frequencies(prefix, changes, max(lengths))
    with Fp32MeansFp64():
        tensors = run(prefix, changes, lengths)
    tensors["inverse_frequencies"] = inverse
    tensors["attention_factor"] = attention_factor
    assert all(tensor.isfinite().all() for tensor in tensors.values())
    assert all(tensor.abs().max() > 0 for key, tensor in tensors.items() if key.startswith("grad.")), name
    folder = folder / name
    folder.mkdir(parents=True, exist_ok=True)
    save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, folder / "expected.safetensors")
    (folder / "README.md").write_text(f"""# {name}

Sequences of {" and ".join(map(str, lengths))} tokens through transformers' {prefix}ForCausalLM
({transformers.__version__}, torch {torch.__version__.split("+")[0]}, CPU, eager attention) in fp64 throughout: logits,
loss per token, gradients, a greedy continuation from a cache; and the rotary frequencies in fp32. Seed 7.
Made by `python tools/oracle/families.py tests/golden {name}`; the configuration is there.
""")
    print(name, sum(tensor.nbytes for tensor in tensors.values()) // 1000, "KB")


if __name__ == "__main__":
    for name in sys.argv[2:] or FAMILIES:
        make(name, pathlib.Path(sys.argv[1]))
