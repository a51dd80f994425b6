"""Compares every family with transformers on configurations drawn at random.

    tests/parity/run families_parity.py [--count 40] [--seed 1] [family ...]

For each of tools/oracle/hf_families: a random model of transformers, every parameter and buffer randomised, is saved, in
fp32, fp16 or bf16, in one file or several; `switchyard forward` must give its logits within 1e-5 of the largest, its
loss within 1e-6, and every gradient within 1e-4 (norm of the difference over norm); `switchyard generate` the same
greedy 32 tokens; import and export the same bytes. Both compute in fp32. Tokens are drawn again, and counted, where a
choice of experts hangs on rounding, or where transformers in fp32 is farther than half a bound from itself in fp64, as
it is or with its parameters moved by their last bit.

Runs in the environment that tools/peers makes (6 GB), or that of the Python in PEERS_PYTHON.
"""

import argparse
import copy
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

sys.path.insert(0, str(ROOT / "tools/oracle"))
import hf_families

BOUNDS = {"logits": 1e-5, "loss": 1e-6, "gradients": 1e-4}
NUDGE = 3e-6  # of embeddings, relative: what rounding can do to a router's scores
JUMP = 1e-3   # of logits, relative: another expert has been chosen
LAST_BIT = 6e-8  # of a parameter, relative: sums that cancel show by it how much of them is rounding
MOST_REDRAWS = 20


def relative(actual, expected):
    return ((actual.double() - expected.double()).abs().max() / expected.abs().max()).item()


def gradient_error(actual, expected, largest):
    difference = (actual.double() - expected.double()).norm()
    return (difference / torch.clamp(expected.double().norm(), min=1e-6 * largest)).item()


def loss_of(model, tokens, labels):
    logits = model(input_ids=tokens, use_cache=False).logits
    return logits, torch.nn.functional.cross_entropy(logits.view(-1, logits.shape[-1]), labels.view(-1))


@torch.no_grad()
def hangs_on_rounding(model, tokens):
    """Whether a nudge of the embeddings makes the logits jump."""
    expected = model(input_ids=tokens, use_cache=False).logits
    generator = torch.Generator().manual_seed(1)

    def nudge(module, inputs, output):
        return output * (1 + NUDGE * torch.randn(output.shape, generator=generator))

    hook = model.get_input_embeddings().register_forward_hook(nudge)
    jumps = [relative(model(input_ids=tokens, use_cache=False).logits, expected) for _ in range(3)]
    hook.remove()
    return max(jumps) > JUMP


