// Times the fused operations on a GPU beside their plain forms: microseconds, GB/s of the bytes
// that must move, and how many times faster.
#include <ATen/Context.h>
#include <ATen/ops/_foreach_copy.h>
#include <ATen/ops/_foreach_norm.h>
#include <ATen/ops/_fused_adamw.h>
#include <ATen/ops/scaled_dot_product_attention.h>
#include <cuda_runtime_api.h>
#include <fmt/format.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/fused.h>
#include <gradus/kernels/optimizer_kernels.h>
#include <torch/csrc/autograd/autograd.h>
#include <torch/cuda.h>

#include <iostream>

#include "kernels/operators.h"

namespace {

using torch::Tensor;
namespace kernels = gradus::kernels;

const auto kOptions = torch::dtype(torch::kBFloat16).device(torch::kCUDA);

Tensor leaf(torch::IntArrayRef sizes, double scale = 1.0) {
  return (torch::randn(sizes, kOptions) * scale).requires_grad_(true);
}

constexpr int kInARow =
    20;  // runs between two events, so that the time of a launch is hidden behind the one before

/// Median of repeated runs, in microseconds of one.
double timed(const std::function<void()>& run) {
  cudaEvent_t begin, end;
  cudaEventCreate(&begin);
  cudaEventCreate(&end);
  for (int i = 0; i < 3; ++i) run();
  std::vector<float> times;
  for (int i = 0; i < 7; ++i) {
    cudaEventRecord(begin, nullptr);
    for (int j = 0; j < kInARow; ++j) run();
    cudaEventRecord(end, nullptr);
    cudaEventSynchronize(end);
    float ms = 0;
    cudaEventElapsedTime(&ms, begin, end);
    times.push_back(ms * 1000 / kInARow);
  }
  std::nth_element(times.begin(), times.begin() + 3, times.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  return times[3];
}

/// `bytes`: the fewest that must move.
void report(const std::string& name, double bytes, const std::function<void()>& run) {
  kernels::set_form(kernels::Form::plain);
  const auto plain = timed(run);
  kernels::set_form(kernels::Form::automatic);
  const auto fused = timed(run);
  std::cout << fmt::format("{:44} {:9.1f} us {:8.0f} GB/s   plain {:9.1f} us   {:5.1f} x\n", name,
                           fused, bytes / fused / 1e3, plain, plain / fused);
}

void norms() {
  for (const auto& [rows, width] : {std::pair<int64_t, int64_t>{16384, 768},
                                    {8192, 2048},
                                    {16384, 896},
                                    {4096, 768},
                                    {1024, 256}}) {
    const auto residual = leaf({rows, width}), x = leaf({rows, width}), weight = leaf({width}),
               bias = leaf({width});
    const auto grad = torch::randn({rows, width}, kOptions),
               further = torch::randn({rows, width}, kOptions);
    const double tensor = 2.0 * double(rows * width);
    const auto label = fmt::format("{} x {}", rows, width);
    report("add_layer_norm forward " + label, 4 * tensor, [&] {
      torch::NoGradGuard no_grad;
      kernels::add_layer_norm(residual, x, weight, bias, 1e-5);
    });
    report("add_rms_norm forward " + label, 4 * tensor, [&] {
      torch::NoGradGuard no_grad;
      kernels::add_rms_norm(residual, x, weight, 1e-5);
    });
    const auto [sum, out, mean, rstd] = kernels::ops::add_layer_norm(
        residual.detach(), x.detach(), weight.detach(), bias.detach(), 1e-5);
    const auto microseconds = timed([&, s = sum, m = mean, r = rstd] {
      kernels::ops::add_layer_norm_backward(grad, further, s, weight.detach(), m, r);
    });
    std::cout << fmt::format("{:44} {:9.1f} us {:8.0f} GB/s\n", "add_layer_norm backward " + label,
                             microseconds, 4 * tensor / microseconds / 1e3);
    report("add_layer_norm both " + label, 8 * tensor, [&] {
      const auto both = kernels::add_layer_norm(residual, x, weight, bias, 1e-5);
      torch::autograd::backward({both.sum, both.normalised}, {further, grad});
    });
    const auto sums = timed([&] { kernels::ops::column_sum(grad); }),
               plain_sums = timed([&] { grad.sum(0); });
    std::cout << fmt::format("{:44} {:9.1f} us {:8.0f} GB/s   plain {:9.1f} us\n",
                             "column_sum " + label, sums, tensor / sums / 1e3, plain_sums);
  }
}

void gates_and_turns() {
  const auto gate = leaf({8192, 8192}), up = leaf({8192, 8192}),
             grad = torch::randn({8192, 8192}, kOptions);
  const double tensor = 2.0 * 8192 * 8192;
  report("swiglu forward 8192 x 8192", 3 * tensor, [&] {
    torch::NoGradGuard no_grad;
    kernels::swiglu(gate, up);
  });
  report("swiglu both 8192 x 8192", 8 * tensor, [&] { kernels::swiglu(gate, up).backward(grad); });
  const auto query = leaf({4, 2048, 32, 64}), key = leaf({4, 2048, 8, 64});
  const auto phases = torch::rand({1, 2048, 1, 32}, kOptions.dtype(torch::kFloat));
  report("rotary forward 4 x 2048 x (32 + 8) x 64", 2 * 2.0 * 8192 * 40 * 64, [&] {
    torch::NoGradGuard no_grad;
    kernels::rotary(query, key, phases, phases);
  });
}

void losses() {
  for (const auto& [rows, width, classes] :
       {std::tuple<int64_t, int64_t, int64_t>{16384, 768, 50257}, {8192, 2048, 128256}}) {
    const auto hidden = leaf({rows, width}), weight = leaf({classes, width}, 0.02);
    const auto labels = torch::randint(0, classes, {rows}, kOptions.dtype(torch::kLong));
    const auto scale = torch::full({}, 1.0 / double(rows), kOptions.dtype(torch::kFloat));
    const auto columns = (classes + 63) / 64 * 64;
    auto logits = torch::randn({4096, columns}, kOptions);
    auto row_losses = torch::empty({4096}, kOptions.dtype(torch::kFloat));
    const auto one = timed([&] {
      kernels::ops::cross_entropy_(logits, labels.narrow(0, 0, 4096), scale, row_losses, classes,
                                   -100, true);
    });
    std::cout << fmt::format("{:44} {:9.1f} us {:8.0f} GB/s\n",
                             fmt::format("cross_entropy_ 4096 x {}", columns), one,
                             4.0 * 4096 * double(columns) / one / 1e3);
    const auto whole = timed([&] {
      hidden.mutable_grad() = weight.mutable_grad() = Tensor();
      kernels::linear_cross_entropy(hidden, weight, {}, labels, scale).backward();
    });
    const auto flops = 6.0 * double(rows) * double(width) * double(columns);
    std::cout << fmt::format("{:44} {:9.1f} us {:8.0f} TFLOP/s\n",
                             fmt::format("linear_cross_entropy {} x {} x {}", rows, width, classes),
                             whole, flops / whole / 1e6);
  }
}

/// The parameters of GPT-2 124M.
std::vector<std::vector<int64_t>> gpt2_shapes() {
  std::vector<std::vector<int64_t>> shapes = {{50257, 768}, {1024, 768}, {768}, {768}};
  for (int i = 0; i < 12; ++i)
    for (const auto& shape : std::vector<std::vector<int64_t>>{{768},
                                                               {768},
                                                               {768, 2304},
                                                               {2304},
                                                               {768, 768},
                                                               {768},
                                                               {768},
                                                               {768},
                                                               {768, 3072},
                                                               {3072},
                                                               {3072, 768},
                                                               {768}})
      shapes.push_back(shape);
  return shapes;
}

void optimizers() {
  kernels::AdamWTensors t;
  std::vector<Tensor> wide_grads, steps;
  const auto wide = kOptions.dtype(torch::kFloat);
  int64_t count = 0;
  for (const auto& shape : gpt2_shapes()) {
    t.masters.push_back(torch::randn(shape, wide));
    t.weights.push_back(t.masters.back().to(torch::kBFloat16));
    t.grads.push_back(torch::randn(shape, kOptions));
    wide_grads.push_back(t.grads.back().to(torch::kFloat));
    t.exp_avg.push_back(torch::zeros(shape, wide));
    t.exp_avg_sq.push_back(torch::zeros(shape, wide));
    steps.push_back(torch::ones({}, wide));
    count += t.masters.back().numel();
  }
  const kernels::AdamWScalars scalars{torch::full({}, 1e-5, wide), torch::ones({}, wide),
                                      torch::ones({}, wide)};
  const auto ours = timed([&] { kernels::adamw_(t, scalars, {}); });
  const auto theirs = timed([&] {
    at::_fused_adamw_(t.masters, wide_grads, t.exp_avg, t.exp_avg_sq, {}, steps, scalars.lr, 0.9,
                      0.999, 0.0, 1e-8, false, false);
    at::_foreach_copy_(t.weights, t.masters);
  });
  std::cout << fmt::format(
      "{:44} {:9.1f} us {:8.0f} GB/s   ATen, fp32 gradients + copy {:9.1f} us\n",
      "adamw_ GPT-2 124M", ours, 28.0 * double(count) / ours / 1e3, theirs);
  const auto norm = timed([&] { kernels::clip_coefficient(kernels::grad_norm(t.grads), 1.0); });
  const auto plain_norm = timed([&] { torch::stack(at::_foreach_norm(t.grads, 2)).norm(); });
  std::cout << fmt::format("{:44} {:9.1f} us {:8.0f} GB/s   ATen {:9.1f} us\n",
                           "grad_norm + clip_coefficient GPT-2 124M", norm,
                           2.0 * double(count) / norm / 1e3, plain_norm);
  const auto same = torch::full({}, 0.5, wide);
  const auto scaled = timed([&] { kernels::scale_(t.grads, same); });
  const auto copied = timed([&] { kernels::copy_(t.weights, t.masters); });
  std::cout << fmt::format("{:44} {:9.1f} us; copy_ masters -> weights {:9.1f} us\n",
                           "scale_ GPT-2 124M", scaled, copied);
}

/// Products of a Llama of 1.24 B parameters in bfloat16 and in 8 bits, and what the casts cost.
void products_in_8_bits() {
  const int64_t rows = 8192;
  for (const auto& [out, in] : std::vector<std::pair<int64_t, int64_t>>{
           {3072, 2048}, {2048, 2048}, {16384, 2048}, {2048, 8192}}) {
    const auto x = torch::randn({rows, in}, kOptions), weight = torch::randn({out, in}, kOptions),
               grad = torch::randn({rows, out}, kOptions);
    const auto input = kernels::ops::fp8_cast({x}, 0, false, true, true, {}),
               matrix = kernels::ops::fp8_cast({weight}, 0, false, true, true, {}),
               to_output = kernels::ops::fp8_cast({grad}, 0, true, true, true, {});
    const auto product = [&](const auto& a, bool a_turned, const auto& b, bool b_turned,
                             bool fast) {
      return timed([&] {
        kernels::ops::fp8_product(a_turned ? std::get<1>(a) : std::get<0>(a),
                                  b_turned ? std::get<1>(b) : std::get<0>(b), std::get<2>(a),
                                  std::get<2>(b), {}, fast);
      });
    };
    const double flops = 2.0 * double(rows) * double(out) * double(in) / 1e6;  // per us: TFLOP/s
    const auto rate = [&](double us) {
      return fmt::format("{:7.1f} us {:5.0f} TF", us, flops / us);
    };
    std::cout << fmt::format("products {} x {} x {}\n", rows, out, in);
    std::cout << fmt::format("  forward  bf16 {}  fp8 {}  fast {}\n",
                             rate(timed([&] { torch::mm(x, weight.t()); })),
                             rate(product(input, false, matrix, false, false)),
                             rate(product(input, false, matrix, false, true)));
    std::cout << fmt::format("  to input bf16 {}  fp8 {}  fast {}\n",
                             rate(timed([&] { torch::mm(grad, weight); })),
                             rate(product(to_output, false, matrix, true, false)),
                             rate(product(to_output, false, matrix, true, true)));
    std::cout << fmt::format("  to weight bf16 {}  fp8 {}  fast {}\n",
                             rate(timed([&] { torch::mm(grad.t(), x); })),
                             rate(product(to_output, true, input, true, false)),
                             rate(product(to_output, true, input, true, true)));
    const auto cast = [&](const char* name, const Tensor& from, bool wide, bool known) {
      const auto amax = from.abs().amax().to(torch::kFloat);
      const auto us = timed([&] {
        kernels::ops::fp8_cast({from}, 0, wide, true, true,
                               known ? std::optional(amax) : std::nullopt);
      });
      std::cout << fmt::format("  cast {:24} {:7.1f} us {:6.0f} GB/s\n", name, us,
                               double(from.numel()) * (known ? 4 : 6) / us / 1e3);
    };
    cast("input", x, false, false);
    cast("input, known magnitude", x, false, true);
    cast("weight", weight, false, false);
    cast("gradient", grad, true, false);
  }
  const auto both = torch::randn({rows, 16384}, kOptions),
             to = torch::randn({rows, 8192}, kOptions);
  const auto gate = both.narrow(1, 0, 8192), up = both.narrow(1, 8192, 8192);
  const double part = double(rows) * 8192 * 2;
  const auto forward = timed([&] { kernels::ops::gated_rows(gate, up); }),
             backward = timed([&] { kernels::ops::gated_rows_backward(to, gate, up); });
  std::cout << fmt::format(
      "gated rows forward {:.1f} us {:.0f} GB/s, backward {:.1f} us {:.0f} GB/s\n", forward,
      3 * part / forward / 1e3, backward, 5 * part / backward / 1e3);
}

/// Which strides the attention backends give, and what they take.
void attention(const char* name, bool flash, bool cudnn, int64_t rows, int64_t tokens,
               int64_t heads, int64_t key_heads, bool packed) {
  at::globalContext().setSDPUseFlash(flash);
  at::globalContext().setSDPUseCuDNN(cudnn);
  at::globalContext().setSDPUseMemEfficient(false);
  at::globalContext().setSDPUseMath(false);
  const auto all = leaf({rows, tokens, heads + 2 * key_heads, 64});
  const auto part = [&](int64_t first, int64_t count) {
    return (packed ? all.narrow(2, first, count)
                   : all.detach().narrow(2, first, count).contiguous().requires_grad_(true))
        .transpose(1, 2);
  };
  const auto query = part(0, heads), key = part(heads, key_heads),
             value = part(heads + key_heads, key_heads);
  try {
    const auto run = [&] {
      return at::scaled_dot_product_attention(query, key, value, {}, 0.0, true, std::nullopt,
                                              heads != key_heads);
    };
    const auto out = run();
    const auto grad = torch::randn({rows, tokens, heads, 64}, kOptions).transpose(1, 2);
    const auto forward = timed([&] {
      torch::NoGradGuard no_grad;
      run();
    });
    const auto both = timed([&] { run().backward(grad); });
    const auto grads = torch::autograd::grad({run()}, {query, key}, {grad});
    std::cout << fmt::format(
        "attention {:6} {} x {} x {}/{} {:7} forward {:7.1f} us, both {:7.1f} us; strides out {} "
        "dq {} dk {}\n",
        name, rows, tokens, heads, key_heads, packed ? "packed" : "apart", forward, both,
        c10::str(out.strides()), c10::str(grads[0].strides()), c10::str(grads[1].strides()));
  } catch (const std::exception& error) {
    std::cout << "attention " << name << ": " << std::string(error.what()).substr(0, 120) << "\n";
  }
}

}  // namespace

int main(int count, char** words) {
  if (!torch::cuda::is_available()) {
    std::cout << "no GPU here\n";
    return 77;
  }
  const std::string only = count > 1 ? words[1] : "";
  products_in_8_bits();
  if (only == "fp8") return 0;
  norms();
  gates_and_turns();
  losses();
  optimizers();
  for (const bool packed : {true, false})
    for (const bool cudnn : {true, false}) {
      attention(cudnn ? "cudnn" : "flash", !cudnn, cudnn, 16, 1024, 12, 12, packed);
      attention(cudnn ? "cudnn" : "flash", !cudnn, cudnn, 4, 2048, 32, 8, packed);
    }
  return 0;
}
