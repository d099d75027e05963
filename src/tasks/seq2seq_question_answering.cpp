// run_seq2seq_qa.py: an answer that is written, not pointed at.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/trainers/question_answering.h>

#include <map>

#include "tasks/question_data.h"
#include "tasks/question_task.h"
#include "tasks/registry.h"
#include "tasks/text_to_text.h"

namespace gradus {
namespace tasks {
namespace {

struct WrittenAnswerFlags {
  std::string context_column = "context";
  std::string question_column = "question";
  std::string answer_column = "answers";
  int64_t max_seq_length = 384;
  int64_t max_answer_length = 30;
  std::optional<int64_t> val_max_answer_length = std::nullopt;
  bool pad_to_max_length = true;
  bool version_2_with_negative = false;
  double null_score_diff_threshold = 0.0;
  int64_t doc_stride = 128;
  int64_t n_best_size = 20;
  std::optional<int64_t> num_beams = std::nullopt;
  bool ignore_pad_token_for_loss = true;
};

const std::vector<OptionRow<WrittenAnswerFlags>>& written_answer_rows() {
  using F = WrittenAnswerFlags;
  constexpr const char* kUnused = "Accepted for compatibility: as in the script, nothing reads it.";
  static const std::vector<OptionRow<F>> rows = {
      {&F::context_column, "context_column", Group::data, any_value(), "The column of the texts."},
      {&F::question_column, "question_column", Group::data, any_value(),
       "The column of the questions."},
      {&F::answer_column, "answer_column", Group::data, any_value(), "The column of the answers."},
      {&F::max_seq_length, "max_seq_length", Group::data, at_least(1),
       "Tokens of question and text; longer ones are cut, at most to what the tokenizer says."},
      {&F::max_answer_length, "max_answer_length", Group::data, at_least(1),
       "Most tokens of an answer."},
      {&F::val_max_answer_length, "val_max_answer_length", Group::data, at_least(1),
       "Longest answer that is generated in the last evaluation; unset: max_answer_length."},
      {&F::pad_to_max_length, "pad_to_max_length", Group::data, any_value(),
       "Fill all rows up to these lengths; else to the longest of a batch."},
      {&F::version_2_with_negative, "version_2_with_negative", Group::data, any_value(),
       "Questions may have no answer."},
      {&F::null_score_diff_threshold, "null_score_diff_threshold", Group::data, any_value(),
       kUnused},
      {&F::doc_stride, "doc_stride", Group::data, at_least(0), kUnused},
      {&F::n_best_size, "n_best_size", Group::data, at_least(1), kUnused},
      {&F::num_beams, "num_beams", Group::data, at_least(1),
       "Beams in the last evaluation; unset: generation_num_beams."},
      {&F::ignore_pad_token_for_loss, "ignore_pad_token_for_loss", Group::data, any_value(),
       "Padding of the answers does not count in the loss."},
  };
  return rows;
}

class Seq2SeqQuestionAnswering : public QuestionTask {
 public:
  std::string name() const override { return "seq2seq-question-answering"; }
  std::string trainer() const override { return "Seq2SeqTrainer"; }

  void add_options(OptionSet& options) override {
    LabelingTask::add_options(options);
    options.add(flags_, std::span<const OptionRow<WrittenAnswerFlags>>(written_answer_rows()));
  }

  void check(const TrainingArguments& args) const override {
    LabelingTask::check(args);
    check_padding(flags_.pad_to_max_length, {{"max_seq_length", flags_.max_seq_length},
                                             {"max_answer_length", flags_.max_answer_length}});
  }

  PreparedTask prepare(const TrainingArguments& args) override {
    const auto examples = open_stages(args);
    const auto tokenizer = load_tokenizer(model_);
    const auto model = load_text_generator(model_, *tokenizer, std::nullopt);
    const auto features = features_of(examples, [&](const Split& split, bool train) {
      return prepare_rows(split, tokenizer, train, embedding_rows(*model), args);
    });

    PreparedTask prepared;
    hand_over(prepared, model, tokenizer, features);
    prepared.trainer.data_collator = text_to_text_collator(
        tokenizer, model, flags_.ignore_pad_token_for_loss, length_step(args));
    make_trainer(prepared, tokenizer, examples.validation.reference());

    const auto& own = arguments().as<Seq2SeqTrainingArguments>();
    GenerationOptions generation;
    generation.max_length = own.generation_max_length.value_or(
        flags_.val_max_answer_length.value_or(flags_.max_answer_length));
    generation.num_beams = flags_.num_beams ? flags_.num_beams : own.generation_num_beams;
    prepared.evaluate = [generation](Trainer& trainer) {
      return dynamic_cast<Seq2SeqTrainer&>(trainer).evaluate({}, {}, "eval", generation);
    };
    // The script gives no options of generation here, and leaves the prefix "test_".
    prepared.predict = [dataset = prepared.predict_dataset,
                        questions = examples.test.reference()](Trainer& trainer) {
      return dynamic_cast<QuestionAnsweringSeq2SeqTrainer&>(trainer).predict(dataset, questions);
    };
    return prepared;
  }

