// Scores without logits, adapters in the fused form, and rows that hold several sequences give the
// numbers of the plain forms.
#include <gradus/kernels/form.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/backbone.h>
#include <gradus/models/peft_model.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

namespace gradus {
namespace {

using torch::Tensor;

/// The operations with their own backward on every device, while it lives.
struct FusedForm {
  FusedForm() : before(kernels::set_form(kernels::Form::fused)) {}
  ~FusedForm() { kernels::set_form(before); }
  kernels::Form before;
};

std::shared_ptr<PreTrainedModel> scored_llama(bool tied) {
  torch::manual_seed(2);
  return AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                            {"vocab_size", 37},
                                            {"hidden_size", 32},
                                            {"intermediate_size", 48},
                                            {"num_hidden_layers", 2},
                                            {"num_attention_heads", 4},
                                            {"num_key_value_heads", 2},
                                            {"tie_word_embeddings", tied}});
}

std::vector<Tensor> gradients_of(Model& model) {
  std::vector<Tensor> found;
  for (auto& [name, parameter] : trainable_parameters(model)) {
    found.push_back(parameter.grad().defined() ? parameter.grad().clone() : Tensor());
    parameter.mutable_grad().reset();
  }
  return found;
}

void expect_equal_gradients(const std::vector<Tensor>& got, const std::vector<Tensor>& wanted) {
  ASSERT_EQ(got.size(), wanted.size());
  for (size_t i = 0; i < got.size(); ++i) {
    ASSERT_TRUE(got[i].defined() == wanted[i].defined()) << i;
    if (got[i].defined()) {
      EXPECT_TRUE(torch::allclose(got[i], wanted[i], 1e-4, 1e-6)) << i;
    }
  }
}

TEST(TokenScoring, AsksTheModelForScoresInPlaceOfLogits) {
  const FusedForm fused;
  for (const bool tied : {false, true}) {
    const auto model = scored_llama(tied);
    const auto ids = torch::randint(0, 37, {2, 9}, torch::kLong);
    const auto labels = ids.clone();
    labels[0].narrow(0, 0, 3).fill_(-100);
    const auto logs = [&] {
      return (model->forward({{"input_ids", ids}})["logits"] / 0.8).log_softmax(-1);
    };
    const auto targets = torch::cat({labels.narrow(1, 1, 8), torch::full({2, 1}, -100)}, 1);
    const auto kept = targets.ne(-100);
    const auto wanted =
        logs().gather(-1, targets.clamp_min(0).unsqueeze(-1)).squeeze(-1).masked_fill(~kept, 0);
    wanted.square().sum().backward();
    const auto wanted_gradients = gradients_of(*model);

    ForwardOptions options;
    options.token_scoring = TokenScoring{.labels = labels, .temperature = 0.8};
    const auto outputs = model->forward({{"input_ids", ids}}, options);
    EXPECT_FALSE(outputs.contains("logits"));
    EXPECT_TRUE(torch::allclose(outputs["token_log_probs"], wanted, 1e-5, 1e-6));
    const auto entropy = -(logs().exp() * logs()).sum(-1).masked_fill(~kept, 0);
    EXPECT_TRUE(torch::allclose(outputs["token_entropy"], entropy, 1e-5, 1e-6));
    EXPECT_TRUE(torch::equal(outputs["token_facts"].select(-1, 1).to(torch::kBool),
                             logs().argmax(-1).eq(targets).logical_and(kept)));
    outputs["token_log_probs"].square().sum().backward();
    expect_equal_gradients(gradients_of(*model), wanted_gradients);
  }
}

TEST(TokenScoring, AHeadWithAnAdapterAnswersWithLogits) {
  const FusedForm fused;
  LoraConfig config{.r = 2, .target_modules = {"lm_head"}};
  const auto model = get_peft_model(scored_llama(false), config);
  const auto ids = torch::arange(8).view({1, 8});
  ForwardOptions options;
  options.token_scoring = TokenScoring{.labels = ids};
  EXPECT_TRUE(model->forward({{"input_ids", ids}}, options).contains("logits"));
}

