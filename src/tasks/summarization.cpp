// run_summarization.py: a short text for a long one.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gradus/core/error.h>
#include <gradus/core/log.h>
#include <gradus/core/nearest.h>
#include <gradus/tasks/text_metrics.h>
#include <gradus/text/sentences.h>
#include <gradus/train/callbacks.h>
#include <gradus/trainers/seq2seq.h>

#include <sstream>

#include "tasks/registry.h"
#include "tasks/text_to_text.h"

namespace gradus {
namespace tasks {
namespace {

struct SummarizationFlags {
  std::optional<std::string> text_column = std::nullopt;
  std::optional<std::string> summary_column = std::nullopt;
  std::optional<std::string> lang = std::nullopt;
  std::optional<bool> resize_position_embeddings = std::nullopt;
};
constexpr OptionRow<SummarizationFlags> kSummarizationRows[] = {
    {&SummarizationFlags::text_column, "text_column", Group::data, any_value(),
     "The column of the long texts; unset: the first."},
    {&SummarizationFlags::summary_column, "summary_column", Group::data, any_value(),
     "The column of the summaries; unset: the second."},
    {&SummarizationFlags::lang, "lang", Group::data, any_value(),
     "Read with multilingual tokenizers only, which need it: the code of the texts' language."},
    {&SummarizationFlags::resize_position_embeddings, "resize_position_embeddings", Group::model,
     any_value(), "Accepted for compatibility: no model here has positions that can be added to."},
};

struct KnownColumns {
  std::string_view dataset, text, summary;
};
constexpr KnownColumns kKnownColumns[] = {
    {"amazon_reviews_multi", "review_body", "review_title"},
    {"big_patent", "description", "abstract"},
    {"cnn_dailymail", "article", "highlights"},
    {"orange_sum", "text", "summary"},
    {"pn_summary", "article", "summary"},
    {"psc", "extract_text", "summary_text"},
    {"samsum", "dialogue", "summary"},
    {"thaisum", "body", "summary"},
    {"xglue", "news_body", "news_title"},
    {"xsum", "document", "summary"},
    {"wiki_summary", "article", "highlights"},
    {"multi_news", "document", "summary"},
};

// What ROUGE draws its samples from. Python draws from numpy's global generator, whose state is
// part of a checkpoint; so is this one.
class RougeSamples : public TrainerCallback {
 public:
  explicit RougeSamples(int64_t seed) : generator(static_cast<uint32_t>(seed)) {}
  std::string name() const override { return "RougeSamples"; }
  nlohmann::json state_dict() const override {
    std::ostringstream text;
    text << generator;
    return text.str();
  }
  void load_state_dict(const nlohmann::json& state) override {
    std::istringstream(state.get<std::string>()) >> generator;
  }

  std::mt19937 generator;
};

std::shared_ptr<const SentenceSplitter> sentence_splitter() {
  if (const auto folder = SentenceSplitter::find_nltk_data())
    return std::make_shared<SentenceSplitter>(SentenceSplitter::from_folder(*folder));
  log_warning(
      "NLTK's punkt_tab data is not there: sentences are split without knowledge of "
      "abbreviations, which rougeLsum depends on. Set NLTK_DATA to the folder that holds "
      "tokenizers/punkt_tab.");
  return std::make_shared<SentenceSplitter>();
}

std::vector<std::string> one_sentence_per_line(std::vector<std::string> texts,
                                               const SentenceSplitter& splitter) {
  for (auto& text : texts) text = fmt::format("{}", fmt::join(splitter.split(text), "\n"));
  return texts;
}

class Summarization : public TextToTextTask {
 public:
  std::string name() const override { return "summarization"; }

  void add_options(OptionSet& options) override {
    TextToTextTask::add_options(options);
    options.add(own_, std::span<const OptionRow<SummarizationFlags>>(kSummarizationRows));
  }

 protected:
  ReadPair reader(const Split& first, const Split& split, std::string& key) const override {
    const auto [text, summary] = columns(first);
    key = text + "|" + summary;
    const ColumnNeed needs[] = {{.name = text}, {.name = summary}};
    require_columns(*split.rows, needs, split.where);
    return [text = text, summary = summary, where = split.where](const Example& row) -> Pair {
      const auto missing = [&](const std::string& column) {
        const auto& value = row.at(column);
        return value.is_null() || text_of(row, column, where).empty();
      };
      if (missing(text) || missing(summary)) return std::nullopt;
      return std::pair(text_of(row, text, where), text_of(row, summary, where));
    };
  }

  Scores scores(const TrainingArguments& args, PreparedTask& prepared) const override {
    const auto samples = std::make_shared<RougeSamples>(args.seed);
    prepared.trainer.callbacks.push_back(samples);
    return [samples, splitter = sentence_splitter()](std::vector<std::string> references,
                                                     std::vector<std::string> predictions) {
      auto result = metrics::rouge_of_all(one_sentence_per_line(std::move(references), *splitter),
                                          one_sentence_per_line(std::move(predictions), *splitter),
                                          true, samples->generator);
      for (auto& [name, value] : result) value = metrics::rounded(value * 100, 4);
      return result;
    };
  }

  std::pair<std::string, std::string> languages(const Tokenizer& tokenizer) const override {
    if (!own_.lang)
      throw Error("G-TASK-9", ErrorKind::usage,
                  fmt::format("{} is a multilingual tokenizer, but --lang is not set",
                              tokenizer.tokenizer_class()),
                  "Set --lang to the code of the texts' language, for example en_XX.");
    check_language(tokenizer, "lang", *own_.lang);
    return {*own_.lang, *own_.lang};
  }

  // As in the script, --num_beams wins over --generation_num_beams.
  void finish(PreparedTask&) override {
    auto& args = arguments().as<Seq2SeqTrainingArguments>();
    if (!args.generation_max_length) args.generation_max_length = evaluation_length();
    if (flags_.num_beams) args.generation_num_beams = flags_.num_beams;
  }

 private:
  std::pair<std::string, std::string> columns(const Split& split) const {
    const auto names = split.column_names();
    const auto known =
        std::find_if(std::begin(kKnownColumns), std::end(kKnownColumns),
                     [&](const KnownColumns& each) { return each.dataset == data_.dataset_name; });
    const auto choose = [&](const char* flag, const std::optional<std::string>& given,
                            std::string_view usual, size_t place) {
      if (given && std::find(names.begin(), names.end(), *given) == names.end())
        throw Error("G-TASK-9", ErrorKind::usage,
                    fmt::format("--{} is '{}', but {} has the columns {}", flag, *given,
                                split.where, fmt::join(names, ", ")),
                    did_you_mean(*given, names) + " Name one of these columns.");
      if (given) return *given;
      if (known != std::end(kKnownColumns)) return std::string(usual);
      if (place < names.size()) return names[place];
      throw Error("G-TASK-9", ErrorKind::data,
                  fmt::format("{} has {} columns: expected one of texts and one of summaries",
                              split.where, names.size()),
                  "Give rows with both.");
    };
    return {choose("text_column", own_.text_column,
                   known != std::end(kKnownColumns) ? known->text : "", 0),
            choose("summary_column", own_.summary_column,
                   known != std::end(kKnownColumns) ? known->summary : "", 1)};
  }

  SummarizationFlags own_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_summarization() { return std::make_unique<tasks::Summarization>(); }

}  // namespace gradus
