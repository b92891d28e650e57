#!/usr/bin/env python3
"""Ranks on several machines, each a network namespace with its own name, clock and processes.

usage: tests/ranks/hosts.py --program build/some [--mpirun mpirun] [--clock libclock.so] [--seed 1] [SCENARIO...]

The machines are linked by a switch, which is part of this script: it passes on Ethernet frames, later, slower or not at
all. So links can be cut and slow wherever namespaces and TAP devices are permitted; without them the test is skipped.

scenarios: equal    three machines give the bytes of one process
           clocks   so they do if their clocks differ by days, and if one is set back while they train
           slow     so they do over slow links that lose frames
           cut      a link that is cut ends all ranks within a minute, with a line that names the rank
           vanished a machine that is gone with all its processes does so too
           startup  a machine whose link is cut while MPI connects the ranks, too
           Each then resumes to the bytes of an undisturbed run.
"""
import argparse
import ctypes
import fcntl
import heapq
import multiprocessing
import os
import random
import re
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time

sys.dont_write_bytecode = True
sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from run import VARIANTS, Failure, Ranks  # noqa: E402

LONGER = [*VARIANTS["rules"], "train.accumulate=12", "train.batch=2", "train.epochs=12", "train.checkpoint_every=5"]
HOSTS = 3
MINUTE = 60  # seconds until all ranks must have ended
CLONE_NEWNET, TUNSETIFF, IFF_TAP_NO_PI = 0x40000000, 0x400454CA, 0x1002
libc = ctypes.CDLL(None, use_errno=True)


def address(host):
    return f"10.77.0.{host + 1}"


class Switch:
    """Passes Ethernet frames between the machines, in a process of its own."""

    def __init__(self, taps):
        self.taps = taps
        self.up = multiprocessing.Array("b", [1] * len(taps), lock=False)
        self.delay = multiprocessing.Value("d", 0.0, lock=False)  # seconds
        self.rate = multiprocessing.Value("d", 0.0, lock=False)  # bytes per second of each link; 0: any
        self.loss = multiprocessing.Value("d", 0.0, lock=False)  # share of the frames
        self.process = multiprocessing.Process(target=self.work, daemon=True)
        self.process.start()

    def work(self):
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        dice, waiting, count = random.Random(1), [], 0
        free = [0.0] * len(self.taps)  # when each link has sent what it was given
        places = {tap: host for host, tap in enumerate(self.taps)}
        while True:
            left = max(0.0, waiting[0][0] - time.monotonic()) if waiting else 1.0
            for tap in select.select(self.taps, [], [], left)[0]:
                frame, source = os.read(tap, 65536), places[tap]
                if not self.up[source] or (self.loss.value > 0 and dice.random() < self.loss.value):
                    continue
                now = time.monotonic()
                if self.rate.value > 0:
                    if free[source] > now + 1:  # a full queue
                        continue
                    free[source] = max(free[source], now) + len(frame) / self.rate.value
                    now = free[source]
                # Addresses end with the number of the machine; all other addresses reach every
                # machine.
                to = [frame[5] - 1] if frame[:5] == b"\x02\0\0\0\0" else range(len(self.taps))
                for one in to:
                    if one != source and 0 <= one < len(self.taps):
                        count += 1
                        heapq.heappush(waiting, (now + self.delay.value, count, one, frame))
            while waiting and waiting[0][0] <= time.monotonic():
                one, frame = heapq.heappop(waiting)[2:]
                if self.up[one]:
                    try:
                        os.write(self.taps[one], frame)
                    except OSError:
                        pass

    def reset(self):
        self.delay.value = self.rate.value = self.loss.value = 0.0
        for host in range(len(self.taps)):
            self.up[host] = 1

    def close(self):
        self.process.kill()
        self.process.join()
        for tap in self.taps:
            os.close(tap)


