#!/usr/bin/env python3
"""Chat templates that recurse, grow or never end: each ends with an error that names the limit.

    python templates_test.py GRADUS
"""
import tempfile
from pathlib import Path

import hostile
import tiny_folder

NESTED_RANGES = ("{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}"
                 "{% endfor %}")
SELF = "{% set ns = namespace(x=1) %}{% set ns.x = ns %}"
DEEP = ("{% set ns = namespace(x=[]) %}{% for a in range(99999) %}{% set ns.x = [ns.x] %}"
        "{% endfor %}")
DOUBLED = ("{% set ns = namespace(s='0123456789abcdef') %}{% for a in range(64) %}"
           "{% set ns.s = ns.s ~ ns.s %}{% endfor %}{{ ns.s|length }}")
DOUBLED_LIST = ("{% set ns = namespace(s=[1]) %}{% for a in range(64) %}"
                "{% set ns.s = ns.s + ns.s %}{% endfor %}{{ ns.s|list|length }}")
# name, template, what the message must say; tests/unit/text/limits_test.cpp has many more
CASES = [
    ("shown itself", SELF + "{{ ns }}", "limit of depth"),
    ("itself as JSON", SELF + "{{ ns|tojson }}", "limit of depth"),
    ("itself joined", SELF + "{{ ns ~ '' }}", "limit of depth"),
    ("deep joined", DEEP + "{{ ns.x ~ '' }}", "limit of depth"),
    ("operators in a row", "{{ " + "1+" * 100000 + "1 }}", "limit of "),
    ("nested ranges", NESTED_RANGES, "limit of steps"),
    ("batch", "{{ messages|batch(99999999999)|list }}", "limit of memory"),
    ("doubled text", DOUBLED, "limit of memory"),
    ("doubled list", DOUBLED_LIST, "limit of memory"),
    ("too large", "{# " + "x" * (2 << 20) + " #}", "limit of size"),
]


def main():
    with tempfile.TemporaryDirectory() as name:
        top = Path(name)
        good = tiny_folder.write(top / "good")
        hostile.accepts("a good template", tiny_folder.generate(good), top)
        for number, (title, template, text) in enumerate(CASES):
            folder = tiny_folder.write(top / str(number), template=template)
            hostile.refuses(title, tiny_folder.generate(folder), text, top)
        hostile.finish(len(CASES) + 1)


main()
