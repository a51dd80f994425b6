"""Times training on four ranks for each value of parallel.data_sharding, and measures the memory of a rank.

    python3 bench/data_sharding.py build/switchyard FOLDER [--ranks 4] [--rounds 3] [--precision fp32]

glibc is told to give freed blocks back (MALLOC_MMAP_THRESHOLD_=500000), so that what is resident is what is held.

Needs the text of `make quickstart`. The runs alternate; each is ten steps of a model of 21 million parameters, of which the
first two are not counted. Prints the median step, and its ratio to that of `none`, the largest resident memory of a rank, and
how far the losses are from those of `none`: those of `optimizer` are equal, the others' are where a rank has one micro-batch.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import statistics
import subprocess

MODEL = """
model: {num_layers: 8, hidden_size: 256, num_attention_heads: 8}
moe: {num_experts: 16, top_k: 2, ffn_hidden_size: 192, aux_loss_coeff: 0.01}
data: {train: [.deps/text/train_bytes], tokenizer: bytes, sequence_length: 256}
train: {steps: 10, global_batch_size: 16, micro_batch_size: 2, threads: 1}
optimizer: {lr: 1e-3}
metrics: {tensorboard: false}
checkpoint: {every: 0}
"""


SHARDINGS = ("none", "optimizer", "gradients", "parameters")


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(options, sharding):
    run = options.folder / sharding
    shutil.rmtree(run, ignore_errors=True)
    config = options.folder / "model.yaml"
    config.write_text(MODEL)
    port = str(free_port())
    ranks = []
    for rank in range(options.ranks):
        environment = dict(os.environ, RANK=str(rank), WORLD_SIZE=str(options.ranks), LOCAL_RANK=str(rank),
                           MASTER_ADDR="127.0.0.1", MASTER_PORT=port, MALLOC_MMAP_THRESHOLD_="500000")
        ranks.append(subprocess.Popen(
            [options.switchyard, "train", str(config), f"run.dir={run}", f"parallel.data_sharding={sharding}",
             f"train.precision={options.precision}"], env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
    memory = 0
    for one in ranks:
        _, status, usage = os.wait4(one.pid, 0)
        if status != 0:
            raise SystemExit(f"a rank of {sharding} ended with status {status}")
        memory = max(memory, usage.ru_maxrss)
    steps = [json.loads(line) for line in open(run / "metrics.jsonl")]
    return [step["step_time_s"] for step in steps[2:]], [step["loss_sum"] for step in steps], memory / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--ranks", type=int, default=4)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", default="fp32")
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    times, losses, memory = {}, {}, {}
    for _ in range(options.rounds):
        for sharding in SHARDINGS:
            seconds, loss, peak = train(options, sharding)
            times.setdefault(sharding, []).extend(seconds)
            losses.setdefault(sharding, []).append(loss)
            memory.setdefault(sharding, []).append(peak)
    for sharding in times:
        median = statistics.median(times[sharding])
        apart = max(abs(one - none) / none for run in losses[sharding] for one, none in zip(run, losses["none"][0]))
        print(f"{sharding:<10} median step {median * 1000:7.1f} ms, {median / statistics.median(times['none']):.2f} of none, "
              f"largest rank {statistics.median(memory[sharding]):6.0f} MiB, losses within {apart:.1g}")


if __name__ == "__main__":
    main()
