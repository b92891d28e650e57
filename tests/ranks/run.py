#!/usr/bin/env python3
"""Training on several ranks: the same bytes on every number of them, whatever happens in between.

usage: tests/ranks/run.py --program build/some [--mpirun mpirun] [--ranks 1,2,4] [--rounds 2] [--seed 1] [SCENARIO...]

scenarios: equal    every number of ranks gives the same model, optimizer and metrics, for several recipes
           used     evaluation, memories and queues of runs on several ranks give what one process gives
           srun     ranks started as 'srun --mpi=pmix' starts them: by PMIx, without mpirun's own variables
           elastic  runs stopped by a signal to any rank, or killed, at random moments, go on with other numbers of
                    ranks
           experts  ranks that hold a part of the experts each: within rounding what one rank with all of them gives
           refusals different recipes, settings or texts, too few micro-batches, other commands, no backend
           installed the installed program finds the libraries that link its ranks, and says what is missing without
                    them
           lost     a rank that stops answering, or whose main thread goes round in circles, ends all, with a line that
                    names it
"""
import argparse
import array
import hashlib
import json
import os
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

HERE = os.path.dirname(os.path.abspath(__file__))
# The recipe of the training tests with more micro-batches per step: enough for eight ranks.
RECIPE = os.path.join(os.path.dirname(HERE), "train", "small_run.toml")
WIDER = ["train.accumulate=8", "data.train_documents=200", "train.threads=1"]

FIXTURES = os.path.join(HERE, "../reference/fixtures")

# Everything that is summed over micro-batches, with several settings; numbers of micro-batches that are not powers of
# two, where the last rank has fewer.
VARIANTS = {
    "rules": ["some.balance_loss=0.1"],
    "paced": ["some.update_every=2", "some.update_fraction=0.5", "some.training=lora", "some.lora_rank=3",
              "train.accumulate=7", "some.ground=0.2"],
    "padded": ["data.count_pads=true", "model.ffn=dense", "train.accumulate=14"],
    # Large enough for gradients to be sent layer by layer.
    "early": ["model.d_model=128", "train.epochs=1", "train.max_steps=3", "train.batch=2"],
}


# Seconds. With 4, a rank that was not scheduled on a busy machine could be reported instead of the hanging one.
PATIENCE = "8"


class Failure(Exception):
    pass


class Ranks:
    def __init__(self, options, folder):
        self.program, self.mpirun, self.folder = os.path.abspath(options.program), options.mpirun, folder
        self.recipe = [RECIPE, *WIDER]
        self.environment = dict(os.environ, OMPI_ALLOW_RUN_AS_ROOT="1", OMPI_ALLOW_RUN_AS_ROOT_CONFIRM="1",
                                OMPI_MCA_rmaps_base_oversubscribe="1", OMPI_MCA_hwloc_base_binding_policy="none",
                                OMPI_MCA_btl_vader_single_copy_mechanism="none",
                                PRTE_MCA_rmaps_default_mapping_policy=":oversubscribe")

    def words(self, ranks, *arguments):
        return ([self.mpirun, "-n", str(ranks)] if ranks > 1 else []) + [self.program, *arguments]

    def begin(self, words, **more):
        return subprocess.Popen(words, cwd=self.folder, env=dict(self.environment, **more), text=True,
                                stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True,
                                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))

    def run(self, words, code=0, **more):
        process = self.begin(words, **more)
        try:
            said = process.communicate(timeout=120)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failure(f"{' '.join(words)} did not end")
        if code is not None and process.returncode != code:
            raise Failure(f"{' '.join(words)} ended with {process.returncode}, not {code}:\n{said}")
        return said

    def hashes(self, run):
        """Returns everything that must be equal: contents of the last checkpoint, metrics, settings."""
        folder = os.path.join(self.folder, run)
        steps = [int(name[5:]) for name in os.listdir(folder + "/checkpoints") if re.fullmatch(r"step-\d+", name)]
        last = f"checkpoints/step-{max(steps)}"
        names = [last + "/model.safetensors", last + "/optimizer.safetensors", last + "/metrics.jsonl", "metrics.jsonl",
                 "config.toml", "tokenizer.json", "data.json", "best", "latest"]
        out = {}
        for name in names:
            with open(os.path.join(folder, name), "rb") as file:
                out[name] = hashlib.sha256(file.read()).hexdigest()
        leftovers = [name for _, _, files in os.walk(folder) for name in files if ".tmp-" in name]
        if leftovers:
            raise Failure(f"{run} is left with {leftovers}")
        return out

    def expect_same(self, first, second):
        a, b = self.hashes(first), self.hashes(second)
        differ = [name for name in a if a[name] != b[name]]
        if differ:
            raise Failure(f"{first} and {second} differ in {', '.join(differ)}")


