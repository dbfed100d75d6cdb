"""Real S3 servers on the loopback, and a hub that answers as huggingface.co does; each for as long as a `with` lasts."""
import contextlib
import http.server
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from urllib.parse import parse_qs, unquote, urlsplit

KEY, SECRET = "AKTEST", "SKTESTSECRET"


def free_ports(count, apart=10000):
    """Ports that are free, with those that the server takes for its own protocol, which are `apart` above them."""
    taken, ports = [], []
    for port in range(20000 + os.getpid() % 20000, 55000):
        sockets = [socket.socket(), socket.socket()]
        try:
            for s, number in zip(sockets, (port, port + apart)):
                s.bind(("127.0.0.1", number))
        except OSError:
            for s in sockets:
                s.close()
            continue
        taken += sockets
        ports.append(port)
        if len(ports) == count:
            break
    for s in taken:
        s.close()
    return ports


def certificate_in(place):
    """Makes a certificate of localhost and its key, cert.pem and key.pem; gives the path of the certificate."""
    files = ["-keyout", os.path.join(place, "key.pem"), "-out", os.path.join(place, "cert.pem")]
    subprocess.run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2", "-subj",
                    "/CN=localhost", "-addext", "subjectAltName=DNS:localhost", *files], check=True, capture_output=True)
    return files[-1]


@contextlib.contextmanager
def serving(words, endpoint, bucket, place):
    """Starts a server, sets the variables by which all clients find it, and gives a client of boto3 once the bucket is there."""
    import boto3
    from botocore.config import Config

    kept = dict(os.environ)
    with open(os.path.join(place, "log"), "wb") as log:
        server = subprocess.Popen(words, stdout=log, stderr=log, env=dict(os.environ, GOMEMLIMIT="250MiB"))
        os.environ.update(AWS_ENDPOINT_URL=endpoint, AWS_ACCESS_KEY_ID=KEY, AWS_SECRET_ACCESS_KEY=SECRET, AWS_DEFAULT_REGION="us-east-1",
                          AWS_EC2_METADATA_DISABLED="true", AWS_CONFIG_FILE="/dev/null", AWS_SHARED_CREDENTIALS_FILE="/dev/null", TMPDIR=place)
        for name in ("AWS_PROFILE", "AWS_SESSION_TOKEN", "HTTP_PROXY", "http_proxy"):
            os.environ.pop(name, None)
        try:
            client = boto3.client("s3", config=Config(retries={"max_attempts": 1}, s3={"addressing_style": "path"}))
            while True:
                try:
                    client.create_bucket(Bucket=bucket)
                    client.put_object(Bucket=bucket, Key="first", Body=b"1")
                    client.delete_object(Bucket=bucket, Key="first")
                    break
                except Exception:
                    if server.poll() is not None:
                        with open(log.name, encoding="utf-8", errors="replace") as f:
                            raise RuntimeError("the server ended: " + f.read()[-2000:])
                    time.sleep(0.2)
            yield client
        finally:
            server.kill()  # it takes long to end by itself
            server.wait()
            os.environ.clear()
            os.environ.update(kept)


@contextlib.contextmanager
def seaweed(bucket):
    """SeaweedFS. The client also knows the server's address with TLS and the certificate of that."""
    with tempfile.TemporaryDirectory() as place:
        with open(os.path.join(place, "s3.json"), "w", encoding="utf-8") as f:
            json.dump({"identities": [{"name": "t", "credentials": [{"accessKey": KEY, "secretKey": SECRET}],
                                       "actions": ["Admin", "Read", "Write", "List", "Tagging"]}]}, f)
        os.mkdir(os.path.join(place, "data"))
        certificate = certificate_in(place)
        port, secure, master, volume, filer = free_ports(5)
        words = [os.path.join(os.path.dirname(sys.executable), "weed"), "-logtostderr=true", "server", "-ip=127.0.0.1", "-ip.bind=127.0.0.1",
                 "-dir=" + os.path.join(place, "data"), "-s3", "-s3.port=%d" % port, "-s3.port.https=%d" % secure,
                 "-s3.cert.file=" + os.path.join(place, "cert.pem"), "-s3.key.file=" + os.path.join(place, "key.pem"), "-s3.port.iceberg=0", "-s3.port.lance=0",
                 "-s3.config=" + os.path.join(place, "s3.json"), "-master.port=%d" % master, "-volume.port=%d" % volume, "-filer.port=%d" % filer,
                 "-master.volumeSizeLimitMB=64", "-volume.max=50", "-master.telemetry=false"]
        with serving(words, "http://127.0.0.1:%d" % port, bucket, place) as client:
            client.secure, client.certificate = "https://localhost:%d" % secure, certificate
            yield client


