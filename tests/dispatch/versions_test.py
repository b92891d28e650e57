"""Trains with each version of the CPU code (SOME_CPU) and compares. usage: versions_test.py PROGRAM SOURCE_FOLDER"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

TOLERANCE = 1e-6  # relative, after 12 steps in single precision; 1e-7 was measured


def some(program, version, *arguments):
    environment = {name: value for name, value in os.environ.items() if name != "SOME_CPU"}
    if version is not None:
        environment["SOME_CPU"] = version
    return subprocess.run([program, *arguments], env=environment, capture_output=True, text=True, check=False)


def numbers(value, path=""):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from numbers(inner, f"{path}.{key}")
    elif isinstance(value, list):
        for place, inner in enumerate(value):
            yield from numbers(inner, f"{path}[{place}]")
    elif isinstance(value, (int, float)):
        yield path, value


def train(program, source, folder, version):
    run = folder / str(version)
    result = some(program, version, "train", str(source / "recipes/tiny.toml"), "train.max_steps=12", "--out", str(run),
                  "--device", "cpu")
    if result.returncode != 0:
        sys.exit(f"training with SOME_CPU={version} failed: {result.stderr}")
    return (run / "metrics.jsonl").read_text()


def main():
    program, source = sys.argv[1], pathlib.Path(sys.argv[2])
    has_v3 = {"avx2", "fma", "bmi2", "f16c"} <= set(pathlib.Path("/proc/cpuinfo").read_text().split())
    refused = some(program, "x86-64-v9", "info", "tiny")
    assert refused.returncode == 2 and "SOME_CPU" in refused.stderr, refused

    with tempfile.TemporaryDirectory() as name:
        folder = pathlib.Path(name)
        default = train(program, source, folder, None)
        baseline = train(program, source, folder, "x86-64")
        if not has_v3:
            assert default == baseline, "a CPU without AVX2 runs the x86-64 version"
            return
        assert default == train(program, source, folder, "x86-64-v3"), "a CPU with AVX2 runs the x86-64-v3 version"
    assert default != baseline, "the versions round differently: equal numbers mean that SOME_CPU chose nothing"
    worst = ("", 0.0)
    lines = list(zip(default.splitlines(), baseline.splitlines(), strict=True))
    for one, other in lines:
        for (path, a), (other_path, b) in zip(numbers(json.loads(one)), numbers(json.loads(other)), strict=True):
            assert path == other_path
            worst = max(worst, (path, abs(a - b) / max(1e-3, abs(a))), key=lambda pair: pair[1])
    print(f"{len(lines)} lines, largest relative difference {worst[1]:.1e} ({worst[0]})")
    assert worst[1] < TOLERANCE, worst


if __name__ == "__main__":
    main()
