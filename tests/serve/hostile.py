#!/usr/bin/env python3
"""Hostile clients of `some serve`: they vanish, stall, send nonsense, too much or too little, while others are served.

usage: hostile.py --program SOME [--seconds 10] [--clients 12] [--seed 1]

A client that behaves well asks for the same text again and again: it must always be the same, within a time limit. In
the end the server must have as many open files as before, no more memory than its limits allow, answer, and end on a
signal.
"""
import argparse
import collections
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

HERE = os.path.dirname(os.path.abspath(__file__))
RECIPE = os.path.join(HERE, "../../recipes/tiny.toml")
LONGEST_ANSWER = 60  # seconds, for a good client on a busy machine
MOST_GROWTH = 400 << 20  # bytes; accepted requests and sessions are limited


def post(body, path="/v1/completions", headers=()):
    body = body if isinstance(body, bytes) else json.dumps(body).encode()
    lines = [f"POST {path} HTTP/1.1", "Host: 127.0.0.1", "Content-Type: application/json",
             f"Content-Length: {len(body)}", *headers]
    return "\r\n".join(lines).encode() + b"\r\n\r\n" + body


GOOD = {"prompt": "Once upon a time", "max_tokens": 12, "temperature": 0}


class Attack:
    """One connection that misbehaves. Returns the statuses that were answered."""

    def __init__(self, port, dice):
        self.dice, self.statuses = dice, []
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=20)

    def run(self):
        kinds = [getattr(self, name) for name in dir(self) if name.startswith("try_")]
        kind = self.dice.choice(kinds)
        try:
            kind()
        except (OSError, TimeoutError):
            pass  # the server may hang up on any of them
        finally:
            if self.dice.random() < 0.5:  # a reset instead of a goodbye
                self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
            self.socket.close()
        return kind.__name__[4:], self.statuses

    def listen(self, seconds=10.0, most=1 << 20):
        """Reads what comes for a while."""
        self.socket.settimeout(seconds)
        held = b""
        while len(held) < most:
            part = self.socket.recv(65536)
            if not part:
                break
            held += part
            if re.match(rb"HTTP/1.1 [45]", held) or b"data: [DONE]" in held or b'"usage"' in held:
                break
        self.statuses += [int(code) for code in re.findall(rb"HTTP/1\.1 (\d\d\d)", held)]
        return held

    def refused(self, data):
        self.socket.sendall(data)
        held = self.listen()
        if any(code < 400 for code in self.statuses):
            raise AssertionError(f"was taken: {data[:200]!r}: {held[:200]!r}")

    def try_vanish_in_request(self):
        data = post(GOOD)
        self.socket.sendall(data[:self.dice.randrange(len(data))])

    def try_vanish_in_stream(self):
        self.socket.sendall(post({**GOOD, "stream": True, "max_tokens": 4000}))
        for _ in range(self.dice.randrange(4)):
            self.socket.recv(200)

    def try_vanish_after_request(self):
        self.socket.sendall(post({**GOOD, "max_tokens": 4000, "n": 4}))

    def try_stall(self):
        data = post(GOOD)
        self.socket.sendall(data[:self.dice.randrange(1, len(data))])
        time.sleep(self.dice.random() * 5)

    def try_read_slowly(self):
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1024)
        self.socket.sendall(post({**GOOD, "stream": True, "max_tokens": 4000, "experts": True}))
        for _ in range(self.dice.randrange(30)):
            self.socket.recv(7)
            time.sleep(0.1)

    def try_nonsense(self):
        self.socket.sendall(self.dice.randbytes(self.dice.randrange(1, 4000)) + b"\r\n\r\n")
        self.listen(3)

    def try_mangled_request(self):
        data = bytearray(post(GOOD))
        for _ in range(self.dice.randrange(1, 6)):
            data[self.dice.randrange(len(data))] = self.dice.randrange(256)
        self.socket.sendall(bytes(data))
        self.listen(3)

    def try_huge_headers(self):
        self.refused(b"GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n" + b"".join(
            b"X-%d: %s\r\n" % (i, b"a" * 1000) for i in range(self.dice.choice([100, 2000]))) + b"\r\n")

    def try_endless_header(self):
        self.socket.sendall(b"GET /health HTTP/1.1\r\nX: ")
        for _ in range(200):
            self.socket.sendall(b"a" * 65536)

    def try_huge_length(self):
        for length in (b"99999999999999999999", b"-1", b"1e9", b"0x10", b"1000000000000", b"5, 6", b"+5"):
            if length == self.dice.choice([length, None]):
                self.refused(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                             b"Content-Length: " + length + b"\r\n\r\n{}")
                return

    def try_two_lengths(self):
        self.refused(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Content-Length: 2\r\nContent-Length: 40\r\n\r\n{}GET /health HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")

    def try_chunks(self):
        self.refused(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                     b"Transfer-Encoding: chunked\r\nContent-Length: 5\r\n\r\nffffffffffffffff\r\n{}\r\n0\r\n\r\n")

    def try_huge_body(self):
        self.refused(post(b'{"prompt":"' + b"a " * (20 << 20) + b'"}'))

    def try_a_million_tokens(self):
        self.socket.sendall(post({"prompt": "the cat " * 250_000, "max_tokens": 4}))
        self.listen(LONGEST_ANSWER)

    def try_a_million_ids(self):
        self.socket.sendall(post({"prompt": [5] * 1_000_000, "max_tokens": 4}))
        self.listen(LONGEST_ANSWER)

    def try_wrong_ids(self):
        self.refused(post({"prompt": [self.dice.choice([-1, 10**9, 2**63, 1.5, None])], "max_tokens": 2}))

    def try_many_prompts(self):
        self.socket.sendall(post({"prompt": ["a"] * 100_000, "max_tokens": 1}))
        self.listen()

    def try_deep_json(self):
        depth = self.dice.choice([100, 10_000, 1_000_000])
        self.refused(post(b'{"prompt":' + b"[" * depth + b"]" * depth + b"}"))

    def try_open_json(self):
        self.refused(post(b'{"prompt":' + b'{"a":' * self.dice.choice([100, 100_000])))

    def try_invalid_utf8(self):
        self.refused(post(b'{"prompt":"' + self.dice.choice([b"\xff", b"\xc3", b"\xed\xa0\x80", b"\xf5\x80\x80\x80"]) + b'"}'))

    def try_odd_values(self):
        field = self.dice.choice(["max_tokens", "n", "temperature", "top_p", "seed", "stop", "logprobs", "prompt", "model",
                                  "stream", "presence_penalty", "logit_bias", "echo"])
        value = self.dice.choice([-1, 1e308, 10**30, None, [], {}, "x" * 100_000, [[]], True, "\0", "\x1b[2J", 0.1, 2**31])
        self.socket.sendall(post({**GOOD, "max_tokens": 2, field: value}))
        self.listen()

    def try_pipeline(self):
        self.socket.sendall(post({**GOOD, "max_tokens": 1}) * self.dice.randrange(2, 60))
        self.listen()

    def try_paths(self):
        path = self.dice.choice(["/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "//", "/v1/models/" + "a" * 10_000,
                                 "/v1/models/%00", "/\x01", "/?" + "&" * 5000, "*", "http://other/"])
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        held = self.listen()
        if b"root:" in held:
            raise AssertionError("a file of the machine was served")

    def try_other_host(self):
        self.refused(b"GET /health HTTP/1.1\r\nHost: evil.example\r\n\r\n")

    def try_other_origin(self):
        self.refused(post(GOOD, headers=["Origin: http://evil.example"]))

    def try_continue(self):
        self.socket.sendall(b"POST /v1/completions HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                            b"Expect: 100-continue\r\nContent-Length: 1000000\r\n\r\n")
        self.listen(2)

    def try_sessions(self):
        self.socket.sendall(post({**GOOD, "session": "s%d" % self.dice.randrange(10**6), "learn": True, "max_tokens": 2}))
        self.listen()

    def try_nothing(self):
        time.sleep(self.dice.random() * 3)


def ask(port):
    with socket.create_connection(("127.0.0.1", port), timeout=LONGEST_ANSWER) as connection:
        connection.sendall(post(GOOD, headers=["Connection: close"]))
        held = b""
        while part := connection.recv(65536):
            held += part
    head, _, body = held.partition(b"\r\n\r\n")
    return int(head.split()[1]), body


def state_of(pid):
    with open(f"/proc/{pid}/status") as file:
        memory = int(re.search(r"VmRSS:\s+(\d+)", file.read()).group(1)) * 1024
    return memory, len(os.listdir(f"/proc/{pid}/fd")), len(os.listdir(f"/proc/{pid}/task"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--clients", type=int, default=12)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    problems = []
    with tempfile.TemporaryDirectory(prefix="hostile-") as folder:
        subprocess.run([options.program, "train", RECIPE, "--out", "runs/tiny", "train.max_steps=20", "data.train_documents=200",
                        "data.valid_documents=20", "data.vocab=400", "train.threads=1"], cwd=folder, check=True,
                       capture_output=True)
        with open(os.path.join(folder, "errors"), "w") as errors:
            server = subprocess.Popen([options.program, "serve", "runs/tiny", "--port", "0", "--json", "--threads", "1"],
                                      cwd=folder, stdout=subprocess.PIPE, stderr=errors, text=True)
        port = int(re.search(r":(\d+)/", json.loads(server.stdout.readline())["address"]).group(1))
        expected = json.loads(ask(port)[1])["choices"][0]["text"]
        before = state_of(server.pid)
        counts, end, lock = collections.Counter(), time.time() + options.seconds, threading.Lock()

        def attack(number):
            dice = random.Random(options.seed * 1000 + number)
            while time.time() < end:
                try:
                    kind, statuses = Attack(port, dice).run()
                    with lock:
                        counts[kind] += 1
                        if any(status == 500 for status in statuses):
                            problems.append(f"{kind}: status 500")
                except OSError:  # no connection: as many as are allowed are open
                    time.sleep(0.05)
                except AssertionError as problem:
                    with lock:
                        problems.append(str(problem))

        threads = [threading.Thread(target=attack, args=(number,)) for number in range(options.clients)]
        for thread in threads:
            thread.start()
        good = busy = 0
        longest = 0.0
        while time.time() < end:
            begin = time.time()
            try:
                status, body = ask(port)
            except OSError as problem:
                problems.append(f"a good client was hung up on: {problem}")
                break
            longest = max(longest, time.time() - begin)
            if status in (429, 503):
                busy += 1
                time.sleep(0.1)
            elif status != 200 or json.loads(body)["choices"][0]["text"] != expected:
                problems.append(f"a good client got {status}: {body[:200]!r}")
            else:
                good += 1
        for thread in threads:
            thread.join()
        # The server releases what the last clients left behind within its time limits.
        for _ in range(600):
            if server.poll() is not None or state_of(server.pid)[1] <= before[1]:
                break
            time.sleep(0.1)
        if server.poll() is not None:
            problems.append(f"the server ended with {server.returncode}")
        else:
            after = state_of(server.pid)
            if json.loads(ask(port)[1])["choices"][0]["text"] != expected:
                problems.append("another text afterwards")
            if after[1] > before[1]:
                problems.append(f"{after[1]} files are open, before {before[1]}")
            if after[2] > before[2] + 2:
                problems.append(f"{after[2]} threads, before {before[2]}")
            if after[0] - before[0] > MOST_GROWTH:
                problems.append(f"{(after[0] - before[0]) >> 20} MiB more memory")
            if good == 0:
                problems.append("no good client was served")
            server.send_signal(signal.SIGTERM)
            try:
                if server.wait(timeout=30) != 0:
                    problems.append(f"the server ended with {server.returncode}")
            except subprocess.TimeoutExpired:
                server.kill()
                problems.append("the server did not end")
        with open(os.path.join(folder, "errors")) as errors:
            said = errors.read()
        if re.search(r"internal error|Sanitizer|terminate called", said):
            problems.append(f"the server says: {said[-1000:]}")
        print(f"{sum(counts.values())} hostile connections of {len(counts)} kinds; {good} good answers, {busy} told to come back, "
              f"the longest after {longest:.1f} s; {before[0] >> 20} MiB before, "
              f"{(after[0] >> 20) if server.returncode == 0 else 0} after")
    for problem in problems[:20]:
        print(f"  {problem}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
