// LoRA adapters without Python; tests/differential/lora_test.py compares them with peft.
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <gradus/formats/safetensors.h>
#include <gradus/formats/torch_file.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/peft_model.h>
#include <gtest/gtest.h>
#include <torch/utils.h>

#include <fstream>

#include "temporary_folder.h"

namespace gradus {
namespace {

std::shared_ptr<PreTrainedModel> small_llama(bool tied = false) {
  torch::manual_seed(1);
  return AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                            {"vocab_size", 20},
                                            {"hidden_size", 16},
                                            {"intermediate_size", 24},
                                            {"num_hidden_layers", 2},
                                            {"num_attention_heads", 2},
                                            {"tie_word_embeddings", tied}});
}

torch::Tensor peft_logits(Model& model) {
  const torch::NoGradGuard no_grad;
  model.eval();
  return model.forward({{"input_ids", torch::arange(12).view({2, 6})}})["logits"].clone();
}

LoraConfig not_zero(LoraConfig config) {
  config.init_lora_weights = "false";
  return config;
}

std::string message_of(const std::function<void()>& call, const std::string& id) {
  try {
    call();
  } catch (const Error& error) {
    EXPECT_EQ(error.id(), id);
    return std::string(error.what());
  }
  ADD_FAILURE() << "no error " << id;
  return "";
}

TEST(PeftModel, StartsAsTheBaseModelAndTrainsOnlyTheAdapter) {
  const auto base = small_llama();
  const auto before = peft_logits(*base);
  const auto model = get_peft_model(base, {.r = 2, .target_modules = {"q_proj"}});
  EXPECT_TRUE(torch::equal(peft_logits(*model), before));
  EXPECT_EQ(trainable_parameters(*model).size(), 4U);
  EXPECT_EQ(model->count_parameters().trainable, 2 * (2 * 16 + 16 * 2));
  const auto ids = torch::arange(12).view({2, 6});
  model->forward({{"input_ids", ids}, {"labels", ids}}).loss().backward();
  for (const auto& item : base->named_parameters())
    EXPECT_EQ(item.value().grad().defined(), item.key().find("lora_") != std::string::npos)
        << item.key();
}

TEST(PeftModel, IsTheBaseModelWhileDisabledAndMergesAndUnmerges) {
  for (const bool dora : {false, true}) {
    const auto base = small_llama(true);
    const auto before = peft_logits(*base);
    const auto model = get_peft_model(base, not_zero({.target_modules = {"q_proj", "down_proj"},
                                                      .modules_to_save = {"lm_head"},
                                                      .use_dora = dora}));
    const auto adapted = peft_logits(*model);
    EXPECT_GT((adapted - before).abs().max().item<double>(), 1e-3);
    model->merge_adapter();
    EXPECT_TRUE(torch::allclose(peft_logits(*model), adapted, 1e-4, 1e-5));
    {
      const auto off = model->disable_adapter();
      EXPECT_TRUE(torch::allclose(peft_logits(*model), before, 1e-4, 1e-5));
    }
    EXPECT_TRUE(torch::allclose(peft_logits(*model), adapted, 1e-4, 1e-5));
    const auto merged = model->merge_and_unload();
    EXPECT_TRUE(torch::allclose(peft_logits(*merged), adapted, 1e-4, 1e-5));
    for (const auto& item : merged->named_parameters())
      EXPECT_EQ(item.key().find("lora_"), std::string::npos) << item.key();
  }
}

TEST(PeftModel, LoadsWhatItSaved) {
  const TemporaryFolder folder;
  const auto config = not_zero({.target_modules = "all-linear",
                                .lora_alpha = 16,
                                .bias = "all",
                                .modules_to_save = {"embed_tokens"},
                                .rank_pattern = {{"q_proj", 3}},
                                .task_type = "CAUSAL_LM"});
  const auto model = get_peft_model(small_llama(), config);
  model->save_pretrained(folder.path());
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "model.safetensors"));
  EXPECT_FALSE(std::filesystem::exists(folder.path() / "config.json"));
  const auto again = PeftModel::from_pretrained(small_llama(), folder.path());
  EXPECT_TRUE(torch::equal(peft_logits(*again), peft_logits(*model)));
  EXPECT_EQ(again->count_parameters().trainable, 0);
  EXPECT_EQ(again->peft_config().rank_pattern, config.rank_pattern);
}

