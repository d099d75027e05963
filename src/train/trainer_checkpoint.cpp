// Saving a run and going on with it.
#include <ATen/record_function.h>
#include <fmt/format.h>
#include <gradus/checkpoint/checkpoint_dir.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/core/numpy_random.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/device/runtime.h>
#include <gradus/formats/sharded_folder.h>
#include <gradus/formats/torch_file.h>
#include <gradus/models/model_folder.h>

#include "config/sharding.h"
#include "core/parsed_json.h"
#include "train/best_checkpoint.h"
#include "train/data_fingerprint.h"
#include "train/file_state.h"
#include "train/saved_callbacks.h"
#include "train/sharded_save.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

using nlohmann::json;
using JsonPart = RunCheckpoint::Part<json>;
using TreePart = RunCheckpoint::Part<StateTree>;
constexpr int kStateVersion = 1;

// The weights are copied now and written later; what the model and the tokenizer write themselves
// is written now.
void snapshot_model(ModelFolder model, SnapshotBuffers& buffers, Snapshot& snapshot) {
  const auto folder = std::make_shared<ModelFolder>(std::move(model));
  folder->weights = folder->has_weights ? buffers.copy(folder->weights) : NamedTensors();
  snapshot.side_files.push_back([folder](const fs::path& to) { folder->write_config(to); });
  snapshot.files.push_back([folder](const fs::path& to) {
    WrittenFiles written;
    for (const auto& shard : folder->write_weights(to)) written[shard.file_name] = shard.written;
    return written;
  });
}

// A state that is not saved while `skip` is true.
template <class F>
auto unless(const bool& skip, F state) {
  return [&skip, state]() -> std::optional<decltype(state())> {
    if (skip) return std::nullopt;
    return state();
  };
}

void check_state_version(const json& saved) {
  const auto version = saved.at("version").get<int64_t>();
  if (version > kStateVersion)
    throw Error("G-CKPT-5", ErrorKind::checkpoint,
                fmt::format("gradus_state.json lacks something a resume needs: its version is {}, "
                            "this gradus knows {} and below",
                            version, kStateVersion),
                "It was written by another version of gradus, or is damaged.");
}

// With another number of processes each starts with the mean, so that the next log is the same.
void restore_losses(const json& saved, const Processes& processes, LossMeter& loss) {
  const auto all = saved.find("losses");
  if (all == saved.end()) return loss.restore(saved.at("loss_sum"), saved.at("filtered_losses"));
  if (int64_t(all->size()) == processes.size()) {
    const auto& own = all->at(size_t(processes.rank()));
    return loss.restore(own.at("sum"), own.at("filtered"));
  }
  double sum = 0;
  int64_t filtered = 0;
  for (const auto& each : *all) {
    sum += each.at("sum").get<double>() / double(all->size());
    filtered += each.at("filtered").get<int64_t>();
  }
  loss.restore(sum, filtered);
}

}  // namespace

void Trainer::Run::gather_states(const Parts& parts) {
  if (parts.processes.size() == 1 || parts.args.save_only_model) return;
  gather_callback_states(parts.callbacks.all());
  std::string file;
  auto random = before_evaluation ? before_evaluation->random : parts.random_state();
  random.cuda_as_list = true;  // as transformers writes it for several processes
  write_torch_file(
      [&](const void* data, size_t size) { file.append(static_cast<const char*>(data), size); },
      rng_state_tree(random));
  random_files = parts.processes.gather(file);
  losses = json::array();
  for (const auto& text :
       parts.processes.gather(json{{"sum", loss.sum()}, {"filtered", loss.filtered()}}.dump()))
    losses.push_back(strict_json(text));
}

