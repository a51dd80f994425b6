"""Times the scans of state-space layers against transformers' own CPU functions and a plain recurrence.

    OMP_WAIT_POLICY=passive PYTHON bench/ops/scan.py build/bench/bench_scan [TOKENS] [THREADS]

PYTHON has torch and transformers. All contenders have the same sizes, fp32, and take turns, so that what else the
machine does hits them alike; a figure is the best of the rounds, and ratios are to ours.
"""

import subprocess
import sys
import time

import torch
from torch.nn.functional import logsigmoid, softplus
from transformers.models.mamba.modeling_mamba import mamba_selective_scan
from transformers.models.mamba2.modeling_mamba2 import mamba2_chunk_scan
from transformers.models.qwen3_next.modeling_qwen3_next import torch_chunk_gated_delta_rule

ROUNDS = 7
# As in bench/ops/scan_bench.cpp.
HEADS, HEAD_DIM, STATE = 24, 64, 128
CHANNELS, CHANNEL_STATE = 1536, 16
KEY_HEADS, VALUE_HEADS, RULE_DIM = 4, 8, 128


def leaf(*sizes, of=lambda tensor: tensor):
    return of(torch.randn(*sizes)).requires_grad_()


def negative_exp(tensor):
    return -tensor.exp()


class Ours:
    def __init__(self, program, tokens, threads):
        self.process = subprocess.Popen([program, str(tokens), str(threads)], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE, text=True)

    def seconds(self, work):
        self.process.stdin.write(work + "\n")
        self.process.stdin.flush()
        return float(self.process.stdout.readline())


def mamba2(tokens):
    x, dt = leaf(1, tokens, HEADS, HEAD_DIM), leaf(1, tokens, HEADS, of=softplus)
    a, d = leaf(HEADS, of=negative_exp), leaf(HEADS)
    b, c = leaf(1, tokens, 1, STATE), leaf(1, tokens, 1, STATE)
    return lambda: mamba2_chunk_scan(x, dt, a, b, c, 128, D=d), (x, dt, a, b, c, d)


def mamba(tokens):
    x, dt = leaf(1, CHANNELS, tokens), leaf(1, CHANNELS, tokens)
    a, d = leaf(CHANNELS, CHANNEL_STATE, of=negative_exp), leaf(CHANNELS)
    b, c = leaf(1, CHANNEL_STATE, tokens), leaf(1, CHANNEL_STATE, tokens)
    return lambda: mamba_selective_scan(x, dt, a, b, c, D=d, delta_softplus=True), (x, dt, a, b, c, d)


def delta_rule(tokens):
    q, k = leaf(1, tokens, KEY_HEADS, RULE_DIM), leaf(1, tokens, KEY_HEADS, RULE_DIM)
    v = leaf(1, tokens, VALUE_HEADS, RULE_DIM)
    g, beta = leaf(1, tokens, VALUE_HEADS, of=logsigmoid), leaf(1, tokens, VALUE_HEADS, of=torch.sigmoid)
    return lambda: torch_chunk_gated_delta_rule(q, k, v, g, beta, use_qk_l2norm_in_kernel=True)[0], (q, k, v, g, beta)


def seconds_of(run):
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def without_gradients(run):
    with torch.no_grad():
        run()


def both_ways(run, leaves):
    out = run()
    torch.autograd.grad(out, leaves, torch.ones_like(out))


def main():
    program = sys.argv[1]
    tokens = int(sys.argv[2]) if len(sys.argv) > 2 else 2048
    threads = int(sys.argv[3]) if len(sys.argv) > 3 else torch.get_num_threads()
    torch.set_num_threads(threads)
    print(f"{threads} threads, fp32; ratios to ours, best of {ROUNDS}")
    # Mamba-1 in transformers goes token by token: fewer of them.
    for name, make, count in (("mamba2", mamba2, tokens), ("delta rule", delta_rule, tokens),
                              ("mamba", mamba, tokens // 8)):
        ours = Ours(program, count, threads)
        run, leaves = make(count)
        for work, theirs in ((name, lambda: without_gradients(run)),
                             (name + " both ways", lambda: both_ways(run, leaves))):
            rivals = {"transformers": lambda: seconds_of(theirs)}
            if work == "mamba2":
                rivals["plain recurrence"] = lambda: ours.seconds("mamba2 recurrence")
            best = {}
            for _ in range(ROUNDS):
                for rival, seconds in {"ours": lambda: ours.seconds(work), **rivals}.items():
                    best[rival] = min(seconds(), best.get(rival, float("inf")))
            ratios = "  ".join(f"{rival} x{best[rival] / best['ours']:.2f}" for rival in rivals)
            print(f"{work:24} {count:6} tokens {1e3 * best['ours']:9.1f} ms   {ratios}", flush=True)


if __name__ == "__main__":
    main()
