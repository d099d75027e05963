// train(): the loop, and what happens before, at and after a step of it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>
#include <gradus/train/callbacks.h>

#include <chrono>
#include <cmath>

#include "checkpoint/run_lock.h"
#include "models/fp8_layers.h"
#include "train/best_checkpoint.h"
#include "train/data_fingerprint.h"
#include "train/fp8_device.h"
#include "train/search_run.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace {

double rounded(double value, double digits) {
  const double scale = std::pow(10.0, digits);
  return std::round(value * scale) / scale;
}

// Only one process at a time may save into a folder.
RunLock lock_run(const TrainingArguments& args) {
  if (!args.should_save() || args.save_strategy == "no") return {};
  make_directory(*args.output_dir);
  return RunLock(*args.output_dir);
}

}  // namespace

void Trainer::Parts::add_counts(Metrics& metrics) const {
  metrics["epoch"] = state.epoch;
  if (args.include_num_input_tokens_seen != "no")
    metrics["num_input_tokens_seen"] = double(state.num_input_tokens_seen);
}

void draw_as_a_loader_does() { torch::empty({}, torch::kLong).random_(); }

bool keeps_workers(const DataLoader& loader) {
  return loader.options() != nullptr && loader.options()->persistent_workers;
}

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
  const auto lock = p.processes.together([&] { return lock_run(p.args); });
  const auto checkpoint = p.processes.together([&] { return prepare_training(resume); });
  p.is_in_train = true;
  for (;;) {
    try {
      return p.processes.together([&] { return training_loop(checkpoint); });
    } catch (const std::exception& error) {
      const bool ran_out = device::is_out_of_memory(error);
      const bool finds_size = p.args.auto_find_batch_size && p.processes.size() == 1;
      const auto smaller = int64_t(double(p.train_batch_size) * 0.9);
      if (!ran_out || !finds_size || smaller == 0) {
        end_failed_run(error.what());
        if (ran_out && finds_size)
          throw Error("G-TRAIN-10", ErrorKind::training,
                      "no executable batch size found: memory ran out even with a batch size of 1",
                      "Use a smaller model, shorter sequences, or --gradient_checkpointing.");
        if (ran_out && p.engine.device().is_cuda())
          throw out_of_memory_error(p.engine.device(), error.what());
        throw;
      }
      p.engine.end();
      if (p.engine.optimizer()) p.engine.zero_grad();
      p.train_batch_size = smaller;
    } catch (const search::TrialPruned&) {
      end_failed_run("the trial was pruned");
      throw;
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
    p.model = make_initial_model(p.model_init, p.search ? p.search->trial : nullptr);
    p.engine.set_optimizer(nullptr);
    p.engine.set_schedule(nullptr);
  }
  if (p.search) {
    p.search->set_arguments(p.args);  // after the model, as in transformers
    p.train_batch_size = p.args.train_batch_size();
  }
  p.place_model();
  p.preparation.is_done = true;
  if (const auto how = GradientCheckpointing::of(p.args))
    p.model->gradient_checkpointing_enable(*how);
  if (p.processing_class) p.model->align_special_tokens(*p.processing_class);
  const std::filesystem::path checkpoint =
      p.processes.of_first([&] { return resolve_resume(resume, *p.args.output_dir).string(); });
  if (!checkpoint.empty()) {
    load_model_folder(*p.model, checkpoint);
    if (p.args.auto_find_batch_size)
      p.train_batch_size = TrainerState::load_from_json(checkpoint / "trainer_state.json")
                               .train_batch_size.value_or(p.train_batch_size);
  }
  if (p.args.neftune_noise_alpha) p.model->set_embedding_noise(*p.args.neftune_noise_alpha);
  return checkpoint;
}

// After an exception: the model is itself again, what was being saved is on disk, and the callbacks
// know. Whatever fails here is only said, for the caller wants the first failure.
void Trainer::end_failed_run(const std::string& reason) {
  auto& p = *parts_;
  p.is_in_train = false;
  if (p.run) p.run->fp8.reset();
  p.engine.end();
  if (p.args.neftune_noise_alpha) p.model->set_embedding_noise(std::nullopt);
  p.writer.wait_for_outcome();  // what went wrong with it was logged when it did
  try {
    call(Event::train_end, {}, {}, reason);
  } catch (const std::exception& error) {
    log_error(std::string("A callback failed in on_train_end, after the run had failed: ") +
              error.what());
  }
}

