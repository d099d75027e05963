// What goes wrong in a run: it is said, and steps whose loss has a spike are skipped, or gone back
// on and left out (--spike_action).
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>

#include <cmath>

#include "device/nvml.h"
#include "train/kept_state.h"
#include "train/rows_of_batches.h"
#include "train/saved_callbacks.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

// After so many steps in a row a loss that is high but finite is no bad row.
constexpr int64_t kMostInARow = 8;
// A run that may have to go back looks after so many steps, and at the end of a pass.
constexpr size_t kMostToRepeat = 256;

std::vector<torch::Tensor> tensors_of(torch::nn::Module& model) {
  auto all = model.parameters();
  for (const auto& buffer : model.buffers()) all.push_back(buffer);
  return all;
}

std::string usual_losses(const LossWatch::Spike& spike) {
  // Not a number may also be the norm.
  if (std::isnan(spike.loss)) return "or its gradient is not finite";
  if (!std::isfinite(spike.loss)) return fmt::format("is {}", spike.loss);
  return fmt::format("is {:.4g}, the last steps had {:.4g} ± {:.2g}", spike.loss, spike.usual,
                     spike.deviation);
}

}  // namespace

void check_spike_action(const TrainingArguments& args, const Processes& processes) {
  if (args.spike_action != "none" && processes.size() > 1)
    throw Error("G-TRAIN-24", ErrorKind::usage,
                fmt::format("spike_action {} is for one process; there are {}", args.spike_action,
                            processes.size()),
                "Leave --spike_action out: spikes are said all the same.");
}

std::string Trainer::Parts::describe_step(const LossWatch::Spike& spike) const {
  const auto [epoch, batch] = spike.place;
  const auto rows = rows_of_batches(run->loader, epoch, batch, args.gradient_accumulation_steps,
                                    run->plan.steps_in_epoch);
  auto said = fmt::format("batch {} of pass {}", batch, epoch);
  if (!rows.empty()) said += fmt::format(" (rows {})", fmt::join(rows, ", "));
  return said;
}

// With a scaler a norm that is not finite is usual at first, and the scaler leaves its step out.
std::optional<torch::Tensor> Trainer::Parts::watched_norm() {
  if (args.spike_action == "none" || engine.precision().scaler() != nullptr) return std::nullopt;
  auto norm = engine.clip();
  run->spikes.add_norm(norm);
  return norm;
}

// Whether the update of the step under way is left out.
bool Trainer::Parts::skips_update() {
  if (args.spike_action != "skip") return false;
  const auto first = run->batches_done - run->window;
  const auto in_a_row = run->spikes.taken_in_a_row();
  const auto spike = run->spikes.take_current({run->epoch, first});
  if (!spike) return false;
  if (in_a_row >= kMostInARow && std::isfinite(spike->loss)) {
    log_warning(
        fmt::format("Step {} is not skipped: its loss {}, and so were the {} before it. The "
                    "run goes on with what is usual now.",
                    state.global_step + 1, usual_losses(*spike), in_a_row));
    run->spikes.begin_anew();
    return false;
  }
  log_warning(fmt::format("Step {} is skipped: its loss {}. It was {}.", state.global_step + 1,
                          usual_losses(*spike), describe_step(*spike)));
  run->loss.replace_since_mark(state.global_step - run->last_logged_step);
  engine.zero_grad();
  return true;
}

// A step that is left out counts, and does nothing.
bool Trainer::Parts::leaves_out_step() {
  if (!run->spikes.left_out().contains({run->epoch, run->batches_done})) return false;
  run->loss.mark();
  run->loss.replace_since_mark(state.global_step - run->last_logged_step);
  run->batches_done += run->window;
  run->has_left_out = true;
  return true;
}

// Whether the run has gone back to the state that was kept.
bool Trainer::Parts::look_for_spikes() {
  const bool goes_back = args.spike_action == "rollback";
  // A look waits for the device. One after a step that is left out lets the next return, which may
  // soon follow, begin there.
  const bool is_due =
      control.should_log || control.should_evaluate || control.should_save ||
      control.should_training_stop || run->spikes.is_full() ||
      (goes_back && (run->spikes.pending() >= kMostToRepeat || run->has_left_out ||
                     run->at_epoch_end || run->batches_done == run->plan.steps_in_epoch));
  return is_due && look_now();
}

bool Trainer::Parts::look_at_end_of_data() {
  return args.spike_action == "rollback" && run->spikes.pending() > 0 && look_now() &&
         !control.is_interrupted;
}

bool Trainer::Parts::is_new_level(const LossWatch::Spike& spike) const {
  return std::isfinite(spike.loss) &&
         run->spikes.left_out_before(spike.place, args.gradient_accumulation_steps) >= kMostInARow;
}

