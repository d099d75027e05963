#include <gradus/core/error.h>
#include <gradus/core/json.h>
#include <gradus/core/log.h>
#include <gradus/formats/safetensors.h>
#include <gradus/formats/torch_file.h>
#include <gradus/models/auto_model.h>
#include <gradus/models/config_reader.h>
#include <gtest/gtest.h>
#include <torch/nn/modules/linear.h>

#include <fstream>

#include "../error_of.h"
#include "temporary_folder.h"

namespace gradus {
namespace {

using nlohmann::json;
using torch::Tensor;

json tiny_gpt2() {
  return {{"model_type", "gpt2"}, {"vocab_size", 32},  {"n_positions", 16},
          {"n_embd", 16},         {"n_layer", 2},      {"n_head", 2},
          {"resid_pdrop", 0.0},   {"embd_pdrop", 0.0}, {"attn_pdrop", 0.0}};
}

#define EXPECT_TEXT(text, part) EXPECT_NE((text).find(part), std::string::npos) << (text)

/// Keeps what is logged.
class Listener : public LogSink {
 public:
  void message(LogLevel, std::string_view line) override { text += std::string(line) + "\n"; }
  void print(std::string_view) override {}
  std::string text;
};

struct Listening {
  Listening() : sink(std::make_shared<Listener>()), before(set_log_sink(sink)) {}
  ~Listening() { set_log_sink(before); }
  std::shared_ptr<Listener> sink;
  std::shared_ptr<LogSink> before;
};

TEST(ModelOutput, NamesWhatThereIs) {
  const ModelOutput output{{"loss", torch::tensor(1.0)}, {"logits", torch::zeros({2})}};
  EXPECT_EQ(output[1].numel(), 2);
  EXPECT_TEXT(error_of([&] { output["hidden"]; }),
              "no output named \"hidden\"; it returned loss, logits [G-MODEL-1]");
  EXPECT_TEXT(error_of([&] { output[2]; }), "no output at index 2; it returned 2 (loss, logits)");
  EXPECT_TEXT(error_of([] { ModelOutput().loss(); }), "it returned nothing");
}

TEST(Model, StateDictOfAnyModule) {
  auto model =
      make_model(torch::nn::Linear(3, 2), [](torch::nn::LinearImpl& linear, const Batch& batch) {
        return ModelOutput{{"logits", linear.forward(batch["x"])}};
      });
  EXPECT_EQ(model->state_dict().keys(), (std::vector<std::string>{"weight", "bias"}));
  EXPECT_EQ(trainable_parameters(*model)[0].first, "weight");
  StateDict other;
  other.insert("weight", torch::zeros({2, 2}));
  other.insert("extra", torch::zeros({1}));
  const auto text = error_of([&] { model->load_state_dict(other); });
  EXPECT_TEXT(text,
              "missing: bias; unexpected: extra; of another shape: weight (model [2, 3], given [2, "
              "2]) [G-MODEL-2]");
  EXPECT_TEXT(error_of([&] { model->gradient_checkpointing_enable(); }), "G-MODEL-3");
  EXPECT_TEXT(error_of([&] { model->set_embedding_noise(5.0); }), "G-MODEL-4");
}

TEST(AutoModel, TiesTheHeadOnce) {
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  const auto state = model->state_dict();
  EXPECT_EQ(state.find("lm_head.weight"), nullptr);
  EXPECT_NE(state.find("transformer.wte.weight"), nullptr);
  EXPECT_EQ(trainable_parameters(*model).size(), state.size());
  auto copy = AutoModelForCausalLM::from_config(tiny_gpt2());
  copy->load_state_dict(state);
  const Batch batch{{"input_ids", torch::arange(8).view({1, 8})}};
  EXPECT_TRUE(torch::equal(model->forward(batch).logits(), copy->forward(batch).logits()));
}

TEST(AutoModel, UnknownTypesNameTheKnown) {
  auto config = tiny_gpt2();
  config["model_type"] = "gpt3";
  const auto text = error_of([&] { AutoModelForCausalLM::from_config(config); });
  EXPECT_TEXT(text, "unknown model_type \"gpt3\" for causal language modeling [G-MODEL-6]");
  EXPECT_TEXT(text, "bart, big_bird, gpt2, llama, mbart, mistral, qwen2, qwen3");
  config["model_type"] = "gpt2";
  EXPECT_TEXT(error_of([&] { AutoModelForSeq2SeqLM::from_config(config); }),
              "model_type \"gpt2\" has no head for sequence-to-sequence language modeling");
  config.erase("model_type");
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_config(config); }), "has no model_type");
}