class Hosts:
    """Network namespaces, kept by a process in each that sleeps."""

    def __init__(self, folder):
        self.keepers, taps = [], []
        for host in range(HOSTS):
            # Also a separate process namespace: when its first process ends, all processes of the machine
            # end.
            keeper = subprocess.Popen(["unshare", "--net", "--uts", "--kill-child", "sh", "-c",
                                       f"hostname machine{host} && echo there && exec sleep 100000"],
                                      stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if keeper.stdout.readline().strip() != "there":
                raise Skipped("namespaces of networks and names are not permitted here")
            pid = self.child_of(keeper.pid)
            self.keepers.append((keeper, pid))
            taps.append(self.make_tap(pid))
            for words in (["link", "set", "lo", "up"], ["link", "set", "net0", "address", f"02:00:00:00:00:{host + 1:02x}"],
                          ["addr", "add", address(host) + "/24", "dev", "net0"],
                          ["link", "set", "net0", "up", "mtu", "9000"]):
                subprocess.run([*self.inside(host), "ip", *words], check=True, capture_output=True)
        self.switch = Switch(taps)
        self.agent = os.path.join(folder, "agent")
        with open(self.agent, "w") as file:
            file.write("#!/bin/sh\n# usage: agent ADDRESS COMMAND, as ssh would run it\naddress=$1; shift\ncase $address in\n")
            for host in range(HOSTS):
                file.write(f'{address(host)}) exec {" ".join(self.inside(host))} sh -c "$*" ;;\n')
            file.write("esac\nexit 1\n")
        os.chmod(self.agent, 0o755)
        self.hostfile = os.path.join(folder, "hosts")
        with open(self.hostfile, "w") as file:
            file.writelines(f"{address(host)} slots=1\n" for host in range(HOSTS))

    @staticmethod
    def child_of(pid):
        end = time.time() + 10
        while time.time() < end:
            with open(f"/proc/{pid}/task/{pid}/children") as file:
                children = file.read().split()
            if children:
                return int(children[0])
            time.sleep(0.01)
        return pid

    def inside(self, host):
        return ["nsenter", "--net", "--uts", "-t", str(self.keepers[host][1])]

    @staticmethod
    def make_tap(pid):
        own = os.open("/proc/self/ns/net", os.O_RDONLY)
        other = os.open(f"/proc/{pid}/ns/net", os.O_RDONLY)
        try:
            if libc.setns(other, CLONE_NEWNET) != 0:
                raise Skipped("a namespace of networks cannot be entered")
            try:
                tap = os.open("/dev/net/tun", os.O_RDWR)
                fcntl.ioctl(tap, TUNSETIFF, struct.pack("16sH22x", b"net0", IFF_TAP_NO_PI))
            except OSError as error:
                raise Skipped(f"there are no TAP devices: {error}") from None
            return tap
        finally:
            libc.setns(own, CLONE_NEWNET)
            os.close(own)
            os.close(other)

    def processes(self, host):
        wanted = os.stat(f"/proc/{self.keepers[host][1]}/ns/net").st_ino
        found = []
        for name in os.listdir("/proc"):
            try:
                if name.isdigit() and os.stat(f"/proc/{name}/ns/net").st_ino == wanted:
                    found.append(int(name))
            except OSError:
                continue
        return [pid for pid in found if pid not in (self.keepers[host][1], self.keepers[host][0].pid)]

    def kill(self, host, signal_number=signal.SIGKILL):
        for pid in self.processes(host):
            try:
                os.kill(pid, signal_number)
            except ProcessLookupError:
                pass

    def close(self):
        for host in range(len(self.keepers)):
            self.kill(host)
        self.switch.close()
        for keeper, _ in self.keepers:
            keeper.kill()
            keeper.wait()


class Skipped(Exception):
    pass


class Machines(Ranks):
    """Ranks of run.py, one on each machine."""

    def __init__(self, options, folder, hosts):
        super().__init__(options, folder)
        self.hosts = hosts
        self.clock = os.path.abspath(options.clock) if options.clock else None
        network = f"{address(0).rsplit('.', 1)[0]}.0/24"
        self.environment.update(
            OMPI_MCA_plm_rsh_agent=hosts.agent, OMPI_MCA_plm_rsh_no_tree_spawn="1", OMPI_MCA_btl="tcp,self",
            OMPI_MCA_btl_tcp_if_include=network, OMPI_MCA_oob_tcp_if_include=network, OMPI_MCA_pml="ob1",
            OMPI_MCA_orte_default_hostfile=hosts.hostfile)

    def words(self, ranks, *arguments):
        if ranks == 1:
            return [self.program, *arguments]
        return [*self.hosts.inside(0), self.mpirun, "-n", str(ranks), "--map-by", "node", "--wdir", self.folder,
                self.program, *arguments]

    def train(self, run, **environment):
        begun = os.path.exists(os.path.join(self.folder, run, "config.toml"))
        words = ["train", "--resume", run] if begun else ["train", *self.recipe, *LONGER, "--out", run]
        return self.begin(self.words(HOSTS, *words), **environment)

    def end_of(self, process, limit, what):
        """What was printed; all processes of all machines must have ended as well."""
        begin = time.time()
        try:
            said = process.communicate(timeout=limit)[0]
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            said = process.communicate()[0]
            raise Failure(f"{what}: no end within {limit} seconds:\n{said}")
        while any(self.hosts.processes(host) for host in range(HOSTS)):
            if time.time() > begin + limit:
                left = {host: [name_of(pid) for pid in self.hosts.processes(host)] for host in range(HOSTS)}
                raise Failure(f"{what}: processes are left after {limit} seconds: {left}\n{said}")
            time.sleep(0.1)
        return said, time.time() - begin


def name_of(pid):
    try:
        with open(f"/proc/{pid}/cmdline") as file:
            return file.read().replace("\0", " ").strip()
    except OSError:
        return ""


def wait_for_lines(machines, process, run, lines):
    metrics = os.path.join(machines.folder, run, "metrics.jsonl")
    end = time.time() + 120
    while time.time() < end and process.poll() is None:
        try:
            with open(metrics) as file:
                if len(file.readlines()) >= lines:
                    return
        except OSError:
            pass
        time.sleep(0.05)
    raise Failure(f"the run did not begin:\n{process.communicate()[0] if process.poll() is not None else ''}")


def resumes(machines, run, whole):
    """The run continues on all machines, and on one, to the bytes of an undisturbed one."""
    machines.hosts.switch.reset()
    said, _ = machines.end_of(machines.train(run), 180, "resuming")
    if "step" not in said:
        raise Failure(f"the run did not resume:\n{said}")
    machines.expect_same(whole, run)


def equal(machines, whole):
    process = machines.train("equal")
    said, seconds = machines.end_of(process, 180, "equal")
    if process.returncode != 0:
        raise Failure(f"three machines:\n{said}")
    with open(os.path.join(machines.folder, "equal/timing.jsonl")) as file:
        if '"ranks":3' not in file.readline().replace(" ", ""):
            raise Failure(f"the machines did not share the run:\n{said}")
    machines.expect_same(whole, "equal")
    print(f"  three machines: the same bytes, {seconds:.1f} s")


def clocks(machines, whole):
    if not machines.clock:
        print("  skipped: no --clock")
        return
    process = machines.train("clocks", LD_PRELOAD=machines.clock)
    said, seconds = machines.end_of(process, 180, "clocks")
    if process.returncode != 0:
        raise Failure(f"clocks that differ:\n{said}")
    machines.expect_same(whole, "clocks")
    print(f"  clocks that differ by days and jump back: the same bytes, {seconds:.1f} s")


def slow(machines, whole):
    switch = machines.hosts.switch
    switch.delay.value, switch.rate.value, switch.loss.value = 0.02, 2e6, 0.002
    process = machines.train("slow")
    said, seconds = machines.end_of(process, 400, "slow links")
    if process.returncode != 0:
        raise Failure(f"slow links:\n{said}")
    switch.reset()
    machines.expect_same(whole, "slow")
    print(f"  20 ms, 2 MB/s, 0.2% lost: the same bytes, {seconds:.1f} s")


def named(said, ranks, what):
    told = [line for line in said.splitlines() if line.startswith("some: ")]
    if not any("error[ranks-unreachable]" in line and any(f"rank {rank}" in line for rank in ranks) for line in told):
        raise Failure(f"{what}: no line names the rank:\n{said}")
    return next(line for line in told if "error[ranks-unreachable]" in line)


def lost(machines, whole, name, act, ranks):
    """Something happens to the last machine while the run trains; `ranks` may be named."""
    machines.hosts.switch.delay.value = 0.005  # or it might be over before
    process = machines.train(name)
    wait_for_lines(machines, process, name, 3)
    begin = time.time()
    act()
    said, seconds = machines.end_of(process, MINUTE, name)
    if process.returncode == 0:
        raise Failure(f"{name}: success in spite of it:\n{said}")
    line = named(said, ranks, name)
    print(f"  {name}: all ended after {time.time() - begin:.1f} s: {line}")
    resumes(machines, name, whole)


def cut(machines, whole):
    switch = machines.hosts.switch

    def cut_last():
        switch.up[HOSTS - 1] = 0

    # Either side may notice first: the neighbor of the machine, or the isolated machine itself.
    lost(machines, whole, "cut", cut_last, range(HOSTS))


def vanished(machines, whole):
    def vanish():
        machines.hosts.switch.up[HOSTS - 1] = 0  # nothing says goodbye
        machines.hosts.kill(HOSTS - 1)

    lost(machines, whole, "vanished", vanish, [HOSTS - 1])


def startup(machines, whole):
    process = machines.train("startup")
    end = time.time() + 30
    while time.time() < end and not any(name_of(pid).startswith(machines.program)
                                        for pid in machines.hosts.processes(HOSTS - 1)):
        time.sleep(0.005)
    machines.hosts.switch.up[HOSTS - 1] = 0
    said, seconds = machines.end_of(process, MINUTE, "startup")
    if process.returncode == 0:
        raise Failure(f"startup: success without a machine:\n{said}")
    print(f"  startup: all ended after {seconds:.1f} s: {named(said, range(HOSTS), 'startup')}")
    resumes(machines, "startup", whole)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--mpirun", default="mpirun")
    parser.add_argument("--clock", help="a library (tests/ranks/clock.c) that gives each rank another time of day")
    parser.add_argument("scenarios", nargs="*", default=[])
    options = parser.parse_args()
    for tool in (options.mpirun, "unshare", "nsenter", "ip"):
        if shutil.which(tool) is None:
            print(f"skipped: there is no {tool}")
            return 77
    known = {"equal": equal, "clocks": clocks, "slow": slow, "cut": cut, "vanished": vanished, "startup": startup}
    with tempfile.TemporaryDirectory(prefix="some-hosts-") as folder:
        try:
            hosts = Hosts(folder)
        except (Skipped, OSError, subprocess.CalledProcessError) as reason:
            print(f"skipped: {reason}")
            return 77
        try:
            machines = Machines(options, folder, hosts)
            machines.run(machines.words(1, "train", *machines.recipe, *LONGER, "--out", "whole"))
            for name in options.scenarios or known:
                begin = time.time()
                hosts.switch.reset()
                known[name](machines, "whole")
                print(f"{name}: {time.time() - begin:.1f} s", flush=True)
        except Failure as failure:
            print(failure)
            return 1
        finally:
            hosts.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