bool Trainer::Parts::look_now() {
  run->has_looked = true;
  run->has_left_out = false;
  const bool may_return = args.spike_action == "rollback" && run->kept && !run->at_epoch_end;
  const auto spike = may_return ? run->spikes.look() : run->spikes.look_and_go_on();
  if (!spike) return false;
  if (may_return && !is_new_level(*spike)) {
    go_back(*spike);
    return true;
  }
  const bool is_first = !std::exchange(run->has_said_spike, true);
  if (may_return) {
    log_warning(
        fmt::format("The loss of {} {}. It is not left out, as the {} steps before it were: "
                    "the run goes on with what is usual now.",
                    describe_step(*spike), usual_losses(*spike), kMostInARow));
    run->spikes.begin_anew();
  } else if (is_first) {
    log_warning(
        fmt::format("The loss of {} {}. Look at these rows; --spike_action rollback leaves "
                    "them out, a lower --learning_rate or --max_grad_norm may help.",
                    describe_step(*spike), usual_losses(*spike)));
  }
  return false;
}

void Trainer::Parts::watch_log(const Logs& logs) {
  run->monitor.logged(logs, run->loss.filtered(), wall_clock());
  if (!engine.device().is_cuda()) return;
  if (const auto use = device::gpu_use(engine.device().index()))
    run->monitor.gpu_is_busy(use->percent);
}

void Trainer::Parts::watch_save(double began) {
  const double now = wall_clock();
  run->monitor.waited_for_save(now - began, now);
  if (!args.should_save() || !run->saved_step) return;
  const auto last = checkpoint_path(*args.output_dir, *run->saved_step);
  std::error_code error;
  const auto space = std::filesystem::space(*args.output_dir, error);
  if (!error) run->monitor.disk_has(space.available, folder_bytes(last), *args.output_dir);
}

void Trainer::Parts::keep_state() {
  if (args.spike_action != "rollback" || !run->has_looked) return;
  run->has_looked = false;
  if (!run->kept) run->kept = std::make_unique<KeptState>();
  auto& kept = *run->kept;
  const auto float32 = engine.shown();
  auto& buffers = kept.buffers;
  buffers.begin();
  kept.weights.clear();
  for (const auto& tensor : tensors_of(model->named_module()))
    kept.weights.push_back(buffers.copy(tensor));
  kept.optimizer = buffers.copy(optimizer_state());
  kept.schedule = engine.schedule()->state_dict();
  const auto* scaler = engine.precision().scaler();
  kept.scaler = scaler != nullptr ? std::optional(scaler->state_dict()) : std::nullopt;
  kept.random = run->rng ? *run->rng : random_state();
  run->store_flos(state, processes);
  kept.state = state;
  kept.saved = run->saved_state(*this);
}

void Trainer::Parts::go_back(const LossWatch::Spike& spike) {
  auto& kept = *run->kept;
  log_warning(fmt::format(
      "The loss of {} {}. The run goes back from step {} to step {} and leaves "
      "this batch out.",
      describe_step(spike), usual_losses(spike), state.global_step, kept.state.global_step));
  engine.end();
  {
    const torch::NoGradGuard no_grad;
    const auto tensors = tensors_of(model->named_module());
    for (size_t i = 0; i < tensors.size(); ++i) tensors[i].detach().copy_(kept.weights[i]);
  }
  SnapshotBuffers own;  // the optimizer keeps what it is given
  const auto saved_optimizer = own.copy(kept.optimizer);
  engine.optimizer()->load_state_dict(saved_optimizer);
  if (const auto* tensors = saved_optimizer.find("gradus_callbacks"))
    load_callback_tensors(callbacks.all(), *tensors);
  engine.schedule()->load_state_dict(kept.schedule);
  if (kept.scaler) engine.precision().scaler()->load_state_dict(*kept.scaler);
  const auto left_out = run->spikes.left_out();
  state = kept.state;
  run->new_flos = 0;
  run->restore_saved_state(kept.saved, *this);
  run->ended_by_callback = false;
  run->has_looked = run->has_left_out = false;  // the state that is kept stays
  run->spikes.set_left_out(left_out);
  run->spikes.leave_out(spike.place);
  run->rng = kept.random;
  engine.begin(model->named_module(), run->step_options);
  engine.zero_grad();
  const bool saves = control.is_interrupted && control.should_save;
  control.new_step();
  control.should_save = saves;
  control.should_epoch_stop = false;
  control.should_training_stop = control.is_interrupted;
  run->epoch = run->first_epoch;
  run->begin_pass();
}

}  // namespace gradus
