"""Times `switchyard tokenize` from start to written data set against the tokenizers package on the same cores.

    python3 bench/tokenize.py build/switchyard TOKENIZER.json FOLDER TEXT... [--mb 64] [--rounds 5]

Needs a Python with the packages tokenizers and numpy. A .jsonl of documents of 1 to 8 kB is cut from the TEXT files,
again and again until it has --mb megabytes. The package reads the same lines, encodes them with encode_batch_fast (all
cores, no offsets) and writes the ids as one array; switchyard writes .bin, .idx and .json. The two alternate, each run in
a process of its own; the ratio is of medians. Both must find the same ids.
"""

import argparse
import json
import pathlib
import random
import statistics
import subprocess
import sys
import time

PEER = """
import json, sys
import numpy
from tokenizers import Tokenizer
tokenizer = Tokenizer.from_file(sys.argv[1])
lines = 2000
with open(sys.argv[2]) as source, open(sys.argv[3], "wb") as out:
    batch = []
    def flush():
        for one in tokenizer.encode_batch_fast(batch, add_special_tokens=False):
            out.write(numpy.array(one.ids, dtype=numpy.int32).tobytes())
        batch.clear()
    for line in source:
        batch.append(json.loads(line)["text"])
        if len(batch) == lines:
            flush()
    flush()
"""


def write_corpus(path, texts, megabytes):
    whole = "\n".join(pathlib.Path(text).read_text(encoding="utf-8", errors="replace") for text in texts)
    draw, size, at = random.Random(1), 0, 0
    with open(path, "w", encoding="utf-8") as out:
        while size < megabytes * 1_000_000:
            length = draw.randrange(1000, 8000)
            if at + length > len(whole):
                at = draw.randrange(0, max(1, len(whole) - length))
            line = json.dumps({"text": whole[at : at + length]}, ensure_ascii=False) + "\n"
            out.write(line)
            size += len(line.encode())
            at += length


def seconds(command):
    begin = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return time.monotonic() - begin


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("switchyard")
    parser.add_argument("tokenizer")
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("texts", nargs="+")
    parser.add_argument("--mb", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    corpus = options.folder / "corpus.jsonl"
    write_corpus(corpus, options.texts, options.mb)
    ours = [options.switchyard, "tokenize", str(corpus), "--tokenizer", options.tokenizer, "--out",
            str(options.folder / "ours"), "--force", "--token-type", "int32", "--end-of-document", "none"]
    theirs = [sys.executable, "-c", PEER, options.tokenizer, str(corpus), str(options.folder / "theirs.bin")]
    times = {"switchyard": [], "tokenizers": []}
    for _ in range(options.rounds):
        times["switchyard"].append(seconds(ours))
        times["tokenizers"].append(seconds(theirs))
    same = (options.folder / "ours.bin").read_bytes() == (options.folder / "theirs.bin").read_bytes()
    medians = {name: statistics.median(values) for name, values in times.items()}
    for name, median in medians.items():
        print(f"{name:<12}{corpus.stat().st_size / median / 1e6:8.1f} MB/s  (median {median:.2f} s of {options.rounds})")
    print(f"ratio       {medians['tokenizers'] / medians['switchyard']:8.2f}")
    print("ids         " + ("equal" if same else "DIFFER"))
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
