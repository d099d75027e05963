// States of few bits: how numbers become codes, and which parameters have them.
#include <gradus/optim/bnb_adamw.h>
#include <gradus/optim/factory.h>
#include <gradus/optim/low_bit_adamw.h>
#include <gradus/optim/param_groups.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/embedding.h>
#include <torch/nn/modules/linear.h>

#include "../error_of.h"
#include "kernels/blockwise.h"

namespace gradus {
namespace {

using Tensors = std::vector<torch::Tensor>;

torch::Tensor matrix_of(int64_t rows, int64_t columns) {
  return torch::linspace(-1, 1, rows * columns).reshape({rows, columns}).requires_grad_();
}

const StateTree& tensors_of(const StateTree& state, int64_t number) {
  return state.at("state").at(number).at("__bnb_optimizer_quant_state__");
}

TEST(Blockwise, ValuesAreSortedAndEndAtOne) {
  for (const bool is_signed : {true, false}) {
    const auto values = blockwise::dynamic_values(is_signed);
    EXPECT_EQ(values.numel(), 256);
    EXPECT_TRUE((values.slice(0, 1) > values.slice(0, 0, -1)).all().item<bool>());
    EXPECT_EQ(values[-1].item<float>(), 1.0F);
    EXPECT_EQ(values[is_signed ? 127 : 0].item<float>(), 0.0F);
  }
}

TEST(Blockwise, NearestKeepsTheSignAndSmallNumbers) {
  const auto values = blockwise::dynamic_values(true);
  const auto numbers = torch::tensor({2.0F, -1e-9F, 0.0F, 1e-5F, -1.0F});
  const auto codes = torch::zeros({5}, torch::kByte);
  const auto scales = torch::zeros({1});
  blockwise::quantize_to_nearest(numbers, values, codes, scales);
  EXPECT_EQ(scales.item<float>(), 2.0F);
  const auto back = blockwise::dequantize(codes, scales, values);
  EXPECT_EQ(back[0].item<float>(), 2.0F);
  EXPECT_LT(back[1].item<float>(), 0.0F);
  EXPECT_EQ(back[2].item<float>(), 0.0F);
  EXPECT_NEAR(back[3].item<float>(), 1e-5F, 4e-6F);
  EXPECT_NEAR(back[4].item<float>(), -1.0F, 0.01F);
}

TEST(Blockwise, EveryBlockHasItsScale) {
  const auto values = blockwise::dynamic_values(true);
  auto numbers = torch::ones({600});
  numbers.slice(0, 256, 512).mul_(100);
  numbers.slice(0, 512).mul_(-1e-3);
  const auto codes = torch::zeros({600}, torch::kByte);
  const auto scales = torch::zeros({3});
  blockwise::quantize(numbers, values, codes, scales);
  EXPECT_TRUE(torch::equal(scales, torch::tensor({1.0F, 100.0F, 1e-3F})));
  EXPECT_TRUE(torch::allclose(blockwise::dequantize(codes, scales, values), numbers, 0.01));
  blockwise::quantize(torch::zeros({600}), values, codes, scales);
  EXPECT_EQ(scales.abs().sum().item<float>(), 0.0F);
  EXPECT_EQ(blockwise::dequantize(codes, scales, values).abs().sum().item<float>(), 0.0F);
}

TEST(BnbStates, FollowFromTheName) {
  EXPECT_EQ(BnbStates::named("paged_lion_8bit").bits, 8);
  EXPECT_TRUE(BnbStates::named("paged_lion_8bit").paged);
  EXPECT_EQ(BnbStates::named("rmsprop_bnb").bits, 32);
  EXPECT_EQ(BnbAdamW(Tensors{matrix_of(2, 2)}, {.states = {.bits = 8}}).name(), "adamw_8bit");
  expect_error([] { BnbAdamW(Tensors{matrix_of(2, 2)}, {.states = {.bits = 4}}); }, "G-OPTIM-1",
               {"8 or 32 bits", "received 4"});
}

TEST(BnbOptimizer, SmallTensorsAndEmbeddingsKeep32Bits) {
  auto large = matrix_of(64, 64), small = matrix_of(8, 8), table = matrix_of(64, 65);
  const std::vector<ParamGroupInit> groups = {
      {.params = {large, small, table},
       .names = {"layer.weight", "other.weight", "embed.weight"},
       .roles = {ParamRole::linear_weight, ParamRole::linear_weight, ParamRole::embedding}}};
  auto optimizer = make_optimizer("adamw_bnb_8bit", groups, {.learning_rate = 0.1});
  for (auto* param : {&large, &small, &table}) param->mutable_grad() = torch::ones_like(*param);
  optimizer->step();
  const auto state = optimizer->state_dict();
  EXPECT_EQ(tensors_of(state, 0).at("state1").as_tensor().scalar_type(), torch::kByte);
  EXPECT_EQ(tensors_of(state, 0).at("absmax1").as_tensor().sizes(), torch::IntArrayRef{16});
  for (const int64_t number : {1, 2}) {
    EXPECT_EQ(tensors_of(state, number).at("state1").as_tensor().scalar_type(), torch::kFloat);
    EXPECT_FALSE(tensors_of(state, number).contains("absmax1"));
  }
}

TEST(BnbOptimizer, AStateKeepsTheBitsOfItsFile) {
  auto wide = matrix_of(64, 64), narrow = wide.detach().clone().requires_grad_();
  auto from = make_optimizer("paged_adamw_32bit", {{.params = {wide}}}, {.learning_rate = 0.1}),
       to = make_optimizer("adamw_8bit", {{.params = {narrow}}}, {.learning_rate = 0.1});
  wide.mutable_grad() = torch::ones_like(wide);
  from->step();
  to->load_state_dict(from->state_dict());
  narrow.data().copy_(wide.data());
  for (auto* param : {&wide, &narrow}) param->mutable_grad() = torch::full_like(*param, 0.5);
  from->step();
  to->step();
  EXPECT_TRUE(torch::equal(wide, narrow));
  EXPECT_FALSE(tensors_of(to->state_dict(), 0).contains("qmap1"));
}

TEST(BnbOptimizer, MissingStatesOfAFileAreNamed) {
  auto matrix = matrix_of(64, 64);
  auto optimizer = make_optimizer("lion_8bit", {{.params = {matrix}}});
  matrix.mutable_grad() = torch::ones_like(matrix);
  optimizer->step();
  auto other = matrix_of(64, 65);
  auto wrong = make_optimizer("lion_8bit", {{.params = {other}}});
  expect_error([&] { wrong->load_state_dict(optimizer->state_dict()); }, "G-OPTIM-3",
               {"'state1'", "[64, 65]", "[64, 64]"});
}

TEST(PagedOptimizers, AreTheSameAsTheOthers) {
  auto a = matrix_of(64, 64), b = matrix_of(64, 64);
  auto plain = make_optimizer("adamw_bnb_8bit", {{.params = {a}}}, {.learning_rate = 0.1}),
       paged = make_optimizer("paged_adamw_8bit", {{.params = {b}}}, {.learning_rate = 0.1});
  for (int i = 0; i < 3; ++i) {
    a.mutable_grad() = a.detach() * 2;
    b.mutable_grad() = b.detach() * 2;
    plain->step();
    paged->step();
  }
  EXPECT_TRUE(torch::equal(a, b));
  EXPECT_FALSE(plain->is_elementwise());
}

TEST(LowBitAdamW, RoundsBfloat16ByChance) {
  auto param = torch::ones({64}, torch::kBFloat16).requires_grad_();
  LowBitAdamW optimizer(Tensors{param},
                        {.lr = 1e-3, .weight_decay = 0, .bf16_stochastic_round = true});
  param.mutable_grad() = torch::ones_like(param);
  torch::manual_seed(1);
  for (int i = 0; i < 20; ++i) optimizer.step();  // to the nearest it would stay at 1
  EXPECT_NEAR(param.detach().to(torch::kFloat).mean().item<float>(), 0.98F, 0.004F);
}

TEST(LowBitAdamW, ChecksItsBlocks) {
  expect_error(
      [] {
        make_optimizer("adamw_torch_4bit", {{.params = {matrix_of(2, 2)}}},
                       {.optim_args = "block_size=3"});
      },
      "G-OPTIM-1", {"adamw_torch_4bit", "block_size 3"});
}

TEST(ParamRoles, FollowFromTheTypesOfModules) {
  const auto model = std::make_shared<torch::nn::Module>();
  model->register_module("table", torch::nn::Embedding(4, 3));
  model->register_module("middle", torch::nn::Linear(3, 3));
  const auto groups = decay_groups(*model, 0.1);
  EXPECT_EQ(groups[0].roles, (std::vector{ParamRole::embedding, ParamRole::linear_weight}));
  EXPECT_EQ(groups[1].roles, std::vector{ParamRole::other});
  const auto one = optimizer_groups("lomo", *model, 0.1);
  ASSERT_EQ(one.size(), 1u);
  EXPECT_EQ(one[0].names,
            (std::vector<std::string>{"table.weight", "middle.weight", "middle.bias"}));
  EXPECT_FALSE(one[0].weight_decay);
  EXPECT_EQ(optimizer_groups("adamw_torch", *model, 0.1).size(), 2u);
}

}  // namespace
}  // namespace gradus
