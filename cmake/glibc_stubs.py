"""glibc_stubs.py VERSION DIRECTORY COMPILER: libraries to link with in place of the C library's, so that what is linked runs with
glibc VERSION and later. They have no code: the names of this system's libc and libm, each in the newest version that is not newer than
VERSION. A name that is only newer is missing, and whoever links needs one of its own (app/python/old_glibc.cpp)."""
import glob
import os
import re
import subprocess
import sys


def numbers(version):
    return tuple(int(part) for part in version.split("."))


def output_of(compiler, option):
    return subprocess.run([*compiler, option], capture_output=True, text=True, check=True).stdout.strip()


def place_of(compiler, name):
    return output_of(compiler, "-print-file-name=" + name)


def names_of(compiler, library, newest):
    """name -> (version, whether it is a function)"""
    lines = subprocess.run([output_of(compiler, "-print-prog-name=nm"), "-D", "--defined-only", "--with-symbol-versions", library], capture_output=True, text=True,
                           check=True).stdout
    found = {}
    for kind, name, version in re.findall(r"^\S+ (\S) (\w+)@@?GLIBC_([0-9.]+)$", lines, re.M):
        if kind != "A" and numbers(version) <= newest and numbers(version) >= numbers(found.get(name, ("0",))[0]):
            found[name] = (version, kind in "TtWwi")
    return found


def stub(compiler, place, soname, names):
    versions = {}
    with open(place + ".s", "w", encoding="utf-8") as f:
        f.write('.section .note.GNU-stack,"",%progbits\n.data\n')
        for name, (version, function) in names.items():
            versions.setdefault(version, []).append(name)
            f.write(f".globl {name}\n.type {name},%{'function' if function else 'object'}\n{name}: .skip 8\n")
    with open(place + ".map", "w", encoding="utf-8") as f:
        for version in sorted(versions, key=numbers):
            f.write(f"GLIBC_{version} {{ {' '.join(name + ';' for name in versions[version])} }};\n")
    script = ["-Wl,--version-script," + place + ".map"] if versions else []
    subprocess.run([*compiler, "-shared", "-nostdlib", "-Wl,-soname," + soname, *script, "-o", place, place + ".s"], check=True)


def main():
    newest, directory, compiler = numbers(sys.argv[1]), sys.argv[2], sys.argv[3:]
    os.makedirs(directory, exist_ok=True)
    loader = os.path.basename(glob.glob(os.path.join(os.path.dirname(place_of(compiler, "libc.so.6")), "ld-linux*.so.*"))[0])
    for file in ("libc.so.6", "libm.so.6", loader):
        stub(compiler, os.path.join(directory, file), file, names_of(compiler, place_of(compiler, file), newest))
    # Before 2.34 threads and dlopen had libraries of their own, which must be asked for.
    for file in ("libpthread.so.0", "libdl.so.2"):
        stub(compiler, os.path.join(directory, file), file, {})
    with open(os.path.join(directory, "libc.so"), "w", encoding="utf-8") as f:
        f.write(f"GROUP ( {directory}/libc.so.6 {place_of(compiler, 'libc_nonshared.a')} AS_NEEDED ( {directory}/{loader} ) )\n")
    with open(os.path.join(directory, "libm.so"), "w", encoding="utf-8") as f:
        f.write(f"INPUT ( {directory}/libm.so.6 )\n")


main()
