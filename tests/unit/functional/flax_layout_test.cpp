#include <ATen/ops/equal.h>
#include <gradus/functional/flax_layout.h>
#include <gradus/functional/trainer.h>
#include <gradus/models/layers/linear.h>
#include <gtest/gtest.h>
#include <torch/nn/init.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>

#include "../error_of.h"

namespace gradus::functional {
namespace {

namespace fs = std::filesystem;

/// One layer of each kind, and a parameter of no layer.
struct LayersImpl : torch::nn::Module {
  LayersImpl() {
    register_module("words", words);
    register_module("dense", dense);
    register_module("own", own);
    register_module("LayerNorm", norm);
    register_parameter("weight", torch::randn({2, 3}));
    for (auto& parameter : own->parameters()) torch::nn::init::normal_(parameter);
  }
  torch::nn::Embedding words{5, 4};
  torch::nn::Linear dense{4, 3};
  std::shared_ptr<layers::Linear> own = std::make_shared<layers::Linear>(3, 2);
  torch::nn::LayerNorm norm{torch::nn::LayerNormOptions({4})};
};
TORCH_MODULE(Layers);

Params params_of(const torch::nn::Module& module) {
  std::vector<std::string> names;
  std::vector<torch::Tensor> values;
  for (const auto& each : module.named_parameters()) {
    names.push_back(each.key());
    values.push_back(each.value().detach());
  }
  return {std::move(names), std::move(values)};
}

void expect_equal(const Params& a, const Params& b) {
  ASSERT_EQ(a.names(), b.names());
  for (const auto& name : a.names()) EXPECT_TRUE(at::equal(a[name], b[name])) << name;
}

TEST(FlaxLayout, NamesAndTurnsWhatFlaxNamesAndTurns) {
  const Layers module;
  const auto params = params_of(*module);
  const auto layout = FlaxLayout::of(*module);
  const auto stored = layout.stored(params);
  EXPECT_EQ(stored.names(), (std::vector<std::string>{"weight", "words.embedding", "dense.kernel",
                                                      "dense.bias", "own.kernel", "own.bias",
                                                      "LayerNorm.scale", "LayerNorm.bias"}));
  EXPECT_TRUE(at::equal(stored["dense.kernel"], params["dense.weight"].t()));
  EXPECT_TRUE(at::equal(stored["own.kernel"], params["own.weight"].t()));
  EXPECT_TRUE(at::equal(stored["words.embedding"], params["words.weight"]));
  expect_equal(layout.loaded(stored, params), params);
  expect_equal(FlaxLayout().stored(params), params);
}

TEST(FlaxLayout, StatesOfOptimizersFollow) {
  const Layers module;
  const auto params = params_of(*module);
  const auto layout = FlaxLayout::of(*module);
  const auto tx = adamw(0.1, {.weight_decay = 0.1});
  const auto state = tx.update(params, tx.init(params), params).state;
  const auto stored = layout.stored(state);
  EXPECT_TRUE(at::equal(stored.inner("0").params("mu")["dense.kernel"],
                        state.inner("0").params("mu")["dense.weight"].t()));
  const auto back = layout.loaded(stored, state);
  EXPECT_EQ(flax_msgpack_bytes(to_flax(back)), flax_msgpack_bytes(to_flax(state)));
}

TEST(FlaxLayout, CheckpointsAreWrittenAndReadInIt) {
  const auto folder = fs::temp_directory_path() / "gradus-flax-layout";
  fs::remove_all(folder);
  const Layers module;
  const auto model = wrap(module, [](LayersImpl& net, const Batch& batch) {
    const auto found = net.norm->forward(net.words->forward(batch["x"]));
    return net.own->forward(net.dense->forward(found))
        .matmul(net.named_parameters()["weight"])
        .mean();
  });
  TrainerOptions options;
  options.flax_layout = FlaxLayout::of(*module);
  Trainer trainer(options);
  const auto state = trainer.create_state(model, {}, 10);
  trainer.save_checkpoint(folder, state);
  const auto tree = read_flax_msgpack(folder / "flax_model.msgpack");
  EXPECT_EQ(tree.find("dense")->find("kernel")->tensor().sizes(), (at::IntArrayRef{4, 3}));
  const auto restored = restore_checkpoint(folder, state, options.flax_layout);
  expect_equal(restored.params, state.params);
  expect_error([&] { restore_checkpoint(folder, state); }, "G-FN-4", {"dense.weight"});
  fs::remove_all(folder);
}

}  // namespace
}  // namespace gradus::functional
