#include <gradus/core/error.h>
#include <gradus/optim/adafactor.h>
#include <gradus/optim/adamw.h>
#include <gradus/optim/clip.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/grad_scaler.h>
#include <gradus/optim/muon.h>
#include <gradus/optim/param_groups.h>
#include <gradus/optim/schedule_free.h>
#include <gradus/optim/sgd.h>
#include <gradus/optim/torch_optimizer.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>
#include <torch/nn/modules/normalization.h>
#include <torch/optim/adamw.h>
#include <torch/optim/sgd.h>

#include <cmath>
#include <limits>

#include "../error_of.h"

namespace gradus {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor parameter(std::vector<float> values) {
  return torch::tensor(values).requires_grad_();
}

void set_grad(torch::Tensor& param, std::vector<float> values) {
  param.mutable_grad() = torch::tensor(values).reshape(param.sizes());
}

std::vector<ParamGroupInit> group_of(Tensors params) {
  return {ParamGroupInit{.params = std::move(params)}};
}

// Any optimizer of the table over one matrix.
std::shared_ptr<Optimizer> make_named(const std::string& name, const torch::Tensor& matrix,
                                      double lr) {
  return make_optimizer(
      name, group_of({matrix}),
      {.learning_rate = lr, .target_modules = TargetModules{{"all-linear"}, true}});
}

TEST(Optimizer, AParameterThatGetsAGradientLateCountsItsOwnSteps) {
  auto a = parameter({1, 2}), b = parameter({3});
  AdamW optimizer(Tensors{a, b}, AdamWOptions{.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    set_grad(a, {1, -1});
    if (i == 2) set_grad(b, {1});
    optimizer.step();
    optimizer.zero_grad();
  }
  const auto state = optimizer.state_dict();
  EXPECT_EQ(state.at("state").at(0).at("step").as_double(), 3);
  EXPECT_EQ(state.at("state").at(1).at("step").as_double(), 1);
  EXPECT_NEAR(b.item<float>(), 3 - 0.1 - 0.1 * 0.01 * 3,
              1e-5);  // a first Adam step moves by the rate
  set_grad(b, {1});
  optimizer.step();  // and without a gradient nothing happens to the other
  EXPECT_EQ(optimizer.state_dict().at("state").at(0).at("step").as_double(), 3);
  EXPECT_EQ(optimizer.state_dict().at("state").at(1).at("step").as_double(), 2);
}

// torch.optim.AdamW's operations on the CPU, one after the other.
TEST(Optimizer, AdamwThatIsNotFusedIsPythonsToTheLastBit) {
  for (const bool amsgrad : {false, true}) {
    torch::manual_seed(5);
    const auto start = torch::randn({37, 5});
    auto param = start.clone().requires_grad_();
    AdamW optimizer(Tensors{param}, AdamWOptions{.lr = 0.03,
                                                 .betas = {0.9, 0.98},
                                                 .eps = 1e-7,
                                                 .weight_decay = 0.1,
                                                 .amsgrad = amsgrad,
                                                 .fused = false});
    auto expected = start.clone(), mean = torch::zeros_like(start),
         square = torch::zeros_like(start), largest = torch::zeros_like(start);
    for (int step = 1; step <= 20; ++step) {
      const auto grad = torch::randn_like(start);
      param.mutable_grad() = grad.clone();
      optimizer.step();
      expected.mul_(1 - 0.03 * 0.1);
      mean.lerp_(grad, 1 - 0.9);
      square.mul_(0.98).addcmul_(grad, grad, 1 - 0.98);
      largest = torch::maximum(largest, square);
      const auto denominator =
          ((amsgrad ? largest : square).sqrt() / std::sqrt(1 - std::pow(0.98, step))).add_(1e-7);
      expected.addcdiv_(mean, denominator, -(0.03 / (1 - std::pow(0.9, step))));
      EXPECT_TRUE(torch::equal(param.detach(), expected))
          << "step " << step << ", amsgrad " << amsgrad;
    }
  }
}

TEST(Optimizer, ParametersWithoutAGradientHaveNoState) {
  auto a = parameter({1}), b = parameter({1});
  AdamW optimizer(Tensors{a, b});
  set_grad(b, {1});
  optimizer.step();
  const auto state = optimizer.state_dict();
  EXPECT_FALSE(state.at("state").contains(0));
  EXPECT_TRUE(state.at("state").contains(1));
}

TEST(Optimizer, MixedTypesAndLayoutsInOneGroup) {
  auto wide =
      torch::ones({4, 3}).t().detach().requires_grad_();  // strides the gradient does not share
  auto half = torch::ones({5}, torch::kBFloat16).requires_grad_();
  const auto slope = torch::arange(12, torch::kFloat).reshape({3, 4});
  AdamW optimizer(Tensors{wide, half}, AdamWOptions{.lr = 0.5, .weight_decay = 0});
  SGD plain(Tensors{wide}, SGDOptions{.lr = 1.0});
  wide.mutable_grad() = slope.clone();
  half.mutable_grad() = torch::ones_like(half);
  plain.step();
  EXPECT_TRUE(torch::equal(wide.detach(), 1 - slope));
  optimizer.step();
  EXPECT_NEAR(half[0].item<float>(), 0.5, 1e-2);
  EXPECT_NEAR(wide.detach()[0][0].item<float>(), 1.0, 1e-6);  // no slope, no step
  EXPECT_NEAR(wide.detach()[2][3].item<float>(), -10 - 0.5, 1e-5);
}

TEST(Optimizer, StepsAreSeenByAutograd) {
  auto a = parameter({2});
  SGD optimizer(Tensors{a}, SGDOptions{.lr = 1.0});
  const auto loss = (a * a).sum();
  set_grad(a, {1});
  const auto before = a._version();
  optimizer.step();
  EXPECT_GT(a._version(), before);
  EXPECT_THROW(loss.backward(), c10::Error);  // a saved value was changed in place
}

TEST(Optimizer, ZeroGradDropsOrFills) {
  auto a = parameter({1});
  SGD optimizer(Tensors{a});
  set_grad(a, {3});
  optimizer.zero_grad(/*set_to_none=*/false);
  EXPECT_EQ(a.grad().item<float>(), 0);
  optimizer.zero_grad();
  EXPECT_FALSE(a.grad().defined());
}

TEST(Optimizer, FoundInfLeavesEverythingAsItIs) {
  for (const auto& name : optimizer_names()) {
    auto a = torch::ones({2, 2}).requires_grad_();
    auto optimizer = make_named(name, a, 0.1);
    a.mutable_grad() = torch::ones_like(a);
    optimizer->step({.grad_scale = std::nullopt, .found_inf = torch::ones({})});
    EXPECT_TRUE(torch::equal(a.detach(), torch::ones({2, 2}))) << name;
    optimizer->step({.grad_scale = std::nullopt, .found_inf = torch::zeros({})});
    EXPECT_FALSE(torch::equal(a.detach(), torch::ones({2, 2})) && name != "schedule_free_radam")
        << name;
  }
}

TEST(Optimizer, GradScaleIsDividedOut) {
  for (const auto& name : optimizer_names()) {
    auto a = torch::ones({2, 2}).requires_grad_(), b = torch::ones({2, 2}).requires_grad_();
    auto scaled = make_named(name, a, 0.1), plain = make_named(name, b, 0.1);
    a.mutable_grad() = torch::full({2, 2}, 64.0);
    b.mutable_grad() = torch::full({2, 2}, 0.5);
    scaled->step({.grad_scale = torch::full({}, 128.0), .found_inf = std::nullopt});
    plain->step();
    EXPECT_TRUE(torch::allclose(a, b, 1e-6, 1e-6)) << name;
  }
}

TEST(Optimizer, Peer119_EveryNameTrainsTowardsTheMinimum) {
  for (const auto& name : optimizer_names()) {
    auto a = torch::full({4, 4}, 2.0).requires_grad_();
    auto optimizer = make_named(name, a, 0.05);
    const float before = a.detach().square().sum().item<float>();
    for (int i = 0; i < 50; ++i) {
      optimizer->train();
      a.mutable_grad() = a.detach() * 2;
      optimizer->step();
      optimizer->zero_grad();
    }
    optimizer->eval();
    EXPECT_LT(a.detach().square().sum().item<float>(), before * 0.9F) << name;
    EXPECT_EQ(optimizer->name(), name);
  }
}

TEST(Optimizer, Peer150_AdamWAndAdafactorReachTheTarget) {
  const auto target = torch::tensor({0.4F, 0.2F, -0.5F});
  const auto reach = [&](Optimizer& optimizer, torch::Tensor& w, int steps) {
    for (int i = 0; i < steps; ++i) {
      w.mutable_grad() = (w.detach() - target) * 2 / 3;
      optimizer.step();
    }
    EXPECT_TRUE(torch::allclose(w.detach(), target, 0, 1e-2)) << optimizer.name();
  };
  auto w = parameter({0.1F, -0.2F, -0.1F});
  AdamW adamw(Tensors{w}, AdamWOptions{.lr = 0.2, .weight_decay = 0});
  reach(adamw, w, 100);
  auto v = parameter({0.1F, -0.2F, -0.1F});
  Adafactor adafactor(
      Tensors{v}, AdafactorOptions{.lr = 1e-2, .scale_parameter = false, .relative_step = false});
  reach(adafactor, v, 1000);
}

TEST(Optimizer, LoadRefusesWhatDoesNotFit) {
  auto a = parameter({1, 2}), b = parameter({1, 2, 3}), c = parameter({1});
  AdamW saved(Tensors{a});
  set_grad(a, {1, 1});
  saved.step();
  const auto state = saved.state_dict();
  AdamW other_shape(std::vector<ParamGroupInit>{{.params = {b}, .names = {"w"}}});
  expect_error([&] { other_shape.load_state_dict(state); }, "G-OPTIM-3",
               {"parameter 0 (w), 'exp_avg'", "expected shape [3], the file has [2]"});
  AdamW more(Tensors{a, c});
  expect_error([&] { more.load_state_dict(state); }, "G-OPTIM-3",
               {"group 0 has 1 parameters there and 2 here"});
  AdamW two(std::vector<ParamGroupInit>{{.params = {a}}, {.params = {c}}});
  expect_error([&] { two.load_state_dict(state); }, "G-OPTIM-3",
               {"1 parameter groups, this optimizer 2"});
}

TEST(Optimizer, LoadTakesTheSavedSettings) {
  auto a = parameter({1});
  AdamW saved(Tensors{a}, AdamWOptions{.lr = 0.3, .betas = {0.5, 0.6}, .weight_decay = 0.7}),
      fresh(Tensors{a});
  saved.param_groups()[0].initial_lr = 0.9;
  fresh.load_state_dict(saved.state_dict());
  EXPECT_EQ(fresh.param_groups()[0].lr, 0.3);
  EXPECT_EQ(fresh.param_groups()[0].initial_lr, 0.9);
  EXPECT_EQ(fresh.param_groups()[0].weight_decay, 0.7);
  EXPECT_EQ(fresh.options(0).betas[1], 0.6);
}

TEST(Optimizer, LoadedSettingsGetTheTensorsTheyNeed) {
  auto a = parameter({1}), b = parameter({1});
  AdamW saved(Tensors{a}, AdamWOptions{.amsgrad = true}), fresh(Tensors{b});
  SGD without(Tensors{a}), momentum(Tensors{b}, SGDOptions{.momentum = 0.9});
  set_grad(a, {1});
  set_grad(b, {1});
  saved.step();
  auto state = saved.state_dict();
  fresh.load_state_dict(state);
  EXPECT_TRUE(fresh.state_dict().at("state").at(0).contains("max_exp_avg_sq"));
  fresh.step();
  EXPECT_EQ(fresh.state_dict().at("state").at(0).at("step").as_double(), 2);
  momentum.step();
  without.load_state_dict(momentum.state_dict());
  without.step();
  momentum.step();
  EXPECT_TRUE(
      torch::equal(without.state_dict().at("state").at(0).at("momentum_buffer").as_tensor(),
                   momentum.state_dict().at("state").at(0).at("momentum_buffer").as_tensor()));
}

TEST(Optimizer, ErrorsOfConstruction) {
  auto a = parameter({1});
  expect_error([&] { AdamW(Tensors{a, a}); }, "G-OPTIM-1", {"the same parameter twice"});
  expect_error([&] { AdamW(Tensors{a}, AdamWOptions{.lr = -1}); }, "G-OPTIM-1",
               {"learning rate must be at least 0", "-1"});
  expect_error([&] { AdamW(Tensors{a}, AdamWOptions{.betas = {1.0, 0.9}}); }, "G-OPTIM-1",
               {"a beta must be in [0, 1)"});
  expect_error([&] { SGD(Tensors{a}, SGDOptions{.nesterov = true}); }, "G-OPTIM-1",
               {"nesterov needs a momentum"});
  expect_error([&] { Adafactor(Tensors{a}, AdafactorOptions{.lr = 0.1}); }, "G-OPTIM-1",
               {"relative_step cannot be combined"});
  expect_error(
      [&] {
        Adafactor(Tensors{a},
                  AdafactorOptions{.lr = 0.1, .relative_step = false, .warmup_init = true});
      },
      "G-OPTIM-1", {"warmup_init needs relative_step"});
  expect_error([&] { Muon(Tensors{a}, MuonOptions{.adjust_lr_fn = "best"}); }, "G-OPTIM-1",
               {"original, match_rms_adamw or spectral_unclamped, received 'best'"});
  expect_error([&] { TorchOptimizer(nullptr); }, "G-OPTIM-1", {"received null"});
}

TEST(Optimizer, SparseGradientsAreRefusedByName) {
  auto a = torch::ones({4, 2}).requires_grad_();
  AdamW optimizer(std::vector<ParamGroupInit>{{.params = {a}, .names = {"embed.weight"}}});
  a.mutable_grad() = torch::ones({4, 2}).to_sparse();
  expect_error([&] { optimizer.step(); }, "G-OPTIM-2",
               {"parameter 0 (embed.weight)", "sparse(false)"});
}

TEST(MakeOptimizer, KnowsEveryNameOfTheReference) {
  auto a = parameter({1});
  auto names = optimizer_names();
  std::erase_if(names, [](const auto& name) { return name.starts_with("own_"); });
  EXPECT_EQ(names.size(), 42u);  // 41 of transformers and muon
  expect_error([&] { make_optimizer("adamw_tourch", group_of({a})); }, "G-OPTIM-6",
               {"unknown optimizer 'adamw_tourch'", "Did you mean adamw_torch"});
}

TEST(MakeOptimizer, OptimArgsAreChecked) {
  auto a = parameter({1});
  const auto with = [&](const char* name, const char* text) {
    return make_optimizer(name, group_of({a}), {.optim_args = text});
  };
  expect_error([&] { with("sgd", "momentum"); }, "G-OPTIM-7", {"key=value", "'momentum'"});
  expect_error([&] { with("sgd", "momentun=0.9"); }, "G-OPTIM-7",
               {"optim_args of sgd: there is no 'momentun'",
                "momentum, dampening, weight_decay, nesterov", "Did you mean momentum"});
  expect_error([&] { with("sgd", "momentum=high"); }, "G-OPTIM-7",
               {"'momentum' must be a number, received 'high'"});
  expect_error([&] { with("sgd", "momentum=0.9,nesterov=maybe"); }, "G-OPTIM-7",
               {"must be true or false, received 'maybe'"});
  expect_error([&] { with("adamw_torch", "beta=1"); }, "G-OPTIM-7", {"it takes none"});
  EXPECT_NO_THROW(with("sgd", " momentum = 0.9 , nesterov=True"));
}

TEST(TorchOptimizer, WrapsALibTorchOptimizerAndResumesIt) {
  const auto make = [](torch::Tensor& param) {
    return std::make_shared<TorchOptimizer>(
        std::make_shared<torch::optim::AdamW>(Tensors{param}, torch::optim::AdamWOptions(0.1)));
  };
  auto a = parameter({1}), b = parameter({1});
  auto first = make(a);
  EXPECT_EQ(first->default_lr(), 0.1);
  const auto run = [](Optimizer& optimizer, torch::Tensor& param, int steps) {
    for (int i = 0; i < steps; ++i) {
      set_grad(param, {param.item<float>() * 2});
      optimizer.step();
    }
  };
  run(*first, a, 3);
  auto second = make(b);
  b.data().copy_(a.data());
  first->param_groups()[0].lr = 0.01;
  second->load_state_dict(first->state_dict());
  EXPECT_EQ(second->param_groups()[0].lr, 0.01);
  run(*first, a, 3);
  run(*second, b, 3);
  EXPECT_TRUE(torch::equal(a, b));
  expect_error([&] { second->load_state_dict(AdamW(Tensors{a}).state_dict()); }, "G-OPTIM-3",
               {"not written by a torch::optim optimizer"});
}

TEST(ScheduleFree, RefusesToStepInEvalModeAndReturnsToTheSamePoint) {
  auto a = parameter({1, 2});
  ScheduleFree optimizer(ScheduleFreeKind::adamw, Tensors{a}, {.lr = 0.1});
  for (int i = 0; i < 3; ++i) {
    set_grad(a, {1, -1});
    optimizer.step();
  }
  const auto trained = a.detach().clone();
  optimizer.eval();
  EXPECT_FALSE(torch::allclose(a.detach(), trained));
  set_grad(a, {1, -1});
  expect_error([&] { optimizer.step(); }, "G-OPTIM-4",
               {"schedule_free_adamw cannot step in eval mode", "train()"});
  optimizer.train();
  EXPECT_TRUE(torch::allclose(a.detach(), trained));
}

TEST(Muon, MatricesAndTheRestGoToGroupsOfTheirOwn) {
  auto weight = torch::ones({4, 3}).requires_grad_(), bias = torch::ones({4}).requires_grad_(),
       embedding = torch::ones({5, 3}).requires_grad_();
  std::vector<ParamGroupInit> groups = {
      {.params = {embedding, weight},
       .names = {"embed_tokens.weight", "fc.weight"},
       .weight_decay = 0.1},
      {.params = {bias}, .names = {"fc.bias"}, .weight_decay = 0.0}};
  Muon optimizer(std::move(groups), MuonOptions{.lr = 0.02, .adamw_lr = 3e-4});
  ASSERT_EQ(optimizer.param_groups().size(), 3u);
  EXPECT_TRUE(optimizer.is_muon_group(0));
  EXPECT_EQ(optimizer.param_groups()[0].names, std::vector<std::string>{"fc.weight"});
  EXPECT_EQ(optimizer.param_groups()[1].names, std::vector<std::string>{"embed_tokens.weight"});
  EXPECT_EQ(optimizer.param_groups()[0].lr, 0.02);
  EXPECT_EQ(optimizer.param_groups()[1].lr, 3e-4);
  EXPECT_EQ(optimizer.param_groups()[2].weight_decay, 0.0);
  for (auto* param : {&weight, &bias, &embedding}) param->mutable_grad() = torch::ones_like(*param);
  optimizer.step();
  EXPECT_NEAR(bias[0].item<float>(), 1 - 3e-4, 1e-6);
  const auto state = optimizer.state_dict();
  EXPECT_TRUE(state.at("state").at(0).contains("momentum_buffer"));
  EXPECT_FALSE(state.at("state").at(0).contains("step"));
  EXPECT_EQ(state.at("state").at(1).at("step").as_double(), 1);
  EXPECT_TRUE(state.at("param_groups").items()[0].at("use_muon").as_bool());
}

struct Norms : torch::nn::Module {
  Norms() {
    register_module("linear", torch::nn::Linear(2, 2));
    register_module("LayerNorm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
    register_module("ln", torch::nn::LayerNorm(torch::nn::LayerNormOptions({2})));
    register_module("norm", torch::nn::Linear(2, 2));
    register_module("q_norm", torch::nn::Linear(2, 2));
    register_module("normal", torch::nn::Linear(2, 2));
    scale = register_parameter("scale", torch::ones({2}));
    head_bias = register_parameter("head_bias", torch::ones({2}));
  }
  torch::Tensor scale, head_bias;
};

struct Tied : torch::nn::Module {
  Tied() {
    const auto shared = register_parameter("embedding", torch::ones({2, 2}));
    register_parameter("head", shared);
    register_module("inner", std::make_shared<Norms>());
  }
};

TEST(ParamGroups, Peer92_NamesOutsideNormsAndBiases) {
  Norms module;
  EXPECT_EQ(decay_parameter_names(module),
            (std::vector<std::string>{"linear.weight", "normal.weight", "scale"}));
}

TEST(ParamGroups, Peer109_NoDecayForBiasesAndNorms) {
  auto module = std::make_shared<Norms>();
  module->named_parameters()["normal.weight"].set_requires_grad(false);
  const auto groups = decay_groups(*module, 0.1);
  ASSERT_EQ(groups.size(), 2u);
  EXPECT_EQ(groups[0].names, (std::vector<std::string>{"scale", "linear.weight"}));
  EXPECT_EQ(groups[0].weight_decay, 0.1);
  EXPECT_EQ(groups[1].weight_decay, 0.0);
  EXPECT_EQ(groups[0].params.size() + groups[1].params.size(), module->parameters().size() - 1);
}

TEST(ParamGroups, TiedParametersOnceUnderTheirFirstName) {
  const auto groups = decay_groups(Tied(), 0.1);
  EXPECT_EQ(groups[0].names,
            (std::vector<std::string>{"embedding", "inner.scale", "inner.linear.weight",
                                      "inner.normal.weight"}));
}

TEST(ParamGroups, Peer110_TwoGroupsAlwaysAndOneRateEach) {
  torch::nn::Linear linear(torch::nn::LinearOptions(2, 2).bias(false));
  auto optimizer = make_optimizer("adamw_torch_fused", decay_groups(*linear, 0.0), {});
  ASSERT_EQ(optimizer->param_groups().size(), 2u);
  EXPECT_TRUE(optimizer->param_groups()[1].params.empty());
  EXPECT_EQ(optimizer->param_groups()[0].lr, 5e-5);
  EXPECT_EQ(optimizer->param_groups()[1].lr, 5e-5);
  linear->weight.mutable_grad() = torch::ones({2, 2});
  EXPECT_NO_THROW(optimizer->step());
  EXPECT_EQ(optimizer->state_dict().at("param_groups").items()[1].at("params").items().size(), 0u);
}

TEST(Clip, EqualsTorchsFormulaOnBothPaths) {
  for (const int64_t size : {3, 5000}) {  // a plain loop, and kernels
    auto a = torch::zeros({size}).requires_grad_(), b = torch::zeros({2, 2}).requires_grad_(),
         unused = torch::zeros({1}).requires_grad_();
    a.mutable_grad() = torch::linspace(-1, 1, size);
    b.mutable_grad() = torch::full({2, 2}, 0.5);
    const auto before = torch::cat({a.grad(), b.grad().reshape(-1)}).clone();
    const auto expected = before.norm();
    EXPECT_NEAR(grad_norm({a, b, unused}).item<float>(), expected.item<float>(),
                1e-4 * expected.item<float>());
    const auto norm = clip_grad_norm_({a, b, unused}, 0.25);
    EXPECT_NEAR(norm.item<float>(), expected.item<float>(), 1e-5 * expected.item<float>());
    EXPECT_TRUE(torch::allclose(torch::cat({a.grad(), b.grad().reshape(-1)}),
                                before * (0.25 / (expected + 1e-6)), 1e-5, 1e-7));
    const auto clipped = a.grad().clone();
    clip_grad_norm_({a, b}, 10.0);  // below the limit nothing changes
    EXPECT_TRUE(torch::equal(a.grad(), clipped));
  }
}

TEST(Clip, IsTorchsToTheLastBit) {
  torch::manual_seed(3);
  for (int round = 0; round < 50; ++round) {
    Tensors params, norms, expected;
    for (const int64_t size : {1, 3, 8, 11, 16, 24, 33, 100}) {
      auto& param = params.emplace_back(torch::zeros({size}).requires_grad_());
      param.mutable_grad() = torch::randn({size});
      norms.push_back(torch::linalg_vector_norm(param.grad(), 2));
    }
    const auto norm = torch::linalg_vector_norm(torch::stack(norms), 2);
    const auto factor = (norm + 1e-6).reciprocal() * 0.7;
    for (const auto& param : params) expected.push_back(param.grad() * factor);
    EXPECT_EQ(grad_norm(params).item<float>(), norm.item<float>());
    EXPECT_EQ(clip_grad_norm_(params, 0.7).item<float>(), norm.item<float>());
    for (size_t i = 0; i < params.size(); ++i)
      EXPECT_TRUE(torch::equal(params[i].grad(), expected[i]))
          << "round " << round << ", tensor " << i;
  }
}

TEST(Clip, NotFiniteSpoilsAllAsInTorch) {
  for (const int64_t size : {3, 5000}) {
    auto a = torch::zeros({size}).requires_grad_();
    a.mutable_grad() = torch::ones({size});
    a.mutable_grad()[0] = std::numeric_limits<float>::infinity();
    EXPECT_TRUE(std::isinf(clip_grad_norm_({a}, 1.0).item<float>()));
    EXPECT_TRUE(std::isnan(a.grad()[0].item<float>()));
    EXPECT_EQ(a.grad()[1].item<float>(), 0.0F);
  }
  EXPECT_EQ(clip_grad_norm_({torch::zeros({1})}, 1.0).item<float>(), 0.0F);
  auto b = torch::zeros({3}).requires_grad_();
  b.mutable_grad() = torch::tensor({3.0F, -4.0F, 0.0F});
  EXPECT_NEAR(grad_norm({b}, 1.0).item<float>(), 7.0F, 1e-6);
  EXPECT_NEAR(grad_norm({b}, std::numeric_limits<double>::infinity()).item<float>(), 4.0F, 1e-6);
}

TEST(GradScaler, SkipsAndBacksOffThenGrows) {
  auto a = parameter({1});
  SGD optimizer(Tensors{a}, SGDOptions{.lr = 0.5});
  GradScaler scaler(torch::kCPU, {.init_scale = 8, .growth_interval = 2});
  const auto step = [&](float grad) {
    set_grad(a, {grad});
    scaler.step(optimizer);
    const bool skipped = scaler.step_was_skipped();
    scaler.update();
    return skipped;
  };
  EXPECT_EQ(scaler.scale(torch::tensor(2.0F)).item<float>(), 16.0F);
  EXPECT_TRUE(step(std::numeric_limits<float>::infinity()));
  EXPECT_EQ(a.item<float>(), 1.0F);
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_FALSE(step(4.0F));  // a gradient of 1
  EXPECT_EQ(a.item<float>(), 0.5F);
  EXPECT_EQ(scaler.get_scale(), 4.0);
  EXPECT_EQ(scaler.state_dict().at("_growth_tracker").as_int(), 1);
  EXPECT_FALSE(step(4.0F));
  EXPECT_EQ(scaler.get_scale(), 8.0);
}

TEST(GradScaler, UnscalesOnceBeforeClipping) {
  auto a = parameter({1});
  SGD optimizer(Tensors{a});
  GradScaler scaler;
  set_grad(a, {65536});
  scaler.unscale_(optimizer);
  EXPECT_EQ(a.grad().item<float>(), 1.0F);
  expect_error([&] { scaler.unscale_(optimizer); }, "G-OPTIM-8",
               {"unscale_ was called twice since the last update"});
  scaler.step(optimizer);
  EXPECT_EQ(a.grad().item<float>(), 1.0F);
  scaler.update();
  expect_error([&] { scaler.update(); }, "G-OPTIM-8", {"update was called before step"});
}

TEST(GradScaler, OfSeveralProcessesGivesEachItsShare) {
  auto a = parameter({1});
  SGD optimizer(Tensors{a});
  GradScaler scaler(torch::kCPU, {.init_scale = 8});
  scaler.set_shares(4);
  EXPECT_EQ(scaler.scale(torch::tensor(2.0F)).item<float>(), 4.0F);
  set_grad(a, {6});  // the mean of four: their sum is 24
  scaler.unscale_(optimizer);
  EXPECT_EQ(a.grad().item<float>(), 3.0F);
}

TEST(GradScaler, StateHasPythonsKeysAndComesBack) {
  GradScaler scaler(torch::kCPU, {.init_scale = 2}), fresh, off(torch::kCPU, {.enabled = false});
  std::vector<std::string> keys;
  const auto state = scaler.state_dict();
  for (const auto& [key, value] : state.entries()) keys.push_back(std::get<std::string>(key));
  EXPECT_EQ(keys, (std::vector<std::string>{"scale", "growth_factor", "backoff_factor",
                                            "growth_interval", "_growth_tracker"}));
  EXPECT_EQ(fresh.get_scale(), 65536.0);
  fresh.load_state_dict(state);
  EXPECT_EQ(fresh.get_scale(), 2.0);
  EXPECT_TRUE(off.state_dict().entries().empty());
  expect_error([&] { fresh.load_state_dict(off.state_dict()); }, "G-OPTIM-3",
               {"saved by a disabled scaler"});
  auto a = torch::ones({1}, torch::kHalf).requires_grad_();
  a.mutable_grad() = torch::ones({1}, torch::kHalf);
  SGD optimizer(Tensors{a});
  expect_error([&] { fresh.unscale_(optimizer); }, "G-OPTIM-8", {"a gradient is float16"});
}

}  // namespace
}  // namespace gradus
