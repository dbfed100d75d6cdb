"""Checkpoints behind nginx: https with ranges, a hub whose large files another host has, and a server that answers 503 to most requests."""
import contextlib
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import time

from peerlib import DATA, shardscope
from stores import certificate_in, free_ports

NGINX = os.path.join(os.path.dirname(sys.prefix), "nginx", "usr", "sbin", "nginx")  # beside this environment
CHECKPOINT = os.path.join(DATA, "genuine", "safetensors", "hf-sharded", "ckpt")
COMMIT, TOKEN = "c0ffee" + "0" * 34, "hf_hidden"

# The paths of temporary files are those of a place of its own; each connection ends after some requests.
SERVER = """
daemon off; master_process off; pid %(place)s/pid; error_log %(place)s/errors;
events { worker_connections 256; }
http {
  client_body_temp_path %(place)s/t1; proxy_temp_path %(place)s/t2; fastcgi_temp_path %(place)s/t3; uwsgi_temp_path %(place)s/t4; scgi_temp_path %(place)s/t5;
  access_log %(place)s/log; keepalive_requests 7; default_type application/octet-stream;
  limit_req_zone $server_name zone=few:1m rate=20r/s; limit_req_status 503;
  ssl_certificate %(place)s/cert.pem; ssl_certificate_key %(place)s/key.pem;
  server {
    listen 127.0.0.1:%(web)d ssl; server_name localhost; root %(files)s;
    location /throttled/ { alias %(files)s/; limit_req zone=few; }
  }
  server {
    listen 127.0.0.1:%(hub)d ssl; server_name localhost;
    if ($http_authorization != "Bearer %(token)s") { return 401; }
    location /api/models/org/m/tree/ { default_type application/json; return 200 '%(tree)s'; }
    location /api/models/org/m { default_type application/json; return 200 '%(model)s'; }
    %(resolve)s
  }
  server {
    listen 127.0.0.1:%(cdn)d ssl; server_name localhost; root %(files)s;
    if ($http_authorization) { return 400; }
  }
}
"""


def hub_files(files, cdn):
    """What the hub says of each file, and where it sends those who ask for a large one."""
    tree, places = [], []
    for name in sorted(os.listdir(files)):
        size = os.path.getsize(os.path.join(files, name))
        about = 'add_header X-Repo-Commit "%s" always;' % COMMIT
        entry = {"type": "file", "path": name, "size": size, "oid": "%040x" % size}
        if name.endswith(".safetensors"):
            entry["lfs"] = {"oid": "%064x" % size, "size": size, "pointerSize": 130}
            about += ' add_header X-Linked-Size "%d" always; add_header X-Linked-Etag \'"%064x"\' always;' % (size, size)
            about += " return 302 https://localhost:%d/%s?signature=1;" % (cdn, name)
        else:
            about += " alias %s;" % os.path.join(files, name)
        tree.append(entry)
        places += ["location = /org/m/resolve/%s/%s { %s }" % (revision, name, about) for revision in ("main", COMMIT)]
    model = {"id": "org/m", "sha": COMMIT, "private": False, "siblings": [{"rfilename": entry["path"]} for entry in tree]}
    return {"tree": json.dumps(tree), "model": json.dumps(model), "resolve": "\n    ".join(places)}


@contextlib.contextmanager
def nginx():
    with tempfile.TemporaryDirectory() as place:
        files = os.path.join(place, "files")
        shutil.copytree(CHECKPOINT, files)
        os.environ["SSL_CERT_FILE"] = certificate_in(place)
        web, hub, cdn = free_ports(3)
        with open(os.path.join(place, "conf"), "w", encoding="utf-8") as f:
            f.write(SERVER % dict(hub_files(files, cdn), place=place, files=files, web=web, hub=hub, cdn=cdn, token=TOKEN))
        server = subprocess.Popen([NGINX, "-p", place, "-c", os.path.join(place, "conf"), "-e", os.path.join(place, "errors")])
        try:
            for port in (web, hub, cdn):
                while True:
                    try:
                        socket.create_connection(("127.0.0.1", port)).close()
                        break
                    except OSError:
                        assert server.poll() is None, "nginx ended"
                        time.sleep(0.05)
            yield place, web, hub
        finally:
            server.kill()
            server.wait()


def log(place):
    with open(os.path.join(place, "log"), encoding="utf-8") as f:
        return f.read()


def digests(path):
    return shardscope("digest", path, "--algorithm", "sha256")["tensors"]


def main():
    if not os.path.exists(NGINX):
        print("skipped: nginx is not here; packaging/peers gets it")
        return 77
    want = digests(CHECKPOINT)
    index = next(name for name in os.listdir(CHECKPOINT) if name.endswith(".index.json"))
    with nginx() as (place, web, hub):
        assert digests("https://localhost:%d/%s" % (web, index)) == want
        assert " 206 " in log(place)
        assert digests("https://localhost:%d/throttled/%s" % (web, index)) == want
        assert " 503 " in log(place)
        os.environ.update(HF_ENDPOINT="https://localhost:%d" % hub, HF_TOKEN=TOKEN, HF_HOME=os.path.join(place, "cache"))
        assert digests("hf://org/m") == want
        asked = log(place)
        assert "signature=1" in asked and " 400 " not in asked, asked
        os.environ["HF_TOKEN"] = "hf_other"
        refused = shardscope("info", "hf://org/m", expect=3)  # as the hub answers of a repository that is not this user's
        assert "hf_other" not in json.dumps(refused), refused
        with open(os.path.join(place, "files", index), "a", encoding="utf-8") as f:
            f.write(" ")
        assert digests("https://localhost:%d/%s" % (web, index)) == want
    print("ok")
    return 0


if __name__ == "__main__":
    sys.exit(main())
