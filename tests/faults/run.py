#!/usr/bin/env python3
"""Every file call of short commands goes wrong once, and the command is repeated: what comes out must be the same.

usage: run.py --program SOME --shim SHIM.so [--scenario NAME]... [--every] [--jobs N] [--from N]

Each scenario is run once to count its file calls (shim.c). Then, for each call in a fresh folder: the process is
killed there, or the call fails; the command is repeated as a user would; and the folder must hold the bytes of the
undisturbed one, with nothing left over. A process that is not killed ends by itself within ten seconds, with exit code
0, 1 or 2 and one line that names a file and says what to do.

A kill before a call that changes nothing is the kill before the next one that does, so only those are killed at, unless
--every is given, which also tears writes, fills the disk for good, takes the disk away, and tries every errno that fits.
"""
import argparse
import concurrent.futures
import errno
import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading

LONGEST_ANSWER = 10  # seconds
HERE = os.path.dirname(os.path.abspath(__file__))
CHANGING = {"create", "write", "sendfile", "rename", "unlink", "unlinkat", "rmdir", "remove", "mkdir", "truncate"}
# Errors that a call may return, the most informative first.
ERRORS = {
    "open": ["EMFILE", "EACCES", "EIO", "ESTALE"], "create": ["ENOSPC", "EMFILE", "EACCES", "EROFS"],
    "write": ["ENOSPC", "EIO", "EDQUOT"], "sendfile": ["ENOSPC", "EIO"], "fsync": ["EIO", "ENOSPC"],
    "read": ["EIO", "ESTALE"], "pread": ["EIO"], "mmap": ["ENOMEM", "EACCES"], "close": ["EIO", "ENOSPC"],
    "flock": ["ENOLCK", "EIO"], "fstat": ["EIO", "ESTALE"], "stat": ["EACCES", "EIO", "ESTALE"],
    "lstat": ["EIO", "EACCES"], "readlink": ["EIO"], "opendir": ["EMFILE", "EACCES", "EIO", "ESTALE"],
    "fdopendir": ["EMFILE", "EIO"], "readdir": ["EIO", "ESTALE"], "rename": ["EACCES", "ENOSPC", "EIO"],
    "unlink": ["EACCES", "EIO"], "unlinkat": ["EACCES", "EIO"], "rmdir": ["EACCES", "EIO"],
    "remove": ["EACCES", "EIO"], "mkdir": ["ENOSPC", "EACCES"], "truncate": ["EIO", "EACCES"],
}
LITTER = re.compile(r"\.tmp-|\.writing|\.removing|\.old$|\.replaced")
LIBRARY_WORDS = re.compile(r"std::|exception|terminate|basic_|_M_|filesystem error|nlohmann|internal error")


class Scenario:
    """One command, how its folder is prepared, and how the command is repeated after a fault."""

    def __init__(self, name, command, repeat=None, prepare=(), stopped=None, passing=(), reads=False):
        self.name, self.command, self.prepare, self.stopped = name, command, prepare, stopped
        self.repeat = repeat or (lambda folder: command)
        self.passing = passing  # files whose contents differ from run to run
        self.reads = reads  # what it prints is what it is for, and the same each time


def train_again(folder):
    begun = os.path.exists(os.path.join(folder, "run/config.toml"))
    return ["train", "--resume", "run"] if begun else ["train", "recipe.toml", "--out", "run"]


def adapt_again(folder):
    # A finished run in a folder is never overwritten.
    return None if os.path.exists(os.path.join(folder, "adapted/config.toml")) else ADAPT


def export_again(folder):
    return None if os.path.exists(os.path.join(folder, "exported/config.json")) else EXPORT


def import_again(folder):
    return None if os.path.exists(os.path.join(folder, "back/config.toml")) else IMPORT


def decompress_again(folder):
    if not os.path.exists(os.path.join(folder, "back.txt")):
        return DECOMPRESS
    # The state is removed after the result is complete; a kill in between leaves it.
    if os.path.exists(os.path.join(folder, "state")):
        os.remove(os.path.join(folder, "state"))
    return None


def header(path):
    """The header of a safetensors file."""
    with open(path, "rb") as file:
        return json.loads(file.read(int.from_bytes(file.read(8), "little")))


def unless(done, command):
    """Repeats a command that must not be given twice; done(folder) is true if it was carried out."""
    return lambda folder: None if done(folder) else command


def exists(name):
    return lambda folder: os.path.exists(os.path.join(folder, name))


def extend_again(folder):
    with open(os.path.join(folder, "run/config.toml")) as file:
        return ["train", "--resume", "run"] if "max_steps = 8" in file.read() else EXTEND


