// run_ner.py: a label for every word.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/tasks/metrics.h>

#include "tasks/class_labels.h"
#include "tasks/labeling_task.h"
#include "tasks/registry.h"

namespace gradus {
namespace tasks {
namespace {

struct TokenFlags {
  std::string task_name = "ner";
  std::optional<std::string> text_column_name = std::nullopt;
  std::optional<std::string> label_column_name = std::nullopt;
  std::optional<int64_t> max_seq_length = std::nullopt;
  bool pad_to_max_length = false;
  bool label_all_tokens = false;
  bool return_entity_level_metrics = false;
  bool ignore_mismatched_sizes = false;
};
constexpr OptionRow<TokenFlags> kTokenRows[] = {
    {&TokenFlags::task_name, "task_name", Group::data, any_value(),
     "ner, pos …: the label column is looked for as {task_name}_tags."},
    {&TokenFlags::text_column_name, "text_column_name", Group::data, any_value(),
     "The column with the list of words; unset: tokens, else the first."},
    {&TokenFlags::label_column_name, "label_column_name", Group::data, any_value(),
     "The column with the list of labels; unset: {task_name}_tags, else the second."},
    {&TokenFlags::max_seq_length, "max_seq_length", Group::data, at_least(1),
     "Longer rows are cut; unset: what the tokenizer says."},
    {&TokenFlags::pad_to_max_length, "pad_to_max_length", Group::data, any_value(),
     "Fill all rows up to max_seq_length; else to the longest of a batch."},
    {&TokenFlags::label_all_tokens, "label_all_tokens", Group::data, any_value(),
     "Label all pieces of a word, not the first only."},
    {&TokenFlags::return_entity_level_metrics, "return_entity_level_metrics", Group::data,
     any_value(), "Scores of every kind of entity beside the overall ones."},
    {&TokenFlags::ignore_mismatched_sizes, "ignore_mismatched_sizes", Group::model, any_value(),
     "Initialise a head of another size instead of reporting an error."},
};

// The number of a label, and of the one that goes on where it begins an entity.
struct TagTable {
  std::vector<std::string> names;
  std::vector<int64_t> inside;  // B-X -> I-X where that exists, else itself

  explicit TagTable(std::vector<std::string> given) : names(std::move(given)) {
    for (size_t i = 0; i < names.size(); ++i) {
      const auto found = names[i].starts_with("B-")
                             ? std::find(names.begin(), names.end(), "I-" + names[i].substr(2))
                             : names.end();
      inside.push_back(found == names.end() ? int64_t(i) : found - names.begin());
    }
  }
};

// One label per token from one per word.
Value::Ints align_labels(const Encoding& encoding, const std::vector<int64_t>& words,
                         const TagTable& tags, bool all_tokens) {
  Value::Ints labels;
  std::optional<int64_t> before;
  for (const auto& word : encoding.word_ids()) {
    if (!word)
      labels.push_back(-100);
    else if (word != before)
      labels.push_back(words[static_cast<size_t>(*word)]);
    else
      labels.push_back(
          all_tokens ? tags.inside[static_cast<size_t>(words[static_cast<size_t>(*word)])] : -100);
    before = word;
  }
  return labels;
}

// Names of labels and predictions where there is a label.
std::pair<metrics::TagRows, metrics::TagRows> named_rows(const torch::Tensor& labels,
                                                         const torch::Tensor& scores,
                                                         const std::vector<std::string>& names) {
  const auto right = labels.to(torch::kCPU, torch::kLong).contiguous(),
             found = scores.argmax(-1).to(torch::kCPU, torch::kLong).contiguous();
  metrics::TagRows references, predictions;
  for (int64_t row = 0; row < right.size(0); ++row) {
    references.emplace_back();
    predictions.emplace_back();
    for (int64_t i = 0; i < right.size(1); ++i) {
      const auto label = right.data_ptr<int64_t>()[row * right.size(1) + i];
      if (label == -100) continue;
      references.back().push_back(names[static_cast<size_t>(label)]);
      predictions.back().push_back(
          names[static_cast<size_t>(found.data_ptr<int64_t>()[row * found.size(1) + i])]);
    }
  }
  return {std::move(references), std::move(predictions)};
}

Metrics entity_metrics(const metrics::EntityScores& scores, bool by_type) {
  if (!by_type)
    return {{"precision", scores.overall.precision},
            {"recall", scores.overall.recall},
            {"f1", scores.overall.f1},
            {"accuracy", scores.accuracy}};
  Metrics all = {{"overall_precision", scores.overall.precision},
                 {"overall_recall", scores.overall.recall},
                 {"overall_f1", scores.overall.f1},
                 {"overall_accuracy", scores.accuracy}};
  for (const auto& [type, of_type] : scores.types) {
    all[type + "_precision"] = of_type.precision;
    all[type + "_recall"] = of_type.recall;
    all[type + "_f1"] = of_type.f1;
    all[type + "_number"] = double(of_type.number);
  }
  return all;
}

class TokenClassification : public LabelingTask {
 public:
  std::string name() const override { return "token-classification"; }

