"""Compares every family with transformers on configurations drawn at random.

    tests/parity/run families_parity.py [--count 40] [--seed 1] [family ...]

For each: a random model of transformers, every parameter randomised, is saved, in fp32, fp16 or bf16, in one file or
several; `switchyard forward` must give its logits within 1e-5 of the largest, its loss within 1e-6, and every gradient
within 1e-4 (norm of the difference over norm); `switchyard generate` the same greedy 32 tokens; import and export the
same bytes. Both compute in fp32. Where a router's choice hangs on less than rounding, tokens are drawn again, and
counted.

Runs in the environment that tools/peers makes (6 GB), or that of the Python in PEERS_PYTHON.
"""

import argparse
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
try:
    import torch
    import transformers
except ImportError:
    python = os.environ.get("PEERS_PYTHON") or subprocess.run(
        [ROOT / "tools/peers"], check=True, capture_output=True, text=True).stdout.strip()
    os.environ.pop("PYTHONPATH", None)
    os.execv(python, [python, *sys.argv])
from safetensors import safe_open
from safetensors.torch import load_file, save_file

LOGITS, LOSS, GRADIENTS = 1e-5, 1e-6, 1e-4
SMALLEST_GAP = 1e-5  # between the last expert chosen and the first one not, in router probability
DEEPSEEK = {"DeepseekV2", "DeepseekV3"}
MOE = {"Mixtral", "Qwen2Moe", "Qwen3Moe", "Olmoe", *DEEPSEEK}
FAMILIES = {"llama": "Llama", "mistral": "Mistral", "mixtral": "Mixtral", "qwen2": "Qwen2", "qwen2_moe": "Qwen2Moe",
            "qwen3": "Qwen3", "qwen3_moe": "Qwen3Moe", "olmoe": "Olmoe", "deepseek_v2": "DeepseekV2",
            "deepseek_v3": "DeepseekV3"}


def draw_rope(rng, max_position):
    base = rng.choice([500.0, 10000.0, 1000000.0])
    kind = rng.choice(["default", "default", "linear", "dynamic", "llama3", "yarn"])
    rope = {"rope_type": kind, "rope_theta": base}
    if kind != "default":
        rope["factor"] = rng.choice([1.5, 2.0, 4.0, 8.0])
    if kind in ("llama3", "yarn"):
        rope["original_max_position_embeddings"] = rng.choice([16, 64, 256])
    if kind == "llama3":
        rope.update(low_freq_factor=1.0, high_freq_factor=4.0)
    if kind == "yarn" and rng.random() < 0.5:
        rope.update(beta_fast=rng.choice([16.0, 32.0]), beta_slow=1.0, truncate=rng.random() < 0.5)
        if rng.random() < 0.5:
            rope.update(mscale=0.8, mscale_all_dim=0.6)
    return rope