json Trainer::Run::saved_state(const Parts& parts) {
  const bool stopped = parts.control.should_training_stop &&
                       parts.state.global_step < parts.state.max_steps &&
                       !parts.control.is_interrupted;
  if (!data) data = data_fingerprint(parts.train_dataset);
  json position = {{"epoch", epoch},
                   {"batches", batches_done},
                   {"at_epoch_end", at_epoch_end},
                   {"loader", batches ? batches->state() : json(nullptr)},
                   {"steps_in_epoch", plan.steps_in_epoch},
                   {"batch_size", parts.train_batch_size},
                   {"gradient_accumulation_steps", parts.args.gradient_accumulation_steps}};
  if (!batches && !restored_position.is_null()) position = restored_position;  // no step so far
  json saved = {{"version", kStateVersion},
                {"loss_sum", loss.sum()},
                {"filtered_losses", loss.filtered()},
                {"total_loss", total_loss},
                {"loss_from_step", loss_from_step},
                {"last_logged_step", last_logged_step},
                {"grad_norm", grad_norm ? json(grad_norm->item<double>()) : json(nullptr)},
                {"learning_rate", learning_rate ? json(*learning_rate) : json(nullptr)},
                {"stopped_by_callback", stopped},
                {"attention_backend", parts.engine.attention_backend()},
                {"data", *data},
                {"position", std::move(position)},
                {"callbacks", before_evaluation ? before_evaluation->callbacks
                                                : callback_states(parts.callbacks.all())}};
  if (parts.args.spike_action != "none") saved["spikes"] = spikes.state();
  if (!losses.is_null()) saved["losses"] = losses;
  if (auto memory = parts.model->memory(); !memory.is_null()) saved["model"] = std::move(memory);
  if (evaluation_is_missing)
    saved["interrupted_evaluation"] = {{"save", parts.control.save_was_due}};
  return saved;
}

void Trainer::Run::restore_saved_state(const json& saved, Parts& parts) {
  check_state_version(saved);
  restore_losses(saved, parts.processes, loss);
  total_loss = saved.at("total_loss");
  loss_from_step = saved.at("loss_from_step");
  last_logged_step = saved.at("last_logged_step");
  if (const auto& norm = saved.at("grad_norm"); !norm.is_null())
    grad_norm = torch::tensor(norm.get<double>(), torch::kDouble);
  if (const auto& rate = saved.at("learning_rate"); !rate.is_null())
    learning_rate = rate.get<double>();
  ended_by_callback = saved.at("stopped_by_callback");
  parts.engine.set_attention_backend(saved.value("attention_backend", std::string()));
  load_callback_states(parts.callbacks.all(), saved.at("callbacks"),
                       parts.args.restore_callback_states_from_checkpoint);
  if (const auto then = saved.find("data"); then != saved.end()) {
    data = data_fingerprint(parts.train_dataset);
    if (const auto difference = data_difference(*data, *then); !difference.empty())
      log_warning("The training data differs from that of the checkpoint: " + difference +
                  ". The run continues with the new data.");
  }
  if (const auto found = saved.find("spikes"); found != saved.end()) spikes.load(*found);
  if (const auto memory = saved.find("model"); memory != saved.end())
    parts.model->load_memory(*memory);
  restore_position(saved.at("position"), parts);
  restored_position = saved.at("position");
  if (const auto missing = saved.find("interrupted_evaluation"); missing != saved.end())
    repeat_evaluation = missing->at("save").get<bool>();
}

// transformers' rule: by the number of steps.
void Trainer::Run::begin_after(int64_t steps, const TrainingArguments& args) {
  last_logged_step = loss_from_step = steps;
  first_epoch = steps / plan.num_update_steps_per_epoch;
  skip_batches = args.ignore_data_skip
                     ? 0
                     : steps % plan.num_update_steps_per_epoch * args.gradient_accumulation_steps;
  pass_had_ended = steps >= plan.max_steps;
}

// Where the run stood exactly. With batches of another size only the number of steps counts.
void Trainer::Run::restore_position(const json& position, const Parts& parts) {
  pass_had_ended = false;
  const bool same_batches =
      position.at("steps_in_epoch") == plan.steps_in_epoch &&
      position.at("batch_size") == parts.train_batch_size &&
      position.at("gradient_accumulation_steps") == parts.args.gradient_accumulation_steps;
  if (!same_batches && loader.size()) return;
  const auto batches_of_pass = position.at("batches").get<int64_t>();
  pass_had_ended = position.at("at_epoch_end");
  // Nothing of a pass is skipped with ignore_data_skip, so one whose batches are all done must not
  // be entered again.
  if (parts.args.ignore_data_skip && batches_of_pass >= plan.steps_in_epoch) pass_had_ended = true;
  first_epoch = position.at("epoch").get<int64_t>() + (pass_had_ended ? 1 : 0);
  skip_batches = pass_had_ended || parts.args.ignore_data_skip ? 0 : batches_of_pass;
  if (skip_batches > 0) loader_state = position.at("loader");
}

void Trainer::Parts::export_callback_states() {
  state.stateful_callbacks = exported_callback_states(callbacks.all(), control);
}

