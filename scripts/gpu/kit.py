"""Shared parts of the stages of scripts/gpu-session: the unpacked archive, programs with a time limit, and the output folder.
It has five files, each written as results arrive, so that an interrupted call keeps everything measured until then:

    session.log    all printed lines
    table.txt      the short table
    results.json   the numbers of every stage
    seeds.json     the numbers of every training run, epoch by epoch
    details.log    output of the programs, each line after the program's name
"""
import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
ARCHIVE = ROOT / "carry/gpu/pack.tar.xz"
SAVING = 20  # seconds that a program has after SIGTERM, to save what it has
MOST_DETAILS = 14 << 20  # bytes of details.log: a file that is too large does not come back
MOST_OF_ONE = 256 << 10  # of one program's
LONGEST_LINE = 2000


def program_folders():
    """Folders that may contain CUDA libraries which the loader does not find: those of the toolkit and of PyTorch."""
    for pattern in ("usr/local/cuda*/lib64", "usr/local/cuda*/lib", "usr/local/cuda*/targets/*/lib"):
        yield from Path("/").glob(pattern)
    for place in sys.path:
        yield from Path(place or ".").glob("nvidia/*/lib")


@dataclass
class Done:
    """Result of a program. `code` is None if it was not started for lack of time."""

    code: int | None
    seconds: float = 0
    out: str = ""
    err: str = ""
    cut: bool = False  # it was stopped at its limit

    @property
    def fine(self):
        return self.code == 0

    def json(self):
        """Returns the object that a program printed with --json; None if it printed none."""
        try:
            return json.loads(self.out)
        except ValueError:
            return None

    def outcome(self):
        """Describes in a few words how it ended, with the last line it printed after a failure."""
        if self.code is None:
            return "not started: no time left"
        how = "stopped at its limit" if self.cut else f"exit {self.code}"
        last = (self.err.strip() or self.out.strip()).splitlines()[-1:]
        return how if self.fine else f"{how}: {last[0][:200]}" if last else how


