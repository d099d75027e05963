#include <fmt/format.h>
#include <gradus/checkpoint/staged_folder.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/functional/trainer.h>

namespace gradus::functional {
namespace fs = std::filesystem;
namespace {

constexpr auto kModel = "flax_model.msgpack";
constexpr auto kOptimizer = "opt_state.msgpack";
constexpr auto kProgress = "training_state.json";
constexpr auto kArgs = "args.json";
constexpr auto kCollator = "data_collator.json";

/// A field of training_state.json; `fallback` where Python's file does not have it.
template <class T>
T progress(const nlohmann::json& json, const fs::path& file, const char* name,
           std::optional<T> fallback) {
  const auto value = json.is_object() && json.contains(name) ? json.at(name) : nlohmann::json();
  if (value.is_null() && fallback) return *fallback;
  const bool fits = std::is_same_v<T, double>
                        ? value.is_number()
                        : value.is_number_unsigned() ||
                              (value.is_number_integer() && value.template get<int64_t>() >= 0);
  if (!fits)
    throw Error("G-FN-4", ErrorKind::checkpoint,
                fmt::format("{}: '{}' is {}, expected {}", file.string(), name,
                            value.is_null() ? "missing" : value.dump(),
                            std::is_same_v<T, double> ? "a number" : "a whole number from 0 on"),
                "The file is damaged. Use another checkpoint.");
  return value.template get<T>();
}

}  // namespace

void save_flax_model(const fs::path& directory, const Params& params) {
  write_flax_msgpack(directory / kModel, to_flax(params));
}

void Trainer::save_checkpoint(const fs::path& directory, const TrainState& state) const {
  StagedFolder folder(directory);
  options_.model_save_fn(folder.path(), options_.flax_layout.stored(state.params));
  write_flax_msgpack(folder.path() / kOptimizer,
                     to_flax(options_.flax_layout.stored(state.opt_state)));
  const nlohmann::ordered_json progress = {
      {"step", state.step},
      {"key", state.key.value()},
      {"running_loss", state.running_loss.defined() ? state.running_loss.item<double>() : 0.0}};
  write_file_atomically(folder.path() / kProgress, dump_json(progress));
  write_file_atomically(folder.path() / kArgs, dump_json(to_json(options_.args), 2) + "\n");
  write_file_atomically(folder.path() / kCollator,
                        dump_json(options_.data_collator.settings(), 2) + "\n");
  folder.publish();
  log_info("saved the checkpoint " + directory.string());
}

Checkpoint restore_checkpoint(const fs::path& directory, const TrainState& like,
                              const FlaxLayout& layout) {
  if (!fs::is_directory(directory))
    throw Error("G-FN-4", ErrorKind::checkpoint, directory.string() + " is not a folder",
                "Name a checkpoint: a folder with " + std::string(kModel) + ", " + kOptimizer +
                    " and " + kProgress + ".");
  Checkpoint checkpoint;
  checkpoint.params =
      layout.loaded(from_flax(read_flax_msgpack(directory / kModel), layout.stored(like.params),
                              (directory / kModel).string()),
                    like.params);
  checkpoint.opt_state =
      layout.loaded(from_flax(read_flax_msgpack(directory / kOptimizer),
                              layout.stored(like.opt_state), (directory / kOptimizer).string()),
                    like.opt_state);
  const auto file = directory / kProgress;
  const auto json = read_json(file);
  checkpoint.step = progress<int64_t>(json, file, "step", std::nullopt);
  checkpoint.key = Key(progress<uint64_t>(json, file, "key", 0));
  checkpoint.running_loss = progress<double>(json, file, "running_loss", 0);
  if (fs::exists(directory / kArgs))
    checkpoint.args = args_from_json(read_json(directory / kArgs), (directory / kArgs).string());
  if (fs::exists(directory / kCollator))
    checkpoint.collator_settings = read_json(directory / kCollator);
  return checkpoint;
}

}  // namespace gradus::functional
