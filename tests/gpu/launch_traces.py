#!/usr/bin/env python3
"""What the program asks of a GPU, recorded without one by a program linked to the fake CUDA runtime (some_traced).

    launch_traces.py record PROGRAM FOLDER [NAME...]   run the configurations, write one trace per configuration
    launch_traces.py compare OLD NEW [--buffers] [--common]   compare two folders of traces; 1 if they differ
    launch_traces.py check PROGRAM [NAME...]           record, and compare with the counts in tests/gpu/launches
    launch_traces.py write PROGRAM [NAME...]           record, and rewrite those counts

A trace has one line per call: what is done, to what, sizes and stream and numbers passed by value, buffers. `compare`
follows consistent renames of kernels and reports them. The last column (buffers, and the words of structs passed to
kernels) counts only with --buffers, because offsets in an arena change easily; of structs, whose padding may be anything,
two words differ if both are pointers and not the same.
"""
import argparse
import collections
import difflib
import hashlib
import os
import re
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sources = Path(__file__).resolve().parents[2]
counts_folder = Path(__file__).resolve().parent / "launches"

# Small models on built-in text. The kernels of a step depend on widths (multiples of 64), precision and kinds of
# blocks, hardly on depth or length.
small = """model.d_model=64 model.layers=2 model.heads=2 model.seq_len=512 some.experts=16 some.d_ffn=64
    some.top_k=2 data.train=builtin:stories data.valid=builtin:stories data.tokenizer=bytelevel data.vocab=512
    data.train_documents=120 data.valid_documents=20 train.epochs=1 train.batch=4 train.max_steps=3 train.warmup_steps=1
    some.decay_warmup=1 train.samples=0""".split()
wide = ["model.d_model=512", "model.heads=8", "some.experts=8", "some.d_ffn=512", "some.top_k=4", "train.batch=16"]
odd = ["model.d_model=60", "model.heads=3", "some.d_ffn=52", "some.experts=11", "some.top_k=3", "data.vocab=509"]
packed, padded = ["data.count_pads=false"], ["data.count_pads=true"]


def train(recipe, *settings, size=small, out="RUN"):
    return ["train", str(sources / "recipes" / f"{recipe}.toml"), "--device", "cuda", "--out", out, *size, *settings]


def on_run(command, *words):
    return [command, "RUN", "--device", "cuda", *words]