def processes_of(process, program, ranks):
    """Returns the process ids of the ranks by rank; None until all have started."""
    found = {}
    for name in os.listdir("/proc"):
        try:
            if not name.isdigit() or os.path.realpath(f"/proc/{name}/exe") != os.path.realpath(program):
                continue
            if os.getsid(int(name)) != process.pid and os.getpgid(int(name)) != process.pid:
                with open(f"/proc/{name}/stat") as stat:
                    if int(stat.read().rsplit(")", 1)[1].split()[1]) != process.pid:
                        continue
            with open(f"/proc/{name}/environ", "rb") as environment:
                rank = re.search(rb"(?:^|\0)OMPI_COMM_WORLD_RANK=(\d+)", environment.read())
            if rank:
                found[int(rank.group(1))] = int(name)
        except (OSError, ProcessLookupError):
            continue
    return [found[r] for r in range(ranks)] if len(found) == ranks else None


def children_of(pid):
    """Returns all processes below this one, as reported by the system."""
    parents = {}
    for name in os.listdir("/proc"):
        try:
            with open(f"/proc/{name}/stat") as stat:
                parents.setdefault(int(stat.read().rsplit(")", 1)[1].split()[1]), []).append(int(name))
        except (OSError, ValueError):
            continue
    found, to_see = [], [pid]
    while to_see:
        children = parents.get(to_see.pop(), [])
        found += children
        to_see += children
    return found


def wait_for_steps(ranks, running, run, since):
    """Waits until the run has made steps since that time, or has ended."""
    metrics = os.path.join(ranks.folder, run, "metrics.jsonl")
    while running():
        try:
            told = os.stat(metrics)
            if told.st_size > 0 and told.st_mtime > since:
                return
        except OSError:
            pass
        time.sleep(0.02)


def wait_for_ranks(ranks, process, count, run):
    """Waits until the run has made its first steps."""
    end = time.time() + 60
    while time.time() < end and process.poll() is None:
        all_of_them = processes_of(process, ranks.program, count)
        metrics = os.path.join(ranks.folder, run, "metrics.jsonl")
        if all_of_them and os.path.exists(metrics) and os.path.getsize(metrics) > 0:
            return all_of_them
        time.sleep(0.02)
    return None


def equal(ranks, options):
    for name, overrides in VARIANTS.items():
        for count in options.ranks:
            ranks.run(ranks.words(count, "train", *ranks.recipe, *overrides, "--out", f"equal/{name}-{count}"))
            ranks.expect_same(f"equal/{name}-{options.ranks[0]}", f"equal/{name}-{count}")
    # A run initialized from another one, with its own stages, and extended afterwards.
    for count in options.ranks:
        run = f"equal/from-{count}"
        ranks.run(ranks.words(count, "train", "--from", "equal/rules-1", "--with-optimizer",
                              "data.train=builtin:nature", "--out", run))
        ranks.run(ranks.words(options.ranks[-1] if count == 1 else 1, "train", "--resume", run, "train.epochs=3"))
        ranks.expect_same(f"equal/from-{options.ranks[0]}", run)


def without_times(text):
    """Returns the output of a command without its timings."""
    return re.sub(r'"(seconds|tokens_per_second)": ?[0-9.e+-]+', "", text)