// The loop. ARCHITECTURE.md draws it with every event.
TrainOutput Trainer::training_loop(const std::filesystem::path& checkpoint) {
  auto& p = *parts_;
  begin_run(checkpoint);
  auto& run = *p.run;
  const auto window_size = p.args.gradient_accumulation_steps;
  {
    const auto float32 = p.engine.shown();  // what callbacks may take hold of here
    call(Event::train_begin);
  }
  const bool has_steps = begin_steps();

  for (run.epoch = run.first_epoch; run.epoch < run.plan.num_train_epochs; ++run.epoch) {
    if (p.control.is_interrupted) break;
    call(Event::epoch_begin);
    run.begin_pass();
    while (has_steps) {
      const auto window = run.next_window(window_size);
      if (window.empty()) {
        if (p.look_at_end_of_data()) continue;  // the run has gone back
        break;
      }
      if (p.leaves_out_step()) {  // since a return, for the spike of its loss
        call(Event::step_begin);
      } else {
        const auto num_items_in_batch = get_num_items_in_batch(window);
        for (const auto& whole : window) {
          const auto own = run.elastic ? p.own_rows(whole, num_items_in_batch) : Batch();
          const auto& batch = run.elastic ? own : whole;
          if (run.batches_done % window_size == 0) call(Event::step_begin);
          const auto loss = run_micro_batch(batch, num_items_in_batch);
          p.count_micro_batch(batch, loss, floating_point_ops(batch));
          if (run.window_is_complete(window_size)) break;
          call(Event::substep_end);
          if (p.control.should_epoch_stop || p.control.should_training_stop) break;
        }
        if (!run.window_is_complete(window_size)) break;  // the data ended, or a stop was asked for

        const auto norm = p.watched_norm();
        if (!p.skips_update()) {
          run.grad_norm = norm ? *norm : p.engine.clip();
          call(Event::pre_optimizer_step);
          p.engine.step();
          call(Event::optimizer_step);
          run.spikes.end_step({run.epoch, run.batches_done - run.window});
        }
      }
      run.learning_rate = p.engine.step_schedule();
      p.engine.zero_grad();
      p.state.global_step += 1;
      p.state.epoch =
          double(run.epoch) + double(run.batches_done) / double(run.plan.steps_in_epoch);
      call(Event::step_end);
      act_on_control();  // log, evaluate, save, in this order
      if (p.control.should_epoch_stop || p.control.should_training_stop) break;
    }
    p.engine.zero_grad();  // of a window that was left unfinished
    run.spikes.drop_current();
    if (p.control.is_interrupted) break;
    end_epoch();
    if (p.control.should_training_stop) break;
  }
  return finish_run();
}

// What comes before the first step: an evaluation, and the one that an interruption cut short with
// the save that was due after it. Whether there is a step: not after a resume from the end of a
// run.
bool Trainer::begin_steps() {
  auto& p = *parts_;
  auto& run = *p.run;
  if (p.args.eval_on_start) evaluate_in_training(/*step_scheduler=*/false);
  if (p.control.is_interrupted) return false;  // nothing has changed since the start
  p.keep_state();
  bool is_over = run.ended_by_callback || p.state.global_step >= run.plan.max_steps;
  p.control.should_training_stop |= is_over;
  if (run.repeat_evaluation) {
    // The run is then where it would have been without the interruption.
    p.control.new_step();
    p.control.should_evaluate = true;
    p.control.should_save = *std::exchange(run.repeat_evaluation, std::nullopt);
    if (run.rng) set_random_state(*run.rng);
    act_on_control();
    if (run.rng) run.rng = p.random_state();  // set once more when the data has been fetched
    is_over = p.control.should_training_stop;
  }
  if (is_over && run.pass_had_ended) run.first_epoch = run.plan.num_train_epochs;
  return !is_over;
}

