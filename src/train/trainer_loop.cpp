// train(): the loop, and what happens before, at and after a step of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/optimizer_kernels.h>
#include <gradus/optim/clip.h>
#include <gradus/train/callbacks.h>

#include <chrono>
#include <cmath>
#include <set>

#include "train/resume.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

double rounded(double value, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

}  // namespace

bool is_interrupted(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks) {
  for (const auto& callback : callbacks)
    if (const auto* interrupt = dynamic_cast<const InterruptCallback*>(callback.get());
        interrupt != nullptr && interrupt->received() != 0)
      return true;
  return false;
}

std::vector<torch::Tensor> Trainer::Parts::find_bystanders() const {
  std::set<const c10::TensorImpl*> known;
  for (const auto& parameter : all_parameters(*optimizer))
    known.insert(parameter.unsafeGetTensorImpl());
  std::vector<torch::Tensor> others;
  for (const auto& [name, parameter] : trainable_parameters(model->named_module()))
    if (!known.contains(parameter.unsafeGetTensorImpl())) others.push_back(parameter);
  return others;
}

std::vector<torch::Tensor> Trainer::Parts::find_clipped() const {
  std::vector<torch::Tensor> found;
  std::set<const c10::TensorImpl*> known;
  const auto take = [&](const torch::Tensor& parameter) {
    if (known.insert(parameter.unsafeGetTensorImpl()).second) found.push_back(parameter);
  };
  for (const auto& [name, parameter] : trainable_parameters(model->named_module())) take(parameter);
  for (const auto& parameter : all_parameters(*optimizer)) take(parameter);
  return found;
}

void Trainer::Parts::zero_grad() {
  optimizer->zero_grad();
  for (const auto& parameter : bystanders) parameter.mutable_grad().reset();
}

void Trainer::Parts::add_counts(Metrics& metrics) const {
  metrics["epoch"] = state.epoch;
  if (args.include_num_input_tokens_seen != "no")
    metrics["num_input_tokens_seen"] = double(state.num_input_tokens_seen);
}

void draw_as_a_loader_does() { torch::empty({}, torch::kLong).random_(); }

double wall_clock() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

Metrics speed_metrics(const std::string& split, double start_time, std::optional<double> samples,
                      std::optional<double> steps, std::optional<double> tokens) {
  const double runtime = wall_clock() - start_time;
  Metrics metrics{{split + "_runtime", rounded(runtime, 4)}};
  if (runtime == 0) return metrics;
  if (samples) metrics[split + "_samples_per_second"] = rounded(*samples / runtime, 3);
  if (steps) metrics[split + "_steps_per_second"] = rounded(*steps / runtime, 3);
  if (tokens) metrics[split + "_tokens_per_second"] = rounded(*tokens / runtime, 3);
  return metrics;
}

TrainOutput Trainer::train(Resume resume) {
  auto& p = *parts_;
  const MemoryTracker::Stage measured(p.memory, "train");
  const auto checkpoint = prepare_training(resume);
  p.is_in_train = true;
  for (;;) {
    try {
      return training_loop(checkpoint);
    } catch (const std::exception& error) {
      const bool ran_out = device::is_out_of_memory(error);
      const auto smaller = int64_t(double(p.train_batch_size) * 0.9);
      if (!ran_out || !p.args.auto_find_batch_size || smaller == 0) {
        end_failed_run(error.what());
        if (ran_out && p.args.auto_find_batch_size)
          throw Error("G-TRAIN-10", ErrorKind::training,
                      "no executable batch size found: memory ran out even with a batch size of 1",
                      "Use a smaller model, shorter sequences, or --gradient_checkpointing.");
        if (ran_out && p.device.is_cuda()) throw out_of_memory_error(p.device, error.what());
        throw;
      }
      end_device_run();
      if (p.optimizer) p.zero_grad();
      p.train_batch_size = smaller;
    } catch (...) {
      end_failed_run("an exception that is not a std::exception");
      throw;
    }
  }
}

