#include "optim/gradient_projector.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Context.h>
#include <ATen/ops/linalg_svd.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/randint.h>
#include <ATen/ops/randn.h>
#include <gradus/core/error.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "optim/saved_options.h"

namespace gradus {
namespace {

at::Generator generator_on(torch::Device device, int64_t seed) {
  if (device.is_cpu()) return at::make_generator<at::CPUGeneratorImpl>(uint64_t(seed));
  auto generator = at::globalContext().defaultGenerator(device).clone();
  generator.set_current_seed(uint64_t(seed));
  return generator;
}

// APOLLO's chain of seeds: the fifteenth number that a seed gives is the next one.
int64_t seed_after(int64_t seed) {
  auto generator = generator_on(torch::kCPU, seed);
  return at::randint(0, std::numeric_limits<int64_t>::max(), {15}, generator, at::kLong)
      .const_data_ptr<int64_t>()[14];
}

}  // namespace

GradientProjector::GradientProjector(ProjectionOptions options, Source source,
                                     const std::string& optimizer)
    : options_(std::move(options)), source_(source) {
  const auto refuse = [&](const std::string& what) {
    throw Error("G-OPTIM-1", ErrorKind::usage, optimizer + ": " + what);
  };
  if (options_.rank < 1)
    refuse("rank must be at least 1, received " + std::to_string(options_.rank));
  if (options_.update_proj_gap < 1)
    refuse("update_proj_gap must be at least 1, received " +
           std::to_string(options_.update_proj_gap));
  const auto& type = options_.proj_type;
  const bool is_full = type == "full" && source_ == Source::svd;
  if (!is_full && type != "std" && type != "reverse_std" && type != "left" && type != "right")
    refuse(
        "proj_type must be std, reverse_std, left, right or, with singular vectors, full; "
        "received " +
        type);
}

bool GradientProjector::has_right(at::IntArrayRef sizes) const {
  const auto& type = options_.proj_type;
  return type == "right" || type == "full" || (type == "std" && sizes[0] >= sizes[1]) ||
         (type == "reverse_std" && sizes[0] < sizes[1]);
}

bool GradientProjector::has_left(at::IntArrayRef sizes) const {
  return options_.proj_type == "full" || !has_right(sizes);
}

int64_t GradientProjector::rank_of(at::IntArrayRef sizes) const {
  return source_ == Source::random ? options_.rank : std::min({options_.rank, sizes[0], sizes[1]});
}

std::pair<torch::Tensor, torch::Tensor> GradientProjector::make_bases(
    const torch::Tensor& param) const {
  const auto plain = param.options().requires_grad(false);
  const auto sizes = param.sizes();
  const int64_t rank = rank_of(sizes);
  return {has_left(sizes) ? torch::zeros({sizes[0], rank}, plain) : torch::Tensor(),
          has_right(sizes) ? torch::zeros({rank, sizes[1]}, plain) : torch::Tensor()};
}

std::vector<int64_t> GradientProjector::projected_sizes(at::IntArrayRef sizes) const {
  const int64_t rank = rank_of(sizes);
  return {has_left(sizes) ? rank : sizes[0], has_right(sizes) ? rank : sizes[1]};
}

void GradientProjector::fit(const torch::Tensor& grad, const torch::Tensor& left,
                            const torch::Tensor& right) const {
  const auto [u, s, vh] = at::linalg_svd(grad.to(at::kFloat), /*full_matrices=*/false);
  if (left.defined()) left.copy_(u.slice(1, 0, left.size(1)));
  if (right.defined()) right.copy_(vh.slice(0, 0, right.size(0)));
}

void GradientProjector::draw(int64_t seed, int64_t step, const torch::Tensor& left,
                             const torch::Tensor& right) const {
  for (int64_t k = 0; k < (step - 1) / options_.update_proj_gap; ++k) seed = seed_after(seed);
  const auto& basis = left.defined() ? left : right;
  const auto generator = generator_on(basis.device(), seed);
  basis.copy_(at::randn(basis.sizes(), generator, basis.options().dtype(at::kFloat)) /
              std::sqrt(double(options_.rank)));
}

torch::Tensor project(const torch::Tensor& grad, const torch::Tensor& left,
                      const torch::Tensor& right) {
  const auto low = left.defined() ? at::matmul(left.t(), grad) : grad;
  return right.defined() ? at::matmul(low, right.t()) : low;
}

torch::Tensor project_back(const torch::Tensor& low, const torch::Tensor& left,
                           const torch::Tensor& right) {
  const auto wide = left.defined() ? at::matmul(left, low) : low;
  return right.defined() ? at::matmul(wide, right) : wide;
}

void read_projection(const OptimArgs& extra, ProjectionOptions& options) {
  extra.read("rank", options.rank);
  extra.read("update_proj_gap", options.update_proj_gap);
  extra.read("scale", options.scale);
  if (auto type = extra.text("proj_type")) options.proj_type = std::move(*type);
}

void set_projection(StateTree& group, const ProjectionOptions& options) {
  group.set("update_proj_gap", options.update_proj_gap)
      .set("scale", options.scale)
      .set("proj_type", options.proj_type);
}

void take_projection(const StateTree& group, ProjectionOptions& options) {
  saved::take(group, "rank", options.rank);
  saved::take(group, "update_proj_gap", options.update_proj_gap);
  saved::take(group, "scale", options.scale);
  saved::take(group, "proj_type", options.proj_type);
}

}  // namespace gradus