void Trainer::Parts::agree_on_best() {
  if (processes.size() == 1) return;
  const auto best = processes.of_first([&] { return state.best_model_checkpoint.value_or(""); });
  state.best_model_checkpoint = best.empty() ? std::nullopt : std::optional(best);
}

RngState Trainer::Parts::random_state() const {
  auto random = foreign_rng;
  random.numpy = numpy_random().state();
  random.cpu = device::get_cpu_rng_state();
  random.cuda = device::get_gpu_rng_states();
  return random;
}

void Trainer::Parts::note_save(const std::optional<CheckpointWriter::Outcome>& outcome) {
  if (!outcome) return;
  if (!outcome->failure) {
    run->failed_saves = 0;
    run->failed_step.reset();
    return;
  }
  run->failed_step = outcome->step;
  state.best_model_checkpoint = run->best_before_save;
  if (++run->failed_saves < args.save_failures_allowed) {
    if (args.load_best_model_at_end && state.best_global_step == outcome->step)
      log_warning(
          fmt::format("The best model so far, that of step {}, is not on disk. "
                      "load_best_model_at_end takes the best one that was saved.",
                      outcome->step));
    return;
  }
  const auto newest = newest_checkpoint(*args.output_dir);
  throw Error("G-CKPT-6", ErrorKind::checkpoint, outcome->failure->message(),
              fmt::format("It is failure {} in a row; --save_failures_allowed is {}. {}\n{}",
                          run->failed_saves, args.save_failures_allowed, outcome->failure->advice(),
                          newest ? "The newest checkpoint is " + newest->path.string() +
                                       ". Continue from it with --resume_from_checkpoint last."
                                 : "There is no checkpoint to continue from."));
}

std::string Trainer::Parts::what_a_failed_save_means() const {
  const auto count = run->failed_saves + 1;
  if (count >= args.save_failures_allowed)
    return fmt::format("It is failure {} in a row: the run ends.", count);
  return fmt::format(
      "The run goes on and tries the next save; after {} failures in a row it ends "
      "(--save_failures_allowed). This is number {}.",
      args.save_failures_allowed, count);
}

ModelFolder Trainer::Parts::model_folder(nlohmann::ordered_json arguments) const {
  return ModelFolder(*model, {.tokenizer = processing_class.get(),
                              .arguments = std::move(arguments),
                              .max_shard_size = args.max_shard_size});
}

void Trainer::Run::add_checkpoint_parts(Parts& p, std::function<ModelFolder()> model) {
  const bool is_sharded = p.engine.strategy().is_sharded();
  checkpoint.add([model, is_sharded](SnapshotBuffers& buffers, Snapshot& snapshot) {
    auto folder = model();
    folder.has_weights = !is_sharded;
    snapshot_model(std::move(folder), buffers, snapshot);
  });
  const auto load_state = [this, &p](const json& saved) {
    p.state = TrainerState::from_json(saved);
    begin_after(p.state.global_step, p.args);
  };
  checkpoint.add("trainer_state.json",
                 RunCheckpoint::TextPart{[&p] { return p.state.text_pieces(); }, load_state});
  add_optimizer_parts(p);

  add_random_parts(p);
  const bool& only_model = p.args.save_only_model;
  checkpoint.add("gradus_state.json",
                 JsonPart{unless(only_model, [this, &p] { return saved_state(p); }),
                          [this, &p](const json& saved) { restore_saved_state(saved, p); }});
  for (const auto& callback : p.callbacks.all())
    // Few callbacks have files.
    if (auto* own = dynamic_cast<FileState*>(callback.get()))
      checkpoint.add(own->file_name(),
                     JsonPart{unless(only_model, [own] { return own->file_state(); }),
                              [own](const json& saved) { own->load_file_state(saved); }});
}

// A single process has rng_state.pth. Several have a file each, which those that save write.
void Trainer::Run::add_random_parts(Parts& p) {
  const auto random_state = [this, &p] {
    return rng_state_tree(before_evaluation ? before_evaluation->random : p.random_state());
  };
  const auto load_random_state = [this, &p](const StateTree& saved) {
    rng = rng_state_of(saved);  // set before the first step
    p.foreign_rng.python = rng->python;
  };
  if (p.processes.size() == 1) {
    const bool& only_model = p.args.save_only_model;
    checkpoint.add("rng_state.pth", TreePart{unless(only_model, random_state), load_random_state});
    return;
  }
  checkpoint.add([this](SnapshotBuffers&, Snapshot& snapshot) {
    for (size_t rank = 0; rank < random_files.size(); ++rank)
      snapshot.files.push_back(
          text_file_writer(fmt::format("rng_state_{}.pth", rank), random_files[rank]));
  });
  checkpoint.add(
      fmt::format("rng_state_{}.pth", p.processes.rank()),
      TreePart{[]() -> std::optional<StateTree> { return std::nullopt; }, load_random_state});
}

