#include "models/image/convolution.h"

#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>

#include <nlohmann/json.hpp>

namespace gradus {
namespace layers {

using torch::Tensor;

Convolution::Convolution(const ConvolutionOptions& options) : options_(options) {
  weight = register_parameter("weight", at::empty({options.out, options.in / options.groups,
                                                   options.kernel[0], options.kernel[1]},
                                                  at::kFloat));
  if (options.bias) bias = register_parameter("bias", at::empty({options.out}, at::kFloat));
}

Tensor Convolution::forward(const Tensor& x) const {
  return at::conv2d(x, weight, bias.defined() ? std::optional<Tensor>(bias) : std::nullopt,
                    options_.stride, {options_.padding, options_.padding}, {1, 1}, options_.groups);
}

BatchNorm::BatchNorm(int64_t channels) {
  const auto numbers = [&] { return at::empty({channels}, at::kFloat); };
  weight = register_parameter("weight", numbers());
  bias = register_parameter("bias", numbers());
  running_mean = register_buffer("running_mean", numbers());
  running_var = register_buffer("running_var", numbers());
  num_batches_tracked = register_buffer("num_batches_tracked", at::empty({}, at::kLong));
}

Tensor BatchNorm::forward(const Tensor& x) {
  constexpr double kMomentum = 0.1, kEps = 1e-5;
  if (is_training()) num_batches_tracked.add_(1);
  return at::batch_norm(x, weight, bias, running_mean, running_var, is_training(), kMomentum, kEps,
                        /*cudnn_enabled=*/true);
}

}  // namespace layers

std::vector<int64_t> sizes_in(const ConfigReader& read, const std::string& name,
                              std::vector<int64_t> fallback, int64_t most) {
  const auto* found = read.find(name);
  if (found == nullptr) return fallback;
  const auto expected = "a list of integers from 1 to " + std::to_string(most);
  if (!found->is_array() || found->empty() || found->size() > 64)
    read.fail(name, expected, found->dump().substr(0, 60));
  std::vector<int64_t> sizes;
  for (const auto& each : *found) {
    if (!each.is_number_integer() || each.get<int64_t>() < 1 || each.get<int64_t>() > most)
      read.fail(name, expected, found->dump().substr(0, 60));
    sizes.push_back(each.get<int64_t>());
  }
  return sizes;
}

std::array<int64_t, 2> pair_in(const ConfigReader& read, const std::string& name,
                               int64_t fallback) {
  constexpr int64_t kMost = 1 << 16;
  const auto* found = read.find(name);
  if (found == nullptr || !found->is_array()) {
    const auto side = read.integer(name, fallback, 1, kMost);
    return {side, side};
  }
  const auto sides = sizes_in(read, name, {}, kMost);
  if (sides.size() != 2) read.fail(name, "an integer or two", found->dump().substr(0, 60));
  return {sides[0], sides[1]};
}

}  // namespace gradus
