"""Where the variants are written, and the manifest that says what each must lead to."""

import json
import os


class Corpus:
    """Every variant gets a directory of its own below the root, so that a test can see whether anything was written there.

    A manifest row: id, path (relative to the root), and what the program must do with it:
      expect  "error": it does not open (exit 3, its code in `code`), or `validate` finds an error whose rule is in `rule` (exit 1)
              "warn":  it opens; `validate` finds nothing worse than a warning, and a finding of `rule` when one is given
              "ok":    it opens; `validate` finds no error
              "any":   it opens or is refused; only the general contract holds (no signal, no hang, bounded memory)
      text    optional: must stand in the message or in the findings
      and in answers.json, by id, the one answer that it gets: "refused: CODE", "opens, then refused: CODE", "safe", or "unsafe: RULES" with
      the rules of all errors
      rss_mib, seconds: optional bounds instead of the general ones
    """

    def __init__(self, root, marker):
        self.root = root
        self.marker = marker  # a file that a pickle would make if any of it ever ran
        self.rows = []
        self.ids = set()

    def directory(self, id):
        assert id not in self.ids, id
        self.ids.add(id)
        path = os.path.join(self.root, id)
        os.makedirs(path)
        return path

    def row(self, id, path, expect, code=(), rule=(), **more):
        code = [code] if isinstance(code, str) else list(code)
        rule = [rule] if isinstance(rule, str) else list(rule)
        self.rows.append({"id": id, "path": path, "expect": expect, "code": code, "rule": rule, **more})

    def file(self, id, file_name, data, expect, code=(), rule=(), **more):
        """A variant of one file, opened by its own name."""
        directory = self.directory(id)
        with open(os.path.join(directory, file_name), "wb") as out:
            out.write(data)
        self.row(id, f"{id}/{file_name}", expect, code, rule, **more)

    def tree(self, id, files, expect, code=(), rule=(), open_name="", **more):
        """A variant of several files, opened as a directory, or by the name of one of them. Returns the directory."""
        directory = self.directory(id)
        for file_name, data in files.items():
            path = os.path.join(directory, file_name)
            os.makedirs(os.path.dirname(path), exist_ok=True)
            with open(path, "wb") as out:
                out.write(data)
        self.row(id, f"{id}/{open_name}" if open_name else id, expect, code, rule, **more)
        return directory

    def write_manifest(self):
        with open(os.path.join(self.root, "manifest.json"), "w") as out:
            json.dump(self.rows, out, indent=1)