def with_last_bits_moved(model, seed):
    moved = copy.deepcopy(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter.mul_(1 + LAST_BIT * torch.randn(parameter.shape, generator=generator))
    return moved


def outputs_of(model, tokens, labels):
    """Logits, the loss and the gradients of a model, which is used up."""
    logits, loss = loss_of(model, tokens, labels)
    loss.backward()
    return logits.detach(), loss.item(), [torch.zeros_like(one) if one.grad is None else one.grad
                                          for one in model.parameters()]


def own_rounding(model, tokens, labels):
    """How far transformers in fp32 is from itself in fp64."""
    exact_logits, exact_loss, exact_gradients = outputs_of(copy.deepcopy(model).double(), tokens, labels)
    largest = max(gradient.norm() for gradient in exact_gradients)
    errors = {"logits": 0.0, "loss": 0.0, "gradients": 0.0}
    for rounded in [copy.deepcopy(model), with_last_bits_moved(model, 1), with_last_bits_moved(model, 2)]:
        logits, loss, gradients = outputs_of(rounded, tokens, labels)
        found = {"logits": relative(logits, exact_logits), "loss": abs(loss - exact_loss) / exact_loss,
                 "gradients": max(gradient_error(one, exact, largest)
                                  for one, exact in zip(gradients, exact_gradients))}
        errors = {what: max(errors[what], found[what]) for what in errors}
    return errors


def draw_tokens(model, rng, generator, bounds):
    """Tokens, labels, and how many draws were passed over."""
    for redrawn in range(MOST_REDRAWS):
        tokens = torch.randint(0, 257, (2, rng.randint(3, 30)), generator=generator)
        labels = torch.randint(0, 257, tokens.shape, generator=generator)
        labels[0, : rng.randrange(3)] = -100
        errors = own_rounding(model, tokens, labels)
        if all(errors[what] < bound / 2 for what, bound in bounds.items()) and not hangs_on_rounding(model, tokens):
            return tokens, labels, redrawn
    raise AssertionError(f"transformers' own rounding is too large in {MOST_REDRAWS} draws: {errors}")


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


def compare(program, family, rng, bounds, folder):
    """The configuration, the largest differences, and how many draws of tokens were passed over."""
    settings = family.draw(rng)
    generator = torch.Generator().manual_seed(rng.randrange(1 << 30))
    model = hf_families.randomised(family, family.config_class(**settings), generator)
    dtype = rng.choice([torch.float32, torch.float32, torch.bfloat16, torch.float16])
    source = folder / "source"
    model.to(dtype).save_pretrained(source, max_shard_size=rng.choice(["5GB", "20KB"]))
    model = hf_families.load(family, source)
    tokens, labels, redrawn = draw_tokens(model, rng, generator, bounds)
    save_file({"tokens": tokens, "labels": labels}, folder / "tokens.safetensors")
    run(program, "forward", source, "--tokens", folder / "tokens.safetensors", "--out", folder / "out.safetensors",
        "--grads")
    ours = load_file(folder / "out.safetensors")

    model = hf_families.load(family, source)  # dynamic rotary frequencies remember longer texts
    logits, loss = loss_of(model, tokens, labels)
    loss.backward()
    found = {"logits": relative(ours["logits"], logits), "loss": (abs(ours["loss"][0] - loss) / loss).item(),
             "gradients": 0.0}
    expected = hf_families.gradients_on_disk(model, folder / "gradients")
    names = {name.removeprefix("grad.") for name in ours if name.startswith("grad.")}
    assert names == set(expected), f"gradients differ in names: {sorted(names ^ set(expected))[:4]}"
    largest = max(gradient.norm() for gradient in expected.values())
    for name, gradient in expected.items():
        error = gradient_error(ours["grad." + name], gradient, largest)
        if error > found["gradients"]:
            found["gradients"], found["worst"] = error, name

    run(program, "import", source, folder / "checkpoint")
    run(program, "export", folder / "checkpoint", folder / "again")
    assert tensors_of(source) == tensors_of(folder / "again"), "export gives other tensors than were imported"
    for name in ("config.json", "generation_config.json"):
        assert json.loads((source / name).read_text()) == json.loads((folder / "again" / name).read_text()), name
    hf_families.load(family, folder / "again")

    # Tokens are bytes, and token 256 ends a text.
    prompt = torch.tensor([list(rng.choice([b"To be", b"x", b"once upon a time"]))])
    model = hf_families.load(family, source)
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
    print(f"{'family':<12} {'logits':>9} {'loss':>9} {'gradients':>9} {'greedy':>7} {'redrawn':>7}")
    for family in map(hf_families.family, options.families or hf_families.names()):
        bounds = {**BOUNDS, **family.bounds}
        worst = {"logits": 0.0, "loss": 0.0, "gradients": 0.0}
        same_text = redrawn = 0
        for index in range(options.count):
            rng = random.Random(f"{options.seed} {family.name} {index}")
            with tempfile.TemporaryDirectory() as folder:
                settings = {}
                try:
                    settings, found, again = compare(program, family, rng, bounds, pathlib.Path(folder))
                except AssertionError as error:
                    print(f"{family.name} {index}: {error}")
                    failed = True
                    continue
            redrawn += again
            same_text += found["greedy"]
            for what, bound in bounds.items():
                worst[what] = max(worst[what], found[what])
                if not found[what] <= bound:
                    print(f"{family.name} {index}: {what} differ by {found[what]:.2e} {found.get('worst', '')} {settings}")
                    failed = True
            if not found["greedy"]:
                print(f"{family.name} {index}: another greedy text {settings}")
                failed = True
        print(f"{family.name:<12} {worst['logits']:>9.1e} {worst['loss']:>9.1e} {worst['gradients']:>9.1e} "
              f"{same_text:>4}/{options.count:<2} {redrawn:>7}", flush=True)
    sys.exit(failed)


main()
