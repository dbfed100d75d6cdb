"""Checkpoints in a real S3 server, written and read by its real clients and by us: boto3, torch's dcp through s3torchconnector and through
fsspec, and huggingface_hub of a hub. places_peer.py moto|rclone: some of it on another server."""
import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
from concurrent.futures import ThreadPoolExecutor

from peerlib import DATA, PROGRAM, dcp_load_all, shardscope
from stores import KEY, SECRET, hub, other, seaweed

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(PROGRAM)), "python"))
sys.path.append(os.path.join(os.path.dirname(os.path.abspath(__file__)), "../python"))
from pages import block_with
import shardscope.torch as shardscope_torch
import torch
import torch.distributed.checkpoint as dcp

BUCKET = "shards"
HERE = tempfile.mkdtemp()


def here(name):
    return os.path.join(HERE, name)


def there(key):
    return "s3://%s/%s" % (BUCKET, key)


def digests(path):
    return shardscope("digest", path, "--algorithm", "sha256")["tensors"]


def asked(verb, path, field, *words):
    """What a verb says, whatever its exit code."""
    run = subprocess.run([PROGRAM, verb, path, *words, "--json"], capture_output=True, text=True)
    return json.loads(run.stdout)[field]


def genuine(name):
    return os.path.join(DATA, "genuine", name, "ckpt")


def upload(client, directory, prefix):
    for place, _, files in os.walk(directory):
        for name in files:
            path = os.path.join(place, name)
            client.upload_file(path, BUCKET, prefix + "/" + os.path.relpath(path, directory))


def keys(client, prefix):
    pages = client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET, Prefix=prefix)
    return sorted(o["Key"] for page in pages for o in page.get("Contents", []))


def state():
    """Of some 50 MB, so that files go up and down in several parts."""
    generator = torch.Generator().manual_seed(7)
    return {"model": {"w": torch.randn(3000, 4000, generator=generator), "b": torch.randn(5, generator=generator).bfloat16(),
                      "empty": torch.zeros(0, 4)}, "optim": {"step": torch.tensor(12)}}


def s3torch(kind, path, **more):
    from s3torchconnector import S3ClientConfig
    from s3torchconnector.dcp import S3StorageReader, S3StorageWriter
    make = {"read": S3StorageReader, "write": S3StorageWriter}[kind]
    return make("us-east-1", path, s3client_config=S3ClientConfig(force_path_style=True), **more)


def fsspec(kind, path):
    from torch.distributed.checkpoint._fsspec_filesystem import FsspecReader, FsspecWriter
    access = {"key": os.environ["AWS_ACCESS_KEY_ID"], "secret": SECRET, "endpoint_url": os.environ["AWS_ENDPOINT_URL"]}
    return FsspecReader(path, **access) if kind == "read" else FsspecWriter(path, sync_files=False, **access)


def what_boto3_wrote(client):
    for name in ("dcp/t2.15.0-fsdp2-tp", "dcp/t2.15.0-objects", "safetensors/hf-sharded", "megatron/m0.16.1-gpt-tp2-llama"):
        key = "genuine/%s a+b=1" % name  # what has to be encoded
        upload(client, genuine(name), key)
        assert digests(there(key)) == digests(genuine(name)), name
        for verb, field in (("validate", "findings"), ("ls", "tensors"), ("ready", "lines")):
            level = [] if verb == "ls" else ["--level", "values"]
            assert asked(verb, there(key), field, *level) == asked(verb, genuine(name), field, *level), (name, verb)


def what_torch_wrote(client):
    from s3torchconnector.dcp import HexPrefixStrategy
    want = digests(here("saved"))
    writers = {
        "s3torchconnector": s3torch("write", there("saved/s3torchconnector/")),
        "prefixes": s3torch("write", there("saved/prefixes/"), prefix_strategy=HexPrefixStrategy()),
        "fsspec": fsspec("write", there("saved/fsspec")),
    }
    for name, writer in writers.items():
        dcp.save(state(), storage_writer=writer)
        assert digests(there("saved/" + name)) == want, name
        print(name, "saved", keys(client, "saved/%s/" % name))