  void add_options(OptionSet& options) override {
    LabelingTask::add_options(options);
    options.add(flags_, std::span<const OptionRow<TokenFlags>>(kTokenRows));
  }

  void check(const TrainingArguments& args) const override {
    LabelingTask::check(args);
    check_padding(flags_.pad_to_max_length, {{"max_seq_length", flags_.max_seq_length}});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    auto splits = open_splits(args);
    const auto config = load_config(model_);
    const auto names = find_names(args, splits, config);
    splits = limited(std::move(splits));  // after the names, which are those of all rows
    const bool prefix_space = needs_prefix_space(config);
    const auto tokenizer = load_tokenizer(
        model_, prefix_space ? nlohmann::json{{"add_prefix_space", true}} : nlohmann::json());
    const ClassLabels labels{.names = names};
    const auto model = load_model(ModelTask::token_classification, model_, {},
                                  args.do_train ? labels.config_changes() : nlohmann::json(),
                                  flags_.ignore_mismatched_sizes);
    const TagTable tags(names);
    const bool labeled_test = is_labeled(splits.test);
    const auto vocabulary = embedding_rows(*model);
    for (auto* split : {&splits.train, &splits.validation, &splits.test})
      if (*split)
        *split = prepare_rows(*split, tokenizer, tags, prefix_space, vocabulary,
                              !args.disable_tqdm.value_or(false));

    PreparedTask prepared;
    auto& trainer = prepared.trainer;
    hand_over(prepared, model, tokenizer, splits);
    prepared.predict_has_labels = labeled_test;
    trainer.data_collator = DataCollatorForTokenClassification(
        {.tokenizer = tokenizer, .pad_to_multiple_of = length_step(args)});
    trainer.compute_metrics = [names, by_type = flags_.return_entity_level_metrics](
                                  const EvalPrediction& prediction) {
      const auto [references, predictions] =
          named_rows(prediction.label_parts.front(), prediction.prediction_parts.front(), names);
      return entity_metrics(metrics::entity_scores(references, predictions), by_type);
    };
    prepared.write_predictions = [names](const PredictionOutput& output,
                                         const std::filesystem::path& folder) {
      const auto [references, predictions] =
          named_rows(output.label_parts.front(), output.prediction_parts.front(), names);
      std::string text;
      for (const auto& row : predictions) text += fmt::format("{}\n", fmt::join(row, " "));
      write_file_atomically(folder / "predictions.txt", text);
    };
    return prepared;
  }

 private:
  // Byte-level tokenizers join words to text only with a space before each.
  static bool needs_prefix_space(const nlohmann::json& config) {
    const auto type = config.value("model_type", "");
    return type == "bloom" || type == "gpt2" || type == "roberta" || type == "deberta";
  }

  Splits open_splits(const TrainingArguments& args) {
    Splits splits;
    if (args.do_train) splits.train = open_split(data_, data_.train_file, "train");
    if (args.do_eval) splits.validation = open_split(data_, data_.validation_file, "validation");
    if (args.do_predict) splits.test = open_split(data_, predict_.test_file, "test");
    require_splits(args, splits, "The splits are called train, validation and test.");
    find_columns(splits.train ? splits.train : splits.validation ? splits.validation : splits.test);
    const ColumnNeed needs[] = {
        {.name = text_column_, .kinds = {ColumnKind::texts}},
        {.name = label_column_, .kinds = {ColumnKind::texts, ColumnKind::integers}}};
    for (const auto* split : {&splits.train, &splits.validation, &splits.test}) {
      const bool needs_labels = split != &splits.test || is_labeled(splits.test);
      if (*split)
        require_columns(*split->rows, std::span(needs).first(needs_labels ? 2 : 1), split->where);
    }
    return splits;
  }

  // Rows to predict on need no labels.
  bool is_labeled(const Split& split) const { return split.column(label_column_) != nullptr; }

  void find_columns(const Split& split) {
    const auto names = split.column_names();
    const auto pick = [&](const std::optional<std::string>& wanted, const std::string& usual,
                          size_t place) {
      if (wanted) return *wanted;
      if (std::find(names.begin(), names.end(), usual) != names.end() || place >= names.size())
        return usual;
      return names[place];
    };
    auto task = flags_.task_name;
    std::transform(task.begin(), task.end(), task.begin(),
                   [](unsigned char letter) { return char(std::tolower(letter)); });
    text_column_ = pick(flags_.text_column_name, "tokens", 0);
    label_column_ = pick(flags_.label_column_name, task + "_tags", 1);
  }

