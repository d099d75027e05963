// run_classification.py and run_glue.py: one or several classes, or a number, for a text or a pair
// of texts.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>
#include <gradus/data/collators.h>

#include "config/python_text.h"
#include "tasks/class_labels.h"
#include "tasks/classification_scores.h"
#include "tasks/default_config.h"
#include "tasks/labeling_task.h"
#include "tasks/registry.h"
#include "tasks/text_columns.h"

namespace gradus {
namespace tasks {
namespace {

struct ClassificationFlags {
  std::optional<std::string> task_name = std::nullopt;
  std::optional<bool> do_regression = std::nullopt;
  std::optional<std::string> text_column_names = std::nullopt;
  std::string text_column_delimiter = " ";
  std::optional<std::string> label_column_name = std::nullopt;
  std::optional<std::string> train_split_name = std::nullopt;
  std::optional<std::string> validation_split_name = std::nullopt;
  std::optional<std::string> test_split_name = std::nullopt;
  std::optional<std::string> remove_splits = std::nullopt;
  std::optional<std::string> remove_columns = std::nullopt;
  std::optional<std::string> metric_name = std::nullopt;
  bool shuffle_train_dataset = false;
  int64_t shuffle_seed = 42;
  int64_t max_seq_length = 128;
  bool pad_to_max_length = true;
  bool ignore_mismatched_sizes = false;
};

const std::vector<OptionRow<ClassificationFlags>>& classification_rows() {
  using F = ClassificationFlags;
  static const std::vector<OptionRow<F>> rows = {
      {&F::task_name, "task_name", Group::data, any_value(),
       "A task of GLUE (cola, mnli, mrpc, qnli, qqp, rte, sst2, stsb, wnli): its columns, label "
       "names and metrics; the data comes from files all the same."},
      {&F::do_regression, "do_regression", Group::data, any_value(),
       "The labels are numbers to come near to; unset: when they are floats."},
      {&F::text_column_names, "text_column_names", Group::data, any_value(),
       "The columns that make up the text, parted by commas; unset: see docs/user/tasks.md."},
      {&F::text_column_delimiter, "text_column_delimiter", Group::data, any_value(),
       "What is put between these columns."},
      {&F::label_column_name, "label_column_name", Group::data, any_value(),
       "The column of the label; unset: label."},
      {&F::train_split_name, "train_split_name", Group::data, any_value(),
       "The split of --dataset_name to train on; unset: train."},
      {&F::validation_split_name, "validation_split_name", Group::data, any_value(),
       "The split to evaluate on; unset: validation."},
      {&F::test_split_name, "test_split_name", Group::data, any_value(),
       "The split to predict on; unset: test."},
      {&F::remove_splits, "remove_splits", Group::data, any_value(),
       "Splits to leave out, parted by commas."},
      {&F::remove_columns, "remove_columns", Group::data, any_value(),
       "Columns to leave out, parted by commas."},
      {&F::metric_name, "metric_name", Group::data, one_of(metric_names()),
       "What to measure; unset: accuracy, micro F1 for several labels, mse for numbers."},
      {&F::shuffle_train_dataset, "shuffle_train_dataset", Group::data, any_value(),
       "Shuffle the training rows before max_train_samples takes the first."},
      {&F::shuffle_seed, "shuffle_seed", Group::data, at_least(0), "Seed of that shuffle."},
      {&F::max_seq_length, "max_seq_length", Group::data, at_least(1),
       "Longer texts are cut, at most to what the tokenizer says."},
      {&F::pad_to_max_length, "pad_to_max_length", Group::data, any_value(),
       "Fill all rows up to max_seq_length; else to the longest of a batch."},
      {&F::ignore_mismatched_sizes, "ignore_mismatched_sizes", Group::model, any_value(),
       "Initialise a head of another size instead of reporting an error."},
  };
  return rows;
}

std::string prediction_text(const torch::Tensor& decided, int64_t row, const ClassLabels& labels) {
  const auto cell = decided[row];
  if (labels.problem == Problem::regression) return fmt::format("{:3.3f}", cell.item<double>());
  if (labels.problem == Problem::single_label) {
    const auto number = static_cast<size_t>(cell.item<int64_t>());
    return number < labels.names.size() ? labels.names[number] : std::to_string(number);
  }
  auto set = nlohmann::json::array();
  for (int64_t i = 0; i < cell.size(0); ++i)
    if (cell[i].item<int64_t>() != 0) set.push_back(labels.names.at(static_cast<size_t>(i)));
  return config::python_repr(set);
}

using PredictionWriter = std::function<void(const PredictionOutput&, const std::filesystem::path&)>;

PredictionWriter writer_of(const ClassLabels& labels, const std::string& file) {
  return [labels, file](const PredictionOutput& output, const std::filesystem::path& folder) {
    const auto decided = decide(output.prediction_parts.front(), labels.problem).cpu();
    std::string text = "index\tprediction\n";
    for (int64_t i = 0; i < decided.size(0); ++i)
      text += fmt::format("{}\t{}\n", i, prediction_text(decided, i, labels));
    write_file_atomically(folder / file, text);
  };
}

class TextClassification : public LabelingTask {
 public:
  std::string name() const override { return "text-classification"; }