def what_we_write(client):
    shardscope("convert", here("saved"), there("ours/dcp"), "--to", "dcp", "--mesh", "dp=2", "--shard", "*.w:dp=0")
    shardscope("convert", here("saved"), here("ours"), "--to", "dcp", "--mesh", "dp=2", "--shard", "*.w:dp=0")
    names = sorted(os.listdir(here("ours")))
    assert keys(client, "ours/") == ["ours/dcp/" + n for n in names], keys(client, "ours/")
    for name in names:
        with open(os.path.join(here("ours"), name), "rb") as f:
            assert client.get_object(Bucket=BUCKET, Key="ours/dcp/" + name)["Body"].read() == f.read(), name
    want = {"model." + n: t for n, t in state()["model"].items()}
    for reader in (s3torch("read", there("ours/dcp/")), fsspec("read", there("ours/dcp")), shardscope_torch.StorageReader(there("ours/dcp"))):
        got = dcp_load_all("", reader)
        for name, tensor in want.items():
            assert torch.equal(got[name], tensor), (type(reader), name)
    # No upload is left unfinished, and none of the claims.
    assert not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads")
    again = shardscope("convert", here("saved"), there("ours/dcp"), "--to", "dcp", expect=4)
    assert again["code"] == "exists", again


def from_bucket_to_bucket(client):
    shardscope("convert", there("ours/dcp"), there("model"), "--to", "safetensors", "--max-file-size", "30MB")
    assert "model/model.safetensors.index.json" in keys(client, "model/"), keys(client, "model/")
    report = shardscope("diff", there("model"), here("saved"), "--values")
    assert not report["values"] and not report["only_b"] and not report["only_a"], report


def a_single_file(client):
    """It goes up in parts while it is written, has the bytes of one on a disk, and is not written over; it is killed once, too."""
    words = ["convert", there("ours/dcp"), there("one.safetensors"), "--to", "safetensors"]
    job = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while job.poll() is None and not client.list_multipart_uploads(Bucket=BUCKET).get("Uploads"):
        pass
    job.kill()
    job.wait()
    print("killed:", [k for k in keys(client, "") if "one.safetensors" in k])
    claimed = any(k.endswith("/claim") for k in keys(client, ".one"))
    if claimed or not keys(client, "one."):
        shardscope(*words, *(["--resume"] if claimed else []))
    shardscope("convert", here("saved"), here("one.safetensors"), "--to", "safetensors")
    with open(here("one.safetensors"), "rb") as f:
        assert client.get_object(Bucket=BUCKET, Key="one.safetensors")["Body"].read() == f.read()
    assert not keys(client, ".one"), keys(client, ".one")
    assert shardscope(*words, expect=4)["code"] == "exists"
    shardscope("index", there("ours/dcp"), "-o", there("i.ssidx"))
    assert shardscope("info", there("i.ssidx"))["totals"] == shardscope("info", there("ours/dcp"))["totals"]
    for left in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        print("left behind: the upload of", left["Key"])
        client.abort_multipart_upload(Bucket=BUCKET, Key=left["Key"], UploadId=left["UploadId"])


