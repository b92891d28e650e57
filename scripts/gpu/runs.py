"""Stages train and seeds: several concurrent training runs, in a queue that can be interrupted and resumed by the next call.

Each run is a separate `some lab run`, which skips finished runs, resumes interrupted ones, and refuses a folder that contains
a run with other settings. A small model leaves most of a GPU idle, so several runs share it.
"""
import json
import os
import shutil
from dataclasses import dataclass, field

from gpu.kit import ROOT

SEEDS = ROOT / "scripts/gpu-seeds.txt"
# Model and text of a rehearsal. Keys that a recipe does not use have no effect.
TINY_MODEL = ["model.d_model=32", "model.layers=2", "model.heads=2", "model.seq_len=64", "some.experts=8",
              "some.d_ffn=32", "some.top_k=2", "train.batch=8"]
TINY_RUN = TINY_MODEL + ["data.train_documents=300", "data.valid_documents=40", "data.vocab=600", "train.epochs=2",
                         "train.warmup_steps=0"]


@dataclass
class Run:
    name: str
    recipe: str
    seed: int = 0
    changes: list = field(default_factory=list)
    cost: float = 0  # operations, to begin the longest first

    def folder(self, session):
        return session.runs / self.name / self.recipe

    @property
    def own_text(self):
        """True if the list names the training text; other runs learn from the stories."""
        return any(change.startswith("data.train=") for change in self.changes)

    def settings(self, session):
        return [f"seed={self.seed}", *self.changes, *(TINY_RUN if session.rehearse else []), *session.changes]


def read_list(path):
    runs = []
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if len(words) < 3 or not words[2].isdigit() or any("=" not in change for change in words[3:]):
            raise SystemExit(f"{path}:{number}: must be NAME RECIPE SEED [KEY=VALUE...]")
        runs.append(Run(words[0], words[1], int(words[2]), words[3:]))
    names = [run.name for run in runs]
    if doubled := {name for name in names if names.count(name) > 1}:
        raise SystemExit(f"{path}: two runs are named {', '.join(sorted(doubled))}")
    return runs


# --- what a run has to tell ---


def lines_of(path):
    """Returns the objects of a .jsonl file, without a truncated line."""
    found = []
    for line in path.read_text().splitlines() if path.exists() else []:
        try:
            found.append(json.loads(line))
        except ValueError:
            pass
    return found


def gini(layer):
    # Nothing is counted if keys never learn; the assignments of the validation documents are used instead, as in a
    # report.
    counted = layer["count"]["experts_used"] > 0 or "validation" not in layer
    return layer["count" if counted else "validation"]["gini"]


def told(session, run):
    """Returns all table values of a run, epoch by epoch; None if it has not started."""
    folder = run.folder(session)
    if not (folder / "config.toml").exists():
        return None
    metrics = lines_of(folder / "metrics.jsonl")
    trained = {line["step"]: line["train_loss"] for line in metrics if line["kind"] == "epoch"}
    epochs = []
    for line in (line for line in metrics if line["kind"] == "eval"):
        middle = line["layers"][line["middle_layer"]] if line["layers"] else None
        epochs.append({
            "epoch": line["epoch"], "step": line["step"], "train": trained.get(line["step"]),
            "batch_mean_loss": line.get("batch_mean_loss"), "padded_loss": line.get("padded_loss"),
            "loss": line["loss"], "bits_per_byte": line["bits_per_byte"],
            "gini_middle": gini(middle) if middle else None,
            "gini": [gini(layer) for layer in line["layers"]],
            "experts_used_this_epoch": [layer["experts_used_this_epoch"] for layer in line["layers"]],
        })
    sittings = lines_of(folder / "timing.jsonl")
    return {"name": run.name, "recipe": run.recipe, "seed": run.seed, "changes": run.changes,
            "step": max((line["step"] for line in metrics), default=0),
            "finished": bool(sittings) and sittings[-1].get("finished") is True,
            "seconds": round(sum(sitting.get("seconds", 0) for sitting in sittings), 1), "epochs": epochs}


COLUMNS = ("train", "batch_mean_loss", "loss", "bits_per_byte", "gini_middle")
HEADING = f"{'run':<20} {'train':>8} {'batches':>8} {'real':>8} {'bits/byte':>9} {'Gini':>6}"


def row(run):
    last = run["epochs"][-1]
    cells = ["" if last[key] is None else f"{last[key]:.{digits}f}" for key, digits in zip(COLUMNS, (4, 4, 4, 3, 3))]
    return f"{run['name']:<20} {cells[0]:>8} {cells[1]:>8} {cells[2]:>8} {cells[3]:>9} {cells[4]:>6}"


# --- the queue ---