class Session:
    def __init__(self, options):
        self.rehearse = options.rehearse
        self.device = "cpu" if options.rehearse else "cuda"
        self.changes = options.set  # key=value for every run and bench
        self.only = options.runs
        self.list = options.list
        self.keep = options.keep
        self.workers = options.workers
        self.short_first = options.short_first
        self.began = time.monotonic()
        self.limit = options.limit
        self.out = Path(os.environ.get("OUT") or ROOT / "carry/out")
        self.out.mkdir(parents=True, exist_ok=True)
        for name in ("session.log", "table.txt", "details.log", "results.json", "seeds.json"):
            (self.out / name).unlink(missing_ok=True)
        self.lock = threading.RLock()
        self.running = set()
        self.stopped = False
        self.table, self.results = [], {}
        self.known = {}  # what training runs have told, by name
        self.failures = 0
        self.environment = dict(os.environ)
        self.folder = unpack()
        self.pack = self.folder / "pack"
        self.about = json.loads((self.pack / "about.json").read_text())
        self.runs = self.folder / ("rehearsal" if options.rehearse else "runs")
        self.some = str(self.pack / "bin/some")
        self.recipes = self.pack / "main/recipes"
        self.stories = self.pack / "shared/data/tinystories"
        self.other_text = self.pack / "shared/data/shakespeare.txt"
        signal.signal(signal.SIGTERM, self.stop)
        signal.signal(signal.SIGINT, self.stop)
        timer = threading.Timer(max(0.0, self.left()), self.stop)
        timer.daemon = True
        timer.start()

    # --- time ---

    def left(self):
        return 0.0 if self.stopped else self.limit - (time.monotonic() - self.began)

    def stop(self, *_):
        """Starts nothing more, and asks running programs to save and end."""
        with self.lock:
            self.stopped = True
            for process in self.running:
                process.terminate()  # that is timeout(1), which passes it on

    # --- telling ---

    def say(self, line=""):
        with self.lock:
            print(line, flush=True)
            with open(self.out / "session.log", "a") as log:
                log.write(line + "\n")

    def note(self, line, bad=False):
        """Adds a line to the final table; `bad`: something is wrong, and the script will not exit with 0."""
        with self.lock:
            self.failures += bad
            self.table.append(line)
            (self.out / "table.txt").write_text("\n".join(self.table) + "\n")
            self.say("  " + line)

    def record(self, *path_and_value):
        """Adds numbers to results.json: record("speed", "a4", "padded", {...})."""
        *path, last, value = path_and_value
        with self.lock:
            place = self.results
            for name in path:
                place = place.setdefault(name, {})
            place[last] = value
            self.write_json("results.json", self.results)

    def write_json(self, name, value):
        whole = self.out / (name + ".new")
        whole.write_text(json.dumps(value, indent=1) + "\n")
        whole.replace(self.out / name)

    def summary(self):
        self.say("\n=== summary")
        for line in self.table:
            self.say(line)
        self.say(f"{time.monotonic() - self.began:.0f} s; programs of {self.about['commit']}; files in {self.out}")

    # --- programs ---

    def run(self, name, command, limit=None, environment=None):
        """Runs a program to its end, for at most `limit` seconds and never beyond the session's own limit."""
        left = self.left()
        if left < 1:
            return Done(None)
        # The session itself stops running commands when its time is up; timeout(1) ensures that they end even if
        # this script was killed. Never both at once: timeout treats a second signal as a request to kill.
        limit = limit if limit and limit < left - 5 else left + SAVING
        began = time.monotonic()
        # Ends the whole process group; unlike a new session, the group does not outlive the call.
        bounded = ["timeout", "--preserve-status", f"--kill-after={SAVING}", f"{limit:.1f}", *map(str, command)]
        with self.lock:
            if self.stopped:
                return Done(None)
            process = subprocess.Popen(bounded, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                       errors="replace", stdin=subprocess.DEVNULL, cwd=self.pack / "main",
                                       env={**self.environment, "PYTHONUNBUFFERED": "1", **(environment or {})})
            self.running.add(process)
            if self.stopped:  # by a signal that came just now
                process.terminate()
        details = Details(self, name)
        details.write("$ " + " ".join(map(str, command)))
        out, err = [], []
        streams = ((process.stdout, out), (process.stderr, err))
        pumps = [threading.Thread(target=details.pump, args=pair) for pair in streams]
        for pump in pumps:
            pump.start()
        code = process.wait()
        for pump in pumps:
            pump.join()
        with self.lock:
            self.running.discard(process)
        seconds = time.monotonic() - began
        cut = code != 0 and (self.stopped or seconds >= limit)
        details.write(f"exit {code} after {seconds:.1f} s")
        return Done(code, seconds, "".join(out), "".join(err), cut)

    def side_by_side(self, workers, work, items):
        """Calls work(item) for every item in order, a limited number at a time; returns the results in the same
        order."""
        with ThreadPoolExecutor(max_workers=max(1, workers)) as pool:
            return list(pool.map(work, items))

    # --- the machine ---

    def prepare_machine(self):
        """Returns missing libraries, and creates the source folder that the tests were compiled with."""
        self.find_libraries()
        source = Path(self.about["source"])
        ours = source.is_symlink() and (not source.exists() or (source.resolve().parent / "about.json").exists())
        if ours or not source.exists():
            try:
                source.parent.mkdir(parents=True, exist_ok=True)
                source.unlink(missing_ok=True)
                source.symlink_to(self.pack / "main")
            except OSError as error:
                self.say(f"tests that read files of {source} will fail: {error}")
        if self.rehearse:
            self.say("a rehearsal on the CPU, everything tiny: no number of it means anything")
            return
        found = shutil.which("nvidia-smi") and self.run("gpu", ["nvidia-smi", "-L"])
        if not found or not found.fine or "GPU 0" not in found.out:
            raise SystemExit("gpu-session: no GPU here; --rehearse tries every stage on the CPU")
        self.say(found.out.strip())

    @contextmanager
    def shared_gpu(self):
        """Lets programs started in this scope share the GPU through MPS, if available, so that their kernels run
        concurrently. Nothing is killed meanwhile, since that would end the other programs too."""
        control = shutil.which("nvidia-cuda-mps-control")
        if self.rehearse or control is None:
            self.say("no server that shares the GPU: programs take turns")
            yield
            return
        folder = self.folder / "mps"
        folder.mkdir(exist_ok=True)
        place = {"CUDA_MPS_PIPE_DIRECTORY": str(folder), "CUDA_MPS_LOG_DIRECTORY": str(folder)}
        began = subprocess.run([control, "-d"], env={**self.environment, **place}, capture_output=True, text=True)
        self.say("programs share the GPU through its server" if began.returncode == 0 else
                 f"the server that shares the GPU did not begin: {(began.stdout + began.stderr).strip()[:200]}")
        if began.returncode == 0:
            self.environment |= place
        try:
            yield
        finally:
            for name in place:
                self.environment.pop(name, None)
            if began.returncode == 0:
                subprocess.run([control], input="quit\n", env={**self.environment, **place}, text=True,
                               capture_output=True, timeout=30)

    def find_libraries(self):
        missing = set()
        for program in (self.pack / "bin").iterdir():
            output = subprocess.run(["ldd", program], capture_output=True, text=True).stdout
            missing |= set(re.findall(r"^\s*(\S+) => not found", output, re.M))
        # The program loads cuBLASLt itself, which ldd does not see; it reports a missing library.
        folders = [str(folder) for folder in program_folders() if any(folder.glob("libcublasLt.so.*"))][:1]
        for name in sorted(missing):
            found = next((folder for folder in program_folders() if (folder / name).exists()), None)
            if found is None and not name.startswith("libnccl"):  # a test of NCCL then skips and says so
                raise SystemExit(f"gpu-session: {name} not found on this machine; the programs require it")
            if found:
                folders.append(str(found))
        if folders:
            known = [self.environment["LD_LIBRARY_PATH"]] if self.environment.get("LD_LIBRARY_PATH") else []
            self.environment["LD_LIBRARY_PATH"] = ":".join(dict.fromkeys(folders + known))


