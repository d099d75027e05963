#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/hooks/checkpoint_hook.h>
#include <gradus/hooks/metrics_hook.h>
#include <gradus/hooks/trainer.h>
#include <gradus/trackers/jsonl.h>
#include <gradus/trackers/tensorboard.h>

#include <ATen/ops/stack.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <sstream>

namespace gradus::hooks {
namespace {

constexpr size_t kPendingLimit = 256;  // values kept on the device before they are fetched together

double number(const MetricValue& value) {
  const auto* tensor = std::get_if<torch::Tensor>(&value);
  return tensor == nullptr ? std::get<double>(value) : tensor->item<double>();
}

/// {"a": {"b": 1}} as {"a.b": 1}, the form trackers show.
void flatten(const nlohmann::json& value, const std::string& prefix, nlohmann::json& flat) {
  if (!value.is_object() || (value.empty() && !prefix.empty())) {
    flat[prefix] = value;
    return;
  }
  for (const auto& [key, entry] : value.items())
    flatten(entry, prefix.empty() ? key : prefix + "." + key, flat);
}

bool is_counter(const std::string& key) {
  return key == "step" || key == "epoch" || key == "batch_idx" || key == "optimizer_step";
}

std::map<std::string, double> counters(const StepState& state) {
  return {{"batch_idx", double(state.batch_idx)},
          {"optimizer_step", double(state.optimizer_step)},
          {"epoch", double(state.epoch)}};
}

}  // namespace

MetricsHook::MetricsHook(MetricsOptions options) : options_(std::move(options)) {
  ord = -10;
  if (options_.freq < 1)
    throw Error("G-HOOK-1", ErrorKind::usage,
                fmt::format("MetricsHook: freq: expected at least 1, received {}", options_.freq),
                "1 logs every optimizer step.");
  for (const auto& metric : options_.metrics)
    if (metric == nullptr)
      throw Error("G-HOOK-1", ErrorKind::usage,
                  "MetricsHook: expected a metric, received a null pointer",
                  "Leave the entry out.");
}

void MetricsHook::Mean::settle() {
  if (pending.empty()) return;
  const auto values = at::stack(pending).to(torch::kCPU, torch::kDouble);
  for (const double value : std::span(values.const_data_ptr<double>(), pending.size()))
    sum += value;
  count += int64_t(pending.size());
  pending.clear();
}

void MetricsHook::collect(Trainer& trainer, Point phase) {
  const std::string prefix = trainer.training() ? "train_" : "valid_";
  for (const auto& metric : options_.metrics) {
    if (metric->phase != phase || !metric->should_run(trainer)) continue;
    for (auto& [key, value] : (*metric)(trainer)) {
      const auto full = metric->use_prefix ? prefix + key : key;
      auto& mean = means_[full];
      if (auto* tensor = std::get_if<torch::Tensor>(&value)) {
        *tensor = tensor->detach().reshape({});
        mean.pending.push_back(tensor->clone());  // a step may reuse the memory of its outputs
        value = mean.pending.back();
        if (mean.pending.size() >= kPendingLimit) mean.settle();
      } else {
        mean.settle();
        mean.sum += std::get<double>(value);
        ++mean.count;
      }
      step_data_[full] = value;
    }
  }
}

void MetricsHook::open_tracker(const Trainer& trainer) {
  tracker_ = options_.tracker;
  const auto type = options_.tracker_type.value_or("");
  if (tracker_ == nullptr && type == "file") {
    if (options_.log_file.has_parent_path()) make_directory(options_.log_file.parent_path());
    const auto* checkpoints = trainer.get_hook<CheckpointHook>(nullptr);
    if (checkpoints == nullptr || !checkpoints->will_resume())
      std::filesystem::remove(options_.log_file);
    tracker_ = jsonl_logger(options_.log_file);
  } else if (tracker_ == nullptr && type == "tensorboard") {
    tracker_ = tensorboard_tracker(options_.name.value_or("."));
  } else if (tracker_ == nullptr && !type.empty()) {
    log_warning(
        fmt::format("MetricsHook: there is no tracker '{}'; known are file and tensorboard. "
                    "Metrics go to the log only.",
                    type));
  }
  if (tracker_ == nullptr) return;
  auto config = nlohmann::json::object();
  flatten(options_.config.is_null() ? nlohmann::json::object() : options_.config, "", config);
  if (options_.name) config["name"] = *options_.name;
  if (options_.project) config["project"] = *options_.project;
  tracker_->begin(config, nullptr);
}

void MetricsHook::before_fit(Trainer& trainer) { open_tracker(trainer); }

void MetricsHook::before_epoch(Trainer& trainer) {
  if (tracker_ != nullptr) tracker_->training_begins(trainer.step_state().samples_seen);
  means_.clear();
  if (restored_) means_ = std::move(*std::exchange(restored_, std::nullopt));
}

void MetricsHook::after_pred(Trainer& trainer) { collect(trainer, Point::after_pred); }
void MetricsHook::after_loss(Trainer& trainer) { collect(trainer, Point::after_loss); }
void MetricsHook::after_backward(Trainer& trainer) { collect(trainer, Point::after_backward); }

void MetricsHook::after_step(Trainer& trainer) {
  collect(trainer, Point::after_step);
  if (trainer.training() && !trainer.did_opt_step()) return;
  const auto& state = trainer.step_state();
  if (trainer.training() && tracker_ != nullptr && state.optimizer_step % options_.freq == 0) {
    auto values = step_data();
    values.merge(counters(state));
    tracker_->log(values, state.samples_seen);
  }
  step_data_.clear();
}

void MetricsHook::after_epoch(Trainer& trainer) {
  const auto& state = trainer.step_state();
  epoch_data_.clear();
  for (auto& [key, mean] : means_) {
    mean.settle();
    if (mean.count > 0) epoch_data_[key] = mean.sum / double(mean.count);
  }
  auto validated = epoch_data_;
  std::erase_if(validated, [](const auto& entry) { return !entry.first.starts_with("valid_"); });
  if (tracker_ != nullptr && !validated.empty()) {
    auto values = options_.tracker_type == "file" ? epoch_data_ : validated;
    values.merge(counters(state));
    tracker_->log(values, state.samples_seen);
  }
  auto line = fmt::format("Epoch {}/{}", state.epoch + 1, trainer.epochs());
  for (const auto& [key, value] : epoch_data_)
    if (options_.verbose || key.find("loss") != std::string::npos)
      line += fmt::format(" | {}: {:.4f}", key, value);
  log_info(line);
}

void MetricsHook::after_fit(Trainer&) {
  if (tracker_ != nullptr) tracker_->finish();
}

std::map<std::string, double> MetricsHook::step_data() const {
  std::map<std::string, double> data;
  for (const auto& [key, value] : step_data_) data[key] = number(value);
  return data;
}

StateTree MetricsHook::save_state() const {
  auto state = StateTree::dict();
  for (auto [key, mean] : means_) {
    mean.settle();
    state.set(key, StateTree::Tuple{{mean.sum, mean.count}});
  }
  return state;
}

void MetricsHook::load_state(const StateTree& state, bool in_validation) {
  restored_.emplace();
  for (const auto& [key, entry] : state.entries()) {
    const auto& name = std::get<std::string>(key);
    if (in_validation && name.starts_with("valid_")) continue;  // validation starts over
    (*restored_)[name] = Mean{entry.items().at(0).as_double(), entry.items().at(1).as_int(), {}};
  }
}

std::string MetricsHook::plot(const std::vector<std::string>& metrics) const {
  std::map<std::string, std::vector<double>> curves;
  std::istringstream lines(read_file(options_.log_file));
  for (std::string line; std::getline(lines, line);) {
    if (line.empty()) continue;
    const auto entry = parse_json(line, options_.log_file.string());
    const bool of_epoch =
        std::any_of(entry.items().begin(), entry.items().end(),
                    [](const auto& item) { return item.key().starts_with("valid_"); });
    for (const auto& [key, value] : entry.items()) {
      if (is_counter(key) || !value.is_number() || (of_epoch && !key.starts_with("valid_")))
        continue;
      const auto root =
          key.starts_with("train_") || key.starts_with("valid_") ? key.substr(6) : key;
      if (metrics.empty() || std::find(metrics.begin(), metrics.end(), root) != metrics.end())
        curves[key].push_back(value.get<double>());
    }
  }
  constexpr std::array kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  constexpr size_t kWidth = 60;
  std::string text;
  for (const auto& [key, values] : curves) {
    const auto [least, most] = std::minmax_element(values.begin(), values.end());
    text += fmt::format("{:<20} ", key);
    const auto width = std::min(kWidth, values.size());
    for (size_t i = 0; i < width; ++i) {
      const double height =
          *most > *least ? (values[i * values.size() / width] - *least) / (*most - *least) : 0.5;
      text += kBlocks[std::min<size_t>(7, size_t(height * 8))];
    }
    text += fmt::format(" {:.4f} to {:.4f}, last {:.4f}\n", *least, *most, values.back());
  }
  log_print(text);
  return text;
}

}  // namespace gradus::hooks
