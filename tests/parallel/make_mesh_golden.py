"""Writes mesh_golden.inc: groups of random layouts as Megatron-Core's RankGenerator makes them.

    make_mesh_golden.py [CASES [SEED [LARGEST_WORLD]]] > mesh_golden.inc

Needs megatron-core (0.16.1 made the file in this folder, with the default arguments).
"""

import itertools
import random
import sys

import megatron.core
from megatron.core.parallel_state import RankGenerator


def random_layout(rng, largest_world):
    """Sizes and an order that Megatron accepts: both foldings have the same pipeline groups."""
    while True:
        tp, cp, pp, ep, etp = (rng.choice([1, 1, 2, 2, 3, 4]) for _ in range(5))
        factor = rng.choice([1, 2, 3, 4, 6, 8, 12])
        world = pp * factor
        order = "-".join(rng.sample(["tp", "cp", "ep", "dp", "pp"], 5))
        if world > largest_world or world == 1 or factor % (tp * cp) or factor % (ep * etp):
            continue
        dense = RankGenerator(tp=tp, ep=1, dp=factor // (tp * cp), pp=pp, cp=cp, order=order)
        expert = RankGenerator(tp=etp, ep=ep, dp=factor // (ep * etp), pp=pp, cp=1, order=order)
        if dense.get_ranks("pp") == expert.get_ranks("pp"):
            return (world, tp, cp, pp, ep, etp, order), dense, expert


def main():
    cases, seed, largest_world = itertools.islice(
        itertools.chain(map(int, sys.argv[1:]), [24, 7, 24][len(sys.argv) - 1 :]), 3
    )
    rng = random.Random(seed)
    print(f"// Made by make_mesh_golden.py {cases} {seed} {largest_world}, megatron-core {megatron.core.__version__}.")
    for _ in range(cases):
        layout, dense, expert = random_layout(rng, largest_world)
        groups = {
            "tp": dense.get_ranks("tp"),
            "cp": dense.get_ranks("cp"),
            "dp": dense.get_ranks("dp"),
            "dp-cp": dense.get_ranks("dp-cp"),
            "dp-cp-tp": dense.get_ranks("tp-dp-cp"),
            "pp": dense.get_ranks("pp"),
            "etp": expert.get_ranks("tp"),
            "ep": expert.get_ranks("ep"),
            "ep-etp": expert.get_ranks("tp-ep"),
            "edp": expert.get_ranks("dp"),
        }
        print('R"(' + " ".join(map(str, layout)))
        for name, partition in groups.items():
            print(name + ":" + ",".join(" ".join(map(str, sorted(group))) for group in sorted(partition)))
        print(')",')


main()