/// Replaces keys of an adapter's config.
void change_config(const std::filesystem::path& folder, const nlohmann::json& changes) {
  const auto file = folder / "adapter_config.json";
  auto config = read_json(file);
  config.update(changes);
  write_file_atomically(file, dump_json(config));
}

TEST(PeftModel, LoadsWhatOtherVersionsOfPeftSave) {
  const TemporaryFolder folder;
  const auto model = get_peft_model(small_llama(), not_zero({.target_modules = {"q_proj"}}));
  model->save_pretrained(folder.path());
  const auto file = folder.path() / "adapter_model.safetensors";
  auto tensors = StateTree::dict();
  for (const auto& [name, tensor] : read_safetensors_folder(folder.path(), "adapter_model"))
    tensors.set(name, tensor.clone());
  write_torch_file(folder.path() / "adapter_model.bin", tensors);
  std::filesystem::remove(file);
  change_config(folder.path(), {{"init_lora_weights", "eva"}, {"eva_config", {{"rho", 2.0}}}});
  const auto again = PeftModel::from_pretrained(small_llama(), folder.path());
  EXPECT_TRUE(torch::equal(peft_logits(*again), peft_logits(*model)));

  change_config(folder.path(), {{"init_lora_weights", "olora"}});
  const auto said =
      message_of([&] { PeftModel::from_pretrained(small_llama(), folder.path()); }, "G-PEFT-1");
  EXPECT_NE(said.find("olora, which changed the weights"), std::string::npos) << said;
  EXPECT_NE(said.find("Merge the adapter into its model"), std::string::npos) << said;
}

TEST(PeftModel, TrainsNormsAsAWhole) {
  const TemporaryFolder folder;
  const auto base = small_llama();
  const auto before = peft_logits(*base);
  const auto model =
      get_peft_model(base, {.target_modules = {"q_proj"}, .modules_to_save = {"norm"}});
  int64_t norms = 0;
  for (const auto& [name, parameter] : trainable_parameters(*model))
    if (name.find("norm") != std::string::npos) {
      torch::Tensor(parameter).detach().mul_(2);
      ++norms;
    }
  EXPECT_EQ(norms, 5) << "as in peft, every module whose name ends so";
  const auto after = peft_logits(*model);
  EXPECT_FALSE(torch::allclose(after, before));
  {
    const auto off = model->disable_adapter();
    EXPECT_TRUE(torch::equal(peft_logits(*model), before));
  }
  EXPECT_TRUE(torch::equal(peft_logits(*model), after));
  model->save_pretrained(folder.path());
  const auto again = PeftModel::from_pretrained(small_llama(), folder.path());
  EXPECT_TRUE(torch::equal(peft_logits(*again), after));
  EXPECT_TRUE(torch::equal(peft_logits(*again->merge_and_unload()), after));
}

TEST(PeftModel, HoldsSeveralAdapters) {
  const auto model = get_peft_model(small_llama(), not_zero({.target_modules = {"q_proj"}}));
  const auto first = peft_logits(*model);
  model->add_adapter("other", not_zero({.r = 2, .target_modules = {"q_proj", "v_proj"}}));
  EXPECT_TRUE(torch::equal(peft_logits(*model), first));
  model->set_adapter("other");
  EXPECT_FALSE(torch::allclose(peft_logits(*model), first));
  for (const auto& [name, parameter] : trainable_parameters(*model))
    EXPECT_NE(name.find(".other."), std::string::npos) << name;
  model->set_adapter("default");
  EXPECT_TRUE(torch::equal(peft_logits(*model), first));
  message_of([&] { model->add_adapter("other", {}); }, "G-PEFT-4");
  const auto text = message_of([&] { model->set_adapter("third"); }, "G-PEFT-4");
  EXPECT_NE(text.find("default or other"), std::string::npos) << text;
}

TEST(PeftModel, ASecondAdapterHasItsOwnCopiesOfTheBaseModel) {
  const auto base = small_llama();
  const auto before = peft_logits(*base);
  const LoraConfig config{.target_modules = {"q_proj"}, .modules_to_save = {"lm_head", "lm_head"}};
  const auto model = get_peft_model(base, config);
  EXPECT_EQ(model->count_parameters().trainable, 2 * 8 * 2 * 16 + 20 * 16);
  {
    const torch::NoGradGuard no_grad;
    for (auto& [name, parameter] : trainable_parameters(*model)) parameter.add_(0.1);
  }
  const auto first = peft_logits(*model);
  model->add_adapter("other", config);
  EXPECT_TRUE(torch::equal(peft_logits(*model), first));
  model->set_adapter("other");
  EXPECT_TRUE(torch::equal(peft_logits(*model), before));
  model->set_adapter("default");
  EXPECT_TRUE(torch::equal(peft_logits(*model), first));
  EXPECT_TRUE(torch::equal(peft_logits(*model->unload()), before));
}

