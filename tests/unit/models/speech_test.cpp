#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/numpy_random.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/span_masks.h>
#include <gradus/models/speech_models.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <map>

#include "temporary_folder.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

const fs::path kSpeech = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/models/speech";

/// A file of make_speech_fixtures.py: steps in which torch and numpy draw from a seed.
struct SpeechFixture {
  struct Step {
    Batch inputs;
    std::map<std::string, Tensor> outputs, gradients;
  };

  explicit SpeechFixture(const std::string& name) {
    const auto file = read_safetensors(kSpeech / (name + ".safetensors"));
    NamedTensors weights;
    for (const auto& [key, tensor] : file.tensors) {
      if (key.rfind("weights/", 0) == 0) {
        weights.emplace_back(key.substr(8), tensor);
        continue;
      }
      const auto rest = key.substr(6);  // after "cases/"
      const auto first = rest.find('/'), second = rest.find('/', first + 1);
      auto& step = steps[rest.substr(0, first)];
      const auto kind = rest.substr(first + 1, second - first - 1), item = rest.substr(second + 1);
      if (kind == "inputs")
        step.inputs.set(item, tensor);
      else
        (kind == "outputs" ? step.outputs : step.gradients)[item] = tensor;
    }
    for (const auto& [key, value] : file.metadata)
      if (key == "config") write_file_atomically(folder.path() / "config.json", value);
    write_safetensors(folder.path() / "model.safetensors", weights);
  }

  TemporaryFolder folder;
  std::map<std::string, Step> steps;
};

void expect_step(PreTrainedModel& model, const SpeechFixture::Step& step, uint64_t seed) {
  torch::manual_seed(seed);
  numpy_random().seed(seed);
  model.zero_grad();
  const auto output = model.forward(step.inputs);
  for (const auto& [name, value] : step.outputs) {
    ASSERT_TRUE(output.contains(name)) << name;
    const auto difference = (output[name] - value).abs().max().item<double>();
    const bool is_loss = name.find("loss") != std::string::npos;
    EXPECT_LT(difference, is_loss ? 1e-6 * std::max(1.0, value.abs().item<double>()) : 1e-5)
        << name << " of step " << seed;
  }
  output.loss().backward();
  double largest = 0.0;
  for (const auto& [name, gradient] : step.gradients)
    largest = std::max(largest, gradient.norm().item<double>());
  for (const auto& item : model.named_parameters()) {
    const auto& got = item.value().grad();
    const auto expected = step.gradients.find(item.key());
    if (expected == step.gradients.end()) {
      EXPECT_FALSE(got.defined() && got.abs().max().item<double>() > 0) << item.key();
      continue;
    }
    ASSERT_TRUE(got.defined()) << item.key() << " of step " << seed;
    const auto norm = expected->second.norm().item<double>();
    // One that is zero but for rounding (a shift that softmax takes out again) must be so here too.
    if (norm < 1e-6 * largest)
      EXPECT_LT(got.norm().item<double>(), 1e-6 * largest) << item.key() << " of step " << seed;
    else
      EXPECT_LE((got - expected->second).norm().item<double>(), 1e-4 * norm)
          << item.key() << " of step " << seed;
  }
}

TEST(Speech, SpecAugmentAndLayerDropDrawWhatTransformersDraws) {
  for (const auto* name : {"wav2vec2_augmented", "hubert_augmented"}) {
    const SpeechFixture fixture(name);
    const auto model = AutoModelForCTC::from_pretrained(fixture.folder.path(), {.strict = true});
    model->train();
    ASSERT_EQ(fixture.steps.size(), 3u);
    for (const auto& [seed, step] : fixture.steps) expect_step(*model, step, std::stoull(seed));
  }
}

TEST(Speech, PreTrainingEqualsTransformers) {
  const SpeechFixture fixture("wav2vec2_pretraining");
  const auto model =
      AutoModelForAudioPreTraining::from_pretrained(fixture.folder.path(), {.strict = true});
  model->train();
  for (const auto* seed : {"6", "7"})
    expect_step(*model, fixture.steps.at(seed), std::stoull(seed));
  model->eval();
  expect_step(*model, fixture.steps.at("eval"), 8);
}

TEST(Speech, GumbelTemperatureChangesTheChoice) {
  const SpeechFixture fixture("wav2vec2_pretraining");
  const auto model = std::dynamic_pointer_cast<Wav2Vec2ForPreTraining>(
      AutoModelForAudioPreTraining::from_pretrained(fixture.folder.path()));
  ASSERT_TRUE(model);
  model->train();
  const auto gradient = [&](double temperature) {
    model->set_gumbel_temperature(temperature);
    torch::manual_seed(6);
    model->zero_grad();
    model->forward(fixture.steps.at("6").inputs).loss().backward();
    return model->named_parameters()["quantizer.weight_proj.weight"].grad().clone();
  };
  EXPECT_FALSE(torch::allclose(gradient(2.0), gradient(0.5)));
}

