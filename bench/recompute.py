"""Measures the memory and time of each choice of train.recompute.

    python3 bench/recompute.py build/switchyard FOLDER [--precision fp32] [--rounds 3]

Needs the text of `make quickstart`. Each run is four steps of a model of 11 million parameters on 8,192 tokens at once, in a
process of its own; the choices alternate. Memory is the most that was resident (ru_maxrss), less that of a run on 64 tokens.
All runs must end with the same losses.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess

MODEL = """
model: {num_layers: 6, hidden_size: 256, num_attention_heads: 8, ffn_hidden_size: 768}
moe: {num_experts: 8, top_k: 2, ffn_hidden_size: 256, first_dense_layers: 2, shared_expert_ffn_hidden_size: 256}
data: {train: [.deps/text/train_bytes], tokenizer: bytes, sequence_length: 512}
train: {steps: 4, global_batch_size: 16, micro_batch_size: 16}
optimizer: {lr: 1e-3}
metrics: {tensorboard: false}
"""
CHOICES = {
    "none": [],
    "norms": ["norms"],
    "core_attention": ["core_attention"],
    "mlp": ["mlp"],
    "experts": ["experts"],
    "shared_expert": ["shared_expert"],
    "moe": ["moe"],
    "norms, core_attention, mlp, moe": ["norms", "core_attention", "mlp", "moe"],
    "full": None,
}
SMALL = ["data.sequence_length=64", "train.global_batch_size=1", "train.micro_batch_size=1"]


def train(options, modules, overrides=()):
    run = options.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    config = options.folder / "model.yaml"
    config.write_text(MODEL)
    settings = [f"run.dir={run}", f"train.precision={options.precision}", *overrides]
    if modules is None:
        settings.append("train.recompute=full")
    elif modules:
        settings += ["train.recompute=modules", f"train.recompute_modules=[{','.join(modules)}]"]
    # glibc gives freed blocks of this size back at once: what is resident is then what is in use.
    environment = dict(os.environ, MALLOC_MMAP_THRESHOLD_="500000")
    process = subprocess.Popen([options.switchyard, "train", str(config), *settings], env=environment,
                               stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status != 0:
        raise SystemExit(f"the run with {modules} failed")
    steps = [json.loads(line) for line in open(run / "metrics.jsonl")]
    return usage.ru_maxrss / 1024, statistics.median(s["step_time_s"] for s in steps[1:]), [s["loss_sum"] for s in steps]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--precision", default="fp32")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    base = train(options, [], SMALL)[0]
    memory, ratios, losses = {}, {}, set()
    for _ in range(options.rounds):
        plain_time = None
        for name, modules in CHOICES.items():
            peak, step, loss = train(options, modules)
            plain_time = plain_time or step
            memory.setdefault(name, []).append(peak - base)
            ratios.setdefault(name, []).append(step / plain_time)
            losses.add(str(loss))
    plain = statistics.median(memory["none"])
    print("| recomputed | activations, MiB | of none | step |\n| --- | --- | --- | --- |")
    for name in CHOICES:
        peak = statistics.median(memory[name])
        print(f"| {name} | {peak:.0f} | {peak / plain:.2f} | {statistics.median(ratios[name]):.2f} |")
    print("losses " + ("equal to the bit" if len(losses) == 1 else "DIFFER"))


if __name__ == "__main__":
    main()
