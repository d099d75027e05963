// GaLore and APOLLO: which layers are projected, and what the layer-wise forms share.
#include <gradus/optim/factory.h>
#include <gradus/optim/low_rank_adamw.h>
#include <gtest/gtest.h>

#include "../error_of.h"

namespace gradus {
namespace {

torch::Tensor layer_weight(int64_t rows, int64_t columns) {
  return torch::linspace(-1, 1, rows * columns).cos().reshape({rows, columns}).requires_grad_();
}

// A bias, and layers of these weights.
std::vector<ParamGroupInit> group_of_layers(const std::vector<torch::Tensor>& weights) {
  ParamGroupInit group{.params = {torch::zeros({3}).requires_grad_()},
                       .names = {"layers.0.bias"},
                       .roles = {ParamRole::other}};
  for (size_t i = 0; i < weights.size(); ++i) {
    group.params.push_back(weights[i]);
    group.names.push_back("layers." + std::to_string(i) + ".weight");
    group.roles.push_back(ParamRole::linear_weight);
  }
  return {group};
}

OptimizerArguments arguments_for(std::vector<std::string> names, const std::string& optim_args) {
  return {.learning_rate = 0.05,
          .optim_args = optim_args,
          .target_modules = TargetModules{.names = std::move(names)}};
}

void set_gradient(torch::Tensor& param, double shift) {
  param.mutable_grad() = (param.detach() + shift).sin();
}

TEST(TargetModules, AreNamesPartsOrExpressions) {
  const TargetModules list{{"q_proj", R"(.*\.\d\.up)"}};
  EXPECT_TRUE(list.contains("model.q_proj"));
  EXPECT_TRUE(list.contains("model.3.up"));
  EXPECT_FALSE(list.contains("model.3.down"));
  const TargetModules single{{R"(.*up)"}, true};
  EXPECT_TRUE(single.contains("model.up"));
  EXPECT_FALSE(single.contains("model.up.1"));
  EXPECT_FALSE((TargetModules{{"up"}, true}.contains("model.up")));
  EXPECT_TRUE((TargetModules{{"all_linear"}, true}.contains("anything")));
  expect_error([] { TargetModules{{"(", "b"}}.contains("a"); }, "G-OPTIM-10",
               {"'(' is no valid expression"});
  // Neither exponential time nor a deep recursion.
  EXPECT_FALSE((TargetModules{{"(x+x+)+y"}, true}.contains(std::string(3000, 'x'))));
  EXPECT_TRUE((TargetModules{{".*"}, true}.contains(std::string(1'000'000, 'x'))));
  expect_error([] { TargetModules{{std::string(2000, '(')}, true}.contains("a"); }, "G-OPTIM-10",
               {"2000 characters"});
}

TEST(LowRankAdamW, SaysWhatItsTargetsLack) {
  auto weight = layer_weight(4, 6);
  expect_error([&] { make_optimizer("galore_adamw", group_of_layers({weight})); }, "G-OPTIM-10",
               {"optim=galore_adamw needs optim_target_modules", "all-linear"});
  expect_error(
      [&] {
        make_optimizer("apollo_adamw", group_of_layers({weight}), arguments_for({"attn"}, ""));
      },
      "G-OPTIM-10", {"names no linear layer"});
  expect_error(
      [&] {
        make_optimizer("galore_adafactor", group_of_layers({weight}),
                       arguments_for({"layers"}, "proj_type=wide"));
      },
      "G-OPTIM-1", {"galore_adafactor: proj_type must be std", "received wide"});
  expect_error(
      [&] {
        make_optimizer("apollo_adamw", group_of_layers({weight}),
                       arguments_for({"layers"}, "proj=chance"));
      },
      "G-OPTIM-1", {"proj must be random or svd, received chance"});
}

TEST(LowRankAdamW, StatesOfTargetsHaveTheLowRank) {
  auto wide = layer_weight(4, 6), tall = layer_weight(6, 4);
  const auto groups = group_of_layers({wide, tall});
  for (const auto* name : {"galore_adamw", "galore_adamw_layerwise", "apollo_adamw"}) {
    auto optimizer = make_optimizer(name, groups, arguments_for({"layers"}, "rank=2"));
    set_gradient(wide, 0.1);
    set_gradient(tall, 0.2);
    optimizer->step();
    const auto state = optimizer->state_dict();
    EXPECT_EQ(state.at("param_groups").items()[0].at("params").items().size(), 1u);
    EXPECT_EQ(state.at("state").at(1).at("exp_avg").as_tensor().sizes(),
              (torch::IntArrayRef{2, 6}));
    EXPECT_EQ(state.at("state").at(2).at("exp_avg").as_tensor().sizes(),
              (torch::IntArrayRef{6, 2}));
  }
}

TEST(LowRankAdamW, LayerwiseFormsTakeNoClipping) {
  for (const auto& name : optimizer_names()) {
    auto weight = layer_weight(4, 6);
    const auto optimizer = make_optimizer(name, group_of_layers({weight}),
                                          {.target_modules = TargetModules{{"layers"}}});
    EXPECT_EQ(optimizer->takes_clipping(), !name.ends_with("layerwise") && !name.ends_with("lomo"))
        << name;
    EXPECT_EQ(optimizer_takes_targets(name),
              name.starts_with("galore") || name.starts_with("apollo"));
  }
}

// In the layer-wise form each parameter has an optimizer of its own, which begins at the same seed.
TEST(LowRankAdamW, ApolloDrawsADifferentBasisForEachParameter) {
  for (const bool layerwise : {false, true}) {
    auto a = layer_weight(4, 6), b = layer_weight(4, 6);
    auto optimizer = make_optimizer(layerwise ? "apollo_adamw_layerwise" : "apollo_adamw",
                                    group_of_layers({a, b}), arguments_for({"layers"}, "rank=2"));
    set_gradient(a, 0.1);
    set_gradient(b, 0.1);
    optimizer->step();
    EXPECT_EQ(torch::equal(a, b), layerwise);
  }
}

TEST(GaLoreAdamW8bit, ResumesBitEqualWithCodes) {
  auto whole = layer_weight(80, 70), second = layer_weight(80, 70);
  const auto make = [](const torch::Tensor& weight) {
    return make_optimizer("galore_adamw_8bit", group_of_layers({weight}),
                          arguments_for({"layers"}, "rank=60,update_proj_gap=4"));
  };
  auto first = make(whole), other = make(second);
  for (int step = 0; step < 6; ++step) {
    if (step == 3) {
      other->load_state_dict(first->state_dict());
      second.data().copy_(whole.data());
    }
    set_gradient(whole, 0.1 * step);
    first->step();
    if (step < 3) continue;
    set_gradient(second, 0.1 * step);
    other->step();
  }
  EXPECT_TRUE(torch::equal(whole, second));
  const auto state = other->state_dict();
  const auto& tensors = state.at("state").at(1).at("__bnb_optimizer_quant_state__");
  EXPECT_EQ(tensors.at("state1").as_tensor().scalar_type(), torch::kByte);
  EXPECT_EQ(tensors.at("state1").as_tensor().sizes(), (torch::IntArrayRef{80, 60}));
  EXPECT_EQ(tensors.at("ortho_right").as_tensor().sizes(), (torch::IntArrayRef{60, 70}));
}

}  // namespace
}  // namespace gradus
