"""form.py: packaging/engines/kubernetes.yaml has the form of a Job, by the models of the official Python client: nothing in it is unknown to them, nothing
that they require is missing, and `--part auto` gets as many parts as there are completions."""
import json
import os

import yaml
from kubernetes import client

TOP = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))


with open(os.path.join(TOP, "packaging/engines/kubernetes.yaml")) as file:
    document = yaml.safe_load(file)
api = client.ApiClient()
job = api.deserialize(json.dumps(document), "V1Job", "application/json")
assert api.sanitize_for_serialization(job) == document, "the client does not know all of it"
assert (job.api_version, job.kind) == ("batch/v1", "Job")
spec = job.spec
assert spec.completion_mode == "Indexed" and spec.parallelism <= spec.completions
pod = spec.template.spec
assert pod.restart_policy == "OnFailure"
(container,) = pod.containers
variables = {variable.name: variable.value for variable in container.env}
assert variables["SHARDSCOPE_PARTS"] == str(spec.completions)
volumes = {volume.name for volume in pod.volumes}
assert {mount.name for mount in container.volume_mounts} <= volumes
assert container.command[0] == "shardscope" and container.command[-4:] == ["--part", "auto", "--finish", "auto"]
print("kubernetes.yaml has the form of an indexed job")
