"""Times training steps of this program and its peers in turn, and writes a table: what `make bench` runs.

    bench/compare_steps.py --ours build/bench/bench_train_step --python .deps/peers/bin/python

All contenders of a number format are started, warmed up, and then make one step each, in turn, for a number of rounds,
so that what else the machine does hits them alike. Absolute times mean little on a machine that does other things; the
ratios within a round, of which the median is given, mean more. Idle contenders wait for their input.

Writes bench/results/train_step_CORES_cores_YYYYMM.md, or --output.
"""

import argparse
import contextlib
import datetime
import json
import os
import pathlib
import platform
import resource
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
OURS = "switchyard"
EXPERTS = [f"transformers/{name}" for name in ("eager", "batched_mm", "grouped_mm")]
COMPILED = [name + "/compile" for name in EXPERTS]
# Format of ours: what each contender computes in.
FORMATS = {
    "fp32": [(peer, "float32") for peer in [*EXPERTS, *COMPILED, "megatron-core"]],
    "bf16": [(peer, dtype) for dtype in ("bfloat16", "autocast")
             for peer in [*EXPERTS, *COMPILED, "megatron-core"] if (peer, dtype) != ("megatron-core", "autocast")],
}


# A contender that wants more ends by itself, rather than that the machine ends something.
MEMORY_LIMIT = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 3


class Failed(Exception):
    pass


def limit_memory():
    resource.setrlimit(resource.RLIMIT_DATA, (MEMORY_LIMIT, MEMORY_LIMIT))