TEST(PeftModel, CopiesAnAdapter) {
  const auto model = get_peft_model(
      small_llama(),
      not_zero({.r = 2, .target_modules = {"q_proj"}, .modules_to_save = {"lm_head"}}));
  {
    const torch::NoGradGuard no_grad;
    for (auto& [name, parameter] : trainable_parameters(*model)) parameter.add_(0.1);
  }
  const auto before = peft_logits(*model);
  model->copy_adapter("default", "ref");
  EXPECT_TRUE(model->has_adapter("ref"));
  EXPECT_EQ(model->active_adapter(), "default");
  {
    const torch::NoGradGuard no_grad;
    for (auto& [name, parameter] : trainable_parameters(*model)) parameter.mul_(2);
  }
  EXPECT_FALSE(torch::allclose(peft_logits(*model), before));
  model->set_adapter("ref");
  EXPECT_TRUE(torch::equal(peft_logits(*model), before));
}

TEST(AutoModel, CopiesAModelWithoutDrawingNumbers) {
  const auto model = small_llama(/*tied=*/true);
  torch::manual_seed(3);
  const auto next = torch::rand(1);
  torch::manual_seed(3);
  const auto copy = copy_of_model(ModelTask::causal_lm, *model);
  EXPECT_TRUE(torch::equal(torch::rand(1), next));
  EXPECT_TRUE(torch::equal(peft_logits(*copy), peft_logits(*model)));
  EXPECT_NE(copy->parameters()[0].data_ptr(), model->parameters()[0].data_ptr());
}

TEST(PeftModel, NamesTheNearestLayersWhenNoneMatches) {
  const auto text =
      message_of([] { get_peft_model(small_llama(), {.target_modules = {"q_prj"}}); }, "G-PEFT-2");
  EXPECT_NE(text.find("Did you mean q_proj"), std::string::npos) << text;
  message_of([] { get_peft_model(small_llama(), {.target_modules = {"norm"}}); }, "G-PEFT-2");
  message_of([] { get_peft_model(small_llama(), {.modules_to_save = {"score"}}); }, "G-PEFT-2");
}

TEST(PeftModel, RefusesAnAdapterOfAnotherModel) {
  const TemporaryFolder folder;
  get_peft_model(small_llama(), {.target_modules = {"q_proj"}})->save_pretrained(folder.path());
  auto config = small_llama()->config();
  config["hidden_size"] = 32;
  message_of(
      [&] { PeftModel::from_pretrained(AutoModelForCausalLM::from_config(config), folder.path()); },
      "G-PEFT-3");
}

TEST(PeftModel, AdaptsTablesOfEmbeddings) {
  for (const bool tied : {false, true})
    for (const bool dora : {false, true}) {
      const TemporaryFolder folder;
      const auto base = small_llama(tied);
      const auto before = peft_logits(*base);
      const auto model = get_peft_model(
          base, not_zero({.r = 2, .target_modules = {"embed_tokens"}, .use_dora = dora}));
      EXPECT_EQ(model->count_parameters().trainable, 2 * 20 + 16 * 2 + (dora ? 16 : 0));
      const auto adapted = peft_logits(*model);
      EXPECT_GT((adapted - before).abs().max().item<double>(), 1e-3);
      model->save_pretrained(folder.path());
      const auto again = PeftModel::from_pretrained(small_llama(tied), folder.path());
      EXPECT_TRUE(torch::equal(peft_logits(*again), adapted));
      if (!tied) {  // the head of a tied model changes with the table
        model->merge_adapter();
        EXPECT_TRUE(torch::allclose(peft_logits(*model), adapted, 1e-4, 1e-5));
        model->unmerge_adapter();
      }
      EXPECT_TRUE(torch::allclose(peft_logits(*model->unload()), before, 1e-4, 1e-5));
      for (const auto& item : base->named_parameters())
        EXPECT_EQ(item.key().find("lora_"), std::string::npos) << item.key();
    }
}

