// run_qa.py: the place of an answer in a text.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/data/collators.h>
#include <gradus/trainers/question_answering.h>

#include "tasks/question_data.h"
#include "tasks/question_task.h"
#include "tasks/registry.h"
#include "text/characters.h"

namespace gradus {
namespace tasks {
namespace {

struct AnswerFlags {
  int64_t max_seq_length = 384;
  bool pad_to_max_length = true;
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;
  int64_t doc_stride = 128;
  int64_t n_best_size = 20;
  int64_t max_answer_length = 30;
};
constexpr OptionRow<AnswerFlags> kAnswerRows[] = {
    {&AnswerFlags::max_seq_length, "max_seq_length", Group::data, at_least(1),
     "Tokens of a row: the question and a part of the text."},
    {&AnswerFlags::pad_to_max_length, "pad_to_max_length", Group::data, any_value(),
     "Fill all rows up to max_seq_length; else to the longest of a batch."},
    {&AnswerFlags::version_2_with_negative, "version_2_with_negative", Group::data, any_value(),
     "Questions may have no answer."},
    {&AnswerFlags::null_score_diff_threshold, "null_score_diff_threshold", Group::data, any_value(),
     "\"No answer\" must win by more than this."},
    {&AnswerFlags::doc_stride, "doc_stride", Group::data, at_least(0),
     "Tokens that the parts of a long text share."},
    {&AnswerFlags::n_best_size, "n_best_size", Group::data, at_least(1),
     "How many starts, ends and answers are looked at."},
    {&AnswerFlags::max_answer_length, "max_answer_length", Group::data, at_least(1),
     "Most tokens of an answer."},
};

// The columns of questions; `id` and, for answers, `context` have fixed names.
struct AnswerColumns {
  std::string question, context, answers;

  explicit AnswerColumns(const std::vector<std::string>& names) {
    const auto choose = [&](const char* usual, size_t place) {
      const bool there = std::find(names.begin(), names.end(), usual) != names.end();
      return there || place >= names.size() ? std::string(usual) : names[place];
    };
    question = choose("question", 0);
    context = choose("context", 1);
    answers = choose("answers", 2);
  }
};

// One row of the model: which of its tokens belong to the context, and where they lie in it.
struct Feature {
  explicit Feature(const Encoding& encoding, int64_t context)
      : encoding(encoding), offsets(encoding.offsets()) {
    const auto& sequences = encoding.sequence_ids();
    for (size_t i = 0; i < sequences.size(); ++i) {
      is_context.push_back(sequences[i] == context);
      if (!is_context.back()) continue;
      if (!first) first = int64_t(i);
      last = int64_t(i);
    }
  }

  const Encoding& encoding;
  const std::vector<std::pair<int64_t, int64_t>>& offsets;
  std::vector<bool> is_context;
  std::optional<int64_t> first;
  int64_t last = 0;
};

// First and last token of the answer; both `none` when it is not within the feature. As in the
// script, an answer that begins in the last token of the context begins behind it.
std::pair<int64_t, int64_t> answer_tokens(const Feature& feature, int64_t begin, int64_t end,
                                          int64_t none) {
  const auto& offsets = feature.offsets;
  auto first = *feature.first, last = feature.last;
  if (offsets[size_t(first)].first > begin || offsets[size_t(last)].second < end)
    return {none, none};
  while (first < int64_t(offsets.size()) && offsets[size_t(first)].first <= begin) ++first;
  while (last >= 0 && offsets[size_t(last)].second >= end) --last;
  return {first - 1, last + 1};
}

int64_t place_of_class_token(const Encoding& encoding, const Tokenizer& tokenizer) {
  const auto& ids = encoding.ids();
  for (const auto token : {tokenizer.cls_token_id(), tokenizer.bos_token_id()}) {
    if (!token) continue;
    const auto found = std::find(ids.begin(), ids.end(), *token);
    if (found != ids.end()) return found - ids.begin();
  }
  return 0;
}

class QuestionAnswering : public QuestionTask {
 public:
  std::string name() const override { return "question-answering"; }
  std::string trainer() const override { return "Trainer"; }

