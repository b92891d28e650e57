#!/usr/bin/env python3
"""scripts/count-tests on results made up here.   usage: count_tests_test.py SOURCES"""
import os
import subprocess
import sys
import tempfile

PASSED = '<testcase name="Adds" classname="Sum" status="run" result="completed"/>'
FAILED = ('<testcase name="Divides" classname="Sum" status="run" result="completed"><failure message="no"/></testcase>')
SKIPPED = ('<testcase name="Cuda" classname="Sum" status="run" result="skipped">'
           '<skipped message="../sum_test.cc:7&#x0A;needs a GPU"/></testcase>')
OTHER_SHARD = '<testcase name="Far" classname="Sum" status="notrun" result="suppressed"/>'


def count(entries, results):
    """Returns exit code and output for ctest's entries {name: status or skip message} and programs' results {name:
    text}."""
    with tempfile.TemporaryDirectory() as build:
        os.mkdir(os.path.join(build, "tests"))
        for name, text in results.items():
            with open(os.path.join(build, "tests", name + ".xml"), "w") as file:
                file.write(text)
        with open(os.path.join(build, "tests.xml"), "w") as file:
            file.write("<testsuite>")
            for name, status in entries.items():
                if status in ("run", "fail"):
                    file.write(f'<testcase name="{name}" status="{status}"/>')
                else:
                    file.write(f'<testcase name="{name}" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>'
                               f"<system-out>{status}\n</system-out></testcase>")
            file.write("</testsuite>")
        done = subprocess.run([sys.argv[1] + "/scripts/count-tests", build], capture_output=True, text=True)
        return done.returncode, done.stdout.splitlines()


def suite(*cases):
    return "<testsuites><testsuite>" + "".join(cases) + "</testsuite></testsuites>"


code, lines = count({"sum.1": "run", "fuzz": "run", "ranks": "skipped: there is no mpirun"},
                    {"sum.1": suite(PASSED, PASSED, SKIPPED, OTHER_SHARD)})
assert code == 0, lines
assert lines[-1] == "3 passed, 0 failed, 2 skipped", lines
assert lines[-2].startswith("2 tests were skipped: "), lines
assert "1 skipped: needs a GPU" in lines and "1 skipped: there is no mpirun" in lines, lines

for entries, results, wanted in (
        ({"sum": "fail"}, {"sum": suite(PASSED, FAILED)}, "sum: Sum.Divides failed"),
        ({"sum": "fail"}, {}, "sum failed"),  # it ended before it wrote its results, or while it wrote them
        ({"sum": "fail"}, {"sum": "<testsuites><tests"}, "sum failed"),
        ({"sum": "fail"}, {"sum": suite(PASSED)}, "sum: the program failed outside of its test cases"),
        ({"sum": "run"}, {"sum": suite(OTHER_SHARD)}, "sum: no test case was run")):
    code, lines = count(entries, results)
    assert code == 1 and wanted in lines and ", 1 failed, " in lines[-1], lines
assert count({}, {})[0] == 1, "no test at all"
