#include "engine/step_graphs.h"

#include <ATen/ops/_foreach_copy.h>
#include <fmt/format.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>

#include "engine/recorded_batch.h"

namespace gradus {
namespace {

constexpr size_t kMostGraphs = 128;

// One line of an exception, without the trace torch adds.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

StepGraphs::StepGraphs(std::vector<torch::Tensor> holders, torch::Device device, Watch watch)
    : holders_(std::move(holders)), device_(device), watch_(watch) {}

size_t StepGraphs::recorded() const {
  size_t count = 0;
  for (const auto& [key, entry] : entries_) count += entry.graph != nullptr;
  return count;
}

bool StepGraphs::has_gradients() const {
  for (const auto& holder : holders_)
    if (holder.grad().defined()) return true;
  return false;
}

void StepGraphs::drop_gradients() {
  for (const auto& holder : holders_) holder.mutable_grad().reset();
}

void StepGraphs::give_up(const std::string& why) {
  reason_ = first_line(why);
  entries_.clear();
  log_warning("CUDA graphs are not used in this run: " + reason_);
}

StepGraphs::Key StepGraphs::key_of(const Batch& inputs,
                                   const std::optional<torch::Tensor>& num_items, int64_t window,
                                   const std::optional<Update>& update) const {
  Key key{{}, has_gradients()};
  key.text = fmt::format("{}{}{}{}", window, key.adds ? "+" : "", num_items ? "n" : "",
                         update ? update->kind : "");
  key.text += shape_text(inputs);
  return key;
}

StepGraphs::Result StepGraphs::run(const Batch& inputs,
                                   const std::optional<torch::Tensor>& num_items, int64_t window,
                                   const Work& work, const std::optional<Update>& update) {
  if (!reason_.empty()) return {work(inputs, num_items)};
  const auto key = key_of(inputs, num_items, window, update);
  auto& entry = entries_[key.text];
  if (entry.graph) return replay(entry, inputs, num_items, key.adds);
  ++entry.seen;
  // The first graph decides where gradients lie; micro-batches that add to them come after it.
  const int64_t plain = grads_.empty() ? 2 : 1;  // libraries set themselves up in the very first
  const bool too_early = entry.seen <= plain || (key.adds && grads_.empty());
  if (too_early || recorded() >= kMostGraphs)
    return {entry.seen == plain && !key.adds && watch_ == Watch::on
                ? run_watched(inputs, num_items, work)
                : work(inputs, num_items)};
  try {
    record(entry, inputs, num_items, key.adds, work, update);
  } catch (const std::exception& error) {
    if (!key.adds) drop_gradients();
    give_up(error.what());
    return {work(inputs, num_items)};
  }
  return replay(entry, inputs, num_items, key.adds);
}

torch::Tensor StepGraphs::run_watched(const Batch& inputs,
                                      const std::optional<torch::Tensor>& num_items,
                                      const Work& work) {
  const auto random = device::get_gpu_rng_states();
  const auto cpu_random = device::get_cpu_rng_state();
  try {
    const auto alarm = device::sync_alarm();
    return work(inputs, num_items);
  } catch (const c10::Error& error) {
    if (std::string(error.what()).find("synchronizing CUDA operation") == std::string::npos) throw;
    drop_gradients();
    device::set_gpu_rng_states(random);
    device::set_cpu_rng_state(cpu_random);
    give_up("the model or the loss makes the host wait for the GPU (it reads a value from it)");
  }
  return work(inputs, num_items);
}

// Of work that did not start with the gradients in their places: brings them there.
void StepGraphs::move_gradients() {
  std::vector<torch::Tensor> from, to;
  for (size_t i = 0; i < holders_.size(); ++i) {
    auto& grad = holders_[i].mutable_grad();
    if (grad.defined() && !grads_[i].defined())
      throw std::runtime_error("a parameter has a gradient for some shapes of batches only");
    if (grad.defined() && grad.data_ptr() == grads_[i].data_ptr()) {
      // a strategy has brought it there
    } else if (grad.defined()) {
      from.push_back(grad);
      to.push_back(grads_[i]);
    } else if (grads_[i].defined()) {
      grads_[i].zero_();
    }
    grad = grads_[i];
  }
  if (!from.empty()) at::_foreach_copy_(to, from);
}

void StepGraphs::record(Entry& entry, const Batch& inputs,
                        const std::optional<torch::Tensor>& num_items, bool adds, const Work& work,
                        const std::optional<Update>& update) {
  const bool is_first = grads_.empty();
  if (is_first)
    device::empty_cache(device_);  // what plain steps cached is of no use to the graphs' pool
  entry.inputs = clone_of(inputs);
  if (num_items) entry.num_items = num_items->clone();
  if (!norm_.defined()) norm_ = torch::zeros({}, torch::dtype(torch::kFloat).device(device_));
  // Adding happens in place; all other work starts without gradients and leaves them in `grads_`.
  if (adds)
    for (size_t i = 0; i < holders_.size(); ++i) holders_[i].mutable_grad() = grads_[i];
  entry.graph = device::capture([&] {
    entry.result.loss = work(entry.inputs, entry.num_items);
    const torch::NoGradGuard no_grad;
    if (!is_first && !adds) move_gradients();
    if (update) entry.result.norm = norm_.copy_(update->run());
  });
  if (is_first)
    for (const auto& holder : holders_) grads_.push_back(holder.grad());
  log_info(fmt::format("Recorded a CUDA graph for a micro-batch of {} rows{} ({} in all).",
                       inputs.rows(), update ? ", clipping and the optimizer's step" : "",
                       recorded()));
}

StepGraphs::Result StepGraphs::replay(Entry& entry, const Batch& inputs,
                                      const std::optional<torch::Tensor>& num_items, bool adds) {
  const torch::NoGradGuard no_grad;
  std::vector<torch::Tensor> from, to;
  for (const auto& [name, value] : inputs) {
    if (!value.defined()) continue;
    from.push_back(value);
    to.push_back(entry.inputs[name]);
  }
  for (size_t i = 0; i < from.size(); ++i) to[i].copy_(from[i], /*non_blocking=*/true);
  if (num_items) entry.num_items->copy_(*num_items, /*non_blocking=*/true);
  if (adds) {
    // Plain work before this one may have left the gradients elsewhere.
    for (size_t i = 0; i < holders_.size(); ++i) {
      auto& grad = holders_[i].mutable_grad();
      if (!grads_[i].defined() || grad.is_same(grads_[i])) continue;
      if (!grad.defined())
        grads_[i].zero_();
      else if (grad.data_ptr() != grads_[i].data_ptr())
        grads_[i].copy_(grad);
      grad = grads_[i];
    }
  }
  entry.graph->replay();
  if (!adds)
    for (size_t i = 0; i < holders_.size(); ++i) holders_[i].mutable_grad() = grads_[i];
  return entry.result;
}

}  // namespace gradus