  void add_options(OptionSet& options) override {
    LabelingTask::add_options(options);
    options.add(flags_, std::span<const OptionRow<AnswerFlags>>(kAnswerRows));
  }

  void check(const TrainingArguments& args) const override {
    LabelingTask::check(args);
    check_padding(flags_.pad_to_max_length, {{"max_seq_length", flags_.max_seq_length}});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto examples = open_stages(args);
    const auto& first = examples.train        ? examples.train
                        : examples.validation ? examples.validation
                                              : examples.test;
    const AnswerColumns columns(first.column_names());
    const auto tokenizer = load_tokenizer(model_);
    const auto model = load_model(ModelTask::question_answering, model_, {}, nullptr);
    warn_of_best_metric(args);

    const auto features = features_of(examples, [&](const Split& split, bool train) {
      return prepare_rows(split, columns, tokenizer, train, embedding_rows(*model), args);
    });

    PreparedTask prepared;
    hand_over(prepared, model, tokenizer, features);
    if (flags_.pad_to_max_length)
      prepared.trainer.data_collator = default_data_collator;
    else
      prepared.trainer.data_collator = DataCollatorWithPadding(
          {.tokenizer = tokenizer, .pad_to_multiple_of = length_step(args)});
    prepared.make_trainer = [post_process = post_processing(columns, *args.output_dir),
                             eval_examples = examples.validation.reference(),
                             negatives = flags_.version_2_with_negative](TrainerOptions options) {
      auto all = convert_options<QuestionAnsweringTrainerOptions>(options);
      all.compute_metrics = scores_of_answers(negatives);
      all.eval_examples = eval_examples;
      all.post_process_function = post_process;
      return std::make_unique<QuestionAnsweringTrainer>(std::move(all));
    };
    // The script leaves the trainer's own prefix here: the keys begin with "test_".
    prepared.predict = [dataset = features.test.reference(),
                        questions = examples.test.reference()](Trainer& trainer) {
      return dynamic_cast<QuestionAnsweringTrainer&>(trainer).predict(dataset, questions);
    };
    return prepared;
  }

 private:
  void warn_of_best_metric(const TrainingArguments& args) const {
    if (!args.load_best_model_at_end) return;
    const auto metric = args.metric_for_best_model.value_or("");
    const std::vector<std::string> known =
        flags_.version_2_with_negative
            ? std::vector<std::string>{"exact", "f1", "HasAns_exact", "HasAns_f1"}
            : std::vector<std::string>{"exact_match", "f1"};
    if (std::find(known.begin(), known.end(), metric) == known.end())
      log_warning(fmt::format("--metric_for_best_model should be {} or {}", known[0], known[1]));
  }

  PostProcessFunction post_processing(const AnswerColumns& columns,
                                      const std::string& folder) const {
    return [columns, folder, flags = flags_](const Dataset& examples, const Dataset& features,
                                             const TensorList& predictions,
                                             const std::string& stage) {
      AnswerPrediction answers;
      // Models with a decoder return the encoder's states behind the logits.
      const TensorList logits(
          predictions.begin(),
          predictions.begin() + std::min<ptrdiff_t>(2, std::ssize(predictions)));
      answers.predictions =
          postprocess_qa_predictions(examples, features, logits,
                                     {.version_2_with_negative = flags.version_2_with_negative,
                                      .n_best_size = flags.n_best_size,
                                      .max_answer_length = flags.max_answer_length,
                                      .null_score_diff_threshold = flags.null_score_diff_threshold,
                                      .output_dir = folder,
                                      .prefix = stage});
      for (int64_t i = 0; i < examples.size(); ++i) {
        const auto row = examples.get(i);
        answers.ids.push_back(question_id(row));
        answers.references.push_back(known_answers(row, columns.answers, stage).texts);
      }
      return answers;
    };
  }

