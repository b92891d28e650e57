#!/usr/bin/env python3
"""launch_traces.py compare: which differences it reports, and which it follows or ignores."""
import contextlib
import io
import tempfile
from pathlib import Path

import launch_traces

trace = """command\ttrain tiny
launch\tfirst_kernel<float, 2>\tgrid=4 block=256 shared=0 stream=1 early (7 {16})\td1+0 {d2+64 5 21845}
record\tevent\tevent=1 stream=1\t
launch\tsecond_kernel<float>\tgrid=4 block=32 shared=0 stream=2 (7)\td2+0
launch\tfirst_kernel<float, 2>\tgrid=4 block=256 shared=0 stream=1 early (7 {16})\td1+0 {d2+64 5 21845}
copy\tdevice to host\tbytes=8 stream=1\td2+0 host
"""


def compare(changed, buffers=False, names=("one", "one")):
    with tempfile.TemporaryDirectory() as folder:
        for side, name, text in zip(("old", "new"), names, (trace, changed)):
            (Path(folder) / side).mkdir()
            (Path(folder) / side / f"{name}.txt").write_text(text)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = launch_traces.compare(Path(folder) / "old", Path(folder) / "new", buffers, False)
        return code, said.getvalue()


def same(changed, *words, **options):
    code, said = compare(changed, **options)
    assert code == 0 and all(word in said for word in words), said


def different(changed, *words, **options):
    code, said = compare(changed, **options)
    assert code == 1 and all(word in said for word in words), said


same(trace)
same(trace, buffers=True)
same(trace.replace("train tiny", "train small"))
same(trace.replace("first_kernel", "renamed_kernel"), "renamed: first_kernel -> renamed_kernel")
different(trace.replace("first_kernel", "second_kernel"), "differs from line 4")  # two kernels became one
different(trace.replace("first_kernel", "other_kernel", 1), "differs from line 5")  # one kernel became two
different(trace.replace("<float, 2>", "<float, 4>"), "differs from line 2")
for old, new in (("grid=4 block=32", "grid=5 block=32"), ("stream=2", "stream=1"), (" early", ""), ("(7)", "(8)"),
                 ("bytes=8", "bytes=4"), ("event=1", "event=2")):
    different(trace.replace(old, new), "differs from line")
lines = trace.splitlines(keepends=True)
different("".join(lines[:3] + lines[4:]), "-1 second_kernel<float>")
different("".join(lines[:5]), "-1 copy device")
different("".join(lines[:2] + [lines[3], lines[2]] + lines[4:]), "differs from line 3")  # another order
different(trace, "only in", names=("one", "two"))

moved = trace.replace("d1+0", "d1+256"), trace.replace("d2+64", "d3+0")
for changed in moved:
    same(changed)
    different(changed, "differs from line 2", buffers=True)
same(trace.replace("21845", "17"), buffers=True)  # may be padding
same(trace.replace("21845", "0"), buffers=True)

step = "".join(f"launch\t{name}<float>\tgrid=1\t\n" for name in ("a", "adamw_kernel", "a", "b", "adamw_kernel"))
told = launch_traces.summary([line.split("\t") for line in step.splitlines()])
assert "last training step: 3\n" in told and "     2 a\n" in told and "     1 b\n" in told, told

sort = "".join(f"launch\tDeviceRadixSort{name}Kernel<int>\tgrid={name}\t\n" for name in ("Histogram", "Onesweep"))
single = "launch\tDeviceRadixSortSingleTileKernel<int>\tgrid=1\t\n"
told = [launch_traces.summary([line.split("\t") for line in (step + one + step + one).splitlines()])
        for one in (sort, single, "")]
assert told[0] == told[1] != told[2] and "     2 sort by CUB\n" in told[0], told