void Trainer::begin_run(const std::filesystem::path& checkpoint) {
  auto& p = *parts_;
  check_spike_action(p.args, p.processes);
  std::vector<torch::Tensor> fp8_weights;
  if (p.args.fp8) {
    check_fp8_device(p.engine.device());
    fp8_weights = fp8_layer_weights(p.model->named_module());
  }
  p.run = std::make_unique<Run>(p.engine.device(), p.writer, p.args.spike_threshold);
  auto& run = *p.run;
  run.loader = p.train_loader = get_train_dataloader();
  run.plan = plan_training(p.args, run.loader, p.train_batch_size);
  const auto& plan = run.plan;

  if (p.processes.size() > 1 && p.args.elastic_order)
    run.elastic.emplace(p.processes.rank(), p.processes.size(), p.engine.device());
  if (p.processes.size() > 1) {
    auto facts = shared_arguments(p.args);
    facts["the training data"] = data_fingerprint(p.train_dataset);
    facts["the batches of a pass"] = plan.steps_in_epoch;
    p.processes.require_same(facts);
  }

  p.state = TrainerState();
  p.state.is_world_process_zero = is_world_process_zero();
  p.state.is_local_process_zero = is_local_process_zero();
  if (p.search) p.search->describe(p.state);
  if (std::exchange(p.created_lr_scheduler, false))
    p.engine.set_schedule(nullptr);  // its length may differ this time
  create_optimizer_and_scheduler(plan.max_steps);
  if (!p.engine.optimizer() || !p.engine.schedule())
    throw Error("G-TRAIN-5", ErrorKind::usage,
                fmt::format("create_optimizer_and_scheduler made no {}",
                            p.engine.optimizer() ? "schedule" : "optimizer"),
                "Call set_optimizer and set_lr_scheduler where you override it.");
  p.engine.precision().begin_run();
  for (const auto& callback : p.callbacks.all())
    if (callback->has_evaluation_weights() && !p.engine.strategy().weights_stay_whole())
      throw Error("G-DIST-9", ErrorKind::usage,
                  "a callback keeps an average of whole weights, which this run has only in parts",
                  "Leave it out, or use --zero_stage 2 (--fsdp shard_grad_op).");
  p.engine.prepare(p.model->named_module());
  p.export_callback_states();
  run.add_checkpoint_parts(p, [this, &p] { return p.model_folder(arguments_to_save()); });
  if (!checkpoint.empty()) restore_run(checkpoint);
  run.step_options = {.max_grad_norm = p.args.max_grad_norm,
                      .max_steps = plan.max_steps,
                      .master_weights = p.wants_masters(),
                      .record = p.args.cuda_graphs != "off",
                      .plain_because = p.why_not_recorded(step_traits())};
  p.engine.begin(p.model->named_module(), run.step_options);
  if (p.args.fp8) run.fp8 = std::make_unique<kernels::Fp8Weights>(std::move(fp8_weights));
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

  run.start_time = wall_clock();
  run.monitor.begin(run.start_time);
  run.initial_global_step = p.state.global_step;
  run.initial_num_input_tokens_seen = p.state.num_input_tokens_seen;
  p.engine.zero_grad();
}

void Trainer::Run::begin_pass() {
  const auto skip = std::exchange(skip_batches, 0);
  const auto state = std::exchange(loader_state, nullptr);
  if (rng && skip == 0) set_random_state(*std::exchange(rng, std::nullopt));
  // In Python persistent workers are given their seeds once, when the first pass starts them.
  if (epoch == 0 || !keeps_workers(loader)) draw_as_a_loader_does();
  batches.emplace(loader.iterate(epoch, skip, state));
  batches_done = skip;
  at_epoch_end = false;
  if (skip > 0) return;  // a resumed pass may end without a further step: its log wants these two
  grad_norm.reset();
  learning_rate.reset();
}

std::vector<Batch> Trainer::Run::next_window(int64_t size) {
  const double began = wall_clock();
  const auto wanted = std::max<int64_t>(std::min(size, plan.steps_in_epoch - batches_done), 0);
  std::vector<Batch> found;
  found.reserve(size_t(wanted));
  while (int64_t(found.size()) < wanted) {
    auto batch = batches->next();
    if (!batch) break;
    found.push_back(std::move(*batch));
  }
  window = int64_t(found.size());
  monitor.waited_for_data(wall_clock() - began);
  if (rng) set_random_state(*std::exchange(rng, std::nullopt));
  return found;
}

void Trainer::Parts::count_micro_batch(const Batch& batch, const torch::Tensor& loss, double flos) {
  ++run->batches_done;
  const auto window_size = args.gradient_accumulation_steps;
  if (args.spike_action == "skip" && (run->batches_done - 1) % window_size == 0) run->loss.mark();
  run->loss.add(loss, args.logging_nan_inf_filter, state.global_step - run->last_logged_step);
  run->spikes.add(loss);
  const bool counts = !run->elastic || run->elastic->counts();
  run->new_flos += counts ? flos : 0;
  if (args.include_num_input_tokens_seen != "no")
    state.num_input_tokens_seen += processes.sum(counts ? count_input_tokens(batch) : int64_t{0});
}

void Trainer::act_on_control() {
  auto& p = *parts_;
  p.note_save(p.writer.take_outcome());
  if (p.look_for_spikes() && !p.control.is_interrupted) return;  // the run has gone back
  if (p.control.should_log || p.control.should_evaluate || p.control.should_save)
    p.settle_schedule();
  if (p.control.should_log && p.state.global_step > p.run->last_logged_step) log_training();
  if (p.control.should_evaluate) {
    if (const auto metrics = evaluate_in_training(/*step_scheduler=*/true)) {
      const bool is_best = update_best_metric(*metrics, p.args, p.state);
      if (p.args.save_strategy == "best") p.control.should_save = p.processes.any(is_best);
    }
  }
  // A signal between the end of a step and that of its pass asks for what is saved already.
  const bool is_saved = p.control.is_interrupted && p.run->saved_step == p.state.global_step &&
                        !p.processes.any(p.run->failed_step == p.state.global_step) &&
                        !p.run->evaluation_is_missing;
  if (p.control.should_save && !is_saved) {
    save_checkpoint();
    if (p.control.should_training_stop) finish_saves();
    call(Event::save);
  }
  p.keep_state();
}

