#include <ATen/Context.h>
#include <ATen/ops/addmm_cpu_dispatch.h>
#include <ATen/ops/bmm_cpu_dispatch.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/mm_cpu_dispatch.h>
#include <ATen/ops/ones.h>
#include <c10/util/Exception.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/cpu_matmul.h>
#include <torch/library.h>

#include <algorithm>
#include <chrono>
#include <optional>

// LibTorch exports this function, but does not install its header. A LibTorch without it has no
// oneDNN for us.
namespace at::native {
[[gnu::weak]] void mkldnn_matmul(const Tensor& a, const Tensor& b, const Tensor& result, float beta,
                                 float alpha);
}

namespace gradus::device {
namespace {

using torch::Tensor;

constexpr int64_t kLeastMultiplications = 1 << 20;  // oneDNN needs 10 µs before it begins

bool has_onednn() { return at::hasMKLDNN() && at::native::mkldnn_matmul != nullptr; }

bool is_matrix(const Tensor& x) {
  if (x.scalar_type() != torch::kFloat || x.layout() != torch::kStrided || x.is_neg()) return false;
  const auto strides = x.strides();
  return std::find(strides.begin(), strides.end(), 0) == strides.end();
}

// Matrices, or batches of them.
bool is_for_onednn(const Tensor& a, const Tensor& b) {
  if (a.dim() != b.dim() || a.size(-1) != b.size(-2)) return false;  // torch says what is wrong
  if (a.dim() == 3 && a.size(0) != b.size(0)) return false;
  return a.numel() * b.size(-1) >= kLeastMultiplications && is_matrix(a) && is_matrix(b);
}

// A matrix or a batch of them that a product of these can be written to as it stands; torch resizes
// others, or says what is wrong with them.
bool is_room_for(const Tensor& out, const Tensor& a, const Tensor& b) {
  return out.scalar_type() == torch::kFloat && out.is_contiguous() && out.dim() == a.dim() &&
         out.size(-2) == a.size(-2) && out.size(-1) == b.size(-1) && !out.is_alias_of(a) &&
         !out.is_alias_of(b);
}

bool can_be_added(const Tensor& x, int64_t rows, int64_t columns) {
  if (x.scalar_type() != torch::kFloat || x.dim() > 2) return false;
  const auto fits = [](int64_t size, int64_t wanted) { return size == 1 || size == wanted; };
  return (x.dim() < 1 || fits(x.size(-1), columns)) && (x.dim() < 2 || fits(x.size(0), rows));
}

// out = beta · out + alpha · a · b
void multiply_into(Tensor& out, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                   const at::Scalar& alpha) {
  at::native::mkldnn_matmul(a, b, out, beta.to<float>(), alpha.to<float>());
}

Tensor mm(const Tensor& a, const Tensor& b) {
  if (a.dim() != 2 || !is_for_onednn(a, b)) return at::cpu::mm(a, b);
  auto result = at::empty({a.size(0), b.size(1)}, a.options());
  multiply_into(result, a, b, 0, 1);
  return result;
}

Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  if (a.dim() != 2 || !is_for_onednn(a, b) || !is_room_for(out, a, b))
    return at::cpu::mm_outf(a, b, out);
  multiply_into(out, a, b, 0, 1);
  return out;
}

Tensor bmm(const Tensor& a, const Tensor& b) {
  if (a.dim() != 3 || !is_for_onednn(a, b)) return at::cpu::bmm(a, b);
  auto result = at::empty({a.size(0), a.size(1), b.size(2)}, a.options());
  multiply_into(result, a, b, 0, 1);
  return result;
}

Tensor addmm(const Tensor& added, const Tensor& a, const Tensor& b, const at::Scalar& beta,
             const at::Scalar& alpha) {
  if (a.dim() != 2 || !is_for_onednn(a, b) || beta.toDouble() == 0 ||
      !can_be_added(added, a.size(0), b.size(1)))
    return at::cpu::addmm(added, a, b, beta, alpha);
  auto result = at::empty({a.size(0), b.size(1)}, a.options());
  result.copy_(added);
  multiply_into(result, a, b, beta, alpha);
  return result;
}

Tensor& addmm_out(const Tensor& added, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                  const at::Scalar& alpha, Tensor& out) {
  if (a.dim() != 2 || !is_for_onednn(a, b) || !is_room_for(out, a, b) || beta.toDouble() == 0 ||
      !can_be_added(added, a.size(0), b.size(1)) || (added.is_alias_of(out) && !added.is_same(out)))
    return at::cpu::addmm_outf(added, a, b, beta, alpha, out);
  if (!added.is_same(out)) out.copy_(added);
  multiply_into(out, a, b, beta, alpha);
  return out;
}

Tensor& add_product(Tensor& sum, const Tensor& a, const Tensor& b, const at::Scalar& beta,
                    const at::Scalar& alpha) {
  if (a.dim() != 2 || !is_for_onednn(a, b) || !is_room_for(sum, a, b) || beta.toDouble() == 0)
    return at::cpu::addmm_(sum, a, b, beta, alpha);
  multiply_into(sum, a, b, beta, alpha);
  return sum;
}

// While it lives, torch's operators for dense tensors on the CPU are these functions.
class Override {
 public:
  Override() {
    struct Silent : c10::WarningHandler {
      void process(const c10::Warning&) override {}  // that an operator is replaced
    } silent;
    const c10::WarningUtils::WarningHandlerGuard guard(&silent);
    library_.emplace(torch::Library::IMPL, "aten", c10::DispatchKey::CPU, __FILE__, __LINE__);
    library_->impl("mm", mm).impl("mm.out", mm_out).impl("bmm", bmm);
    library_->impl("addmm", addmm).impl("addmm.out", addmm_out).impl("addmm_", add_product);
  }

 private:
  std::optional<torch::Library> library_;
};

std::optional<Override>& current_override() {
  static std::optional<Override> instance;
  return instance;
}

template <typename Product>
double best_speed(const Product& product, double operations) {
  double best = 0;
  for (int i = 0; i < 6; ++i) {
    const auto began = std::chrono::steady_clock::now();
    product();
    const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
    best = std::max(best, 1e-9 * operations / took.count());
  }
  return best;
}

}  // namespace

void use_cpu_matmul(std::string_view name) {
  if (name == "torch") return current_override().reset();
  if (name != "onednn")
    throw Error("G-CONF-3", ErrorKind::usage,
                fmt::format("cpu_matmul: must be torch or onednn, received \"{}\"", name),
                "Leave it out for torch, whose numbers are Python's.");
  if (!has_onednn())
    throw Error("G-CONF-3", ErrorKind::usage,
                "cpu_matmul: onednn cannot be used, this LibTorch comes without oneDNN",
                "Leave the option out, or build gradus with another LibTorch.");
  if (current_override()) return;
  current_override().emplace();
  log_info("Float32 matrices are multiplied by oneDNN.");
}

std::string_view cpu_matmul() { return current_override() ? "onednn" : "torch"; }

CpuMatmulSpeed measure_cpu_matmul() {
  const auto a = at::ones({512, 512}), b = at::ones({512, 1024});
  const double operations = 2.0 * 512 * 512 * 1024;
  CpuMatmulSpeed speed;
  speed.torch = best_speed([&] { at::cpu::mm(a, b); }, operations);
  if (has_onednn()) {
    auto result = at::empty({512, 1024});
    speed.onednn = best_speed([&] { at::native::mkldnn_matmul(a, b, result, 0, 1); }, operations);
  }
  return speed;
}

}  // namespace gradus::device
