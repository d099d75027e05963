#include "models/adapters/lora_targets.h"

#include "text/regular_expression.h"

#include <gradus/core/error.h>
#include <gradus/core/nearest.h>
#include <gradus/models/layers/linear.h>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <torch/nn/modules/normalization.h>

#include <algorithm>
#include <cctype>
#include <map>
#include <set>

namespace gradus {

namespace {

/// peft's choice for a model type when target_modules is not given.
const std::map<std::string, std::vector<std::string>> kDefaultTargets = {
    {"t5", {"q", "v"}},
    {"mt5", {"q", "v"}},
    {"bart", {"q_proj", "v_proj"}},
    {"gpt2", {"c_attn"}},
    {"bert", {"query", "value"}},
    {"roberta", {"query", "value"}},
    {"llama", {"q_proj", "v_proj"}},
    {"mistral", {"q_proj", "v_proj"}},
    {"qwen2", {"q_proj", "v_proj"}},
    {"qwen3", {"q_proj", "v_proj"}}};

/// Where a model writes its tokens; "all-linear" leaves it out.
constexpr const char* kOutputHeads[] = {"lm_head", "cls.predictions.decoder", "vocab_projector"};
/// Heads that are new for a task, so that peft trains them as a whole.
const std::map<std::string, std::vector<std::string>> kTaskHeads = {
    {"SEQ_CLS", {"classifier", "score"}},
    {"TOKEN_CLS", {"classifier", "score"}},
    {"QUESTION_ANS", {"qa_outputs"}}};

/// The expression for whole names.
text::RegularExpression compiled(const std::string& pattern) try {
  return text::RegularExpression(pattern, text::RegularExpression::Match::whole);
} catch (const Error& error) {
  throw Error("G-PEFT-1", ErrorKind::model, "LoraConfig: " + error.message(),
              "Give a list of names, \"all-linear\", or correct the expression.");
}

bool is_or_ends_with(const std::string& name, const std::vector<std::string>& words) {
  return std::ranges::any_of(words, [&](const auto& word) {
    return name.ends_with(word) &&
           (name.size() == word.size() || name[name.size() - word.size() - 1] == '.');
  });
}

/// Whether a name or an expression for the whole name means `name`.
bool matches_name(const StringOrList& what, const std::string& name) {
  if (what.words().empty()) return false;
  if (what.is_single()) return compiled(what.words()[0]).matches(name);
  return is_or_ends_with(name, what.words());
}

/// Whether `name` is, or lies in, one of the modules.
bool lies_in(const std::string& name, const std::vector<std::string>& modules) {
  return std::ranges::any_of(modules, [&](const auto& module) {
    return ("." + name + ".").find("." + module + ".") != std::string::npos;
  });
}

bool is_wanted_block(const LoraConfig& config, const std::string& name) {
  const auto& wanted = config.layers_to_transform;
  if (wanted.empty() || config.target_modules.contains(name)) return true;
  std::vector<std::string> expressions;
  for (const auto& pattern : config.layers_pattern.words())
    expressions.push_back("(?:.*?\\.)?" + pattern + "\\.(\\d+)\\..*");
  if (expressions.empty()) expressions.push_back(".*?\\.[^.]*\\.(\\d+)\\..*");
  for (const auto& expression : expressions)
    if (const auto match = compiled(expression).find(name, 1))
      return std::ranges::find(wanted, std::stoll(match->at(1))) != wanted.end();
  return false;
}

std::vector<std::string> task_heads(const LoraConfig& config) {
  const auto found = kTaskHeads.find(config.task_type.value_or(""));
  return found == kTaskHeads.end() ? std::vector<std::string>{} : found->second;
}

bool is_linear(const torch::nn::Module& module) {
  return dynamic_cast<const layers::Linear*>(&module) != nullptr ||
         dynamic_cast<const layers::Conv1D*>(&module) != nullptr;
}

/// The last parts of the names of all linear layers, each once.
std::vector<std::string> linear_names(PreTrainedModel& base) {
  std::vector<std::string> names;
  for (const auto& [name, module] : base_modules(base)) {
    const auto last = name.substr(name.rfind('.') + 1);
    if (is_linear(*module) && std::ranges::find(names, last) == names.end()) names.push_back(last);
  }
  return names;
}

bool can_be_replaced(const torch::nn::Module& part) {
  return part.as<layers::Linear>() != nullptr || part.as<layers::Embedding>() != nullptr ||
         part.as<layers::RMSNorm>() != nullptr || part.as<torch::nn::LayerNormImpl>() != nullptr;
}

void check_trainable_as_a_whole(const std::string& name, torch::nn::Module& module) {
  for (const auto& part : module.modules())
    if (!part->named_parameters(/*recurse=*/false).is_empty() && !can_be_replaced(*part))
      throw Error("G-PEFT-2", ErrorKind::model,
                  fmt::format("modules_to_save matches {}, which has other parts than linear "
                              "layers, tables of embeddings and norms",
                              name),
                  "Name the linear layers, the tables of embeddings and the norms in it.");
}

/// The ends of a dotted name, the shortest first.
std::vector<std::string> ends_of(const std::string& name) {
  std::vector<std::string> ends;
  for (auto dot = name.rfind('.'); dot != std::string::npos && dot > 0;
       dot = name.rfind('.', dot - 1))
    ends.push_back(name.substr(dot + 1));
  ends.push_back(name);
  return ends;
}

/// A long list of names as few ends of names that mean the same layers, as peft writes it.
std::vector<std::string> shortened(const std::vector<std::string>& names, PreTrainedModel& base) {
  std::set<std::string> other_ends, kept;
  for (const auto& [name, module] : base_modules(base))
    if (!is_or_ends_with(name, names))
      for (const auto& end : ends_of(name)) other_ends.insert(end);
  std::map<std::vector<std::string>, std::string> by_ends;
  for (const auto& name : names) by_ends.emplace(ends_of(name), name);
  for (const auto& [ends, name] : by_ends)
    for (const auto& end : ends) {
      if (kept.contains(end) || other_ends.contains(end)) continue;
      // Something shorter means the layer already.
      if (std::ranges::any_of(ends,
                              [&](const auto& one) { return one != name && kept.contains(one); }))
        continue;
      kept.insert(end);
      break;
    }
  return kept.empty() || kept.size() >= names.size()
             ? names
             : std::vector<std::string>(kept.begin(), kept.end());
}

[[noreturn]] void throw_no_match(const char* option, const StringOrList& wanted,
                                 PreTrainedModel& base) {
  const auto names = linear_names(base);
  std::string advice;
  if (wanted.is_single() && std::ranges::find(names, wanted.words().front()) != names.end())
    advice = fmt::format("A single one is a regular expression for whole names: write .*{}.",
                         wanted.words().front());
  for (const auto& word : wanted.words())
    if (advice.empty()) advice = did_you_mean(word, names);
  throw Error("G-PEFT-2", ErrorKind::model,
              fmt::format("{} matches no layer of {}: {}", option, base.class_name(),
                          fmt::join(wanted.words(), ", ")),
              fmt::format("{}{}Its linear layers are {}.", advice, advice.empty() ? "" : " ",
                          join_or(names)));
}

}  // namespace

std::vector<NamedModule> base_modules(PreTrainedModel& base) {
  std::vector<NamedModule> modules;
  for (const auto& item : base.named_module().named_modules("", /*include_self=*/false))
    if (item.key().find(".lora_") == std::string::npos)
      modules.emplace_back(item.key(), item.value());
  return modules;
}

void complete_targets(LoraConfig& config, PreTrainedModel& base) {
  for (const auto& head : task_heads(config))
    if (std::ranges::find(config.modules_to_save, head) == config.modules_to_save.end())
      config.modules_to_save.push_back(head);
  const auto type = base.config_json().value("model_type", std::string());
  if (config.target_modules.words().empty()) {
    const auto found = kDefaultTargets.find(type);
    if (found == kDefaultTargets.end())
      throw Error("G-PEFT-1", ErrorKind::model,
                  fmt::format("LoraConfig: there are no default target_modules for the model type "
                              "\"{}\"",
                              type),
                  "Set target_modules, for example to \"all-linear\".");
    config.target_modules = found->second;
  }
  auto word = config.target_modules.is_single() ? config.target_modules.words()[0] : "";
  std::ranges::transform(word, word.begin(), [](unsigned char c) { return std::tolower(c); });
  constexpr size_t kLongList = 20;  // peft's limit
  if (word != "all-linear") {
    const auto& words = config.target_modules.words();
    if (!config.target_modules.is_single() && words.size() >= kLongList)
      config.target_modules = shortened(words, base);
    return;
  }
  std::vector<std::string> left_out(std::begin(kOutputHeads), std::end(kOutputHeads));
  if (config.task_type == "SEQ_CLS")
    for (const auto& head : task_heads(config)) left_out.push_back(head);
  std::vector<std::string> names;
  for (const auto& [name, module] : base_modules(base))
    if (is_linear(*module) && std::ranges::find(left_out, name) == left_out.end())
      names.push_back(name);
  config.target_modules = names.size() >= kLongList ? shortened(names, base) : names;
}

std::vector<NamedModule> adapted_modules(const LoraConfig& config, PreTrainedModel& base) {
  std::vector<NamedModule> adapted;
  for (const auto& [name, module] : base_modules(base)) {
    if (matches_name(config.exclude_modules, name) || lies_in(name, config.modules_to_save))
      continue;
    if (!matches_name(config.target_modules, name) || !is_wanted_block(config, name)) continue;
    const bool is_table = module->as<layers::Embedding>() != nullptr;
    if (!is_table && !is_linear(*module))
      throw Error(
          "G-PEFT-2", ErrorKind::model,
          fmt::format("target_modules matches {} of {}, which is neither a linear layer nor "
                      "a table of embeddings",
                      name, base.class_name()),
          "Name layers that can be adapted. To train the module as a whole, name it in "
          "modules_to_save.");
    if (is_table && config.lora_bias)
      throw Error(
          "G-PEFT-1", ErrorKind::model,
          fmt::format("LoraConfig: lora_bias cannot be used with {}, a table of embeddings", name),
          "Leave lora_bias unset, or adapt linear layers only.");
    adapted.emplace_back(name, module);
  }
  if (adapted.empty()) throw_no_match("target_modules", config.target_modules, base);
  return adapted;
}

std::vector<NamedModule> modules_to_save(const LoraConfig& config, PreTrainedModel& base) {
  std::vector<NamedModule> saved;
  for (const auto& wanted : config.modules_to_save) {
    bool found = false;
    for (const auto& item : base_modules(base)) {
      if (!item.first.ends_with(wanted)) continue;  // as in peft, also within a word
      found = true;
      check_trainable_as_a_whole(item.first, *item.second);
      // peft's files may say a name twice.
      if (std::ranges::find(saved, item) == saved.end()) saved.push_back(item);
    }
    const auto heads = task_heads(config);  // no model has all of them
    if (!found && std::ranges::find(heads, wanted) == heads.end())
      throw_no_match("modules_to_save", StringOrList(std::vector{wanted}), base);
  }
  return saved;
}

bool targets_vocabulary(const LoraConfig& config, PreTrainedModel& base) {
  constexpr const char* kTables[] = {"embed_tokens", "lm_head"};
  if (!config.target_modules.is_single())
    return std::ranges::any_of(kTables,
                               [&](auto* name) { return config.target_modules.contains(name); });
  return std::ranges::any_of(base_modules(base), [&](const auto& item) {
    return is_or_ends_with(item.first, {std::begin(kTables), std::end(kTables)}) &&
           matches_name(config.target_modules, item.first);
  });
}

namespace {

/// Whether a pattern is a name, in which a dot stands for any character as in all expressions.
/// Files may hold very many of these: they are compared without being compiled.
bool is_plain_name(const std::string& pattern) {
  return std::ranges::all_of(
      pattern, [](unsigned char c) { return std::isalnum(c) != 0 || c == '_' || c == '.'; });
}

bool ends_with_plain_name(const std::string& name, const std::string& pattern) {
  if (name.size() < pattern.size()) return false;
  const auto begin = name.size() - pattern.size();
  if (begin > 0 && name[begin - 1] != '.') return false;
  for (size_t i = 0; i < pattern.size(); ++i)
    if (pattern[i] != '.' && pattern[i] != name[begin + i]) return false;
  return true;
}

}  // namespace

template <class T>
T pattern_value(const std::vector<std::pair<std::string, T>>& patterns, const std::string& name,
                T otherwise) {
  for (const auto& [pattern, value] : patterns)
    if (is_plain_name(pattern) ? ends_with_plain_name(name, pattern)
                               : compiled("(.*\\.)?(" + pattern + ")").matches(name))
      return value;
  return otherwise;
}

template int64_t pattern_value(const std::vector<std::pair<std::string, int64_t>>&,
                               const std::string&, int64_t);
template double pattern_value(const std::vector<std::pair<std::string, double>>&,
                              const std::string&, double);

}  // namespace gradus