TEST(AutoModel, RefusesBadConfigs) {
  const auto with = [](const char* key, json value) {
    auto config = tiny_gpt2();
    config[key] = std::move(value);
    return error_of([&] { AutoModelForCausalLM::from_config(config); });
  };
  EXPECT_TEXT(
      with("n_embd", std::nan("")),
      "config.json: n_embd must be an integer from 1 to 2147483648, received NaN [G-MODEL-5]");
  EXPECT_TEXT(with("n_head", 3), "n_embd must be a multiple of n_head (3), received 16");
  EXPECT_TEXT(with("n_head", "two"), "n_head must be an integer");
  EXPECT_TEXT(with("resid_pdrop", 1.5),
              "resid_pdrop must be a finite number from 0 to 1, received 1.5");
  EXPECT_TEXT(with("layer_norm_epsilon", std::numeric_limits<double>::infinity()),
              "received Infinity");
  EXPECT_TEXT(with("vocab_size", -4), "received -4");
  EXPECT_TEXT(with("n_layer", 1e9), "n_layer must be an integer from 1 to 10000");
  auto huge = tiny_gpt2();  // petabytes: no machine has them
  huge["n_positions"] = int64_t{1} << 31;
  huge["n_embd"] = int64_t{1} << 20;
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_config(huge); }), "cannot build the model");
  EXPECT_TEXT(with("tie_word_embeddings", "yes"), "tie_word_embeddings must be true or false");
  EXPECT_TEXT(with("dtype", "int8"),
              "dtype must be float32, float16, bfloat16 or float64, received \"int8\"");
  EXPECT_TEXT(error_of([] { AutoModelForCausalLM::from_config(json::array()); }),
              "expected an object");
}

TEST(AutoModel, RefusesConfigsThatCannotBeComputed) {
  const auto with = [](const char* type, const char* key, json value) {
    const json config = {{"model_type", type},       {"vocab_size", 40},
                         {"hidden_size", 16},        {"intermediate_size", 16},
                         {"num_hidden_layers", 2},   {"num_attention_heads", 2},
                         {"num_key_value_heads", 2}, {key, std::move(value)}};
    return error_of([&] { AutoModel::from_config(config); });
  };
  EXPECT_TEXT(
      with("llama", "quantization_config", {{"quant_method", "gptq"}}),
      "quantization_config must be absent, received {\"quant_method\": \"gptq\"} [G-MODEL-5]");
  EXPECT_TEXT(with("llama", "per_layer_config", {{"0", {{"head_dim", 4}}}}),
              "per_layer_config must be absent");
  EXPECT_TEXT(with("mistral", "layer_types", {"chunked_attention", "full_attention"}),
              "layer_types must be full_attention or sliding_attention for each layer, received "
              "\"chunked_attention\"");
  EXPECT_TEXT(with("qwen2", "layer_types", {"full_attention", "sliding_attention"}),
              "sliding_window must be a number and use_sliding_window true");
  EXPECT_TEXT(with("bert", "position_embedding_type", "relative_key"),
              "position_embedding_type must be absolute");
}

TEST(AutoModel, TakesTheUsersOwn) {
  AutoModelForCausalLM::register_model("my-gpt", [](const json& config) {
    auto changed = config;
    changed["model_type"] = "gpt2";
    return AutoModelForCausalLM::from_config(changed);
  });
  auto config = tiny_gpt2();
  config["model_type"] = "my-gpt";
  EXPECT_EQ(AutoModelForCausalLM::from_config(config)->class_name(), "GPT2LMHeadModel");
  expect_error(
      [] {
        AutoModelForCausalLM::register_model(
            "my-gpt", [](const json&) { return std::shared_ptr<PreTrainedModel>(); });
      },
      "G-REG-1", {"register_model: 'my-gpt' for 'causal language modeling' is there already"});
  expect_error([] { AutoModelForCausalLM::register_model("my-other", nullptr); }, "G-REG-2",
               {"'my-other' comes without a function"});
}

