#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/models/auto_model.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <filesystem>
#include <map>

#include "temporary_folder.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;
using torch::Tensor;

const fs::path kFixtures = fs::path(GRADUS_SOURCE_DIR) / "tests/parity/models/fixtures";

struct Case {
  Batch inputs;
  std::map<std::string, Tensor> outputs, gradients;
  std::optional<Tensor> num_items;
};

/// A file that tests/parity/models/make_fixtures.py wrote, laid out as a model folder.
struct Fixture {
  explicit Fixture(const std::string& name) {
    const auto file = read_safetensors(kFixtures / (name + ".safetensors"));
    NamedTensors weights;
    for (const auto& [key, tensor] : file.tensors) {
      if (key.rfind("weights/", 0) == 0) {
        weights.emplace_back(key.substr(8), tensor);
        continue;
      }
      const auto rest = key.substr(6);  // after "cases/"
      const auto slash = rest.find('/');
      auto& one = cases[rest.substr(0, slash)];
      const auto kind = rest.substr(slash + 1, rest.find('/', slash + 1) - slash - 1);
      const auto item = rest.substr(rest.find('/', slash + 1) + 1);
      if (kind == "inputs" && item == "num_items_in_batch")
        one.num_items = tensor;
      else if (kind == "inputs")
        one.inputs.set(item, tensor);
      else
        (kind == "outputs" ? one.outputs : one.gradients)[item] = tensor;
    }
    for (const auto& [key, value] : file.metadata) {
      if (key == "config") write_file_atomically(folder.path() / "config.json", value);
      if (key == "task") task = value;
      if (key == "mode") is_training = value == "train";
    }
    write_safetensors(folder.path() / "model.safetensors", weights);
  }

  std::shared_ptr<PreTrainedModel> load() const {
    PretrainedOptions options;
    options.strict = true;
    const std::map<std::string, ModelTask> tasks = {
        {"causal_lm", ModelTask::causal_lm},
        {"masked_lm", ModelTask::masked_lm},
        {"sequence_classification", ModelTask::sequence_classification},
        {"token_classification", ModelTask::token_classification},
        {"question_answering", ModelTask::question_answering},
        {"seq2seq_lm", ModelTask::seq2seq_lm},
        {"ctc", ModelTask::ctc}};
    auto model = model_from_pretrained(tasks.at(task), folder.path(), options);
    model->train(is_training);
    return model;
  }

  TemporaryFolder folder;
  std::string task;
  bool is_training = true;  ///< As the model was in Python.
  std::map<std::string, Case> cases;
};

/// Every gradient within 1e-4 relative. One that is zero but for rounding (a shift that softmax
/// takes out again) must be so here too.
void expect_gradients(PreTrainedModel& model, const Case& expected, const std::string& where) {
  std::map<std::string, Tensor> parameters;
  for (const auto& item : model.named_module().named_parameters())
    parameters[item.key()] = item.value();
  double largest = 0.0;
  for (const auto& [name, gradient] : expected.gradients)
    largest = std::max(largest, gradient.norm().item<double>());
  for (const auto& [name, gradient] : expected.gradients) {
    ASSERT_TRUE(parameters.count(name)) << where << " " << name;
    ASSERT_TRUE(parameters[name].grad().defined()) << where << " " << name;
    const auto got = parameters[name].grad().cpu();
    const auto norm = gradient.norm().item<double>(),
               difference = (got - gradient).norm().item<double>();
    if (norm < 1e-6 * largest)
      EXPECT_LT(got.norm().item<double>(), 1e-6 * largest) << where << " " << name;
    else
      EXPECT_LT(difference / norm, 1e-4) << where << " " << name;
  }
}

void expect_case(PreTrainedModel& model, const Case& expected, const std::string& where) {
  ForwardOptions options;
  options.num_items_in_batch = expected.num_items;
  model.zero_grad();
  const auto output = model.forward(expected.inputs, options);
  for (const auto& [name, value] : expected.outputs) {
    ASSERT_TRUE(output.contains(name)) << where << " " << name;
    const auto difference = (output[name].cpu() - value).abs().max().item<double>();
    EXPECT_LT(difference, name == "loss" ? 1e-6 * std::max(1.0, value.item<double>()) : 1e-5)
        << where << " " << name;
  }
  output.loss().backward();
  expect_gradients(model, expected, where);

  // The same without full logits.
  options.need_logits = false;
  model.zero_grad();
  const auto chunked = model.forward(expected.inputs, options);
  EXPECT_NEAR(chunked.loss().item<double>(), output.loss().item<double>(),
              1e-6 * std::max(1.0, output.loss().item<double>()))
      << where;
  chunked.loss().backward();
  expect_gradients(model, expected, where + " without logits");
}

class Parity : public testing::TestWithParam<std::string> {};

TEST_P(Parity, EqualsTransformers) {
  const Fixture fixture(GetParam());
  const auto model = fixture.load();
  ASSERT_FALSE(fixture.cases.empty());
  for (const auto& [name, expected] : fixture.cases)
    expect_case(*model, expected, GetParam() + "/" + name);
}

/// The same on a GPU, in float32.
class GpuParity : public testing::TestWithParam<std::string> {};

TEST_P(GpuParity, EqualsTransformers) {
  if (!torch::cuda::is_available()) GTEST_SKIP() << "no GPU here, or built without GRADUS_CUDA";
  const Fixture fixture(GetParam());
  const auto model = fixture.load();
  model->to(torch::kCUDA);
  for (const auto& [name, given] : fixture.cases) {
    auto expected = given;
    expected.inputs = given.inputs.to(torch::kCUDA);
    if (given.num_items) expected.num_items = given.num_items->to(torch::kCUDA);
    expect_case(*model, expected, GetParam() + "/" + name + " on the GPU");
  }
}

TEST_P(Parity, GradientCheckpointingChangesNothing) {
  const Fixture fixture(GetParam());
  const auto model = fixture.load();
  model->gradient_checkpointing_enable();
  for (const auto& [name, expected] : fixture.cases)
    expect_case(*model, expected, GetParam() + "/" + name + " checkpointed");
}

TEST_P(Parity, SavesWhatItLoaded) {
  const Fixture fixture(GetParam());
  const auto model = fixture.load();
  const TemporaryFolder saved;
  model->save_pretrained(saved.path(), "20KB");
  const auto before = read_safetensors_folder(fixture.folder.path()),
             after = read_safetensors_folder(saved.path());
  std::map<std::string, Tensor> tensors(before.begin(), before.end());
  EXPECT_EQ(before.size(), after.size());
  for (const auto& [name, tensor] : after) {
    ASSERT_TRUE(tensors.count(name)) << name;
    EXPECT_TRUE(torch::equal(tensor, tensors[name])) << name;
  }
  auto old_config = read_json(fixture.folder.path() / "config.json");
  const auto config = read_json(saved.path() / "config.json");
  old_config.erase("dtype");
  for (const auto& [key, value] : old_config.items())
    EXPECT_EQ(config.value(key, nlohmann::json("absent")), value) << key;
}

std::vector<std::string> fixture_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kFixtures))
    if (entry.path().extension() == ".safetensors") names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  return names;
}

INSTANTIATE_TEST_SUITE_P(Gpu, GpuParity, testing::ValuesIn(fixture_names()),
                         [](const auto& info) { return info.param; });
INSTANTIATE_TEST_SUITE_P(Models, Parity, testing::ValuesIn(fixture_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace gradus
