// Saving a run and going on with it.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/torch_file.h>
#include <gradus/formats/weights_folder.h>
#include <gradus/train/callbacks.h>

#include "train/resume.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
constexpr int kStateVersion = 1;

NamedTensors named_tensors(const Model& model) {
  NamedTensors tensors;
  for (const auto& item : model.state_dict()) tensors.emplace_back(item.key(), item.value());
  return tensors;
}

// HF's form for trainer_state.json: one state, or a list of them, under each name.
json exported_states(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks,
                     const TrainerControl& control) {
  json states = json::object();
  for (const auto& callback : callbacks) {
    if (!callback->is_exportable()) continue;
    auto& slot = states[callback->name()];
    if (slot.is_null())
      slot = callback->state_dict();
    else if (slot.is_array())
      slot.push_back(callback->state_dict());
    else
      slot = json::array({slot, callback->state_dict()});
  }
  states["TrainerControl"] = control.state();
  return states;
}

json all_states(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks) {
  json states = json::array();
  for (const auto& callback : callbacks)
    if (auto state = callback->state_dict(); !state.is_null())
      states.push_back({{"name", callback->name()}, {"state", std::move(state)}});
  return states;
}

// Hands each saved state to the next callback of its name; says which names are gone.
// What a callback was made with (its "args") comes back only `with_args`; else what this run says
// holds.
void restore_states(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks,
                    std::vector<std::pair<std::string, json>> states, bool with_args) {
  std::vector<bool> used(callbacks.size(), false);
  Names missing;
  for (auto& [name, state] : states) {
    size_t i = 0;
    while (i < callbacks.size() && (used[i] || callbacks[i]->name() != name)) ++i;
    if (i == callbacks.size()) {
      missing.push_back(name);
      continue;
    }
    used[i] = true;
    if (!with_args && callbacks[i]->is_exportable() && state.is_object())
      state["args"] = json::object();
    try {
      callbacks[i]->load_state_dict(state);
    } catch (const json::exception& error) {
      throw Error("G-CKPT-5", ErrorKind::checkpoint,
                  "the saved state of callback " + name + " cannot be restored: " + error.what(),
                  "The callback's state_dict has changed since the checkpoint was written.");
    }
  }
  if (!missing.empty())
    log_warning(fmt::format(
        "The checkpoint has states of callbacks that this run does not have; they are ignored: {}.",
        fmt::join(missing, ", ")));
}

void restore_exported(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks,
                      const json& stateful_callbacks) {
  std::vector<std::pair<std::string, json>> states;
  for (const auto& [name, value] : stateful_callbacks.items()) {
    if (name == "TrainerControl") continue;
    if (!value.is_array())
      states.emplace_back(name, value);
    else
      for (const auto& item : value) states.emplace_back(name, item);
  }
  restore_states(callbacks, std::move(states), /*with_args=*/true);
}

// The callbacks' tensors, which optimizer.pt holds beside what is the optimizer's; none when they
// have none.
std::optional<StateTree> callback_tensors(
    const std::vector<std::shared_ptr<TrainerCallback>>& callbacks) {
  auto tensors = StateTree::list();
  for (const auto& callback : callbacks)
    if (auto tree = callback->tensor_state(); !tree.is_none())
      tensors.push(StateTree::dict().set("name", callback->name()).set("state", std::move(tree)));
  return tensors.items().empty() ? std::nullopt : std::optional(std::move(tensors));
}

void restore_callback_tensors(const std::vector<std::shared_ptr<TrainerCallback>>& callbacks,
                              const StateTree& tensors) {
  std::vector<bool> used(callbacks.size(), false);
  for (const auto& item : tensors.items())
    for (size_t i = 0; i < callbacks.size(); ++i)
      if (!used[i] && callbacks[i]->name() == item.at("name").as_string()) {
        callbacks[i]->load_tensor_state(item.at("state"));
        used[i] = true;
        break;
      }
}