TEST(FusedAdapters, HaveTheNumbersOfThePlainForm) {
  for (const bool recomputes : {false, true}) {
    LoraConfig config{.r = 4, .target_modules = "all-linear", .lora_alpha = 6};
    config.init_lora_weights = "false";
    const auto model = get_peft_model(scored_llama(true), config);
    model->train();
    if (recomputes) model->gradient_checkpointing_enable();
    const auto ids = torch::randint(0, 37, {3, 11}, torch::kLong);
    const Batch batch{{"input_ids", ids}, {"labels", ids}};
    const auto plain = model->forward(batch).loss();
    plain.backward();
    const auto wanted = gradients_of(*model);
    const FusedForm fused;
    const auto loss = model->forward(batch).loss();
    EXPECT_NEAR(loss.item<double>(), plain.item<double>(), 1e-5);
    loss.backward();
    expect_equal_gradients(gradients_of(*model), wanted);
    for (const auto& item : model->base_model()->named_parameters())
      EXPECT_EQ(item.value().requires_grad(), item.key().find("lora_") != std::string::npos);
  }
}

TEST(FusedAdapters, AreRoundedOnlyWherePeftTrainsNothingElse) {
  EXPECT_TRUE(get_peft_model(scored_llama(false), {.r = 2})->takes_bf16_weights());
  LoraConfig dora{.r = 2};
  dora.use_dora = true;
  EXPECT_FALSE(get_peft_model(scored_llama(false), dora)->takes_bf16_weights());
  LoraConfig copies{.r = 2};
  copies.modules_to_save = std::vector<std::string>{"lm_head"};
  EXPECT_FALSE(get_peft_model(scored_llama(false), copies)->takes_bf16_weights());
}

TEST(PackedRows, AttendInsideTheirSequences) {
  const auto model = scored_llama(false);
  const auto ids = torch::randint(0, 37, {1, 12}, torch::kLong);
  const auto starts = torch::tensor({0, 5, 6, 12, 12}, torch::kInt);
  const auto positions = torch::tensor({0, 1, 2, 3, 4, 0, 0, 1, 2, 3, 4, 5}).view({1, 12});
  const auto packed = model->forward(
      {{"input_ids", ids}, {"position_ids", positions}, {"cu_seq_lens_q", starts}})["logits"];
  std::vector<Tensor> parts;
  for (const auto& [from, to] : {std::pair(0, 5), std::pair(5, 6), std::pair(6, 12)})
    parts.push_back(model->forward({{"input_ids", ids.slice(1, from, to)}})["logits"]);
  const auto alone = torch::cat(parts, 1);
  EXPECT_TRUE(torch::allclose(packed, alone, 1e-4, 1e-5));
  packed.square().sum().backward();
  const auto got = gradients_of(*model);
  alone.square().sum().backward();
  expect_equal_gradients(got, gradients_of(*model));
}

TEST(RightPadding, NeedsNoMaskInACausalModel) {
  for (const auto* kind : {"llama", "gpt2"}) {
    torch::manual_seed(3);
    nlohmann::json config = {{"model_type", kind}, {"vocab_size", 37}};
    if (std::string(kind) == "gpt2")
      config.update({{"n_embd", 16}, {"n_layer", 2}, {"n_head", 2}, {"n_positions", 16}});
    else
      config.update({{"hidden_size", 16},
                     {"intermediate_size", 24},
                     {"num_hidden_layers", 2},
                     {"num_attention_heads", 2}});
    const auto model = AutoModelForCausalLM::from_config(config);
    model->eval();
    const auto ids = torch::randint(0, 37, {2, 8}, torch::kLong);
    auto mask = torch::ones_like(ids);
    mask[1].narrow(0, 5, 3).zero_();
    Batch batch{{"input_ids", ids}, {"attention_mask", mask}};
    const auto wanted = model->forward(batch)["logits"];
    batch.set(kIsRightPadded, torch::ones({}, torch::kBool));
    const auto got = model->forward(batch)["logits"];
    EXPECT_TRUE(torch::allclose(got[0], wanted[0], 1e-5, 1e-6)) << kind;
    EXPECT_TRUE(torch::allclose(got[1].narrow(0, 0, 5), wanted[1].narrow(0, 0, 5), 1e-5, 1e-6))
        << kind;
    EXPECT_FALSE(torch::allclose(got[1].narrow(0, 5, 3), wanted[1].narrow(0, 5, 3), 1e-5, 1e-6))
        << "what belongs to padding is another thing now";
  }
}

}  // namespace
}  // namespace gradus
