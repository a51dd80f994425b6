"""A peer's whole training step (forward, backward, clipping, AdamW) on the shape of bench/train_step.cpp.

    python bench/peer_step.py transformers/grouped_mm float32 --threads 2
    python bench/peer_step.py megatron-core bfloat16

Peers: transformers/eager, transformers/batched_mm, transformers/grouped_mm, each with /compile behind it for
torch.compile, and megatron-core. Types: float32, bfloat16 (weights, gradients and moments too), and autocast (fp32
weights, gradients and moments, bf16 products), which is what this program's bf16 does.

Protocol, shared with train_step.cpp: prints a JSON line when it is ready, makes one step for each line "step" on its
input and prints its seconds, its processor seconds and its loss, and at the end of its input prints its peak memory: the most that was resident at
once (VmHWM) less what was (VmRSS) before the model was made, when all libraries were loaded.

Needs torch and transformers, or torch and megatron-core (--no-deps is enough, with einops). megatron-core has no CPU
path of its own: its CUDA calls are stubbed below, which changes no arithmetic.
"""

import argparse
import contextlib
import importlib.metadata
import json
import os
import sys
import time

import torch

SHAPE = dict(layers=6, hidden=512, heads=8, kv_heads=4, head_dim=64, experts=32, top_k=4, expert_ffn=256,
             vocab=8192, batch=4, sequence=512)


def transformers_model(dtype, experts):
    import transformers

    config = transformers.Qwen3MoeConfig(
        vocab_size=SHAPE["vocab"], hidden_size=SHAPE["hidden"], intermediate_size=2 * SHAPE["hidden"],
        moe_intermediate_size=SHAPE["expert_ffn"], num_hidden_layers=SHAPE["layers"],
        num_attention_heads=SHAPE["heads"], num_key_value_heads=SHAPE["kv_heads"], head_dim=SHAPE["head_dim"],
        num_experts=SHAPE["experts"], num_experts_per_tok=SHAPE["top_k"], norm_topk_prob=True, decoder_sparse_step=1)

    def build():
        model = transformers.Qwen3MoeForCausalLM._from_config(
            config, dtype=dtype, experts_implementation=experts, attn_implementation="sdpa")
        return model, lambda tokens: model(input_ids=tokens, labels=tokens, use_cache=False).loss

    return build


class _Nothing:
    """Stands in for a CUDA stream or event."""

    def __init__(self, *args, **kwargs): pass
    def __getattr__(self, name): return lambda *args, **kwargs: None
    def record_event(self, *args): return _Nothing()
    def fork(self, *args, **kwargs): return contextlib.nullcontext()
    def __enter__(self): return self
    def __exit__(self, *args): pass


def _stub_cuda():
    cuda = torch.cuda
    cuda.current_device = lambda: torch.device("cpu")
    # One function each: torch.compile keeps a table of them.
    cuda.set_device = lambda *args: None
    cuda.synchronize = lambda *args: None
    cuda.Stream = cuda.Event = _Nothing
    cuda.stream = lambda *args: _Nothing()
    cuda.current_stream = lambda *args: _Nothing()
    torch.Tensor.cuda = torch.nn.Module.cuda = lambda self, *args, **kwargs: self
    torch.Tensor.record_stream = lambda *args: None
    to, device = torch.Tensor.to, torch.device

    def cpu(value):
        return "cpu" if isinstance(value, (str, device)) and "cuda" in str(value) else value

    torch.Tensor.to = lambda self, *a, **k: to(self, *map(cpu, a), **{n: cpu(v) for n, v in k.items()})


