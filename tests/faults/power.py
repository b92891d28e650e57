#!/usr/bin/env python3
"""Power cuts: what was not flushed is lost, and the command is repeated; what comes out must be the same.

usage: power.py --program SOME --shim SHIM.so [--scenario NAME]... [--stride N] [--jobs N]

A scenario of run.py is run once while shim.c records every call that changes files. The folder is then rebuilt as a
power cut after each call would leave it:

- Bytes of a file are on the disk after an fsync of the file; names in a folder (created, renamed, removed) after an
  fsync of that folder.
- Of all other calls, a prefix in their order has reached the disk: none, all, and every length in between.
- Alternatively, all names have reached the disk and no other bytes, so a file that was renamed before it was flushed is
  empty.

The command is repeated in each such folder, as a user would do, and the folder must then hold the bytes of the
undisturbed one.
"""
import argparse
import concurrent.futures
import hashlib
import os
import shutil
import sys
import tempfile
import threading

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import SCENARIOS, Case, Fault, Runner  # noqa: E402

# Commands whose files another command reads again.
SCENARIO_NAMES = ("train", "resume", "adapt", "export", "import", "lab", "tokenizer", "compress", "decompress", "read",
                  "read-more", "train-memory", "extend-memory", "forget", "merge", "prune", "sweep", "library",
                  "trace-csv")


class Disk:
    """Files and folders by number, which they keep when they are renamed. Number 0 is the top folder."""

    def __init__(self):
        self.folders, self.files = {}, {}  # number -> {name: number}, number -> bytes

    @classmethod
    def load(cls, path):
        disk = cls()
        disk._load(path)
        return disk

    def _load(self, path):
        number = self.add(os.path.isdir(path))
        if number in self.files:
            with open(path, "rb") as file:
                self.files[number] = bytearray(file.read())
        else:
            for name in sorted(os.listdir(path)):
                self.folders[number][name] = self._load(os.path.join(path, name))
        return number

    def add(self, is_folder):
        number = len(self.folders) + len(self.files)
        if is_folder:
            self.folders[number] = {}
        else:
            self.files[number] = bytearray()
        return number

    def copy(self):
        other = Disk()
        other.folders = {number: dict(names) for number, names in self.folders.items()}
        other.files = {number: bytearray(held) for number, held in self.files.items()}
        return other

    def find(self, parts):
        at = 0
        for part in parts:
            at = self.folders.get(at, {}).get(part)
            if at is None:
                return None
        return at

    def save(self, path, number=0):
        if number in self.files:
            with open(path, "wb") as file:
                file.write(self.files[number])
            return
        os.mkdir(path)
        for name, child in self.folders[number].items():
            self.save(os.path.join(path, name), child)

    def digest(self, number=0):
        out = hashlib.sha256()
        if number in self.files:
            out.update(b"file" + bytes(self.files[number]))
        else:
            for name, child in sorted(self.folders[number].items()):
                out.update(f"{len(name)}:{name}".encode() + self.digest(child))
        return out.digest()


class Change:
    """A change of the bytes of a file, or of names in folders. It is on disk once everything that it affects is
    flushed."""

    def __init__(self, call, touched, apply, is_bytes):
        self.call, self.touched, self.apply, self.is_bytes = call, set(touched), apply, is_bytes
        self.flushed = None  # number of the call


def put(held, offset, data):
    held.extend(b"\0" * (offset - len(held)))
    held[offset:offset + len(data)] = data


def cut(held, size):
    held.extend(b"\0" * (size - len(held)))
    del held[size:]


