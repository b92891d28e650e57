#!/usr/bin/env python3
"""A run is stopped by `timeout` at random moments and goes on each time, until it is done; then another one.

usage: signals.py --program SOME [--count N] [--signal TERM|INT|HUP|KILL] [--seed K]

`timeout` signals the program and then its whole group, so that the signal comes twice. Whatever the moment, the program
saves and ends with the code of the signal, and what it has trained in the end is what a run without a stop trains.
"""
import argparse
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True  # no folder beside the sources
from run import Fault, TIMES, contents, make_folder

# A run of about two seconds with a checkpoint every few hundredths of a second.
LONG = ["train.epochs=2000", "train.max_steps=4000", "train.lr=0.01", "train.eval_every=400", "train.checkpoint_every=80"]
BEGIN = ["train", "recipe.toml", "--out", "run", "--json", *LONG]
RESUME = ["train", "--resume", "run", "--json"]
LONGEST_END = 10  # seconds from the signal to the end of the program


def run(program, command, folder, number=None, after=0.0):
    line = [program, *command]
    if number is not None:
        line = ["timeout", "--preserve-status", "-s", number.name[3:], f"{after:.3f}", *line]
    # A new session, so that the group signaled by `timeout` contains only the program.
    try:
        return subprocess.run(line, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                              start_new_session=True, timeout=after + 60 if number is None else after + LONGEST_END)
    except subprocess.TimeoutExpired:
        raise Fault(f"no end within {LONGEST_END} seconds of the signal: {' '.join(command)}") from None


def before_its_beginning(done):
    return done.stderr == "" and done.stdout == ""


def check_stopped(done, number, folder):
    """True if the run was stopped, False if it ended before the signal."""
    if done.returncode == 0:
        return False
    if done.returncode not in (128 + number, -number):
        raise Fault(f"ended with {done.returncode} instead of {128 + number}: {done.stderr[-400:]}")
    if number == signal.SIGKILL or before_its_beginning(done):
        return True
    if '"finished":false' not in done.stdout:  # the last thing a program says that ends by itself
        raise Fault(f"was ended by the signal: {done.stderr[-400:]}")
    if os.path.exists(os.path.join(folder, "run/config.toml")) and "--resume" not in done.stderr and "before the first step" not in done.stderr:
        raise Fault(f"does not say how to go on: {done.stderr[-400:]}")
    return True


def last_step(folder):
    try:
        with open(os.path.join(folder, "run/latest")) as file:
            return int(file.read())
    except FileNotFoundError:
        return 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--signal", default="TERM", choices=["TERM", "INT", "HUP", "KILL"])
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    program, number = os.path.abspath(options.program), getattr(signal, "SIG" + options.signal)
    dice = random.Random(options.seed)
    stopped = finished = early = 0
    with tempfile.TemporaryDirectory(prefix="signals-") as scratch:
        first, folder = os.path.join(scratch, "first"), os.path.join(scratch, "work")
        make_folder(first)
        begin = time.monotonic()
        if run(program, BEGIN, first).returncode != 0:
            sys.exit("the run without a stop failed")
        length = time.monotonic() - begin
        wanted = contents(first, TIMES)
        try:
            while stopped < options.count:
                shutil.rmtree(folder, ignore_errors=True)
                make_folder(folder)
                for sittings in range(1000):
                    begun = os.path.exists(os.path.join(folder, "run/config.toml"))
                    before = last_step(folder)
                    done = run(program, RESUME if begun else BEGIN, folder, number, dice.uniform(0, length / 3))
                    if not check_stopped(done, number, folder):
                        break
                    stopped += 1
                    early += before_its_beginning(done)
                    shown = [int(step) for step in re.findall(r"step (\d+)/", done.stderr)]
                    if number != signal.SIGKILL and shown and last_step(folder) < max(before + 1, shown[-1]):
                        raise Fault(f"steps {before} to {shown[-1]} were made, but {last_step(folder)} is the last that "
                                    f"was saved: {done.stderr[-400:]}")
                finished += 1
                found = contents(folder, TIMES)
                if found != wanted:
                    names = sorted(name for name in wanted.keys() | found.keys() if wanted.get(name) != found.get(name))
                    raise Fault(f"after {sittings} stops the run is not what it is without: {names}")
        except Fault as fault:
            sys.exit(f"SIG{options.signal}, seed {options.seed}, stop {stopped + 1}: {fault}")
    print(f"SIG{options.signal}: {stopped} stops ({early} before the program had begun) in {finished} runs of "
          f"{length:.1f} s; all ended as the run without a stop")


if __name__ == "__main__":
    main()
