"""What a file system may show after the power failed at any moment of a program's run.

record() runs commands under strace; Log turns what they did below a directory into changes of inodes; Log.state() makes one of the states that may be
on disk after a moment. What was synced is there. Of everything else any part may be there or not:

  data   of each block the content of any moment since its last sync; what never reached the disk reads as zeros, or as noise
  size   that of any moment since the last sync of the file
  names  each creation, renaming and removal, or (mode "ordered") a first part of them, as in the one journal of ext4 and XFS. A renaming is atomic.
         Only fsync of its directory makes a name durable

A sync covers what had ended before it began; a call that was under way may have happened.
"""
import os
import re
import shutil
import subprocess

CALLS = ("open,openat,openat2,mkdir,mkdirat,write,pwrite64,ftruncate,fallocate,fsync,fdatasync,rename,renameat,renameat2,unlink,unlinkat,rmdir,"
         "pwritev,pwritev2,copy_file_range,link,linkat,symlink,symlinkat,creat,truncate")
MODES = ["all", "none", "few", "half", "most", "names", "data", "ordered"]
NEVER = 1 << 60


def record(words, log, env, inject=()):
    """Runs the words under strace; its exit code."""
    strace = ["strace", "-f", "-y", "-xx", "-s", str(1 << 26), "-o", log, "-e", "trace=" + CALLS]
    for one in inject:
        strace += ["-e", "inject=" + one]
    return subprocess.run(strace + words, env=env, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE).returncode


def unescaped(text):
    return bytes.fromhex(text.replace("\\x", ""))


def quoted(argument):
    return unescaped(argument[1:argument.rindex('"')])


def path_in(argument):
    """Of '5</path>' or 'AT_FDCWD</path>', escaped; None where it has none any more."""
    found = re.match(r"[^<]*<((?:\\x[0-9a-f]{2})*)>(\(deleted\))?", argument)
    return None if not found or found.group(2) else os.fsdecode(unescaped(found.group(1)))


def arguments_of(text):
    found, depth, inside, at = [], 0, False, 0
    for i, c in enumerate(text):
        if c == '"':
            inside = not inside
        elif not inside and c in "({[<":
            depth += 1
        elif not inside and c in ")}]>":
            depth -= 1
        elif not inside and c == "," and depth == 0:
            found.append(text[at:i].strip())
            at = i + 1
    return found + [text[at:].strip()]


def calls_in(log):
    """(begin, end, name, arguments, result), by lines of the log; one that was under way at the end has NEVER and no result."""
    begun, found = {}, []
    with open(log, errors="surrogateescape") as lines:
        for n, line in enumerate(lines):
            process, _, rest = line.rstrip("\n").partition(" ")
            rest = rest.strip()
            if rest.endswith("<unfinished ...>"):
                begun[process] = (n, rest[:-len("<unfinished ...>")].rstrip())
                continue
            begin = n
            if resumed := re.match(r"<\.\.\. \w+ resumed>(.*)$", rest):
                if process not in begun:
                    continue
                begin, head = begun.pop(process)
                rest = head + resumed.group(1)
            if call := re.match(r"(\w+)\((.*)\)\s+= (-?\d+|\?)", rest):
                lost = call.group(3) == "?"
                found.append((begin, NEVER if lost else n, call.group(1), call.group(2), None if lost else int(call.group(3))))
    for begin, head in begun.values():
        if call := re.match(r"(\w+)\((.*)$", head):
            found.append((begin, NEVER, call.group(1), call.group(2), None))
    return sorted(found, key=lambda call: call[0])


class Inode:
    def __init__(self, number, folder, base):
        self.number, self.folder, self.base = number, folder, base
        self.now = dict(base) if folder else None   # of a directory: the names
        self.size = 0 if folder else len(base)
        self.changes = []   # of a file: (begin, end, offset, bytes) or (begin, end, size, None)
        self.syncs = []     # (begin, end)


