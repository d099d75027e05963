#include "tasks/language_modeling.h"

#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/tasks/metrics.h>

#include <cmath>

namespace gradus::tasks {
namespace {

constexpr OptionRow<LanguageFlags> kLanguageRows[] = {
    {&LanguageFlags::validation_split_percentage, "validation_split_percentage", Group::data,
     within(1, 99), "Share of the training rows to evaluate on when there is no validation file."},
    {&LanguageFlags::streaming, "streaming", Group::data, any_value(),
     "Accepted for compatibility: files are mapped or read whole, as transformers' scripts do with "
     "local "
     "files."},
};

// Python's round(): halves to the even neighbour.
int64_t percent_of(int64_t rows, int64_t percentage) {
  const auto product = rows * percentage;
  const auto whole = product / 100, rest = product % 100;
  return whole + (rest > 50 || (rest == 50 && whole % 2 == 1) ? 1 : 0);
}

// The prediction of each position, in place of its logits.
TensorList argmax_logits(const TensorList& logits, const TensorList&) {
  return {logits.front().argmax(-1)};
}

// The share of right predictions where there is a label.
Metrics token_accuracy(const EvalPrediction& prediction, LabelOf label) {
  auto predictions = prediction.prediction_parts.front(), labels = prediction.label_parts.front();
  if (label == LabelOf::next_position) {
    predictions = predictions.narrow(1, 0, predictions.size(1) - 1);
    labels = labels.narrow(1, 1, labels.size(1) - 1);
  }
  const auto counted = labels.ne(-100);
  const auto right = predictions.eq(labels).logical_and(counted).sum().item<int64_t>(),
             all = counted.sum().item<int64_t>();
  return {{"accuracy", double(right) / double(all)}};
}

// Adds exp(loss) as `name`.
void add_perplexity(Metrics& metrics, const std::string& loss_name, const std::string& name) {
  if (const auto loss = metrics.find(loss_name); loss != metrics.end())
    metrics[name] = metrics::perplexity(loss->second);
}

}  // namespace

void add_options(OptionSet& options, LanguageFlags& flags) {
  options.add(flags, std::span<const OptionRow<LanguageFlags>>(kLanguageRows));
}

LanguageSplits open_language_splits(const TrainingArguments& args, const DataFlags& data,
                                    const LanguageFlags& flags, const LoadOptions& options) {
  LanguageSplits splits;
  if (!args.do_train && !args.do_eval) return splits;
  if (args.do_eval || data.dataset_name)
    splits.validation = open_split(data, data.validation_file, "validation", options);
  const bool own_validation = splits.validation || data.validation_file;
  if (args.do_train || !own_validation)
    splits.train = open_split(data, data.train_file, "train", options);
  if (!splits.train && (args.do_train || !own_validation))
    throw Error("G-TASK-9", ErrorKind::data, *data.dataset_name + " has no split train",
                "Name a data set with the splits train and validation.");
  if (!own_validation) {  // the scripts set the share apart even when they do not evaluate
    const auto rows = splits.train.rows->size(),
               border = percent_of(rows, flags.validation_split_percentage);
    if (args.do_eval && border == 0)
      throw Error("G-TASK-10", ErrorKind::data,
                  fmt::format("{} percent of the {} rows of {} leave no row to evaluate on",
                              flags.validation_split_percentage, rows, splits.train.where),
                  "Name a --validation_file, or raise --validation_split_percentage.");
    splits.validation = row_range(splits.train, 0, border);
    splits.train = row_range(std::move(splits.train), border, rows);
  }
  if (!args.do_train) splits.train = {};
  if (!args.do_eval) splits.validation = {};
  return splits;
}

std::string text_column_of(const Split& split) {
  const auto names = split.column_names();
  const auto found = std::find(names.begin(), names.end(), "text");
  const auto column = found != names.end() || names.empty() ? std::string("text") : names.front();
  const ColumnNeed needs[] = {{.name = column, .kinds = {ColumnKind::text}}};
  require_columns(*split.rows, needs, split.where);
  return column;
}

bool is_tokenized(const Split& split) {
  const auto names = split.column_names();
  return std::find(names.begin(), names.end(), "input_ids") != names.end();
}

std::vector<Example> group_texts(const std::vector<Example>& rows, int64_t block_size) {
  if (rows.empty()) return {};
  std::vector<std::pair<std::string, Value::Ints>> joined;
  for (const auto& [name, value] : rows.front()) joined.emplace_back(name, Value::Ints());
  for (const auto& row : rows)
    for (auto& [name, all] : joined) {
      const auto& part = row.at(name).ints();
      all.insert(all.end(), part.begin(), part.end());
    }
  std::vector<Example> blocks(joined.front().second.size() / static_cast<size_t>(block_size));
  for (size_t i = 0; i < blocks.size(); ++i)
    for (const auto& [name, all] : joined) {
      const auto begin = all.begin() + static_cast<std::ptrdiff_t>(i) * block_size;
      blocks[i].set(name, Value::Ints(begin, begin + block_size));
    }
  return blocks;
}

MapFunction tokenize_and_group(std::shared_ptr<const Tokenizer> tokenizer, std::string column,
                               std::string where, int64_t block_size, EncodeOptions encode,
                               bool with_labels) {
  encode.ids_only = true;
  return [=](std::vector<Example> rows) {
    std::vector<std::string> texts;
    for (const auto& row : rows) texts.push_back(text_of(row, column, where));
    std::vector<Example> tokens;
    for (const auto& encoding : tokenizer->encode_batch(texts, encode, {}, 1))
      tokens.push_back(encoding.example());
    auto blocks = group_texts(tokens, block_size);
    if (with_labels)
      for (auto& block : blocks) block.set("labels", block.at("input_ids"));
    return blocks;
  };
}

Split tokenized_rows(Split split, int64_t embedding_rows, bool copy_labels) {
  const ColumnNeed needs[] = {{.name = "input_ids", .kinds = {ColumnKind::integers}}};
  require_columns(*split.rows, needs, split.where);
  split.rows =
      split.rows->map([embedding_rows, copy_labels, where = split.where](const Example& row) {
        check_ids(row.at("input_ids").ints(), embedding_rows, where);
        auto copy = row;
        if (copy_labels && !row.contains("labels")) copy.set("labels", row.at("input_ids"));
        return copy;
      });
  return split;
}

void LanguageModeling::add_options(OptionSet& options) {
  tasks::add_options(options, model_);
  tasks::add_options(options, fresh_);
  tasks::add_options(options, data_);
  tasks::add_options(options, predict_);
  tasks::add_options(options, language_);
}

Split LanguageModeling::open_test(const TrainingArguments& args, const LoadOptions& options) const {
  if (!args.do_predict) return {};
  auto split = open_split(data_, predict_.test_file, "test", options);
  if (!split)
    throw Error("G-TASK-9", ErrorKind::data, *data_.dataset_name + " has no split test",
                "Name the rows to predict on with --test_file.");
  return split;
}

void LanguageModeling::hand_over(PreparedTask& prepared, std::shared_ptr<PreTrainedModel> model,
                                 std::shared_ptr<Tokenizer> tokenizer, const LanguageSplits& splits,
                                 LabelOf label) const {
  auto& trainer = prepared.trainer;
  trainer.model = with_adapter(std::move(model), model_);
  trainer.processing_class = std::move(tokenizer);
  trainer.train_dataset = first_rows(splits.train, data_.max_train_samples).reference();
  trainer.eval_dataset = first_rows(splits.validation, data_.max_eval_samples).reference();
  prepared.predict_dataset = first_rows(splits.test, predict_.max_predict_samples).reference();
  if (splits.validation || splits.test) {
    trainer.preprocess_logits_for_metrics = argmax_logits;
    trainer.compute_metrics = [label](const EvalPrediction& prediction) {
      return token_accuracy(prediction, label);
    };
  }
  prepared.finish_eval_metrics = [](Metrics& metrics) {
    add_perplexity(metrics, "eval_loss", "perplexity");  // the name of the scripts
  };
  prepared.finish_predict_metrics = [](Metrics& metrics) {
    add_perplexity(metrics, "predict_loss", "predict_perplexity");
  };
}

}  // namespace gradus::tasks