  void add_options(OptionSet& options) override {
    LabelingTask::add_options(options);
    options.add(flags_, std::span<const OptionRow<ClassificationFlags>>(classification_rows()));
  }

  void check(const TrainingArguments& args) const override {
    if (flags_.task_name && glue_task(*flags_.task_name) == nullptr) {
      const std::vector<std::string> names(glue_names().begin(), glue_names().end());
      throw Error("G-CONF-3", ErrorKind::usage,
                  fmt::format("--task_name: must be one of {}, received \"{}\"", join_or(names),
                              *flags_.task_name),
                  did_you_mean(*flags_.task_name, names) + " Leave it out for tasks of your own.");
    }
    LabelingTask::check(args);
    check_padding(flags_.pad_to_max_length, {{"max_seq_length", flags_.max_seq_length}});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    glue_ = flags_.task_name ? glue_task(*flags_.task_name) : nullptr;
    label_column_ = flags_.label_column_name.value_or("label");
    auto splits = open_splits(args);
    const auto config = load_config(model_);
    const auto labels = find_labels(args, splits, config);
    splits = limited(std::move(splits));  // after the labels, which are those of all rows
    const auto tokenizer = load_tokenizer(model_);
    if (!tokenizer->pad_token_id())
      throw Error(
          "G-TEXT-10", ErrorKind::model,
          "the tokenizer has no padding token, which texts of different length need",
          "Add a pad_token to tokenizer_config.json, for example the one that ends a text.");
    const auto model = load_model(ModelTask::sequence_classification, model_, {},
                                  config_changes(args, labels), flags_.ignore_mismatched_sizes);

    auto mismatched = open_mismatched(args);
    const bool progress = !args.disable_tqdm.value_or(false);
    const auto rows = embedding_rows(*model);
    for (auto* split : {&splits.train, &splits.validation, &mismatched.validation})
      if (*split) *split = prepare_rows(*split, tokenizer, &labels, rows, progress);
    for (auto* split : {&splits.test, &mismatched.test})  // their labels are not looked at
      if (*split) *split = prepare_rows(*split, tokenizer, nullptr, rows, progress);

    PreparedTask prepared;
    auto& trainer = prepared.trainer;
    hand_over(prepared, model, tokenizer, splits);
    if (flags_.pad_to_max_length)
      trainer.data_collator = default_data_collator;
    else
      trainer.data_collator = DataCollatorWithPadding(
          {.tokenizer = tokenizer, .pad_to_multiple_of = length_step(args)});
    trainer.compute_metrics = [problem = labels.problem,
                               names = metrics_for(labels)](const EvalPrediction& prediction) {
      return classification_scores(prediction, problem, names);
    };
    prepared.report_predict_metrics = false;
    prepared.write_predictions =
        writer_of(labels, glue_ != nullptr ? fmt::format("predict_results_{}.txt", glue_->name)
                                           : "predict_results.txt");
    if (mismatched.validation || mismatched.test)
      prepared.further_sets.push_back({"_mm", mismatched.validation.reference(),
                                       mismatched.test.reference(),
                                       writer_of(labels, "predict_results_mnli-mm.txt")});
    return prepared;
  }

 private:
  Split open_one(const std::optional<std::string>& file, const std::string& name) const {
    const auto removed = comma_list(flags_.remove_splits);
    if (std::find(removed.begin(), removed.end(), name) != removed.end()) return {};
    auto split = open_split(data_, file, name);
    if (!split) return split;
    const auto without = comma_list(flags_.remove_columns);
    if (!without.empty()) {
      split.rows = split.rows->remove_columns(without);
      std::erase_if(split.columns, [&](const ColumnInfo& column) {
        return std::find(without.begin(), without.end(), column.name) != without.end();
      });
    }
    return split;
  }

  bool is_mnli_folder() const {
    return glue_ != nullptr && glue_->name == std::string_view("mnli") && data_.dataset_name;
  }

