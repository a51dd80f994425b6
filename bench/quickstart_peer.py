"""Trains transformers' Qwen3-MoE on the quickstart's text for the same minutes: the loss to be at or below.

    tools/prepare_text
    python bench/quickstart_peer.py --minutes 3 --dtype bfloat16
    python bench/quickstart_peer.py --probe          # only times the expert implementations

Needs torch and transformers in an environment of their own. A token is a byte, and token 256 ends
each work, as in `switchyard tokenize`. Training rows are windows of `sequence` + 1 tokens at random
offsets into the works to train on, joined in the order of their names. The clock covers training steps only: building, choosing the implementation and evaluating
are outside it. The learning rate warms up and then falls as a cosine of the share of the time used; with
--steps, of the steps made, so that a busy machine can tell which settings are best.

Held-out loss, in nats per byte: the held-out works, joined likewise, are cut into consecutive windows
of `sequence` inputs, each with the token after it as target; so every token but the very first is
predicted once, and the first targets of a window have little context (the first has one token). The
last window may be shorter. The mean is over targets, not over windows.

Prints one JSON line at the end.
"""

import argparse
import contextlib
import json
import math
import pathlib
import resource
import time

import torch
import transformers

TEXT = pathlib.Path(__file__).resolve().parent.parent / ".deps" / "text"
END_OF_DOCUMENT = 256
EXPERTS = ("eager", "batched_mm", "grouped_mm")


def read_tokens(split):
    files = sorted((TEXT / split).glob("*.txt"))
    if not files:
        raise SystemExit(f"no text in {TEXT / split}: run tools/prepare_text")
    works = []
    for file in files:
        works.append(
            torch.frombuffer(bytearray(file.read_bytes()), dtype=torch.uint8).long()
        )
        works.append(torch.tensor([END_OF_DOCUMENT]))
    return torch.cat(works)


def make_model(args, experts):
    torch.manual_seed(args.seed)
    config = transformers.Qwen3MoeConfig(
        vocab_size=END_OF_DOCUMENT + 1,
        hidden_size=args.hidden,
        intermediate_size=args.expert_ffn,
        moe_intermediate_size=args.expert_ffn,
        num_hidden_layers=args.layers,
        num_attention_heads=args.heads,
        num_key_value_heads=args.kv_heads,
        head_dim=args.head_dim,
        num_experts=args.experts,
        num_experts_per_tok=args.top_k,
        norm_topk_prob=True,
        decoder_sparse_step=1,
        max_position_embeddings=args.sequence,
        output_router_logits=args.aux_coeff > 0,
        router_aux_loss_coef=args.aux_coeff,
        tie_word_embeddings=args.tie,
        initializer_range=args.init_std,
    )
    return transformers.Qwen3MoeForCausalLM._from_config(
        config,
        dtype=torch.float32,
        experts_implementation=experts,
        attn_implementation="sdpa",
    )


def precision(args):
    if args.dtype == "bfloat16":
        return torch.autocast("cpu", torch.bfloat16)
    return contextlib.nullcontext()


class Trainer:
    def __init__(self, args, experts, train):
        self.args = args
        self.train = train
        self.model = make_model(args, experts)
        decayed = [p for p in self.model.parameters() if p.dim() >= 2]
        others = [p for p in self.model.parameters() if p.dim() < 2]
        self.optimizer = torch.optim.AdamW(
            [
                {"params": decayed, "weight_decay": args.weight_decay},
                {"params": others, "weight_decay": 0.0},
            ],
            lr=args.lr,
            betas=(args.beta1, args.beta2),
            fused=True,
        )
        self.random = torch.Generator().manual_seed(args.seed)

    def rows(self):
        starts = torch.randint(
            0,
            len(self.train) - self.args.sequence,
            (self.args.batch,),
            generator=self.random,
        )
        return self.train[starts[:, None] + torch.arange(self.args.sequence + 1)]

    def step(self, done):
        """One optimizer step with `done` in [0, 1] of the time used; returns the loss without aux."""
        args = self.args
        cosine = 0.5 * (
            1 + math.cos(math.pi * max(0.0, done - args.warmup) / (1 - args.warmup))
        )
        scale = args.min_lr + (1 - args.min_lr) * cosine
        lr = args.lr * min(scale, done / args.warmup if args.warmup else 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = lr
        rows = self.rows()
        with precision(args):
            output = self.model(input_ids=rows[:, :-1])
        loss = torch.nn.functional.cross_entropy(
            output.logits.float().flatten(0, 1), rows[:, 1:].flatten()
        )
        total = loss
        if args.aux_coeff > 0:
            balance = transformers.models.qwen3_moe.modeling_qwen3_moe.load_balancing_loss_func(
                output.router_logits, args.experts, args.top_k
            )
            total = loss + args.aux_coeff * balance
        total.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), args.clip)
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.item()


