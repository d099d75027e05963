#include <ATen/ops/equal.h>
#include <ATen/ops/mse_loss.h>
#include <gradus/core/error.h>
#include <gradus/functional/train_state.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/batchnorm.h>
#include <torch/nn/modules/dropout.h>
#include <torch/nn/modules/linear.h>

#include <cmath>

#include "../error_of.h"

namespace gradus::functional {
namespace {

/// Two layers with dropout between them.
struct NetImpl : torch::nn::Module {
  NetImpl() {
    register_module("first", first);
    register_module("second", second);
    register_module("dropout", dropout);
  }
  torch::Tensor forward(const torch::Tensor& x) {
    return second->forward(dropout->forward(torch::tanh(first->forward(x))));
  }
  torch::nn::Linear first{3, 8}, second{8, 1};
  torch::nn::Dropout dropout{0.5};
};
TORCH_MODULE(Net);

LossFn squares() {
  return [](const torch::Tensor& prediction, const Batch& batch) {
    return at::mse_loss(prediction, batch["y"]);
  };
}

ModelFunction net() {
  torch::manual_seed(1);
  return wrap(Net(), [](NetImpl& net, const Batch& batch) { return net.forward(batch["x"]); });
}

Batch batch() {
  torch::manual_seed(2);
  const auto x = torch::randn({16, 3});
  return {{"x", x}, {"y", x.sum(1, true)}};
}

bool same(const Params& a, const Params& b) {
  for (size_t i = 0; i < a.size(); ++i)
    if (!at::equal(a.values()[i], b.values()[i])) return false;
  return a.same_names(b);
}

Params copy_of(const Params& params) {
  std::vector<torch::Tensor> values;
  for (const auto& value : params.values()) values.push_back(value.clone());
  return params.with(std::move(values));
}

TEST(Step, IsPure) {
  const auto state =
      TrainState::create(net(), chain(clip_by_global_norm(0.1), adamw(0.01)), squares());
  const auto data = batch();
  const auto params = copy_of(state.params);
  const auto mu = copy_of(state.opt_state.inner("1").inner("0").params("mu"));
  torch::manual_seed(77);
  const auto next_draw = torch::rand({4});
  torch::manual_seed(77);
  const auto once = train_step(state, Key(5), data);
  const auto twice = train_step(state, Key(5), data);
  EXPECT_TRUE(at::equal(torch::rand({4}), next_draw)) << "the step drew from torch's own generator";
  EXPECT_TRUE(same(once.state.params, twice.state.params));
  EXPECT_TRUE(at::equal(once.metrics.at("loss"), twice.metrics.at("loss")));
  EXPECT_EQ(once.key, twice.key);
  EXPECT_EQ(state.step, 0);
  EXPECT_EQ(once.state.step, 1);
  EXPECT_TRUE(same(state.params, params));
  EXPECT_TRUE(same(state.opt_state.inner("1").inner("0").params("mu"), mu));
  EXPECT_EQ(state.opt_state.inner("1").inner("0").tensor("count").item<int64_t>(), 0);
  EXPECT_FALSE(same(once.state.params, params));
}

TEST(Step, DependsOnTheKey) {
  const auto state = TrainState::create(net(), sgd(0.1), squares());
  const auto data = batch();
  const auto a = value_and_grad(state, Key(1), data), b = value_and_grad(state, Key(2), data);
  EXPECT_FALSE(at::equal(a.value, b.value)) << "dropout did not follow the key";
  EXPECT_TRUE(at::equal(loss(state, data), loss(state, data))) << "dropout in evaluation";
}

TEST(Step, LeavesTheModuleAlone) {
  torch::manual_seed(1);
  Net module;
  module->eval();
  const auto weight = module->first->weight.detach().clone();
  const auto model =
      wrap(module, [](NetImpl& net, const Batch& batch) { return net.forward(batch["x"]); });
  auto state = TrainState::create(model, sgd(0.1), squares());
  for (int i = 0; i < 3; ++i) state = train_step(state, Key(uint64_t(i)), batch()).state;
  EXPECT_TRUE(at::equal(module->first->weight, weight));
  EXPECT_FALSE(module->first->weight.grad().defined());
  EXPECT_FALSE(module->is_training());
  model.store(state.params);
  EXPECT_TRUE(at::equal(module->first->weight, state.params["first.weight"]));
}

TEST(Step, GradientsAreThoseOfBackward) {
  torch::manual_seed(3);
  torch::nn::Linear module(3, 1);
  const auto state = TrainState::create(
      wrap(module, [](torch::nn::LinearImpl& linear,
                      const Batch& batch) { return linear.forward(batch["x"]); }),
      sgd(0.1), squares());
  const auto data = batch();
  const auto grads = value_and_grad(state, Key(), data).grads;
  at::mse_loss(module->forward(data["x"]), data["y"]).backward();
  EXPECT_TRUE(at::equal(grads["weight"], module->weight.grad()));
  EXPECT_TRUE(at::equal(grads["bias"], module->bias.grad()));
}

TEST(Step, DropsWritesToBuffers) {
  torch::nn::BatchNorm1d norm(3);
  const auto model = wrap(norm, [](torch::nn::BatchNorm1dImpl& norm, const Batch& batch) {
    return norm.forward(batch["x"]).pow(2).mean();
  });
  const auto state = TrainState::create(model, sgd(0.1));
  const auto once = value_and_grad(state, Key(), batch()).value;
  EXPECT_TRUE(at::equal(value_and_grad(state, Key(), batch()).value, once));
  EXPECT_EQ(norm->running_mean.abs().sum().item<double>(), 0);
}

TEST(Step, NamesWhatIsWrong) {
  const auto state = TrainState::create(net(), sgd(0.1));
  EXPECT_EQ(id_and_message_of([&] { value_and_grad(state, Key(), batch()); }),
            "G-FN-1 the loss is not a scalar: it has the shape [16, 1]");
  EXPECT_EQ(id_and_message_of([] { TrainState::create({}, sgd(0.1)); }),
            "G-FN-2 a state cannot be created without a model");
  EXPECT_EQ(id_and_message_of([] { TrainState::create(net(), {}); }),
            "G-FN-2 a state cannot be created without a gradient transformation");
  const auto constant_loss = [](const torch::Tensor&, const Batch&) { return torch::zeros({}); };
  EXPECT_EQ(id_and_message_of([&] { value_and_grad(state, Key(), batch(), constant_loss); }),
            "G-FN-1 the loss does not depend on the parameters");
  EXPECT_EQ(id_and_message_of([&] { state.apply_gradients(Params({"x"}, {torch::zeros({})})); }),
            "G-FN-3 the gradients are not those of the state's parameters");
  EXPECT_EQ(id_and_message_of([&] { state.apply_fn(Params({"x"}, {torch::zeros({})}), batch()); }),
            "G-FN-3 the model was called with 1 parameters that are not its 4 own");
  EXPECT_EQ(id_and_message_of([&] { state.params["third.weight"]; }),
            "G-FN-3 there is no tensor 'third.weight'; there are first.weight, first.bias, "
            "second.weight, second.bias");
}

TEST(Keys, Differ) {
  const Key key(0);
  EXPECT_NE(key.split(), key);
  EXPECT_EQ(key.split(), Key(0).split());
  const auto keys = key.split(3);
  EXPECT_NE(keys[0], keys[1]);
  EXPECT_NE(keys[0], key.split());
  EXPECT_NE(key.fold_in(1), key.fold_in(2));
  EXPECT_NE(key.seed(), key.split().seed());
}

TEST(Schedules, AreOptax) {
  const auto schedule = join(linear(0, 0.1, 4), linear(0.1, 1e-7, 60));
  EXPECT_DOUBLE_EQ(schedule(0), 0);
  EXPECT_DOUBLE_EQ(schedule(3), 0.075);
  EXPECT_DOUBLE_EQ(schedule(4), 0.1);
  EXPECT_NEAR(schedule(34), 0.05, 1e-6);
  EXPECT_DOUBLE_EQ(schedule(64), 1e-7);
  EXPECT_DOUBLE_EQ(schedule(1000), 1e-7);
  EXPECT_DOUBLE_EQ(linear(0.5, 1, 0)(7), 0.5);
  EXPECT_DOUBLE_EQ(join({constant(1), constant(2), constant(3)}, {2, 5})(5), 3);
  EXPECT_EQ(schedule.length(), 64);
  EXPECT_EQ(
      id_and_message_of([] { join(constant(1), constant(2)); }),
      "G-FN-5 schedule 1 of 2 to be joined has no length, so it is not known when the next begins");
  EXPECT_EQ(id_and_message_of([] { Schedule()(0); }), "G-FN-5 an empty schedule has no value");
}

Params one(double value) {
  return Params({"fc.weight", "fc.bias"}, {torch::full({2}, value), torch::full({1}, value)});
}

TEST(Transforms, Compose) {
  const auto clip = clip_by_global_norm(1);
  EXPECT_TRUE(at::allclose(clip.update(one(2), {}, one(0)).updates["fc.bias"],
                           torch::full({1}, 1 / std::sqrt(3.0))));
  EXPECT_TRUE(
      at::equal(clip.update(one(0.1), {}, one(0)).updates["fc.bias"], torch::full({1}, 0.1)));

  // Decay reaches the weight only.
  const auto decay = add_decayed_weights(0.5, no_bias_no_norm);
  const auto decayed = decay.update(one(1), decay.init(one(4)), one(4)).updates;
  EXPECT_TRUE(at::equal(decayed["fc.weight"], torch::full({2}, 3.0)));
  EXPECT_TRUE(at::equal(decayed["fc.bias"], torch::full({1}, 1.0)));

  // The first step of Adam is the sign times the rate.
  const auto adam = adamw(0.1, {.weight_decay = 0});
  EXPECT_TRUE(at::allclose(adam.update(one(3), adam.init(one(0)), one(0)).updates["fc.bias"],
                           torch::full({1}, -0.1)));

  const auto momentum = sgd(1.0, 0.5);
  const auto first = momentum.update(one(1), momentum.init(one(0)), one(0));
  EXPECT_TRUE(at::equal(momentum.update(one(1), first.state, one(0)).updates["fc.bias"],
                        torch::full({1}, -1.5)));
}

TEST(Transforms, MaskLeavesOutBiasesAndNorms) {
  const auto decays = [](const char* name) { return no_bias_no_norm(name, {}); };
  EXPECT_TRUE(decays("encoder.0.dense.weight"));
  EXPECT_TRUE(decays("weight"));
  for (const auto* name : {"dense.bias", "bias", "LayerNorm.weight", "a.LayerNorm.scale",
                           "h.0.ln_1.weight", "post_attention_layernorm.weight", "norm.weight"})
    EXPECT_FALSE(decays(name)) << name;
}

TEST(Trees, NestAndComeBack) {
  const auto tree = to_flax(one(2));
  EXPECT_TRUE(at::equal(tree.at("fc").at("weight").tensor(), torch::full({2}, 2.0)));
  EXPECT_TRUE(same(from_flax(tree, one(0), "file"), one(2)));
  const auto like = Params({"fc.weight", "gc.bias"}, {torch::zeros({3}), torch::zeros({1})});
  EXPECT_EQ(id_and_message_of([&] { from_flax(tree, like, "file"); }),
            "G-FN-4 file does not fit the model: missing: gc.bias; not expected: fc.bias; other "
            "shapes: fc.weight is [2], expected [3]");
  const auto tx = adamw(0.1);
  EXPECT_EQ(id_and_message_of(
                [&] { from_flax(to_flax(tx.init(one(0))), sgd(0.1).init(one(0)), "file"); }),
            "G-FN-4 file does not fit the optimizer: it has '2', which is not expected");
}

}  // namespace
}  // namespace gradus::functional