// Optimizer and schedule only together, as in HF.
void restore_optimizer(const fs::path& checkpoint, Optimizer& optimizer, LRScheduler& lr_scheduler,
                       const std::vector<std::shared_ptr<TrainerCallback>>& callbacks,
                       const ChangedOptions& changed, int64_t global_step) {
  if (!fs::exists(checkpoint / "optimizer.pt") || !fs::exists(checkpoint / "scheduler.pt")) {
    log_warning(
        checkpoint.string() +
        " has no optimizer.pt and scheduler.pt (save_only_model): both start from the beginning.");
    return;
  }
  const auto state = read_torch_file(checkpoint / "optimizer.pt");
  load_training_state(state, read_torch_file(checkpoint / "scheduler.pt"), optimizer, lr_scheduler,
                      changed, global_step);
  if (const auto* tensors = state.find("gradus_callbacks"))
    restore_callback_tensors(callbacks, *tensors);
}

}  // namespace

json Trainer::Run::saved_state(const Parts& parts) const {
  const bool stopped = parts.control.should_training_stop &&
                       parts.state.global_step < parts.state.max_steps &&
                       !parts.control.is_interrupted;
  return {{"version", kStateVersion},
          {"loss_sum", loss.sum()},
          {"filtered_losses", loss.filtered()},
          {"total_loss", total_loss},
          {"loss_from_step", loss_from_step},
          {"last_logged_step", last_logged_step},
          {"grad_norm", grad_norm ? json(grad_norm->item<double>()) : json(nullptr)},
          {"learning_rate", learning_rate ? json(*learning_rate) : json(nullptr)},
          {"stopped_by_callback", stopped},
          {"attention_backend", parts.engine.attention_backend()},
          {"position",
           {{"epoch", epoch},
            {"batches", batches_done},
            {"at_epoch_end", at_epoch_end},
            {"loader", batches ? batches->state() : json(nullptr)},
            {"steps_in_epoch", plan.steps_in_epoch},
            {"batch_size", parts.train_batch_size},
            {"gradient_accumulation_steps", parts.args.gradient_accumulation_steps}}},
          {"callbacks", all_states(parts.callbacks.all())}};
}

bool Trainer::Run::restore_saved_state(const json& saved, Parts& parts) {
  loss.restore(saved.at("loss_sum"), saved.at("filtered_losses"));
  total_loss = saved.at("total_loss");
  loss_from_step = saved.at("loss_from_step");
  last_logged_step = saved.at("last_logged_step");
  if (const auto& norm = saved.at("grad_norm"); !norm.is_null())
    grad_norm = torch::tensor(norm.get<double>(), torch::kDouble);
  if (const auto& rate = saved.at("learning_rate"); !rate.is_null())
    learning_rate = rate.get<double>();
  ended_by_callback = saved.at("stopped_by_callback");
  parts.engine.set_attention_backend(saved.value("attention_backend", std::string()));
  std::vector<std::pair<std::string, json>> states;
  for (const auto& item : saved.at("callbacks"))
    states.emplace_back(item.at("name"), item.at("state"));
  restore_states(parts.callbacks.all(), std::move(states),
                 parts.args.restore_callback_states_from_checkpoint);

  const auto& position = saved.at("position");
  const bool same_batches =
      position.at("steps_in_epoch") == plan.steps_in_epoch &&
      position.at("batch_size") == parts.train_batch_size &&
      position.at("gradient_accumulation_steps") == parts.args.gradient_accumulation_steps;
  if (!same_batches && loader.size()) return false;
  const bool pass_had_ended = position.at("at_epoch_end");
  first_epoch = position.at("epoch").get<int64_t>() + (pass_had_ended ? 1 : 0);
  skip_batches =
      pass_had_ended || parts.args.ignore_data_skip ? 0 : position.at("batches").get<int64_t>();
  if (skip_batches > 0) loader_state = position.at("loader");
  return pass_had_ended;
}

void Trainer::Parts::export_callback_states() {
  state.stateful_callbacks = exported_states(callbacks.all(), control);
}