// Optimizer and schedule are restored only together, as in transformers.
void Trainer::Run::add_optimizer_parts(Parts& p) {
  const bool& only_model = p.args.save_only_model;
  const auto loaded = std::make_shared<StateTree>();
  add_shards(p, loaded);
  const auto optimizer_state = [&p]() -> std::optional<StateTree> {
    if (p.args.save_only_model || p.engine.strategy().is_sharded()) return std::nullopt;
    return p.optimizer_state();
  };
  checkpoint.add("optimizer.pt", TreePart{optimizer_state, [&p, loaded](const StateTree& saved) {
                                            *loaded = p.engine.strategy().localize(saved);
                                          }});
  const auto load_both = [this, &p, loaded](const StateTree& schedule) {
    const auto saved = std::exchange(*loaded, StateTree());
    if (saved.is_none()) return;
    load_training_state(saved, schedule, *p.engine.optimizer(), *p.engine.schedule(),
                        changed_options, p.state.global_step);
    if (const auto* tensors = saved.find("gradus_callbacks"))
      load_callback_tensors(p.callbacks.all(), *tensors);
  };
  checkpoint.add(
      "scheduler.pt",
      TreePart{unless(only_model, [&p] { return p.engine.schedule()->state_dict(); }), load_both});

  const auto scaler_state = [&p]() -> std::optional<StateTree> {
    const auto* scaler = p.engine.precision().scaler();
    if (p.args.save_only_model || scaler == nullptr) return std::nullopt;
    return scaler->state_dict();
  };
  const auto load_scaler = [&p](const StateTree& saved) {
    if (auto* scaler = p.engine.precision().scaler()) scaler->load_state_dict(saved);
  };
  checkpoint.add("scaler.pt", TreePart{scaler_state, load_scaler});
}

StateTree Trainer::Parts::optimizer_state() const {
  auto tree = engine.optimizer()->state_dict();
  if (auto tensors = callback_tensors(callbacks.all()))
    tree.set("gradus_callbacks", std::move(*tensors));  // Python's loaders pass over it
  return tree;
}

// The parts of this process, copied.
ShardOfRun Trainer::Parts::shard_of_run(SnapshotBuffers& buffers) const {
  std::optional<StateTree> optimizer;
  if (!args.save_only_model)
    optimizer = processes.rank() == 0 ? optimizer_state() : engine.optimizer()->state_dict();
  ShardOfRun shard(model->saved_weights(), engine.strategy(), optimizer);
  shard.parts = buffers.copy(shard.parts);
  return shard;
}

// Weights and optimizer state of a sharded model. A checkpoint that has them may be continued by a
// run of any other kind, too.
void Trainer::Run::add_shards(Parts& p, const std::shared_ptr<StateTree>& loaded) {
  const auto save = [&p](SnapshotBuffers& buffers, Snapshot& snapshot) {
    if (!p.engine.strategy().is_sharded()) return;
    ShardCollection how{p.processes.timeout(), [&p] { return p.processes.is_lost(); }};
    if (!config::sharding_of(p.args).sharded_checkpoints)
      how.consolidated = ShardOptions{.max_shard_size = parse_shard_size(p.args.max_shard_size)};
    snapshot.others = ShardedFolder::kPrefix;
    snapshot.files.push_back(shards_collector(p.shard_of_run(buffers), std::move(how)));
  };
  const auto load = [&p, loaded](const fs::path& index) {
    const ShardedFolder folder(index.parent_path());
    if (folder.has_optimizer())
      *loaded =
          folder.optimizer([&p](int64_t number) { return p.engine.strategy().held_range(number); });
  };
  checkpoint.add(ShardedFolder::kIndex, save, load);
}

// A folder of the first process, for all to write to; null in the others. Where it cannot be made,
// the save fails in the first process alone.
std::shared_ptr<StagedFolder> Trainer::Parts::shared_folder(fs::path& path) const {
  std::shared_ptr<StagedFolder> folder;
  path = processes.of_first([&]() -> std::string {
    try {
      make_directory(*args.output_dir);
      folder = std::make_shared<StagedFolder>(checkpoint_path(*args.output_dir, state.global_step));
      return folder->path().string();
    } catch (const Error&) {
      return "";
    }
  });
  return folder;
}

