"""Products of matrices by oneDNN in compiled steps for the CPU. tools/export_model.py uses it.

A compiled step multiplies float32 matrices by at::mm, which is MKL's. On processors that are not
Intel's, MKL may take kernels that are half as fast as those of oneDNN, which torch has, too.
"""
import contextlib
import math
import time

import sympy
import torch

FASTER = 1.15  # by which oneDNN must win
LEAST = 2**20  # multiplications of a product; oneDNN takes 10 µs to begin
DYNAMIC = 256  # what stands for a size that is known at run time only


def _by_onednn(a, b):
    return torch.ops.mkldnn._linear_pointwise(a, b.t(), None, "none", [], "")


def onednn_is_faster():
    """Whether oneDNN multiplies float32 matrices clearly faster here; a matter of 0.1 s."""
    if not torch.backends.mkldnn.is_available():
        return False
    a, b = torch.ones(512, 512), torch.ones(512, 1024)
    best = {}
    for way in (torch.mm, _by_onednn) * 12:  # in turns; of each the fastest counts
        begin = time.process_time()
        way(a, b)
        best[way] = min(best.get(way, float("inf")), time.process_time() - begin)
    return best[torch.mm] > FASTER * best[_by_onednn]


def _lowering(mm, addmm, least):
    """What stands for aten::mm and aten::addmm in the compiler; `mm` and `addmm` are its own, which
    keep the products of less than `least` multiplications."""
    from torch._inductor import ir, mkldnn_ir
    from torch._inductor.lowering import add, permute

    def as_matrix(value):
        """With one dimension whose elements lie side by side, and no element seen twice."""
        value = ir.ExternKernel.require_stride1(ir.ExternKernel.realize_input(value))
        return ir.ExternKernel.copy_input(value) if 0 in value.get_stride() else value

    def product(a, b, bias=None):
        inputs = [as_matrix(a), as_matrix(permute(b, [1, 0]))]
        constants = ["none", [-1], ""]
        if bias is None:
            constants.insert(0, None)
        else:
            inputs.append(ir.ExternKernel.require_contiguous(ir.ExternKernel.realize_input(bias)))
        layout = ir.FixedLayout(a.get_device(), a.get_dtype(), [a.get_size()[0], b.get_size()[1]])
        return ir.TensorBox.create(mkldnn_ir.LinearUnary(layout, inputs, constants))

    def is_ours(a, b):
        sizes = [*a.get_size(), b.get_size()[1]]
        count = math.prod(int(s) if sympy.sympify(s).is_number else DYNAMIC for s in sizes)
        return count >= least and all(
            v.get_device().type == "cpu" and v.get_dtype() == torch.float32 for v in (a, b))

    def our_mm(a, b, *, layout=None):
        return product(a, b) if layout is None and is_ours(a, b) else mm(a, b, layout=layout)

    def our_addmm(bias, a, b, *, alpha=1, beta=1, layout=None):
        if alpha == beta == 1 and layout is None and is_ours(a, b):
            if len(bias.get_size()) == 1:
                return product(a, b, bias)
            return add(bias, product(a, b))  # two gradients of a tied weight
        return addmm(bias, a, b, alpha=alpha, beta=beta, layout=layout)

    return our_mm, our_addmm


@contextlib.contextmanager
def by_onednn(least=0):
    """While a step is compiled, its float32 products on the CPU become oneDNN's: those of `least`
    multiplications and more."""
    from torch._inductor.lowering import lowerings

    names = (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
    before = {name: lowerings[name] for name in names}
    lowerings.update(zip(names, _lowering(*before.values(), least)))
    try:
        yield
    finally:
        lowerings.update(before)


def with_products(wanted, compile_it, tell):
    """Compiles a step for the CPU with the products that are wanted: "torch", "onednn", or "auto",
    the faster ones."""
    if wanted == "torch" or wanted == "auto" and not onednn_is_faster():
        return compile_it()
    try:
        with by_onednn(LEAST if wanted == "auto" else 0):
            result = compile_it()
    except Exception as error:
        if wanted == "onednn":
            raise
        # The compiler's inner parts, which this needs, differ between versions of torch.
        tell(f"the step does not compile with oneDNN's products ({str(error).splitlines()[0]}); "
             "torch's own are taken")
        return compile_it()
    tell("oneDNN multiplies float32 matrices" +
         (": the large ones, for which it is faster on this processor" if wanted == "auto" else ""))
    return result