class Contender:
    def __init__(self, name, dtype, command):
        self.name, self.dtype, self.seconds, self.cpu_seconds = name, dtype, [], []
        self.loss = self.peak_mb = None
        self.log = open(os.devnull, "w") if not os.environ.get("BENCH_LOG") else open(os.environ["BENCH_LOG"], "a")
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self.log,
                                        text=True, cwd=ROOT, preexec_fn=limit_memory)
        self.ready = self.receive()

    def receive(self):
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise Failed(f"{self.name} {self.dtype} ended with exit status {self.process.wait()} (each may use "
                     f"{MEMORY_LIMIT >> 30} GB)")

    def step(self):
        try:
            self.process.stdin.write("step\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            raise Failed(f"{self.name} {self.dtype} ended") from None
        answer = self.receive()
        self.loss = answer["loss"]
        return answer["seconds"], answer["cpu_seconds"]

    def finish(self):
        self.process.stdin.close()
        self.peak_mb = self.receive()["peak_mb"]
        self.process.wait()

    def stop(self):
        self.process.kill()
        self.process.wait()


def start(name, dtype, args):
    if name == OURS:
        return Contender(name, dtype, [args.ours, dtype, str(args.threads)])
    return Contender(name, dtype, [args.python, ROOT / "bench" / "peer_step.py", name, dtype, "--threads",
                                   str(args.threads)])


def contest(ours_dtype, args):
    """The contenders that work, with their times; and one line for each that does not."""
    working, failures = [], []
    wanted = [(OURS, ours_dtype)]
    wanted += [(peer, dtype) for peer, dtype in FORMATS[ours_dtype] if args.peers is None or peer in args.peers]
    with contextlib.ExitStack() as stack:
        for name, dtype in wanted:
            try:
                contender = start(name, dtype, args)
                stack.callback(contender.stop)
                for _ in range(args.warm_up):
                    contender.step()
                working.append(contender)
                print(f"{name} {dtype}: ready, loss {contender.loss:.4f}", file=sys.stderr)
            except Failed as failure:
                failures.append(str(failure))
                print(failure, file=sys.stderr)
        for number in range(args.rounds):
            for contender in list(working):
                try:
                    seconds, cpu_seconds = contender.step()
                    contender.seconds.append(seconds)
                    contender.cpu_seconds.append(cpu_seconds)
                except Failed as failure:
                    failures.append(str(failure))
                    working.remove(contender)
            print(f"round {number + 1}: " + ", ".join(f"{c.name} {c.dtype} {c.seconds[-1]:.3f}" for c in working),
                  file=sys.stderr)
        for contender in working:
            contender.finish()
    return working, failures


def table(contenders):
    ours = contenders[0]
    lines = ["| program | computes in | median s | lowest to highest s | ratio to ours, per round | processor s "
             "| peak memory MB |", "| --- | --- | ---: | ---: | ---: | ---: | ---: |"]
    for contender in contenders:
        ratios = sorted(theirs / own for theirs, own in zip(contender.seconds, ours.seconds))
        lines.append(f"| {contender.name} | {contender.dtype} | {statistics.median(contender.seconds):.3f} "
                     f"| {min(contender.seconds):.3f} to {max(contender.seconds):.3f} "
                     f"| {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f}) "
                     f"| {statistics.median(contender.cpu_seconds):.3f} | {contender.peak_mb:.0f} |")
    return lines


def processor():
    with open("/proc/cpuinfo") as file:
        for line in file:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def page(results, args):
    versions = {}
    for contenders, _ in results.values():
        for contender in contenders:
            versions.update(contender.ready.get("versions", {}))
    kernels = {c.ready["kernels"] for contenders, _ in results.values() for c in contenders if c.name == OURS}
    commit = subprocess.run(["git", "describe", "--always", "--dirty"], cwd=ROOT, text=True,
                            capture_output=True).stdout.strip()
    load = os.getloadavg()[0]
    lines = [
        f"# Training step, {args.threads} threads", "",
        "A step is forward, backward, clipping and AdamW of a Mixture-of-Experts decoder: 6 layers, hidden 512, 8 heads "
        "over 4, head dim 64, 32 experts of width 256, top 4, vocabulary 8192, 4 sequences of 512 random tokens. Made "
        f"by `make bench`: all programs in turn, {args.rounds} rounds of one step each after {args.warm_up} steps to "
        "warm up. The ratio is the peer's time over ours in the same round: median (lowest to highest). Peak memory is "
        "the most that was resident at once (VmHWM) less what was when all libraries were loaded and no model was made. "
        "Processor seconds (median) are those that the program itself used, on all threads together: what else the "
        "machine does changes them less.",
        "",
        f"{datetime.date.today()}, {processor()}, {os.cpu_count()} cores seen, load {load:.1f} at the end; "
        f"switchyard {commit} with its {', '.join(sorted(kernels))} kernels; "
        + ", ".join(f"{name} {version}" for name, version in sorted(versions.items())) + ".",
    ]
    for dtype, (contenders, failures) in results.items():
        lines += ["", f"## {dtype}", "", *table(contenders)]
        lines += ["", *[f"Did not run: {failure}." for failure in failures]] if failures else []
    lines += ["", "bf16 here keeps fp32 weights, gradients and moments beside bf16 products, as `autocast` does; "
              "`bfloat16` keeps all of them in bf16, which takes half the memory and loses small updates."]
    return "\n".join(lines) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--ours", required=True, help="the built bench_train_step")
    parser.add_argument("--python", required=True, help="a Python with the peers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--warm-up", type=int, default=2)
    parser.add_argument("--formats", nargs="+", default=list(FORMATS), choices=list(FORMATS))
    parser.add_argument("--peers", nargs="+", help="only these")
    parser.add_argument("--output", type=pathlib.Path)
    args = parser.parse_args()
    # One setting for all: threads that wait give their core away soon.
    os.environ.setdefault("GOMP_SPINCOUNT", "1000")
    results = {dtype: contest(dtype, args) for dtype in args.formats}
    output = args.output or ROOT / "bench" / "results" / (
        f"train_step_{os.cpu_count()}_cores_{datetime.date.today():%Y%m}.md")
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(page(results, args))
    print(output.read_text())


if __name__ == "__main__":
    main()