class Recording:
    """Converts the calls of a command to changes of a disk."""

    def __init__(self, top, initial, base):
        self.top, self.initial, self.live = os.path.realpath(top), initial, initial.copy()
        self.new = []  # whether each node that the command made is a folder
        self.changes, self.calls = [], 0
        with open(base + ".calls") as calls, open(base + ".data", "rb") as data:
            for line in calls:
                call, path, to, first, second = line.rstrip("\n").split("\t")
                self.calls += 1
                self.add(call, self.parts(path), self.parts(to), int(first),
                         data.read(int(second)) if call == "write" else b"")

    def parts(self, path):
        relative = os.path.relpath(os.path.join(self.top, path), self.top)
        return [] if relative == "." else relative.split("/")

    def change(self, touched, apply, is_bytes=False):
        self.changes.append(Change(self.calls, touched, apply, is_bytes))
        apply(self.live)

    def make(self, parts, is_folder):
        parent, number = self.live.find(parts[:-1]), self.live.add(is_folder)
        self.new.append(is_folder)
        self.change([parent], lambda disk: disk.folders[parent].update({parts[-1]: number}))
        return number

    def add(self, call, parts, to, first, data):
        node = self.live.find(parts)
        if call == "open":
            node = self.make(parts, False) if node is None else node
            if first and node in self.live.files:
                self.change([node], lambda disk: disk.files[node].clear(), True)
        elif call == "mkdir":
            self.make(parts, True)
        elif node is None:  # a file that has no name any more
            return
        elif call == "write":
            self.change([node], lambda disk: put(disk.files[node], first, data), True)
        elif call == "truncate":
            self.change([node], lambda disk: cut(disk.files[node], first), True)
        elif call == "rename":
            source, target = self.live.find(parts[:-1]), self.live.find(to[:-1])

            def move(disk):
                if disk.folders[source].get(parts[-1]) == node:
                    del disk.folders[source][parts[-1]]
                disk.folders[target][to[-1]] = node
            self.change([source, target], move)
        elif call == "remove":
            parent = self.live.find(parts[:-1])
            self.change([parent], lambda disk: disk.folders[parent].pop(parts[-1], None))
        elif call == "fsync":
            for change in self.changes:
                change.touched.discard(node)
                if not change.touched and change.flushed is None:
                    change.flushed = self.calls
        else:
            raise Fault(f"an unknown call was recorded: {call}")

    def rebuilt(self, changes):
        disk = self.initial.copy()
        for is_folder in self.new:
            disk.add(is_folder)
        for change in changes:
            change.apply(disk)
        return disk

    def states(self):
        """Yields every distinct state that a power failure leaves, as (description, disk)."""
        seen = set()
        for last in range(self.calls + 1):
            made = [change for change in self.changes if change.call <= last]
            pending = [change for change in made if change.flushed is None or change.flushed > last]
            lost = [(f"{length} of {len(pending)} changes that were not flushed", set(pending[length:]))
                    for length in range(len(pending) + 1)]
            lost.append(("all names and no bytes", {change for change in pending if change.is_bytes}))
            for words, without in lost:
                disk = self.rebuilt([change for change in made if change not in without])
                key = disk.digest()
                if key not in seen:
                    seen.add(key)
                    yield f"a power cut after call {last} that keeps {words}", disk


def run_scenario(scenario, runner, scratch, options):
    case = Case(scenario, runner, scratch)
    folder, base = os.path.join(scratch, scenario.name + "-recorded"), os.path.join(scratch, scenario.name + "-record")
    shutil.copytree(case.before, folder)
    initial = Disk.load(folder)
    runner.run_well(folder, scenario.command, record=base)
    recording = Recording(folder, initial, base)
    whole = recording.rebuilt(recording.changes)
    whole.save(os.path.join(scratch, "rebuilt"))
    if difference := case.differences(os.path.join(scratch, "rebuilt"), litter_too=True):
        raise Fault(f"{scenario.name}: the recording lacks a call: {difference}")
    shutil.rmtree(os.path.join(scratch, "rebuilt"))
    mine = threading.local()

    def one(state):
        words, disk = state
        if not hasattr(mine, "folder"):
            mine.folder = tempfile.mkdtemp(dir=scratch)
        work = os.path.join(mine.folder, "work")
        shutil.rmtree(work, ignore_errors=True)
        disk.save(work)
        try:
            again = scenario.repeat(work)
            if again is not None:
                runner.run_well(work, again)
            if difference := case.differences(work, litter_too=True):
                raise Fault(difference)
        except Fault as fault:
            return f"{scenario.name}: {words}: {fault}"
        return None

    states = list(recording.states())
    tried = states[options.first % max(1, options.stride)::options.stride]
    with concurrent.futures.ThreadPoolExecutor(options.jobs) as pool:
        bad = [result for result in pool.map(one, tried) if result]
    print(f"{scenario.name}: {recording.calls} calls that change files, {len(states)} states, {len(tried)} tried; "
          f"{len(bad)} wrong", flush=True)
    for line in bad:
        print(f"  {line}", flush=True)
    return not bad


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--shim", required=True)
    parser.add_argument("--scenario", action="append", choices=SCENARIO_NAMES)
    parser.add_argument("--stride", type=int, default=1, help="try only every N-th state")
    parser.add_argument("--first", type=int, default=0, help="begin with this state, if not all are tried")
    parser.add_argument("--jobs", type=int, default=1)
    options = parser.parse_args()
    runner = Runner(os.path.abspath(options.program), os.path.abspath(options.shim))
    good = True
    with tempfile.TemporaryDirectory(prefix="power-") as scratch:
        for scenario in SCENARIOS:
            if scenario.name not in (options.scenario or SCENARIO_NAMES):
                continue
            try:
                good = run_scenario(scenario, runner, scratch, options) and good
            except Fault as fault:
                print(f"{scenario.name}: {fault}")
                good = False
    sys.exit(0 if good else 1)


if __name__ == "__main__":
    main()
