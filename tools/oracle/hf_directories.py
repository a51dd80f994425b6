"""Makes tests/golden/hf: tiny random Hugging Face directories of every family, with what transformers makes of them.

    python tools/oracle/hf_directories.py tests/golden/hf              all
    python tools/oracle/hf_directories.py tests/golden/hf qwen3 olmoe  some

Each folder is what save_pretrained writes, in one of the forms that published models have (one file or shards, fp32,
fp16 or bf16, tied or not, old or new spelling of the configuration), and expected.safetensors beside it: tokens, labels,
and logits, loss and gradients in fp32 of the weights as they are stored. The families are those of hf_families/.

Needs torch, transformers and safetensors in an environment of their own.
"""

import copy
import json
import pathlib
import shutil
import sys
import tempfile

import torch
import transformers
from safetensors.torch import save_file

import hf_families

SIZES = dict(vocab_size=48, hidden_size=16, intermediate_size=20, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 10000.0})


def spell_as_before(folder):
    """As files published before transformers 5 say it."""
    path = folder / "config.json"
    fields = json.loads(path.read_text())
    parameters = fields.pop("rope_parameters")
    for name in ("rope_theta", "partial_rotary_factor"):
        if name in parameters:
            fields[name] = parameters.pop(name)
    parameters["type"] = parameters.pop("rope_type")
    fields["rope_scaling"] = None if parameters["type"] == "default" else parameters
    fields["torch_dtype"] = fields.pop("dtype")
    path.write_text(json.dumps(fields, indent=2, sort_keys=True) + "\n")


def make(folder, family, config, dtype, shard="5GB", old_spelling=False, store=None, whole=False):
    torch.manual_seed(11)
    config = family.config_class(**copy.deepcopy(config if whole else {**SIZES, **config}))
    shutil.rmtree(folder, ignore_errors=True)
    hf_families.randomised(family, config, None).to(dtype).save_pretrained(folder, max_shard_size=shard)
    if old_spelling:
        spell_as_before(folder)
    model = hf_families.load(family, folder) if store is None else store(family, folder)
    tokens = torch.randint(0, config.vocab_size, (2, 13))
    labels = torch.randint(0, config.vocab_size, (2, 13))
    labels[0, :3] = -100
    logits = model(input_ids=tokens, use_cache=False).logits
    loss = torch.nn.functional.cross_entropy(logits.view(-1, config.vocab_size), labels.view(-1))
    loss.backward()
    tensors = {"tokens": tokens, "labels": labels, "logits": logits.detach(), "loss": loss.detach().reshape(1)}
    with tempfile.TemporaryDirectory() as other:
        for name, gradient in hf_families.gradients_on_disk(model, other).items():
            tensors["grad." + name] = gradient
    save_file({name: tensor.clone().contiguous() for name, tensor in tensors.items()},
              folder / "expected.safetensors")
    for file in folder.iterdir():
        file.chmod(0o644)


root = pathlib.Path(sys.argv[1])
for name in sys.argv[2:] or hf_families.names():
    one = hf_families.family(name)
    for case, golden in one.goldens.items():
        make(root / case, one, **golden)
        print(case, sum(file.stat().st_size for file in (root / case).iterdir()))
(root / "README.md").write_text(f"""# Tiny Hugging Face directories

One per family, as transformers {transformers.__version__} writes it, and what transformers makes of it (torch
{torch.__version__.split("+")[0]}, fp32, CPU, eager). Made by `python tools/oracle/hf_directories.py tests/golden/hf`.
""")
