"""check_form_test.py: tools/check_form finds what it is for, in small trees with one fault each."""
import pathlib
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2]
PICTURE = """# Layers

## Layers

```
cli            the program
└─ train       the loop
   └─ data     rows
      └─ core  errors
```
"""
SOUND = {
    "ARCHITECTURE.md": PICTURE,
    "cli/main.cpp": "int main() { return 0; }\n",
    "src/core/error.cpp": '#include "core/error.h"\n',
    "src/data/rows.cpp": "#include <gradus/core/error.h>\n\n#include <vector>\n",
    "src/train/loop.cpp": "// asked only for the message\nauto& type = typeid(*this);\n",
    "include/gradus/core/error.h": "/// What went wrong.\nclass Error;\nint code();  ///< which\n",
    "include/gradus/gradus.h": "#pragma once\n#include <gradus/core/error.h>\n",
    "tests/rows.json": "{}" + " " * 200 + "\n",
}
# check, the file that breaks it, what the finding says
FAULTS = [
    ("columns", "src/core/long.cpp", "// " + "x" * 98 + "\n", "src/core/long.cpp:1: 101 bytes"),
    ("columns", "tools/run", "#!/bin/sh\n# " + "x" * 99 + "\n", "tools/run:2: 101 bytes"),
    ("columns", "a/CMakeLists.txt", "# " + "x" * 99 + "\n", "a/CMakeLists.txt:1: 101 bytes"),
    ("columns", "a/lib.rs", "// " + "x" * 98 + "\n", "a/lib.rs:1: 101 bytes"),
    ("lengths", "tests/many.py", "pass\n" * 601, "tests/many.py: 601 lines"),
    ("layers", "src/core/up.cpp", '#include "train/loop.h"\n',
     "src/core/up.cpp:1: core includes upwards from train"),
    ("layers", "include/gradus/data/up.h", "#include <gradus/train/loop.h>\n",
     "include/gradus/data/up.h:1: data includes upwards from train"),
    ("layers", "src/extra/new.cpp", "\n", "has no layer extra"),
    ("headers", "include/gradus/core/bare.h", "// one\nint a();\nint b();\nint c();\n",
     "include/gradus/core/bare.h: 1 of 4 lines are comment"),
    ("casts", "src/train/cast.cpp", "int a;\nauto* b = dynamic_cast<B*>(a);\n",
     "src/train/cast.cpp:2: no comment says why"),
    ("format", "src/core/loose.cpp", "int  a;\n", "src/core/loose.cpp:1: not as clang-format"),
]
failures = []


def check(name, files):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for path, text in files.items():
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        (root / ".clang-format").symlink_to(ROOT / ".clang-format")
        if (ROOT / ".deps/clang-format").exists():
            (root / ".deps").mkdir()
            (root / ".deps/clang-format").symlink_to((ROOT / ".deps/clang-format").resolve())
        command = [sys.executable, ROOT / "tools/check_form", name, "--root", root]
        done = subprocess.run(command, capture_output=True, text=True)
        return done.returncode, done.stdout + done.stderr


def main():
    for name in dict.fromkeys(fault[0] for fault in FAULTS):
        status, said = check(name, SOUND)
        if status not in (0, 77) or (status == 77) != ("skipped: there is no .deps" in said):
            failures.append(f"{name}, nothing wrong: exit status {status}\n{said}")
    for name, path, text, expected in FAULTS:
        status, said = check(name, SOUND | {path: text})
        if status != 77 and (status != 1 or expected not in said):
            failures.append(f"{name}, {path}: status {status}, expected {expected!r} in\n{said}")
    status, said = check("colums", SOUND)
    if status != 2 or "unknown check colums" not in said:
        failures.append(f"a misspelt check: exit status {status}\n{said}")
    print("\n".join(failures) or f"{len(FAULTS)} faults are found")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