void Trainer::save_checkpoint() {
  auto& p = *parts_;
  auto& run = *p.run;
  if (!p.args.should_save()) return;
  p.writer.wait();  // the buffers of the save before are used again
  run.store_flos(p.state);
  const fs::path run_dir = *p.args.output_dir;
  const auto directory = checkpoint_path(run_dir, p.state.global_step);
  if (p.args.save_strategy != "no" &&
      p.state.best_global_step.value_or(0) > 0) {  // HF takes step 0 for none
    const auto best = checkpoint_path(run_dir, *p.state.best_global_step);
    if (best == directory || fs::is_directory(best)) p.state.best_model_checkpoint = best.string();
  }
  p.export_callback_states();

  auto& buffers = p.writer.buffers();
  buffers.begin();
  Snapshot snapshot;
  {
    const auto float32 = p.engine.precision().shown();
    snapshot.weights = buffers.copy(named_tensors(*p.model));
  }
  snapshot.max_shard_size = parse_shard_size(p.args.max_shard_size);
  snapshot.side_files.push_back([&p](const fs::path& folder) {
    p.model->save_config(folder);
    if (p.processing_class) p.processing_class->save_pretrained(folder);
  });
  snapshot.texts["trainer_state.json"] = p.state.to_text();
  snapshot.texts["training_args.json"] = dump_json(arguments_to_save(), 2) + "\n";
  if (!p.args.save_only_model) {
    auto optimizer = p.engine.optimizer()->state_dict();
    if (auto tensors = callback_tensors(p.callbacks.all()))
      optimizer.set("gradus_callbacks", std::move(*tensors));  // Python's loaders pass over it
    snapshot.optimizer = buffers.copy(optimizer);
    snapshot.scheduler = p.engine.schedule()->state_dict();
    if (const auto* scaler = p.engine.precision().scaler())
      snapshot.scaler = buffers.copy(scaler->state_dict());
    snapshot.rng = p.foreign_rng;
    snapshot.rng->cpu = device::get_cpu_rng_state();
    snapshot.rng->cuda = device::get_gpu_rng_states();
    snapshot.texts["gradus_state.json"] = dump_json(run.saved_state(p), 2) + "\n";
  }
  std::optional<fs::path> best;
  if (p.state.best_model_checkpoint) best = *p.state.best_model_checkpoint;
  p.writer.start({run_dir, p.state.global_step, std::move(snapshot),
                  RotationPolicy(p.args.save_total_limit), best});
}

void Trainer::restore_run(const fs::path& checkpoint) {
  auto& p = *parts_;
  auto& run = *p.run;
  p.state = TrainerState::load_from_json(checkpoint / "trainer_state.json");
  p.state.is_world_process_zero = p.state.is_local_process_zero = is_world_process_zero();
  if (p.state.best_model_checkpoint && !fs::is_directory(*p.state.best_model_checkpoint)) {
    log_warning("The best checkpoint " + *p.state.best_model_checkpoint +
                " of the resumed run does not exist any more and is ignored.");
    p.state.best_model_checkpoint.reset();
  }
  const auto changed = warn_about_changed_options(p.args, p.state, checkpoint);
  run.last_logged_step = p.state.global_step;
  run.loss_from_step = p.state.global_step;

  restore_optimizer(checkpoint, *p.engine.optimizer(), *p.engine.schedule(), p.callbacks.all(),
                    changed, p.state.global_step);
  if (auto* scaler = p.engine.precision().scaler();
      scaler != nullptr && fs::exists(checkpoint / "scaler.pt"))
    scaler->load_state_dict(read_torch_file(checkpoint / "scaler.pt"));
  if (fs::exists(checkpoint / "rng_state.pth")) {
    run.rng = read_rng_state(checkpoint / "rng_state.pth");
    p.foreign_rng.python = run.rng->python;
    p.foreign_rng.numpy = run.rng->numpy;
  }

  const auto& plan = run.plan;
  run.first_epoch = p.state.global_step / plan.num_update_steps_per_epoch;
  if (!p.args.ignore_data_skip)
    run.skip_batches =
        p.state.global_step % plan.num_update_steps_per_epoch * p.args.gradient_accumulation_steps;
  bool pass_had_ended = false;
  if (const auto file = checkpoint / "gradus_state.json"; fs::exists(file)) {
    const auto fail = [&](const std::string& why) {
      throw Error("G-CKPT-5", ErrorKind::checkpoint,
                  file.string() + " lacks something a resume needs: " + why,
                  "It was written by another version of gradus, or is damaged.");
    };
    try {
      const auto saved = read_json(file);
      if (saved.at("version").get<int64_t>() > kStateVersion)
        fail(fmt::format("its version is {}, this gradus knows {} and below",
                         saved.at("version").get<int64_t>(), kStateVersion));
      pass_had_ended = run.restore_saved_state(saved, p);
    } catch (const json::exception& error) {
      fail(error.what());
    }
  } else {
    pass_had_ended = p.state.global_step >= plan.max_steps;
    if (p.args.restore_callback_states_from_checkpoint)
      restore_exported(p.callbacks.all(), p.state.stateful_callbacks);
  }
  // Nothing is left to do of a run that is over.
  const bool over = run.ended_by_callback || p.state.global_step >= plan.max_steps;
  if (over)
    log_warning(fmt::format("The run had ended at step {}: nothing is left to train.",
                            p.state.global_step));
  if (over && pass_had_ended) run.first_epoch = plan.num_train_epochs;
}