class Log:
    """All that happens below `root`, which is durable as it is now."""

    def __init__(self, root):
        self.root, self.inodes, self.names, self.events = os.path.realpath(root), [], [], 0
        self.top = self._taken(self.root)

    def _new(self, folder, base):
        self.inodes.append(Inode(len(self.inodes), folder, base))
        return self.inodes[-1]

    def _taken(self, path):
        if os.path.isdir(path):
            return self._new(True, {name: self._taken(os.path.join(path, name)) for name in sorted(os.listdir(path))})
        with open(path, "rb") as file:
            return self._new(False, file.read())

    def _find(self, path):
        path = os.path.normpath(path)
        if path != self.root and not path.startswith(self.root + "/"):
            return None
        at = self.top
        for part in path[len(self.root) + 1:].split("/") if path != self.root else []:
            at = at.now.get(part) if at is not None and at.folder else None
        return at

    def _place(self, path):
        return self._find(os.path.dirname(os.path.normpath(path))), os.path.basename(os.path.normpath(path))

    def _change(self, begin, end, *sets):
        for folder, name, inode in sets:
            if inode is None:
                folder.now.pop(name, None)
            else:
                folder.now[name] = inode
        self.names.append((begin, end, sets))

    def add(self, log):
        """What one command did, after those before it."""
        last = 0
        for begin, end, name, text, result in calls_in(log):
            last = max(last, begin, end if end != NEVER else 0)
            if result is None or result >= 0:
                self._call(begin + self.events, end + (self.events if end != NEVER else 0), name, arguments_of(text), result)
        self.events += last + 1

    def _named(self, a, at):
        """The path of the arguments at `at`: a directory and a name."""
        return os.path.join(path_in(a[at]) or "/nowhere", os.fsdecode(quoted(a[at + 1])))

    def _call(self, begin, end, name, a, result):
        if name in ("open", "mkdir", "rename", "unlink", "rmdir", "creat"):   # without a directory: with that of the process
            here = "AT_FDCWD<" + "".join("\\x%02x" % c for c in os.fsencode(os.getcwd())) + ">"
            a = [here, a[0], here, a[1]] if name == "rename" else [here] + a
        if name in ("open", "openat", "openat2", "mkdir", "mkdirat"):
            folder, last = self._place(self._named(a, 0))
            there = folder and folder.now.get(last)
            if folder and not there and (name.startswith("mkdir") or "O_CREAT" in a[2]) and "O_TMPFILE" not in a[2]:
                self._change(begin, end, (folder, last, self._new(*((True, {}) if name.startswith("mkdir") else (False, b"")))))
            elif there and not there.folder and "O_TRUNC" in a[2]:
                there.changes.append((begin, end, 0, None))
        elif name in ("write", "pwrite64", "ftruncate", "fallocate", "fsync", "fdatasync"):
            inode = self._find(path_in(a[0]) or "/nowhere")
            if inode and name in ("fsync", "fdatasync"):
                inode.syncs.append((begin, end))
            elif inode and name in ("write", "pwrite64"):
                data = quoted(a[1])
                data = data if result is None else data[:result]
                offset = int(a[3]) if name == "pwrite64" else inode.size
                inode.changes.append((begin, end, offset, data))
                inode.size = max(inode.size, offset + len(data))
            elif inode:
                size = int(a[1]) if name == "ftruncate" else max(inode.size, int(a[2]) + int(a[3]))
                inode.changes.append((begin, end, size, None))
                inode.size = size
        elif name in ("rename", "renameat", "renameat2"):
            (from_folder, from_name), (to_folder, to_name) = self._place(self._named(a, 0)), self._place(self._named(a, 2))
            if from_folder and to_folder:
                swaps = len(a) > 4 and ("RENAME_EXCHANGE" in a[4] or a[4] == "0x2")
                self._change(begin, end, (from_folder, from_name, to_folder.now.get(to_name) if swaps else None),
                             (to_folder, to_name, from_folder.now.get(from_name)))
        elif name in ("unlink", "unlinkat", "rmdir"):
            folder, last = self._place(self._named(a, 0))
            if folder and last in folder.now:
                self._change(begin, end, (folder, last, None))
        elif any(self._find(path_in(one) or "/nowhere") for one in a if "<" in one):
            raise ValueError(f"{name} is not followed: {a}")

    def moments(self):
        """After which the log differs from before."""
        found = {0, self.events}
        for begin, end, *_ in self.names + [c for inode in self.inodes for c in inode.changes + inode.syncs]:
            found |= {begin, end}
        return sorted(moment for moment in found if moment != NEVER)

    def publication(self):
        """When the last name was given or taken in the root."""
        return max((begin for begin, _, sets in self.names if any(folder is self.top for folder, _, _ in sets)), default=0)

    def state(self, moment, rng, mode):
        """{path: bytes, or None for a directory} that may be on disk when the power fails at this moment."""
        share = {"all": 1, "none": 0, "few": 0.15, "half": 0.5, "most": 0.85, "names": 1, "data": 0, "ordered": 0.5}[mode]
        begun = [change for change in self.names if change[0] <= moment]
        durable = [any(s[1] <= moment and s[0] >= end for folder, _, _ in sets for s in folder.syncs) for _, end, sets in begun]
        if mode == "ordered":
            least = max((n + 1 for n, kept in enumerate(durable) if kept), default=0)
            chosen = begun[:rng.randint(least, len(begun))]
        else:
            chosen = [change for change, kept in zip(begun, durable) if kept or rng.random() < share]
        entries = {inode.number: dict(inode.base) for inode in self.inodes if inode.folder}
        for _, _, sets in chosen:
            for folder, name, inode in sets:
                if inode is None:
                    entries[folder.number].pop(name, None)
                else:
                    entries[folder.number][name] = inode
        files, block, noise = {}, rng.choice([512, 1024, 4096]), rng.random() < 0.2
        data = {"names": 0, "data": 1}.get(mode, share)
        todo = [(self.top, "")]
        while todo:
            folder, path = todo.pop()
            for name, inode in sorted(entries[folder.number].items()):
                files[path + name] = None if inode.folder else content(inode, moment, rng, data, block, noise)
                if inode.folder:
                    todo.append((inode, path + name + "/"))
        return files


