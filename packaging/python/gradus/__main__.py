"""Runs the program in place of this Python process: `gradus …`, `python -m gradus …`."""
import os
import sys

from gradus import PREFIX


def main():
    program = str(PREFIX / "bin" / "gradus")
    os.execv(program, [program, *sys.argv[1:]])


if __name__ == "__main__":
    main()
