// create_model_card: the README.md of a saved folder, in the sections of transformers' own.
#include <fmt/format.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/version.h>
#include <torch/version.h>

#include <set>

#include "runs/curve_picture.h"
#include "runs/run_data.h"
#include "train/trainer_parts.h"

namespace gradus {
namespace fs = std::filesystem;
namespace {

using CardRow = std::vector<std::pair<std::string, std::string>>;  // names and values in order

// At most four decimals.
std::string card_number(const nlohmann::json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (!value.is_number_float()) return dump_json(value);
  const auto text = json_number(value.get<double>());
  const auto dot = text.find('.');
  return dot != std::string::npos && text.size() - dot - 1 > 4
             ? fmt::format("{:.4f}", value.get<double>())
             : text;
}

// "eval_matthews_correlation" -> "Matthews Correlation".
std::string card_name(std::string_view key) {
  std::string name;
  bool first = true;
  for (const char letter : key.substr(key.starts_with("eval_") ? 5 : 0)) {
    name += letter == '_' ? ' '
                          : char(first ? std::toupper(static_cast<unsigned char>(letter))
                                       : std::tolower(static_cast<unsigned char>(letter)));
    first = letter == '_';
  }
  return name;
}

// What an evaluation gave, the loss first; no speeds and no place in the run.
CardRow card_scores(const nlohmann::json& entry, const char* loss_name) {
  static const std::set<std::string> kOther = {"eval_loss",
                                               "eval_runtime",
                                               "eval_samples_per_second",
                                               "eval_steps_per_second",
                                               "eval_model_preparation_time",
                                               "epoch",
                                               "step",
                                               "total_flos"};
  CardRow scores = {{loss_name, card_number(entry.at("eval_loss"))}};
  for (const auto& [key, value] : entry.items())
    if (!kOther.contains(key)) scores.emplace_back(card_name(key), card_number(value));
  return scores;
}

std::string card_table(const std::vector<CardRow>& rows) {
  if (rows.empty()) return "";
  std::vector<size_t> widths;
  for (const auto& [name, value] : rows.front()) widths.push_back(name.size());
  for (const auto& row : rows)
    for (size_t i = 0; i < std::min(widths.size(), row.size()); ++i)
      widths[i] = std::max(widths[i], row[i].second.size());
  std::string head, rule, body;
  for (size_t i = 0; i < widths.size(); ++i) {
    head += fmt::format("| {:<{}} ", rows.front()[i].first, widths[i]);
    rule += "|:" + std::string(widths[i], '-') + ":";
  }
  for (const auto& row : rows) {
    for (size_t i = 0; i < std::min(widths.size(), row.size()); ++i)
      body += fmt::format("| {:<{}} ", row[i].second, widths[i]);
    body += "|\n";
  }
  return head + "|\n" + rule + "|\n" + body;
}

// One row for each evaluation during training: the entries before the summary of the run.
std::vector<CardRow> card_evaluations(const LogHistory& history) {
  std::vector<CardRow> rows;
  std::string loss = "No log";
  for (const auto& entry : history) {
    if (entry.contains("train_runtime")) break;
    if (entry.contains("loss")) loss = card_number(entry["loss"]);
    if (!entry.contains("eval_loss")) continue;
    CardRow row = {{"Training Loss", loss},
                   {"Epoch", card_number(entry.value("epoch", nlohmann::json(0.0)))},
                   {"Step", card_number(entry.at("step"))}};
    for (auto& score : card_scores(entry, "Validation Loss")) row.push_back(std::move(score));
    rows.push_back(std::move(row));
  }
  return rows;
}

CardRow card_options(const TrainingArguments& args) {
  const auto all = args.to_dict();
  const auto total = args.train_batch_size() * (args.elastic_order ? 1 : args.world_size()) *
                     args.gradient_accumulation_steps;
  CardRow options;
  const auto add = [&](const std::string& name, const nlohmann::json& value) {
    options.emplace_back(name, value.is_string()         ? value.get<std::string>()
                               : value.is_number_float() ? json_number(value.get<double>())
                                                         : dump_json(value));
  };
  add("learning_rate", args.learning_rate);
  add("train_batch_size", args.train_batch_size());
  add("eval_batch_size", args.eval_batch_size());
  add("seed", args.seed);
  if (args.gradient_accumulation_steps > 1)
    add("gradient_accumulation_steps", args.gradient_accumulation_steps);
  if (total != args.train_batch_size()) add("total_train_batch_size", total);
  auto optimizer = args.optim;
  if (optimizer.find("adam") != std::string::npos)
    optimizer += fmt::format(" with betas=({},{}) and epsilon={}", json_number(args.adam_beta1),
                             json_number(args.adam_beta2), json_number(args.adam_epsilon));
  if (args.optim_args) optimizer += fmt::format(" and {}", *args.optim_args);
  add("optimizer", optimizer);
  add("lr_scheduler_type", args.lr_scheduler_type);
  if (all.at("warmup_steps") != 0) add("lr_scheduler_warmup_steps", all.at("warmup_steps"));
  if (args.max_steps != -1)
    add("training_steps", args.max_steps);
  else
    add("num_epochs", args.num_train_epochs);
  if (args.fp16) add("mixed_precision_training", "fp16");
  if (args.bf16) add("mixed_precision_training", "bf16");
  if (args.label_smoothing_factor != 0) add("label_smoothing_factor", args.label_smoothing_factor);
  return options;
}

// The losses and scores of the run as a picture; empty when there is no point yet.
std::string card_picture(const LogHistory& history) {
  constexpr size_t kMostCardCharts = 4, kCardPoints = 1000;
  std::map<std::string, runs::Series> series;
  for (const auto& entry : history)
    for (const auto& [key, value] : entry.items())
      if (value.is_number() && (key == "loss" || key.starts_with("eval_")) &&
          runs::curve_rank(key) < 30)
        series[key].add(entry.value("step", int64_t(0)), value.get<double>(), 0);
  std::vector<runs::PictureChart> charts;
  for (const auto& [key, points] : series)
    charts.push_back({key, {{key, points.curve({.points = kCardPoints})}}});
  std::stable_sort(charts.begin(), charts.end(), [](const auto& a, const auto& b) {
    return runs::curve_rank(a.title) < runs::curve_rank(b.title);
  });
  if (charts.size() > kMostCardCharts) charts.resize(kMostCardCharts);
  return runs::curve_picture(std::move(charts));
}

// The names of metrics that model hubs know.
std::string card_metric_tags(const nlohmann::json& entry) {
  std::string tags;
  for (const auto* name : {"accuracy", "bleu", "f1", "matthews_correlation", "pearsonr",
                           "precision", "recall", "sacrebleu", "spearmanr", "wer"})
    if (entry.contains(std::string("eval_") + name)) tags += fmt::format("- {}\n", name);
  return tags.empty() ? tags : "metrics:\n" + tags;
}

}  // namespace

void Trainer::create_model_card() const {
  if (!parts_->args.should_save()) return;
  const auto& args = parts_->args;
  const auto& history = parts_->state.log_history;
  const auto name = fs::path(*args.output_dir).filename().string();
  const auto last = std::find_if(history.rbegin(), history.rend(),
                                 [](const auto& entry) { return entry.contains("eval_loss"); });
  std::string card = fmt::format(
      "---\nlibrary_name: gradus\ntags:\n- generated_from_trainer\n{}model-index:\n- name: {}\n  "
      "results: []\n---\n\n# {}\n\n",
      last != history.rend() ? card_metric_tags(*last) : "", dump_json(nlohmann::json(name)), name);
  card += fmt::format("Trained for {} steps ({:.2f} epochs).\n", parts_->state.global_step,
                      parts_->state.epoch);
  if (last != history.rend()) {
    card += "It achieves the following results on the evaluation set:\n";
    for (const auto& [score, value] : card_scores(*last, "Loss"))
      card += fmt::format("- {}: {}\n", score, value);
  }
  for (const auto* section :
       {"Model description", "Intended uses & limitations", "Training and evaluation data"})
    card += fmt::format("\n## {}\n\nMore information needed\n", section);
  card += "\n## Training procedure\n\n### Training hyperparameters\n\n";
  for (const auto& [option, value] : card_options(args))
    card += fmt::format("- {}: {}\n", option, value);
  const auto picture = card_picture(history);
  if (!picture.empty())
    write_file_atomically(fs::path(*args.output_dir) / "training_curves.png", picture);
  card += fmt::format(
      "\n### Training results\n\n{}{}\n### Framework versions\n\n- gradus {}\n- LibTorch {}\n",
      picture.empty() ? "" : "![Training curves](training_curves.png)\n\n",
      card_table(card_evaluations(history)), kVersion, TORCH_VERSION);
  write_file_atomically(fs::path(*args.output_dir) / "README.md", card);
}

}  // namespace gradus