TEST(AutoModel, KnowsTheDefaultsOfModelTypes) {
  EXPECT_EQ(model_defaults("gpt2")->config.at("n_embd"), 768);
  EXPECT_EQ(model_defaults("gpt2")->aliases.at("hidden_size"), "n_embd");
  EXPECT_FALSE(model_defaults("gpt3"));
  register_model_defaults({"my-defaults", {{"width", 3}}});
  EXPECT_EQ(model_defaults("my-defaults")->config.at("width"), 3);
  expect_error([] { register_model_defaults({"t5", {{"d_model", 3}}}); }, "G-REG-1",
               {"register_model_defaults: 't5' is there already"});
}

TEST(PreTrainedModel, InitialisesLikeThePeer) {
  torch::manual_seed(0);
  auto config = tiny_gpt2();
  config["n_embd"] = 256;
  config["vocab_size"] = 400;
  const auto state = AutoModelForCausalLM::from_config(config)->state_dict();
  EXPECT_NEAR(state["transformer.wte.weight"].std().item<double>(), 0.02, 0.0005);
  EXPECT_NEAR(state["transformer.h.0.mlp.c_fc.weight"].std().item<double>(), 0.02, 0.0005);
  EXPECT_NEAR(state["transformer.h.1.mlp.c_proj.weight"].std().item<double>(), 0.02 / 2.0, 0.0005);
  EXPECT_NEAR(state["transformer.h.1.attn.c_proj.weight"].std().item<double>(), 0.02 / 2.0, 0.0005);
  EXPECT_EQ(state["transformer.h.0.attn.c_attn.bias"].abs().sum().item<double>(), 0.0);
  EXPECT_EQ(state["transformer.ln_f.weight"].sum().item<double>(), 256.0);
}

TEST(PreTrainedModel, LoadsByMappingAndWritesDoNotReachTheFile) {
  const TemporaryFolder folder;
  AutoModelForCausalLM::from_config(tiny_gpt2())->save_pretrained(folder.path());
  const auto before = read_file(folder.path() / "model.safetensors");
  const auto model = AutoModelForCausalLM::from_pretrained(folder.path());
  torch::NoGradGuard no_grad;
  for (auto& parameter : model->parameters()) parameter.zero_();
  EXPECT_EQ(read_file(folder.path() / "model.safetensors"), before);
}

TEST(PreTrainedModel, NeedsItsFileNoMoreOnceItIsLoaded) {
  const TemporaryFolder folder;
  auto config = tiny_gpt2();
  config["vocab_size"] = 4096;  // more than a page
  AutoModelForCausalLM::from_config(config)->save_pretrained(folder.path());
  const auto model = AutoModelForCausalLM::from_pretrained(folder.path());
  std::filesystem::resize_file(folder.path() / "model.safetensors", 0);
  EXPECT_TRUE(std::isfinite(model->state_dict()["transformer.wte.weight"].sum().item<double>()));
}

TEST(PreTrainedModel, AnIndexThatNamesNothingIsAnError) {
  const TemporaryFolder folder;
  AutoModelForCausalLM::from_config(tiny_gpt2())->save_pretrained(folder.path());
  std::filesystem::remove(folder.path() / "model.safetensors");
  std::ofstream(folder.path() / "model.safetensors.index.json") << R"({"weight_map": {}})";
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path()); }),
              "model.safetensors.index.json names no tensors: its weight_map is empty");
}

TEST(PreTrainedModel, ReadsOldNamesAndTorchFiles) {
  const TemporaryFolder folder;
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  model->save_config(folder.path());
  auto state = StateTree::dict();
  for (const auto& item : model->state_dict())
    state.set(item.key().substr(12), item.value());  // without "transformer."
  state.set("h.0.attn.bias", torch::ones({1, 1, 16, 16}));
  state.set("h.0.attn.masked_bias", torch::tensor(-1e4));
  write_torch_file(folder.path() / "pytorch_model.bin", state);
  PretrainedOptions strict;
  strict.strict = true;
  const auto loaded = AutoModelForCausalLM::from_pretrained(folder.path(), strict);
  const Batch batch{{"input_ids", torch::arange(8).view({1, 8})}};
  EXPECT_TRUE(torch::equal(model->forward(batch).logits(), loaded->forward(batch).logits()));
  EXPECT_NO_THROW(AutoModel::from_pretrained(folder.path(), strict));
}

