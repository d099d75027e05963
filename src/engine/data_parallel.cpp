#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/engine/data_parallel.h>

#include "distributed/gradient_buckets.h"

namespace gradus {
namespace {

// One line per parameter and buffer: what must be the same in every process.
std::string description(const torch::nn::Module& model) {
  std::string lines;
  const auto add = [&](const char* kind, const auto& items) {
    for (const auto& item : items)
      lines += fmt::format(
          "{} {} {} {}{}\n", kind, item.key(), c10::toString(item.value().scalar_type()),
          fmt::streamed(item.value().sizes()), item.value().requires_grad() ? "" : " frozen");
  };
  add("parameter", model.named_parameters());
  add("buffer", model.named_buffers());
  return lines;
}

// The first line in which two texts differ, as each of them has it.
std::pair<std::string, std::string> first_difference(const std::string& a, const std::string& b) {
  size_t begin = 0;
  const auto line = [&](const std::string& text) {
    return begin >= text.size() ? "nothing" : text.substr(begin, text.find('\n', begin) - begin);
  };
  while (line(a) == line(b) && begin < a.size()) begin = a.find('\n', begin) + 1;
  return {line(a), line(b)};
}

}  // namespace

DataParallel::DataParallel(std::shared_ptr<ProcessGroup> group, DataParallelOptions options)
    : group_(std::move(group)), options_(options) {}

DataParallel::~DataParallel() = default;

void DataParallel::check_same_model(const torch::nn::Module& model) {
  const auto all = group_->gather_bytes(description(model));
  for (size_t other = 1; other < all.size(); ++other) {
    if (all[other] == all[0]) continue;
    const auto [first, second] = first_difference(all[0], all[other]);
    throw Error("G-DIST-5", ErrorKind::usage,
                fmt::format("the processes have different models: process 0 has {}, process {} has "
                            "{}",
                            first, other, second),
                "Start every process with the same program, options and model.");
  }
}

void DataParallel::prepare(torch::nn::Module& model) {
  check_same_model(model);
  const torch::NoGradGuard no_grad;
  GradientBuckets::NamedTensors parameters;
  for (const auto& item : model.named_parameters()) {
    parameters.emplace_back(item.key(), item.value());
    auto weights = item.value().contiguous();
    group_->broadcast(weights);
    if (!weights.is_same(item.value())) item.value().copy_(weights);
  }
  buffers_ = model.buffers();
  begin_window();
  buckets_.reset();  // its hooks go first
  buckets_ = std::make_unique<GradientBuckets>(parameters, group_, options_.buckets);
}

void DataParallel::begin_window() {
  if (!options_.broadcast_buffers) return;
  const torch::NoGradGuard no_grad;
  for (auto& buffer : buffers_) {
    auto values = buffer.contiguous();
    group_->broadcast(values);
    if (!values.is_same(buffer)) buffer.copy_(values);
  }
}

void DataParallel::sync_gradients(std::span<const torch::Tensor>) { buckets_->finish(); }

std::unique_ptr<Strategy::NoSync> DataParallel::no_sync() {
  struct Held : NoSync {
    explicit Held(GradientBuckets& buckets) : buckets(buckets) { buckets.set_sending(false); }
    ~Held() override { buckets.set_sending(true); }
    GradientBuckets& buckets;
  };
  return std::make_unique<Held>(*buckets_);
}

torch::Tensor DataParallel::reduce(const torch::Tensor& value, Reduction how) {
  auto result = value.detach().clone(torch::MemoryFormat::Contiguous);
  group_->sum(result);
  return how == Reduction::mean ? result / double(group_->size()) : result;
}

torch::Tensor DataParallel::gather(const torch::Tensor& rows) {
  return torch::cat(group_->gather(rows.dim() == 0 ? rows.unsqueeze(0) : rows));
}

}  // namespace gradus