void load_weights(Model& model, const fs::path& checkpoint) {
  auto expected = model.state_dict();
  Names unexpected;
  StateDict values;
  for (const auto& [name, tensor] : read_weights_folder(checkpoint)) {
    if (!expected.contains(name)) {
      unexpected.push_back(name);
      continue;
    }
    values.insert(name, tensor);
  }
  Names missing;
  for (const auto& item : expected) {
    if (values.contains(item.key())) continue;
    missing.push_back(item.key());
    values.insert(item.key(), item.value());
  }
  if (!missing.empty())
    log_warning(fmt::format("There were missing keys in the checkpoint model loaded: {}.",
                            fmt::join(missing, ", ")));
  if (!unexpected.empty())
    log_warning(fmt::format("There were unexpected keys in the checkpoint model loaded: {}.",
                            fmt::join(unexpected, ", ")));
  model.load_state_dict(values);
}

void load_best_model(Model& model, const TrainerState& state) {
  const auto& best = *state.best_model_checkpoint;
  log_info(
      fmt::format("Loading best model from {} (score: {}).", best, state.best_metric.value_or(0)));
  if (!fs::is_directory(best)) {
    log_warning("The best checkpoint " + best +
                " does not exist any more; the model stays as it is after the last step.");
    return;
  }
  load_weights(model, best);
}

void remove_all_but_best(const TrainingArguments& args, const TrainerState& state) {
  if (!args.should_save() || !state.best_model_checkpoint || args.save_total_limit != 1) return;
  const auto best = fs::path(*state.best_model_checkpoint).filename();
  for (const auto& dir : list_checkpoints(*args.output_dir))
    if (dir.path.filename() != best) remove_checkpoint(dir);
}

nlohmann::ordered_json Trainer::arguments_to_save() const { return parts_->args.to_dict(); }

void Trainer::save_model(const fs::path& directory) {
  auto& p = *parts_;
  if (!p.args.should_save()) return;
  const fs::path target = directory.empty() ? fs::path(*p.args.output_dir) : directory;
  make_directory(target);
  // Written beside and moved in file by file, so that a failure leaves the files of an earlier save
  // whole.
  const auto temporary = target / ".tmp-model";
  std::error_code ignored;
  fs::remove_all(temporary, ignored);
  make_directory(temporary);
  try {
    const auto float32 = p.engine.precision().shown();
    const auto written = write_safetensors_folder(
        temporary, named_tensors(*p.model),
        {.max_shard_size = parse_shard_size(p.args.max_shard_size), .sync = Sync::yes});
    p.model->save_config(temporary);
    if (p.processing_class) p.processing_class->save_pretrained(temporary);
    write_file_atomically(temporary / "training_args.json",
                          dump_json(arguments_to_save(), 2) + "\n");
    for (const auto& entry : fs::directory_iterator(temporary))
      move_file(entry.path(), target / entry.path().filename());
    remove_stale_weights(target, written);
    fs::remove_all(temporary, ignored);
    sync_path(target);
  } catch (...) {
    fs::remove_all(temporary, ignored);
    throw;
  }
}

void Trainer::save_state() {
  if (parts_->args.should_save())
    parts_->state.save_to_json(fs::path(*parts_->args.output_dir) / "trainer_state.json");
}

}  // namespace gradus
