#include "distributed/gather_on_use.h"

#include <ATen/core/function_schema.h>
#include <ATen/record_function.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <mutex>

namespace gradus {
namespace {

thread_local GatherOnUse* current = nullptr;
thread_local std::exception_ptr failure;

// On a GPU, backward passes run on a thread of autograd's, which takes the observer along but not
// what is thread-local here. A process trains on one GPU at a time.
struct OnGpu {
  std::atomic<GatherOnUse*> current = nullptr;
  std::mutex mutex;
  std::exception_ptr failure;
};
OnGpu on_gpu;

void note_failure(bool is_here) {
  if (is_here) {
    failure = std::current_exception();
  } else {
    const std::scoped_lock lock(on_gpu.mutex);
    on_gpu.failure = std::current_exception();
  }
}

const void* storage_key(const torch::Tensor& tensor) {
  return tensor.defined() && tensor.has_storage() ? tensor.storage().unsafeGetStorageImpl()
                                                  : nullptr;
}

// Whether the operation only makes another view of what it gets. One that may copy as well calls a
// further operation for that.
bool only_makes_views(const at::RecordFunction& function) {
  const auto schema = function.operator_schema();
  if (!schema || schema->returns().empty()) return false;
  const auto* alias = schema->returns().front().alias_info();
  return alias != nullptr && !alias->isWrite();
}

}  // namespace

struct GatherOnUse::Observer {
  static std::unique_ptr<at::ObserverContext> begin(const at::RecordFunction& function) {
    auto* const gathering = current != nullptr ? current : on_gpu.current.load();
    if (gathering == nullptr || !gathering->needs_units(function)) return nullptr;
    const at::DisableRecordFunctionGuard no_observer;
    try {
      gathering->use(gathering->needed_);
    } catch (const std::exception&) {
      note_failure(current != nullptr);
    }
    return nullptr;
  }
};

GatherOnUse::GatherOnUse(std::vector<ParameterUnit>& units, std::shared_ptr<ProcessGroup> group)
    : units_(units), group_(std::move(group)), places_(units.size()) {
  for (size_t u = 0; u < units_.size(); ++u)
    for (const auto& flat : units_[u].flats) {
      unit_of_[flat->storage()] = u;
      flat->drop();
    }
  current = this;
  if (!units_.empty() && !units_.front().flats.empty() &&
      units_.front().flats.front()->shard().is_cuda())
    on_gpu.current = this;
  handle_ = at::addThreadLocalCallback(at::RecordFunctionCallback(&Observer::begin)
                                           .needsInputs(true)
                                           .scopes({at::RecordScope::FUNCTION}));
}

GatherOnUse::~GatherOnUse() { forget(); }

void GatherOnUse::forget() {
  if (std::exchange(current, nullptr) != nullptr) at::removeCallback(handle_);
  auto* own = this;
  on_gpu.current.compare_exchange_strong(own, nullptr);
}

// Whether an operation reads units that are not here, or others than the last one did. Notes them.
bool GatherOnUse::needs_units(const at::RecordFunction& function) {
  needed_.clear();
  const auto look = [&](const torch::Tensor& tensor) {
    const auto found = unit_of_.find(storage_key(tensor));
    if (found != unit_of_.end() &&
        std::find(needed_.begin(), needed_.end(), found->second) == needed_.end())
      needed_.push_back(found->second);
  };
  for (const auto& value : function.inputs()) {
    if (value.isTensor()) {
      look(value.toTensor());
    } else if (value.isTensorList()) {
      for (const torch::Tensor& tensor : value.toTensorVector()) look(tensor);
    } else if (value.isOptionalTensorList()) {
      for (const auto& tensor : value.toOptionalTensorVector())
        if (tensor) look(*tensor);
    }
  }
  if (needed_.empty()) return false;
  const bool all_here = std::all_of(needed_.begin(), needed_.end(),
                                    [&](size_t unit) { return places_[unit].is_here; });
  if (all_here && needed_.size() == 1 && needed_[0] == last_) return false;
  return all_here || !only_makes_views(function);
}

void GatherOnUse::use(const std::vector<size_t>& units) {
  std::vector<size_t> wanted = units;
  std::sort(wanted.begin(), wanted.end());
  for (const auto unit : wanted)
    if (!places_[unit].is_here && places_[unit].pending.empty()) start(unit);
  for (const auto unit : wanted) finish(unit);
  for (size_t other = 0; other < units_.size() && !keeps_all_; ++other)
    if (places_[other].is_here && !units_[other].stays &&
        std::find(wanted.begin(), wanted.end(), other) == wanted.end())
      drop(other);
  if (wanted.size() == 1) prefetch_after(wanted.front());
}

// Forward passes go up, backward passes down.
void GatherOnUse::prefetch_after(size_t unit) {
  if (std::exchange(last_, unit) == unit || units_[unit].stays) return;
  const bool is_backward = torch::autograd::get_current_graph_task_id() != -1;
  const auto next = is_backward ? unit - 1 : unit + 1;
  if (next >= units_.size() || units_[next].stays || places_[next].is_here ||
      !places_[next].pending.empty())
    return;
  start(next);
}

void GatherOnUse::start(size_t unit) {
  order_ = int64_t((uint64_t(order_) * 1000003U + unit + 1) & 0x7fffffffffffffU);
  for (const auto& flat : units_[unit].flats)
    places_[unit].pending.push_back(flat->start_gather(*group_));
}

void GatherOnUse::finish(size_t unit) {
  for (auto& pending : places_[unit].pending) pending.wait();
  places_[unit].pending.clear();
  places_[unit].is_here = true;
}

void GatherOnUse::drop(size_t unit) {
  for (const auto& flat : units_[unit].flats) flat->drop();
  places_[unit].is_here = false;
}

void GatherOnUse::drop_all() {
  keeps_all_ = false;
  for (size_t unit = 0; unit < units_.size(); ++unit) {
    if (!places_[unit].pending.empty()) finish(unit);
    if (places_[unit].is_here) drop(unit);
  }
  last_ = 0;
}

void GatherOnUse::gather_all() {
  const at::DisableRecordFunctionGuard no_observer;
  keeps_all_ = true;
  for (size_t unit = 0; unit < units_.size(); ++unit)
    if (!places_[unit].is_here && places_[unit].pending.empty()) start(unit);
  for (size_t unit = 0; unit < units_.size(); ++unit) finish(unit);
}

std::exception_ptr GatherOnUse::take_failure() {
  if (failure) return std::exchange(failure, nullptr);
  const std::scoped_lock lock(on_gpu.mutex);
  return std::exchange(on_gpu.failure, nullptr);
}

int64_t GatherOnUse::take_order() { return std::exchange(order_, 0); }

}  // namespace gradus