@contextlib.contextmanager
def other(kind, bucket):
    """moto, which answers as Amazon's store does; or rclone, which serves a directory and has no conditional writes. Of the environment
    "stores"."""
    programs = os.path.join(os.path.dirname(os.path.dirname(os.path.dirname(sys.executable))), "stores/bin")
    with tempfile.TemporaryDirectory() as place:
        port, = free_ports(1)
        words = {"moto": ["moto_server", "-H", "127.0.0.1", "-p", str(port)],
                 "rclone": ["rclone", "serve", "s3", "--addr", "127.0.0.1:%d" % port, "--auth-key", KEY + "," + SECRET, "--config", "/dev/null", place]}[kind]
        with serving([os.path.join(programs, words[0]), *words[1:]], "http://127.0.0.1:%d" % port, bucket, place) as client:
            yield client


@contextlib.contextmanager
def hub(repository, files, token, page=2):
    """A hub with one gated repository of these files, whose larger ones are in another store, which the token must not reach."""
    commit = "c0ffee" + "0" * 34
    seen = []

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_):
            pass

        def answer(self, status, headers=(), body=b""):
            self.send_response(status)
            for name, value in headers:
                self.send_header(name, value)
            if not any(name == "Content-Length" for name, _ in headers):
                self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        def json(self, document, headers=()):
            self.answer(200, [("Content-Type", "application/json"), *headers], json.dumps(document).encode())

        def file(self, name, headers=()):
            body, wanted = files[name], self.headers.get("Range")
            if not wanted:
                return self.answer(200, [*headers, ("Content-Length", str(len(body)))], body)
            first, last = wanted[len("bytes="):].split("-")
            first, last = int(first), min(int(last or len(body) - 1), len(body) - 1)
            part = body[first:last + 1]
            return self.answer(206, [*headers, ("Content-Range", "bytes %d-%d/%d" % (first, last, len(body)))], part)

        def do_HEAD(self):
            self.do_GET()

        def do_GET(self):
            url = urlsplit(self.path)
            path = unquote(url.path)
            seen.append((self.command, path, self.headers.get("Authorization")))
            if path.startswith("/store/"):
                if self.headers.get("Authorization"):
                    return self.answer(400, body=b"a token must not come here")
                return self.file(path[len("/store/"):], [("ETag", '"of the store"')])
            if self.headers.get("Authorization") != "Bearer " + token:
                return self.answer(401, [("X-Error-Code", "GatedRepo"), ("X-Error-Message", "gated")])
            api, resolve = "/api/models/%s" % repository, "/%s/resolve/" % repository
            if path in (api, api + "/revision/main", api + "/revision/" + commit):
                return self.json({"id": repository, "sha": commit, "private": False, "siblings": [{"rfilename": n} for n in sorted(files)]})
            for revision in ("main", commit):
                if path == api + "/tree/" + revision:
                    start = int(parse_qs(url.query).get("cursor", ["0"])[0])
                    names = sorted(files, reverse=True)  # the order is the hub's own
                    entries = [self.entry(n) for n in names[start:start + page]]
                    more = start + page < len(names)
                    link = "<%s%s?recursive=true&cursor=%d>; rel=\"next\"" % (self.base(), url.path, start + page)
                    return self.json(entries, [("Link", link)] if more else [])
                if path.startswith(resolve + revision + "/"):
                    return self.resolve(path[len(resolve + revision + "/"):])
            return self.answer(404, [("X-Error-Code", "EntryNotFound")])

        def base(self):
            return "http://127.0.0.1:%d" % self.server.server_port

        def entry(self, name):
            size = len(files[name])
            entry = {"type": "file", "path": name, "size": size, "oid": "%040x" % size}
            return dict(entry, lfs={"oid": "%064x" % size, "size": size, "pointerSize": 130}) if name.endswith(".safetensors") else entry

        def resolve(self, name):
            if name not in files:
                return self.answer(404, [("X-Error-Code", "EntryNotFound"), ("X-Repo-Commit", commit)])
            about = [("X-Repo-Commit", commit), ("ETag", '"%064x"' % len(files[name]))]
            if not name.endswith(".safetensors"):
                return self.file(name, about)
            return self.answer(302, [*about, ("X-Linked-Size", str(len(files[name]))), ("X-Linked-Etag", '"%064x"' % len(files[name])),
                                     ("Location", "http://localhost:%d/store/%s?signature=1" % (self.server.server_port, name))])

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        os.environ.update(HF_ENDPOINT="http://127.0.0.1:%d" % server.server_port, HF_TOKEN=token, HF_HUB_DISABLE_XET="1",
                          HF_HUB_DISABLE_TELEMETRY="1")
        yield seen
    finally:
        server.shutdown()
        thread.join()