def cost_of(session, run):
    settings = [one for one in run.settings(session) if not one.startswith("seed=")]
    if not run.own_text:
        settings.append(f"data.train={session.stories / 'train.txt'}")
    one = session.run("info-" + run.name, [session.some, "info", session.recipes / f"{run.recipe}.toml", *settings,
                                           "--json"])
    known = one.json() or {}
    return (known.get("operations_per_step") or 0) * (known.get("steps") or 1)


def train_one(session, run, workers, drop_weights):
    """Describes in a few words how it ended, and whether that is a success: finished, now or before, or stopped for
    lack of time."""
    stories = ["--data", session.stories / "train.txt", "--valid", session.stories / "valid.txt"]
    threads = max(1, (os.cpu_count() or 1) // workers)
    one = session.run(run.name, [session.some, "lab", "run", run.recipe, *run.settings(session),
                                 "--recipes", session.recipes, "--runs", session.runs / run.name,
                                 *([] if run.own_text else stories),
                                 "--device", session.device, "--threads", threads, "--json"])
    entry = ((one.json() or {}).get("runs") or [{}])[0]
    if drop_weights and one.fine and not {run.name, run.recipe} & set(session.keep):
        # Many runs would fill the disk. A run without weights is still recognized as finished.
        shutil.rmtree(run.folder(session) / "checkpoints", ignore_errors=True)
    outcome = ": ".join(filter(None, (entry.get("outcome") or one.outcome(), entry.get("message"))))
    return outcome, one.fine or one.cut


def train_all(session, runs, workers, drop_weights=False):
    """Trains unfinished runs and reports how each ended. Interrupted runs come first, then the longest, so that no
    long run is left for the end; or the shortest, if the machine may be lost after this call together with all
    unfinished runs. Returns {name: results}, without runs that have not started."""
    workers = max(1, min(workers, len(runs)))
    known = {run.name: told(session, run) for run in runs}
    finished = {name for name, one in known.items() if one and one["finished"]}
    waiting = [run for run in runs if run.name not in finished]
    for run, cost in zip(waiting, session.side_by_side(workers, lambda run: cost_of(session, run), waiting)):
        run.cost = cost
    # Includes finished runs: the program checks whether their settings are equal.
    order = sorted(runs, key=lambda run: (run.name not in finished, known[run.name] is None,
                                            run.cost if session.short_first else -run.cost))
    session.say(f"{len(finished)} of {len(runs)} runs are finished; {len(waiting)} to do, {workers} at a time, "
                f"{session.left():.0f} s left")

    def gather():
        session.known |= {name: one for name, one in known.items() if one}
        session.write_json("seeds.json", [session.known[name] for name in sorted(session.known)])

    def train(run):
        if session.left() < 5:  # it would not come to its first step
            return
        outcome, well = train_one(session, run, workers, drop_weights)
        with session.lock:
            now = known[run.name] = told(session, run)
            if not well:
                session.note(f"{run.name}: {outcome}", bad=True)
                known[run.name] = None
            elif run.name not in finished:
                step = f", step {now['step']}" if now and not now["finished"] else ""
                session.say(f"  {run.name}: {outcome}{step}")
            gather()

    gather()
    with session.shared_gpu():
        session.side_by_side(workers, train, order)
    return {name: one for name, one in known.items() if one}


def tell(session, runs, known):
    """Prints the table of runs: finished ones first."""
    finished = [known[run.name] for run in runs if run.name in known and known[run.name]["finished"]]
    if finished:
        session.note(HEADING)
    for one in finished:
        session.note(row(one) if one["epochs"] else f"{one['name']:<20} finished without an evaluation")
    started = [known[run.name] for run in runs if run.name in known and not known[run.name]["finished"]]
    for one in started:
        session.note(f"{one['name']:<20} stopped at step {one['step']}: the next call on this machine resumes")
    if others := len(runs) - len(known):
        session.note(f"{others} of {len(runs)} runs not started or failed")


# --- stages ---


def train(session):
    """Trains a few recipes of series A at full length."""
    runs = [Run(name, name) for name in session.only or ["a1", "a4", "a4-masked"]]
    known = train_all(session, runs, workers=1)
    tell(session, runs, known)
    session.record("train", known)


def seeds(session):
    """Trains all runs of scripts/gpu-seeds.txt or another list, or those of --runs."""
    runs = read_list(session.list)
    if session.only:
        runs = [run for run in runs if run.name in session.only or run.recipe in session.only]
    if not runs:
        wanted = " or ".join(session.only) or "at all"
        return session.note(f"seeds: {session.list.name} has no run or recipe {wanted}", bad=True)
    # Checked before anything is trained, because weights that were not kept by mistake are lost.
    if unknown := set(session.keep) - {run.name for run in runs} - {run.recipe for run in runs}:
        names = " ".join(sorted(unknown))
        return session.note(f"seeds: --keep {names}: no such run or recipe is to be trained", bad=True)
    known = train_all(session, runs, session.workers, drop_weights=True)
    tell(session, runs, known)
