"""Checkpoints in a bucket (SeaweedFS on this machine) against the stores' own clients; called by run_benchmarks.py."""
import asyncio
import json
import os
import pathlib
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time

from measure import TOP, best, child, row

KEY, SECRET = "AKBENCH", "SKBENCHSECRET"
PEERS = os.path.join(os.environ.get("SHARDSCOPE_PEERS", os.path.join(TOP, "build/peers")), "places/bin")


def free_port():
    while True:
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        if port < 55000:  # its gRPC ports are 10,000 higher
            return port


class Store:
    def __init__(self, work):
        self.directory = tempfile.mkdtemp(dir=work)
        self.port = free_port()
        config = os.path.join(self.directory, "s3.json")
        with open(config, "w", encoding="utf-8") as f:
            json.dump({"identities": [{"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                                       "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}, f)
        os.mkdir(os.path.join(self.directory, "data"))
        self.process = subprocess.Popen(
            [os.path.join(PEERS, "weed"), "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1", "-dir=" + self.directory + "/data", "-s3",
             "-s3.port=%d" % self.port, "-s3.port.iceberg=0", "-s3.port.lance=0", "-s3.config=" + config, "-master.port=%d" % free_port(),
             "-volume.port=%d" % free_port(), "-filer.port=%d" % free_port(), "-master.volumeSizeLimitMB=1024", "-volume.max=50",
             "-master.telemetry=false"],
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=dict(os.environ, GOMEMLIMIT="500MiB"))
        self.url = "http://127.0.0.1:%d" % self.port
        for _ in range(600):
            if subprocess.run(self.curl("-X", "PUT", "-o", "/dev/null", "-f", self.url + "/bench"), stderr=subprocess.DEVNULL).returncode == 0:
                return
            time.sleep(0.1)
        raise RuntimeError("SeaweedFS does not answer")

    def curl(self, *words):
        return ["curl", "-s", "--aws-sigv4", "aws:amz:us-east-1:s3", "-u", KEY + ":" + SECRET, *words]

    def environment(self, url=None):
        return dict(os.environ, AWS_ENDPOINT_URL=url or self.url, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_REGION="us-east-1",
                    AWS_EC2_METADATA_DISABLED="true", PYTHONPATH=os.path.join(TOP, "build/release/python"),
                    SHARDSCOPE=os.path.join(TOP, "build/release/bin/shardscope"))

    def end(self):
        self.process.kill()
        self.process.wait()
        shutil.rmtree(self.directory)


class SlowDoor:
    """Passes connections on to the store; each answer waits, as over a long way. Counts requests. Buffers are large, because one thread serves all."""
    BUFFER = 4 << 20

    def __init__(self, port, seconds):
        self.seconds, self.to, self.requests = seconds, port, 0
        self.loop = asyncio.new_event_loop()
        started = threading.Event()

        async def serve():
            server = await asyncio.start_server(self.connect, "127.0.0.1", 0, limit=self.BUFFER)
            self.port = server.sockets[0].getsockname()[1]
            started.set()

        def run():
            asyncio.set_event_loop(self.loop)
            self.loop.create_task(serve())
            self.loop.run_forever()
        threading.Thread(target=run, daemon=True).start()
        started.wait()

    async def connect(self, reader, writer):
        there_reader, there_writer = await asyncio.open_connection("127.0.0.1", self.to, limit=self.BUFFER)
        answered = asyncio.Event()

        async def back():
            while block := await there_reader.read(self.BUFFER):
                if not answered.is_set():
                    await asyncio.sleep(self.seconds)
                    answered.set()
                writer.write(block)
                await writer.drain()
            writer.close()
        task = asyncio.create_task(back())
        while block := await reader.read(1 << 16):
            if block.startswith((b"GET ", b"HEAD ", b"PUT ", b"POST ")):
                self.requests += 1
                answered.clear()
            there_writer.write(block)
        there_writer.close()
        await task


class Nginx:
    """Serves the files of a directory over plain http."""
    PROGRAM = os.path.join(os.path.dirname(os.path.dirname(PEERS)), "nginx/usr/sbin/nginx")

    def __init__(self, files):
        self.place = tempfile.TemporaryDirectory()
        port, place = free_port(), self.place.name
        with open(os.path.join(place, "conf"), "w", encoding="utf-8") as f:
            f.write("daemon off; pid %s/pid; worker_processes 2; events { worker_connections 256; } http { access_log off; sendfile on;" % place +
                    "".join(" %s_temp_path %s/t;" % (kind, place) for kind in ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")) +
                    " server { listen 127.0.0.1:%d; root %s; } }" % (port, files))
        self.process = subprocess.Popen([self.PROGRAM, "-p", place, "-c", os.path.join(place, "conf"), "-e", os.path.join(place, "errors")])
        self.url = "http://127.0.0.1:%d" % port
        while subprocess.run(["curl", "-s", "-o", "/dev/null", self.url]).returncode:
            if self.process.poll() is not None:
                raise RuntimeError("nginx ended")
            time.sleep(0.05)

    def end(self):
        self.process.terminate()
        self.process.wait()
        self.place.cleanup()


MAKE = """
import json, os, sys, torch
from safetensors.torch import save_file
torch.manual_seed(0)
n = int(float(sys.argv[2]) * 2**30 / 2)
state = {'model.layers.%d.weight' % i: torch.randn(n // 32 // 4096, 4096).to(torch.bfloat16) for i in range(32)}
for s in range(4): save_file({k: v for i, (k, v) in enumerate(state.items()) if i % 4 == s}, os.path.join(sys.argv[1], 'model-0000%d-of-00004.safetensors' % (s + 1)))
with open(os.path.join(sys.argv[1], sys.argv[3]), 'w') as f:
    json.dump({'metadata': {}, 'weight_map': {k: 'model-0000%d-of-00004.safetensors' % (i % 4 + 1) for i, k in enumerate(state)}}, f)
"""
INDEX = "model.safetensors.index.json"
LOAD = """
import sys, time, torch, torch.distributed.checkpoint as dcp
who, url, elements = sys.argv[1], sys.argv[2], int(sys.argv[3])
state = {'model.layers.%d.weight' % i: torch.empty(elements // 32 // 4096, 4096, dtype=torch.bfloat16) for i in range(32)}
if who == 'ours':
    import shardscope.torch
    reader = lambda: shardscope.torch.StorageReader(url)
elif who == 's3torchconnector':
    from s3torchconnector.dcp import S3StorageReader
    from s3torchconnector import S3ClientConfig
    import os
    reader = lambda: S3StorageReader(region='us-east-1', path=url, s3client_config=S3ClientConfig(force_path_style=True))
else:
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader
    reader = lambda: FsspecReader(url)
start = time.monotonic()
dcp.load(state, storage_reader=reader(), no_dist=True)
print(time.monotonic() - start, sum(float(v.float().sum()) for v in list(state.values())[:2]))
"""
LIST = """
import json, os, sys, boto3
client = boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL'])
print(json.dumps([(o['Key'], o['Size']) for o in client.list_objects_v2(Bucket='bench', Prefix=sys.argv[1])['Contents']]))
"""
UPLOAD = """
import os, sys, time, boto3
client = boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL'])
start = time.monotonic()
for name in os.listdir(sys.argv[1]):
    client.upload_file(os.path.join(sys.argv[1], name), 'bench', 'uploaded/' + name)
print(time.monotonic() - start)
"""
DOWNLOAD = """
import os, sys, time, boto3
client, total = boto3.client('s3', endpoint_url=os.environ['AWS_ENDPOINT_URL']), 0
start = time.monotonic()
for o in client.list_objects_v2(Bucket='bench', Prefix=sys.argv[1])['Contents']:
    client.download_file('bench', o['Key'], '/dev/null')
print(time.monotonic() - start)
"""


def run(work, size):
    store = Store(work)
    program = os.path.join(TOP, "build/release/bin/shardscope")
    environment = store.environment()
    python = os.path.join(PEERS, "python")

    def ours(*words, url=None):
        return child([program, *words], env=store.environment(url) if url else environment)

    try:
        local = os.path.join(work, "places-source")
        os.makedirs(local, exist_ok=True)
        subprocess.run([sys.executable, "-c", MAKE, local, str(size), INDEX], check=True)
        write = ours("convert", local, "s3://bench/dcp", "--to", "dcp", "--mesh", "dp=4", "--shard", "*:dp=0", "--verify", "checksums")
        upload = float(child([python, "-c", UPLOAD, local], env=environment)[2])
        row("%g GiB of safetensors into s3:// as DCP of 4 ranks, checked by the store" % size, "%.2f s, %d MiB" % (write[0], write[1] >> 20),
            "boto3 upload_file %.2f s" % upload, "%.1fx" % (upload / write[0]), "memory <= 576 MiB")
        objects = json.loads(child([python, "-c", LIST, "dcp/"], env=environment)[2])
        total = sum(s for _, s in objects)
        config = os.path.join(work, "curl.txt")

        def curls(url, files, signed=""):
            step = 8 << 20
            with open(config, "w", encoding="utf-8") as f:
                f.write("next\n".join('url = "%s/%s"\nrange = %d-%d\noutput = /dev/null\n%sfail\nsilent\nshow-error\n' % (url, name, at, min(at + step, end) - 1, signed)
                                      for name, end in files for at in range(0, end, step)))
            start = time.monotonic()
            subprocess.run(["curl", "--parallel", "--parallel-immediate", "--parallel-max", "32", "-K", config], check=True)
            return time.monotonic() - start

        def against_curls(url=store.url):
            signed = 'aws-sigv4 = "aws:amz:us-east-1:s3"\nuser = "%s:%s"\n' % (KEY, SECRET)
            times = [(ours("digest", "s3://bench/dcp", url=url)[0], curls(url + "/bench", objects, signed)) for _ in range(3)]
            return [sorted(each)[1] for each in zip(*times)]
        door = SlowDoor(store.port, 0.04)
        slow = "http://127.0.0.1:%d" % door.port
        digest, curl = against_curls(slow)
        row("digest s3:// of %.2f GiB, 40 ms for each answer" % (total / 2**30), "%.2f s" % digest, "32 parallel ranged curls %.2f s" % curl,
            "%.2f" % (curl / digest), ">= 0.8")
        digest, curl = against_curls()
        row("digest s3:// of %.2f GiB" % (total / 2**30), "%.2f s" % digest, "32 parallel ranged curls %.2f s" % curl, "%.2f" % (curl / digest), ">= 0.9")
        for name in os.listdir(local):
            os.chmod(os.path.join(local, name), 0o644)  # nginx's workers are another user
        nginx = Nginx(local)
        try:
            files = [(name, os.path.getsize(os.path.join(local, name))) for name in sorted(os.listdir(local))]
            address = nginx.url + "/" + INDEX
            times = [(ours("digest", address)[0], curls(nginx.url, files)) for _ in range(3)]
        finally:
            nginx.end()
        of_nginx, curl_of_nginx = [sorted(each)[1] for each in zip(*times)]
        row("digest http:// of nginx, the same tensors in safetensors", "%.2f s" % of_nginx, "32 parallel ranged curls %.2f s" % curl_of_nginx,
            "%.2f" % (curl_of_nginx / of_nginx), ">= 0.85")
        boto = best(3, lambda: (float(child([python, "-c", DOWNLOAD, "dcp/"], env=environment)[2]),))[0]
        row("the same bytes", "%.2f s" % digest, "boto3 download_file %.2f s" % boto, "%.1fx" % (boto / digest), ">= 1.3x")
        s5cmd = shutil.which("s5cmd", path=PEERS + os.pathsep + os.environ["PATH"])
        if s5cmd:
            copy = os.path.join(work, "places-copy")
            fast = best(3, lambda: child([s5cmd, "--endpoint-url", store.url, "cp", "s3://bench/dcp/*", copy + "/"], env=environment))[0]
            shutil.rmtree(copy)
            row("the same bytes", "%.2f s" % digest, "s5cmd cp, into files, %.2f s" % fast, "%.1fx" % (fast / digest), ">= 1.1x")
        elements = int(size * 2**30 / 2)
        loads = {}
        for who in ("ours", "s3torchconnector", "fsspec"):
            loads[who] = best(3, lambda: tuple(map(float, child([python, "-c", LOAD, who, "s3://bench/dcp/", str(elements)], env=environment)[2].split())))
        assert len({l[1] for l in loads.values()}) == 1
        for who, target in (("s3torchconnector", ">= 3x"), ("fsspec", ">= 8x")):
            row("dcp.load from s3:// through StorageReader", "%.2f s" % loads["ours"][0], "%s %.2f s" % (who, loads[who][0]),
                "%.1fx" % (loads[who][0] / loads["ours"][0]), target)
        copied = ours("convert", "s3://bench/dcp", "s3://bench/hf", "--to", "safetensors", "--max-file-size", "%dM" % (size * 512), "--verify", "checksums")
        row("s3:// to s3://, DCP to safetensors, checked by the store", "%.2f s, %d MiB" % (copied[0], copied[1] >> 20),
            "the slower of reading %.2f s and writing %.2f s" % (digest, write[0]), "%.2f" % (copied[0] / max(digest, write[0])), "<= 1.15")
        # The same read back, which holds both directions' buffers at once; a disk must not be needed.
        room = os.path.join(work, "places-room")
        os.makedirs(room, exist_ok=True)
        most, over = 0, threading.Event()

        def watch():
            nonlocal most
            while not over.wait(0.05):
                most = max(most, sum(f.stat().st_blocks * 512 for f in pathlib.Path(room).rglob("*") if f.is_file()))
        watching = threading.Thread(target=watch)
        watching.start()
        back = child([program, "convert", "s3://bench/dcp", "s3://bench/hf2", "--to", "safetensors", "--max-file-size", "%dM" % (size * 512)],
                     env=dict(environment, TMPDIR=room))
        over.set()
        watching.join()
        row("memory of s3:// to s3://, %.2f GiB, read back" % (total / 2**30), "%d MiB, without %d MiB" % (back[1] >> 20, copied[1] >> 20), "", "",
            "<= 576 MiB")
        row("unsent bytes on this machine meanwhile", "%d MiB" % (most >> 20), "", "%.2f of the bytes" % (most / total), "no copy")
        small = os.path.join(work, "places-shards")
        os.makedirs(small, exist_ok=True)
        subprocess.run([sys.executable, "-c", "import sys, torch\nfrom safetensors.torch import save_file\nfor i in range(100):"
                        " save_file({'w%d' % i: torch.ones(64)}, sys.argv[1] + '/model-%05d-of-00100.safetensors' % (i + 1))", small], check=True)
        for name in os.listdir(small):
            subprocess.run(store.curl("-T", os.path.join(small, name), store.url + "/bench/shards/" + name), check=True, stdout=subprocess.DEVNULL)
        step = os.path.join(TOP, "resources/sample/dcp-fsdp2-tp")
        for number in range(1, 101):
            for name in os.listdir(step):
                subprocess.run(store.curl("-T", os.path.join(step, name), "%s/bench/run/step-%d/%s" % (store.url, number, name)), check=True, stdout=subprocess.DEVNULL)
        for verb, what, path, target in (("info", "100 safetensors shards", "s3://bench/shards", "1 s, 101"), ("info", "a DCP", "s3://bench/dcp", "3 requests"),
                                         ("latest", "100 steps", "s3://bench/run", "<= 12 requests")):
            door.requests = 0
            seconds = ours(verb, path, url=slow)[0]
            row("%s of %s, 40 ms for each answer" % (verb, what), "%.2f s, %d request%s" % (seconds, door.requests, "s"[:door.requests != 1]), "", "", target)
    finally:
        store.end()