def applied(image, change):
    _, _, at, data = change
    if data is None:
        return image[:at] + bytes(max(0, at - len(image)))
    image = image + bytes(max(0, at - len(image)))
    return image[:at] + data + image[at + len(data):]


def content(inode, moment, rng, share, block, noise):
    begun = [change for change in inode.changes if change[0] <= moment]
    synced = max((begin for begin, end in inode.syncs if end <= moment), default=-1)
    image, loose = bytes(inode.base), []
    for change in begun:
        if change[1] <= synced:
            image = applied(image, change)
        else:
            loose.append(change)
    if not loose:
        return image
    moments = [image]
    for change in loose:
        moments.append(applied(moments[-1], change))
    size = len(moments[-1] if rng.random() < share else rng.choice(moments))
    made = bytearray()
    for at in range(0, size, block):
        shown = moments[-1] if rng.random() < share else rng.choice(moments) if rng.random() < 0.5 else image
        piece = shown[at:at + block][:size - at]
        lost = min(block, size - at) - len(piece)
        made += piece + (rng.randbytes(lost) if noise else bytes(lost))
    return bytes(made)


def put(files, root):
    shutil.rmtree(root, ignore_errors=True)
    os.makedirs(root)
    for path, data in sorted(files.items()):
        if data is None:
            os.makedirs(os.path.join(root, path), exist_ok=True)
        else:
            with open(os.path.join(root, path), "wb") as file:
                file.write(data)


def part(files, name):
    """What a state has under a name, in the form of found(); None where nothing is."""
    if name not in files:
        return None
    if files[name] is not None:
        return {"": files[name]}
    return {path[len(name) + 1:]: data for path, data in files.items() if path.startswith(name + "/")}


def found(path):
    if os.path.isfile(path):
        with open(path, "rb") as file:
            return {"": file.read()}
    if not os.path.isdir(path):
        return None
    files = {}
    for at, folders, names in os.walk(path):
        for name in folders:
            files[os.path.relpath(os.path.join(at, name), path)] = None
        for name in names:
            with open(os.path.join(at, name), "rb") as file:
                files[os.path.relpath(os.path.join(at, name), path)] = file.read()
    return files