def used(ranks, options):
    """Runs other commands on a trained model: the result of each, and the files it leaves."""
    ranks.run(ranks.words(1, "train", *ranks.recipe, "--out", "used/run"))
    where = ["--device", "cpu", "--threads", "1", "--json"]
    memory = os.path.join(ranks.folder, "used/run/memory.safetensors")
    results = {}
    for count in [1, 2, 3]:
        if os.path.exists(memory):
            os.remove(memory)
        said = [ranks.run(ranks.words(count, "eval", "used/run", *where)),
                ranks.run(ranks.words(count, "eval", "used/run", "--data", "builtin:nature", "--max-documents", "40",
                                      "data.long=split", *where)),
                ranks.run(ranks.words(count, "read", "used/run", "builtin:nature", "--tokens", "1500", *where)),
                ranks.run(ranks.words(count, "eval", "used/run", "--memory", memory, *where))]
        with open(memory, "rb") as file:
            results[count] = [without_times(one) for one in said] + [hashlib.sha256(file.read()).hexdigest()]
        for i, one in enumerate(results[count]):
            if one != results[1][i]:
                raise Failure(f"{count} ranks: result {i} is not that of one process:\n{one}\n{results[1][i]}")
        queue = [*LAB, "--seeds", "3", "--runs", f"used/lab-{count}"]
        ranks.run(ranks.words(count, *queue))
        for name in ["tiny", "tiny-seed1", "tiny-seed2"]:
            ranks.expect_same(f"used/lab-1/{name}", f"used/lab-{count}/{name}")
        again = ranks.run(ranks.words(count, *queue))
        if len(re.findall("already done", again)) != 3:
            raise Failure(f"the queue is not known to be done:\n{again}")
    shared_queue(ranks)


LAB = ["lab", "run", "tiny", "train.threads=1", "train.max_steps=4", "data.valid_documents=9", "--device", "cpu",
       "--recipes", os.path.join(os.path.dirname(os.path.dirname(HERE)), "recipes")]


def shared_queue(ranks):
    """Runs a queue with shared runs: one run on both of two ranks; two at a time, on two of four ranks each, on
    request."""
    queue = [*LAB, "train.accumulate=4", "train.batch=2", "--seeds", "2", "--runs"]
    names = ["tiny", "tiny-seed1"]
    ranks.run(ranks.words(1, *queue, "used/alone"))
    said = ranks.run(ranks.words(2, *queue[:-3], "--runs", "used/two"))
    if "2 ranks share the run" not in said:
        raise Failure(f"two ranks should share one run:\n{said}")
    ranks.expect_same("used/alone/tiny", "used/two/tiny")
    said = ranks.run(ranks.words(4, *queue, "used/four", "--ranks-per-run", "2"))
    if "4 ranks: concurrent runs, 2 ranks each" not in said or len(re.findall(r"^tiny\S* +done", said, re.M)) != 2:
        raise Failure(f"four ranks should do two runs at a time:\n{said}")
    for name in names:
        ranks.expect_same(f"used/alone/{name}", f"used/four/{name}")
        with open(os.path.join(ranks.folder, f"used/four/{name}/timing.jsonl")) as file:
            if json.loads(file.readline())["ranks"] != 2:
                raise Failure(f"{name} was not shared by two ranks")
    said = ranks.run(ranks.words(2, *queue, "used/none", "--ranks-per-run", "3"), code=2)
    if "error[ranks-uneven]: --ranks-per-run 3" not in said:
        raise Failure(f"three ranks of two:\n{said}")


# The environment of a task of 'srun --mpi=pmix'; here mpirun provides PMIx, as Slurm's daemon would.
AS_SRUN = """
rank=$PMIX_RANK
for name in ${!OMPI_*}; do unset "$name"; done
export SLURM_JOB_ID=1 SLURM_JOBID=1 SLURM_STEP_ID=0 SLURM_NODELIST=here
export SLURM_PROCID=$rank SLURM_STEP_NUM_TASKS=$1 SLURM_NTASKS=$1
shift
exec "$@"
"""


