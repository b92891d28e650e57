"""Stages that check the GPU's results: tests, verify, sanitize."""
import re
import shutil
from collections import Counter, defaultdict

# Number of processes among which a program's test cases are divided.
SHARDS = {"test_ops": 4, "test_model": 3, "test_train": 2}
ENDED = re.compile(r"^\[ +(OK|SKIPPED|FAILED) +\] (\S+?),? .*\(\d+ ms\)$", re.M)
BEGAN = re.compile(r"^\[ RUN +\] (\S+)$", re.M)


def tests(session):
    """Runs every test that is skipped on a machine without a GPU, of all programs."""
    filters = session.about["tests"]
    shards = [(program, i, SHARDS.get(program, 1)) for program in filters for i in range(SHARDS.get(program, 1))]

    done = defaultdict(list)

    def run(shard):
        program, index, count = shard
        one = session.run(f"{program}-{index}", [session.pack / "bin" / program, f"--gtest_filter={filters[program]}"],
                          limit=400, environment={"GTEST_TOTAL_SHARDS": str(count), "GTEST_SHARD_INDEX": str(index)})
        with session.lock:
            done[program].append(one)
            if len(done[program]) == count:
                tell_of_program(session, program, done[program])

    session.side_by_side(min(8, 2 * session.workers), run, shards)


def tell_of_program(session, program, own):
    counts, failed, unfinished, skipped = Counter(), [], [], Counter()
    for one in own:
        ended = {name: how for how, name in ENDED.findall(one.out)}
        counts.update(ended.values())
        failed += [name for name, how in ended.items() if how == "FAILED"]
        unfinished += [name for name in BEGAN.findall(one.out) if name not in ended]
        skipped.update(line.strip() for line in re.findall(r"^.*: Skipped\n(.*)$", one.out, re.M))
        for failure in re.findall(r"^.*: Failure\n(?:.*\n){1,8}", one.out, re.M)[:12]:
            session.say(failure.rstrip())
    line = f"{program}: {counts['OK']} passed, {counts['SKIPPED']} skipped, {counts['FAILED']} failed"
    for reason, count in skipped.most_common(3):
        session.say(f"  {program}: {count} skipped: {reason[:160]}")
    if failed:
        line += ": " + " ".join(failed[:6]) + (" ..." if len(failed) > 6 else "")
    if unfinished:
        line += "; not finished: " + " ".join(unfinished)
    bad = [one.outcome() for one in own if not one.fine and not failed]
    if bad:
        line += "; " + "; ".join(dict.fromkeys(bad))
    session.note(line, bad=any(not one.fine for one in own))
    session.record("tests", program, {"passed": counts["OK"], "skipped": counts["SKIPPED"], "failed": failed,
                                      "unfinished": unfinished, "exit": [one.code for one in own]})


def fixtures(session):
    """Returns (name, folder) of the packed golden fixtures."""
    places = {"own": "main/tests/reference/fixtures", "shared": "shared/fixtures",
              "shared next": "shared/fixtures-next"}
    return [(name, session.pack / place) for name, place in places.items() if (session.pack / place).exists()]


def verify(session):
    """Verifies the golden fixtures in every precision of the device."""
    for precision in ("fp32", "f64") if session.rehearse else ("fp32", "bf16"):
        for name, folder in fixtures(session):
            one = session.run(f"verify-{precision}-{name.replace(' ', '-')}",
                              [session.some, "verify", folder, "--device", session.device, "--precision", precision])
            for line in [line for line in one.out.splitlines() if "FAIL" in line][:30]:
                session.say(line)
            last = one.out.strip().splitlines()[-1:]
            output = last[0] if last and one.code in (0, 1) else one.outcome()
            session.note(f"verify {precision}, {name} fixtures: {output}", bad=not one.fine)
            session.record("verify", precision, name, {"exit": one.code, "said": last[0] if last else ""})


def sanitize(session):
    """Runs compute-sanitizer over the fixtures in bf16, the operations and online learning."""
    if session.rehearse:
        return session.note("sanitize: requires a GPU (on a CPU, use a build with -DSOME_ASAN=ON)")
    if not shutil.which("compute-sanitizer"):
        return session.note("sanitize: compute-sanitizer not found")
    filters = session.about["tests"]
    verified = [session.some, "verify", *(folder for _, folder in fixtures(session)), "--device", "cuda", "--precision",
                "bf16"]

    def cases(program, chosen=None):
        return [session.pack / "bin" / program, f"--gtest_filter={chosen or filters[program]}"]

    # compute-sanitizer is slow: it runs the cases of the operations in parts, without those that
    # only repeat a run.
    race = ["--racecheck-report", "all", "--show-backtrace", "no", "--print-limit", "5000"]
    raced = cases("test_ops", "*CudaFloat*:*CudaBfloat16*")
    asked = [
        ("memcheck", "verify bf16", [], verified, {}),
        ("synccheck", "verify bf16", [], verified, {}),
        ("memcheck", "test_memory", [], cases("test_memory"), {}),
        ("memcheck", "test_keys", [], cases("test_keys"), {}),
        *(("racecheck", f"test_ops {part + 1} of 4", race, raced,
           {"GTEST_TOTAL_SHARDS": "4", "GTEST_SHARD_INDEX": str(part)}) for part in range(4)),
    ]

    def run(one):
        tool, what, flags, command, environment = one
        done = session.run(f"{tool} {what}", ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", *flags,
                                              *command], environment=environment)
        tell_of_tool(session, tool, what, done)

    session.side_by_side(session.workers, run, asked)


def tell_of_tool(session, tool, what, done):
    output = done.out + done.err
    last = re.findall(r"^=+ (.*SUMMARY.*)$", output, re.M)[-1:]
    line = f"{tool}, {what}: {done.outcome() if done.code is None or done.cut else f'exit {done.code}'}"
    line += f"; {last[0]}" if last else ""
    bad = not done.fine
    if tool == "racecheck":
        # Reports on cuBLASLt's kernels (nvjet_...) are ignored, because they cannot be fixed here.
        accesses = re.findall(r"^.*(?:Thread|access) .* ?at .*$", output, re.M)
        ours = [access for access in accesses if "nvjet_" not in access]
        line += f"; accesses in kernels of ours: {len(ours)}"
        bad = bool(ours) or done.code is None or done.cut
        for access in ours[:10]:
            session.say(access)
    session.note(line, bad)
    session.record("sanitize", f"{tool} {what}", {"exit": done.code, "cut": done.cut, "summary": last})