def megatron_model(dtype):
    os.environ.update(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0", MASTER_ADDR="127.0.0.1")
    os.environ.setdefault("MASTER_PORT", str(20000 + os.getpid() % 20000))
    _stub_cuda()
    torch.distributed.init_process_group("gloo")
    from megatron.core import parallel_state, tensor_parallel
    from megatron.core.models.gpt.gpt_layer_specs import get_gpt_layer_local_spec
    from megatron.core.models.gpt.gpt_model import GPTModel
    from megatron.core.tensor_parallel import random
    from megatron.core.transformer.moe import moe_utils
    from megatron.core.transformer.transformer_config import TransformerConfig

    random.get_cuda_rng_tracker = tensor_parallel.get_cuda_rng_tracker = lambda *args, **kwargs: _Nothing()
    if not hasattr(moe_utils, "te_general_gemm"):
        moe_utils.te_general_gemm = None
    parallel_state.initialize_model_parallel(1, 1)

    def build():
        config = TransformerConfig(
            num_layers=SHAPE["layers"], hidden_size=SHAPE["hidden"], ffn_hidden_size=2 * SHAPE["hidden"],
            num_attention_heads=SHAPE["heads"], num_query_groups=SHAPE["kv_heads"], kv_channels=SHAPE["head_dim"],
            num_moe_experts=SHAPE["experts"], moe_router_topk=SHAPE["top_k"],
            moe_ffn_hidden_size=SHAPE["expert_ffn"], moe_grouped_gemm=False, moe_token_dispatcher_type="alltoall",
            moe_router_load_balancing_type="aux_loss", moe_aux_loss_coeff=1e-2, add_bias_linear=False,
            gated_linear_unit=True, activation_func=torch.nn.functional.silu, normalization="RMSNorm",
            use_cpu_initialization=True, params_dtype=dtype, bf16=dtype == torch.bfloat16,
            masked_softmax_fusion=False, bias_dropout_fusion=False, hidden_dropout=0.0, attention_dropout=0.0,
            persist_layer_norm=False, gradient_accumulation_fusion=False)
        spec = get_gpt_layer_local_spec(num_experts=SHAPE["experts"], moe_grouped_gemm=False, normalization="RMSNorm")
        length = SHAPE["sequence"]
        model = GPTModel(config, spec, vocab_size=SHAPE["vocab"], max_sequence_length=length,
                         position_embedding_type="rope", share_embeddings_and_output_weights=False).to(dtype)
        positions = torch.arange(length).expand(SHAPE["batch"], length)
        mask = torch.triu(torch.ones(1, 1, length, length, dtype=torch.bool), 1)

        def loss(tokens):
            labels = torch.roll(tokens, -1, 1)
            return model(tokens, positions, mask, labels=labels).float()[:, :-1].mean()

        return model, loss

    return build


def resident_mb(key):
    for line in open("/proc/self/status"):
        if line.startswith(key + ":"):
            return int(line.split()[1]) / 1024
    return 0.0


def reset_peak():
    with contextlib.suppress(OSError), open("/proc/self/clear_refs", "w") as file:
        file.write("5")


def tell(**what):
    print(json.dumps(what), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("peer")
    parser.add_argument("dtype", choices=["float32", "bfloat16", "autocast"])
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    torch.manual_seed(0)
    library, *options = args.peer.split("/")
    dtype = torch.bfloat16 if args.dtype == "bfloat16" else torch.float32
    build = megatron_model(dtype) if library == "megatron-core" else transformers_model(dtype, options[0])
    versions = {name: importlib.metadata.version(name) for name in ("torch", library)}

    reset_peak()
    before = resident_mb("VmRSS")
    model, loss_of = build()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    if "compile" in options:
        loss_of = torch.compile(loss_of)
    tokens = torch.randint(0, SHAPE["vocab"], (SHAPE["batch"], SHAPE["sequence"]))
    cast = torch.autocast("cpu", torch.bfloat16) if args.dtype == "autocast" else contextlib.nullcontext()
    tell(parameters=sum(parameter.numel() for parameter in model.parameters()), versions=versions)
    for line in sys.stdin:
        if line.strip() != "step":
            break
        start, cpu_start = time.perf_counter(), time.process_time()
        with cast:
            loss = loss_of(tokens)
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        tell(seconds=time.perf_counter() - start, cpu_seconds=time.process_time() - cpu_start, loss=loss.item())
    tell(peak_mb=resident_mb("VmHWM") - before)


if __name__ == "__main__":
    main()
