#!/usr/bin/env python3
"""Compares torch._int_mm of PyTorch with the same call on intact: one process, in turns, the same tensors.

    PYTHONPATH=build/release/python python3 integrations/pytorch/scripts/bench.py

Prints a table. A ratio is the median of the turns' ratios; above 1 intact is faster. The sums of both are compared first. With
HELD_TO and examples/targets/held_to.c both run as on an older CPU."""

from __future__ import annotations

import argparse
import os
import statistics
import time
from pathlib import Path

import intact
import intact.torch
import torch

# How the weights of a layer lie: w.t() of torch.nn.Linear, or K×N.
LAYOUTS = {"N×K": lambda weight: weight.t(), "K×N": lambda weight: weight.t().contiguous()}


def seconds_of(call) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def measure(a: torch.Tensor, b: torch.Tensor, seconds: float) -> tuple[list[float], list[float]]:
    """Times of PyTorch's kernel and of intact's: after a first run of each at least three turns. If PyTorch's first run takes
    longer than `seconds`, it is the only one."""
    sums = []

    def run() -> None:
        sums.append(torch._int_mm(a, b))

    first = seconds_of(run)
    with intact.torch.enable():
        run()
        once = seconds_of(run)
    if not torch.equal(sums[0], sums[1]):
        raise SystemExit(f"bench.py: {a.shape[0]} rows: the sums differ")
    if first > seconds:
        return [first], [once]
    own: list[float] = []
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(own) < 3 or time.perf_counter() < end:
        sums.clear()
        own.append(seconds_of(run))
        with intact.torch.enable():
            times.append(seconds_of(run))
    return own, times


def cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return "unknown CPU"


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 32, 128, 1024])
    parser.add_argument("--size", type=int, default=4096, help="columns and depth")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=float, default=2, help="seconds for the turns of one line")
    parser.add_argument(
        "--longest",
        type=float,
        default=30,
        help="a line is left out if a run of PyTorch would take longer, by the time of the line before",
    )
    options = parser.parse_args()

    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    held = os.environ.get("HELD_TO")
    print(
        f"{cpu()}{f', held to {held}' if held else ''}; {time.strftime('%Y-%m-%d')}; torch {torch.__version__}, "
        f"intact {intact.version()} ({', '.join(intact.isas())}); {options.threads} thread(s)\n"
    )
    print(f"| weights {options.size}×{options.size} | rows | PyTorch ms | intact ms | intact GOPS | ratio |")
    print("|---|---:|---:|---:|---:|---:|")
    weight = torch.randint(-128, 128, (options.size, options.size), dtype=torch.int8)
    for name, layout in LAYOUTS.items():
        b, per_row = layout(weight), 0.0
        for rows in options.rows:
            if rows * per_row > options.longest:
                print(f"| {name} | {rows} | left out | | | |")
                continue
            own, times = measure(
                torch.randint(-128, 128, (rows, options.size), dtype=torch.int8), b, options.turns
            )
            ratio = statistics.median(slow / fast for slow, fast in zip(own, times))
            own_median, median = statistics.median(own), statistics.median(times)
            per_row = own_median / rows
            print(
                f"| {name} | {rows} | {own_median * 1e3:.2f} | {median * 1e3:.2f} | "
                f"{2 * rows * options.size**2 / median / 1e9:.0f} | {ratio:.2f} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