  // The classes of the data; a model that was trained on the same names keeps its order.
  std::vector<std::string> find_names(const TrainingArguments& args, const Splits& splits,
                                      const nlohmann::json& config) {
    const auto known = configured_names(config);
    const auto& told = splits.train        ? splits.train
                       : splits.validation ? splits.validation
                                           : splits.test;
    const auto* info = told.column(label_column_);
    stored_names_ = info != nullptr ? info->class_names : std::vector<std::string>();
    if (!args.do_train) {
      if (known.empty())
        throw Error("G-TASK-13", ErrorKind::model,
                    "the model's config.json has no id2label: its classes are not known",
                    "Use the folder of a model trained for token classification.");
      return known;
    }
    auto names = stored_names_;
    if (names.empty()) {
      if (info != nullptr && info->kind == ColumnKind::integers)
        throw Error(
            "G-TASK-11", ErrorKind::data,
            fmt::format(
                "{}: column '{}' holds numbers without names, expected labels such as B-PER",
                told.where, label_column_),
            "Write the labels as text, or save the data set with ClassLabel features.");
      const auto found = labels_in(told, label_column_);
      names.assign(found.begin(), found.end());
    }
    if (!are_own_names(known)) return names;
    const auto sorted = [](std::vector<std::string> list) {
      return std::sort(list.begin(), list.end()), list;
    };
    if (sorted(known) == sorted(names)) return known;
    log_warning(fmt::format(
        "Your model seems to have been trained with labels, but they don't match the dataset: "
        "model labels: {}, dataset labels: {}. Ignoring the model labels as a result.",
        fmt::join(sorted(known), ", "), fmt::join(sorted(names), ", ")));
    return names;
  }

  // `stored` are the names of a ClassLabel column: what its numbers mean.
  static std::vector<int64_t> numbers_of(const Value& cell, const TagTable& tags,
                                         const std::vector<std::string>& stored,
                                         const std::string& column, const std::string& where) {
    std::vector<int64_t> numbers;
    const ClassLabels labels{.names = tags.names};
    const auto add = [&](const std::string& label) {
      numbers.push_back(labels.target(label, column, where).integer());
    };
    if (cell.is_strings())
      for (const auto& label : cell.strings()) add(label);
    if (cell.is_ints())
      for (const auto number : cell.ints())
        add(number >= 0 && static_cast<size_t>(number) < stored.size()
                ? stored[static_cast<size_t>(number)]
                : std::to_string(number));
    return numbers;
  }

  Split prepare_rows(const Split& split, const std::shared_ptr<Tokenizer>& tokenizer,
                     const TagTable& tags, bool prefix_space, int64_t vocabulary,
                     bool progress) const {
    const bool labeled = is_labeled(split);
    EncodeOptions encode{.max_length = flags_.max_seq_length, .truncation = true};
    if (flags_.pad_to_max_length) encode.padding = "max_length";
    // It outlives this call, so it refers to nothing here.
    const auto function = [=, where = split.where, text_column = text_column_,
                           label_column = label_column_, stored = stored_names_,
                           all_tokens = flags_.label_all_tokens](std::vector<Example> rows) {
      std::vector<Example> result;
      for (const auto& row : rows) {
        const auto& words = row.at(text_column);
        const auto count = words.is_strings() ? words.strings().size() : 0;
        // Without labels any will do: only the places of words are read from them.
        const auto labels =
            labeled ? numbers_of(row.at(label_column), tags, stored, label_column, where)
                    : std::vector<int64_t>(count, 0);
        if (count != labels.size())
          throw Error("G-TASK-11", ErrorKind::data,
                      fmt::format("{}: a row has {} words in column '{}' and {} labels in column "
                                  "'{}': expected as many",
                                  where, count, text_column, labels.size(), label_column),
                      "Correct the row.");
        const auto encoding = tokenizer->encode_words(
            words.is_strings() ? std::span<const std::string>(words.strings())
                               : std::span<const std::string>(),
            encode);
        check_ids(encoding.ids(), vocabulary, where);
        auto example = encoding.example();
        example.set("labels", align_labels(encoding, labels, tags, all_tokens));
        result.push_back(std::move(example));
      }
      return result;
    };
    const auto settings = fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}|{}", text_column_, label_column_,
                                      fmt::join(tags.names, "\n"), fmt::join(stored_names_, "\n"),
                                      flags_.max_seq_length.value_or(0), flags_.pad_to_max_length,
                                      flags_.label_all_tokens, vocabulary, prefix_space, labeled);
    return prepare_split(split, function,
                         {.task = name(), .settings = settings, .wanted = "at least one row"},
                         model_, data_, progress);
  }

  TokenFlags flags_;
  std::string text_column_, label_column_;
  std::vector<std::string> stored_names_;  // of a ClassLabel column: what its numbers mean
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_token_classification() {
  return std::make_unique<tasks::TokenClassification>();
}

}  // namespace gradus
