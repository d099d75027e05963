// Compares the image classifiers with transformers; the numbers are those of
// tests/parity/vision/make_model_fixtures.py.
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <map>

#include "temporary_folder.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

const fs::path kImageFixtures = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/vision/fixtures/models";

struct ImageCase {
  Batch inputs;
  std::map<std::string, Tensor> outputs, grads, buffers;
};

/// A fixture, laid out as a model folder.
struct ImageFixture {
  explicit ImageFixture(const std::string& name) {
    const auto file = read_safetensors(kImageFixtures / (name + ".safetensors"));
    NamedTensors weights;
    for (const auto& [key, tensor] : file.tensors) {
      const fs::path path(key);
      std::vector<std::string> parts(path.begin(), path.end());
      if (parts[0] == "weights") {
        weights.emplace_back(parts[1], tensor);
        continue;
      }
      auto& one = cases[parts[1]];
      if (parts[2] == "inputs")
        one.inputs.set(parts[3], tensor);
      else
        (parts[2] == "outputs" ? one.outputs
         : parts[2] == "grads" ? one.grads
                               : one.buffers)[parts[3]] = tensor;
    }
    for (const auto& [key, value] : file.metadata)
      if (key == "config") write_file_atomically(folder.path() / "config.json", value);
    write_safetensors(folder.path() / "model.safetensors", weights);
  }

  std::shared_ptr<PreTrainedModel> load() const {
    PretrainedOptions options;
    options.strict = true;
    return model_from_pretrained(ModelTask::image_classification, folder.path(), options);
  }

  TemporaryFolder folder;
  std::map<std::string, ImageCase> cases;
};

void expect_image_case(PreTrainedModel& model, ImageCase expected, const std::string& where) {
  ForwardOptions options;
  if (expected.inputs.contains("num_items_in_batch"))
    options.num_items_in_batch = expected.inputs.pop("num_items_in_batch");
  model.zero_grad();
  const auto output = model.forward(expected.inputs, options);
  EXPECT_LT((output["logits"] - expected.outputs["logits"]).abs().max().item<double>(), 1e-5)
      << where;
  EXPECT_NEAR(output.loss().item<double>(), expected.outputs["loss"].item<double>(), 1e-6) << where;
  output.loss().backward();
  double largest = 0;
  for (const auto& [name, gradient] : expected.grads)
    largest = std::max(largest, gradient.norm().item<double>());
  const auto parameters = model.named_parameters();
  EXPECT_EQ(parameters.size(), expected.grads.size()) << where;
  for (const auto& [name, gradient] : expected.grads) {
    const auto* found = parameters.find(name);
    ASSERT_NE(found, nullptr) << where << " " << name;
    const auto norm = gradient.norm().item<double>(),
               difference = (found->grad() - gradient).norm().item<double>();
    // A gradient that is zero but for rounding (of a key's bias, say) must be so here, too.
    EXPECT_LT(difference, 1e-4 * std::max(norm, 1e-2 * largest)) << where << " " << name;
  }
  const auto buffers = model.named_buffers();
  for (const auto& [name, value] : expected.buffers) {
    const auto* found = buffers.find(name);
    ASSERT_NE(found, nullptr) << where << " " << name;
    EXPECT_TRUE(torch::allclose(found->to(torch::kDouble), value.to(torch::kDouble), 1e-5, 1e-6))
        << where << " " << name;
  }
}

class ImageParity : public testing::TestWithParam<std::string> {};

TEST_P(ImageParity, EqualsTransformers) {
  const ImageFixture fixture(GetParam());
  ASSERT_GE(fixture.cases.size(), 2U);
  for (const auto& [name, expected] : fixture.cases) {
    const auto model = fixture.load();
    model->train(name != "eval");
    expect_image_case(*model, expected, GetParam() + "/" + name);
  }
}

TEST_P(ImageParity, SavesWhatItLoaded) {
  const ImageFixture fixture(GetParam());
  const auto model = fixture.load();
  const TemporaryFolder saved;
  model->save_pretrained(saved.path());
  const auto before = read_safetensors_folder(fixture.folder.path()),
             after = read_safetensors_folder(saved.path());
  std::map<std::string, Tensor> tensors(before.begin(), before.end());
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : after) {
    ASSERT_TRUE(tensors.count(name)) << name;
    EXPECT_TRUE(torch::equal(tensor, tensors[name])) << name;
  }
  auto old_config = read_json(fixture.folder.path() / "config.json");
  old_config.erase("dtype");
  const auto config = read_json(saved.path() / "config.json");
  for (const auto& [key, value] : old_config.items())
    EXPECT_EQ(config.value(key, nlohmann::json("absent")), value) << key;
}

TEST_P(ImageParity, RecomputesActivationsOrSaysThatItCannot) {
  const ImageFixture fixture(GetParam());
  const auto model = fixture.load();
  if (!GetParam().starts_with("vit")) {
    EXPECT_THROW(model->gradient_checkpointing_enable(), Error);
    return;
  }
  model->gradient_checkpointing_enable();
  model->train();
  expect_image_case(*model, fixture.cases.at("train"), GetParam() + " checkpointed");
}

TEST_P(ImageParity, StartsWithFreshWeights) {
  const ImageFixture fixture(GetParam());
  const auto config = read_json(fixture.folder.path() / "config.json");
  torch::manual_seed(0);
  const auto model = model_from_config(ModelTask::image_classification, config);
  for (const auto& item : model->named_parameters())
    EXPECT_TRUE(item.value().isfinite().all().item<bool>()) << item.key();
  const auto output = model->forward(fixture.cases.at("train").inputs);
  EXPECT_NEAR(output.loss().item<double>(), std::log(3.0), 0.6);
}

std::vector<std::string> image_fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kImageFixtures))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Models, ImageParity, testing::ValuesIn(image_fixture_names()),
                         [](const auto& info) { return info.param; });

TEST(ImageModels, RefuseConfigsAndImagesThatDoNotFit) {
  const auto build = [](nlohmann::json config) {
    return [config] { model_from_config(ModelTask::image_classification, config); };
  };
  EXPECT_THROW(build({{"model_type", "vit"}, {"hidden_size", 10}, {"num_attention_heads", 3}})(),
               Error);
  EXPECT_THROW(build({{"model_type", "vit"}, {"image_size", 8}})(), Error);
  EXPECT_THROW(build({{"model_type", "vit"}, {"patch_size", {1, 2, 3}}})(), Error);
  EXPECT_THROW(build({{"model_type", "resnet"}, {"depths", {1, 0}}})(), Error);
  EXPECT_THROW(build({{"model_type", "resnet"}, {"layer_type", "wide"}})(), Error);
  EXPECT_THROW(build({{"model_type", "convnext"}, {"num_stages", 3}})(), Error);
  const auto model = model_from_config(ModelTask::image_classification, {{"model_type", "vit"},
                                                                         {"hidden_size", 8},
                                                                         {"num_attention_heads", 2},
                                                                         {"num_hidden_layers", 1},
                                                                         {"intermediate_size", 8},
                                                                         {"image_size", 8},
                                                                         {"patch_size", 4}});
  EXPECT_THROW(model->forward({{"pixel_values", torch::zeros({1, 3, 9, 8})}}), Error);
  EXPECT_THROW(model->forward({{"pixel_values", torch::zeros({1, 1, 8, 8})}}), Error);
}

}  // namespace
}  // namespace gradus
