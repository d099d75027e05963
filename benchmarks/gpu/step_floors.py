"""What a training step of a workload must cost at least on the card at hand: every matrix product
and the attention alone, as torch runs them, and the bytes of all else at the card's rate.
"""
BYTES_PER_SECOND = 4.3e12  # what an H200 copies, reads and writes together


def shape_of(config):
    """Width, layers, heads and so on, under one set of names for all configs."""
    width = config.get("hidden_size") or config["n_embd"]
    heads = config.get("num_attention_heads") or config["n_head"]
    return dict(width=width, layers=config.get("num_hidden_layers") or config["n_layer"],
                heads=heads, key_heads=config.get("num_key_value_heads",
                                                  heads), head=config.get("head_dim") or
                width // heads, inner=config.get("intermediate_size") or 4 * width,
                gated=config["model_type"] in ("llama", "qwen2", "qwen3",
                                               "mistral"), causal=config["model_type"] != "bert",
                vocabulary=config["vocab_size"] if config["model_type"] != "bert" else 0,
                window=config.get("sliding_window"))


def products(shape, rows):
    """(rows, out, in, times) of every linear layer's product in a forward pass."""
    width, head = shape["width"], shape["head"]
    query, key = shape["heads"] * head, shape["key_heads"] * head
    found = [(rows, query, width, 1), (rows, key, width, 2), (rows, width, query, 1),
             (rows, shape["inner"], width, 2 if shape["gated"] else 1),
             (rows, width, shape["inner"], 1)]
    found = [(m, n, k, times * shape["layers"]) for m, n, k, times in found]
    if shape["vocabulary"]:
        found.append((rows, -(-shape["vocabulary"] // 64) * 64, width, 1))
    return found


def seconds_of(run, torch):
    """The median of several runs on the GPU."""
    for _ in range(3):
        run()
    times = []
    for _ in range(10):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        run()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) / 1000)
    return sorted(times)[len(times) // 2]


def product_seconds(shape, rows, torch):
    """All products of a step, forward, gradient of the input, gradient of the weight."""
    total = 0
    for m, n, k, times in products(shape, rows):
        x, weight, grad = (torch.randn(*size, device="cuda", dtype=torch.bfloat16)
                           for size in ((m, k), (n, k), (m, n)))
        for run in (lambda: x @ weight.t(), lambda: grad @ weight, lambda: grad.t() @ x):
            total += times * seconds_of(run, torch)
    return total


def attention_seconds(shape, batch, tokens, torch):
    """Forward and backward passes of all layers; a window counts by its share of the scores."""
    size = (batch, tokens, shape["heads"], shape["head"])
    query, key, value = (torch.randn(*size, device="cuda", dtype=torch.bfloat16).transpose(
        1, 2).detach().requires_grad_(True) for _ in range(3))
    from torch.nn.attention import SDPBackend, sdpa_kernel

    grad = torch.randn_like(query)

    def both():
        out = torch.nn.functional.scaled_dot_product_attention(query, key, value,
                                                               is_causal=shape["causal"])
        out.backward(grad)

    with sdpa_kernel([SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION], set_priority=True):
        whole = shape["layers"] * seconds_of(both, torch)
    window = shape["window"]
    if not window or window >= tokens:
        return whole
    return whole * (window * tokens - window * window / 2) / (tokens * tokens / 2)


def byte_seconds(shape, rows, parameters):
    """Kinds that only move memory, each tensor read and written as seldom as can be."""
    width, inner, layers = shape["width"], shape["inner"], shape["layers"]
    line = 2 * rows  # a column of bfloat16 activations
    query, key = shape["heads"] * shape["head"], shape["key_heads"] * shape["head"]
    bytes_of = {
        # sum, norm and back: x, residual, sum, out; the gradients of out and sum, sum, result
        "norms": 2 * layers * line * width * 8,
        # gate, up, product; then gradient, gate, up and two or three results
        "elementwise": layers * line * ((inner * 9 + 4 *
                                         (query + key)) if shape["gated"] else inner * 5),
        "loss head": 2 * line * shape["vocabulary"],
        # master and two averages, read and written; gradient read twice; weight written
        "optimizer": parameters * (6 * 4 + 2 * 2 + 2),
    }
    return {kind: count / BYTES_PER_SECOND for kind, count in bytes_of.items()}


def floors(work, parameters):
    """Milliseconds of a step by kind."""
    import torch

    shape = shape_of(work["config"])
    rows = work["batch"] * work["tokens"]
    found = byte_seconds(shape, rows, parameters)
    found["GEMM"] = product_seconds(shape, rows, torch)
    found["attention"] = attention_seconds(shape, work["batch"], work["tokens"], torch)
    return {kind: 1000 * seconds for kind, seconds in found.items()}
