#include "tasks/natural_questions_run.h"

#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/device/runtime.h>

#include <algorithm>
#include <chrono>

#include "tasks/functional_checkpoints.h"
#include "tasks/functional_events.h"
#include "train/metrics_report.h"
#include "train/process_settings.h"

namespace gradus::tasks {
namespace {

namespace fn = gradus::functional;
namespace fs = std::filesystem;
namespace nq = gradus::natural_questions;

constexpr const char* kStateFile = "trainer_state.json";

/// One run, from the first step to the files it leaves.
class QuestionsRun {
 public:
  QuestionsRun(const NaturalQuestionsRun& run, const std::vector<CallbackHandle>& callbacks)
      : run_(run),
        folder_(*run.args.output_dir),
        writes_(run.args.should_save()),
        layout_(fn::FlaxLayout::of(run.model->named_module())),
        events_(std::make_shared<FunctionalEvents>(run.args, run.model, callbacks)) {
    set_log_level(run.args.get_process_log_level());
    apply_process_settings(run.args);
    run_.model->to(device::pick_device(run.args.use_cpu, run.args.local_process_index()));
    function_ = natural_questions_function(run_.model);
    batch_ = run.functional_args.batch_size_per_device * run.args.world_size();
  }

  TaskResult result() {
    if (run_.args.do_train) train();
    if (result_.interrupted_by != 0) return result_;
    if (run_.args.do_eval) evaluate();
    if (run_.args.do_train && writes_) events_->state().save_to_json(folder_ / kStateFile);
    return result_;
  }

 private:
  void train() {
    steps_of_epoch_ = std::max<int64_t>(run_.train->size() / batch_, 1);
    steps_ = run_.functional_args.max_epochs * steps_of_epoch_;
    if (run_.args.max_steps > 0) steps_ = std::min(steps_, run_.args.max_steps);
    if (writes_ && !run_.checkpoint)  // --overwrite_output_dir
      for (const auto& old : list_functional_checkpoints(folder_, run_.functional_args.save_dir))
        remove_checkpoint({old.path, old.step});
    auto trainer = make_trainer();
    state_ = trainer.create_state(
        function_, {}, steps_,
        {.ckpt_dir = run_.checkpoint, .key = fn::Key(uint64_t(run_.args.seed))});
    const auto first = state_->step;
    events_->begin_training(state_at_begin(), steps_of_epoch_);
    const auto begin = std::chrono::steady_clock::now();
    try {
      if (first < steps_) state_ = trainer.train(*state_, run_.train, run_.validation);
      finish_training(trainer);
    } catch (const std::exception& error) {
      events_->end_training(error.what());
      throw;
    }
    events_->end_training();
    const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
    if (result_.interrupted_by == 0) report_training(state_->step - first, seconds.count());
  }

  /// The progress of the run before its first step, with the log of the checkpoint.
  TrainerState state_at_begin() const {
    TrainerState state;
    if (run_.checkpoint && fs::exists(*run_.checkpoint / kStateFile))
      state.log_history = TrainerState::load_from_json(*run_.checkpoint / kStateFile).log_history;
    const auto& args = run_.functional_args;
    state.global_step = state_->step;
    state.epoch = double(state_->step) / double(steps_of_epoch_);
    state.max_steps = steps_;
    state.num_train_epochs = args.max_epochs;
    state.train_batch_size = args.batch_size_per_device;
    state.logging_steps = state.eval_steps = args.logging_steps;
    state.save_steps = args.save_steps;
    return state;
  }

