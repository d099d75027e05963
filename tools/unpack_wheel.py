"""Unpacks the wanted part of a wheel: unpack_wheel.py WHEEL FOLDER PATTERN...

A pattern is a shell pattern on the path inside the wheel; `*` also matches `/`. Files that lie
below another folder than the pattern names are not renamed. Exits 1 with one line if the wheel is
damaged or nothing matches.
"""

import fnmatch
import sys
import zipfile


def main(wheel, folder, patterns):
    try:
        with zipfile.ZipFile(wheel) as archive:
            wanted = [
                name for name in archive.namelist() if any(
                    fnmatch.fnmatchcase(name, p) for p in patterns)
            ]
            if not wanted:
                sys.exit(f"{wheel}: nothing in it matches {' '.join(patterns)}")
            archive.extractall(folder, wanted)
    except (zipfile.BadZipFile, OSError) as error:
        sys.exit(f"{wheel}: {error}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__)
    main(sys.argv[1], sys.argv[2], sys.argv[3:])