def compress_again(folder):
    if not os.path.exists(os.path.join(folder, "small")):
        return COMPRESS
    # The state is removed after the result is complete; a kill in between leaves it.
    if os.path.exists(os.path.join(folder, "state")):
        os.remove(os.path.join(folder, "state"))
    return None


MEMORY = "run/memory.safetensors"
READ = ["read", "run", "other.txt", "--slots", "16", "--window", "8", "--contexts", "2", "--original", "0", "--threads",
        "1"]
READ_MORE = ["read", "run", "texts", "--original", "0", "--threads", "1"]
TRAIN_MEMORY = ["train", "recipe.toml", "memory.slots=16", "memory.window=8", "--out", "run"]
EXTEND = ["train", "--resume", "run", "train.max_steps=8"]
FORGET = ["memory", "forget", MEMORY, "other.txt", "--threads", "1"]
READ_MINE = [*READ[:2], "texts/one.txt", *READ[3:], "--memory", "mine.memory"]
MERGE = ["memory", "merge", "mine.memory", MEMORY]
PRUNE = ["memory", "prune", MEMORY, "--least", "2"]
SWEEP = ["sweep", "recipe.toml", "train.lr=0.1,0.2", "train.max_steps=2", "-o", "sweep", "--threads", "1"]
TRAIN_TRANSFORMS = ["train", "recipe.toml", "--out", "run", "some.init=hadamard", "train.max_steps=2"]
DENSE = ["library", "dense", "run", "-o", "libraries"]
ROUTES = ["trace", "run", "--csv", "routes.csv", "--threads", "1"]
COMPRESS = ["compress", "run", "short.txt", "-o", "small", "--threads", "1", "--parts", "1", "--state", "state",
            "--state-seconds", "0"]  # saved after every token
DECOMPRESS = ["decompress", "small", "-o", "back.txt", "--state", "state", "--state-seconds", "0"]
TRAIN = ["train", "recipe.toml", "--out", "run"]
EXPORT = ["export", "run", "-o", "exported"]
IMPORT = ["import", "exported", "--out", "back"]
ADAPT = ["adapt", "run", "--data", "other.txt", "--window", "20", "--out", "adapted"]
LAB = ["lab", "run", "recipe", "--recipes", "recipes", "--runs", "runs", "--threads", "1"]
NEEDLE = ["needle", "run", "--data", "other.txt", "--tokens", "160", "--no-others", "--facts", "2", "--slots", "8",
          "--contexts", "2", "--html", "needle.html", "--threads", "1"]
CONTINUAL = ["continual", "run", "other.txt", "texts/one.txt", "--tokens", "100", "--test-tokens", "20", "--epochs", "1",
             "--methods", "finetune,lora,contexts", "--contexts", "2", "--html", "matrix.html", "--threads", "1"]