def draw_deepseek(rng, prefix, heads, num_layers):
    """What these families have instead of, or besides, the fields of the others."""
    num_groups = rng.choice([1, 2, 4])
    group_top_k = rng.randint(1, num_groups)
    experts = num_groups * rng.choice([2, 3, 4])
    out = dict(num_key_value_heads=heads, kv_lora_rank=rng.choice([8, 12]), q_lora_rank=rng.choice([None, 10]),
               qk_nope_head_dim=rng.choice([4, 8]), qk_rope_head_dim=rng.choice([4, 8, 10]),
               v_head_dim=rng.choice([4, 6, 20]), moe_intermediate_size=rng.choice([6, 12]),
               n_shared_experts=rng.choice([1, 2]), first_k_dense_replace=rng.randint(0, num_layers - 1),
               n_routed_experts=experts, num_experts_per_tok=rng.randint(1, min(4, group_top_k * experts // num_groups)),
               n_group=num_groups, topk_group=group_top_k, routed_scaling_factor=rng.choice([1.0, 2.5]))
    if prefix == "DeepseekV2":
        out["topk_method"] = rng.choice(["greedy", "group_limited_greedy"])
        if rng.random() < 0.3:
            out["num_key_value_heads"] = None
    else:
        out.update(norm_topk_prob=rng.random() < 0.6, rope_interleave=rng.random() < 0.7,
                   num_nextn_predict_layers=rng.choice([0, 1]))
    return out


def draw(rng, prefix):
    """Keyword arguments of the configuration."""
    kv_heads = rng.choice([1, 2, 4])
    heads = kv_heads * rng.choice([1, 2, 3])
    head_dim = rng.choice([4, 8, 16, 10])
    own_head_dim = prefix in ("Llama", "Mistral", "Mixtral", "Qwen3", "Qwen3Moe") and rng.random() < 0.6
    hidden = rng.choice([16, 24, 40]) if own_head_dim else heads * head_dim
    if prefix == "Llama" and hidden % heads:
        hidden = heads * head_dim
    max_position = rng.choice([16, 64, 2048])
    out = dict(vocab_size=257, hidden_size=hidden, intermediate_size=rng.choice([12, 20, 36]),
               num_hidden_layers=rng.choice([1, 2, 3]), num_attention_heads=heads, num_key_value_heads=kv_heads,
               max_position_embeddings=max_position, rms_norm_eps=rng.choice([1e-6, 1e-5]),
               tie_word_embeddings=rng.random() < 0.4, rope_parameters=draw_rope(rng, max_position),
               hidden_act=rng.choice(["silu", "silu", "silu", "gelu", "gelu_pytorch_tanh", "relu"]),
               bos_token_id=0, eos_token_id=256, pad_token_id=None)  # a pad token's embedding gets no gradient
    if own_head_dim or prefix in ("Qwen3", "Mixtral"):  # Mixtral's class cannot do without in yarn
        out["head_dim"] = head_dim
    window = rng.choice([2, 5, 9])
    if prefix in ("Mistral", "Mixtral"):
        out["sliding_window"] = rng.choice([None, window])
    if prefix in ("Qwen2", "Qwen3", "Qwen2Moe", "Qwen3Moe") and rng.random() < 0.5:
        out.update(use_sliding_window=True, sliding_window=window)
        if prefix != "Qwen3Moe":
            out["max_window_layers"] = rng.choice([0, 1, 2])
    if prefix in ("Llama", "Qwen3", "Qwen3Moe", "Olmoe"):
        out["attention_bias"] = rng.random() < 0.5
    if prefix == "Llama":
        out["mlp_bias"] = rng.random() < 0.5
    if prefix == "Olmoe":
        out["clip_qkv"] = rng.choice([None, 0.5])
    if prefix in MOE - DEEPSEEK:
        experts = rng.choice([2, 4, 7, 8])
        out["num_local_experts" if prefix == "Mixtral" else "num_experts"] = experts
        out["num_experts_per_tok"] = rng.randint(1, min(experts, 4))
    if prefix in DEEPSEEK:
        out.update(draw_deepseek(rng, prefix, heads, out["num_hidden_layers"]))
    if prefix in ("Qwen2Moe", "Qwen3Moe"):
        out.update(moe_intermediate_size=rng.choice([6, 12]), decoder_sparse_step=rng.choice([1, 1, 2]),
                   mlp_only_layers=rng.choice([[], [], [0]]))
    if prefix in ("Qwen2Moe", "Qwen3Moe", "Olmoe"):
        out["norm_topk_prob"] = rng.random() < 0.5
    if prefix == "Mixtral" or out.get("norm_topk_prob"):
        # One expert of weight 1 gives the router no gradient: there would be noise to compare.
        out["num_experts_per_tok"] = max(2, out["num_experts_per_tok"])
    if prefix == "Qwen2Moe":
        out.update(shared_expert_intermediate_size=rng.choice([8, 20]), qkv_bias=rng.random() < 0.7)
    return out


def randomise(model, generator):
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" in name:
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            tensor.copy_(1 + 0.25 * noise if "norm" in name else (0.5 if name.endswith("bias") else 0.25) * noise)


def disk_gradients(prefix, model):
    """Gradients by the names of the tensors on disk."""
    named = {}
    for name, parameter in model.named_parameters():
        gradient = parameter.grad if parameter.grad is not None else torch.zeros_like(parameter)
        moe = name.replace(".mlp.", ".block_sparse_moe.") if prefix == "Mixtral" else name
        gate, up, down = ("w1", "w3", "w2") if prefix == "Mixtral" else ("gate_proj", "up_proj", "down_proj")
        if name.endswith("experts.gate_up_proj"):
            for expert, both in enumerate(gradient):
                stem = moe.removesuffix("gate_up_proj") + f"{expert}."
                named[stem + gate + ".weight"], named[stem + up + ".weight"] = both.chunk(2)
        elif name.endswith("experts.down_proj"):
            for expert, one in enumerate(gradient):
                named[moe.removesuffix("down_proj") + f"{expert}.{down}.weight"] = one
        else:
            named[moe] = gradient
    return named


def gap_after(scores, top_k):
    """Between the last chosen and the first one not, of [tokens, candidates]."""
    ordered = scores.sort(-1, descending=True).values
    if ordered.shape[-1] <= top_k:
        return 1.0
    gaps = ordered[:, top_k - 1] - ordered[:, top_k]
    return gaps[gaps.isfinite()].min().item() if gaps.isfinite().any() else 1.0


def choice_gap(router, logits, top_k):
    """How much the choice of a router, among groups first where it has them, hangs on."""
    bias = getattr(router, "e_score_correction_bias", None)
    logits = logits.double()
    scores = torch.softmax(logits, -1) if bias is None else logits.sigmoid() + bias.double()
    gap = 1.0
    if bias is not None or getattr(router, "topk_method", "") == "group_limited_greedy":
        groups = scores.view(len(scores), router.num_group, -1)
        of_group = groups.max(-1).values if bias is None else groups.topk(2).values.sum(-1)
        gap = gap_after(of_group, router.topk_group)
        chosen = torch.zeros_like(of_group).scatter_(1, of_group.topk(router.topk_group).indices, 1).bool()
        scores = groups.masked_fill(~chosen.unsqueeze(-1), float("-inf")).flatten(1)
    return min(gap, gap_after(scores, top_k))


def smallest_gap(model, tokens, top_k):
    gaps = []

    def note(module, inputs, output):
        gaps.append(choice_gap(module, output[0], top_k))

    hooks = [module.register_forward_hook(note) for module in model.modules()
             if "topkrouter" in type(module).__name__.lower()]
    with torch.no_grad():
        model(input_ids=tokens, use_cache=False)
    for hook in hooks:
        hook.remove()
    return min(gaps, default=1.0)


def run(program, *words):
    done = subprocess.run([program, *map(str, words)], capture_output=True, text=True)
    if done.returncode != 0:
        raise AssertionError(f"{' '.join(map(str, words))}: {done.stderr.strip()}")
    return done.stdout


def tensors_of(folder):
    found = {}
    for path in sorted(folder.glob("model*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():
                tensor = file.get_tensor(name)
                found[name] = (path.name, str(tensor.dtype), tuple(tensor.shape), tensor.view(torch.uint8).numpy().tobytes())
    return found


def compare(program, prefix, rng, folder):
    """The largest differences, and how many draws of tokens were passed over."""
    settings = draw(rng, prefix)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    model_class = getattr(transformers, prefix + "ForCausalLM")
    model = model_class(getattr(transformers, prefix + "Config")(**settings))
    randomise(model, generator)
    dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    source = folder / "source"
    model.to(dtype).save_pretrained(source, max_shard_size=rng.choice(["5GB", "20KB"]))
    experts = {"experts_implementation": "eager"} if prefix in MOE else {}
    model = model_class.from_pretrained(source, dtype=torch.float32, attn_implementation="eager", **experts)

    redrawn = 0
    while True:
        length = rng.randint(3, 30)
        tokens = torch.randint(0, settings["vocab_size"], (2, length), generator=generator)
        if prefix not in MOE or smallest_gap(model, tokens, settings["num_experts_per_tok"]) > SMALLEST_GAP:
            break
        redrawn += 1
    labels = torch.randint(0, settings["vocab_size"], tokens.shape, generator=generator)
    labels[0, : rng.randrange(3)] = -100
    save_file({"tokens": tokens, "labels": labels}, folder / "tokens.safetensors")
    run(program, "forward", source, "--tokens", folder / "tokens.safetensors", "--out", folder / "out.safetensors",
        "--grads")
    ours = load_file(folder / "out.safetensors")

    logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))
    loss.backward()
    found = {"logits": ((ours["logits"] - logits).abs().max() / logits.abs().max()).item(),
             "loss": (abs(ours["loss"][0] - loss) / loss).item(), "gradients": 0.0}
    expected = disk_gradients(prefix, model)
    names = {name.removeprefix("grad.") for name in ours if name.startswith("grad.")}
    assert names == set(expected), f"gradients differ in names: {sorted(names ^ set(expected))[:4]}"
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        difference = (ours["grad." + name] - gradient).norm()
        error = (difference / torch.clamp(gradient.norm(), min=1e-6 * largest)).item()
        if error > found["gradients"]:
            found["gradients"], found["worst"] = error, name

    run(program, "import", source, folder / "checkpoint")
    run(program, "export", folder / "checkpoint", folder / "again")
    assert tensors_of(source) == tensors_of(folder / "again"), "export gives other tensors than were imported"
    for name in ("config.json", "generation_config.json"):
        assert json.loads((source / name).read_text()) == json.loads((folder / "again" / name).read_text()), name
    model_class.from_pretrained(folder / "again")

    # Tokens are bytes, and token 256 ends a text.
    prompt = torch.tensor([list(rng.choice([b"To be", b"x", b"once upon a time"]))])
    # A fresh model: with dynamic rotary positions one keeps the frequencies of the longest text it has seen.
    model = model_class.from_pretrained(source, dtype=torch.float32, attn_implementation="eager", **experts)
    greedy = model.generate(prompt, attention_mask=torch.ones_like(prompt), do_sample=False, max_new_tokens=32,
                            eos_token_id=256, pad_token_id=256)[0].tolist()
    text = subprocess.run([program, "generate", source, "--prompt", bytes(prompt[0].tolist()), "--tokenizer", "bytes",
                           "--temperature", "0", "--max-tokens", "32"], capture_output=True, check=True).stdout
    found["greedy"] = text == bytes(token for token in greedy if token < 256) + b"\n"
    return settings, found, redrawn


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("families", nargs="*", default=[])
    parser.add_argument("--count", type=int, default=40)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program = pathlib.Path(os.environ.get("SWITCHYARD_BUILD", ROOT / "build")) / "switchyard"
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(1)
    failed = False
    print(f"transformers {transformers.__version__}, torch {torch.__version__}, {options.count} configurations each")
    print(f"{'family':<10} {'logits':>9} {'loss':>9} {'gradients':>9} {'greedy':>7} {'redrawn':>7}")
    for family in options.families or FAMILIES:
        worst = {"logits": 0.0, "loss": 0.0, "gradients": 0.0}
        same_text = redrawn = 0
        for index in range(options.count):
            rng = random.Random(f"{options.seed} {family} {index}")
            with tempfile.TemporaryDirectory() as folder:
                settings = {}
                try:
                    settings, found, again = compare(program, FAMILIES[family], rng, pathlib.Path(folder))
                except AssertionError as error:
                    print(f"{family} {index}: {error}")
                    failed = True
                    continue
            redrawn += again
            same_text += found["greedy"]
            for what, bound in (("logits", LOGITS), ("loss", LOSS), ("gradients", GRADIENTS)):
                worst[what] = max(worst[what], found[what])
                if not found[what] <= bound:
                    print(f"{family} {index}: {what} differ by {found[what]:.2e} {found.get('worst', '')} {settings}")
                    failed = True
            if not found["greedy"]:
                print(f"{family} {index}: another greedy text {settings}")
                failed = True
        print(f"{family:<10} {worst['logits']:>9.1e} {worst['loss']:>9.1e} {worst['gradients']:>9.1e} "
              f"{same_text:>4}/{options.count:<2} {redrawn:>7}", flush=True)
    sys.exit(failed)


main()