TEST(PreTrainedModel, ReadsShardsOfTorchFiles) {
  const TemporaryFolder folder;
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  model->save_config(folder.path());
  StateTree shards[2] = {StateTree::dict(), StateTree::dict()};
  const std::string names[2] = {"pytorch_model-00001-of-00002.bin",
                                "pytorch_model-00002-of-00002.bin"};
  nlohmann::json index = {{"weight_map", nlohmann::json::object()}};
  size_t number = 0;
  for (const auto& item : model->state_dict()) {
    const auto shard = number++ % 2;
    shards[shard].set(item.key(), item.value());
    index["weight_map"][item.key()] = names[shard];
  }
  for (size_t i = 0; i < 2; ++i) write_torch_file(folder.path() / names[i], shards[i]);
  write_file_atomically(folder.path() / "pytorch_model.bin.index.json", dump_json(index));
  PretrainedOptions strict;
  strict.strict = true;
  const auto loaded = AutoModelForCausalLM::from_pretrained(folder.path(), strict);
  const Batch batch{{"input_ids", torch::arange(8).view({1, 8})}};
  EXPECT_TRUE(torch::equal(model->forward(batch).logits(), loaded->forward(batch).logits()));
  ASSERT_TRUE(std::filesystem::remove(folder.path() / names[1]));
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path()); }),
              ": the index names pytorch_model-00002-of-00002.bin, which is missing [G-MODEL-7]");
}

TEST(PreTrainedModel, ReportsWhatDoesNotFit) {
  const TemporaryFolder folder;
  AutoModelForCausalLM::from_config(tiny_gpt2())->save_pretrained(folder.path());
  {
    const Listening listening;
    PretrainedOptions options;
    options.config = {{"num_labels", 3}};
    const auto model = AutoModelForSequenceClassification::from_pretrained(folder.path(), options);
    EXPECT_TEXT(listening.sink->text,
                "GPT2ForSequenceClassification LOAD REPORT from: " + folder.path().string());
    EXPECT_TEXT(listening.sink->text, "score.weight | MISSING");
    EXPECT_EQ(model->config()["id2label"]["2"], "LABEL_2");
    EXPECT_EQ(model->config()["architectures"][0], "GPT2ForSequenceClassification");
    options.strict = true;
    EXPECT_TEXT(error_of([&] {
                  AutoModelForSequenceClassification::from_pretrained(folder.path(), options);
                }),
                "[G-MODEL-8]");
  }
  PretrainedOptions larger;
  larger.config = {{"n_layer", 3}, {"vocab_size", 40}};
  const auto text = error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path(), larger); });
  EXPECT_TEXT(text, "transformer.wte.weight");
  EXPECT_TEXT(text, "file [32, 16], model [40, 16]");
  EXPECT_TEXT(text, "ignore_mismatched_sizes");
  const Listening listening;
  larger.ignore_mismatched_sizes = true;
  const auto model = AutoModelForCausalLM::from_pretrained(folder.path(), larger);
  EXPECT_TEXT(listening.sink->text, "transformer.h.2.attn.c_attn.weight");
  EXPECT_TRUE(std::isfinite(model->state_dict()["transformer.wte.weight"].sum().item<double>()));
}

TEST(PreTrainedModel, BadFoldersAreNamed) {
  const TemporaryFolder folder;
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path() / "nothing"); }),
              "there is no such folder [G-MODEL-7]");
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path()); }),
              "it holds no config.json");
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  model->save_config(folder.path());
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path()); }),
              "holds no weights");
  model->save_pretrained(folder.path(), "10KB");
  const auto shard =
      read_json(folder.path() /
                "model.safetensors.index.json")["weight_map"]["transformer.ln_f.weight"]
          .get<std::string>();
  ASSERT_TRUE(std::filesystem::remove(folder.path() / shard));
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path()); }), shard);
  write_file_atomically(folder.path() / "config.json",
                        "{\"model_type\": \"gpt2\", \"n_embd\": NaN}");
  EXPECT_TEXT(error_of([&] { AutoModelForCausalLM::from_pretrained(folder.path()); }),
              "n_embd must be an integer");
}

