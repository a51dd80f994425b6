"""Measures the memory of each rank of a pipeline by schedule: parallel.pipeline_schedule and parallel.expert_overlap.

    python3 bench/pipeline_memory.py build/switchyard FOLDER [--micro-batches 8]

Needs the text of `make quickstart`. Four ranks of a pipeline, one process each, take a step of a model of eight layers. Memory
is the most that was resident (ru_maxrss), less that of the same run with one micro-batch of 16 tokens, in MiB. All runs with the
same batches must end with the same losses.
"""

import argparse
import json
import os
import pathlib
import shutil
import socket
import subprocess

RANKS = 4
MODEL = """
model: {num_layers: 8, hidden_size: 256, num_attention_heads: 8, ffn_hidden_size: 768}
moe: {num_experts: 8, top_k: 2, ffn_hidden_size: 256, first_dense_layers: 2}
data: {train: [.deps/text/train_bytes], tokenizer: bytes, sequence_length: 512}
train: {steps: 1, micro_batch_size: 1, threads: 1}
optimizer: {lr: 1e-3}
parallel: {pipeline_size: 4}
metrics: {tensorboard: false}
"""
CHOICES = {
    "1f1b": [],
    "zero_bubble": ["parallel.pipeline_schedule=zero_bubble"],
    "expert_overlap": ["parallel.expert_overlap=true"],
}


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def train(options, micro_batches, settings):
    """Returns the most MiB that each rank held, and the losses."""
    run = options.folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    config = options.folder / "model.yaml"
    config.write_text(MODEL)
    command = [options.switchyard, "train", str(config), f"run.dir={run}", f"train.global_batch_size={micro_batches}", *settings]
    # glibc gives freed blocks of this size back at once: what is resident is then what is in use.
    shared = dict(os.environ, MALLOC_MMAP_THRESHOLD_="500000", WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1",
                  MASTER_PORT=str(free_port()))
    ranks = [subprocess.Popen(command, env=dict(shared, RANK=str(rank), LOCAL_RANK=str(rank)), stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL) for rank in range(RANKS)]
    memory = []
    for rank in ranks:
        _, status, usage = os.wait4(rank.pid, 0)
        if status != 0:
            raise SystemExit(f"a rank failed: {' '.join(command)}")
        memory.append(usage.ru_maxrss / 1024)
    return memory, [json.loads(line)["loss_sum"] for line in open(run / "metrics.jsonl")]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--micro-batches", type=int, default=8)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)

    least, _ = train(options, 1, ["data.sequence_length=16"])
    expected = None
    print("| schedule | " + " | ".join(f"rank {rank}" for rank in range(RANKS)) + " |")
    print("| --- |" + " --- |" * RANKS)
    for name, settings in CHOICES.items():
        memory, losses = train(options, options.micro_batches, settings)
        expected = expected or losses
        if any(abs(a - b) > 1e-4 * abs(b) for a, b in zip(losses, expected)):
            raise SystemExit(f"{name}: the losses differ: {losses} and {expected}")
        print(f"| {name} | " + " | ".join(f"{most - base:.0f}" for most, base in zip(memory, least)) + " |")


if __name__ == "__main__":
    main()
