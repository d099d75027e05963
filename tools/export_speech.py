"""What models of speech need to be traced. tools/export_step.py uses it.

torch's CTC loss makes a tensor whose size depends on the values of the batch, which no trace can
hold. Here it is an operation that gives the loss of each row and its gradient. gradus has it under
the same name (src/kernels/ctc_loss.cpp); what stands here is for the trace and for comparisons.
"""
import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode


@torch.library.custom_op("gradus::ctc_loss_with_gradient", mutates_args=())
def ctc_loss_with_gradient(log_probs: Tensor, targets: Tensor, input_lengths: Tensor,
                           target_lengths: Tensor, blank: int,
                           zero_infinity: bool) -> tuple[Tensor, Tensor]:
    """The losses (rows) and their gradients (frames, rows, symbols)."""
    lengths = (input_lengths.tolist(), target_lengths.tolist())
    losses, alpha = torch.ops.aten._ctc_loss.default(log_probs, targets, *lengths, blank,
                                                     zero_infinity)
    gradient = torch.ops.aten._ctc_loss_backward.default(torch.ones_like(losses), log_probs,
                                                         targets, *lengths, losses, alpha, blank,
                                                         zero_infinity)
    if zero_infinity:
        losses = losses.masked_fill(losses == float("inf"), 0)
    return losses, gradient.contiguous()  # the compiler relies on the strides


@ctc_loss_with_gradient.register_fake
def _(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
    return log_probs.new_empty(log_probs.size(1)), log_probs.new_empty(log_probs.shape)


class CTC(torch.autograd.Function):

    @staticmethod
    def forward(context, log_probs, targets, input_lengths, target_lengths, blank, zero_infinity):
        losses, gradient = ctc_loss_with_gradient(log_probs, targets, input_lengths,
                                                  target_lengths, blank, zero_infinity)
        context.save_for_backward(gradient)
        return losses

    @staticmethod
    def backward(context, grad):
        (gradient,) = context.saved_tensors
        return gradient * grad[None, :, None], None, None, None, None, None


def ctc_loss(log_probs, targets, input_lengths, target_lengths, blank=0, reduction="mean",
             zero_infinity=False):
    """torch.nn.functional.ctc_loss for targets that are padded."""
    losses = CTC.apply(log_probs, targets, input_lengths, target_lengths, blank, zero_infinity)
    if reduction == "mean":
        return (losses / target_lengths.clamp_min(1)).mean()
    return losses.sum() if reduction == "sum" else losses


class SpeechOperations(TorchFunctionMode):
    """Runs what models of speech do and a trace cannot hold in another form, with equal results.

    With the CTC loss the models of transformers take the labels that are not -100 out of their rows
    and look at the largest one. Both depend on values: here labels stay rows by target length, and
    gradus checks the values before the step.
    """

    def __torch_function__(self, function, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if function is torch.nn.functional.ctc_loss:
            return ctc_loss(*args, **kwargs)
        value = args[0] if args and isinstance(args[0], torch.Tensor) else None
        if value is not None and value.dim() == 2 and value.dtype == torch.long:
            if function is torch.Tensor.masked_select:
                return value.clamp_min(0)
            if function is torch.Tensor.max and len(args) == 1 and not kwargs:
                return -1
        return function(*args, **kwargs)
