#!/usr/bin/env python3
"""One whole session with the real window on a virtual X display, with mouse and key events as a person makes them: open the
sample, look a tensor up, validate; find the broken tensor of a damaged copy; convert and see the verified result.

    real_session.py SHARDSCOPE_GUI SHARDSCOPE SAMPLE
"""

import json
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import time

gui, cli, sample = (pathlib.Path(p).resolve() for p in sys.argv[1:4])
home = pathlib.Path(tempfile.mkdtemp(prefix="shardscope-session-"))
processes = []


def wait(what, check, seconds=60):
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        try:
            value = check()
        except (subprocess.CalledProcessError, OSError, ValueError):
            value = None
        if value:
            return value
        time.sleep(0.1)
    raise SystemExit(f"{what}: did not happen in {seconds} s")


def display():
    read, write = os.pipe()
    server = subprocess.Popen(["Xvfb", "-displayfd", str(write), "-screen", "0", "1440x900x24", "-nolisten", "tcp"],
                              pass_fds=[write], stderr=subprocess.DEVNULL)
    os.close(write)
    processes.append(server)
    with os.fdopen(read) as number:
        return ":" + number.readline().strip()


def xdotool(*words):
    return subprocess.run(["xdotool", *map(str, words)], env=environment, check=True, capture_output=True, text=True).stdout.strip()


def window(name, seconds=60):
    """The id of the visible window with this name, with the keyboard in it."""
    found = wait(f"a window named '{name}'", lambda: xdotool("search", "--onlyvisible", "--name", name), seconds)
    number = found.splitlines()[-1]
    xdotool("windowfocus", "--sync", number)
    time.sleep(0.3)
    return number


def keys(*names):
    for name in names:
        xdotool("key", "--clearmodifiers", name)
        time.sleep(0.15)


def clipboard():
    return subprocess.run(["xclip", "-o", "-selection", "clipboard"], env=environment, check=True, capture_output=True,
                          text=True, timeout=10).stdout


def copied_name(expected=None):
    def look():
        keys("ctrl+shift+n")
        text = clipboard()
        return text if expected is None or text == expected else None
    return wait("the name in the clipboard", look, 20)


def start(path):
    process = subprocess.Popen([str(gui), str(path)], env=environment)
    processes.append(process)
    return process


def end(process):
    keys("ctrl+q")
    if process.wait(timeout=30) != 0:
        raise SystemExit(f"the window ended with {process.returncode}")


def verdict_of(path):
    """As the window remembers it for its start page."""
    text = (home / "config/shardscope/shardscope.conf").read_text()
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    for key, value in values.items():
        if key.endswith("\\path") and value == str(path):
            return values.get(key[:-4] + "verdict")
    return None


environment = dict(os.environ, HOME=str(home), QT_QPA_PLATFORM="xcb", LC_ALL="C.UTF-8")
for name in ("CONFIG", "CACHE", "DATA", "STATE"):
    environment[f"XDG_{name}_HOME"] = str(home / name.lower())
(home / "runtime").mkdir(mode=0o700)
environment["XDG_RUNTIME_DIR"] = str(home / "runtime")

try:
    environment["DISPLAY"] = display()

    # The sample: look a tensor up with the mouse and the keyboard, validate.
    first = home / "sample"
    shutil.copytree(sample, first)
    names = [t["name"] for t in json.loads(subprocess.check_output([cli, "ls", first, "--json"]))["tensors"]]
    process = start(first)
    main = window("sample – Shardscope")
    geometry = dict(line.split("=") for line in xdotool("getwindowgeometry", "--shell", main).splitlines())
    # The button "Ctrl+K" stands at the right end of the tool bar.
    xdotool("mousemove", int(geometry["X"]) + int(geometry["WIDTH"]) - 120, int(geometry["Y"]) + 40, "click", 1)
    time.sleep(0.5)
    xdotool("type", "--delay", "20", names[-1])
    time.sleep(0.7)
    keys("Return")
    window("sample – Shardscope")
    copied_name(names[-1])
    keys("alt+2", "alt+3", "alt+4", "alt+1")
    keys("ctrl+shift+v")
    wait("the verdict 'safe'", lambda: verdict_of(first) == "safe")
    end(process)

    # A damaged copy: the findings lead to a broken tensor.
    damaged = home / "damaged"
    shutil.copytree(sample, damaged)
    data = sorted(damaged.glob("*.distcp"))[-1]
    os.truncate(data, data.stat().st_size // 2)
    checked = subprocess.run([cli, "validate", damaged, "--json"], capture_output=True, check=False)
    broken = {e["tensor"] for f in json.loads(checked.stdout)["findings"] for e in f["examples"]}
    process = start(damaged)
    window("damaged – Shardscope")
    keys("ctrl+shift+v")
    wait("the verdict 'unsafe'", lambda: verdict_of(damaged) == "unsafe")
    keys("F8")
    name = copied_name()
    if name not in broken:
        raise SystemExit(f"F8 led to {name}, which is not broken")
    end(process)

    # Convert: through the wizard by keyboard, the proposals taken as they are; the job's result is verified.
    process = start(first)
    window("sample – Shardscope")
    keys("ctrl+shift+c")
    wizard = window("Convert sample")
    jobs = home / "state/shardscope/jobs"

    # Only the last page, the plan, has Start; there, Next has no effect.
    def started():
        for _ in range(7):
            keys("alt+n")
        keys("alt+s")
        time.sleep(0.4)
        return any(jobs.glob("*/job.json"))
    wait("the job", started)
    done = wait("the end of the job", lambda: [p for p in jobs.glob("*/exit") if p.read_text().strip()])
    if done[0].read_text().strip() != "0":
        raise SystemExit("the job failed: " + (done[0].parent / "progress.ndjson").read_text())
    report = json.loads((done[0].parent / "result.json").read_text())
    target = json.loads((done[0].parent / "job.json").read_text())["destination"]
    if not report["verified"]:
        raise SystemExit("the result was not verified")
    subprocess.run([cli, "diff", first, target, "--values"], check=True, stdout=subprocess.DEVNULL)
    window("sample – Shardscope")
    end(process)
    print("the session went through")
finally:
    if len(sys.argv) > 4 and "DISPLAY" in environment:
        subprocess.run(["import", "-window", "root", sys.argv[4]], env=environment, check=False)
    for process in reversed(processes):
        if process.poll() is None:
            process.send_signal(signal.SIGTERM)
            try:
                process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                process.kill()
    shutil.rmtree(home, ignore_errors=True)