void Trainer::end_epoch() {
  auto& p = *parts_;
  if (p.run->batches_done == 0) {
    log_warning(
        fmt::format("There is no row in this pass over the data: training stops at step "
                    "{}. This is expected when max_steps ({}) is more than the data has.",
                    p.state.global_step, p.state.max_steps));
    p.control.should_training_stop = true;
  }
  p.run->at_epoch_end = true;
  call(Event::epoch_end);
  act_on_control();
}

void Trainer::log_training() {
  auto& p = *parts_;
  auto& run = *p.run;
  const double sum = p.processes.mean(run.loss.drain());
  Logs logs{{"loss", sum / double(p.state.global_step - run.last_logged_step)}};
  if (run.grad_norm) logs["grad_norm"] = run.grad_norm->item<double>();
  logs["learning_rate"] =
      run.learning_rate.value_or(p.engine.optimizer()->param_groups().front().lr);
  run.total_loss += sum;
  run.last_logged_step = p.state.global_step;
  run.store_flos(p.state, p.processes);
  p.watch_log(logs);
  log(std::move(logs), run.start_time);
  p.processes.agree(p.control);
}

void Trainer::log(Logs logs, std::optional<double> start_time) {
  auto& p = *parts_;
  p.add_counts(logs);
  if (start_time && p.args.include_num_input_tokens_seen != "no") {
    const auto before = p.run ? p.run->initial_num_input_tokens_seen : 0;
    logs.merge(speed_metrics("train", *start_time, {}, {},
                             double(p.state.num_input_tokens_seen - before)));
  }
  p.state.log_history.push_back(log_entry(logs, p.state.global_step));
  call(Event::log, logs);
}

// The last checkpoint is on disk, or the run fails. It gets a second attempt, because no later save
// makes up for it.
void Trainer::finish_saves() {
  auto& p = *parts_;
  const double waiting_since = wall_clock();
  p.note_save(p.writer.wait_for_outcome());
  if (p.processes.any(p.run->failed_step == p.state.global_step)) {
    log_warning("The last checkpoint of the run is saved once more.");
    save_checkpoint();
    wait_for_saves();
  }
  p.run->start_time += wall_clock() - waiting_since;  // what the disk takes is no training time
}

TrainOutput Trainer::finish_run() {
  auto& p = *parts_;
  auto& run = *p.run;
  finish_saves();
  run.kept.reset();
  p.agree_on_best();
  run.total_loss += run.loss.drain();
  if (filtered_losses() > 0)
    log_warning(fmt::format(
        "{} losses were NaN or infinite and left out of the logs (logging_nan_inf_filter).",
        filtered_losses()));
  const double train_loss =
      run.total_loss / std::max(double(p.state.global_step - run.loss_from_step), 0.001);
  const double steps = double(p.state.global_step - run.initial_global_step);
  const double samples =
      run.plan.num_train_samples * steps / std::max(double(p.state.max_steps), 1.0);
  auto metrics = speed_metrics("train", run.start_time, samples, steps);
  run.store_flos(p.state, p.processes);
  metrics["total_flos"] = p.state.total_flos;
  metrics["train_loss"] = train_loss;
  p.memory.stop("train", &metrics);
  log(metrics);
  p.add_counts(metrics);

  p.settle_schedule();
  p.run->fp8.reset();
  p.engine.end();
  if (!p.control.is_interrupted) {
    if (p.args.load_best_model_at_end && p.state.best_model_checkpoint) {
      load_best_model(*p.model, p.state);
      p.processes.wait_for_all();  // nothing is deleted while another process reads it
    }
    remove_all_but_best(p.args, p.state);
  }
  call(Event::train_end);
  if (p.control.is_interrupted && p.args.should_save())
    say_where_a_run_stopped(checkpoint_path(*p.args.output_dir, p.state.global_step), p.state,
                            p.state.max_steps);
  if (p.args.neftune_noise_alpha) p.model->set_embedding_noise(std::nullopt);
  p.is_in_train = false;
  p.processes.wait_for_all();
  return {p.state.global_step, train_loss, metrics};
}

}  // namespace gradus
