// run_translation.py: a text in another language.
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/tasks/text_metrics.h>
#include <gradus/trainers/seq2seq.h>

#include "tasks/registry.h"
#include "tasks/text_to_text.h"

namespace gradus {
namespace tasks {
namespace {

struct TranslationFlags {
  std::optional<std::string> source_lang = std::nullopt;
  std::optional<std::string> target_lang = std::nullopt;
};
constexpr OptionRow<TranslationFlags> kTranslationRows[] = {
    {&TranslationFlags::source_lang, "source_lang", Group::data, any_value(),
     "The language to translate from, as the rows call it: en, or en_XX for en. mBART reads all of "
     "it."},
    {&TranslationFlags::target_lang, "target_lang", Group::data, any_value(),
     "The language to translate into."},
};

std::string before_underscore(const std::string& language) {
  return language.substr(0, language.find('_'));
}

const std::string& text_in(const nlohmann::ordered_json& texts, const std::string& language,
                           const std::string& where) {
  const auto found = texts.find(language);
  if (found != texts.end() && found->is_string()) return found->get_ref<const std::string&>();
  throw Error("G-TASK-11", ErrorKind::data,
              fmt::format("{}: a row has {} under '{}' of column 'translation', expected text",
                          where, found == texts.end() ? "nothing" : found->type_name(), language),
              "--source_lang and --target_lang name the keys of the column 'translation'.");
}

class Translation : public TextToTextTask {
 public:
  std::string name() const override { return "translation"; }

  void add_options(OptionSet& options) override {
    TextToTextTask::add_options(options);
    options.add(own_, std::span<const OptionRow<TranslationFlags>>(kTranslationRows));
  }

  void check(const TrainingArguments& args) const override {
    if (!own_.source_lang || !own_.target_lang)
      throw Error("G-TASK-9", ErrorKind::usage,
                  fmt::format("the languages are not known: --{} is not set",
                              own_.source_lang ? "target_lang" : "source_lang"),
                  "Set --source_lang and --target_lang to the keys of the column 'translation'.");
    TextToTextTask::check(args);
  }

 protected:
  ReadPair reader(const Split&, const Split& split, std::string& key) const override {
    const auto from = before_underscore(*own_.source_lang),
               to = before_underscore(*own_.target_lang);
    key = from + "|" + to;
    const ColumnNeed needs[] = {{.name = "translation"}};
    require_columns(*split.rows, needs, split.where);
    return [from, to, where = split.where](const Example& row) -> Pair {
      const auto& cell = row.at("translation");
      if (!cell.is_nested() || !cell.json().is_object())
        throw Error("G-TASK-11", ErrorKind::data,
                    fmt::format("{}: column 'translation' holds {}, expected an object with a text "
                                "for each language",
                                where, cell.is_null() ? "null" : cell.type_name()),
                    "Write rows as {\"translation\": {\"en\": \"…\", \"de\": \"…\"}}.");
      return std::pair(text_in(cell.json(), from, where), text_in(cell.json(), to, where));
    };
  }

  Scores scores(const TrainingArguments&, PreparedTask&) const override {
    return [](std::vector<std::string> references, std::vector<std::string> predictions) {
      std::vector<std::vector<std::string>> known;
      for (auto& reference : references) known.push_back({std::move(reference)});
      return Metrics{{"bleu", metrics::rounded(metrics::bleu(known, predictions).score, 4)}};
    };
  }

  std::pair<std::string, std::string> languages(const Tokenizer& tokenizer) const override {
    check_language(tokenizer, "source_lang", *own_.source_lang);
    check_language(tokenizer, "target_lang", *own_.target_lang);
    return {*own_.source_lang, *own_.target_lang};
  }

  bool stacks_padded_rows() const override { return true; }
  bool rounds_length() const override { return true; }

  // As in the script, length and beams are those of the last evaluation and of the prediction.
  // Evaluations in the middle of training follow the options of generation alone.
  void finish(PreparedTask& prepared) override {
    const auto& args = arguments().as<Seq2SeqTrainingArguments>();
    GenerationOptions generation;
    generation.max_length = args.generation_max_length.value_or(evaluation_length());
    generation.num_beams = flags_.num_beams ? flags_.num_beams : args.generation_num_beams;
    prepared.evaluate = [generation](Trainer& trainer) {
      return dynamic_cast<Seq2SeqTrainer&>(trainer).evaluate({}, {}, "eval", generation);
    };
    prepared.predict = [generation, dataset = prepared.predict_dataset](Trainer& trainer) {
      return dynamic_cast<Seq2SeqTrainer&>(trainer).predict(dataset, {}, "predict", generation);
    };
  }

 private:
  TranslationFlags own_;
};

}  // namespace
}  // namespace tasks

std::unique_ptr<Task> make_translation() { return std::make_unique<tasks::Translation>(); }

}  // namespace gradus