RAMP = ["lr", "recipe.toml", "--steps", "20", "-o", "ramp.csv", "--threads", "1"]
TRAIN_FORMS = [*TRAIN, "some.key_partitions=2", "some.key_probe=1", "model.dropout=0.1", "train.samples=2"]
TIMES = ("timing.jsonl", "rates.jsonl", "events.out.tfevents")
SCENARIOS = [
    Scenario("train", TRAIN, train_again, passing=TIMES),
    # Stopped after the checkpoint of the best step was written, and before it was marked.
    Scenario("resume", ["train", "--resume", "run"], train_again, stopped=(TRAIN, ("rename", "run/best", 2)),
             passing=TIMES),
    Scenario("adapt", ADAPT, adapt_again, prepare=[TRAIN], passing=TIMES),
    Scenario("export", EXPORT, export_again, prepare=[TRAIN], passing=TIMES),
    Scenario("import", IMPORT, import_again, prepare=[TRAIN, EXPORT], passing=TIMES),
    Scenario("lab", LAB, passing=TIMES),
    Scenario("lab-report", ["lab", "report", "recipe", "--recipes", "recipes", "--runs", "runs", "--threads", "1", "-o",
                            "report.md"], prepare=[LAB], passing=TIMES + ("report.md",)),
    Scenario("inspect", ["inspect", "run"], prepare=[TRAIN], passing=TIMES),
    Scenario("lab-list", ["lab", "list", "recipe", "--recipes", "recipes", "--runs", "runs"], prepare=[LAB],
             passing=TIMES, reads=True),
    Scenario("generate", ["generate", "run", "--prompt", "The cat", "--max-tokens", "4"], prepare=[TRAIN],
             passing=TIMES, reads=True),
    Scenario("eval", ["eval", "run"], prepare=[TRAIN], passing=TIMES, reads=True),
    Scenario("runs", ["runs", "runs"], prepare=[LAB], passing=TIMES, reads=True),
    Scenario("tokenizer", ["tokenizer", "train", "--vocab", "280", "texts", "-o", "made.json"]),
    Scenario("compress", COMPRESS, compress_again, prepare=[TRAIN], passing=TIMES),
    Scenario("decompress", DECOMPRESS, decompress_again, prepare=[["compress", "--portable", "other.txt", "-o", "small"]]),
    Scenario("read", READ, prepare=[TRAIN], passing=TIMES),
    Scenario("read-more", READ_MORE,
             prepare=[TRAIN, READ], passing=TIMES),
    Scenario("train-memory", TRAIN_MEMORY,
             lambda folder: train_again(folder) if exists("run/config.toml")(folder) else TRAIN_MEMORY, passing=TIMES),
    Scenario("extend-memory", EXTEND, extend_again, prepare=[TRAIN_MEMORY], passing=TIMES),
    Scenario("forget", FORGET, unless(lambda folder: "text.1" not in header(os.path.join(folder, MEMORY)), FORGET),
             prepare=[TRAIN, READ, READ_MORE], passing=TIMES),
    Scenario("merge", MERGE, unless(lambda folder: "text.1" in header(os.path.join(folder, "mine.memory")), MERGE),
             prepare=[TRAIN, READ, READ_MINE], passing=TIMES),
    Scenario("prune", PRUNE, unless(lambda folder: "prune" in str(header(os.path.join(folder, MEMORY))), PRUNE),
             prepare=[TRAIN, READ], passing=TIMES),
    Scenario("memory-show", ["memory", "show", MEMORY, "--run", "run"], prepare=[TRAIN, READ], passing=TIMES, reads=True),
    Scenario("sweep", SWEEP, passing=TIMES),
    Scenario("library", DENSE, prepare=[TRAIN_TRANSFORMS], passing=TIMES),
    Scenario("trace-csv", ROUTES, prepare=[TRAIN], passing=TIMES),
    Scenario("ablate", ["ablate", "run", "--threads", "1"], prepare=[TRAIN], passing=TIMES, reads=True),
    Scenario("plot", ["plot", "run", "--width", "40"], prepare=[TRAIN], passing=TIMES, reads=True),
    Scenario("needle", NEEDLE, prepare=[TRAIN], passing=TIMES),
    Scenario("continual", CONTINUAL, prepare=[TRAIN], passing=(*TIMES, "matrix.html")),  # has times
    Scenario("lr", RAMP),
    # Partitions of the keys, dropout and samples: what they draw or write must be the same after a fault.
    Scenario("train-forms", TRAIN_FORMS,
             lambda folder: train_again(folder) if exists("run/config.toml")(folder) else TRAIN_FORMS, passing=TIMES),
    Scenario("stories", ["data", "stories", "--count", "3", "-o", "made.txt"]),
]


def write(path, text):
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    with open(path, "w") as file:
        file.write(text)


def make_folder(folder):
    lines = [f"The cat {i} sat on a mat and saw {i} dogs run by the sea.\n<|endoftext|>\n" for i in range(1, 13)]
    write(os.path.join(folder, "text.txt"), "".join(lines))
    write(os.path.join(folder, "texts/one.txt"), "".join(lines[:6]))
    write(os.path.join(folder, "texts/more/two.txt"), "".join(lines[6:]))
    write(os.path.join(folder, "other.txt"), "".join(line.replace("cat", "dog") for line in lines))
    write(os.path.join(folder, "short.txt"), "A dog saw 7 cats.\n")
    with open(os.path.join(HERE, "recipe.toml")) as file:
        recipe = file.read()
    write(os.path.join(folder, "recipe.toml"), recipe)
    write(os.path.join(folder, "recipes/recipe.toml"), recipe.replace("max_steps = 6", "max_steps = 2"))
    write(os.path.join(folder, "recipes/index.toml"),
          '[[series]]\nname = "short"\ntitle = "One short run"\nrecipes = ["recipe"]\n')


def contents(folder, passing):
    found = {}
    for place, folders, files in os.walk(folder):
        for name in folders:
            found[os.path.relpath(os.path.join(place, name), folder)] = "folder"
        for name in files:
            # Of a killed session, nothing is known except possibly its speed.
            if name in ("timing.jsonl", "rates.jsonl"):
                continue
            path = os.path.join(place, name)
            with open(path, "rb") as file:
                held = file.read()
            if name.startswith("memory") and name.endswith(".safetensors") or name.endswith(".memory"):
                held = without_places(held)
            found[os.path.relpath(path, folder)] = "" if name in passing else hashlib.sha256(held).hexdigest()
    return found


