#include "text/tokenizer_class.h"

#include <algorithm>
#include <array>
#include <map>

#include "text/tokenizer_settings.h"

namespace gradus::text {

namespace {

using nlohmann::json;
using Tokens = std::vector<std::pair<std::string, std::string>>;

const Tokens kBert = {{"unk_token", "[UNK]"},
                      {"sep_token", "[SEP]"},
                      {"pad_token", "[PAD]"},
                      {"cls_token", "[CLS]"},
                      {"mask_token", "[MASK]"}};
const Tokens kRoberta = {{"bos_token", "<s>"},    {"eos_token", "</s>"},  {"unk_token", "<unk>"},
                         {"sep_token", "</s>"},   {"pad_token", "<pad>"}, {"cls_token", "<s>"},
                         {"mask_token", "<mask>"}};
const Tokens kGpt2 = {
    {"bos_token", "<|endoftext|>"}, {"eos_token", "<|endoftext|>"}, {"unk_token", "<|endoftext|>"}};
const Tokens kDeberta = {{"bos_token", "[CLS]"},  {"eos_token", "[SEP]"}, {"unk_token", "[UNK]"},
                         {"sep_token", "[SEP]"},  {"pad_token", "[PAD]"}, {"cls_token", "[CLS]"},
                         {"mask_token", "[MASK]"}};
const Tokens kT5 = {{"eos_token", "</s>"}, {"unk_token", "<unk>"}, {"pad_token", "<pad>"}};
const std::vector<std::string> kWithTypes = {"input_ids", "token_type_ids", "attention_mask"};

Tokens with(Tokens tokens, const Tokens& more) {
  tokens.insert(tokens.end(), more.begin(), more.end());
  return tokens;
}

/// Read from the constructors of transformers 5.22.2.
const std::vector<ClassFacts>& known_classes() {
  static const std::vector<ClassFacts> classes = {
      {.name = "BertTokenizer", .special_tokens = kBert, .model_input_names = kWithTypes},
      {.name = "DistilBertTokenizer", .special_tokens = kBert},
      {.name = "MobileBertTokenizer", .special_tokens = kBert, .model_input_names = kWithTypes},
      {.name = "LxmertTokenizer", .special_tokens = kBert, .model_input_names = kWithTypes},
      {.name = "RoFormerTokenizer", .special_tokens = kBert},
      {.name = "SplinterTokenizer", .special_tokens = kBert},
      {.name = "MPNetTokenizer",
       .special_tokens = {{"bos_token", "<s>"},
                          {"eos_token", "</s>"},
                          {"unk_token", "[UNK]"},
                          {"sep_token", "</s>"},
                          {"pad_token", "<pad>"},
                          {"cls_token", "<s>"},
                          {"mask_token", "<mask>"}}},
      {.name = "RobertaTokenizer", .special_tokens = kRoberta},
      {.name = "XLMRobertaTokenizer", .special_tokens = kRoberta},
      {.name = "MBartTokenizer", .special_tokens = kRoberta},
      {.name = "MBart50Tokenizer", .special_tokens = {kRoberta.begin() + 1, kRoberta.end()}},
      {.name = "CamembertTokenizer", .special_tokens = kRoberta},
      {.name = "GPT2Tokenizer", .special_tokens = kGpt2},
      {.name = "WhisperTokenizer", .special_tokens = kGpt2},
      {.name = "GPTNeoXTokenizer", .special_tokens = with(kGpt2, {{"pad_token", "<|padding|>"}})},
      {.name = "Qwen2Tokenizer",
       .special_tokens = {{"eos_token", "<|endoftext|>"},
                          {"unk_token", "<|endoftext|>"},
                          {"pad_token", "<|endoftext|>"}}},
      {.name = "LlamaTokenizer",
       .special_tokens = {{"bos_token", "<s>"}, {"eos_token", "</s>"}, {"unk_token", "<unk>"}},
       .pads_left = true},
      {.name = "GemmaTokenizer",
       .special_tokens = {{"bos_token", "<bos>"},
                          {"eos_token", "<eos>"},
                          {"unk_token", "<unk>"},
                          {"pad_token", "<pad>"},
                          {"mask_token", "<mask>"}},
       .pads_left = true},
      {.name = "CohereTokenizer",
       .special_tokens = {{"bos_token", "<BOS_TOKEN>"},
                          {"eos_token", "<|END_OF_TURN_TOKEN|>"},
                          {"unk_token", "<UNK>"},
                          {"sep_token", "<SEP>"},
                          {"pad_token", "<PAD>"},
                          {"cls_token", "<CLS>"},
                          {"mask_token", "<MASK_TOKEN>"}},
       .pads_left = true},
      {.name = "T5Tokenizer", .special_tokens = kT5},
      {.name = "AlbertTokenizer",
       .special_tokens = {{"bos_token", "[CLS]"},
                          {"eos_token", "[SEP]"},
                          {"unk_token", "<unk>"},
                          {"sep_token", "[SEP]"},
                          {"pad_token", "<pad>"},
                          {"cls_token", "[CLS]"},
                          {"mask_token", "[MASK]"}}},
      {.name = "DebertaTokenizer", .special_tokens = kDeberta, .model_input_names = kWithTypes},
      {.name = "DebertaV2Tokenizer", .special_tokens = kDeberta, .model_input_names = kWithTypes},
      {.name = "XLNetTokenizer",
       .special_tokens = {{"bos_token", "<s>"},
                          {"eos_token", "</s>"},
                          {"unk_token", "<unk>"},
                          {"sep_token", "<sep>"},
                          {"pad_token", "<pad>"},
                          {"cls_token", "<cls>"},
                          {"mask_token", "<mask>"}},
       .pads_left = true},
      {.name = "CLIPTokenizer",
       .special_tokens = {{"bos_token", "<|startoftext|>"},
                          {"eos_token", "<|endoftext|>"},
                          {"unk_token", "<|endoftext|>"},
                          {"pad_token", "<|endoftext|>"}}},
  };
  return classes;
}

bool is_multilingual_class(const std::string& name) {
  return name == "MBartTokenizer" || name == "MBart50Tokenizer";
}

/// Names that mean another class.
const std::map<std::string, std::string>& aliases() {
  static const std::map<std::string, std::string> names = {
      {"ElectraTokenizer", "BertTokenizer"},       {"BartTokenizer", "RobertaTokenizer"},
      {"LongformerTokenizer", "RobertaTokenizer"}, {"MT5Tokenizer", "T5Tokenizer"},
      {"LEDTokenizer", "RobertaTokenizer"},
  };
  return names;
}

/// transformers' registered class of a model type; "" where it registers the general one, nothing
/// where it has none.
const std::string* registered_class(const std::string& model_type) {
  static const std::map<std::string, std::string> classes = {
      {"albert", "AlbertTokenizer"},
      {"bart", "RobertaTokenizer"},
      {"bert", "BertTokenizer"},
      {"camembert", "CamembertTokenizer"},
      {"clip", "CLIPTokenizer"},
      {"cohere", "CohereTokenizer"},
      {"deberta", "DebertaTokenizer"},
      {"deberta-v2", "DebertaV2Tokenizer"},
      {"distilbert", "BertTokenizer"},
      {"electra", "BertTokenizer"},
      {"gemma", "GemmaTokenizer"},
      {"gemma2", "GemmaTokenizer"},
      {"gemma3", "GemmaTokenizer"},
      {"gemma3_text", "GemmaTokenizer"},
      {"gpt2", "GPT2Tokenizer"},
      {"gpt_neo", "GPT2Tokenizer"},
      {"gpt_neox", "GPTNeoXTokenizer"},
      {"gptj", "GPT2Tokenizer"},
      {"longformer", "RobertaTokenizer"},
      {"mbart", "MBartTokenizer"},
      {"mistral", ""},
      {"mixtral", ""},
      {"mobilebert", "MobileBertTokenizer"},
      {"modernbert", ""},
      {"mpnet", "MPNetTokenizer"},
      {"mpt", "GPTNeoXTokenizer"},
      {"mt5", "T5Tokenizer"},
      {"olmo", "GPTNeoXTokenizer"},
      {"olmo2", ""},
      {"opt", "GPT2Tokenizer"},
      {"phi", "GPT2Tokenizer"},
      {"phi3", ""},
      {"qwen2", "Qwen2Tokenizer"},
      {"qwen2_moe", "Qwen2Tokenizer"},
      {"qwen3", "Qwen2Tokenizer"},
      {"qwen3_moe", "Qwen2Tokenizer"},
      {"roberta", "RobertaTokenizer"},
      {"stablelm", ""},
      {"starcoder2", "GPT2Tokenizer"},
      {"t5", "T5Tokenizer"},
      {"umt5", ""},
      {"whisper", "WhisperTokenizer"},
      {"xlm-roberta", "XLMRobertaTokenizer"},
      {"xlnet", "XLNetTokenizer"},
  };
  const auto found = classes.find(model_type);
  return found == classes.end() ? nullptr : &found->second;
}

std::string without_fast(std::string name) {
  if (name.ends_with("Fast")) name.resize(name.size() - 4);
  return name;
}

std::string text_at(const json& object, const char* key) {
  return object.is_object() && object.contains(key) && object[key].is_string()
             ? object[key].get<std::string>()
             : std::string();
}

bool is_byte_level(const Backend& backend) {
  return backend.component("pre_tokenizer").dump().find("\"ByteLevel\"") != std::string::npos;
}

/// Precompiled character maps of a normalizer, alone or in a sequence; null when there is none.
json precompiled(const json& normalizer) {
  if (!normalizer.is_object()) return nullptr;
  if (normalizer.value("type", "") == "Precompiled") return normalizer;
  for (const auto& step : normalizer.value("normalizers", json::array())) {
    if (step.value("type", "") == "Precompiled") return step;
  }
  return nullptr;
}

/// A known class under its own name, everything else as the general one.
std::string known_or_general(std::string name) {
  name = without_fast(std::move(name));
  if (const auto alias = aliases().find(name); alias != aliases().end()) name = alias->second;
  const auto& classes = known_classes();
  const bool known = std::any_of(classes.begin(), classes.end(),
                                 [&](const ClassFacts& facts) { return facts.name == name; });
  return known ? name : "TokenizersBackend";
}

bool is_bert_like(const std::string& name) {
  static const std::array<std::string, 4> names = {"BertTokenizer", "DistilBertTokenizer",
                                                   "MobileBertTokenizer", "LxmertTokenizer"};
  return std::find(names.begin(), names.end(), name) != names.end();
}

json piece(const char* kind, const std::string& id, int type) {
  return {{kind, {{"id", id}, {"type_id", type}}}};
}

json template_processing(const json& single, const json& pair,
                         const std::vector<std::pair<std::string, int64_t>>& tokens) {
  auto special = json::object();
  for (const auto& [text, id] : tokens)
    special[text] = {{"id", text}, {"ids", {id}}, {"tokens", {text}}};
  return {{"type", "TemplateProcessing"},
          {"single", single},
          {"pair", pair},
          {"special_tokens", special}};
}

}  // namespace

std::string pick_tokenizer_class(const json& config, const json& tokenizer_config,
                                 const Backend& backend) {
  const auto model_type = text_at(config, "model_type");
  auto declared = text_at(tokenizer_config, "tokenizer_class");
  if (declared.empty()) declared = text_at(config, "tokenizer_class");
  const auto* registered = registered_class(model_type);
  if (without_fast(declared) == "LlamaTokenizer" && is_byte_level(backend))
    return "TokenizersBackend";
  if (declared.empty())
    return registered == nullptr ? "TokenizersBackend" : known_or_general(*registered);
  if (registered != nullptr && without_fast(declared) != *registered) {
    if (registered->empty()) return "TokenizersBackend";
    return known_or_general(model_type == "qwen2" ? *registered : declared);
  }
  return known_or_general(declared);
}

ClassFacts facts_of_class(const std::string& name) {
  for (const auto& facts : known_classes()) {
    if (facts.name == name) return facts;
  }
  return {.name = "TokenizersBackend", .special_tokens = {}};
}

void rebuild_pipeline(Backend& backend, const std::string& name, const json& tokenizer_config) {
  const auto& config = tokenizer_config.is_object() ? tokenizer_config : json::object();
  const auto flag = [&](const char* key, bool otherwise) {
    return config.contains(key) && config[key].is_boolean() ? config[key].get<bool>() : otherwise;
  };
  if (is_bert_like(name) && backend.model_type() == "WordPiece") {
    const auto strip = config.contains("strip_accents") ? config["strip_accents"] : json();
    backend.set_component("normalizer",
                          {{"type", "BertNormalizer"},
                           {"clean_text", true},
                           {"handle_chinese_chars", flag("tokenize_chinese_chars", true)},
                           {"strip_accents", strip},
                           {"lowercase", flag("do_lower_case", true)}});
    backend.set_component("pre_tokenizer", {{"type", "BertPreTokenizer"}});
    backend.set_component("decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}});
  }
  const bool byte_level =
      name == "GPT2Tokenizer" || name == "RobertaTokenizer" || name == "GPTNeoXTokenizer";
  if (byte_level && backend.model_type() == "BPE") {
    const auto pipeline = [&](bool prefix) {
      return json{{"type", "ByteLevel"},
                  {"add_prefix_space", prefix},
                  {"trim_offsets", true},
                  {"use_regex", true}};
    };
    backend.set_component("normalizer",
                          name == "GPTNeoXTokenizer" ? json{{"type", "NFC"}} : json());
    backend.set_component("pre_tokenizer", pipeline(flag("add_prefix_space", false)));
    backend.set_component("decoder", pipeline(true));
  }
  if ((name == "T5Tokenizer" || is_multilingual_class(name)) && backend.model_type() == "Unigram") {
    const json spaces = {
        {"type", "Metaspace"},
        {"replacement", "▁"},
        {"prepend_scheme", "always"},
        {"split", true},
    };
    const json one_space = {
        {"type", "Replace"}, {"pattern", {{"Regex", " {2,}"}}}, {"content", " "}};
    const bool keeps_spaces = name == "MBart50Tokenizer";
    backend.set_component(
        "normalizer", name == "T5Tokenizer" ? precompiled(backend.component("normalizer"))
                      : keeps_spaces
                          ? json{{"type", "Sequence"}, {"normalizers", json::array({one_space})}}
                          : json());
    const json by_words = {{"type", "Sequence"},
                           {"pretokenizers", json::array({{{"type", "WhitespaceSplit"}}, spaces})}};
    backend.set_component("pre_tokenizer", keeps_spaces ? spaces : by_words);
    backend.set_component("decoder", spaces);
  }
}

/// The end token and the code of the language around a text: mBART has the code behind, mBART-50 in
/// front of it. The language is `src_lang`, English by default.
static void set_language_template(Backend& backend, const TokenizerSettings& settings) {
  const auto given = text_at(settings.raw, "src_lang");
  const auto language = given.empty() ? "en_XX" : given;
  const auto* end = settings.find_special("eos_token");
  const auto code_id = backend.token_to_id(language);
  const auto end_id = end != nullptr ? backend.token_to_id(*end) : std::nullopt;
  if (!code_id || !end_id) return;
  const auto code = piece("SpecialToken", language, 0), stop = piece("SpecialToken", *end, 0),
             a = piece("Sequence", "A", 0), b = piece("Sequence", "B", 0);
  const bool in_front = settings.tokenizer_class == "MBart50Tokenizer";
  backend.set_component(
      "post_processor",
      template_processing(
          in_front ? json::array({code, a, stop}) : json::array({a, stop, code}),
          in_front ? json::array({code, a, b, stop}) : json::array({a, b, stop, code}),
          {{*end, *end_id}, {language, *code_id}}));
}

void rebuild_post_processor(Backend& backend, const TokenizerSettings& settings) {
  if (is_multilingual_class(settings.tokenizer_class))
    return set_language_template(backend, settings);
  const auto token = [&](const char* name) -> std::optional<std::pair<std::string, int64_t>> {
    const auto* text = settings.find_special(name);
    if (text == nullptr) return std::nullopt;
    const auto id = backend.token_to_id(*text);
    return id ? std::optional(std::pair(*text, *id)) : std::nullopt;
  };
  const auto cls = token("cls_token");
  const auto sep = token("sep_token");
  const auto a = piece("Sequence", "A", 0);
  const auto b = piece("Sequence", "B", 1);
  if (is_bert_like(settings.tokenizer_class) && cls && sep) {
    const auto begin = piece("SpecialToken", cls->first, 0);
    const auto end = piece("SpecialToken", sep->first, 0);
    backend.set_component(
        "post_processor",
        template_processing(json::array({begin, a, end}),
                            json::array({begin, a, end, b, piece("SpecialToken", sep->first, 1)}),
                            {*cls, *sep}));
  } else if (settings.tokenizer_class == "RobertaTokenizer" && cls && sep) {
    const auto flag = [&](const char* key, bool otherwise) {
      return settings.raw.contains(key) && settings.raw[key].is_boolean()
                 ? settings.raw[key].get<bool>()
                 : otherwise;
    };
    backend.set_component("post_processor",
                          {{"type", "RobertaProcessing"},
                           {"sep", {sep->first, sep->second}},
                           {"cls", {cls->first, cls->second}},
                           {"trim_offsets", flag("trim_offsets", true)},
                           {"add_prefix_space", flag("add_prefix_space", false)}});
  } else if (const auto end = backend.token_to_id("</s>");
             settings.tokenizer_class == "T5Tokenizer" && end) {
    const auto stop = piece("SpecialToken", "</s>", 0);
    backend.set_component(
        "post_processor",
        template_processing(json::array({a, stop}),
                            json::array({a, stop, piece("Sequence", "B", 0), stop}),
                            {{"</s>", *end}}));
  } else if (settings.tokenizer_class == "GPTNeoXTokenizer" ||
             backend.component("post_processor").is_null()) {
    backend.set_component("post_processor",
                          template_processing(json::array({a}), json::array({a, b}), {}));
  }
}

}  // namespace gradus::text
