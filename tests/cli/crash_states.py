#!/usr/bin/env python3
"""crash_states.py SHARDSCOPE DATA [--level files|values]

Asks `shardscope latest RUN --good` about crash states of real saves. Each DATA/CASE.tar.xz holds the states of one training run
whose last save was cut at each file event, torn, or lost files afterwards; CASE.json says for each state which step is the
newest that the framework's own loader takes whole (`good`; null = none; `same`: other names of that step) and where only the
states of random generators differ (`near`). Any other answer fails, and so does a step that is named though random states of
it are gone without a word about it."""
import json, os, pathlib, shutil, subprocess, sys, tarfile, tempfile


def ask(program, run, level, memory):
    env = dict(os.environ, XDG_STATE_HOME=memory, XDG_CONFIG_HOME=memory + "/config")
    done = subprocess.run([program, "latest", run, "--good", "--level", level, "--json"], capture_output=True,
                          text=True, env=env, stdin=subprocess.DEVNULL)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"name": f"no answer: {done.stderr}"}


def is_right(answer, state):
    name = answer["name"]
    if name == state["good"] or name in state.get("same", []):
        return True
    return name in state["near"] and answer.get("verdict") != "safe"


def wrong_answers(program, data, case, level):
    described = json.loads((data / f"{case}.json").read_text())
    with tempfile.TemporaryDirectory(prefix="crash-") as work:
        with tarfile.open(data / f"{case}.tar.xz") as archive:
            archive.extractall(work)
        for state in described["states"]:
            run = os.path.join(work, case, state["state"], described["run_below_state"])
            memory = os.path.join(work, "memory")
            answer = ask(program, run, level, memory)
            shutil.rmtree(memory, ignore_errors=True)
            if not is_right(answer, state):
                yield f"{case} {state['state']} ({state['how']}): {answer['name']} instead of {state['good']}"


def main():
    program, data, level = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else "files"
    cases = sorted(path.stem for path in data.glob("*.json"))
    wrong = [line for case in cases for line in wrong_answers(program, data, case, level)]
    print(*wrong, sep="\n")
    print(f"{len(cases)} cases at level {level}, {len(wrong)} wrong answers")
    sys.exit(1 if wrong or not cases else 0)


main()
