#!/usr/bin/env python3
"""crash_states.py SHARDSCOPE DATA [--level files|values]

Asks `shardscope latest RUN --good` about crash states of real saves. Each DATA/CASE.tar.xz holds the states of one training run
whose last save was cut at each file event, torn, or lost files afterwards; CASE.json says for each state which step is the
newest that the framework's own loader takes whole (`good`; null = none; `same`: other names of that step) and where only the
states of random generators differ (`near`). Any other answer fails, and so does a step that is named though random states of
it are gone without a word about it."""
import contextlib, json, os, pathlib, subprocess, sys, tarfile, tempfile


def ask(program, run, level):
    """The answer of a program that remembers nothing."""
    with tempfile.TemporaryDirectory(prefix="crash-memory-") as memory:
        env = dict(os.environ, XDG_STATE_HOME=memory, XDG_CONFIG_HOME=memory + "/config")
        done = subprocess.run([program, "latest", run, "--good", "--level", level, "--json"], capture_output=True,
                              text=True, env=env, stdin=subprocess.DEVNULL)
    try:
        return json.loads(done.stdout)
    except ValueError:
        return {"name": f"no answer: {done.stderr}"}


@contextlib.contextmanager
def unpacked(data, case):
    """The states of a case, each with the directory of its run, which is there while this holds: [(state, run)]."""
    data = pathlib.Path(data)
    described = json.loads((data / f"{case}.json").read_text())
    with tempfile.TemporaryDirectory(prefix="crash-") as work:
        with tarfile.open(data / f"{case}.tar.xz") as archive:
            archive.extractall(work)
        yield [(state, os.path.join(work, case, state["state"], described["run_below_state"])) for state in described["states"]]


def is_right(answer, state):
    name = answer["name"]
    if name == state["good"] or name in state.get("same", []):
        return True
    return name in state["near"] and answer.get("verdict") != "safe"


def wrong_answers(program, data, case, level):
    with unpacked(data, case) as states:
        for state, run in states:
            answer = ask(program, run, level)
            if not is_right(answer, state):
                yield f"{case} {state['state']} ({state['how']}): {answer['name']} instead of {state['good']}"


def main():
    program, data, level = sys.argv[1], pathlib.Path(sys.argv[2]), sys.argv[4] if len(sys.argv) > 4 else "files"
    cases = sorted(path.stem for path in data.glob("*.json"))
    wrong = [line for case in cases for line in wrong_answers(program, data, case, level)]
    print(*wrong, sep="\n")
    print(f"{len(cases)} cases at level {level}, {len(wrong)} wrong answers")
    sys.exit(1 if wrong or not cases else 0)


if __name__ == "__main__":
    main()
