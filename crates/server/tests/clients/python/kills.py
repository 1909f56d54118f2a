"""kill -9 of a server while redis-py writes: every add that was acknowledged is there afterwards.

    python3 kills.py UMBEL-BINARY [ROUNDS [SEED]]

The server runs with its default settings. Filters of all sorts are written: small ones that grow, a large one, fixed and counting ones.
"""

import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time

import redis
from redis.exceptions import RedisError, ResponseError

WRITERS = 4
# Seconds for which a round writes, at most.
ROUND = 1.2


class Server:
    """The one place where this program starts a server."""

    def __init__(self, binary, folder):
        self.binary, self.folder = binary, folder
        self.port = free_port()
        self.process = None

    def start(self):
        line = [self.binary, "serve", "--port", str(self.port), "--http-port", "0"]
        line += ["--data", os.path.join(self.folder, "data")]
        log = open(os.path.join(self.folder, "server.log"), "ab")
        self.process = subprocess.Popen(line, stdout=log, stderr=log, cwd=self.folder)
        end = time.monotonic() + 60
        while time.monotonic() < end:
            try:
                self.client().ping()
                return
            except ResponseError:
                return  # It answers.
            except RedisError:
                if self.process.poll() is not None:
                    raise SystemExit(f"the server ended with {self.process.returncode}:\n{self.said()}") from None
                time.sleep(0.02)
        raise SystemExit(f"the server does not answer:\n{self.said()}")

    def kill(self):
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()

    def said(self):
        with open(os.path.join(self.folder, "server.log"), errors="replace") as log:
            return log.read()[-4000:]

    def client(self):
        return redis.Redis(port=self.port, protocol=2, socket_timeout=30, retry=None)


def free_port():
    # Under the ports that the system gives to clients, so that none of them takes it between two starts.
    while True:
        port = random.SystemRandom().randrange(20000, 32768)
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) != 0:
                return port


class Writer(threading.Thread):
    """Adds items of its own, and notes which of them were acknowledged."""

    def __init__(self, server, number, round_number, seed, acknowledged):
        super().__init__()
        self.client = server.client()
        self.name = f"{round_number}:{number}"
        self.chance = random.Random(f"{seed}:{self.name}")
        self.acknowledged = acknowledged
        self.added = 0
        self.trouble = None
        self.next = 0

    def item(self):
        self.next += 1
        return f"{self.name}:{self.next}"

    def note(self, key, items):
        self.acknowledged.setdefault(key, set()).update(items)
        self.added += len(items)

    def run(self):
        try:
            while True:
                self.step()
        except ResponseError as error:
            self.trouble = error
        except RedisError:
            pass  # The server was killed.

    def step(self):
        small = f"small:{self.chance.randrange(8)}:{self.name.split(':')[0]}"
        counting = f"counting:{self.chance.randrange(4)}"
        kind = self.chance.randrange(7)
        if kind == 0:
            item = self.item()
            self.client.bf().add(small, item)
            self.note(small, [item])
        elif kind == 1:
            items = [self.item() for _ in range(self.chance.randrange(1, 300))]
            self.client.bf().madd("large", *items)
            self.note("large", items)
        elif kind == 2:
            items = [self.item() for _ in range(self.chance.randrange(1, 200))]
            with self.client.pipeline(transaction=False) as pipe:
                for item in items:
                    pipe.execute_command("BF.ADD", small, item)
                pipe.execute()
            self.note(small, items)
        elif kind == 3:
            items = [self.item() for _ in range(self.chance.randrange(1, 100))]
            self.client.bf().madd("growing", *items)
            self.note("growing", items)
        elif kind == 4:
            items = [self.item() for _ in range(self.chance.randrange(1, 50))]
            self.client.cf().insert(counting, items)
            self.note(counting, items)
        elif kind == 5:
            # What is taken out again was acknowledged too, and must not take others with it.
            item = self.item()
            self.client.cf().add(counting, item)
            self.client.cf().delete(counting, item)
        else:
            items = [self.item() for _ in range(self.chance.randrange(1, 30))]
            key = f"inserted:{self.chance.randrange(3)}"
            self.client.bf().insert(key, items, capacity=50, error=0.001)
            self.note(key, items)


def missing(client, acknowledged):
    """Items that were acknowledged and are not there."""
    lost = []
    for key, items in acknowledged.items():
        command = "CF.MEXISTS" if key.startswith("counting") else "BF.MEXISTS"
        items = list(items)
        for start in range(0, len(items), 1000):
            part = items[start : start + 1000]
            answers = client.execute_command(command, key, *part)
            lost += [(key, item) for item, there in zip(part, answers) if not there]
    return lost


def main():
    binary = os.path.abspath(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else 100
    seed = int(sys.argv[3]) if len(sys.argv) > 3 else random.SystemRandom().randrange(1 << 32)
    print(f"seed {seed}", flush=True)
    chance = random.Random(seed)
    folder = tempfile.mkdtemp(prefix="umbel-kills-")
    server = Server(binary, folder)
    acknowledged, total, lost = {}, 0, []
    try:
        server.start()
        server.client().bf().reserve("large", 0.001, 2_000_000)
        server.client().bf().reserve("growing", 0.001, 100, expansion=2)
        for round_number in range(rounds):
            noted = [{} for _ in range(WRITERS)]
            writers = [Writer(server, number, round_number, seed, noted[number]) for number in range(WRITERS)]
            for writer in writers:
                writer.start()
            time.sleep(chance.uniform(0.01, ROUND))
            if chance.randrange(4) == 0:
                # In the middle of a checkpoint, if the server makes one when asked.
                try:
                    server.client().execute_command("BGSAVE")
                    time.sleep(chance.uniform(0, 0.1))
                except RedisError:
                    pass
            server.kill()
            for writer in writers:
                writer.join()
                total += writer.added
                if writer.trouble is not None:
                    raise SystemExit(f"a write was refused: {writer.trouble}\n{server.said()}")
            server.start()
            new = {}
            for notes in noted:
                for key, items in notes.items():
                    new.setdefault(key, set()).update(items)
                    acknowledged.setdefault(key, set()).update(items)
            # What is new every time, all of it now and then and in the end.
            everything = round_number % 10 == 9 or round_number == rounds - 1
            lost += missing(server.client(), acknowledged if everything else new)
            if lost:
                break
        grown = server.client().bf().info("growing")
        files = [os.path.join(at, name) for at, _, names in os.walk(folder) for name in names]
        checkpoints = sum(1 for name in files if "blobs" in name)
        server.kill()
    finally:
        if server.process and server.process.poll() is None:
            server.kill()
        if lost or sys.exc_info()[0]:
            print(f"the server's folder is kept: {folder}")
        else:
            shutil.rmtree(folder, ignore_errors=True)
    print(f"filters {len(acknowledged)}, one of them grew from 100 to {grown.capacity}; {checkpoints} files of checkpoints")
    print(f"rounds {rounds}, acknowledged {total} adds, lost {len(lost)}")
    if lost:
        print(f"lost: {lost[:20]}")
    sys.exit(1 if lost else 0)


if __name__ == "__main__":
    main()