def killed_while_it_uploads(client):
    """Kills the job at several moments: no checkpoint is visible afterwards, and --resume completes the upload."""
    moments = {
        "claimed": lambda run: any(k.endswith("/claim") for k in keys(client, run)),
        "under way": lambda run: client.list_multipart_uploads(Bucket=BUCKET).get("Uploads"),
        "data is there": lambda run: any(k.endswith(".distcp") for k in keys(client, run + "step-2/")),
    }
    for moment, come in moments.items():
        run = "killed %s/" % moment
        upload(client, here("saved"), run + "step-1")
        words = ["convert", here("saved"), there(run + "step-2"), "--to", "dcp"]
        job = subprocess.Popen([PROGRAM, *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while job.poll() is None and not come(run):
            pass
        job.kill()
        job.wait()
        left = [k for k in keys(client, run) if "/step-1/" not in k]
        print("killed when %s:" % moment, left)
        sealed = run + "step-2/.metadata" in left
        assert shardscope("latest", there(run), "--good")["path"] == there(run + ("step-2" if sealed else "step-1"))
        if any(k.endswith("/claim") for k in left):
            shardscope(*words, "--resume")
        assert digests(there(run + "step-2")) == digests(here("saved"))
        assert shardscope("latest", there(run), "--good")["path"] == there(run + "step-2")
        assert not [k for k in keys(client, run) if "partial" in k], keys(client, run)
        for upload_left in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
            print("left behind: the upload of", upload_left["Key"])
            client.abort_multipart_upload(Bucket=BUCKET, Key=upload_left["Key"], UploadId=upload_left["UploadId"])


def several_at_once(client):
    """Four jobs want one destination: one gets it, the others say so, and what is there is whole."""
    jobs = []
    for number in range(4):
        temporary = here("tmp%d" % number)  # each is on a host of its own
        os.mkdir(temporary)
        jobs.append(subprocess.Popen([PROGRAM, "convert", here("saved"), there("raced/step-1"), "--to", "dcp", "--json"],
                                     stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=dict(os.environ, TMPDIR=temporary)))
    answers = [job.communicate()[0] for job in jobs]
    assert all(answers), (answers, [job.returncode for job in jobs])
    said = [json.loads(answer) for answer in answers]
    assert sorted(job.returncode for job in jobs) == [0, 4, 4, 4], said
    assert sum(s["schema"] == "shardscope.error/1" for s in said) == 3, said
    assert digests(there("raced/step-1")) == digests(here("saved"))
    assert not [k for k in keys(client, "raced/") if "partial" in k]


def in_parts(client):
    """Four processes without a common directory do a part each, are killed once, and run again, two of them on other hosts; a fifth one
    finishes. The bytes are those of one process on a disk."""
    words = ["convert", here("saved"), there("parts/dcp"), "--to", "dcp", "--mesh", "dp=2", "--shard", "*.w:dp=0"]

    def part(number, host):
        temporary = here("host%d" % host)
        os.makedirs(temporary, exist_ok=True)
        return subprocess.Popen([PROGRAM, *words, "--part", "%d/4" % number, "--json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE,
                                text=True, env=dict(os.environ, TMPDIR=temporary))

    def answer(job):
        said, error = job.communicate()
        assert job.returncode == 0, (job.returncode, said, error)
        return json.loads(said)

    jobs = [part(number, number) for number in range(4)]
    for number, job in enumerate(jobs):
        # Each at another moment: once something of it, or of one before it, is in the bucket.
        while job.poll() is None and len(keys(client, "parts/")) <= number:
            pass
        job.kill()
        job.communicate()
    print("killed:", keys(client, "parts/"))
    assert not any(k.startswith("parts/dcp/") for k in keys(client, "parts/"))
    jobs = [part(number, number if number % 2 else number + 4) for number in range(4)]
    for number, job in enumerate(jobs):
        assert answer(job)["part"] == number
    assert answer(part(2, 2))["was_done"]
    report = shardscope(*words, "--finish")
    assert report["verified"], report
    names = sorted(os.listdir(here("ours")))
    assert keys(client, "parts/") == ["parts/dcp/" + n for n in names], keys(client, "parts/")
    for name in names:
        with open(os.path.join(here("ours"), name), "rb") as f:
            assert client.get_object(Bucket=BUCKET, Key="parts/dcp/" + name)["Body"].read() == f.read(), name
    # A process that was killed while it began an upload leaves one that nobody uses.
    for left in client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", []):
        print("left behind: the upload of", left["Key"])
        client.abort_multipart_upload(Bucket=BUCKET, Key=left["Key"], UploadId=left["UploadId"])


def more_than_a_page(client):
    """A directory of more files than a listing has in one answer."""
    with ThreadPoolExecutor(16) as pool:
        list(pool.map(lambda i: client.put_object(Bucket=BUCKET, Key="many/note-%04d.txt" % i, Body=b"n"), range(1050)))
    upload(client, here("saved"), "many")
    assert digests(there("many")) == digests(here("saved"))
    assert len(keys(client, "many/")) == 1052


def over_tls(client):
    """With the certificate that is named, and only for the host that it is for."""
    plain = os.environ["AWS_ENDPOINT_URL"]
    try:
        os.environ.update(AWS_ENDPOINT_URL=client.secure, SSL_CERT_FILE=client.certificate)
        assert digests(there("model")) == digests(here("saved"))
        shardscope("convert", here("saved"), there("secure"), "--to", "dcp")
        assert digests(there("secure")) == digests(here("saved"))
        os.environ["AWS_ENDPOINT_URL"] = client.secure.replace("localhost", "127.0.0.1")
        assert "certificate" in shardscope("info", there("model"), expect=4)["message"].lower()
        os.environ["AWS_ENDPOINT_URL"] = client.secure
        del os.environ["SSL_CERT_FILE"]
        assert "certificate" in shardscope("info", there("model"), expect=4)["message"].lower()
    finally:
        os.environ.pop("SSL_CERT_FILE", None)
        os.environ["AWS_ENDPOINT_URL"] = plain


def refused(_):
    for name, value, code in (("AWS_SECRET_ACCESS_KEY", "hidden-secret", 4), ("AWS_ACCESS_KEY_ID", "AKNOBODY", 4)):
        kept = os.environ[name]
        os.environ[name] = value
        run = subprocess.run([PROGRAM, "info", there("model")], capture_output=True, text=True)
        os.environ[name] = kept
        assert run.returncode == code and "the credentials are those of the environment" in run.stderr, run.stderr
        assert "hidden-secret" not in run.stdout + run.stderr
        print(run.stderr.strip())
    missing = shardscope("info", "s3://no-such-bucket/x", expect=3)
    assert missing["code"] == "not-found", missing


def the_page(client):
    """The page's own commands, on a bucket, a hub and a web server that have what they name."""
    from nginx_peer import NGINX, nginx

    dcp.save(state(), checkpoint_id=here("page/step-1000"))
    upload(client, here("page/step-1000"), "page/run/step-1000")
    directory, files = genuine("safetensors/hf-sharded"), {}
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as f:
            files[name] = f.read()
    kept = dict(os.environ)
    with hub("org/model", files, "hf_hidden"), nginx() if os.path.exists(NGINX) else contextlib.nullcontext((None, 0, 0)) as (place, web, _):
        # Google's address is the same server, which takes HMAC keys, too.
        os.environ.update(STORAGE_EMULATOR_HOST=kept["AWS_ENDPOINT_URL"], GS_ACCESS_KEY_ID=KEY, GS_SECRET_ACCESS_KEY=SECRET, HF_HOME=here("page/hf"))
        try:
            for line in block_with("docs/places.md", "s3://bucket/run").splitlines():
                program, *words = line.split()
                assert program == "shardscope", line
                if "https://" in line and not web:
                    print("not run, nginx is not here:", line)
                    continue
                words = [w.replace("//bucket/", "//%s/page/" % BUCKET).replace("https://host/model", "https://localhost:%d" % web) for w in words]
                words = [w.removeprefix("/data").lstrip("/") if w.startswith("/data/") else w for w in words]
                run = subprocess.run([PROGRAM, *words], cwd=here("page"), capture_output=True, text=True)
                assert run.returncode == 0, (line, run.stdout, run.stderr)
        finally:
            os.environ.clear()
            os.environ.update(kept)


def of_a_hub():
    """The same repository through huggingface_hub and by ourselves."""
    directory, files = genuine("safetensors/hf-sharded"), {}
    for name in os.listdir(directory):
        with open(os.path.join(directory, name), "rb") as f:
            files[name] = f.read()
    files["sub dir/note.txt"] = b"a note"
    os.environ["HF_HOME"] = here("hf")
    with hub("org/m", files, "hf_hidden") as seen:
        from huggingface_hub import snapshot_download  # it reads the variables when it is imported
        copy = snapshot_download("org/m")
        assert digests("hf://org/m") == digests(copy) == digests(directory)
        assert any(path.startswith("/store/") for _, path, _ in seen)
        assert not any(token for _, path, token in seen if path.startswith("/store/"))
        os.environ["HF_TOKEN"] = "hf_other"
        run = subprocess.run([PROGRAM, "info", "hf://org/m"], capture_output=True, text=True)
        assert run.returncode == 4 and "gated" in run.stderr and "hf_other" not in run.stderr, run.stderr


STEPS = [the_page, what_boto3_wrote, what_torch_wrote, what_we_write, from_bucket_to_bucket, a_single_file, killed_while_it_uploads,
         several_at_once, in_parts, more_than_a_page, over_tls, refused]


def without_conditions(client):
    """A store without conditional writes, which calls some of its answers otherwise."""
    words = ["convert", here("saved"), there("ours/dcp"), "--to", "dcp"]
    assert "--unguarded" in shardscope(*words, expect=3)["hint"]
    assert not keys(client, "ours/"), keys(client, "ours/")
    assert shardscope(*words, "--unguarded")["unguarded"]
    assert digests(there("ours/dcp")) == digests(here("saved"))
    shardscope("convert", there("ours/dcp"), there("one.safetensors"), "--to", "safetensors", "--unguarded")
    report = shardscope("diff", there("one.safetensors"), here("saved"), "--values")
    assert not report["values"] and not report["only_b"] and not report["only_a"], report
    assert shardscope("cleanup", there("ours"))["leftovers"] == []
    assert shardscope("info", "s3://no-such-bucket/x", expect=3)["code"] == "not-found"


OTHERS = {"moto": [what_boto3_wrote, what_torch_wrote, what_we_write, from_bucket_to_bucket, several_at_once, in_parts],
          "rclone": [what_boto3_wrote, without_conditions]}


def attempted(step, *arguments):
    begun = time.monotonic()
    try:
        step(*arguments)
        print("ok %s in %.1f s" % (step.__name__, time.monotonic() - begun), flush=True)
        return True
    except Exception:
        print("FAILED", step.__name__)
        traceback.print_exc(file=sys.stdout)
        return False


def main(kind):
    try:
        dcp.save(state(), checkpoint_id=here("saved"))
        if kind:
            good, server, steps = True, other(kind, BUCKET), OTHERS[kind]
        else:
            good, server, steps = attempted(of_a_hub), seaweed(BUCKET), STEPS
        with server as client:
            for step in steps:
                good = attempted(step, client) and good
    finally:
        shutil.rmtree(HERE)
    return 0 if good else 1


if __name__ == "__main__":
    raise SystemExit(main(*sys.argv[1:] or [None]))