// The model as this run wants it, with the weights of the checkpoint to go on from; its path, or
// none.
std::filesystem::path Trainer::prepare_training(const Resume& resume) {
  auto& p = *parts_;
  if (p.model_init) {
    device::seed_all(p.args.seed);
    p.model = make_initial_model(p.model_init);
    p.optimizer = nullptr;
    p.lr_scheduler = nullptr;
  }
  p.model->to(p.device);
  p.model_prepared = true;
  if (p.args.gradient_checkpointing)
    p.model->gradient_checkpointing_enable(
        GradientCheckpointing::from_kwargs(p.args.gradient_checkpointing_kwargs));
  if (p.processing_class) p.model->align_special_tokens(*p.processing_class);
  const auto checkpoint = resolve_resume(resume, *p.args.output_dir);
  if (!checkpoint.empty()) {
    load_weights(checkpoint);
    const auto saved = TrainerState::load_from_json(checkpoint / "trainer_state.json");
    if (saved.train_batch_size && p.args.auto_find_batch_size)
      p.train_batch_size = *saved.train_batch_size;
  }
  if (p.args.neftune_noise_alpha) p.model->set_embedding_noise(*p.args.neftune_noise_alpha);
  return checkpoint;
}

// After an exception: the model is itself again, what was being saved is on disk, and the callbacks
// know. Whatever fails here is only said, for the caller wants the first failure.
void Trainer::end_failed_run(const std::string& reason) {
  auto& p = *parts_;
  p.is_in_train = false;
  end_device_run();
  if (p.args.neftune_noise_alpha) p.model->set_embedding_noise(std::nullopt);
  try {
    wait_for_saves();
  } catch (const std::exception& error) {
    log_error(error.what());
  }
  try {
    call(Event::train_end, {}, {}, reason);
  } catch (const std::exception& error) {
    log_error(std::string("A callback failed in on_train_end, after the run had failed: ") +
              error.what());
  }
}

// The loop. docs: ARCHITECTURE.md draws it with every event.
TrainOutput Trainer::training_loop(const std::filesystem::path& checkpoint) {
  auto& p = *parts_;
  const auto run = begin_run(checkpoint);
  {
    const MasterWeights::Shown float32(
        p.masters.get());  // callbacks that take hold of the weights here get what is trained
    call(Event::train_begin);
  }
  if (p.args.eval_on_start) evaluate_in_training(/*step_scheduler=*/false);
  const bool is_over = run->ended_by_callback ||
                       p.state.global_step >= run->plan.max_steps;  // resumed after its last step
  p.control.should_training_stop |= is_over;

  for (run->epoch = run->first_epoch; run->epoch < run->plan.num_train_epochs; ++run->epoch) {
    call(Event::epoch_begin);
    begin_epoch(*run);
    while (!is_over) {
      const auto window = next_window(*run);
      if (window.empty()) break;
      const auto num_items_in_batch = get_num_items_in_batch(window);
      for (const auto& batch : window) {
        if (run->batches_done % p.args.gradient_accumulation_steps == 0) call(Event::step_begin);
        const auto loss =
            run_training_step(batch, num_items_in_batch,
                              run->window_will_be_complete(p.args.gradient_accumulation_steps));
        ++run->batches_done;
        count_step(*run, batch, loss);
        if (run->window_is_complete(p.args.gradient_accumulation_steps)) break;
        call(Event::substep_end);
        if (p.control.should_epoch_stop || p.control.should_training_stop) break;
      }
      if (!run->window_is_complete(p.args.gradient_accumulation_steps))
        break;  // data ended or a stop was asked for inside a window

      run->grad_norm = clip_gradients();
      call(Event::pre_optimizer_step);
      step_optimizer();
      call(Event::optimizer_step);
      step_scheduler(*run);
      p.zero_grad();
      p.state.global_step += 1;
      p.state.epoch =
          double(run->epoch) + double(run->batches_done) / double(run->plan.steps_in_epoch);
      call(Event::step_end);
      act_on_control(*run);  // log, evaluate, save, in this order
      if (p.control.should_epoch_stop || p.control.should_training_stop) break;
    }
    p.zero_grad();  // of a window that was left unfinished
    if (is_interrupted(p.callbacks)) break;
    end_epoch(*run);
    if (p.control.should_training_stop) break;
  }
  return finish_run(*run);
}