def time_steps(args, experts, train, seconds):
    trainer = Trainer(args, experts, train)
    trainer.step(0.01)
    trainer.step(0.01)
    begin = time.perf_counter()
    steps = 0
    while time.perf_counter() - begin < seconds:
        trainer.step(0.01)
        steps += 1
    return (time.perf_counter() - begin) / steps


def choose_experts(args, train):
    times = {
        name: time_steps(args, name, train, args.probe_seconds) for name in EXPERTS
    }
    for name, step_s in times.items():
        print(
            f"{name}: {step_s:.4f} s/step, {args.batch * args.sequence / step_s:,.0f} bytes/s",
            flush=True,
        )
    return min(times, key=times.get)


@torch.no_grad()
def held_out_loss(args, model, text):
    model.eval()
    num_targets = len(text) - 1
    whole = num_targets // args.sequence * args.sequence
    batches = []
    if whole:
        inputs = text[:whole].view(-1, args.sequence)
        targets = text[1 : whole + 1].view(-1, args.sequence)
        batches += zip(inputs.split(64), targets.split(64))
    if whole < num_targets:
        batches.append((text[None, whole:-1], text[None, whole + 1 :]))
    total, count = 0.0, 0
    for inputs, targets in batches:
        with precision(args):
            logits = model(input_ids=inputs).logits
        total += torch.nn.functional.cross_entropy(
            logits.double().flatten(0, 1), targets.flatten(), reduction="sum"
        ).item()
        count += targets.numel()
    assert count == num_targets
    return total / count, count


def main():
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0],
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument(
        "--steps", type=int, default=0, help="stop after these instead of --minutes"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    parser.add_argument(
        "--implementation", default="fastest", choices=["fastest", *EXPERTS]
    )
    parser.add_argument(
        "--probe", action="store_true", help="only time the implementations"
    )
    parser.add_argument("--probe-seconds", type=float, default=5.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--hidden", type=int, default=128)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=4)
    parser.add_argument("--head-dim", type=int, default=32)
    parser.add_argument("--experts", type=int, default=8)
    parser.add_argument("--top-k", type=int, default=2)
    parser.add_argument("--expert-ffn", type=int, default=128)
    parser.add_argument("--sequence", type=int, default=256)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--min-lr", type=float, default=0.02, help="as a share of --lr")
    parser.add_argument("--warmup", type=float, default=0.03, help="share of the time")
    parser.add_argument("--weight-decay", type=float, default=0.1)
    parser.add_argument("--beta1", type=float, default=0.9)
    parser.add_argument("--beta2", type=float, default=0.95)
    parser.add_argument("--clip", type=float, default=1.0)
    parser.add_argument("--aux-coeff", type=float, default=0.01)
    parser.add_argument("--init-std", type=float, default=0.02)
    parser.add_argument(
        "--tie", action="store_true", help="tie the output to the embedding"
    )
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    train, held_out = read_tokens("train"), read_tokens("heldout")
    experts = args.implementation
    if experts == "fastest" or args.probe:
        experts = choose_experts(args, train)
    if args.probe:
        return

    trainer = Trainer(args, experts, train)
    seconds = 60 * args.minutes
    losses, next_report = [], 0.0
    begin = time.perf_counter()
    while True:
        used = time.perf_counter() - begin
        done = len(losses) / args.steps if args.steps else used / seconds
        if done >= 1:
            break
        losses.append(trainer.step(done))
        if done >= next_report:
            recent = losses[-50:]
            print(
                f"{used:6.1f} s, step {len(losses)}, loss {sum(recent) / len(recent):.4f}",
                flush=True,
            )
            next_report += 1 / 12
    nats, targets = held_out_loss(args, trainer.model, held_out)
    report = {
        name: value
        for name, value in vars(args).items()
        if not name.startswith("probe")
    }
    report |= dict(
        implementation=experts,
        parameters=sum(p.numel() for p in trainer.model.parameters()),
        num_steps=len(losses),
        seconds=round(used, 2),
        train_tokens=len(losses) * args.batch * args.sequence,
        bytes_per_s=round(len(losses) * args.batch * args.sequence / used),
        train_loss=round(sum(losses[-50:]) / len(losses[-50:]), 4),
        held_out_nats_per_byte=round(nats, 5),
        held_out_targets=targets,
        peak_rss_mb=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
        torch=torch.__version__,
        transformers=transformers.__version__,
    )
    print(json.dumps(report))


if __name__ == "__main__":
    main()
