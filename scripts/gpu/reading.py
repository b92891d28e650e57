"""Stages read and compare: time and gain of online learning. They train the runs that they require."""
from statistics import median

from gpu.runs import Run, train_all

SLOTS = 4096
PAIRS = 5


def trained(session, runs):
    """Returns the finished runs; reports the others."""
    known = train_all(session, runs, len(runs))
    ready = [run for run in runs if (known.get(run.name) or {}).get("finished")]
    for run in runs:
        if run not in ready:
            session.note(f"{run.name}: training is not finished, so it is skipped")
    return ready


def read(session):
    """Reads with and without a memory alternately, five pairs per length."""
    stories = session.stories / "train.txt"
    short, long = (600, 1500) if session.rehearse else (300_000, 1_500_000)
    asked = [(short, session.other_text), (short, stories), (long, stories)]
    if not session.rehearse:
        asked.append((40_000, session.other_text))
    for run in trained(session, [Run("dense-match", "dense-match")]):
        taken = {}
        for tokens, text in asked:
            if not text.exists():
                session.note(f"read {text.name}: not in the archive")
                continue
            taken[tokens, text] = read_pairs(session, run, tokens, text)
        started, whole = taken.get((short, stories)), taken.get((long, stories))
        if started and whole:
            # Both lengths include the startup of a reading (kernels are loaded, the mean of the states is
            # computed), so it cancels.
            more = {name: whole[name] - started[name] for name in whole}
            ratio = f", {more['memory'] / more['alone']:.3f} times as long" if more["alone"] > 0 else ""
            session.note(f"read stories, from {short:,} to {long:,} tokens: memory {more['memory']:.3f} s, alone "
                         f"{more['alone']:.3f} s{ratio}")


def read_pairs(session, run, tokens, text):
    """Prints the durations; returns the medians by name, or None after a failure."""
    seconds, last = {"memory": [], "alone": []}, {}
    kept = session.folder / "read.safetensors"
    common = [session.some, "read", run.folder(session), text, "--tokens", tokens, "--device", session.device, "--json"]
    for pair in range(PAIRS):
        for name, flags in (("memory", ["--slots", SLOTS, "--memory", kept]), ("alone", ["--frozen"])):
            kept.unlink(missing_ok=True)  # else it would go on behind what it has read
            one = session.run(f"read-{tokens}-{name}-{pair + 1}", [*common, *flags])
            report = one.json()
            if not one.fine or report is None:
                session.say(f"read {tokens} {name}: {one.outcome()}")
                continue
            seconds[name].append(report["seconds"])
            last[name] = report
            session.record("read", f"{text.stem} {tokens}", seconds)
    kept.unlink(missing_ok=True)
    line = f"read {text.stem}, {tokens:,} tokens"
    for name, taken in seconds.items():
        line += f"; {name} " + (" ".join(f"{one:.3f}" for one in taken) + " s" if taken else "no result")
    if all(seconds.values()):
        line += f"; medians {median(seconds['memory']) / median(seconds['alone']):.2f} times as long"
        report = last["memory"]
        line += f"; {report['frozen']:.3f} -> {report['loss']:.3f}, gain {report['gain']:.3f}"
        if "original" in report:
            line += f", lost {report['original']['lost']:.3f}"
        if report["tokens"] < tokens - 1:
            line += f"; the text has only {report['tokens']:,}"
    session.note(line)
    return {name: median(taken) for name, taken in seconds.items()} if all(seconds.values()) else None


def compare(session):
    """Compares all methods of online learning, with three seeds of mod-shift, on other text and on built-in
    recipes."""
    tokens = 600 if session.rehearse else 40_000
    runs = trained(session, [Run(f"mod-shift-{seed}", "mod-shift", seed) for seed in range(3)])
    for label, text in (("shakespeare", session.other_text), ("recipes", "builtin:recipes")):
        if label == "shakespeare" and not session.other_text.exists():
            session.note("compare shakespeare: not in the archive")
            continue
        ways = {}
        for run in runs:
            one = session.run(f"compare-{label}-{run.name}",
                              [session.some, "adapt", run.folder(session), "--data", text, "--compare", "--tokens",
                               tokens, "--device", session.device, "--json"])
            report = one.json()
            if not one.fine or report is None:
                session.note(f"compare {label}, {run.name}: {one.outcome()}")
                continue
            for way in report["methods"]:
                short = {key: value for key, value in way.items() if key != "windows"}
                ways.setdefault(way["name"], []).append(short)
                session.record("compare", label, run.name, way["name"], short)
        for name, found in ways.items():
            def each(key, digits):
                return " ".join(f"{one[key]:.{digits}f}" for one in found)

            session.note(f"compare {label}, {name}: loss {each('loss', 3)}, gain {each('gain', 3)}, "
                         f"lost {each('forgotten', 3)}, seconds {each('seconds', 3)}")
