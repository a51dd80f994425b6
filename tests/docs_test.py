"""Runs every command of README.md and docs/*.md, in a folder with small texts, data sets and runs of
the names that the pages use:

    python3 tests/docs_test.py path/to/switchyard
"""

import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent
PROGRAM = None  # set by main

# Commands that are not run here, each with its reason.
SKIPPED = {
    "make quickstart": "three minutes of training; needs packages and a network",
    "make bench": "needs the packages of other projects, and minutes",
    'make bench BENCH="--formats fp32 --rounds 3 --peers transformers/grouped_mm"': "the same",
    "make bench PEERS_PYTHON=path/to/python": "the same",
    "switchyard launch -n 8 --nodes 2 --node-rank 0 --address node0 --port 29500 -- train run.yaml": "two machines",
    "tools/fetch_torch && cmake --preset release && cmake --build build": "builds the program",
}

# Words put after a command so that it ends within seconds.
SHORT = {
    "train": "train.steps=2 train.minutes=0 data.sequence_length=32 model.hidden_size=16"
    " model.num_layers=1 moe.num_experts=2 moe.ffn_hidden_size=8",
    "generate": "--max-tokens 3",
}

COMMAND = re.compile(r"^(?:    |\t)?((?:build/)?switchyard |make |tools/\w+ ?(?:&&|$|--))")


def commands_of(page):
    """The command lines in indented or fenced blocks, without comments."""
    commands = []
    in_fence = False
    for line in re.sub(r"\s*\\\n\s*", " ", page.read_text()).splitlines():
        if line.startswith("```"):
            in_fence = not in_fence
            continue
        if not (in_fence or line.startswith("    ")) or not COMMAND.match(line):
            continue
        command = re.sub(r"\s+#.*$", "", line.strip())
        commands.append(command)
    return commands


# `path`: on a line of its own, and a fenced block.
QUOTED_FILE = re.compile(r"^`([^`]+)`:\n\n```\w*\n(.*?)^```$", re.M | re.S)