std::unique_ptr<Trainer::Run> Trainer::begin_run(const std::filesystem::path& checkpoint) {
  auto& p = *parts_;
  auto run = std::make_unique<Run>(p.device);
  run->loader = p.train_loader = get_train_dataloader();
  run->plan = plan_training(p.args, run->loader, p.train_batch_size);
  const auto& plan = run->plan;

  p.state = TrainerState();
  p.current_flos = 0;
  p.state.is_world_process_zero = p.state.is_local_process_zero = is_world_process_zero();
  if (std::exchange(p.created_lr_scheduler, false))
    p.lr_scheduler = nullptr;  // its length may differ this time
  create_optimizer_and_scheduler(plan.max_steps);
  if (!p.optimizer || !p.lr_scheduler)
    throw Error("G-TRAIN-5", ErrorKind::usage,
                fmt::format("create_optimizer_and_scheduler made no {}",
                            p.optimizer ? "schedule" : "optimizer"),
                "Call set_optimizer and set_lr_scheduler where you override it.");
  p.scaler.reset();
  if (p.autocast_dtype == torch::kHalf) p.scaler.emplace(p.device);
  p.export_callback_states();
  if (!checkpoint.empty()) restore_run(*run, checkpoint);
  begin_device_run(*run);
  p.bystanders = p.find_bystanders();
  p.parameters = p.find_clipped();
  p.state.train_batch_size = p.train_batch_size;
  p.state.max_steps = plan.max_steps;
  p.state.num_train_epochs = plan.num_train_epochs;
  p.state.compute_steps(p.args, plan.max_steps);

  log_info("***** Running training *****");
  log_info(fmt::format("  Num examples = {}", plan.num_examples));
  log_info(fmt::format("  Num Epochs = {}", plan.num_train_epochs));
  log_info(fmt::format("  Num update steps per epoch = {}", plan.num_update_steps_per_epoch));
  log_info(fmt::format("  Instantaneous batch size per device = {}", p.train_batch_size));
  log_info(fmt::format("  Total train batch size (w. parallel, distributed & accumulation) = {}",
                       plan.total_train_batch_size));
  log_info(fmt::format("  Gradient Accumulation steps = {}", p.args.gradient_accumulation_steps));
  log_info(fmt::format("  Total optimization steps = {}", plan.max_steps));
  log_info(fmt::format("  Number of trainable parameters = {}", num_trainable_parameters()));
  if (!checkpoint.empty())
    log_info(fmt::format("  Continuing from {} at epoch {}, step {}, batch {} of the pass",
                         checkpoint.string(), run->first_epoch, p.state.global_step,
                         run->skip_batches));

  run->start_time = wall_clock();
  run->initial_global_step = p.state.global_step;
  p.initial_num_input_tokens_seen = p.state.num_input_tokens_seen;
  p.zero_grad();
  return run;
}

void Trainer::begin_epoch(Run& run) {
  const auto skip = std::exchange(run.skip_batches, 0);
  const auto state = std::exchange(run.loader_state, nullptr);
  if (run.rng && skip == 0) restore_rng(*std::exchange(run.rng, std::nullopt));
  draw_as_a_loader_does();
  run.batches.emplace(run.loader.iterate(run.epoch, skip, state));
  run.batches_done = skip;
  run.at_epoch_end = false;
  if (skip > 0)
    return;  // a resumed pass may end without a further step: its log still wants these two
  run.grad_norm.reset();
  run.learning_rate.reset();
}

std::vector<Batch> Trainer::next_window(Run& run) {
  const auto wanted = std::min(parts_->args.gradient_accumulation_steps,
                               run.plan.steps_in_epoch - run.batches_done);
  std::vector<Batch> window;
  window.reserve(size_t(std::max<int64_t>(wanted, 0)));
  while (int64_t(window.size()) < wanted) {
    auto batch = run.batches->next();
    if (!batch) break;
    window.push_back(std::move(*batch));
  }
  parts_->current_window = int64_t(window.size());
  if (run.rng) restore_rng(*std::exchange(run.rng, std::nullopt));
  return window;
}

void Trainer::count_step(Run& run, const Batch& batch, const torch::Tensor& loss) {
  auto& p = *parts_;
  run.loss.add(loss, p.args.logging_nan_inf_filter, p.state.global_step - run.last_logged_step);
  p.current_flos += floating_point_ops(batch);
  if (p.args.include_num_input_tokens_seen != "no")
    p.state.num_input_tokens_seen += count_input_tokens(batch);
}

torch::Tensor Trainer::clip_gradients() {
  auto& p = *parts_;
  if (p.replayed_norm) return *p.replayed_norm;
  if (p.scaler) p.scaler->unscale_(*p.optimizer);
  if (p.device.is_cuda() && kernels::have_cuda_kernels()) {
    std::vector<torch::Tensor> grads;
    for (const auto& parameter : p.parameters)
      if (parameter.grad().defined()) grads.push_back(parameter.grad());
    const auto norm = kernels::grad_norm(grads);
    if (p.args.max_grad_norm > 0)
      p.clipping.clip(p.parameters, kernels::clip_coefficient(norm, p.args.max_grad_norm),
                      p.callbacks);
    return norm;
  }
  return p.args.max_grad_norm > 0 ? clip_grad_norm_(p.parameters, p.args.max_grad_norm)
                                  : grad_norm(p.parameters);
}

