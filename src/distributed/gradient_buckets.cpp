#include "distributed/gradient_buckets.h"

#include <ATen/ops/_foreach_copy.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>

namespace gradus {
namespace {

constexpr int64_t kGpuAlignment = 128;  // bytes, of gradients on a GPU

}  // namespace

struct GradientBuckets::Hook : torch::autograd::PostAccumulateGradHook {
  Hook(GradientBuckets& buckets, size_t parameter) : buckets(buckets), parameter(parameter) {}
  void operator()(const torch::Tensor&) override { buckets.gradient_is_ready(parameter); }
  GradientBuckets& buckets;
  size_t parameter;
};

GradientBuckets::GradientBuckets(const NamedTensors& parameters,
                                 std::shared_ptr<ProcessGroup> group, BucketOptions options)
    : group_(std::move(group)), options_(options) {
  options_.find_unused_parameters |= options_.static_graph;
  for (const auto& [name, parameter] : parameters) {
    if (!parameter.requires_grad()) continue;
    names_.push_back(name);
    parameters_.push_back(parameter);
  }
  make_buckets();
  for (size_t i = 0; i < parameters_.size(); ++i)
    torch::autograd::impl::set_post_acc_grad_hooks(parameters_[i],
                                                   std::make_unique<Hook>(*this, i));
  begin_window();
}

GradientBuckets::~GradientBuckets() {
  for (auto& parameter : parameters_)
    torch::autograd::impl::set_post_acc_grad_hooks(parameter, nullptr);
}

// Backward passes reach the last layers first, so buckets are filled from the last parameter on.
// The first is small, so that sending starts early.
void GradientBuckets::make_buckets() {
  places_.resize(parameters_.size());
  int64_t bytes = 0, elements = 0;
  const auto close = [&] {
    if (buckets_.empty()) return;
    auto& bucket = buckets_.back();
    bucket.flat = torch::zeros({elements},
                               parameters_[bucket.members.front()].options().requires_grad(false));
  };
  // Which parameters were used travels at the end of the last bucket, which is sent when that is
  // known.
  const auto close_last = [&] {
    flags_offset_ = elements;
    elements += options_.find_unused_parameters ? int64_t(parameters_.size()) : 0;
    close();
  };
  for (size_t i = parameters_.size(); i-- > 0;) {
    const auto& parameter = parameters_[i];
    const auto size = parameter.numel() * int64_t(parameter.element_size());
    const auto limit =
        buckets_.size() <= 1 ? options_.first_bucket_bytes : options_.bucket_cap_bytes;
    const auto fits = [&] {
      const auto& first = parameters_[buckets_.back().members.front()];
      return bytes + size <= limit && first.dtype() == parameter.dtype() &&
             first.device() == parameter.device();
    };
    if (buckets_.empty() || !fits()) {
      close();
      buckets_.emplace_back();
      bytes = elements = 0;
    }
    // Kernels read vectors of 16 bytes where they can.
    if (parameter.is_cuda()) {
      const auto step = kGpuAlignment / int64_t(parameter.element_size());
      elements = (elements + step - 1) / step * step;
    }
    places_[i] = {buckets_.size() - 1, elements};
    buckets_.back().members.push_back(i);
    bytes += size;
    elements += parameter.numel();
  }
  close_last();
}

torch::Tensor GradientBuckets::part(size_t parameter) const {
  const auto& [bucket, offset] = places_[parameter];
  const auto& value = parameters_[parameter];
  return buckets_[bucket].flat.narrow(0, offset, value.numel()).view(value.sizes());
}

void GradientBuckets::begin_window() {
  used_.assign(parameters_.size(), false);
  begin_backward();
}

void GradientBuckets::begin_backward() {
  next_ = 0;
  const auto is_expected = [&](size_t i) { return static_.empty() || static_[i]; };
  for (auto& bucket : buckets_) {
    bucket.missing =
        size_t(std::count_if(bucket.members.begin(), bucket.members.end(), is_expected));
    bucket.sum = {};
    bucket.half.reset();
  }
}

void GradientBuckets::gradient_is_ready(size_t parameter) {
  const std::scoped_lock lock(mutex_);
  require_expected(parameter);
  used_[parameter] = true;
  if (!sends_) return;
  // One backward pass writes a gradient once, however often it used the parameter.
  auto& bucket = buckets_[places_[parameter].bucket];
  if (bucket.missing > 0) --bucket.missing;
  while (next_ < buckets_.size() && buckets_[next_].missing == 0) send(buckets_[next_++]);
}

// The gradients move into the bucket at their first use, and are parts of it from then on.
void GradientBuckets::move_gradients(const Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> from, to;
  for (const auto i : bucket.members) {
    auto& gradient = parameters_[i].mutable_grad();
    if (!gradient.defined()) continue;
    auto place = part(i);
    if (gradient.data_ptr() == place.data_ptr()) continue;
    from.push_back(std::exchange(gradient, place));
    to.push_back(std::move(place));
  }
  if (!from.empty()) at::_foreach_copy_(to, from);
}

void GradientBuckets::move_gradients() {
  const std::scoped_lock lock(mutex_);
  for (const auto& bucket : buckets_) move_gradients(bucket);
}

// They seldom change. A recorded step cannot copy them from the host.
void GradientBuckets::write_flags(Bucket& bucket) {
  if (!flags_.defined() || flags_of_ != used_) {
    flags_of_ = used_;
    flags_ = torch::tensor(std::vector<float>(used_.begin(), used_.end())).to(bucket.flat);
  }
  bucket.flat.slice(0, flags_offset_).copy_(flags_);
}

void GradientBuckets::send(Bucket& bucket) {
  const torch::NoGradGuard no_grad;
  move_gradients(bucket);
  for (const auto i : bucket.members)
    if (!parameters_[i].grad().defined()) part(i).zero_();
  if (&bucket == &buckets_.back() && options_.find_unused_parameters) write_flags(bucket);
  const auto processes = double(group_->size());
  if (options_.format == BucketOptions::Format::same) {
    if (processes > 1) bucket.flat.mul_(1.0 / processes);
    bucket.sum = group_->start_sum(bucket.flat);
    return;
  }
  const bool is_fp16 = options_.format == BucketOptions::Format::fp16;
  bucket.half = bucket.flat.to(is_fp16 ? torch::kHalf : torch::kBFloat16);
  if (processes > 1) bucket.half.div_(processes);
  bucket.sum = group_->start_sum(bucket.half);
}

// Which parameters a process used. What the others used matters, and is read from the device, only
// where this process did not use all.
std::vector<bool> GradientBuckets::used_anywhere() {
  if (group_->size() == 1 || std::find(used_.begin(), used_.end(), false) == used_.end())
    return used_;
  if (!used_by_any_.empty()) return used_by_any_;
  const auto flags = buckets_.back().flat.slice(0, flags_offset_).to(torch::kCPU, torch::kFloat);
  const auto* values = flags.const_data_ptr<float>();
  std::vector<bool> used(parameters_.size());
  for (size_t i = 0; i < used.size(); ++i) used[i] = values[i] > 0;
  if (options_.static_graph) used_by_any_ = used;
  return used;
}

void GradientBuckets::require_all_used() const {
  std::vector<std::string> unused;
  for (size_t i = 0; i < parameters_.size(); ++i)
    if (!used_[i]) unused.push_back(names_[i]);
  if (unused.empty()) return;
  const size_t all = unused.size();
  unused.resize(std::min<size_t>(all, 5));
  throw Error("G-DIST-4", ErrorKind::training,
              fmt::format("process {}: {} parameter{} had no part in the loss of this step: {}{}",
                          group_->rank(), all, all == 1 ? "" : "s", fmt::join(unused, ", "),
                          all > unused.size() ? ", ..." : ""),
              "Set --ddp_find_unused_parameters, or let every step use every parameter.");
}

// The bucket of such a parameter may be on its way already.
void GradientBuckets::require_expected(size_t parameter) const {
  if (static_.empty() || static_[parameter]) return;
  throw Error("G-DIST-4", ErrorKind::training,
              fmt::format("process {}: parameter {} has a part in the loss of this step, but had "
                          "none in the first one",
                          group_->rank(), names_[parameter]),
              "Leave out --ddp_static_graph, or let every step use the same parameters.");
}

void GradientBuckets::finish() {
  const std::scoped_lock lock(mutex_);
  sent_in_backward_ = next_;
  while (next_ < buckets_.size()) send(buckets_[next_++]);
  const torch::NoGradGuard no_grad;
  for (auto& bucket : buckets_) {
    bucket.sum.wait();
    if (!bucket.half.defined()) continue;
    bucket.flat.copy_(bucket.half);
    bucket.half.reset();
  }
  if (options_.find_unused_parameters && !buckets_.empty()) {
    const auto used = used_anywhere();
    for (size_t i = 0; i < parameters_.size(); ++i)
      if (used[i] && !parameters_[i].grad().defined()) parameters_[i].mutable_grad() = part(i);
  } else {
    require_all_used();
  }
  if (options_.static_graph && static_.empty()) static_ = used_;
  begin_window();
}

}  // namespace gradus
