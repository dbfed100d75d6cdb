"""Our DCP output under a process group: DTensors of the mesh that it was written for, and of another one."""
import os
import subprocess
import sys
import tempfile

from peerlib import DATA, TV, shardscope

CASES = [
    # genuine case, mesh and rules that we write, mesh and placements that torch loads into
    ("t2.15.0-fsdp2-tp", "dp=2,tp=2", ["*fc1.weight:dp=0,tp=0", "*fc2.weight:dp=0,tp=1", "*weight:dp=0"], "2x2", "*fc1.weight=S0,S0;*fc2.weight=S0,S1;*=S0,R"),
    ("t2.15.0-fsdp2-tp", "tp=3", ["*weight:tp=1", "*:tp=0"], "2x2", "*=S0,S1"),
    ("t2.15.0-fsdp2-adam", "fsdp=4", ["*:fsdp=0"], "3", "*=S0"),
    ("t2.6.0-hsdp", "dp=2,fsdp=2", ["*:fsdp=0"], "2x2", "*=R,S0"),
]


def main():
    failures = 0
    for name, mesh, rules, load_mesh, placements in CASES:
        if TV < (2, 15) and name.startswith("t2.15"):
            name = name.replace("t2.15.0", "t2.6.0")
        case = os.path.join(DATA, "genuine", "dcp", name)
        with tempfile.TemporaryDirectory() as place:
            out = os.path.join(place, "out")
            words = [w for rule in rules for w in ("--shard", rule)]
            shardscope("convert", os.path.join(case, "ckpt"), out, "--to", "dcp", "--mesh", mesh, *words)
            check = subprocess.run([sys.executable, os.path.join(DATA, "scripts", "check_with_torch.py"), os.path.join(case, "expected.json"), out,
                                    "--format", "dcp", "--mesh", load_mesh, "--placements", placements], capture_output=True, text=True)
            print(name, mesh, "->", load_mesh, check.stdout.strip().splitlines()[-1:])
            if check.returncode:
                failures += 1
                print(check.stdout[-1500:], check.stderr[-1500:])
    return 1 if failures else 0


if __name__ == "__main__":
    raise SystemExit(main())