TEST(PeftModel, HoldsSeveralAdaptersOfATable) {
  const auto model = get_peft_model(small_llama(), not_zero({.target_modules = {"embed_tokens"}}));
  const auto first = peft_logits(*model);
  model->add_adapter("other", not_zero({.r = 2, .target_modules = {"embed_tokens"}}));
  EXPECT_TRUE(torch::equal(peft_logits(*model), first));
  model->set_adapter("other");
  EXPECT_FALSE(torch::allclose(peft_logits(*model), first));
  EXPECT_EQ(trainable_parameters(*model)[0].first, "model.embed_tokens.lora_embedding_A.other");
  model->set_adapter("default");
  EXPECT_TRUE(torch::equal(peft_logits(*model), first));
  // A second adapter of that name takes the place of the first.
  get_peft_model(model->base_model(), {.r = 3, .target_modules = {"embed_tokens"}});
  EXPECT_EQ(trainable_parameters(*model)[0].second.size(0), 3);
}

TEST(PeftModel, BringsAGrownVocabularyAlong) {
  const TemporaryFolder base_folder, folder;
  small_llama()->save_pretrained(base_folder.path());
  auto base = AutoModelForCausalLM::from_pretrained(base_folder.path());
  base->resize_token_embeddings(23);
  const auto model =
      get_peft_model(base, not_zero({.target_modules = {"q_proj"},
                                     .base_model_name_or_path = base_folder.path().string()}));
  model->save_pretrained(folder.path());
  const auto again = AutoModelForCausalLM::from_pretrained(folder.path());
  EXPECT_TRUE(torch::equal(peft_logits(*again), peft_logits(*model)));
  EXPECT_EQ(peft_logits(*again).size(-1), 23);
  message_of([&] { PeftModel::from_pretrained(small_llama(), folder.path()); }, "G-PEFT-3");
}

TEST(PeftModel, BringsItsNumberOfLabelsAlong) {
  const TemporaryFolder base_folder, folder;
  small_llama()->save_pretrained(base_folder.path());
  const auto base = AutoModelForSequenceClassification::from_pretrained(
      base_folder.path(), {.config = {{"num_labels", 5}}});
  const auto model =
      get_peft_model(base, not_zero({.target_modules = {"q_proj"},
                                     .task_type = "SEQ_CLS",
                                     .base_model_name_or_path = base_folder.path().string()}));
  model->save_pretrained(folder.path());
  const auto again = AutoModelForSequenceClassification::from_pretrained(folder.path());
  const auto scores = [](Model& one) {
    const torch::NoGradGuard no_grad;
    one.eval();
    return one.forward({{"input_ids", torch::arange(6).view({1, 6})}})["logits"].clone();
  };
  EXPECT_EQ(scores(*again).size(-1), 5);
  EXPECT_TRUE(torch::equal(scores(*again), scores(*model)));
}

TEST(LoraConfig, RefusesWhatItDoesNotKnow) {
  message_of([] { LoraConfig::from_json({{"peft_type", "IA3"}}); }, "G-PEFT-1");
  message_of([] { LoraConfig::from_json({{"r", "eight"}}); }, "G-PEFT-1");
  message_of([] { LoraConfig::from_json({{"use_qalora", true}}); }, "G-PEFT-1");
  for (const auto& config : {LoraConfig{.r = 0}, LoraConfig{.lora_dropout = 1.0},
                             LoraConfig{.bias = "some"}, LoraConfig{.init_lora_weights = "magic"}})
    message_of([&] { config.check(); }, "G-PEFT-1");
  message_of([] { get_peft_model(small_llama(), {.target_modules = "(q"}); }, "G-PEFT-1");
  message_of(
      [] {
        get_peft_model(small_llama(), {.target_modules = {"embed_tokens"}, .lora_bias = true});
      },
      "G-PEFT-1");
}

TEST(LoraConfig, ComesBackFromJson) {
  const LoraConfig config{.r = 3,
                          .target_modules = "all-linear",
                          .lora_alpha = 4,
                          .init_lora_weights = "gaussian",
                          .layers_to_transform = {1},
                          .alpha_pattern = {{"a", 2.5}}};
  EXPECT_EQ(LoraConfig::from_json(config.to_json()), config);
}

}  // namespace
}  // namespace gradus
