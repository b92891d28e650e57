#!/usr/bin/env python3
"""Lists the kernels of one training step by time, from a trace of scripts/gpu/kernel_trace.c.

    scripts/gpu/kernel_trace.py FILE.tsv [--order]

A step ends with its adamw_kernel; the last step of the trace with about the median time is shown. Kernels overlap: a kernel
that is launched early waits on the multiprocessors for the previous one. The time of each kernel is therefore counted from
the end of all previous ones, so that the times and the gaps add up to the step. --order prints the step kernel by kernel.
"""
import collections
import re
import statistics
import sys


def main():
    if len(sys.argv) < 2 or sys.argv[1].startswith("-"):
        raise SystemExit(__doc__)
    with open(sys.argv[1], errors="replace") as file:
        lines = [line.rstrip("\n").split("\t") for line in file]
    calls = sorted((int(start), int(end), stream, grid, int(block), name)
                   for start, end, stream, grid, block, name in (line for line in lines if len(line) == 6))
    ends = [i for i, call in enumerate(calls) if "adamw_kernel" in call[5]]
    if len(ends) < 2:
        raise SystemExit(f"{sys.argv[1]}: fewer than two steps; trace 'some bench train ... --steps 24'")
    steps = [calls[a + 1:b + 1] for a, b in zip(ends, ends[1:])][-24:]
    walls = [step[-1][1] - step[0][0] for step in steps]
    middle = statistics.median(walls)
    step = next(step for step, wall in zip(reversed(steps), reversed(walls)) if wall < 1.3 * middle)
    times, counts = collections.defaultdict(float), collections.Counter()
    last, gaps = step[0][0], 0.0
    for start, end, stream, grid, block, name in step:
        own = max(0, end - max(start, last)) / 1e3
        gaps += max(0, start - last) / 1e3
        short = re.sub(r"\(anonymous namespace\)::|some::cuda::|^void ", "", name)
        if "--order" in sys.argv:
            print(f"{(start - step[0][0]) / 1e3:9.2f} {own:8.2f} us  stream {stream:>3} {grid:>14} {block:>5}  {short[:100]}")
        key = re.sub(r"[(<].*", "", short) or short
        times[key] += own
        counts[key] += 1
        last = max(last, end)
    total = (last - step[0][0]) / 1e3
    print(f"{total:.1f} us, {len(step)} kernels, memsets and copies, {gaps:.1f} us between them")
    for name in sorted(times, key=lambda one: -times[one]):
        print(f"{times[name]:9.1f} us {counts[name]:5d} x {times[name] / counts[name]:8.2f}  {name}")


if __name__ == "__main__":
    main()