  // MNLI's rows of other sources than the training rows; the limit of predictions does not hold for
  // them, as in the script.
  Splits open_mismatched(const TrainingArguments& args) const {
    Splits splits;
    if (!is_mnli_folder()) return splits;
    if (args.do_eval)
      splits.validation =
          first_rows(open_one(std::nullopt, "validation_mismatched"), data_.max_eval_samples);
    if (args.do_predict) splits.test = open_one(std::nullopt, "test_mismatched");
    return splits;
  }

  Splits open_splits(const TrainingArguments& args) const {
    Splits splits;
    if (args.do_train)
      splits.train = open_one(data_.train_file, flags_.train_split_name.value_or("train"));
    const auto matched = is_mnli_folder() ? std::string("_matched") : std::string();
    if (args.do_eval)
      splits.validation = open_one(data_.validation_file,
                                   flags_.validation_split_name.value_or("validation" + matched));
    if (args.do_predict || (args.do_eval && !splits.validation))
      splits.test = open_one(predict_.test_file, flags_.test_split_name.value_or("test" + matched));
    if (args.do_eval && !splits.validation) {
      log_warning("Validation dataset not found. Falling back to test dataset for validation.");
      splits.validation = splits.test;
    }
    require_splits(
        args, splits,
        "Name the split with --train_split_name, --validation_split_name or --test_split_name.");
    if (!args.do_predict) splits.test = {};
    if (splits.train && flags_.shuffle_train_dataset)
      splits.train = shuffled(std::move(splits.train), flags_.shuffle_seed);
    const ColumnNeed label[] = {{.name = label_column_}};
    for (const auto* split : {&splits.train, &splits.validation})
      if (*split) require_columns(*split->rows, label, split->where);
    return splits;
  }

  ClassLabels find_labels(const TrainingArguments& args, const Splits& splits,
                          const nlohmann::json& config) const {
    const auto known = configured_names(config);
    if (glue_ != nullptr) return glue_labels(known);
    ClassLabels labels;
    const auto& told = splits.train ? splits.train : splits.validation;
    if (told) {
      labels.problem = problem_of(told, label_column_, flags_.do_regression);
    } else {
      const auto problem = config.value("problem_type", nlohmann::json());
      labels.problem = known.size() == 1 || problem == "regression" ? Problem::regression
                       : problem == "multi_label_classification"    ? Problem::multi_label
                                                                    : Problem::single_label;
    }
    if (labels.problem == Problem::regression) return labels;
    labels.names = args.do_train ? names_in(splits) : known;
    if (labels.names.empty()) labels.names = {"LABEL_0", "LABEL_1"};
    if (labels.names.size() < 2)
      throw Error("G-TASK-13", ErrorKind::data,
                  fmt::format("{}: column '{}' has {} different labels, expected at least 2",
                              told.where, label_column_, labels.names.size()),
                  "Give data with every class in it.");
    return labels;
  }

  // What the numbers of a ClassLabel column mean; empty for other columns.
  std::vector<std::string> stored_names(const Split& split) const {
    const auto* info = split.column(label_column_);
    return info != nullptr ? info->class_names : std::vector<std::string>();
  }

  // The names of a ClassLabel column. Else every label of the training rows, and those only found
  // in other data that is there, whether or not it is used.
  std::vector<std::string> names_in(Splits splits) const {
    if (auto stored = stored_names(splits.train); !stored.empty()) return stored;
    auto labels = labels_in(splits.train, label_column_);
    const bool evaluates = bool(splits.validation);
    if (!evaluates)
      splits.validation =
          open_one(data_.validation_file, flags_.validation_split_name.value_or("validation"));
    if (!splits.test && data_.dataset_name)
      splits.test = open_one(std::nullopt, flags_.test_split_name.value_or("test"));
    for (const auto* other : {&splits.validation, &splits.test}) {
      if (!*other || (other->column(label_column_) == nullptr && !other->columns.empty())) continue;
      std::vector<std::string> fresh;
      for (const auto& label :
           labels_in(*other, label_column_,
                     other == &splits.validation && evaluates ? MissingLabels::refuse
                                                              : MissingLabels::skip))
        if (labels.insert(label).second) fresh.push_back(label);
      if (!fresh.empty())
        log_warning(fmt::format(
            "Labels {} in {} but not in the training rows, adding them to the label list",
            fmt::join(fresh, ", "), other->where));
    }
    return {labels.begin(), labels.end()};
  }

