#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/engine/data_parallel.h>

#include <set>

#include "distributed/gradient_buckets.h"

namespace gradus {
namespace {

// One line per parameter and buffer: what must be the same in every process.
std::string description(const torch::nn::Module& model) {
  std::string lines;
  const auto add = [&](const char* kind, const auto& items) {
    for (const auto& item : items)
      lines += fmt::format(
          "{} {} {} [{}]{}\n", kind, item.key(), c10::toString(item.value().scalar_type()),
          fmt::join(item.value().sizes(), ", "), item.value().requires_grad() ? "" : " frozen");
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

// Replaces the values by those of process 0. Tensors of one type travel together, up to this size.
constexpr int64_t kBytesAtOnce = int64_t{32} << 20;

void broadcast_all(ProcessGroup& group, const std::vector<torch::Tensor>& tensors) {
  if (group.size() == 1) return;
  const torch::NoGradGuard no_grad;
  for (size_t begin = 0; begin < tensors.size();) {
    const auto& first = tensors[begin];
    int64_t elements = 0;
    size_t end = begin;
    for (; end < tensors.size() && tensors[end].dtype() == first.dtype(); ++end) {
      if (end > begin &&
          (elements + tensors[end].numel()) * int64_t(first.element_size()) > kBytesAtOnce)
        break;
      elements += tensors[end].numel();
    }
    auto flat = torch::empty({elements}, first.options().requires_grad(false));
    const auto each = [&](const auto& use) {
      int64_t offset = 0;
      for (size_t i = begin; i < end; ++i) {
        use(tensors[i], flat.narrow(0, offset, tensors[i].numel()).view(tensors[i].sizes()));
        offset += tensors[i].numel();
      }
    };
    if (group.rank() == 0) each([](const auto& tensor, const auto& place) { place.copy_(tensor); });
    if (elements > 0) group.broadcast(flat);
    if (group.rank() != 0)
      each([](const auto& tensor, const auto& place) { tensor.detach().copy_(place); });
    begin = end;
  }
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
  release();
  model_ = &model;
  broadcast_all(*group_, model.parameters());
  buffers_ = model.buffers();
  broadcast_all(*group_, buffers_);
}

void DataParallel::release() {
  buckets_.reset();
  model_ = nullptr;
}

void DataParallel::begin_window() {
  if (model_ == nullptr) return;
  if (!buckets_) {
    GradientBuckets::NamedTensors parameters;
    std::set<const c10::TensorImpl*> known;  // tied weights have several names
    for (const auto& item : model_->named_parameters())
      if (known.insert(item.value().unsafeGetTensorImpl()).second)
        parameters.emplace_back(item.key(), item.value());
    buckets_ = std::make_unique<GradientBuckets>(parameters, group_, options_.buckets);
    return;  // the buffers are those of `prepare`
  }
  share_buffers();
}

void DataParallel::share_buffers() {
  if (options_.broadcast_buffers) broadcast_all(*group_, buffers_);
}

void DataParallel::sync_gradients(std::span<const torch::Tensor>) {
  if (buckets_) buckets_->finish();
}

void DataParallel::begin_micro_batch() {
  if (buckets_) buckets_->begin_backward();
}

void DataParallel::end_micro_batch() {
  if (buckets_) buckets_->move_gradients();
}

std::unique_ptr<Strategy::NoSync> DataParallel::no_sync() {
  struct Held : NoSync {
    explicit Held(GradientBuckets& buckets) : buckets(buckets) { buckets.set_sending(false); }
    ~Held() override { buckets.set_sending(true); }
    GradientBuckets& buckets;
  };
  return buckets_ ? std::make_unique<Held>(*buckets_) : nullptr;
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
