// ROUGE, BLEU, SQuAD's scores, stems and sentences against the Python packages; see
// tests/parity/tasks/make_text_fixtures.py. Every number is the same to the last bit.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/tasks/text_metrics.h>
#include <gradus/text/sentences.h>
#include <gtest/gtest.h>

#include "../error_of.h"
#include "text/porter_stemmer.h"

namespace gradus::metrics {
namespace {

using nlohmann::json;
using Strings = std::vector<std::string>;

const json& text_fixtures() {
  static const json document = read_json(GRADUS_SOURCE_DIR "/tests/parity/tasks/text_metrics.json");
  return document;
}

void expect_same(const PrecisionRecallF1& scores, const json& wanted, const json& where) {
  const PrecisionRecallF1 all = scores;
  EXPECT_EQ(all.precision, wanted[0].get<double>()) << dump_json(where);
  EXPECT_EQ(all.recall, wanted[1].get<double>()) << dump_json(where);
  EXPECT_EQ(all.f1, wanted[2].get<double>()) << dump_json(where);
}

void expect_same(const Metrics& scores, const json& wanted) {
  EXPECT_EQ(scores, wanted.get<Metrics>()) << dump_json(wanted);
}

// What a character is comes from tokenizers-c, which a build may lack.
bool knows_characters() {
  try {
    return normalized_answer("A").empty();
  } catch (const Error&) {
    return false;
  }
}

struct Answers {
  explicit Answers(const json& rows) {
    for (const auto& row : rows) {
      references.push_back(row["answers"].get<Strings>());
      predictions.push_back(row["prediction"].get<std::string>());
      probabilities.push_back(row["probability"].get<double>());
    }
  }
  std::vector<Strings> references;
  Strings predictions;
  std::vector<double> probabilities;
};

}  // namespace

TEST(TextMetrics, RougeAsRougeScore) {
  for (const auto& row : text_fixtures()["rouge"]) {
    for (const bool stems : {false, true}) {
      const auto scores =
          rouge(row["reference"].get<std::string>(), row["prediction"].get<std::string>(), stems);
      const auto& wanted = row[stems ? "stems" : "words"];
      expect_same(scores.rouge1, wanted["rouge1"], row);
      expect_same(scores.rouge2, wanted["rouge2"], row);
      expect_same(scores.rougeL, wanted["rougeL"], row);
      expect_same(scores.rougeLsum, wanted["rougeLsum"], row);
    }
  }
}

TEST(TextMetrics, TheBootstrapDrawsAsNumpyDoes) {
  for (const auto& one : text_fixtures()["rouge_of_all"]) {
    Strings references, predictions;
    for (size_t i = 0; i < one["rows"].get<size_t>(); ++i) {
      references.push_back(text_fixtures()["rouge"][i]["reference"].get<std::string>());
      predictions.push_back(text_fixtures()["rouge"][i]["prediction"].get<std::string>());
    }
    std::mt19937 generator(one["seed"].get<uint32_t>());
    for (const auto& wanted : one["results"])
      expect_same(rouge_of_all(references, predictions, true, generator), wanted);
  }
}

TEST(TextMetrics, BleuAsSacrebleu) {
  for (const auto& one : text_fixtures()["bleu"]) {
    const auto score =
        bleu(one["references"].get<std::vector<Strings>>(), one["predictions"].get<Strings>());
    EXPECT_EQ(score.score, one["score"].get<double>());
    EXPECT_EQ(score.brevity_penalty, one["bp"].get<double>());
    EXPECT_EQ(score.prediction_length, one["sys_len"].get<int64_t>());
    EXPECT_EQ(score.reference_length, one["ref_len"].get<int64_t>());
    EXPECT_EQ(score.precisions, (one["precisions"].get<std::array<double, 4>>()));
    EXPECT_EQ(score.counts, (one["counts"].get<std::array<int64_t, 4>>()));
    EXPECT_EQ(score.totals, (one["totals"].get<std::array<int64_t, 4>>()));
  }
}

TEST(TextMetrics, NormalizedAnswersAsSquad) {
  if (!knows_characters()) GTEST_SKIP() << "no tokenizer in this build";
  for (const auto& one : text_fixtures()["normalized"])
    EXPECT_EQ(normalized_answer(one[0].get<std::string>()), one[1].get<std::string>());
}

TEST(TextMetrics, SquadAsEvaluate) {
  if (!knows_characters()) GTEST_SKIP() << "no tokenizer in this build";
  for (const auto& one : text_fixtures()["squad"]) {
    const Answers answers(one["rows"]);
    expect_same(squad(answers.references, answers.predictions), one["scores"]);
  }
  for (const auto& one : text_fixtures()["squad_v2"]) {
    const Answers answers(one["rows"]);
    expect_same(squad_v2(answers.references, answers.predictions, answers.probabilities),
                one["scores"]);
  }
}

TEST(TextMetrics, StemsAsNltk) {
  for (const auto& [word, stem] : text_fixtures()["stems"].items())
    EXPECT_EQ(text::porter_stem(word), stem.get<std::string>()) << word;
}

TEST(TextMetrics, SentencesAsNltk) {
  if (!knows_characters()) GTEST_SKIP() << "no tokenizer in this build";
  const auto folder = std::filesystem::path(::testing::TempDir()) / "punkt_tab" / "english";
  std::filesystem::create_directories(folder);
  for (const auto& [name, content] : text_fixtures()["sentences"]["files"].items())
    write_file_atomically(folder / name, content.get<std::string>());
  const SentenceSplitter blank, informed = SentenceSplitter::from_folder(folder);
  for (const auto& one : text_fixtures()["sentences"]["cases"]) {
    const auto text = one[0].get<std::string>();
    EXPECT_EQ(blank.split(text), one[1].get<Strings>()) << text;
    EXPECT_EQ(informed.split(text), one[2].get<Strings>()) << text;
  }
}

TEST(TextMetrics, RoundsAsPython) {
  for (const auto& one : text_fixtures()["rounded"])
    EXPECT_EQ(rounded(one[0].get<double>(), 4), one[1].get<double>());
}

TEST(TextMetrics, RowsThatDoNotFitAreRefused) {
  const Strings one = {"a"}, none = {};
  const std::vector<Strings> empty = {{}}, two = {{"a"}, {"b"}};
  std::mt19937 generator(1);
  expect_error([&] { rouge_of_all(one, none, true, generator); }, "G-TASK-6", {});
  expect_error([&] { bleu(two, one); }, "G-TASK-6", {});
  expect_error([&] { bleu(empty, one); }, "G-TASK-6", {});
  expect_error([&] { squad(empty, one); }, "G-TASK-6", {});
  expect_error([&] { squad_v2(two, one); }, "G-TASK-6", {});
}

TEST(TextMetrics, NoRowsAreZero) {
  std::mt19937 generator(1);
  EXPECT_EQ(rouge_of_all({}, {}, true, generator)["rougeL"], 0.0);
  EXPECT_EQ(bleu({}, {}).score, 0.0);
  EXPECT_EQ(squad_v2({}, {}), Metrics());
}

}  // namespace gradus::metrics