def srun(ranks, options):
    count = max(options.ranks)
    train = ["train", *ranks.recipe, *VARIANTS["rules"], "--out"]
    ranks.run(ranks.words(1, *train, "srun/1"))
    ranks.run([ranks.mpirun, "-n", str(count), "bash", "-c", AS_SRUN, "-", str(count), ranks.program, *train,
               f"srun/{count}"])
    ranks.expect_same("srun/1", f"srun/{count}")
    with open(os.path.join(ranks.folder, f"srun/{count}/timing.jsonl")) as file:
        if json.loads(file.readline())["ranks"] != count:
            raise Failure("the ranks did not share the run")


def tensors_of(path):
    """Reads a safetensors file as lists of numbers by name."""
    with open(path, "rb") as file:
        length = struct.unpack("<Q", file.read(8))[0]
        header = json.loads(file.read(length))
        data = file.read()
    kinds = {"F32": "f", "F64": "d", "I64": "q", "I32": "i"}
    return {name: array.array(kinds[one["dtype"]], data[slice(*one["data_offsets"])]).tolist()
            for name, one in header.items() if name != "__metadata__"}


def worst_difference(a, b):
    """Returns the largest difference of a tensor relative to its largest magnitude, over all tensors, and its name."""
    if a.keys() != b.keys():
        raise Failure(f"other tensors: {sorted(a.keys() ^ b.keys())}")
    worst = (0.0, "nothing")
    for name, values in a.items():
        largest = max(map(abs, values), default=0)
        difference = max((abs(x - y) for x, y in zip(values, b[name])), default=0)
        if difference != difference:
            raise Failure(f"{name} is no number")
        if difference > 0:
            worst = max(worst, (difference / largest if largest > 0 else difference, name))
    return worst


# Trained and frozen experts, and the tolerance for differences from one rank's numbers after some steps in f64. (In
# fp32, the optimizer turns a gradient that is zero except for rounding into a full step, so losses are compared there.)
SPREAD = {
    "frozen": (0, ["some.output_proj=linear", "some.respawn_threshold=0.9"]),
    "modulated": (0, ["some.output_proj=modulated", "some.token_shift=2", "model.norm=pre", "train.accumulate=7"]),
    "lora": (1e-9, ["some.training=lora", "some.lora_rank=3", "train.accumulate=7"]),
}


def experts(ranks, options):
    def tensors(run):
        return tensors_of(os.path.join(ranks.folder, run, "checkpoints/step-4/model.safetensors"))

    def train(count, together, run, *settings):
        spread = [f"train.expert_ranks={together}"] if together > 1 else []
        said = ranks.run(ranks.words(count, "train", *ranks.recipe, *settings, "train.max_steps=4", "--json", "--out",
                                     run, *spread))
        return json.loads(said[said.index("{"):])["loss"]

    arrangements = [one for one in ((2, 2), (4, 2), (4, 4)) if one[0] <= max(options.ranks)]
    for name, (allowed, overrides) in SPREAD.items():
        train(1, 1, f"experts/{name}-1", *overrides, "train.precision=f64")
        whole = tensors(f"experts/{name}-1")
        for count, together in arrangements if name == "frozen" else arrangements[-2:-1] or arrangements:
            run = f"experts/{name}-{count}-{together}"
            loss = train(count, together, run, *overrides, "train.precision=f64")
            worst, where = worst_difference(whole, tensors(run))
            print(f"  {name} on {count} ranks, experts on {together}: {worst:.1e} apart at most")
            if worst > allowed:
                raise Failure(f"{run} is {worst:.1e} from one rank in {where}")
        # Results of one rank for such a run: the same loss as with several ranks, and text.
        told = json.loads(ranks.run([ranks.program, "eval", run, "--json"]))["loss"]
        if abs(told - loss) > 1e-9:
            raise Failure(f"{run}: one rank has a loss of {told}, the ranks had {loss}")
        ranks.run([ranks.program, "generate", run, "--prompt", "The", "--max-tokens", "8", "--json"])
        count, together = arrangements[-1]
        losses = [train(1, 1, f"experts/{name}-single-1", *overrides),
                  train(count, together, f"experts/{name}-single", *overrides)]
        if abs(losses[0] - losses[1]) > 1e-5:
            raise Failure(f"{name} in fp32 has losses of {losses[0]} on one rank and {losses[1]} on {count}")
    # Resumes a run from its third step with another number of expert ranks, and with one rank for all
    # experts.
    for count, together in ((max(options.ranks), 2), (1, 1)):
        ranks.run(ranks.words(count, "train", "--resume", "experts/frozen-2-2", "--from-step", "3",
                              f"train.expert_ranks={together}"))
        worst, where = worst_difference(tensors("experts/frozen-1"), tensors("experts/frozen-2-2"))
        if worst > 0:
            raise Failure(f"resumed on {count} ranks, experts on {together}: {worst:.1e} from one rank in {where}")
    said = ranks.run([ranks.mpirun, "-n", "2", ranks.program, "verify", FIXTURES])
    if "0 failed (cpu, fp32, experts on 2 ranks)" not in said:
        raise Failure(f"fixtures on two ranks:\n{said}")