  // The task's own names; a model that was trained on them may have another order, which is then
  // kept.
  ClassLabels glue_labels(const std::vector<std::string>& known) const {
    ClassLabels labels{
        .problem = glue_->labels.empty() ? Problem::regression : Problem::single_label,
        .names = glue_->labels};
    if (labels.names.empty() || !are_own_names(known)) return labels;
    const auto lower = [](std::vector<std::string> names) {
      for (auto& name : names)
        std::transform(name.begin(), name.end(), name.begin(),
                       [](unsigned char letter) { return char(std::tolower(letter)); });
      std::sort(names.begin(), names.end());
      return names;
    };
    if (lower(known) == lower(labels.names))
      labels.names = known;
    else
      log_warning(fmt::format(
          "Your model seems to have been trained with labels, but they don't match the dataset: "
          "model labels: {}, dataset labels: {}. Ignoring the model labels as a result.",
          fmt::join(known, ", "), fmt::join(labels.names, ", ")));
    return labels;
  }

  nlohmann::json config_changes(const TrainingArguments& args, const ClassLabels& labels) const {
    if (!args.do_train && glue_ == nullptr) return nullptr;
    auto changes = labels.config_changes();
    if (glue_ != nullptr)
      changes["finetuning_task"] = glue_->name;
    else
      changes["problem_type"] = problem_name(labels.problem);
    return changes;
  }

  std::vector<std::string> metrics_for(const ClassLabels& labels) const {
    auto names =
        glue_ != nullptr
            ? glue_->metrics
            : std::vector<std::string>{labels.problem == Problem::regression    ? "mse"
                                       : labels.problem == Problem::multi_label ? "f1"
                                                                                : "accuracy"};
    if (flags_.metric_name) names = {*flags_.metric_name};
    for (const auto& name : names) check_metric(name, labels.problem, labels.names.size());
    return names;
  }

  // In GLUE's own files labels are numbers in the order of the task's names.
  static Value target_of(const Value& cell, const GlueTask* glue, const ClassLabels& labels,
                         const std::string& column, const std::string& where,
                         const std::vector<std::string>& stored) {
    if (glue != nullptr && cell.is_int() && cell.integer() >= 0 &&
        static_cast<size_t>(cell.integer()) < glue->labels.size())
      return labels.target(glue->labels[static_cast<size_t>(cell.integer())], column, where);
    return labels.target(cell, column, where, stored);
  }

  Split prepare_rows(const Split& split, const std::shared_ptr<Tokenizer>& tokenizer,
                     const ClassLabels* labels, int64_t vocabulary, bool progress) const {
    const auto columns = text_columns(split, {.glue = glue_,
                                              .names = flags_.text_column_names,
                                              .delimiter = flags_.text_column_delimiter,
                                              .others = {label_column_, "label"}});
    const auto longest = tokenizer->model_max_length();
    if (longest && flags_.max_seq_length > *longest)
      log_warning(
          fmt::format("The max_seq_length passed ({}) is larger than the maximum length for the "
                      "model ({}). Using max_seq_length={}.",
                      flags_.max_seq_length, *longest, *longest));
    EncodeOptions encode{
        .max_length = longest ? std::min(flags_.max_seq_length, *longest) : flags_.max_seq_length,
        .truncation = true,
        .ids_only = true};
    if (flags_.pad_to_max_length) encode.padding = "max_length";
    const auto stored = stored_names(split);
    // It outlives this call, so it refers to nothing here.
    const auto function = [=, where = split.where, glue = glue_, label_column = label_column_,
                           targets = labels != nullptr ? std::optional(*labels)
                                                       : std::nullopt](std::vector<Example> rows) {
      std::vector<std::string> first, second;
      for (const auto& row : rows) {
        first.push_back(columns.first_text(row, where));
        if (columns.second) second.push_back(text_of(row, *columns.second, where));
      }
      std::vector<Example> result;
      for (const auto& encoding : tokenizer->encode_batch(first, encode, second, 1)) {
        check_ids(encoding.ids(), vocabulary, where);
        auto row = encoding.example();
        if (targets)
          row.set("label", target_of(rows[result.size()].at(label_column), glue, *targets,
                                     label_column, where, stored));
        result.push_back(std::move(row));
      }
      return result;
    };
    const auto targets =
        labels == nullptr ? "none"
                          : fmt::format("{} {} {} {}", label_column_, problem_name(labels->problem),
                                        fmt::join(labels->names, "\n"), fmt::join(stored, "\n"));
    const auto settings =
        fmt::format("{}|{}|{}|{}|{}|{}|{}|{}", fmt::join(columns.first, ","),
                    columns.second.value_or(""), columns.delimiter, targets, *encode.max_length,
                    flags_.pad_to_max_length, vocabulary, glue_ != nullptr ? glue_->name : "");
    return prepare_split(split, function,
                         {.task = name(), .settings = settings, .wanted = "at least one row"},
                         model_, data_, progress);
  }

  ClassificationFlags flags_;
  const GlueTask* glue_ = nullptr;
  std::string label_column_ = "label";
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_text_classification() {
  return std::make_unique<tasks::TextClassification>();
}

}  // namespace gradus
