// Weights in 4 bits: the bits of bitsandbytes (tests/parity/models/fixtures/nf4.json), products,
// and adapters on top of them.
#include <ATen/ops/linear.h>
#include <fmt/format.h>
#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/kernels/form.h>
#include <gradus/kernels/fused.h>
#include <gradus/kernels/nf4.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/layers/linear.h>
#include <gradus/models/peft_model.h>
#include <gradus/models/quantized_layers.h>
#include <gtest/gtest.h>
#include <torch/cuda.h>

#include <filesystem>

namespace gradus {
namespace {

using torch::Tensor;

std::string hex_of(const Tensor& tensor) {
  const auto bytes = tensor.cpu().reshape({-1}).contiguous().view(torch::kByte);
  std::string text;
  for (int64_t i = 0; i < bytes.numel(); ++i)
    text += fmt::format("{:02x}", bytes.const_data_ptr<uint8_t>()[i]);
  return text;
}

/// A layer in a block, which is what `quantize_4bit` looks for.
std::shared_ptr<PreTrainedModel> small_llama(uint64_t seed = 1) {
  torch::manual_seed(seed);
  return AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                            {"vocab_size", 64},
                                            {"hidden_size", 64},
                                            {"intermediate_size", 128},
                                            {"num_hidden_layers", 2},
                                            {"num_attention_heads", 4},
                                            {"num_key_value_heads", 2},
                                            {"max_position_embeddings", 64}});
}

std::map<std::string, std::shared_ptr<layers::Linear>> linear_layers(PreTrainedModel& model) {
  std::map<std::string, std::shared_ptr<layers::Linear>> found;
  for (const auto& entry : model.named_module().named_modules())
    if (auto layer = std::dynamic_pointer_cast<layers::Linear>(entry.value()))
      if (entry.key().find("lora_") == std::string::npos) found[entry.key()] = layer;
  return found;
}

std::string refusal(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.id() + ": " + error.message();
  }
  return "";
}

/// The model's layers with the values that their 4 bits stand for, in float32.
void put_dense(PreTrainedModel& to, bool nested) {
  const torch::NoGradGuard no_grad;
  const auto copy = small_llama();
  quantize_4bit(*copy, {.nested = nested});
  const auto from = linear_layers(*copy);
  for (const auto& [name, layer] : linear_layers(to)) {
    const auto& other = *from.at(name);
    if (!kernels::Nf4Weight::is_one(other.weight)) continue;
    const auto width = layer->weight.size(1);
    layer->weight.copy_(other.forward(torch::eye(width)).t());
  }
}

TEST(Nf4, HasTheBitsOfBitsandbytes) {
  const auto fixture =
      read_json(std::filesystem::path(GRADUS_SOURCE_DIR) / "tests/parity/models/fixtures/nf4.json");
  for (const auto& each : fixture["cases"]) {
    torch::manual_seed(fixture["seed"].get<uint64_t>());
    auto weight = torch::randn(fixture["shape"].get<std::vector<int64_t>>());
    weight[3].zero_();
    const auto dtype = each["dtype"] == "float32" ? torch::kFloat : torch::kBFloat16;
    const bool nested = each["nested"].get<bool>();
    auto matrix = kernels::nf4_quantized(weight.to(dtype));
    if (nested) matrix = nf4_nested(std::move(matrix));
    EXPECT_EQ(hex_of(matrix.packed), each["packed"].get<std::string>());
    EXPECT_EQ(hex_of(matrix.absmax), each["absmax"].get<std::string>());
    if (nested) {
      EXPECT_EQ(hex_of(matrix.codes), each["codes"].get<std::string>());
      EXPECT_EQ(hex_of(matrix.offset), each["offset"].get<std::string>());
    }
    EXPECT_EQ(hex_of(kernels::nf4_dense(matrix, dtype).narrow(0, 0, 8)),
              each["dense"].get<std::string>())
        << each["dtype"] << " nested: " << nested;
  }
}

TEST(Nf4, AStandInHasTheSizesAndTheMemoryOfOneNumber) {
  const kernels::Nf4Weight weight(kernels::nf4_quantized(torch::randn({32, 64})));
  EXPECT_EQ(weight.stand_in().sizes(), (torch::IntArrayRef{32, 64}));
  EXPECT_EQ(weight.stand_in().storage().nbytes(), 2u);
  EXPECT_TRUE(kernels::Nf4Weight::is_one(weight.stand_in()));
  EXPECT_FALSE(kernels::Nf4Weight::is_one(torch::zeros({32, 64})));
}