TEST(PreTrainedModel, KeepsDtypes) {
  const TemporaryFolder folder;
  auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  model->to(torch::kBFloat16);
  model->save_pretrained(folder.path());
  EXPECT_EQ(read_json(folder.path() / "config.json")["dtype"], "bfloat16");
  EXPECT_EQ(AutoModelForCausalLM::from_pretrained(folder.path())->dtype(), torch::kBFloat16);
  PretrainedOptions options;
  options.dtype = torch::kFloat;
  EXPECT_EQ(AutoModelForCausalLM::from_pretrained(folder.path(), options)->dtype(), torch::kFloat);
}

TEST(PreTrainedModel, ResizesTheVocabulary) {
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  const auto old = model->state_dict()["transformer.wte.weight"].clone();
  model->resize_token_embeddings(35);
  const auto logits = model->forward({{"input_ids", torch::tensor({{34, 3}})}}).logits();
  EXPECT_EQ(logits.size(-1), 35);
  EXPECT_TRUE(torch::equal(model->state_dict()["transformer.wte.weight"].narrow(0, 0, 32), old));
  EXPECT_EQ(model->config()["vocab_size"], 35);
}

TEST(CausalLM, CountsLabelsAsThePeerDoes) {
  const auto gpt2 = AutoModelForCausalLM::from_config(tiny_gpt2());
  EXPECT_TRUE(gpt2->shifts_labels());
  EXPECT_FALSE(gpt2->counts_shifted_labels());
  const auto llama = AutoModelForCausalLM::from_config({{"model_type", "llama"},
                                                        {"vocab_size", 8},
                                                        {"hidden_size", 8},
                                                        {"intermediate_size", 8},
                                                        {"num_hidden_layers", 1},
                                                        {"num_attention_heads", 2}});
  EXPECT_TRUE(llama->counts_shifted_labels());
}

TEST(CausalLM, SaysWhatItCannotTake) {
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  EXPECT_TEXT(error_of([&] { model->forward({{"labels", torch::zeros({1, 2})}}); }),
              "either input_ids or inputs_embeds; the batch holds labels [G-MODEL-11]");
  EXPECT_TEXT(error_of([&] { model->forward({{"input_ids", torch::tensor({{1, 99}})}}); }),
              "input_ids holds 99, but the model's table has 32 rows");
  EXPECT_TEXT(
      error_of([&] { model->forward({{"input_ids", torch::zeros({1, 17}, torch::kLong)}}); }),
      "position_ids holds 16");
  EXPECT_TEXT(error_of([&] {
                model->forward({{"input_ids", torch::zeros({2, 4}, torch::kLong)},
                                {"labels", torch::zeros({2, 3}, torch::kLong)}});
              }),
              "labels have shape [2, 3]");
  const auto classifier = AutoModelForSequenceClassification::from_config(tiny_gpt2());
  EXPECT_TEXT(
      error_of([&] { classifier->forward({{"input_ids", torch::zeros({2, 4}, torch::kLong)}}); }),
      "no pad_token_id");
}

TEST(CausalLM, GivesHiddenStatesAndAttentionsWhenAsked) {
  const auto model = AutoModelForCausalLM::from_config(tiny_gpt2());
  ForwardOptions options;
  options.output_hidden_states = options.output_attentions = true;
  const Batch batch{{"input_ids", torch::arange(6).view({1, 6})}};
  const auto output = model->forward(batch, options);
  EXPECT_EQ(output["hidden_states.2"].size(1), 6);
  EXPECT_EQ(output["attentions.1"].sizes(), (torch::IntArrayRef{1, 2, 6, 6}));
  EXPECT_LT((output.logits() - model->forward(batch).logits()).abs().max().item<double>(), 1e-5);
}

TEST(WeightTable, RewritesNames) {
  EXPECT_EQ(
      rewrite_name("bert.encoder.0.LayerNorm.gamma", "*.LayerNorm.gamma", "*.LayerNorm.weight"),
      "bert.encoder.0.LayerNorm.weight");
  EXPECT_EQ(rewrite_name("a.b.c", "a.*.c", "x.*.y"), "x.b.y");
  EXPECT_EQ(rewrite_name("a.1.b.2", "a.*.b.*", "c.*.d.*"), "c.1.d.2");
  EXPECT_EQ(rewrite_name("a.b", "a.c", "x"), std::nullopt);
}

}  // namespace
}  // namespace gradus
