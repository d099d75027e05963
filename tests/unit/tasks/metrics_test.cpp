// Every metric against scikit-learn, scipy and seqeval; see tests/parity/tasks/make_fixtures.py.
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/tasks/metrics.h>
#include <gtest/gtest.h>

#include <cmath>

namespace gradus::metrics {
namespace {

using nlohmann::json;
using Ints = std::vector<int64_t>;
using Doubles = std::vector<double>;

const json& fixtures() {
  static const json document = read_json(GRADUS_SOURCE_DIR "/tests/parity/tasks/metrics.json");
  return document;
}

void expect_near(double value, double wanted, const json& where) {
  if (std::isnan(wanted))
    EXPECT_TRUE(std::isnan(value)) << value << " for " << dump_json(where);
  else
    EXPECT_NEAR(value, wanted, 1e-12) << dump_json(where);
}

void expect_scores(const PrecisionRecallF1& scores, const json& wanted, const json& where) {
  expect_near(scores.precision, wanted[0].get<double>(), where);
  expect_near(scores.recall, wanted[1].get<double>(), where);
  expect_near(scores.f1, wanted[2].get<double>(), where);
}

const std::map<std::string, Average> kAverages = {{"binary", Average::binary},
                                                  {"micro", Average::micro},
                                                  {"macro", Average::macro},
                                                  {"weighted", Average::weighted}};

torch::Tensor matrix_of(const json& rows) {
  auto matrix = torch::zeros({int64_t(rows.size()), int64_t(rows[0].size())});
  for (size_t i = 0; i < rows.size(); ++i)
    for (size_t j = 0; j < rows[i].size(); ++j)
      matrix[int64_t(i)][int64_t(j)] = rows[i][j].get<float>();
  return matrix;
}

}  // namespace

TEST(Metrics, ClassesAsScikitLearn) {
  for (const auto& one : fixtures()["classes"]) {
    const auto references = one["references"].get<Ints>(),
               predictions = one["predictions"].get<Ints>();
    expect_near(accuracy(references, predictions), one["accuracy"].get<double>(), one);
    expect_near(matthews_correlation(references, predictions), one["matthews"].get<double>(), one);
    for (const auto& [name, average] : kAverages)
      if (one.contains(name))
        expect_scores(precision_recall_f1(references, predictions, average), one[name], one);
  }
}

TEST(Metrics, ValuesAsScipy) {
  for (const auto& one : fixtures()["values"]) {
    const auto references = one["references"].get<Doubles>(),
               predictions = one["predictions"].get<Doubles>();
    expect_near(mean_squared_error(references, predictions), one["mse"].get<double>(), one);
    expect_near(pearson_correlation(references, predictions), one["pearson"].get<double>(), one);
    expect_near(spearman_correlation(references, predictions), one["spearman"].get<double>(), one);
  }
}

TEST(Metrics, SeveralLabelsAsScikitLearn) {
  for (const auto& one : fixtures()["multilabel"])
    for (const auto& [name, average] : kAverages)
      if (one.contains(name))
        expect_scores(multilabel_precision_recall_f1(matrix_of(one["references"]),
                                                     matrix_of(one["predictions"]), average),
                      one[name], one);
}

TEST(Metrics, EntitiesAsSeqeval) {
  for (const auto& one : fixtures()["tags"]) {
    const auto references = one["references"].get<TagRows>(),
               predictions = one["predictions"].get<TagRows>();
    const auto scores = entity_scores(references, predictions);
    expect_scores(scores.overall, one["overall"], one);
    expect_near(scores.accuracy, one["accuracy"].get<double>(), one);
    ASSERT_EQ(scores.types.size(), one["types"].size());
    for (const auto& [type, wanted] : one["types"].items()) {
      expect_scores(scores.types.at(type), wanted, one);
      EXPECT_EQ(scores.types.at(type).number, wanted[3].get<int64_t>());
    }
    for (size_t row = 0; row < references.size(); ++row) {
      auto found = json::array();
      for (const auto& entity : entities_of(references[row]))
        found.push_back({entity.type, entity.first, entity.last});
      EXPECT_EQ(found, one["entities"][row]);
    }
  }
}

TEST(Metrics, NothingToSayIsNan) {
  EXPECT_TRUE(std::isnan(accuracy({}, {})));
  EXPECT_TRUE(std::isnan(matthews_correlation({}, {})));
  EXPECT_TRUE(std::isnan(mean_squared_error({}, {})));
  EXPECT_TRUE(std::isnan(pearson_correlation(Doubles{1}, Doubles{1})));
  EXPECT_TRUE(std::isnan(entity_scores({}, {}).accuracy));
  EXPECT_EQ(precision_recall_f1({}, {}, Average::macro).f1, 0);
  EXPECT_TRUE(std::isinf(perplexity(1e4)));
  EXPECT_TRUE(std::isnan(perplexity(NAN)));
  EXPECT_DOUBLE_EQ(perplexity(2), std::exp(2.0));
}

TEST(Metrics, RefusesWhatDoesNotFit) {
  const auto id_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const Error& error) {
      return error.id();
    }
    return "";
  };
  EXPECT_EQ(id_of([] { accuracy(Ints{1}, Ints{1, 2}); }), "G-TASK-6");
  EXPECT_EQ(id_of([] { entity_scores({{"O"}}, {{"O", "O"}}); }), "G-TASK-6");
  EXPECT_EQ(
      id_of([] { multilabel_precision_recall_f1(torch::zeros({2, 3}), torch::zeros({3, 2})); }),
      "G-TASK-6");
  EXPECT_EQ(id_of([] { precision_recall_f1(Ints{0, 1, 2}, Ints{0, 1, 2}); }), "G-TASK-7");
  EXPECT_EQ(id_of([] { precision_recall_f1(Ints{0, 2}, Ints{0, 2}); }), "G-TASK-7");
}

}  // namespace gradus::metrics