TEST(Nf4, LinearLayersOfBlocksAreQuantized) {
  const auto model = small_llama();
  EXPECT_EQ(quantize_4bit(*model), 14);
  for (const auto& [name, layer] : linear_layers(*model))
    EXPECT_EQ(kernels::Nf4Weight::is_one(layer->weight), name != "lm_head") << name;
  torch::manual_seed(2);
  const auto ids = torch::randint(64, {2, 16}, torch::kLong);
  const auto dense = small_llama();
  put_dense(*dense, false);
  const auto loss = [&](PreTrainedModel& each) {
    return each.forward({{"input_ids", ids}, {"labels", ids}})["loss"].item<double>();
  };
  EXPECT_DOUBLE_EQ(loss(*model), loss(*dense));
  EXPECT_NE(loss(*model), loss(*small_llama()));
}

/// The gradients of an adapter on a base in 4 bits, or on one with the values these stand for.
std::vector<Tensor> adapter_gradients(bool quantized, bool nested, torch::ScalarType dtype) {
  const auto base = small_llama();
  if (quantized)
    quantize_4bit(*base, {.nested = nested});
  else
    put_dense(*base, nested);
  torch::manual_seed(3);
  const auto model =
      get_peft_model(base, {.r = 4, .target_modules = {"q_proj", "v_proj", "o_proj", "down_proj"}});
  for (auto& parameter : model->parameters())
    if (parameter.requires_grad()) parameter.set_data(torch::randn_like(parameter.detach()) * 0.1);
  model->to(dtype);
  torch::manual_seed(2);
  const auto ids = torch::randint(64, {2, 16}, torch::kLong);
  model->forward({{"input_ids", ids}, {"labels", ids}})["loss"].backward();
  std::vector<Tensor> grads;
  for (const auto& parameter : model->parameters())
    if (parameter.requires_grad()) grads.push_back(parameter.grad());
  return grads;
}

TEST(Nf4, AnAdapterTrainsAsOnTheDenseModel) {
  for (const auto dtype : {torch::kFloat, torch::kBFloat16})  // with fused products in bfloat16
    for (const bool nested : {false, true}) {
      const auto before = kernels::set_form(dtype == torch::kFloat ? kernels::Form::automatic
                                                                   : kernels::Form::fused);
      const auto quantized = adapter_gradients(true, nested, dtype),
                 dense = adapter_gradients(false, nested, dtype);
      kernels::set_form(before);
      ASSERT_EQ(quantized.size(), 16u);
      for (size_t i = 0; i < quantized.size(); ++i) {
        EXPECT_GT(dense[i].abs().max().item<double>(), 0) << i;
        EXPECT_TRUE(
            torch::allclose(quantized[i], dense[i], dtype == torch::kFloat ? 1e-4 : 1e-2, 1e-6))
            << i << " " << dtype << " nested: " << nested;
      }
    }
}

TEST(Nf4, WhatNeedsTheWeightsIsRefused) {
  const auto base = small_llama();
  quantize_4bit(*base);
  EXPECT_EQ(
      refusal([&] { get_peft_model(base, {.target_modules = {"q_proj"}, .use_dora = true}); }),
      "G-PEFT-6: use_dora reads and changes the layer's weights, which are in 4 bits");
  const auto model = get_peft_model(base, {.target_modules = {"q_proj"}});
  EXPECT_EQ(refusal([&] { model->merge_adapter(); }),
            "G-PEFT-6: merging the adapter reads and changes the layer's weights, which are in 4 "
            "bits");
  torch::manual_seed(1);
  EXPECT_NE(refusal([&] {
              quantize_4bit(*AutoModelForCausalLM::from_config({{"model_type", "gpt2"},
                                                                {"vocab_size", 16},
                                                                {"n_positions", 8},
                                                                {"n_embd", 16},
                                                                {"n_layer", 1},
                                                                {"n_head", 2}}));
            }).find("G-PEFT-6: the model has no linear layer that 4 bits apply to"),
            std::string::npos);
}

TEST(GpuNf4, TheKernelHasTheBitsOfThePlainForm) {
  if (!torch::cuda::is_available() || !kernels::have_cuda_kernels())
    GTEST_SKIP() << "no GPU here, or built without GRADUS_CUDA";
  torch::manual_seed(5);
  for (const bool nested : {false, true})
    for (const auto dtype : {torch::kFloat, torch::kBFloat16, torch::kHalf})
      for (const auto& sizes : {std::vector<int64_t>{130, 128}, {64, 1}, {16, 4100}}) {
        auto matrix = kernels::nf4_quantized(torch::randn(sizes));
        if (nested) matrix = nf4_nested(std::move(matrix));
        const auto expected = kernels::nf4_dense(matrix, dtype);
        for (auto* part :
             {&matrix.packed, &matrix.absmax, &matrix.codes, &matrix.values, &matrix.offset})
          if (part->defined()) *part = part->cuda();
        EXPECT_TRUE(torch::equal(kernels::nf4_dense(matrix, dtype).cpu(), expected))
            << dtype << nested << sizes[0];
      }
}

}  // namespace
}  // namespace gradus