def without_places(memory):
    """A memory names the files that it has read by a hash of their path, which differs from folder to folder."""
    begin = 8 + int.from_bytes(memory[:8], "little")
    head = json.loads(memory[8:begin])
    metadata = head["__metadata__"]
    del metadata["checksum"]
    about = json.loads(metadata["memory"])
    about.pop("files", None)
    metadata["memory"] = json.dumps(about)
    return json.dumps(head).encode() + memory[begin:]


class Fault(Exception):
    pass


class Ended:
    def __init__(self, code, output, error):
        self.code, self.output, self.error = code, output, error

    def told(self):
        # The lab and sweeps summarize failures, one line per run.
        return [line for line in self.error.splitlines() if re.match(r"some: |  (recipe|lr=[0-9.]+): ", line)]


class Runner:
    def __init__(self, program, shim):
        self.program, self.shim = program, shim

    def run(self, folder, command, fault=None, log=None, record=None):
        # oneDNN generates kernels for this instruction set fastest, which is most of the work of such short commands.
        environment = {"ONEDNN_MAX_CPU_ISA": "SSE41", **os.environ, "LD_PRELOAD": self.shim}
        if fault:
            environment.update(FAULT_AT=str(fault[0]), FAULT_KIND=fault[1])
        if log:
            environment["FAULT_LOG"] = log
        if record:
            environment["FAULT_RECORD"] = record
        try:
            done = subprocess.run([self.program, *command], cwd=folder, env=environment, capture_output=True,
                                  stdin=subprocess.DEVNULL, timeout=LONGEST_ANSWER, text=True, errors="replace")
        except subprocess.TimeoutExpired:
            raise Fault(f"no end within {LONGEST_ANSWER} seconds: {' '.join(command)}") from None
        return Ended(done.returncode, done.stdout, done.stderr)

    def run_well(self, folder, command, **more):
        ended = self.run(folder, command, **more)
        if ended.code != 0:
            raise Fault(f"'{' '.join(command)}' ended with {ended.code}: {ended.error.strip()[-400:]}")
        return ended


def read_log(path):
    calls = []
    with open(path) as file:
        for line in file:
            number, call, name = line.rstrip("\n").split(" ", 2)
            assert int(number) == len(calls) + 1, "the calls are not in order"
            calls.append((call, name))
    return calls


