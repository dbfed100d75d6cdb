"""What other tools take: pytest's fixture, the GitHub action and the hook of pre-commit, run as these run them."""
import os
import pathlib
import re
import shlex
import subprocess
import textwrap

import pytest
from conftest import genuine

pytest_plugins = ["shardscope.pytest_plugin"]

ROOT = pathlib.Path(__file__).parents[2]
WHOLE, TRUNCATED = genuine("dcp/t2.15.0-no-dist"), genuine("dcp/t2.15.0-damaged-truncated-file")


@pytest.fixture
def on_path(program, tmp_path, monkeypatch):
    """The program under its name, and a user who has accepted nothing."""
    directory = tmp_path / "bin"
    directory.mkdir()
    (directory / "shardscope").symlink_to(program)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


def test_whole_checkpoint_opens(whole_checkpoint):
    with whole_checkpoint(WHOLE, level="values", fail_on="warning", expect=WHOLE) as checkpoint:
        assert len(checkpoint) > 0


def test_findings_fail_the_test(whole_checkpoint):
    with pytest.raises(pytest.fail.Exception) as failed:
        whole_checkpoint(TRUNCATED)
    assert "error file.truncated: " in failed.value.msg and TRUNCATED in failed.value.msg and ".distcp" in failed.value.msg
    rules = set(re.findall(r"^error ([a-z.]+):", failed.value.msg, re.MULTILINE))
    whole_checkpoint(TRUNCATED, accepted=rules)
    with pytest.raises(ValueError, match="fail_on"):
        whole_checkpoint(WHOLE, fail_on="eror")


def test_plugin_is_declared():
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '[project.entry-points.pytest11]\nshardscope = "shardscope.pytest_plugin"\n' in text


def run_action(**inputs):
    text = (ROOT / "action.yml").read_text(encoding="utf-8")
    script = textwrap.dedent(text[text.index("run: |\n") + len("run: |\n"):])
    names = dict(re.findall(r"(\w+): \$\{\{ inputs\.([\w-]+) \}\}", text))
    defaults = dict(re.findall(r"^  ([\w-]+):\n    description: .*\n    default: '?(\w*)'?$", text, re.MULTILINE))
    environment = {variable: inputs.get(name.replace("-", "_"), defaults.get(name, "")) for variable, name in names.items()}
    assert "${{" not in script  # inputs are data, not parts of the script
    return subprocess.run(["bash", "-e", "-o", "pipefail", "-c", script], env={**os.environ, **environment},
                          capture_output=True, text=True)


def test_action(on_path, tmp_path):
    sarif = tmp_path / "out" / "found.sarif"
    whole = run_action(path=WHOLE)
    assert whole.returncode == 0 and whole.stdout == "", whole
    found = run_action(path=TRUNCATED, sarif=str(sarif))
    assert found.returncode == 1 and "::error file=" in found.stdout, found
    assert '"2.1.0"' in sarif.read_text(encoding="utf-8")
    assert run_action(path=WHOLE, level="values", fail_on="warning", expect=WHOLE, sarif=str(sarif)).returncode == 0
    assert run_action(path="/no/such; echo x", sarif=str(sarif)).returncode == 3


def test_pre_commit_hook(on_path, tmp_path):
    text = (ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8")
    entry = shlex.split(re.search(r"entry: (.*)", text).group(1))
    files = re.compile(re.search(r"files: '(.*)'", text).group(1))
    for name, taken in (("a.safetensors", True), ("step/.metadata", True), ("x.metadata", False), ("a.py", False)):
        assert bool(files.search(name)) == taken
    pointer = tmp_path / "model.safetensors"
    pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n", encoding="utf-8")
    whole = [genuine("dcp/t2.15.0-no-dist", ".metadata"), genuine("dcp/t2.15.0-standard", ".metadata")]

    def run(*paths):
        return subprocess.run([*entry, *paths], capture_output=True, text=True)

    assert run(*whole).returncode == 0, run(*whole)
    failed = run(whole[0], str(pointer), whole[1])
    assert failed.returncode == 1 and "git-lfs" in failed.stderr
    assert run(str(pathlib.Path(TRUNCATED) / ".metadata")).returncode == 1
