#include <fmt/format.h>
#include <gradus/config/option_set.h>
#include <gradus/core/error.h>
#include <gradus/core/files.h>
#include <gradus/core/json.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <sstream>

#include "config/field_value.h"

// Config files: one option a key, in YAML or JSON. Errors carry the line.
namespace gradus {
namespace {

using nlohmann::json;

std::optional<double> yaml_number(const std::string& text) {
  for (const auto* word : {".inf", ".Inf", ".INF"}) {
    if (text == word || text == "+" + std::string(word)) return INFINITY;
    if (text == "-" + std::string(word)) return -INFINITY;
  }
  if (text == ".nan" || text == ".NaN" || text == ".NAN") return NAN;
  const char* begin = text.data() + (text.starts_with('+') ? 1 : 0);
  const char* end = text.data() + text.size();
  double value = 0;
  const bool digits = text.find_first_of("0123456789") != std::string::npos;
  const auto [stop, error] = std::from_chars(begin, end, value);
  return digits && error == std::errc() && stop == end ? std::optional(value) : std::nullopt;
}

// What a plain scalar means in YAML 1.1, as PyYAML reads it; 5e-5 is a number here.
json resolve_scalar(const std::string& text) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return std::tolower(c); });
  if (lower.empty() || lower == "~" || lower == "null") return nullptr;
  if (lower == "true" || lower == "yes" || lower == "on") return true;
  if (lower == "false" || lower == "no" || lower == "off") return false;
  std::string digits = text;
  std::erase(digits, '_');
  int64_t whole = 0;
  const char* begin = digits.data() + (digits.starts_with('+') ? 1 : 0);
  const auto [stop, error] = std::from_chars(begin, digits.data() + digits.size(), whole);
  if (error == std::errc() && stop == digits.data() + digits.size()) return whole;
  if (const auto number = yaml_number(digits)) return *number;
  return text;
}

// Aliases can make a short file endless, or as good as.
constexpr int kMaxDepth = 100;
constexpr int64_t kMaxNodes = 100'000;

// `as_text`: the option is text, so that `save_strategy: no` and `run_name: 7` mean what they say.
json yaml_to_json(const YAML::Node& node, bool as_text, int64_t& nodes, int depth = 0) {
  if (++nodes > kMaxNodes || depth > kMaxDepth)
    throw Error(
        "G-CONF-6", ErrorKind::usage,
        fmt::format("the value is too large: above {} entries or {} levels", kMaxNodes, kMaxDepth),
        "Does an alias (*name) contain itself?");
  if (node.IsSequence()) {
    auto list = json::array();
    for (const auto& each : node) list.push_back(yaml_to_json(each, as_text, nodes, depth + 1));
    return list;
  }
  if (node.IsMap()) {
    auto object = json::object();
    for (const auto& pair : node) {
      if (!pair.first.IsScalar())
        throw Error("G-CONF-6", ErrorKind::usage,
                    "expected a word before the colon inside a dictionary",
                    "Write it as `key: value`.");
      object[pair.first.Scalar()] = yaml_to_json(pair.second, false, nodes, depth + 1);
    }
    return object;
  }
  if (!node.IsScalar()) return nullptr;
  const auto& text = node.Scalar();
  const bool plain = node.Tag() == "?" || node.Tag().empty();
  if (!plain || as_text)
    return plain && (text == "~" || text == "null") ? json(nullptr) : json(text);
  return resolve_scalar(text);
}

json convert_yaml(const YAML::Node& node, bool as_text, const std::string& where) {
  int64_t nodes = 0;
  try {
    return yaml_to_json(node, as_text, nodes);
  } catch (const Error& error) {
    throw Error(error.id(), error.kind(), where + ": " + error.message(), error.advice());
  }
}

/// Looks at a document without keeping it.
struct YamlPasser : YAML::EventHandler {
  using Mark = YAML::Mark;
  using Anchor = YAML::anchor_t;
  using Style = YAML::EmitterStyle::value;
  void OnDocumentStart(const Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const Mark&, Anchor) override {}
  void OnAlias(const Mark&, Anchor) override {}
  void OnScalar(const Mark&, const std::string&, Anchor, const std::string&) override {}
  void OnSequenceStart(const Mark&, const std::string&, Anchor, Style) override {}
  void OnSequenceEnd() override {}
  void OnMapStart(const Mark&, const std::string&, Anchor, Style) override {}
  void OnMapEnd() override {}
};

// How many documents a text holds, counted up to 100: yaml-cpp finds empty ones without end where a
// document begins with a comma.
int count_yaml_documents(const std::string& text) {
  std::istringstream input(text);
  YAML::Parser parser(input);
  YamlPasser passer;
  int count = 0;
  while (count < 100 && parser.HandleNextDocument(passer)) ++count;
  return count;
}

