#!/usr/bin/env python3
"""expand_lists.py HEADER: the header as Doxygen reads it, with our two lists written out.

The fields of the argument structs come from one list (training_arguments_fields.inc), the events of
callbacks from another (GRADUS_FOR_EACH_EVENT). Doxygen does not follow either. The comment of a
field is its row in docs/user/options.md; that of an event is its row in the comment of the class.
"""
import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
INCLUDE = "#include <gradus/config/training_arguments_fields.inc>"


def option_meanings():
    rows = re.findall(r"^\| `(\w+)` \|.*?\| ([^|]*(?:\\\|[^|]*)*) \|$",
                      (ROOT / "docs/user/options.md").read_text(), re.M)
    return {name: re.sub(r"[<>@#%]", lambda c: "\\" + c[0], text.replace("\\|", "|"))
            for name, text in rows}


def fields(form):
    """The list with each GRADUS_FIELD(type, name, default) in one of three forms."""
    meanings = option_meanings()
    lines = []
    listed = (ROOT / "include/gradus/config/training_arguments_fields.inc").read_text()
    for type_, name, value in re.findall(r"^GRADUS_FIELD\(([^()]*?), (\w+), (.*?)\)$", listed,
                                         re.M | re.S):
        lines += [f"  /// {meanings[name]}", "  " + form.format(type=type_, name=name, value=value)]
    return lines


def expand_fields(lines):
    out = []
    defined = ""
    for line in lines:
        if line.startswith("#define GRADUS_FIELD") or line.startswith("#define GRADUS_DEFAULTS"):
            defined = line
        elif line.startswith("  static type name()"):
            defined = "functions"
        elif line == INCLUDE:
            if not defined:
                out += fields("{type} {name} = {value};")
            elif defined == "functions":
                out += fields("static {type} {name}() {{ return {value}; }}")
            elif "DEFAULTS" in defined:
                out += fields("{type} {name} = " + defined.split()[-1] + "::{name}();")
            defined = ""
            continue
        out.append(line)
    return out


def expand_events(text):
    found = re.search(r"#define GRADUS_FOR_EACH_EVENT\(DO\)((?:.*\\\n)+.*\n)", text)
    if not found:
        return text
    events = re.findall(r"DO\((\w+)\)", found[1])
    # a bullet may name two functions, and go on for several lines
    moments = {}
    bullet = r"^/// - ((?:`on_\w+`(?:, )?)+): ((?:.*\n)(?:///   .*\n)*)"
    for names, moment in re.findall(bullet, text, re.M):
        for name in re.findall(r"on_(\w+)", names):
            moments[name] = " ".join(moment.replace("///", " ").split())
    macro = re.compile(r"#define GRADUS_EVENT\(name\)((?:.*\\\n)*.*\n)"
                       r"((?:.*\n)*?)([^\n]*)GRADUS_FOR_EACH_EVENT\(GRADUS_EVENT\)(.*\n)")

    def written_out(match):
        body = " ".join(match[1].replace("\\\n", " ").split())

        def text(name):
            return body.replace("on_##name", "on_" + name).replace("name", name)

        if body.startswith("+1"):
            return f"{match[2]}{match[3]}{''.join(map(text, events))}{match[4]}"
        return "\n".join(f"/// {moments[name][0].upper()}{moments[name][1:]}\n{text(name)}"
                         for name in events) + match[4]

    start = text.index("/// The events of a run")
    return text[:start] + macro.sub(written_out, text[start:])


def main():
    text = Path(sys.argv[1]).read_text()
    if sys.argv[1].endswith("callback.h"):
        text = expand_events(text)
    print("\n".join(expand_fields(text.splitlines())))


if __name__ == "__main__":
    main()
