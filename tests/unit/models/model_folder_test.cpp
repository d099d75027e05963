// What the folder of a saved model holds, and how it is read back.
#include <gradus/core/files.h>
#include <gradus/core/log.h>
#include <gradus/data/tokenizer_like.h>
#include <gradus/models/model_folder.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>
#include <unistd.h>

#include <set>

#include "../error_of.h"

namespace gradus {
namespace {

namespace fs = std::filesystem;

struct OneFileTokenizer : TokenizerLike {
  std::optional<int64_t> pad_token_id() const override { return 0; }
  std::optional<int64_t> mask_token_id() const override { return std::nullopt; }
  int64_t full_vocab_size() const override { return 1; }
  std::vector<int64_t> all_special_ids() const override { return {0}; }
  void save_pretrained(const fs::path& directory) const override {
    write_file_atomically(directory / "tokenizer.json", "{}");
  }
};

/// A linear layer with a config; `only_bias` saves it as an adapter of one tensor.
struct SmallModel : Model {
  explicit SmallModel(bool only_bias = false) : only_bias(only_bias) {
    register_module("layer", layer);
  }
  ModelOutput forward(const Batch&, const ForwardOptions&) override { return {}; }
  nlohmann::json config() const override { return {{"model_type", "small"}}; }
  SavedWeights saved_weights() const override {
    if (!only_bias) return Model::saved_weights();
    SavedWeights saved;
    saved.stem = "adapter_model";
    saved.tensors.insert("layer.bias", layer->bias.detach());
    return saved;
  }
  void load_saved_weights(const StateDict& weights) override {
    if (!only_bias) return Model::load_saved_weights(weights);
    const torch::NoGradGuard no_grad;
    layer->bias.copy_(weights["layer.bias"]);
  }
  torch::nn::Linear layer{2, 2};
  bool only_bias;
};

class ModelFolders : public ::testing::Test {
 protected:
  ModelFolders()
      : folder_(fs::temp_directory_path() / ("gradus-folder-" + std::to_string(::getpid()))) {
    fs::remove_all(folder_);
  }
  ~ModelFolders() override { fs::remove_all(folder_); }
  std::set<std::string> files() const {
    std::set<std::string> names;
    for (const auto& entry : fs::directory_iterator(folder_)) names.insert(entry.path().filename());
    return names;
  }
  fs::path folder_;
};

TEST_F(ModelFolders, HoldWeightsConfigTokenizerAndArguments) {
  const SmallModel model;
  const OneFileTokenizer tokenizer;
  ModelFolder(model).save(folder_);
  EXPECT_EQ(files(), (std::set<std::string>{"config.json", "model.safetensors"}));
  ModelFolder(model, {.tokenizer = &tokenizer, .arguments = {{"seed", 42}}}).save(folder_);
  EXPECT_EQ(files(), (std::set<std::string>{"config.json", "model.safetensors", "tokenizer.json",
                                            "training_args.json"}));
  EXPECT_EQ(read_file(folder_ / "training_args.json"), "{\n  \"seed\": 42\n}\n");
  SmallModel other;
  load_model_folder(other, folder_);
  EXPECT_TRUE(other.layer->weight.equal(model.layer->weight));
  EXPECT_TRUE(other.layer->bias.equal(model.layer->bias));
}

TEST_F(ModelFolders, WriteTheWeightsThatWereTakenHoldOf) {
  SmallModel model;
  ModelFolder folder(model);
  const auto before = model.layer->weight.detach().clone();
  for (auto& [name, tensor] : folder.weights) tensor = tensor.clone();
  {
    const torch::NoGradGuard no_grad;
    model.layer->weight.fill_(7);
  }
  folder.save(folder_);
  SmallModel other;
  load_model_folder(other, folder_);
  EXPECT_TRUE(other.layer->weight.equal(before));
}

TEST_F(ModelFolders, OfAnAdapterHoldOnlyItsTensors) {
  const SmallModel adapter(/*only_bias=*/true);
  ModelFolder(adapter).save(folder_);
  EXPECT_EQ(files(), (std::set<std::string>{"adapter_model.safetensors", "config.json"}));
  SmallModel other(/*only_bias=*/true);
  const auto base = other.layer->weight.detach().clone();
  load_model_folder(other, folder_);
  EXPECT_TRUE(other.layer->bias.equal(adapter.layer->bias));
  EXPECT_TRUE(other.layer->weight.equal(base)) << "the base is not the adapter's";
  SmallModel whole;
  expect_error([&] { load_model_folder(whole, folder_); }, "G-ST-7", {});
}

}  // namespace
}  // namespace gradus