  EncodeOptions encode_options(const Tokenizer& tokenizer) const {
    EncodeOptions options{
        .max_length = usable_length(flags_.max_seq_length, tokenizer),
        .truncation = tokenizer.padding_side() == PaddingSide::right ? "only_second" : "only_first",
        .stride = flags_.doc_stride,
        .return_overflowing_tokens = true};
    if (flags_.pad_to_max_length) options.padding = "max_length";
    return options;
  }

  Split prepare_rows(const Split& split, const AnswerColumns& columns,
                     const std::shared_ptr<Tokenizer>& tokenizer, bool train, int64_t vocabulary,
                     const TrainingArguments& args) const {
    require_question_columns(split, {columns.question, columns.context, columns.answers}, train);
    const auto options = encode_options(*tokenizer);
    const bool question_first = tokenizer->padding_side() == PaddingSide::right;
    // It outlives this call, so it refers to nothing here.
    const auto function = [=, where = split.where](std::vector<Example> rows) {
      std::vector<std::string> questions, contexts;
      for (const auto& row : rows) {
        questions.push_back(without_leading_space(text_of(row, columns.question, where)));
        contexts.push_back(text_of(row, columns.context, where));
      }
      const auto encodings = tokenizer->encode_batch(question_first ? questions : contexts, options,
                                                     question_first ? contexts : questions, 1);
      std::vector<Example> result;
      for (size_t i = 0; i < rows.size(); ++i) {
        const auto add = [&](const Encoding& encoding) {
          check_ids(encoding.ids(), vocabulary, where);
          const Feature feature(encoding, question_first ? 1 : 0);
          result.push_back(train ? labelled(rows[i], feature, *tokenizer, columns.answers, where)
                                 : located(rows[i], feature));
        };
        add(encodings[i]);
        for (const auto& window : encodings[i].overflowing()) add(window);
      }
      return result;
    };
    const auto settings =
        fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", columns.question, columns.context,
                    columns.answers, *options.max_length, options.stride, flags_.pad_to_max_length,
                    train, vocabulary, question_first);
    return prepare_questions(split, function, settings, args);
  }

  // For training: the tokens of the first answer.
  static Example labelled(const Example& row, const Feature& feature, const Tokenizer& tokenizer,
                          const std::string& column, const std::string& where) {
    auto result = feature.encoding.example();
    const auto known = known_answers(row, column, where);
    const auto none = place_of_class_token(feature.encoding, tokenizer);
    auto tokens = std::pair(none, none);
    if (!known.starts.empty()) {
      if (known.texts.empty() || !feature.first)
        throw Error("G-TASK-11", ErrorKind::data,
                    fmt::format("{}: a row has an answer, but no {}", where,
                                known.texts.empty() ? "text of it" : "context to find it in"),
                    "Correct the row.");
      const auto begin = known.starts.front();
      const auto length = int64_t(text::code_points(known.texts.front()).size());
      tokens = answer_tokens(feature, begin, begin + length, none);
    }
    result.set("start_positions", tokens.first);
    result.set("end_positions", tokens.second);
    return result;
  }

  // For evaluation: whose row it is, and where its tokens lie; -1 outside of the context.
  static Example located(const Example& row, const Feature& feature) {
    auto result = feature.encoding.example();
    Value::Ints places;
    for (size_t i = 0; i < feature.offsets.size(); ++i) {
      places.push_back(feature.is_context[i] ? feature.offsets[i].first : -1);
      places.push_back(feature.is_context[i] ? feature.offsets[i].second : -1);
    }
    result.set("offset_mapping", std::move(places));
    result.set("example_id", row.at("id"));
    return result;
  }

  AnswerFlags flags_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_question_answering() {
  return std::make_unique<tasks::QuestionAnswering>();
}

}  // namespace gradus
