"""Stage speed: training steps of the program and of PyTorch (bench/peer_train.py), in one run on one machine."""
import json
import sys

from gpu.runs import TINY_MODEL

# Recipes compared by default; each is also a form of the PyTorch baseline. Those of the published form are also
# trained with padding.
COMPARED = ("a4", "b2", "features", "dense-match", "dense-conv", "mod-shift-gentle", "mod-conv")
PADDED = ("a1", "a4", "b2")


def speed(session):
    names = [name.lower() for name in session.only] or list(COMPARED)
    ours = {}
    for name in names:
        ours[name, "packed"] = bench(session, name, f"{name} packed", name, ["data.count_pads=false"])
        if name in PADDED:
            ours[name, "padded"] = bench(session, name, f"{name} padded", name, [])
    peers = time_peers(session, names)
    for (name, shape), one in ours.items():
        line = f"{name} {shape}: {described(one)}"
        peer = peers.get((name, shape))
        if one and peer:
            ratio = one["real_tokens_per_s"] / peer["real_tokens_per_s"]
            line += f"; PyTorch {peer['ms']:.2f} ms, the program is {ratio:.2f} times as fast"
        session.note(line)


def bench(session, run, name, recipe, changes):
    tiny = TINY_MODEL if session.rehearse else []
    steps = ["--steps", 2, "--warmup", 1] if session.rehearse else ["--steps", 40, "--warmup", 12]
    command = [session.some, "bench", "train", session.recipes / f"{recipe}.toml", *changes, *tiny, *session.changes]
    one = session.run(f"bench {name}", [*command, "--device", session.device, *steps, "--json"], limit=100)
    measured = one.json()
    if measured is None:
        session.say(f"{name}: {one.outcome()}")
    session.record("speed", run, name, measured)
    return measured


def time_peers(session, names):
    """Returns the best PyTorch version of each form and shape, as {(form, shape): row}."""
    found = {}
    for shape in ("packed", "padded"):
        forms = [name for name in names if name in (PADDED if shape == "padded" else COMPARED + PADDED + ("moe-top2",))]
        if not forms or session.left() < 60:
            continue
        if session.rehearse:
            session.say(f"peers {shape}: not without a GPU")
            continue
        script = session.pack / "main/bench/peer_train.py"
        one = session.run(f"peers {shape}", [sys.executable, script, *forms, "--variants", f"{shape}-compiled-graph"],
                          limit=60 * len(forms))
        rows = [json.loads(line) for line in one.out.splitlines() if line.startswith("{")]
        if not rows:
            session.say(f"peers {shape}: {one.outcome()}")
        for row in rows:
            session.record("speed", row["peer"], f"peer {shape}", row)
            if "ms" in row:
                found[row["peer"], shape] = row
            else:
                session.say(f"peer {row['peer']} {shape}: {row.get('failed')}")
    return found


def described(r):
    if r is None:
        return "no result"
    share = f"{100 * r['share_of_matrix_rate']:.0f}% of {r['matrix_tflops']:.0f}"
    return (f"{r['step_ms']:.2f} ms, {r['real_tokens_per_s'] / 1e6:.3f} M non-padding tokens/s, {r['tflops']:.0f} "
            f"TFLOP/s ({share}), {r['memory_bytes'] / 2**30:.1f} GiB")