# Each configuration: commands run one after another in a separate folder. RUN is a run folder there.
configurations = {
    "tiny": [train("tiny", size=["train.max_steps=3", "train.warmup_steps=1", "data.valid_documents=20"])],
    "default": [train("default", size=["train.max_steps=3", "train.warmup_steps=1", "data.train_documents=200",
                                       "data.valid_documents=20", "train.samples=0"])],
    "padded": [train("a4", *padded)],
    "padded-long": [train("a4", *padded, "train.max_steps=6", "train.eval_every=3")],
    "packed": [train("a4", *packed)],
    "fp32": [train("a4", *packed, "train.precision=fp32")],
    "fp32-padded": [train("a4", *padded, "train.precision=fp32")],
    "accumulate": [train("default", "train.accumulate=2")],
    "accumulate-phoenix": [train("v6", "train.accumulate=3")],
    "odd": [train("a4", *packed, *odd)],
    "odd-fp32": [train("a4", *packed, *odd, "train.precision=fp32")],
    "odd-full-fp32": [train("mod-shift-full", *odd, "train.precision=fp32")],
    "odd-lora": [train("mod-shift-lora", *odd)],
    "many-experts": [train("a4", *packed, "some.experts=1100", "some.top_k=3", "some.d_ffn=16")],
    "odd-mod-conv": [train("mod-conv", *odd)],
    "pre-norm": [train("a4", *packed, "model.norm=pre")],
    "pre-norm-rope": [train("a4", *packed, "model.norm=pre", "model.position=rope")],
    "dense": [train("dense-match")],
    "no-ffn": [train("no-ffn")],
    "mod-shift": [train("mod-shift")],
    "mod-shift-balanced": [train("mod-shift-gentle")],
    "mod-shift-full": [train("mod-shift", "some.training=full")],
    "mod-shift-fp32": [train("mod-shift", "train.precision=fp32")],
    "mod": [train("mod")],
    "mod-keys": [train("mod-shift-keys")],
    "mod-slack": [train("mod-shift-slack")],
    "mod-hash": [train("mod-shift-hash")],
    "mod-conv": [train("mod-conv")],
    "mod-conv-pre-norm": [train("mod-conv", "model.norm=pre")],
    "dense-conv": [train("dense-conv")],
    "features": [train("features")],
    "features-linear": [train("control-features-best")],
    "features-mlp": [train("features", "some.router=mlp", "some.router_mult=2", "some.temperature=fixed")],
    "lora": [train("mod-shift-lora")],
    "full": [train("mod-shift-full")],
    "grounded": [train("a4", *packed, "some.ground=0.5")],
    "balance-loss": [train("knob-balance-loss", *packed)],
    "balance-loss-padded": [train("knob-balance-loss", *padded)],
    "entropy-band": [train("a4", *packed, "some.entropy_band=[0.2,0.8]")],
    "phoenix": [train("v6")],
    "sparse-experts": [train("a4", *packed, "some.init=sparse")],
    "orthogonal-experts": [train("a4", *packed, "some.init=orthogonal")],
    "hadamard": [train("a4", *packed, "some.init=hadamard")],
    "hadamard-shift": [train("mod-shift", "some.init=hadamard")],
    "hadamard-fp32": [train("mod-conv", "some.init=hadamard", "train.precision=fp32")],
    "wide-hadamard": [train("a4", *packed, *wide, "some.init=hadamard")],
    "wide-hadamard-shift": [train("mod-shift", *wide, "some.init=hadamard")],
    "wide-hadamard-features": [train("features", *wide, "some.init=hadamard")],
    "wide": [train("a4", *packed, *wide)],
    "wide-padded": [train("a4", *padded, *wide)],
    "wide-mod-shift": [train("mod-shift", *wide)],
    "wide-mod-conv": [train("mod-conv", *wide)],
    "wide-features": [train("features", *wide)],
    "wide-full": [train("mod-shift-full", *wide)],
    "wide-lora": [train("mod-shift-lora", *wide)],
    "wide-dense-conv": [train("dense-conv", *wide)],
    "study": [train("default"), on_run("eval"), on_run("inspect", "--no-pictures"), on_run("guilds", "--shuffles", "1"),
              on_run("trace", "--text", "Lily likes cats and dogs.")],
    "generate": [train("mod-shift"), on_run("generate", "--prompt", "Once upon a time", "--prompt", "The fox", "--max-tokens", "20")],
    "generate-conv": [train("mod-conv"),
                      on_run("generate", "--prompt", "Once upon a time", "--samples", "3", "--max-tokens", "20")],
    "generate-adapt": [train("a4"), on_run("generate", "--prompt", "Once upon a time", "--max-tokens", "40", "--adapt",
                                           "--adapt-window", "8")],
    "adapt": [train("a4", *packed), on_run("adapt", "--data", "builtin:recipes", "--max-documents", "20",
                                           "--max-eval-documents", "10")],
    "adapt-compare": [train("default"), on_run("adapt", "--data", "builtin:recipes", "--compare", "--tokens", "600")],
    "memory": [train("default"),
               on_run("read", "builtin:recipes", "--slots", "512", "--tokens", "2000", "--window", "128",
                      "--original", "500"),
               on_run("eval", "--memory", "RUN/memory.safetensors"),
               on_run("generate", "--memory", "RUN/memory.safetensors", "--prompt", "Mix", "--max-tokens", "20")],
    "memory-partitions": [train("default"),
                     on_run("read", "builtin:recipes", "--slots", "4096", "--partitions", "16", "--nprobe", "4", "--refinement-passes",
                            "2", "--tokens", "3000", "--window", "128", "--original", "500")],
    "memory-beta": [train("default"),
                         on_run("read", "builtin:recipes", "--slots", "512", "--tokens", "1000", "--window", "64",
                                "--beta", "20", "--original", "0")],
    "memory-plain": [train("default"),
                     on_run("read", "builtin:recipes", "--slots", "512", "--tokens", "1000", "--plain-cache",
                            "--documents", "--no-counts", "--original", "0")],
    "memory-wide": [train("a4", *packed, *wide),
                    on_run("read", "builtin:recipes", "--slots", "4096", "--tokens", "3000", "--original", "500")],
    "memory-trained": [train("default", "memory.slots=256")],
}


# Kernels for GPUs before Hopper.
configurations |= {f"a100-{name}": configurations[name] for name in ("packed", "mod-conv", "features", "wide", "wide-full")}


