"""Reads the file of --profile_steps: the GPU's time by kind of work."""
import collections
import json
import re

# The first pattern that a kernel's name has decides.
KINDS = [
    ("casts to fp8", r"fp8_|quantize"),
    ("attention", r"flash|fmha|sdpa|attention|softmax_warp|compute_dq|dot_do_o|varlen"),
    ("GEMM", r"gemm|nvjet|cutlass|splitk|split_k|cublas|xmma|gemv|wgmma"),
    ("loss head", r"cross_entropy_row|token_scores_row|nll_loss"),
    ("optimizer", r"adamw_chunks|square_chunks|norm_of_parts|scale_chunks|multi_tensor"),
    ("norms", r"forward_rows|backward_rows|backward_block|add_partial|layer_norm|rms_norm"),
    ("elementwise", r"swiglu|gated_|rotate_vectors|pack_vectors|column_parts|gelu|silu|dropout"),
    ("copies", r"memcpy|memset|copy|catarray|fill|transpose"),
]
OTHER = "other"
GAPS = "gaps"


def kind_of(name):
    lowered = name.lower()
    for kind, pattern in KINDS:
        if re.search(pattern, lowered):
            return kind
    return OTHER


def gpu_events(trace):
    """(begin, end, name) of all work of the GPU, in microseconds, in order."""
    found = [
        (event["ts"], event["ts"] + event["dur"], event["name"])
        for event in trace["traceEvents"]
        if event.get("ph") == "X" and event.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")
    ]
    return sorted(found)


def busy_microseconds(events):
    """The time in which at least one of the events runs."""
    busy, until = 0.0, float("-inf")
    for begin, end, _ in events:
        busy += max(0.0, end - max(begin, until))
        until = max(until, end)
    return busy


Profile = collections.namedtuple("Profile", "kinds launches names step_ms")


def read_profile(path, steps):
    """Milliseconds and launches of a step by kind, and by kernel."""
    with open(path) as file:
        events = gpu_events(json.load(file))
    if not events:
        raise SystemExit(f"{path} has no work of a GPU")
    kinds, launches, names = (collections.Counter() for _ in range(3))
    for begin, end, name in events:
        kinds[kind_of(name)] += (end - begin) / 1000 / steps
        launches[kind_of(name)] += 1
        names[kind_of(name), name] += (end - begin) / 1000 / steps
    whole = max(end for _, end, _ in events) - events[0][0]
    kinds[GAPS] = (whole - busy_microseconds(events)) / 1000 / steps
    for kind in launches:
        launches[kind] = round(launches[kind] / steps)
    return Profile(kinds, launches, names, whole / 1000 / steps)


def table(profile, floor):
    """The table of a workload; `floor` has milliseconds by kind."""
    lines = ["| kind | ms of a step | launches | floor | above it |", "|---|---|---|---|---|"]
    order = sorted(set(profile.kinds) | set(floor), key=lambda kind: -profile.kinds[kind])
    for kind in order:
        least = floor.get(kind, 0.0)
        lines.append(f"| {kind} | {profile.kinds[kind]:.2f} | {profile.launches[kind] or ''} | "
                     f"{least:.2f} | {profile.kinds[kind] - least:.2f} |")
    total = sum(floor.values())
    lines.append(f"| **step** | {profile.step_ms:.2f} | {sum(profile.launches.values())} | "
                 f"{total:.2f} | {profile.step_ms - total:.2f} |")
    return "\n".join(lines)


def longest_kernels(profile, count):
    """The kernels with most time, as lines."""
    return "\n".join(
        f"{ms:8.3f} ms  {kind:12s} {name[:100]}" for (kind,
                                                      name), ms in profile.names.most_common(count))