def pages():
    return [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


def run(command, folder):
    return subprocess.run(
        ["bash", "-c", command],
        cwd=folder,
        capture_output=True,
        text=True,
        errors="replace",  # an untrained model of bytes writes anything
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )


def make_fixtures(folder):
    """What the pages take for granted."""
    (folder / "build").mkdir()
    (folder / "build/switchyard").symlink_to(PROGRAM)
    (folder / "recipes").symlink_to(ROOT / "recipes")
    for name in ("books", "data", ".deps/text"):
        (folder / name).mkdir(parents=True)
    text = "\n".join(f"line {i} is {i * i % 97}" for i in range(300))
    (folder / "books/one.txt").write_text(text)
    (folder / "books/two.txt").write_text(text[:500])
    (folder / "pages.jsonl").write_text('{"text": "a page"}\n{"text": "another"}\n')
    (folder / "prompts.txt").write_text("line\nline 2\n")
    for name in ("data/books", "data/code", "data/held_out"):
        make(folder, f"build/switchyard tokenize books/*.txt --out {name}")
    for name in ("train_bytes", "heldout_bytes"):
        make(folder, f"build/switchyard tokenize books/*.txt --out .deps/text/{name}")
    for name in ("mine", "longer", "quickstart"):
        make(
            folder,
            "build/switchyard train recipes/quickstart.yaml checkpoint.every=100"
            f" run.dir=runs/{name} " + SHORT["train"].replace("steps=2", "steps=100"),
        )


    make_model(folder)


def make_model(folder):
    """models/tiny, a Hugging Face directory with a tokenizer, what trains on it, and tokens for it."""
    make(
        folder,
        "build/switchyard train recipes/quickstart.yaml run.dir=runs/tiny model.vocab_size=384 "
        + SHORT["train"],
    )
    make(folder, "build/switchyard export runs/tiny models/tiny")
    tokenizer = next((ROOT / "tests/golden/tokenizers/gpt2").glob("tokenizer*.json"))
    shutil.copy(tokenizer, folder / "models/tiny/tokenizer.json")
    (folder / "models/qwen3").mkdir()
    for file in ("tokenizer.json", "tokenizer_config.json"):
        shutil.copy(tokenizer.parent / file, folder / "models/qwen3" / file)
    shutil.copy(tokenizer.parent / "tokenizer_config.json", folder / "models/tiny")
    (folder / "run.yaml").write_text(
        "run: {dir: runs/run}\ndata: {train: data/books, tokenizer: bytes, sequence_length: 32}\n"
        "train: {steps: 2, global_batch_size: 2}\noptimizer: {lr: 0.001}\n"
    )
    ids = list(range(2 * 8))
    entry = {"dtype": "I64", "shape": [2, 8]}
    header = json.dumps(
        {
            "tokens": {**entry, "data_offsets": [0, 128]},
            "labels": {**entry, "data_offsets": [128, 256]},
        }
    ).encode()
    (folder / "tokens.safetensors").write_bytes(
        struct.pack("<Q", len(header)) + header + struct.pack("<32q", *ids, *ids)
    )


def make(folder, command):
    done = run(command, folder)
    if done.returncode != 0:
        sys.exit(f"fixture: {command}\n{done.stdout}{done.stderr}")


class QuotedFilesTest(unittest.TestCase):
    def test_are_the_files(self):
        quoted = QUOTED_FILE.findall((ROOT / "docs/adding_a_family.md").read_text())
        self.assertGreaterEqual(len(quoted), 3)
        for name, text in quoted:
            with self.subTest(file=name):
                self.assertEqual(text, (ROOT / name).read_text())

    def test_the_example_has_every_part(self):
        name = "mistral"
        self.assertTrue((ROOT / "tests/golden/hf" / name / "expected.safetensors").exists())
        self.assertIn(f"| {name} |", (ROOT / "docs/hugging_face.md").read_text())
        self.assertIn("`mistral_7b`", (ROOT / "docs/recipes.md").read_text())
        # Nothing else knows the family.
        for path in (ROOT / "src").rglob("*.*"):
            if path.stem != name:
                self.assertNotRegex(path.read_text(), r"mistral_family|MistralFor", path)


class DocsTest(unittest.TestCase):
    def test_every_command_runs(self):
        num_run = 0
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name)
            make_fixtures(folder)
            for page in pages():
                for command in commands_of(page):
                    if command in SKIPPED:
                        continue
                    with self.subTest(page=page.name, command=command):
                        self.check(command, folder)
                        num_run += 1
        self.assertGreater(num_run, 5)

    def check(self, command, folder):
        line = command
        if line.startswith("switchyard "):
            line = "build/" + line
        word = line.split()[1]
        launcher = ""
        if word == "launch":  # what it starts is treated as a command of its own
            launcher, line = line.split(" -- ")
            launcher += " -- "
            word = line.split()[0]
        if word == "tokenize":
            line += " --force"
        if word == "train":
            # A run of its own, as the fixtures' are over; what SHORT gives is given once.
            # Experts stay as the page has them.
            experts = [word for word in line.split() if word.startswith("moe.")]
            given = [word.split("=")[0] for word in SHORT["train"].split()] + ["run.dir"]
            line = " ".join(word for word in line.split() if word.split("=")[0] not in given)
            line += f" run.dir=runs/of_docs_{len(list((folder / 'runs').iterdir()))}"
        if word in SHORT and "--shrink" not in line:  # which is short by itself
            short = SHORT[word]
            if "model.from=" in line:  # the shape is that model's
                short = " ".join(w for w in short.split() if not w.startswith(("model.", "moe.")))
            if word == "train" and experts:
                own = [w.split("=")[0] for w in experts]
                short = " ".join([w for w in short.split() if w.split("=")[0] not in own])
                short += " " + " ".join(w for w in experts if w not in line)
            line += " " + short
        line = launcher + line
        done = run(line, folder)
        self.assertEqual(done.returncode, 0, f"{line}\n{done.stdout}{done.stderr}")

    def test_skipped_commands_exist(self):
        found = {command for page in pages() for command in commands_of(page)}
        self.assertEqual(set(SKIPPED) - found, set(), "skipped, but in no page")


if __name__ == "__main__":
    PROGRAM = pathlib.Path(sys.argv.pop(1)).resolve()
    unittest.main()
