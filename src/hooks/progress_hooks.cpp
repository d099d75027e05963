#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/hooks/progress_hooks.h>
#include <gradus/hooks/trainer.h>

#include <fmt/format.h>

namespace gradus::hooks {

ProgressBarHook::ProgressBarHook(int64_t freq) : freq_(freq) {
  ord = 5;
  if (freq < 1)
    throw Error("G-HOOK-1", ErrorKind::usage,
                fmt::format("ProgressBarHook: freq: expected at least 1, received {}", freq),
                "10 shows the loss every 10 batches.");
}

void ProgressBarHook::before_fit(Trainer& trainer) {
  trainer.at_end_of_fit([this] { bar_.reset(); });
}

void ProgressBarHook::before_epoch(Trainer& trainer) {
  start(trainer, "Train",
        trainer.start_epoch() == trainer.step_state().epoch ? trainer.step_state().batch_idx : 0);
}
void ProgressBarHook::before_valid(Trainer& trainer) { start(trainer, "Valid", 0); }

void ProgressBarHook::start(Trainer& trainer, const char* phase, int64_t done) {
  bar_.reset();  // the bar before ends its line first
  const auto& state = trainer.step_state();
  const int64_t window = trainer.training() ? state.grad_accum_steps : 1;
  const auto steps = [window](int64_t batches) { return (batches + window - 1) / window; };
  bar_ = std::make_unique<ProgressBar>(ProgressBarOptions{
      .total = steps(trainer.dl().size().value_or(0)),
      .initial = steps(done),
      .description = fmt::format("Epoch {}/{} [{}]", state.epoch + 1, trainer.epochs(), phase)});
  loss_sum_ = torch::Tensor();
  count_ = 0;
}

void ProgressBarHook::after_step(Trainer& trainer) {
  if (!trainer.training() || trainer.did_opt_step()) bar_->update();
  if (!trainer.loss_t().defined()) return;
  const auto loss = trainer.loss_t().detach().to(torch::kDouble).reshape({});
  loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss : loss.clone();
  if (count_++ % freq_ == 0)
    bar_->set_postfix(fmt::format("loss={:.4f}", loss_sum_.item<double>() / double(count_)));
}

void ProgressBarHook::after_epoch(Trainer&) { bar_.reset(); }
void ProgressBarHook::after_fit(Trainer&) { bar_.reset(); }

MemoryProfilerHook::MemoryProfilerHook(MemoryProfilerOptions options)
    : options_(std::move(options)) {
  ord = 100;
  if (options_.dump_every < 1 || options_.max_entries < 1)
    throw Error("G-HOOK-1", ErrorKind::usage,
                fmt::format("MemoryProfilerHook: expected dump_every and max_entries of at least "
                            "1, received {} and {}",
                            options_.dump_every, options_.max_entries),
                "The defaults are 200 and 100000.");
}

void MemoryProfilerHook::before_fit(Trainer& trainer) {
  enabled_ = trainer.device().is_cuda();
  history_.clear();
  if (!enabled_)
    return log_warning("MemoryProfilerHook: the model is not on a GPU. The hook does nothing.");
  make_directory(options_.save_dir);
  device::reset_peak_memory(trainer.device());
}

void MemoryProfilerHook::after_step(Trainer& trainer) {
  if (!enabled_ || !trainer.training()) return;
  const auto use = device::memory_use(trainer.device());
  const auto step = trainer.step_state().optimizer_step;
  history_.push_back({step, use.allocated, use.peak});
  if (int64_t(history_.size()) >= 2 * options_.max_entries)
    history_.erase(history_.begin(), history_.end() - options_.max_entries);
  if (trainer.did_opt_step() && step % options_.dump_every == 0)
    dump(trainer, fmt::format("step_{}", step));
}

void MemoryProfilerHook::after_cancel(Trainer& trainer) {
  if (std::exchange(enabled_, false)) dump(trainer, "interrupted");
}

void MemoryProfilerHook::after_fit(Trainer& trainer) {
  if (std::exchange(enabled_, false)) dump(trainer, "final");
}

void MemoryProfilerHook::dump(Trainer& trainer, const std::string& label) const {
  const auto use = device::memory_use(trainer.device());
  auto history = nlohmann::json::array();
  const auto kept = std::min<int64_t>(int64_t(history_.size()), options_.max_entries);
  for (auto entry = history_.end() - kept; entry != history_.end(); ++entry)
    history.push_back({entry->step, entry->allocated, entry->peak});
  const auto file = options_.save_dir / ("snapshot_" + label + ".json");
  const nlohmann::json snapshot = {{"device", trainer.device().str()},
                                   {"allocated", use.allocated},
                                   {"peak", use.peak},
                                   {"history", history}};
  write_file_atomically(file, dump_json(snapshot) + "\n");
  log_info("Memory snapshot saved: " + file.string());
}

}  // namespace gradus::hooks