 private:
  void make_trainer(PreparedTask& prepared, const std::shared_ptr<Tokenizer>& tokenizer,
                    const DatasetRef& eval_examples) {
    const auto own = arguments().as<Seq2SeqTrainingArguments>();
    prepared.make_trainer = [own, tokenizer, eval_examples,
                             flags = flags_](TrainerOptions options) {
      auto all = convert_options<QuestionAnsweringSeq2SeqTrainerOptions>(options);
      all.args = own;
      all.eval_examples = eval_examples;
      all.post_process_function = [tokenizer, flags](
                                      const Dataset& examples, const Dataset& features,
                                      const TensorList& predictions, const std::string& stage) {
        return written_answers(*tokenizer, flags, examples, features, predictions, stage);
      };
      if (own.predict_with_generate)
        all.compute_metrics = scores_of_answers(flags.version_2_with_negative);
      return std::make_unique<QuestionAnsweringSeq2SeqTrainer>(std::move(all));
    };
  }

  // As in the script, the last part of a long text has the last word.
  static AnswerPrediction written_answers(const Tokenizer& tokenizer,
                                          const WrittenAnswerFlags& flags, const Dataset& examples,
                                          const Dataset& features, const TensorList& predictions,
                                          const std::string& stage) {
    const auto texts = decoded_texts(tokenizer, predictions.front());
    std::map<std::string, size_t> feature_of;
    for (int64_t i = 0; i < features.size(); ++i)
      feature_of[question_id(features.get(i), "example_id")] = size_t(i);
    AnswerPrediction answers;
    for (int64_t i = 0; i < examples.size(); ++i) {
      const auto row = examples.get(i);
      const auto id = question_id(row);
      const auto found = feature_of.find(id);
      if (found == feature_of.end())
        throw Error("G-TASK-16", ErrorKind::data,
                    fmt::format("question {} has no row left to answer it with", id),
                    "Raise --max_eval_samples or --max_predict_samples, or leave it out: it limits "
                    "the questions and then the rows made of them.");
      answers.ids.push_back(id);
      answers.predictions.push_back(texts.at(found->second));
      answers.references.push_back(known_answers(row, flags.answer_column, stage).texts);
    }
    return answers;
  }

  Split prepare_rows(const Split& split, const std::shared_ptr<Tokenizer>& tokenizer, bool train,
                     int64_t vocabulary, const TrainingArguments& args) const {
    require_question_columns(
        split, {flags_.question_column, flags_.context_column, flags_.answer_column}, train);
    const auto options_of = [&](int64_t length) {
      EncodeOptions options{.max_length = length, .truncation = true, .ids_only = true};
      if (flags_.pad_to_max_length) options.padding = "max_length";
      return options;
    };
    auto source = options_of(usable_length(flags_.max_seq_length, *tokenizer));
    source.return_overflowing_tokens = !train;
    const auto target = options_of(flags_.max_answer_length);
    const auto ignored = flags_.pad_to_max_length && flags_.ignore_pad_token_for_loss
                             ? tokenizer->pad_token_id()
                             : std::nullopt;
    // It outlives this call, so it refers to nothing here.
    const auto function = [=, where = split.where, flags = flags_](std::vector<Example> rows) {
      std::vector<std::string> sources, targets;
      for (const auto& row : rows) {
        sources.push_back(
            "question: " + without_leading_space(text_of(row, flags.question_column, where)) +
            " context: " + without_leading_space(text_of(row, flags.context_column, where)));
        const auto known = known_answers(row, flags.answer_column, where);
        targets.push_back(known.texts.empty() ? "" : known.texts.front());
      }
      const auto inputs = tokenizer->encode_batch(sources, source, {}, 1),
                 labels = tokenizer->encode_batch(targets, target, {}, 1);
      std::vector<Example> result;
      for (size_t i = 0; i < rows.size(); ++i) {
        auto ids = labels[i].ids();
        check_ids(ids, vocabulary, where);
        if (ignored) std::replace(ids.begin(), ids.end(), *ignored, int64_t{-100});
        const auto add = [&](const Encoding& encoding) {
          check_ids(encoding.ids(), vocabulary, where);
          auto row = encoding.example();
          row.set("labels", ids);
          if (!train) row.set("example_id", rows[i].at("id"));
          result.push_back(std::move(row));
        };
        add(inputs[i]);
        for (const auto& window : inputs[i].overflowing()) add(window);
      }
      return result;
    };
    const auto settings =
        fmt::format("{}|{}|{}|{}|{}|{}|{}|{}|{}", flags_.question_column, flags_.context_column,
                    flags_.answer_column, *source.max_length, flags_.max_answer_length,
                    flags_.pad_to_max_length, ignored.value_or(-1), train, vocabulary);
    return prepare_questions(split, function, settings, args);
  }

  WrittenAnswerFlags flags_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_seq2seq_question_answering() {
  return std::make_unique<tasks::Seq2SeqQuestionAnswering>();
}

}  // namespace gradus
