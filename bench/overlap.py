"""Trains on two ranks over a slow link, with and without parallel.expert_overlap.

    python3 bench/overlap.py build/switchyard FOLDER [--latency-us 500] [--gb-per-s 0.2] [--rounds 3]

Needs the text of `make quickstart` and a quiet machine with two cores. Each rank has half of the experts of a model of 11 million
parameters; a step is eight micro-batches of 512 tokens on each. The link between the ranks' experts has the latency and bandwidth
given (parallel.slow_link). Printed per step, of rank 0: its time, the time it waited for dispatch and combine, and the time in which
they went on while it computed. All runs must end with the same losses.
"""

import argparse
import json
import pathlib
import shutil
import statistics
import subprocess

MODEL = """
model: {num_layers: 4, hidden_size: 256, num_attention_heads: 8}
moe: {num_experts: 8, top_k: 2, ffn_hidden_size: 512}
data: {train: [.deps/text/train_bytes], tokenizer: bytes, sequence_length: 512}
train: {steps: 3, global_batch_size: 16, micro_batch_size: 1, threads: 1}
optimizer: {lr: 1e-3}
parallel: {expert_size: 2}
metrics: {tensorboard: false}
"""


def train(options, settings):
    run = options.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    config = options.folder / "model.yaml"
    config.write_text(MODEL)
    subprocess.run([options.switchyard, "launch", "-n", "2", "--", "train", str(config), f"run.dir={run}", *settings],
                   check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    steps = [json.loads(line) for line in open(run / "metrics.jsonl")]
    times = {
        "step": [s["step_time_s"] for s in steps[1:]],
        "waited": [s["dispatch_time_s"] + s["combine_time_s"] for s in steps[1:]],
        "hidden": [s["dispatch_hidden_s"] + s["combine_hidden_s"] for s in steps[1:]],
    }
    return times, [s["loss_sum"] for s in steps]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--latency-us", type=float, default=500)
    parser.add_argument("--gb-per-s", type=float, default=0.2)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    link = ["parallel.slow_link=[ep]", f"parallel.link_latency_us={options.latency_us}",
            f"parallel.link_gb_per_s={options.gb_per_s}"]
    choices = {
        "slow link": link,
        "slow link, overlapped": [*link, "parallel.expert_overlap=true"],
        "no slow link": [],
        "no slow link, overlapped": ["parallel.expert_overlap=true"],
    }
    measured = {name: {"step": [], "waited": [], "hidden": []} for name in choices}
    expected = None
    for _ in range(options.rounds):
        for name, settings in choices.items():
            times, losses = train(options, settings)
            expected = expected or losses
            if losses != expected:
                raise SystemExit(f"{name}: the losses differ: {losses} and {expected}")
            for kind, seconds in times.items():
                measured[name][kind] += seconds
    print("| | step, s | waited for dispatch and combine, s | hidden, s | hidden share |")
    print("| --- | --- | --- | --- | --- |")
    for name, times in measured.items():
        step, waited, hidden = (statistics.median(times[kind]) for kind in ("step", "waited", "hidden"))
        print(f"| {name} | {step:.3f} | {waited:.3f} | {hidden:.3f} | {hidden / (hidden + waited):.2f} |")


if __name__ == "__main__":
    main()