void Trainer::save_checkpoint() {
  auto& p = *parts_;
  auto& run = *p.run;
  // So that the best checkpoint is there if it was the one before.
  const double began = wall_clock();
  p.note_save(p.writer.wait_for_outcome());
  p.watch_save(began);
  run.store_flos(p.state, p.processes);
  run.best_before_save = p.state.best_model_checkpoint;
  note_best_checkpoint(p.state, p.args, p.state.global_step);
  run.saved_step = p.state.global_step;
  run.gather_states(p);
  p.agree_on_best();
  std::shared_ptr<StagedFolder> folder;
  const at::DisableRecordFunctionGuard unseen;  // names and parts are read, no whole parameters
  if (p.engine.strategy().is_sharded()) {
    fs::path path;
    folder = p.shared_folder(path);
    if (p.processes.rank() != 0 && !path.empty()) {
      auto& buffers = p.writer.buffers();
      buffers.begin();
      Snapshot own;
      own.files.push_back(shard_writer(p.shard_of_run(buffers)));
      p.writer.start({.step = p.state.global_step, .snapshot = std::move(own), .into = path});
    }
  }
  if (!p.args.should_save()) return;
  p.export_callback_states();
  if (run.before_evaluation) {
    p.state.stateful_callbacks = run.before_evaluation->exported_callbacks;
    p.state.stateful_callbacks["TrainerControl"] = p.control.state();
  }
  const auto float32 = p.engine.precision().shown();
  std::optional<fs::path> best;
  if (p.state.best_model_checkpoint) best = *p.state.best_model_checkpoint;
  run.checkpoint.save({.run_dir = *p.args.output_dir,
                       .step = p.state.global_step,
                       .rotation = RotationPolicy(p.args.save_total_limit),
                       .best = best,
                       .if_it_fails = p.what_a_failed_save_means(),
                       .folder = std::move(folder)});
}

void Trainer::restore_run(const fs::path& checkpoint) {
  auto& p = *parts_;
  auto& run = *p.run;
  run.changed_options = warn_about_changed_options(p.args, checkpoint);
  const auto missing = run.checkpoint.restore(checkpoint);
  const auto lacks = [&](const char* file) {
    return std::find(missing.begin(), missing.end(), file) != missing.end();
  };
  p.state.is_world_process_zero = is_world_process_zero();
  p.state.is_local_process_zero = is_local_process_zero();
  if (p.state.best_model_checkpoint && !fs::is_directory(*p.state.best_model_checkpoint)) {
    log_warning("The best checkpoint " + *p.state.best_model_checkpoint +
                " of the resumed run does not exist any more and is ignored.");
    p.state.best_model_checkpoint.reset();
  }
  if ((lacks("optimizer.pt") && lacks(ShardedFolder::kIndex)) || lacks("scheduler.pt"))
    log_warning(
        checkpoint.string() +
        " has no optimizer.pt and scheduler.pt (save_only_model): both start from the beginning.");
  if (lacks("gradus_state.json") && p.args.restore_callback_states_from_checkpoint)
    load_exported_callback_states(p.callbacks.all(), p.state.stateful_callbacks);
  const bool is_over = run.ended_by_callback || p.state.global_step >= run.plan.max_steps;
  if (!is_over || run.repeat_evaluation)
    return say_where_a_run_goes_on(checkpoint, p.state, run.plan.max_steps);
  log_warning(
      fmt::format("The run had ended at step {}: nothing is left to train.", p.state.global_step));
}

nlohmann::ordered_json Trainer::arguments_to_save() const { return parts_->args.to_dict(); }

void Trainer::save_model(const fs::path& directory) {
  auto& p = *parts_;
  const auto whole = p.engine.strategy().whole(Strategy::Use::read);
  if (!p.args.should_save()) return;
  const auto float32 = p.engine.precision().shown();
  p.model_folder(arguments_to_save())
      .save(directory.empty() ? fs::path(*p.args.output_dir) : directory);
}

void Trainer::save_state() {
  if (parts_->args.should_save())
    parts_->state.save_to_json(fs::path(*parts_->args.output_dir) / "trainer_state.json");
}

}  // namespace gradus
