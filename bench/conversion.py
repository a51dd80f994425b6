"""Times import and export of a large model against `cp` and `sync` of the same files, and measures their memory.

    python3 bench/conversion.py build/switchyard FOLDER [--gb 4] [--rounds 5]

FOLDER needs room for three times the model, and memory should hold as much. The model has Mixtral's shape with fewer layers, random bytes as bf16 weights.
Copies and conversions alternate; ratios are of medians. Memory is the anonymous memory of the process, the largest seen
in /proc/PID/smaps_rollup: pages of files do not count.
"""

import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import time

HIDDEN, FFN, EXPERTS, HEADS, KV_HEADS, VOCAB = 2048, 7168, 8, 16, 4, 32000


def model_tensors(num_layers):
    yield "model.embed_tokens.weight", [VOCAB, HIDDEN]
    for layer in range(num_layers):
        stem = f"model.layers.{layer}."
        head = HIDDEN // HEADS
        yield stem + "input_layernorm.weight", [HIDDEN]
        yield stem + "self_attn.q_proj.weight", [HIDDEN, HIDDEN]
        yield stem + "self_attn.k_proj.weight", [KV_HEADS * head, HIDDEN]
        yield stem + "self_attn.v_proj.weight", [KV_HEADS * head, HIDDEN]
        yield stem + "self_attn.o_proj.weight", [HIDDEN, HIDDEN]
        yield stem + "post_attention_layernorm.weight", [HIDDEN]
        yield stem + "block_sparse_moe.gate.weight", [EXPERTS, HIDDEN]
        for expert in range(EXPERTS):
            yield stem + f"block_sparse_moe.experts.{expert}.w1.weight", [FFN, HIDDEN]
            yield stem + f"block_sparse_moe.experts.{expert}.w2.weight", [HIDDEN, FFN]
            yield stem + f"block_sparse_moe.experts.{expert}.w3.weight", [FFN, HIDDEN]
    yield "model.norm.weight", [HIDDEN]
    yield "lm_head.weight", [VOCAB, HIDDEN]


def num_bytes(shape):
    total = 2
    for size in shape:
        total *= size
    return total


def make_model(folder, gigabytes):
    layer_bytes = sum(num_bytes(s) for n, s in model_tensors(1) if n.startswith("model.layers"))
    num_layers = max(1, round(gigabytes * 1e9 / layer_bytes))
    folder.mkdir(parents=True)
    (folder / "config.json").write_text(json.dumps({
        "architectures": ["MixtralForCausalLM"], "model_type": "mixtral", "hidden_size": HIDDEN, "dtype": "bfloat16",
        "intermediate_size": FFN, "num_attention_heads": HEADS, "num_key_value_heads": KV_HEADS, "vocab_size": VOCAB,
        "num_hidden_layers": num_layers, "num_local_experts": EXPERTS}, indent=2, sort_keys=True))
    shards, size = [[]], 0
    for name, shape in model_tensors(num_layers):
        if size + num_bytes(shape) > 2e9:
            shards.append([])
            size = 0
        shards[-1].append((name, shape))
        size += num_bytes(shape)
    block, weight_map = os.urandom(1 << 24), {}
    for number, shard in enumerate(shards, 1):
        file = f"model-{number:05}-of-{len(shards):05}.safetensors"
        header, offset = {}, 0
        for name, shape in shard:
            header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [offset, offset + num_bytes(shape)]}
            offset += num_bytes(shape)
            weight_map[name] = file
        text = json.dumps(header).encode()
        text += b" " * (-len(text) % 8)
        with open(folder / file, "wb") as out:
            out.write(len(text).to_bytes(8, "little") + text)
            while offset > 0:
                out.write(block[:offset])
                offset -= len(block)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": weight_map}))
    return sum(path.stat().st_size for path in folder.iterdir())


def data_offset(file):
    with open(file, "rb") as opened:
        return 8 + int.from_bytes(opened.read(8), "little")


def anonymous_bytes(pid):
    try:
        for line in open(f"/proc/{pid}/smaps_rollup"):
            if line.startswith("Anonymous:"):
                return int(line.split()[1]) * 1024
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        pass
    return 0


def warm(folder):
    for file in folder.glob("*.safetensors"):
        with open(file, "rb") as opened:
            while opened.read(1 << 24):
                pass


def timed(words):
    """Seconds until the command is done and its files are on disk, and its largest anonymous memory."""
    start, largest = time.monotonic(), 0
    process = subprocess.Popen([str(word) for word in words], stdout=subprocess.DEVNULL)
    while process.poll() is None:
        largest = max(largest, anonymous_bytes(process.pid))
        time.sleep(0.05)
    assert process.returncode == 0, words
    os.sync()
    return time.monotonic() - start, largest


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--gb", type=float, default=4)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    source, checkpoint = options.folder / "source", options.folder / "checkpoint"
    copy, again = options.folder / "copy", options.folder / "again"
    shutil.rmtree(options.folder, ignore_errors=True)
    size = make_model(source, options.gb)
    os.sync()
    seconds, memory = {"cp": [], "import": [], "export": []}, {}
    for _ in range(options.rounds):
        for name, made, words in (("cp", copy, ["cp", "-r", source, copy]),
                                  ("import", checkpoint, [options.program, "import", source, checkpoint]),
                                  ("export", again, [options.program, "export", checkpoint, again])):
            # Each with its input in the page cache, and with room for its output.
            shutil.rmtree(copy, ignore_errors=True)
            shutil.rmtree(made, ignore_errors=True)
            warm(checkpoint if name == "export" else source)
            os.sync()
            elapsed, largest = timed(words)
            seconds[name].append(elapsed)
            memory[name] = max(memory.get(name, 0), largest)
    for file in source.glob("*.safetensors"):
        # Behind the headers, which may name the same tensors in other words.
        skip = f"--ignore-initial={data_offset(file)}:{data_offset(again / file.name)}"
        subprocess.run(["cmp", skip, file, again / file.name], check=True)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    largest_tensor = max(num_bytes(shape) for _, shape in model_tensors(1))
    print(f"{size / 1e9:.2f} GB, largest tensor {largest_tensor / 1e6:.0f} MB, {options.rounds} rounds; tensors byte-equal")
    for name in ("cp", "import", "export"):
        line = f"{name:<7} {medians[name]:6.2f} s (from {min(seconds[name]):.2f} to {max(seconds[name]):.2f})"
        if name != "cp":
            line += f"  speed {medians['cp'] / medians[name]:.2f} of cp and sync, anonymous memory {memory[name] / 1e6:.0f} MB"
        print(line)
    shutil.rmtree(options.folder)


main()
