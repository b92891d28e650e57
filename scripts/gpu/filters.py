#!/usr/bin/env python3
"""Finds the tests that require a GPU in the sources, as filters of GoogleTest: {"test_ops": "A.B:*/C.D/*", ...}.

    scripts/gpu/filters.py SOURCES MODULE...
    scripts/gpu/filters.py --browser SOURCES MODULE...      the tests that open a page in a browser

A test is selected if its code, its name, its suite's name or the SetUp of its suite mentions CUDA or a GPU. This includes a
few tests that also run elsewhere, but every test that is skipped without a GPU.
"""
import json
import re
import sys
from pathlib import Path

GPU, BROWSER = re.compile(r"cuda|gpu", re.I), re.compile(r"no_browser")
TEST = re.compile(r"^(TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P)\((\w+),\s*(\w+)\)(?:[^\n]*\}$|.*?^\})", re.M | re.S)
CLASS = re.compile(r"^(?:class|struct) (\w+)\b[^;{]*\{.*?^\};", re.M | re.S)


def filter_of(folder, word):
    texts = [path.read_text() for path in sorted(folder.glob("*.cc"))]
    classes = [found for text in texts for found in CLASS.finditer(text)]
    suites = {found[1] for found in classes if "SetUp()" in found[0] and word.search(found[0])}
    patterns = []
    for found in (test for text in texts for test in TEST.finditer(text)):
        kind, suite, name = found.groups()
        if suite in suites or word.search(found[0]):
            patterns.append(f"{suite}.{name}" if kind in ("TEST", "TEST_F") else f"*{suite}*.{name}*")
    return ":".join(patterns)


if __name__ == "__main__":
    word = BROWSER if "--browser" in sys.argv else GPU
    sources, *modules = [one for one in sys.argv[1:] if one != "--browser"]
    print(json.dumps({f"test_{module}": filter_of(Path(sources, "tests", module), word) for module in modules}, indent=1))