  fn::Trainer make_trainer() {
    fn::TrainerOptions options;
    options.args = run_.functional_args;
    options.data_collator =
        nq::Collator(run_.tokenizer->pad_token_id().value_or(0), run_.max_length);
    options.train_step_fn = [this](const fn::TrainState& state, fn::Key key, const Batch& batch) {
      auto result = fn::train_step(state, key, batch);
      const auto loss = result.metrics.at("loss").detach();
      loss_sum_ = loss_sum_.defined() ? loss_sum_ + loss : loss;
      return result;
    };
    options.flax_layout = layout_;
    options.model_save_fn = [this](const fs::path& folder, const fn::Params& params) {
      fn::save_flax_model(folder, params);
      run_.model->save_config(folder);
      events_->state().save_to_json(folder / kStateFile);
      events_->saved();
    };
    options.logger = events_;
    options.should_stop = [this](const fn::TrainState& state) {
      const bool is_asked = events_->ends_after(state.step);
      return is_asked || state.step >= steps_;
    };
    options.show_progress = !run_.args.disable_tqdm.value_or(false);
    return fn::Trainer(std::move(options));
  }

  /// Saves what was trained: the model, or a checkpoint when the run was interrupted.
  void finish_training(const fn::Trainer& trainer) {
    result_.global_step = state_->step;
    result_.interrupted_by = events_->interrupted_by();
    function_.store(state_->params);
    if (!writes_) return;
    if (result_.interrupted_by != 0) {
      const auto epoch = state_->step / steps_of_epoch_, step = state_->step % steps_of_epoch_;
      trainer.save_checkpoint(trainer.args().checkpoint_dir(epoch, step), *state_);
      return;
    }
    run_.model->save_pretrained(folder_);
    run_.tokenizer->save_pretrained(folder_);
    const auto flax = folder_ / "final-weights";
    make_directory(flax);
    fn::save_flax_model(flax, layout_.stored(state_->params));
    run_.model->save_config(flax);
    run_.tokenizer->save_pretrained(flax);
  }

  void report_training(int64_t steps, double seconds) {
    Metrics metrics = {{"train_runtime", seconds},
                       {"train_samples_per_second", double(steps * batch_) / seconds},
                       {"train_steps_per_second", double(steps) / seconds},
                       {"train_samples", double(run_.train->size())},
                       {"epoch", double(state_->step) / double(steps_of_epoch_)}};
    if (loss_sum_.defined()) metrics["train_loss"] = loss_sum_.item<double>() / double(steps);
    report("train", std::move(metrics));
  }

  void evaluate() {
    log_info("*** Evaluate ***");
    const auto trainer = make_trainer();
    const auto params = state_ ? *state_ : fn::TrainState::create(function_, fn::scale(1));
    Metrics metrics = {{"eval_loss", trainer.evaluate(params, run_.validation)},
                       {"eval_samples", double(run_.validation->size())}};
    if (writes_ && run_.questions)
      for (const auto& [name, value] : exact_match(run_, folder_ / "eval_predictions.json"))
        metrics["eval_" + name] = value;
    if (writes_) events_->log(metrics, params.step);
    report("eval", std::move(metrics));
  }

  void report(const std::string& split, Metrics metrics) {
    if (writes_) {
      show_metrics(split, metrics);
      write_metrics(folder_, split, metrics);
    }
    result_.metrics[split] = std::move(metrics);
  }

  NaturalQuestionsRun run_;
  fs::path folder_;
  bool writes_;
  fn::FlaxLayout layout_;
  fn::ModelFunction function_;
  std::shared_ptr<FunctionalEvents> events_;
  int64_t batch_ = 1, steps_of_epoch_ = 1, steps_ = 0;
  torch::Tensor loss_sum_;  // stays on the device
  std::optional<fn::TrainState> state_;
  TaskResult result_;
};

}  // namespace

fn::ModelFunction natural_questions_function(const std::shared_ptr<PreTrainedModel>& model) {
  return wrap(model,
              [](PreTrainedModel& each, const Batch& batch) { return each.forward(batch).loss(); });
}

TaskResult run_natural_questions(const NaturalQuestionsRun& run,
                                 const std::vector<CallbackHandle>& callbacks) {
  return QuestionsRun(run, callbacks).result();
}

}  // namespace gradus::tasks