def traces_of(program, name, folder):
    """Runs a configuration's commands; returns its trace."""
    text = ""
    for number, words in enumerate(configurations[name]):
        trace = Path(folder) / f"trace{number}.txt"
        environment = {**os.environ, "SOME_CUDA_TRACE": str(trace),
                       "SOME_FAKE_GPU": "a100" if name.startswith("a100-") else "h200"}
        words = [word.replace("RUN", "run", 1) if word == "RUN" or word.startswith("RUN/") else word for word in words]
        command = [str(program), *words]
        if Path("/usr/bin/setarch").exists():  # the same addresses in every run: padding of structs may hold some
            command = ["/usr/bin/setarch", "-R", *command]
        done = subprocess.run(command, cwd=folder, env=environment, text=True, errors="replace",
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        lines = trace.read_text() if trace.exists() else ""
        if done.returncode != 0 or not lines or "\nrefused" in lines:
            print(f"{name}: some {' '.join(words)}: exit {done.returncode}\n{done.stdout}", file=sys.stderr)
            raise SystemExit(1)
        shown = re.sub(r"\S*/recipes/", "", " ".join(words))
        text += f"command\t{shown}\t\t\n" + lines
    return text


def record(program, folder, names):
    folder.mkdir(parents=True, exist_ok=True)

    def one(name):
        with tempfile.TemporaryDirectory() as scratch:
            (folder / f"{name}.txt").write_text(traces_of(Path(program).resolve(), name, scratch))

    with ThreadPoolExecutor(2) as pool:
        failed = [name for name, done in [(name, pool.submit(one, name)) for name in names] if done.exception()]
    for name in failed:
        (folder / f"{name}.txt").unlink(missing_ok=True)
    print(f"{len(names) - len(failed)} configurations recorded" + (f"; failed: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


def read(folder):
    return {path.stem: [line.split("\t") for line in path.read_text().splitlines()] for path in folder.glob("*.txt")}


class Renames:
    """Returns pairs of identifiers in kernels' names, one to one."""

    def __init__(self):
        self.new_of, self.old_of = {}, {}

    def pairs(self, old, new):
        first, second = (re.split(r"([A-Za-z_]\w*)", text) for text in (old, new))
        if len(first) != len(second) or first[::2] != second[::2]:
            return None
        return list(zip(first[1::2], second[1::2]))

    def same(self, old, new):
        pairs = self.pairs(old, new)
        if pairs is None or any(self.new_of.get(a, b) != b or self.old_of.get(b, a) != a for a, b in pairs):
            return False
        for a, b in pairs:
            self.new_of[a], self.old_of[b] = b, a
        return True


def words(buffers):
    """Parses the last column as a list. Words in a struct are pairs of struct and value; a pointer occupies two
    words."""
    found, inside = [], False
    for word in buffers.split():
        inside = inside or word.startswith("{")
        value, count = word.strip("{}"), 1
        if "*" in value:
            value, count = value.split("*")
        if value:
            found += [(inside, value)] * int(count)
            if inside and "+" in value:
                found.append((inside, "pointer"))
        inside = inside and not word.endswith("}")
    return found


def same_buffers(old, new):
    first, second = words(old), words(new)
    return old == new or len(first) == len(second) and all(
        a == b or a[0] and b[0] and not ("+" in a[1] and "+" in b[1]) for a, b in zip(first, second))


def named(line):
    return line[1] if line[0] == "launch" else line[0] + " " + line[1].split()[0] if line[0] == "copy" else line[0]


def compare(old_folder, new_folder, buffers, common):
    old, new = read(old_folder), read(new_folder)
    if common:
        old, new = ({name: one[name] for name in old.keys() & new.keys()} for one in (old, new))
    renames, different = Renames(), 0
    for name in sorted(old.keys() | new.keys()):
        if name not in old or name not in new:
            print(f"{name}: only in {new_folder if name in new else old_folder}")
            different += 1
            continue

        def same(a, b):
            if a[0] == "command":
                return b[0] == "command"  # settings and options may be renamed
            return a[0] == b[0] and a[2] == b[2] and (not buffers or same_buffers(a[3], b[3])) and (
                renames.same(a[1], b[1]) if a[0] == "launch" else a[1] == b[1])

        first, second = old[name], new[name]
        at = next((i for i, (a, b) in enumerate(zip(first, second)) if not same(a, b)), min(len(first), len(second)))
        if at == len(first) == len(second):
            continue
        different += 1
        print(f"\n{name}: differs from line {at + 1} ({len(first)} lines, now {len(second)})")
        counts = collections.Counter(named(line) for line in second)
        counts.subtract(renames.new_of.get(named(line), named(line)) for line in first)
        for what, count in sorted(counts.items()):
            if count:
                print(f"  {count:+d} {what}")
        shown = [["\t".join(line[:4 if buffers else 3]) for line in lines[max(at - 3, 0):at + 40]] for lines in (first, second)]
        print("\n".join(list(difflib.unified_diff(*shown, "old", "new", n=3, lineterm=""))[:24]))
    changed = [f"{a} -> {b}" for a, b in sorted(renames.new_of.items()) if a != b]
    if changed:
        print("\nrenamed: " + ", ".join(changed))
    print(f"\n{len(old.keys() | new.keys())} configurations, {different} different")
    return 1 if different else 0


def without_cub(lines):
    """Represents a CUB sort as one line, because its kernels change with the version of CUDA."""
    for i, line in enumerate(lines):
        if line[0] != "launch" or not line[1].startswith("DeviceRadixSort"):
            yield line
        elif i == 0 or not lines[i - 1][1].startswith("DeviceRadixSort"):
            yield ["launch", "sort by CUB", "", ""]


def summary(lines):
    """Returns the committed summary of a trace: a hash of everything but buffers, and the count of each operation."""
    lines = list(without_cub(lines))
    text = "\n".join("\t".join(line[:3]) for line in lines if line[0] != "command")
    ends = [i for i, line in enumerate(lines) if line[0] == "launch" and line[1].startswith("adamw_kernel")]
    told = [f"hash of all calls: {hashlib.sha256(text.encode()).hexdigest()[:16]}"]
    if len(ends) > 1:
        step = lines[ends[-2] + 1:ends[-1] + 1]
        told.append(f"launches in the last training step: {sum(line[0] in ('launch', 'matmul') for line in step)}")
    counts = collections.Counter(re.sub(r"<.*", "", line[1]) if line[0] == "launch" else
                                 f"({line[0]})" for line in lines if line[0] != "command")
    told += [f"{count:6} {what}" for what, count in sorted(counts.items())]
    return "\n".join(told) + "\n"


def check(program, names, rewrite):
    with tempfile.TemporaryDirectory() as folder:
        if record(program, Path(folder), names) != 0:
            return 1
        found = {name: summary(lines) for name, lines in read(Path(folder)).items()}
    if rewrite:
        counts_folder.mkdir(exist_ok=True)
        for name, text in found.items():
            (counts_folder / f"{name}.txt").write_text(text)
        for path in counts_folder.glob("*.txt"):
            if path.stem not in configurations:
                path.unlink()
        return 0
    code = 0
    for name, text in sorted(found.items()):
        path = counts_folder / f"{name}.txt"
        wanted = path.read_text() if path.exists() else ""
        if text != wanted:
            code = 1
            print("\n".join(difflib.unified_diff(wanted.splitlines(), text.splitlines(), f"launches/{name}.txt", "now",
                                                 n=0, lineterm="")))
    if code:
        print("GPU work changed: record traces of both commits and compare them to see the call; if the change is "
              f"intended, run tests/gpu/launch_traces.py write {program}")
    return code


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(dest="command", required=True)
    for command in ("record", "check", "write"):
        one = commands.add_parser(command)
        one.add_argument("program")
        if command == "record":
            one.add_argument("folder", type=Path)
        one.add_argument("names", nargs="*", metavar="NAME")
    one = commands.add_parser("compare")
    one.add_argument("old", type=Path)
    one.add_argument("new", type=Path)
    one.add_argument("--buffers", action="store_true", help="pointers and the words of structs, too")
    one.add_argument("--common", action="store_true", help="only configurations that are in both folders")
    given = parser.parse_args()
    if given.command == "compare":
        return compare(given.old, given.new, given.buffers, given.common)
    names = given.names or list(configurations)
    if unknown := [name for name in names if name not in configurations]:
        parser.error(f"no configuration {', '.join(unknown)}")
    if given.command == "record":
        return record(given.program, given.folder, names)
    return check(given.program, names, given.command == "write")


if __name__ == "__main__":
    sys.exit(main())