TEST(Speech, MasksAndNegativesAreTransformers) {
  for (const auto& expected : read_json(kSpeech / "masks.json")) {
    NumpyRandomState random(expected.at("seed").get<uint64_t>());
    SpanMaskOptions options{expected.at("prob").get<double>(), expected.at("span").get<int64_t>(),
                            expected.at("least").get<int64_t>()};
    if (!expected.at("lengths").is_null())
      options.lengths = expected.at("lengths").get<std::vector<int64_t>>();
    const auto rows = expected.at("rows").get<int64_t>(),
               length = expected.at("length").get<int64_t>();
    const auto mask = compute_mask_indices(rows, length, options, random);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t i = 0; i < length; ++i)
        ASSERT_EQ(mask[row][i].item<bool>(), expected["mask"][size_t(row)][size_t(i)] == 1)
            << "case " << expected["seed"] << " row " << row << " place " << i;
    if (expected.contains("negatives")) {
      const auto drawn = sample_negative_indices(mask, 3, random);
      for (int64_t row = 0; row < rows; ++row)
        for (int64_t i = 0; i < length; ++i)
          for (int64_t k = 0; k < 3; ++k)
            ASSERT_EQ(drawn[row][i][k].item<int64_t>(),
                      expected["negatives"][size_t(row)][size_t(i)][size_t(k)].get<int64_t>());
    }
    EXPECT_EQ(random.rand(), expected.at("next").get<double>());
  }
}

TEST(Speech, NumpyStateGoesToPythonAndBack) {
  NumpyRandomState one(5), two(6);
  for (int i = 0; i < 700; ++i) one.next();
  two.load(one.state());
  EXPECT_EQ(one.rand(), two.rand());
  EXPECT_THROW(two.load(StateTree(3)), Error);
}

TEST(Speech, MasksThatDoNotFitAreErrors) {
  NumpyRandomState random(0);
  try {
    compute_mask_indices(1, 9, {0.5, 10}, random);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), "G-MODEL-40");
    EXPECT_NE(std::string(error.what()).find("spans of 10 in a row of 9"), std::string::npos);
  }
  auto mask = torch::zeros({1, 4}, torch::kBool);
  mask[0][2] = true;
  EXPECT_THROW(sample_negative_indices(mask, 2, random), Error);
}

TEST(Speech, CountsFramesAndRefusesShortSound) {
  const auto model = AutoModelForCTC::from_config({{"model_type", "wav2vec2"},
                                                   {"hidden_size", 32},
                                                   {"num_hidden_layers", 1},
                                                   {"num_attention_heads", 2},
                                                   {"intermediate_size", 8},
                                                   {"conv_dim", {4, 4, 4, 4, 4, 4, 4}}});
  const auto& speech = dynamic_cast<const SpeechModel&>(*model);
  EXPECT_EQ(speech.samples_per_frame(), 320);
  EXPECT_EQ(speech.frames(16000), 49);
  EXPECT_EQ(speech.frames(100), 0);
  EXPECT_THROW(model->forward({{"input_values", torch::zeros({1, 100})}}), Error);
}

TEST(Speech, LabelsBeyondTheVocabularyAreErrors) {
  const SpeechFixture fixture("wav2vec2_augmented");
  const auto model = AutoModelForCTC::from_pretrained(fixture.folder.path());
  auto inputs = fixture.steps.begin()->second.inputs;
  inputs.set("labels", torch::full({3, 2}, 9));
  EXPECT_THROW(model->forward(inputs), Error);
}

TEST(Speech, ALabelLongerThanItsFramesIsInfiniteOrNothing) {
  const SpeechFixture fixture("wav2vec2_augmented");
  auto inputs = fixture.steps.begin()->second.inputs;
  inputs.set("labels", torch::randint(1, 9, {3, 60}));
  PretrainedOptions options;
  const auto infinite = AutoModelForCTC::from_pretrained(fixture.folder.path(), options);
  EXPECT_TRUE(infinite->forward(inputs).loss().isinf().item<bool>());
  options.config = {{"ctc_zero_infinity", true}};
  const auto zero = AutoModelForCTC::from_pretrained(fixture.folder.path(), options);
  EXPECT_EQ(zero->forward(inputs).loss().item<double>(), 0.0);
}

}  // namespace
}  // namespace gradus