class Case:
    """A scenario with its folder before and after, and its calls."""

    def __init__(self, scenario, runner, scratch):
        self.scenario, self.runner = scenario, runner
        self.before = os.path.join(scratch, scenario.name + "-before")
        make_folder(self.before)
        for command in scenario.prepare:
            runner.run_well(self.before, command)
        if scenario.stopped:
            self.stop_at(*scenario.stopped)
        after, log = os.path.join(scratch, scenario.name + "-after"), os.path.join(scratch, scenario.name + ".log")
        shutil.copytree(self.before, after)
        self.output = runner.run_well(after, scenario.command, log=log).output
        self.calls = read_log(log)
        self.wanted = contents(after, scenario.passing)
        left = [name for name in self.wanted if LITTER.search(name)]
        if left:
            raise Fault(f"{scenario.name}: left over without any fault: {left}")

    def stop_at(self, command, place):
        call, name, which = place
        log, other = self.before + ".log", self.before + "-counted"
        shutil.copytree(self.before, other)
        self.runner.run_well(other, command, log=log)
        places = [i for i, one in enumerate(read_log(log), 1) if one == (call, name)]
        if len(places) < which:
            raise Fault(f"{self.scenario.name}: wants a run that makes the call '{call} {name}' {which} times")
        at = places[which - 1]
        if self.runner.run(self.before, command, fault=(at, "kill")).code != -9:
            raise Fault(f"{self.scenario.name}: the run was not killed at call {at}")

    def faults(self, every):
        for number, (call, _) in enumerate(self.calls, 1):
            kinds = [errno_name for errno_name in ERRORS[call]]
            if not every:
                yield number, kinds[number % len(kinds)]
                if call in CHANGING:
                    yield number, "kill"
                continue
            for kind in [*kinds, "kill", *(["torn"] if call == "write" else []), "full", "gone"]:
                yield number, kind

    def try_one(self, number, kind, folder):
        call, name = self.calls[number - 1]
        where = f"{self.scenario.name}: call {number} ({call} {name}), {kind}"
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(self.before, folder)
        try:
            shim_kind = str(getattr(errno, kind)) if kind.startswith("E") else kind
            ended = self.runner.run(folder, self.scenario.command, fault=(number, shim_kind))
            if kind in ("kill", "torn"):
                if ended.code != -9:
                    raise Fault(f"was not killed but ended with {ended.code}: {ended.error.strip()[-300:]}")
            else:
                self.judge(ended)
            # A failed cleanup that the next command completes is acceptable; any other failure is a fault.
            if ended.code != 0 or self.differences(folder, litter_too=True):
                told = "warning[" in ended.error
                if ended.code == 0 and not told and self.differences(folder, litter_too=False):
                    raise Fault(self.differences(folder, litter_too=False))
                again = self.scenario.repeat(folder)
                if again is not None:
                    self.runner.run_well(folder, again)
            if self.differences(folder, litter_too=True):
                raise Fault(self.differences(folder, litter_too=True))
        except Fault as fault:
            raise Fault(f"{where}: {fault}") from None
        return ended

    def judge(self, ended):
        if ended.code not in (0, 1, 2):
            raise Fault(f"ended with {ended.code}: {ended.error.strip()[-400:]}")
        if LIBRARY_WORDS.search(ended.error):
            raise Fault(f"speaks a library's words: {ended.error.strip()[-400:]}")
        if ended.code == 0:
            if self.scenario.reads and ended.output != self.output and "warning[" not in ended.error:
                raise Fault(f"tells something else without a word: {ended.output[-400:]} {ended.error[-400:]}")
            return
        lines = ended.told()
        if len(lines) != 1:
            raise Fault(f"{len(lines)} lines tell the error: {ended.error.strip()[-400:]}")
        if not any(name and name in lines[0] for _, name in self.calls):
            raise Fault(f"names no file: {lines[0]}")
        # A skipped item with a warning must have reported it.
        if "warning[" not in ended.error and not re.search(r"; |: choose|: bring|: mend|: see|: mount|: remove", lines[0]):
            raise Fault(f"does not say what to do: {lines[0]}")

    def differences(self, folder, litter_too):
        found = contents(folder, self.scenario.passing)
        if not litter_too:
            found = {name: value for name, value in found.items() if not LITTER.search(name)}
        missing, more = sorted(self.wanted.keys() - found.keys()), sorted(found.keys() - self.wanted.keys())
        other = sorted(name for name in self.wanted.keys() & found.keys() if self.wanted[name] != found[name])
        if not (missing or more or other):
            return ""
        return (f"the folder is not what it is without a fault: missing {missing}, left over {more}, other contents "
                f"{other}")


def run_scenario(scenario, runner, scratch, options):
    case = Case(scenario, runner, scratch)
    faults = [fault for fault in case.faults(options.every) if fault[0] >= options.first][:: options.stride]
    mine = threading.local()
    counts = {}

    def one(fault):
        if not hasattr(mine, "folder"):
            mine.folder = tempfile.mkdtemp(dir=scratch)
        ended = case.try_one(*fault, os.path.join(mine.folder, "work"))
        return fault, ended

    bad, messages = [], {}
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        for future in concurrent.futures.as_completed([pool.submit(one, fault) for fault in faults]):
            try:
                fault, ended = future.result()
                counts[ended.code] = counts.get(ended.code, 0) + 1
                if ended.code > 0:
                    messages.setdefault(re.sub(r"[0-9]+", "N", ended.told()[-1]), fault)
            except Fault as found:
                bad.append(str(found))
    if options.messages:
        for message, fault in sorted(messages.items()):
            print(f"  {fault[0]} {fault[1]}: {message}")
    killed, passed = counts.pop(-9, 0), counts.pop(0, 0)
    print(f"{scenario.name}: {len(case.calls)} file calls, {len(faults)} faults: {killed} kills, {passed} passed over, "
          f"{sum(counts.values())} told; {len(bad)} wrong", flush=True)
    for line in sorted(bad):
        print(f"  {line}", flush=True)
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--scenario", action="append", choices=[one.name for one in SCENARIOS])
    parser.add_argument("--every", action="store_true")
    parser.add_argument("--messages", action="store_true", help="also print every message seen")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--from", type=int, default=1, dest="first", help="begin with this call")
    parser.add_argument("--stride", type=int, default=1, help="only every so many-th of the faults")
    options = parser.parse_args()
    runner = Runner(os.path.abspath(options.program), os.path.abspath(options.shim))
    good = True
    with tempfile.TemporaryDirectory(prefix="faults-") as scratch:
        for scenario in SCENARIOS:
            if options.scenario and scenario.name not in options.scenario:
                continue
            try:
                good = run_scenario(scenario, runner, scratch, options) and good
            except Fault as fault:
                print(f"{scenario.name}: {fault}")
                good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
