"""Whether a compiled step gives what Python gives. tools/export_model.py uses it."""
from export_step import ExportError


def largest_difference(expected, found):
    """The largest difference, relative to each tensor's largest value."""
    worst = 0.0
    for a, b in zip(expected, found):
        if a.numel() > 0:
            a, b = a.double(), b.double()
            worst = max(worst, ((a - b).abs().max() / a.abs().max().clamp(min=1e-3)).item())
    return worst


def distance(expected, found):
    """The length of the difference of all tensors relative to their length, or that of the loss if
    it is more. A single gradient may be nothing but rounding in bfloat16: that of a key's bias,
    which softmax takes out again."""
    loss, apart, whole = 0.0, 0.0, 1e-12
    for a, b in zip(expected, found):
        a, b = a.double(), b.double()
        if a.dim() == 0:
            loss = max(loss, ((a - b).abs() / a.abs().clamp(min=1e-3)).item())
        else:
            apart, whole = apart + (a - b).square().sum().item(), whole + a.square().sum().item()
    return max(loss, (apart / whole)**0.5)


def difference(steps, which, runner, batch):
    """How far a package is from Python, and how far it may be.

    In float32 it is compared with Python itself. In bfloat16 two orders of the same operations are
    as far from each other as from the truth: there the float32 step is the measure, and the package
    may be half as far again from it as Python's own bfloat16 step.
    """
    before, steps.batch, precision = steps.batch, batch, steps.precision
    try:
        values = steps.example()
        step = getattr(steps, which)
        expected, found = step(*values), runner(*values)
        steps.precision = "float32"
        truth = expected if precision == "float32" else step(*values)
    finally:
        steps.batch, steps.precision = before, precision
    for a, b in zip(expected, found):
        if a.shape != b.shape:
            raise ExportError(f"the {which} step gives {list(b.shape)} in place of {list(a.shape)}")
    if precision == "float32":
        return largest_difference(expected, found), 1e-4
    return distance(truth, found), 1.5 * distance(truth, expected) + 1e-3


def repeats(steps, runner):
    """Whether the seed, the last input, decides what a step with dropout gives."""
    values = steps.example()
    first, second = runner(*values)[0].item(), runner(*values)[0].item()
    return first == second != runner(*values[:-1], values[-1] + 1)[0].item()
