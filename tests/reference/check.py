#!/usr/bin/env python3
"""Recomputes what golden fixtures expect and compares: check.py [--tolerance X] FILE|FOLDER ...

The error of a tensor is its largest difference over its largest magnitude. Exit code 1 when one is over the tolerance.
"""

import argparse
import json
import os
import sys

import numpy as np

import fixture


def error_of(expected, got):
    if expected.shape != got.shape:
        return float("inf")
    if expected.dtype.kind == "i":
        return float((expected != got).sum())
    if expected.size == 0:
        return 0.0
    largest = np.abs(expected).max()
    return float(np.abs(expected - got).max() / (largest if largest > 0 else 1.0))


def errors(path):
    """Returns the error of every expected tensor and measure of a file, by name."""
    tensors, metadata = fixture.read(path)
    config = json.loads(metadata["config"])
    inputs = {name: value for name, value in tensors.items() if not name.startswith("expect.")}
    expected = {name[len("expect."):]: value for name, value in tensors.items() if name.startswith("expect.")}
    got, measures = fixture.expect(metadata["kind"], config, inputs)
    out = {name: error_of(value, got[name]) if name in got else float("inf") for name, value in expected.items()}
    for name, value in measures.items():
        if name in metadata and value != float(metadata[name]):  # equal ones may be infinite
            out[name] = abs(value - float(metadata[name])) / max(1.0, abs(float(metadata[name])))
    return metadata["kind"], out


def find(paths):
    for path in paths:
        if os.path.isdir(path):
            names = sorted(name for name in os.listdir(path) if name.endswith(".safetensors"))
            if not names:
                sys.exit(f"the folder {path} holds no .safetensors file")
            yield from (os.path.join(path, name) for name in names)
        else:
            yield path


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("paths", nargs="+", metavar="FILE|FOLDER")
    parser.add_argument("--tolerance", type=float, default=1e-9)
    options = parser.parse_args()
    failed = 0
    for path in find(options.paths):
        kind, found = errors(path)
        worst = max(found, key=found.get)
        bad = found[worst] > options.tolerance
        failed += bad
        print(f"{'FAILED' if bad else 'ok':6}  {os.path.basename(path):36} {kind:6} {len(found):4} tensors, "
              f"worst {worst} {found[worst]:.1e}")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