void Trainer::step_optimizer() {
  auto& p = *parts_;
  if (std::exchange(p.replayed_norm, std::nullopt)) return;
  StepContext context;
  context.clip_coef = p.clipping.settle(p.parameters, p.callbacks);
  if (p.device_schedule) context.lr = p.device_schedule->rates();
  if (p.scaler) {
    p.scaler->step(*p.optimizer, context);
    p.scaler->update();
  } else {
    p.optimizer->step(context);
  }
  if (p.device_schedule)
    p.device_schedule->step(p.scaler ? std::optional(p.scaler->found_inf()) : std::nullopt);
}

void Trainer::step_scheduler(Run& run) {
  auto& p = *parts_;
  if (p.device_schedule && p.device_schedule->leads()) return;
  run.learning_rate = p.optimizer->param_groups().front().lr;
  const bool skipped = p.scaler && p.scaler->step_was_skipped();
  if (!skipped && !p.lr_scheduler->is_metric_driven()) p.lr_scheduler->step();
}

void Trainer::act_on_control(Run& run) {
  auto& p = *parts_;
  if (p.control.should_log || p.control.should_evaluate || p.control.should_save)
    settle_schedule(run);
  if (p.control.should_log && p.state.global_step > run.last_logged_step) log_training(run);
  if (p.control.should_evaluate) {
    const bool is_best = update_best_metric(evaluate_in_training(/*step_scheduler=*/true));
    if (p.args.save_strategy == "best") p.control.should_save = is_best;
  }
  if (p.control.should_save) {
    save_checkpoint(run);
    call(Event::save);
  }
}

void Trainer::end_epoch(Run& run) {
  auto& p = *parts_;
  if (run.batches_done == 0) {
    log_warning(
        fmt::format("There is not a single row in this pass over the data: training stops at step "
                    "{}. This is expected when max_steps ({}) is more than the data gives.",
                    p.state.global_step, p.state.max_steps));
    p.control.should_training_stop = true;
  }
  run.at_epoch_end = true;
  call(Event::epoch_end);
  act_on_control(run);
}

void Trainer::log_training(Run& run) {
  auto& p = *parts_;
  const double sum = run.loss.drain();
  p.filtered_losses = run.loss.filtered();
  Logs logs{{"loss", sum / double(p.state.global_step - run.last_logged_step)}};
  if (run.grad_norm) logs["grad_norm"] = run.grad_norm->item<double>();
  logs["learning_rate"] = run.learning_rate.value_or(p.optimizer->param_groups().front().lr);
  run.total_loss += sum;
  run.last_logged_step = p.state.global_step;
  p.store_flos();
  log(std::move(logs), run.start_time);
}

void Trainer::log(Logs logs, std::optional<double> start_time) {
  auto& p = *parts_;
  p.add_counts(logs);
  if (start_time && p.args.include_num_input_tokens_seen != "no")
    logs.merge(
        speed_metrics("train", *start_time, {}, {},
                      double(p.state.num_input_tokens_seen - p.initial_num_input_tokens_seen)));
  p.state.log_history.push_back(log_entry(logs, p.state.global_step));
  call(Event::log, logs);
}

TrainOutput Trainer::finish_run(Run& run) {
  auto& p = *parts_;
  run.total_loss += run.loss.drain();
  p.filtered_losses = run.loss.filtered();
  if (p.filtered_losses > 0)
    log_warning(fmt::format(
        "{} losses were NaN or infinite and left out of the logs (logging_nan_inf_filter).",
        p.filtered_losses));
  const double train_loss =
      run.total_loss / std::max(double(p.state.global_step - run.loss_from_step), 0.001);
  const double steps = double(p.state.global_step - run.initial_global_step);
  const double samples =
      run.plan.num_train_samples * steps / std::max(double(p.state.max_steps), 1.0);
  auto metrics = speed_metrics("train", run.start_time, samples, steps);
  p.store_flos();
  metrics["total_flos"] = p.state.total_flos;
  metrics["train_loss"] = train_loss;
  p.memory.stop("train", &metrics);
  log(metrics);
  p.add_counts(metrics);

  wait_for_saves();
  settle_schedule(run);
  end_device_run();
  if (!is_interrupted(p.callbacks)) {
    if (p.args.load_best_model_at_end && p.state.best_model_checkpoint) load_best_model();
    remove_all_but_best();
  }
  call(Event::train_end);
  if (p.args.neftune_noise_alpha) p.model->set_embedding_noise(std::nullopt);
  p.is_in_train = false;
  return {p.state.global_step, train_loss, metrics};
}

}  // namespace gradus
