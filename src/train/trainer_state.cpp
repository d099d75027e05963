#include <gradus/config/training_arguments.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/train/trainer_control.h>
#include <gradus/train/trainer_state.h>

#include <set>

namespace gradus {
namespace {

using nlohmann::json;

template <class T>
json or_null(const std::optional<T>& value) {
  return value ? json(*value) : json(nullptr);
}

template <class T>
void read(const json& from, const char* key, T& to) {
  if (const auto it = from.find(key); it != from.end() && !it->is_null()) it->get_to(to);
}

template <class T>
void read(const json& from, const char* key, std::optional<T>& to) {
  to.reset();
  if (const auto it = from.find(key); it != from.end() && !it->is_null()) to = it->get<T>();
}

json all_but_log_history(const TrainerState& state) {
  return {{"epoch", state.epoch},
          {"global_step", state.global_step},
          {"max_steps", state.max_steps},
          {"logging_steps", state.logging_steps},
          {"eval_steps", state.eval_steps},
          {"save_steps", state.save_steps},
          {"train_batch_size", or_null(state.train_batch_size)},
          {"num_train_epochs", state.num_train_epochs},
          {"num_input_tokens_seen", state.num_input_tokens_seen},
          {"total_flos", state.total_flos},
          {"best_metric", or_null(state.best_metric)},
          {"best_global_step", or_null(state.best_global_step)},
          {"best_model_checkpoint", or_null(state.best_model_checkpoint)},
          {"is_local_process_zero", state.is_local_process_zero},
          {"is_world_process_zero", state.is_world_process_zero},
          {"is_hyper_param_search", state.is_hyper_param_search},
          {"trial_name", or_null(state.trial_name)},
          {"trial_params", state.trial_params},
          {"stateful_callbacks", state.stateful_callbacks}};
}

// Counts that HF writes as integers.
bool is_count(const std::string& key) { return key == "num_input_tokens_seen" || key == "step"; }

}  // namespace

json log_entry(const Logs& logs, int64_t step) {
  json entry = json::object();
  for (const auto& [key, value] : logs)
    entry[key] = is_count(key) ? json(int64_t(value)) : json(value);
  entry["step"] = step;
  return entry;
}

void TrainerState::compute_steps(const TrainingArguments& args, int64_t steps) {
  logging_steps = args.logging_steps.steps(steps);
  save_steps = args.save_steps.steps(steps);
  if (args.eval_steps) eval_steps = args.eval_steps->steps(steps);
}

json TrainerState::to_json() const {
  auto fields = all_but_log_history(*this);
  fields["log_history"] = log_history;
  return fields;
}

TrainerState TrainerState::from_json(const json& from) {
  const auto fail = [](const std::string& why) {
    return Error("G-CKPT-4", ErrorKind::checkpoint, "trainer_state.json " + why,
                 "The file is damaged or was written by another program.");
  };
  if (!from.is_object()) throw fail("must be an object, is " + std::string(from.type_name()));
  const auto known = TrainerState().to_json();
  for (const auto& [key, value] : from.items())
    if (!known.contains(key)) throw fail("has an unknown key '" + key + "'");
  TrainerState state;
  try {
    read(from, "epoch", state.epoch);
    read(from, "global_step", state.global_step);
    read(from, "max_steps", state.max_steps);
    read(from, "logging_steps", state.logging_steps);
    read(from, "eval_steps", state.eval_steps);
    read(from, "save_steps", state.save_steps);
    read(from, "train_batch_size", state.train_batch_size);
    read(from, "num_train_epochs", state.num_train_epochs);
    read(from, "num_input_tokens_seen", state.num_input_tokens_seen);
    read(from, "total_flos", state.total_flos);
    read(from, "log_history", state.log_history);
    read(from, "best_metric", state.best_metric);
    read(from, "best_global_step", state.best_global_step);
    read(from, "best_model_checkpoint", state.best_model_checkpoint);
    read(from, "is_local_process_zero", state.is_local_process_zero);
    read(from, "is_world_process_zero", state.is_world_process_zero);
    read(from, "is_hyper_param_search", state.is_hyper_param_search);
    read(from, "trial_name", state.trial_name);
    state.trial_params = from.value("trial_params", json(nullptr));
    read(from, "stateful_callbacks", state.stateful_callbacks);
  } catch (const json::exception& error) {
    throw fail(std::string("has a value of the wrong type: ") + error.what());
  }
  if (const auto history = from.find("log_history"); history != from.end() && history->is_array())
    for (const auto& entry : *history)
      if (!entry.is_object() || !entry.value("step", json(0)).is_number())
        throw fail("has an entry of log_history that is no object with a number as step: " +
                   dump_json(entry).substr(0, 60));
  return state;
}

std::vector<std::shared_ptr<const std::string>> TrainerState::text_pieces() const {
  auto fields = all_but_log_history(*this);
  fields["log_history"] = json::array();
  const auto text = dump_json(fields, 2) + "\n";
  // Two spaces are the depth of a field, and no string holds a line break: this is the one place.
  constexpr std::string_view kBeginning = "\n  \"log_history\": [";
  const auto inside = text.find(kBeginning) + kBeginning.size();
  const auto piece = [](std::string part) {
    return std::make_shared<const std::string>(std::move(part));
  };
  std::vector<std::shared_ptr<const std::string>> pieces{piece(text.substr(0, inside))};
  for (auto& entries : log_history.text_pieces()) pieces.push_back(std::move(entries));
  pieces.push_back(piece(text.substr(inside)));
  return pieces;
}

std::string TrainerState::to_text() const {
  std::string text;
  for (const auto& piece : text_pieces()) text += *piece;
  return text;
}
void TrainerState::save_to_json(const std::filesystem::path& file) const {
  write_file_atomically(file, to_text());
}
TrainerState TrainerState::load_from_json(const std::filesystem::path& file) {
  return from_json(read_json(file));
}

json TrainerControl::state() const {
  return {{"args",
           {{"should_training_stop", should_training_stop},
            {"should_epoch_stop", should_epoch_stop},
            {"should_save", should_save},
            {"should_evaluate", should_evaluate},
            {"should_log", should_log}}},
          {"attributes", json::object()}};
}

TrainerControl TrainerControl::from_state(const json& state) {
  const auto args = state.value("args", json::object());
  return {.should_training_stop = args.value("should_training_stop", false),
          .should_epoch_stop = args.value("should_epoch_stop", false),
          .should_save = args.value("should_save", false),
          .should_evaluate = args.value("should_evaluate", false),
          .should_log = args.value("should_log", false)};
}

}  // namespace gradus