class Details:
    """Returns the part of details.log that belongs to one program."""

    def __init__(self, session, name):
        self.session, self.name, self.written = session, name, 0

    def write(self, line):
        text = f"[{self.name}] {line.rstrip()[:LONGEST_LINE]}\n"
        with self.session.lock:
            path = self.session.out / "details.log"
            if self.written > MOST_OF_ONE or (path.exists() and path.stat().st_size > MOST_DETAILS):
                return
            self.written += len(text)
            if self.written > MOST_OF_ONE:
                text += f"[{self.name}] ... the rest is left out\n"
            with open(path, "a") as log:
                log.write(text)

    def pump(self, stream, kept):
        for line in stream:
            kept.append(line)
            self.write(line)


def unpack():
    """Unpacks this archive unless it is already unpacked, and returns its folder. Each archive has its own folder
    and runs, so runs of two programs are never mixed, and two programs can be compared on one machine."""
    if "SOME_GPU_PACK" in os.environ:  # one that holds pack/ already
        return Path(os.environ["SOME_GPU_PACK"])
    place = Path(os.environ.get("SOME_GPU_FOLDER") or Path(tempfile.gettempdir(), "some-gpu"))
    if not ARCHIVE.exists():
        raise SystemExit(f"gpu-session: {ARCHIVE} not found; scripts/gpu-pack creates it, and it must be copied with the sources")
    folder = place / hashlib.sha256(ARCHIVE.read_bytes()).hexdigest()[:12]
    if not (folder / "pack").exists():
        half = folder / "half"
        shutil.rmtree(half, ignore_errors=True)
        half.mkdir(parents=True)
        with tarfile.open(ARCHIVE, "r:xz") as archive:
            archive.extractall(half)
        half.rename(folder / "pack")  # only what was unpacked to its end has this name
    return folder