// A value of trl's key `env` as Python's str() spells it.
std::string variable_text(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_boolean()) return value.get<bool>() ? "True" : "False";
  if (value.is_null()) return "None";
  return value.dump();
}

// trl's key `env`: environment variables for the run.
void set_environment(const json& variables, const std::string& where) {
  if (!variables.is_object())
    throw Error(
        "G-CONF-6", ErrorKind::usage,
        fmt::format("{}: env must be a dictionary, received {}", where, variables.type_name()),
        "Write one variable a line, indented: NAME: value.");
  for (const auto& [name, value] : variables.items())
    if (::setenv(name.c_str(), variable_text(value).c_str(), /*overwrite=*/1) != 0)
      throw Error("G-CONF-6", ErrorKind::usage,
                  fmt::format("{}: env: '{}' cannot be the name of a variable", where, name),
                  "A name has at least one character and no '='.");
}

// The line of a key of the outermost object; JSON parsers do not keep it.
size_t line_of_key(const std::string& text, const std::string& key) {
  const std::string quoted = '"' + key + '"';
  size_t line = 1;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\n') ++line;
    if (text[i] == '{' || text[i] == '[') ++depth;
    if (text[i] == '}' || text[i] == ']') --depth;
    if (text[i] != '"') continue;
    if (depth == 1 && text.compare(i, quoted.size(), quoted) == 0) return line;
    for (++i; i < text.size() && text[i] != '"'; ++i)
      if (text[i] == '\\') ++i;
  }
  return 1;
}

}  // namespace

void OptionSet::read_file(const std::filesystem::path& file) {
  std::string text;
  try {
    text = gradus::read_file(file);
  } catch (const Error& error) {
    throw Error("G-CONF-6", ErrorKind::usage, "config file: " + error.message(),
                "Give the path of a .yaml, .yml or .json file with one option per key.");
  }
  if (file.extension() == ".json")
    read_json_text(text, file);
  else
    read_yaml(text, file);
}

void OptionSet::read_json_text(const std::string& text, const std::filesystem::path& file) {
  json dict;
  try {
    dict = parse_json(text, file.string());
  } catch (const Error& error) {
    throw Error("G-CONF-6", ErrorKind::usage, "config file: " + error.message(),
                "Correct the file; it must hold one JSON object.");
  }
  if (!dict.is_object()) return read_dict(dict, file.string());
  for (const auto& [key, value] : dict.items()) {
    const auto where = fmt::format("{} line {}", file.string(), line_of_key(text, key));
    if (key == "env" && find(key) == nullptr)
      set_environment(value, where);
    else
      read_dict({{key, value}}, where);
  }
}

void OptionSet::read_yaml(const std::string& text, const std::filesystem::path& file) {
  YAML::Node document;
  int count = 0;
  try {
    count = count_yaml_documents(text);
    if (count == 1) document = YAML::Load(text);
  } catch (const YAML::Exception& error) {
    throw Error("G-CONF-6", ErrorKind::usage,
                fmt::format("config file: {} is not valid YAML at line {}: {}", file.string(),
                            error.mark.line + 1, error.msg),
                "Correct the line; an option is written as `learning_rate: 5e-5`.");
  }
  if (count > 1)
    throw Error(
        "G-CONF-6", ErrorKind::usage,
        fmt::format("config file: {} holds {} YAML documents, expected one", file.string(), count),
        "Keep one and remove the --- lines.");
  if (count == 0 || document.IsNull()) return;
  if (!document.IsMap())
    return read_dict(convert_yaml(document, false, file.string()), file.string());
  std::set<std::string> seen;
  for (const auto& pair : document) {
    const auto where = fmt::format("{} line {}", file.string(), pair.first.Mark().line + 1);
    if (!pair.first.IsScalar())
      throw Error("G-CONF-6", ErrorKind::usage,
                  where + ": expected the name of an option before the colon");
    auto key = pair.first.Scalar();
    if (!seen.insert(key).second)
      throw Error("G-CONF-6", ErrorKind::usage, fmt::format("{}: {} appears twice", where, key),
                  "Keep one of the two.");
    std::replace(key.begin(), key.end(), '-', '_');
    const auto* option = find(key);
    if (key == "env" && option == nullptr) {
      set_environment(convert_yaml(pair.second, /*as_text=*/false, where), where);
      continue;
    }
    const bool as_text = option != nullptr && config::is_text(option->field);
    const auto choices = as_text ? option->rule.choices() : std::vector<std::string>();
    const bool boolean =
        as_text && !option->rule.when_true.empty() && pair.second.IsScalar() &&
        resolve_scalar(pair.second.Scalar()).is_boolean() &&
        std::find(choices.begin(), choices.end(), pair.second.Scalar()) == choices.end();
    read_dict({{key, convert_yaml(pair.second, as_text && !boolean, where + ": " + key)}}, where);
  }
}

}  // namespace gradus
