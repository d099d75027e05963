#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <numeric>

#include "fixed_model.h"
#include "models/generation/logits_processors.h"

namespace gradus {
namespace {

using torch::Tensor;
using Probabilities = std::vector<double>;

TEST(LogitsProcessors, EqualTransformers) {
  const auto file = read_safetensors(std::string(GRADUS_SOURCE_DIR) +
                                     "/tests/parity/generation/processors.safetensors");
  std::map<std::string, Tensor> tensors(file.tensors.begin(), file.tensors.end());
  nlohmann::json cases;
  for (const auto& [key, value] : file.metadata)
    if (key == "cases") cases = parse_json(value);
  ASSERT_GT(cases.size(), 100u);
  for (size_t i = 0; i < cases.size(); ++i) {
    const auto tensor = [&](const char* name) {
      return tensors.at(std::to_string(i) + "/" + name);
    };
    const auto options =
        complete_options(GenerationConfig::from_json(cases[i]["options"]).options, {});
    const int64_t prompt = cases[i]["prompt_length"], rows = cases[i]["encoder_rows"];
    const auto ids = tensor("ids"), expected = tensor("expected");
    auto given = ids.narrow(1, 0, prompt);
    if (rows == 2) given = given.index_select(0, torch::tensor({0, 2}));
    auto scores = tensor("scores").clone();
    for (const auto& processor :
         make_logits_processors(options, {prompt, cases[i]["max_length"].get<int64_t>(), given}))
      scores = processor(ids, scores);
    EXPECT_TRUE(torch::allclose(scores, expected, 1e-6, 1e-6))
        << i << " " << cases[i] << scores << expected;
  }
}

/// Probabilities of the options, from their definition alone.
Probabilities exact(const Probabilities& logits, double temperature, size_t top_k, double top_p,
                    double min_p) {
  std::vector<size_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](size_t a, size_t b) { return logits[a] > logits[b]; });
  Probabilities result(logits.size(), 0.0);
  const auto normalise = [&] {
    const auto sum = std::accumulate(result.begin(), result.end(), 0.0);
    for (auto& value : result) value /= sum;
  };
  for (size_t i = 0; i < (top_k == 0 ? order.size() : top_k); ++i)
    result[order[i]] = std::exp((logits[order[i]] - logits[order[0]]) / temperature);
  normalise();
  double before = 0.0;
  for (const auto token : order) {
    const auto mass = result[token];
    if (before >= top_p)
      result[token] = 0.0;  // the likeliest up to and with the one that reaches top_p
    before += mass;
  }
  normalise();
  for (auto& value : result)
    if (value < min_p * result[order[0]]) value = 0.0;
  normalise();
  return result;
}

/// Pearson's statistic over the limit that fits pass with probability 1 - 1e-4 (Wilson and
/// Hilferty); above 1 is a misfit.
double misfit(const std::vector<int64_t>& counts, const Probabilities& expected, int64_t draws) {
  double statistic = 0.0;
  int64_t kinds = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    if (expected[i] == 0.0 && counts[i] > 0) return 1e9;
    if (expected[i] == 0.0) continue;
    const auto mean = expected[i] * static_cast<double>(draws);
    statistic +=
        (static_cast<double>(counts[i]) - mean) * (static_cast<double>(counts[i]) - mean) / mean;
    ++kinds;
  }
  const auto freedom = static_cast<double>(kinds - 1), part = 2.0 / (9.0 * freedom);
  return statistic / (freedom * std::pow(1.0 - part + 3.719 * std::sqrt(part), 3));
}

TEST(Sampling, FollowsTheDistribution) {
  constexpr int64_t kDraws = 20000, kTokens = 30;
  torch::manual_seed(3);
  const auto logits = torch::randn({kTokens}) * 1.2;
  const Probabilities values = [&] {
    const auto wide = logits.to(torch::kDouble);
    return Probabilities(wide.const_data_ptr<double>(), wide.const_data_ptr<double>() + kTokens);
  }();
  const auto counted = [&](GenerationOptions options) {
    FixedModel model(logits);
    options.do_sample = true;
    options.max_new_tokens = 1;
    torch::manual_seed(17);
    const auto counts =
        model.generate({{"input_ids", torch::zeros({kDraws, 1}, torch::kLong)}}, options)
            .select(1, 1)
            .bincount({}, kTokens)
            .contiguous();
    return std::vector<int64_t>(counts.const_data_ptr<int64_t>(),
                                counts.const_data_ptr<int64_t>() + kTokens);
  };
  struct Setting {
    double temperature;
    int64_t top_k;
    double top_p, min_p;
  };
  for (const auto& [temperature, top_k, top_p, min_p] :
       {Setting{1.0, 0, 1.0, 0.0}, Setting{0.6, 0, 1.0, 0.0}, Setting{1.7, 0, 1.0, 0.0},
        Setting{1.0, 7, 1.0, 0.0}, Setting{1.0, 0, 0.8, 0.0}, Setting{1.0, 0, 1.0, 0.1},
        Setting{1.4, 12, 0.9, 0.15}}) {
    const auto counts =
        counted({.temperature = temperature, .top_k = top_k, .top_p = top_p, .min_p = min_p});
    EXPECT_LT(misfit(counts, exact(values, temperature, static_cast<size_t>(top_k), top_p, min_p),
                     kDraws),
              1.0)
        << temperature << " " << top_k << " " << top_p << " " << min_p;
    // It would notice: a temperature a quarter off, a token too many.
    EXPECT_GT(
        misfit(counts, exact(values, temperature * 1.25, static_cast<size_t>(top_k), top_p, min_p),
               kDraws),
        1.0)
        << temperature;
    if (top_k == 7) {
      EXPECT_GT(misfit(counts, exact(values, temperature, 8, top_p, min_p), kDraws), 1.0);
    }
  }
}

/// Scores that depend on the last token; counts the rows that it was given.
class CountingModel : public FixedModel {
 public:
  CountingModel() : FixedModel(torch::zeros({1})), table_(torch::randn({30, 30})) {}
  Tensor decode(const Batch& inputs, layers::KeyValueCache& cache) override {
    FixedModel::decode(inputs, cache);
    const auto& ids = inputs["input_ids"];
    rows += ids.size(0);
    return table_.index_select(0, ids.select(1, ids.size(1) - 1));
  }
  int64_t rows = 0;

 private:
  Tensor table_;
};

TEST(Sampling, RowsThatLeaveChangeNothingForTheOthers) {
  torch::manual_seed(5);
  CountingModel model;
  const auto prompts = torch::randint(30, {24, 3}, torch::kLong);
  const auto drawn = [&](GenerationOptions options) {
    options.do_sample = true;
    options.eos_token_id = std::vector<int64_t>{3, 4, 5};
    options.pad_token_id = 0;
    options.max_new_tokens = 40;
    torch::manual_seed(11);
    model.rows = 0;
    return model.generate({{"input_ids", prompts}}, options);
  };
  for (const int64_t beams : {1, 3}) {
    const auto fast = drawn({.num_beams = beams});
    const auto few = model.rows;
    // A processor of one's own sees all rows, so none is left out.
    const auto keep = [](const Tensor&, Tensor scores) { return scores; };
    const auto slow = drawn({.num_beams = beams, .logits_processors = {keep}});
    EXPECT_TRUE(torch::equal(fast, slow)) << beams;
    EXPECT_LT(few, model.rows) << beams;
  }
}

}  // namespace
}  // namespace gradus