def lives(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def before_its_beginning(said):
    """True if only mpirun reports something: the signal came before any rank handled it."""
    return all(not line.strip() or re.match(r"-+$|Primary job|a non-zero exit code|mpirun noticed", line)
               for line in said.splitlines())


def elastic(ranks, options):
    random_numbers = random.Random(options.seed)
    overrides = VARIANTS["rules"] + ["train.epochs=60", "train.checkpoint_every=17"]
    ranks.run(ranks.words(1, "train", *ranks.recipe, *overrides, "--out", "elastic/whole"))
    for round_number in range(options.rounds):
        run, begun, acts, finished = f"elastic/{round_number}", False, [], False
        while not finished:
            count = random_numbers.choice([n for n in options.ranks if n > 1])
            resume = os.path.exists(os.path.join(ranks.folder, run, "config.toml"))
            words = ["train", "--resume", run] if resume else ["train", *ranks.recipe, *overrides, "--out", run]
            process = ranks.begin(ranks.words(count, *words))
            pids = wait_for_ranks(ranks, process, count, run)
            if len(acts) < 3 and pids:
                time.sleep(random_numbers.uniform(0, 0.5))
                which = random_numbers.randrange(count)
                act = [signal.SIGTERM, signal.SIGKILL, signal.SIGINT][len(acts)]
                acts.append(f"{act.name} to rank {which} of {count}")
                try:
                    os.kill(pids[which], act)
                except ProcessLookupError:
                    pass
            try:
                said = process.communicate(timeout=60)[0]
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                raise Failure(f"after {'; '.join(acts)} the ranks did not end within a minute")
            if process.returncode == 0:
                finished = True
            elif acts and "SIGKILL" not in acts[-1]:
                # A resumed run may be stopped while it reads its text, or before its program has started.
                if before_its_beginning(said):
                    continue
                # In the first case mpirun ends the other ranks, which may still report the same reason.
                saved = len(re.findall(r"stopped at step \d+ and saved", said))
                if saved > 1 or (saved == 0 and "stopped while reading the text" not in said):
                    raise Failure(f"{acts[-1]}: the run was not saved once:\n{said}")
        ranks.run(ranks.words(1, "train", "--resume", run))
        ranks.expect_same("elastic/whole", run)
        print(f"  {'; '.join(acts)}: the same bytes in the end")


def refusals(ranks, options):
    del options
    recipe, program = ranks.recipe, ranks.program

    def refused(words, code, *values, **more):
        said = ranks.run(words, code=None, **more)
        told = [line for line in said.splitlines() if line.startswith("some: ")]
        parts = told[0].partition(f"error[{code}]: ") if len(told) == 1 else ("", "", "")
        if not parts[1] or not all(value in parts[2] for value in values):
            raise Failure(f"{' '.join(words)} should say one line with {code} and {values}:\n{said}")
        if os.path.exists(os.path.join(ranks.folder, "refused")):
            raise Failure(f"{' '.join(words)} left a folder")

    train = [program, "train", *recipe, "--out", "refused"]
    two = [ranks.mpirun, "-n", "1", *train, ":", "-n", "1", *train]
    refused(two + ["some.top_k=1"], "ranks-differ", "some.top_k", "rank 1 on ")
    # The same file name with another text.
    for name in ("a", "b"):
        os.makedirs(os.path.join(ranks.folder, name), exist_ok=True)
        with open(os.path.join(ranks.folder, name, "text.txt"), "w") as out:
            for i in range(60):
                out.write(f"Story {i} of {name}: the fox saw {i * 7 % 11} birds. It ran.\n<|endoftext|>\n")
    text = ["data.train=text.txt", "train.batch=2", "data.vocab=300"]
    here, there = os.path.join(ranks.folder, "a"), os.path.join(ranks.folder, "b")
    refused([ranks.mpirun, "-n", "1", "-wdir", here, *train, *text, ":", "-n", "1", "-wdir", there, *train, *text],
            "ranks-differ", "rank 1 on ")
    refused(ranks.words(3, *train[1:]), "ranks-uneven", "train.accumulate", "12")
    refused(ranks.words(2, *train[1:], "train.accumulate=1"), "ranks-uneven", "train.accumulate", "2")
    refused(ranks.words(2, *train[1:], "some.top_q=1"), "setting-unknown", "some.top_q")
    refused(ranks.words(2, *train[1:], "train.expert_ranks=4"), "ranks-uneven", "train.expert_ranks", "4")
    refused(ranks.words(2, *train[1:], "train.expert_ranks=2", "model.ffn=dense"), "setting-conflict", "train.expert_ranks")
    refused([program, *train[1:], "train.expert_ranks=2"], "ranks-uneven", "train.expert_ranks")
    refused(ranks.words(2, "info", RECIPE), "ranks-unsupported", "info")
    # Without its backend, the program must not train twice into one folder.
    alone = os.path.join(ranks.folder, "alone")
    os.makedirs(alone)
    shutil.copy(program, alone)
    refused([ranks.mpirun, "-n", "2", alone + "/some", *train[1:]], "ranks-unsupported")
    # Under srun without PMIx; with PMIx, but without the backend; with a launcher that this MPI does not
    # know.
    slurm = dict(SLURM_PROCID="0", SLURM_STEP_NUM_TASKS="2", SLURM_NTASKS="2")
    refused(train, "rank-environment", **slurm)
    refused([alone + "/some", *train[1:]], "ranks-unsupported", PMIX_RANK="0", **slurm)
    refused(train, "ranks-unsupported", "2", "1", PMI_RANK="0", PMI_SIZE="2")
    ranks.run([alone + "/some", *train[1:]], SLURM_PROCID="0", SLURM_NTASKS="2")  # in the job's script itself


def installed(ranks, options):
    """Installs into a separate folder, as a package would: first without the libraries for ranks, then with them."""
    build, place = os.path.dirname(ranks.program), os.path.join(ranks.folder, "installed")
    if not os.path.exists(os.path.join(build, "cmake_install.cmake")):
        print("  skipped: the program is not in its build folder")
        return

    def install(component):
        ranks.run(["cmake", "--install", build, "--prefix", place, "--component", component])

    install("Unspecified")
    train = [place + "/bin/some", "train", *ranks.recipe, "train.max_steps=2", "--out"]
    ranks.run([*train, "one"])
    two = [ranks.mpirun, "-n", "2", *train, "two"]
    said = ranks.run(two, code=None)
    told = [line for line in said.splitlines() if line.startswith("some: ")]
    if len(told) != 1 or "error[ranks-unsupported]" not in told[0] or "some-mpi" not in told[0] or os.path.exists(os.path.join(ranks.folder, "two")):
        raise Failure(f"without its library one line should name the package:\n{said}")
    install("mpi")
    ranks.run(two)
    ranks.expect_same("one", "two")
    if not os.path.exists(os.path.join(build, "libsome_nccl.so")):
        return
    install("nccl")
    nccl = [os.path.join(folder, name) for folder, _, names in os.walk(place) for name in names if "libsome_" in name]
    if len(nccl) != 2 or len({os.path.dirname(path) for path in nccl}) != 1:
        raise Failure(f"the libraries should be in one folder: {nccl}")
    if shutil.which("nvidia-smi") is None:
        return
    # A library with a missing dependency.
    path = next(path for path in nccl if path.endswith("libsome_nccl.so"))
    with open(path, "rb") as file:
        code = file.read()
    with open(path, "wb") as file:
        file.write(code.replace(b"libnccl.so", b"libnone.so"))
    said = ranks.run([place + "/bin/some", "bench", "ranks", "--device", "cuda"], code=1, SOME_RANKS_THROUGH="nccl")
    if "error[ranks-unsupported]" not in said or "libnone.so" not in said or len(said.splitlines()) != 1:
        raise Failure(f"without NCCL one line was wanted:\n{said}")


def lost(ranks, options):
    endless = dict(LD_PRELOAD=os.path.abspath(options.endless)) if options.endless else {}
    acts = [("stop", signal.SIGSTOP, "sent no heartbeat", {})]
    if endless:
        acts.append(("circles", signal.SIGUSR1, "made no progress", endless))
        # The others receive no heartbeat from it, but it reports first, with more information.
        acts.append(("circles-without-a-pulse", signal.SIGUSR2, "made no progress", endless))
    for name, act, words, environment in acts:
        run = f"lost/{name}"
        process = ranks.begin(ranks.words(3, "train", *ranks.recipe, *VARIANTS["rules"], "train.epochs=2000",
                                          "train.accumulate=6", "--out", run), SOME_RANK_PATIENCE=PATIENCE, **environment)
        pids = wait_for_ranks(ranks, process, 3, run)
        if not pids:
            raise Failure(f"the run did not begin:\n{process.communicate(timeout=60)[0]}")
        os.kill(pids[1], act)
        begin = time.time()
        try:
            said = process.communicate(timeout=60)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            raise Failure("a rank that hangs did not end the others")
        told = [line for line in said.splitlines() if line.startswith("some: ")]
        if len(told) != 1 or "error[ranks-unreachable]: rank 1 on " not in told[0] or words not in told[0] or process.returncode == 0:
            raise Failure(f"one line about rank 1 was wanted:\n{said}")
        print(f"  ended after {time.time() - begin:.1f} s: {told[0]}")
        end = time.time() + 10  # a process that was stopped takes its time to die on a busy machine
        while any(lives(pid) for pid in pids):
            if time.time() > end:
                raise Failure("a rank is still there")
            time.sleep(0.05)
    # A rank stopped before it started has sent no heartbeat yet.
    train = [ranks.program, "train", *ranks.recipe, "--out", "lost/never"]
    stopped = ["bash", "-c", 'kill -STOP $$; exec "$@"', "-", *train]
    said = ranks.run([ranks.mpirun, "-n", "1", *train, ":", "-n", "1", *stopped], code=1, SOME_RANK_PATIENCE="3")
    told = [line for line in said.splitlines() if line.startswith("some: ")]
    if len(told) != 1 or "error[ranks-unreachable]: rank 0 of 2 has waited 4 seconds" not in told[0]:
        raise Failure(f"one line about a rank that did not come was wanted:\n{said}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--ranks", default="1,2,4")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--endless", help="a library (tests/ranks/endless.cc) that makes a main thread go round in "
                        "circles when a signal comes")
    parser.add_argument("scenarios", nargs="*", default=[])
    options = parser.parse_args()
    options.ranks = [int(number) for number in options.ranks.split(",")]
    if shutil.which(options.mpirun) is None:
        print(f"skipped: there is no {options.mpirun}")
        return 77
    known = {"equal": equal, "used": used, "srun": srun, "elastic": elastic, "experts": experts,
             "refusals": refusals, "installed": installed, "lost": lost}
    for name in options.scenarios or known:
        with tempfile.TemporaryDirectory(prefix="some-ranks-") as folder:
            begin = time.time()
            try:
                known[name](Ranks(options, folder), options)
            except Failure as failure:
                print(f"{name}: {failure}")
                return 1
            print(f"{name}: {time.time() - begin:.1f} s")
    return 0


if __name__ == "__main__":
    sys.exit(main())
