#!/usr/bin/env python3
"""Learning rates and weight decays of megatron-core's scheduler, as a C++ table for
tests/optim/schedule_test.cpp:

    python3 tools/oracle/schedule_golden.py > tests/optim/schedule_golden.inc
"""
from types import SimpleNamespace

import megatron.core
from megatron.core.optimizer_param_scheduler import OptimizerParamScheduler

TOTAL, WARMUP, DECAY = 30, 5, 9
CASES = [  # ours, Megatron's, shape, Megatron's shape, weight decay
    ("kConstant", "constant", "kLinear", "linear", "linear"),
    ("kLinear", "linear", "kLinear", "linear", "cosine"),
    ("kCosine", "cosine", "kLinear", "linear", "linear"),
    ("kInverseSqrt", "inverse-square-root", "kLinear", "linear", "linear"),
    ("kWsd", "WSD", "kLinear", "linear", "linear"),
    ("kWsd", "WSD", "kCosine", "cosine", "linear"),
    ("kWsd", "WSD", "kExponential", "exponential", "linear"),
    ("kWsd", "WSD", "kMinusSqrt", "minus_sqrt", "linear"),
]


def course(style, shape, weight_decay):
    group = {"lr": 0.0, "weight_decay": 0.0}
    scheduler = OptimizerParamScheduler(
        SimpleNamespace(param_groups=[group]), init_lr=0.05, max_lr=0.8, min_lr=0.2,
        lr_warmup_steps=WARMUP, lr_decay_steps=TOTAL, lr_decay_style=style, start_wd=0.01,
        end_wd=0.1, wd_incr_steps=TOTAL, wd_incr_style=weight_decay, wsd_decay_steps=DECAY,
        lr_wsd_decay_style=shape)
    rates, decays = [], []
    for _ in range(TOTAL):
        scheduler.step(1)
        rates.append(group["lr"])
        decays.append(group["weight_decay"])
    return rates, decays


def row(values):
    return "{" + ", ".join(repr(value) for value in values) + "}"


print(f"// Made by tools/oracle/schedule_golden.py with megatron-core {megatron.core.__version__}.")
print("// clang-format off")
print("struct GoldenSchedule {\n  LrSchedule schedule;\n  DecayShape shape;\n"
      "  WeightDecaySchedule weight_decay_schedule;\n"
      f"  double rates[{TOTAL}];\n  double weight_decays[{TOTAL}];\n}};")
print("const GoldenSchedule kGoldenSchedules[] = {")
for ours, style, our_shape, shape, decay in CASES:
    rates, decays = course(style, shape, decay)
    words = {"linear": "kLinear", "cosine": "kCosine"}[decay]
    print(f"    {{LrSchedule::{ours}, DecayShape::{our_shape}, WeightDecaySchedule::{words},")
    print(f"     {row(rates)},\n     {row(decays)}}},")
print("};\n// clang-format on")
