"""Stage speed: training steps of the program beside those of its PyTorch peers, in one go on one machine."""
import json
import sys

from gpu.runs import TINY_MODEL

PUBLISHED = ("a4", "a1", "b2")
# The form with read-in and features (docs/performance.md), whose peer is bench/peer_ml.py.
ML = ["data.count_pads=false", "some.output_proj=features", "some.input_proj=true", "some.query_dim=64", "some.router_mult=0.5",
      "some.temperature=learned", "some.train_temp=0.1", "some.use_alpha=false", "some.use_beta=false",
      "some.use_delta=false"]


def speed(session):
    """Padded and packed steps of A4, A1 and B2, the form ML frozen and with LoRA, and the peers."""
    for run in session.only or (*PUBLISHED, "ml"):
        run = run.lower()
        if run == "ml":
            time_ml(session)
        elif run in PUBLISHED:
            time_published(session, run)
        else:  # any other recipe, without a peer
            session.note(f"{run}: " + told(bench(session, run, f"{run} packed", run, ["data.count_pads=false"])))


def bench(session, run, name, recipe, changes):
    tiny = TINY_MODEL if session.rehearse else []
    steps = ["--steps", 2, "--warmup", 1] if session.rehearse else ["--steps", 40, "--warmup", 12]
    command = [session.some, "bench", "train", session.recipes / f"{recipe}.toml", *changes, *tiny, *session.changes]
    one = session.run(f"bench {name}", [*command, "--device", session.device, *steps, "--json"], limit=100)
    measured = one.json()
    if measured is None:
        session.say(f"{name}: {one.said()}")
    session.record("speed", run, name, measured)
    return measured


def peer(session, run, name, command):
    if session.rehearse:
        session.say(f"{name}: there is no peer without a GPU")
        return None
    one = session.run(name, [sys.executable, *command], limit=240)
    rows = [json.loads(line) for line in one.out.splitlines() if line.startswith("{")]
    for row in rows:
        if "failed" in row:
            session.say(f"{name}, {row['peer']}: {row['failed']}")
    rows = [row for row in rows if "ms" in row]
    if not rows:
        session.say(f"{name}: {one.said()}")
    session.record("speed", run, name, rows)
    return max(rows, key=lambda row: row["real_tokens_per_s"], default=None)


def told(r):
    if r is None:
        return "no result"
    share = f"{100 * r['share_of_matrix_rate']:.0f}% of {r['matrix_tflops']:.0f}"
    return (f"{r['step_ms']:.2f} ms, {r['real_tokens_per_s'] / 1e6:.3f} M real tokens/s, {r['tflops']:.0f} TFLOP/s "
            f"({share}), {r['memory_bytes'] / 2**30:.1f} GiB")


def time_published(session, run):
    padded = bench(session, run, f"{run} padded", run, [])
    packed = bench(session, run, f"{run} packed", run, ["data.count_pads=false"])
    best = peer(session, run, f"peer {run}", [session.pack / "shared/peer/speed.py", run.upper()])
    if best:
        session.note(f"{run}, peer: {best['ms']:.1f} ms ({best['peer']}), {best['mem_gib']:.1f} GiB")
    for name, one in (("padded", padded), ("packed", packed)):
        line = f"{run}, {name}: {told(one)}"
        if one and best:
            line += (f" = {one['slots_per_s'] / best['slots_per_s']:.2f}x slots/s, "
                     f"{one['real_tokens_per_s'] / best['real_tokens_per_s']:.2f}x real tokens/s")
        session.note(line)


def time_ml(session):
    def lora(rank):
        return ML + ["some.training=lora", f"some.lora_rank={rank}"]

    # Frozen and rank 2 in turn: what is said of them is a ratio.
    asked = [("frozen", ML), ("rank 2", lora(2)), ("rank 8", lora(8)), ("frozen again", ML), ("rank 2 again", lora(2))]
    found = {name: bench(session, "ml", f"ml {name}", "a4", changes) for name, changes in asked}
    best = peer(session, "ml", "peer ml", [session.pack / "main/bench/peer_ml.py"])
    for one in session.results["speed"]["ml"].get("peer ml", []):
        session.note(f"ml, peer, {one['peer']}: {one['ms']:.1f} ms, of which the GPU computes {one['kernels_ms']:.1f}, "
                     f"{one['memory_gib']:.1f} GiB")
    frozen = found["frozen"]
    for name, one in found.items():
        line = f"ml, {name}: {told(one)}"
        if one and frozen and "rank" in name:
            line += f" = {one['step_ms'] / frozen['step_ms']:.2f} of the frozen step"
        elif one and best:
            line += f" = {one['real_tokens_per_s'] / best['real_tokens_per_s']:.2f}x real tokens/s"
        session.note(line)
