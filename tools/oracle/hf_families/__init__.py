"""Families of transformers as the comparisons make them: one file each, found by its name.

    CLASS    the prefix of its classes: "Qwen3Moe" has Qwen3MoeForCausalLM and Qwen3MoeConfig
    CONFIG   the configuration's class where it is named otherwise
    LIBRARY  the module of the classes where it is not transformers: a reference of our own
    GOLDEN   dict(config=, dtype=, shard=, old_spelling=, whole=): the tiny directory in tests/golden/hf; `whole`
             where the configuration is not besides the usual SIZES
    STORED   {"gpt_oss_mxfp4": dict(config=, dtype=, store=)}: more such directories, in which weights are encoded.
             store (family, folder) rewrites the folder and returns the model that it stands for, in fp32
    draw     (random.Random) -> the fields of a random configuration, with vocab_size=257
    BOUNDS   dict(gradients=2e-4): where the class's own rounding needs others than the usual
    randomise  (name, tensor, noise) -> the values of a parameter that must stay in a range, or None for the usual
"""

import importlib
import pathlib
import types

import torch
import transformers


def names():
    others = ("__init__", "draws")
    return sorted(path.stem for path in pathlib.Path(__file__).parent.glob("*.py") if path.stem not in others)


def family(name):
    module = importlib.import_module("." + name, __name__)
    library = getattr(module, "LIBRARY", transformers)
    return types.SimpleNamespace(
        name=name, goldens={name: module.GOLDEN, **getattr(module, "STORED", {})}, draw=module.draw, bounds=getattr(module, "BOUNDS", {}),
        config_class=getattr(library, getattr(module, "CONFIG", module.CLASS + "Config")),
        model_class=getattr(library, module.CLASS + "ForCausalLM"),
        randomise=getattr(module, "randomise", lambda name, tensor, noise: None))


def randomised(family, config, generator):
    """A model whose every parameter and buffer is random, norms and biases too, so that one that is dropped or swapped
    shows."""
    model = family.model_class(config)
    with torch.no_grad():
        for name, tensor in [*model.named_parameters(), *model.named_buffers()]:
            if "inv_freq" in name or not tensor.is_floating_point():
                continue
            noise = torch.randn(tensor.shape, generator=generator)
            values = family.randomise(name, tensor, noise)
            if values is None:
                values = 1 + 0.25 * noise if "norm" in name else (0.5 if name.endswith("bias") else 0.25) * noise
            tensor.copy_(values)
    return model


def load(family, folder):
    """As stored, computing in fp32 by the plain formulas."""
    return family.model_class.from_pretrained(folder, dtype=torch.float32, attn_implementation="eager",
                                              experts_implementation="eager")


def gradients_on_disk(model, folder):
    """The gradients of a model, which is lost, by the names and in the shapes that its tensors have on disk: it is
    saved with gradients for weights. What is not trained has none, and is told by its NaNs."""
    from safetensors.torch import load_file

    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("e_score_correction_bias"):  # a parameter of ERNIE-4.5, and trained by no gradient
                parameter.fill_(float("nan"))
                continue
            parameter.data = torch.zeros_like(parameter) if parameter.grad is None else parameter.grad.clone()
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.fill_(float("nan"))
    model.save_pretrained(folder)
    found = {}
    for path in sorted(pathlib.Path(folder).glob("*.safetensors")):
        found.update(load_file(path))
    return {name: tensor for name, tensor in found.items() if not tensor.isnan().any()}
