#include "capi/c_trainer.h"

#include <ATen/core/grad_mode.h>
#include <fmt/format.h>
#include <gradus/config/optimizer_arguments.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/torch_file.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/exported_model.h>
#include <gradus/models/model_folder.h>
#include <gradus/models/scripted_model.h>
#include <gradus/optim/clip.h>

namespace gradus {
namespace {

namespace fs = std::filesystem;

constexpr const char* kStateFile = "trainer_state.json";

ModelTask task_of_name(const std::string& name) {
  static constexpr std::pair<std::string_view, ModelTask> kTasks[] = {
      {"causal-lm", ModelTask::causal_lm},
      {"masked-lm", ModelTask::masked_lm},
      {"text-classification", ModelTask::sequence_classification},
      {"token-classification", ModelTask::token_classification},
      {"image-classification", ModelTask::image_classification},
      {"question-answering", ModelTask::question_answering},
      {"seq2seq", ModelTask::seq2seq_lm}};
  for (const auto& [known, task] : kTasks)
    if (name == known) return task;
  throw Error("G-CAPI-1", ErrorKind::usage,
              name.empty() ? std::string("the folder is not exported, so its task must be named")
                           : fmt::format("unknown task \"{}\"", name),
              "Name causal-lm, masked-lm, text-classification, token-classification, "
              "image-classification, question-answering or seq2seq.");
}

std::shared_ptr<PreTrainedModel> open_model(const fs::path& folder, const std::string& task) {
  if (!task.empty()) return model_from_pretrained(task_of_name(task), folder);
  if (ExportedModel::is_exported(folder)) return ExportedModel::load(folder);
  if (ScriptedModel::is_scripted(folder)) return ScriptedModel::load(folder);
  return model_from_pretrained(task_of_name(task), folder);
}

/// Options that change the numbers of a training, but not those of a step here.
constexpr std::string_view kWithoutEffect[] = {
    "bf16",      "fp16", "fp8",        "bf16_full_eval", "fp16_full_eval", "label_smoothing_factor",
    "deepspeed", "fsdp", "zero_stage", "cpu_matmul"};

/// Trained without them, a model would become another one than the caller asked for.
void refuse_what_has_no_effect(const nlohmann::json& options) {
  for (const auto name : kWithoutEffect) {
    const auto given = options.find(name);
    if (given == options.end() || given->is_null() || *given == false || *given == 0 ||
        *given == "" || *given == "torch")
      continue;
    throw Error(
        "G-CAPI-1", ErrorKind::usage,
        fmt::format("the option {} has no effect on a model that is fed batch by batch", name),
        "Leave it out: it belongs to the runs of a Trainer. An exported model computes as its "
        "folder says.");
  }
}

/// Written under another name first, so that a failure leaves an earlier file whole.
void write_state(const fs::path& file, const StateTree& state) {
  const auto temporary = fs::path(file.string() + ".tmp");
  write_torch_file(temporary, state, Sync::yes);
  move_file(temporary, file);
}

}  // namespace

CTrainer::CTrainer(const fs::path& folder, const std::string& task, const nlohmann::json& options)
    : args_(TrainingArguments::from_json(options)) {
  refuse_what_has_no_effect(options);
  model_ = open_model(folder, task);
  if (const auto how = GradientCheckpointing::of(args_))
    model_->gradient_checkpointing_enable(*how);
  if (args_.neftune_noise_alpha) model_->set_embedding_noise(args_.neftune_noise_alpha);
  optimizer_ = make_optimizer(
      args_.optim, optimizer_groups(args_.optim, model_->named_module(), args_.weight_decay),
      optimizer_arguments(args_));
  // Without a number of steps the rate stays: nobody knows where a schedule would end.
  const bool ends = args_.max_steps > 0;
  if (is_metric_driven_scheduler(args_.lr_scheduler_type))
    throw Error("G-CAPI-1", ErrorKind::usage,
                fmt::format("lr_scheduler_type {} follows evaluations, and nothing here says when "
                            "there was one",
                            args_.lr_scheduler_type),
                "Choose a schedule that follows the steps, such as linear or cosine.");
  schedule_ = ends ? get_scheduler(args_.lr_scheduler_type, *optimizer_,
                                   args_.get_warmup_steps(args_.max_steps), args_.max_steps,
                                   args_.lr_scheduler_kwargs)
                   : get_scheduler("constant", *optimizer_);
}

double CTrainer::step(const Batch& batch) {
  model_->train();
  optimizer_->train();
  ForwardOptions how;
  how.need_logits = false;
  const auto output = model_->forward(batch, how);
  const auto& loss = output.loss();
  const auto window = args_.gradient_accumulation_steps;
  (window > 1 ? loss / window : loss).backward();
  if (++batches_ >= window) {
    batches_ = 0;
    if (args_.max_grad_norm > 0 && optimizer_->takes_clipping())
      clip_grad_norm_(all_parameters(*optimizer_), args_.max_grad_norm);
    optimizer_->step();
    schedule_->step();
    optimizer_->zero_grad();
    ++steps_;
  }
  return loss.item<double>();
}

ModelOutput CTrainer::evaluate(const Batch& batch) {
  const torch::NoGradGuard no_grad;
  model_->eval();
  optimizer_->eval();
  return model_->forward(batch);
}

void CTrainer::save(const fs::path& folder) const {
  if (batches_ != 0)
    throw Error("G-CAPI-1", ErrorKind::usage,
                fmt::format("{} batches of a window of {} are done: their gradients would be lost",
                            batches_, args_.gradient_accumulation_steps),
                "Save after the last batch of a window.");
  ModelFolder(*model_).save(folder);
  write_state(folder / "optimizer.pt", optimizer_->state_dict());
  write_state(folder / "scheduler.pt", schedule_->state_dict());
  write_file_atomically(folder / kStateFile,
                        dump_json(nlohmann::json{{"global_step", steps_}}, 2) + "\n");
}

void CTrainer::load(const fs::path& folder) {
  const auto state = read_json(folder / kStateFile);
  const auto found = state.is_object() ? state.find("global_step") : state.end();
  if (!state.is_object() || found == state.end() || !found->is_number_integer())
    throw Error("G-CAPI-1", ErrorKind::checkpoint,
                fmt::format("{} has no global_step", (folder / kStateFile).string()),
                "Name a folder that gradus_save wrote.");
  const auto optimizer = read_torch_file(folder / "optimizer.pt"),
             schedule = read_torch_file(folder / "scheduler.pt");
  const auto optimizer_before = optimizer_->state_dict(), schedule_before = schedule_->state_dict();
  try {
    optimizer_->load_state_dict(optimizer);
    schedule_->load_state_dict(schedule);
    load_model_folder(*model_, folder);
  } catch (...) {  // weights of one training with the optimizer of another would train on
    optimizer_->load_state_dict(optimizer_before);
    schedule_->load_state_dict(schedule_before);
    throw;
  }
  optimizer_->zero_grad();
  steps_ = found->get<int64_t>();
  batches_ = 0;
}

}  // namespace gradus
